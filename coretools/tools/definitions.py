"""What defines a symbol in each language: the kinds of nodes of its grammar, by their names in tree-sitter."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_FUNCTION, _METHOD, _CLASS, _TYPE = "function", "method", "class", "type"
_INTERFACE, _ENUM, _MODULE, _VARIABLE = "interface", "enum", "module", "variable"


@dataclass(frozen=True, slots=True)
class Definitions:
    """The nodes of one language."""

    kinds: Mapping[str, str]
    """What each node defines."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """Nodes that define nothing themselves and lend their members a name, with the field that has it."""
    receivers: Mapping[str, str] = field(default_factory=dict)
    """The field of a definition outside its type that names this type."""
    wrappers: frozenset[str] = frozenset()
    """Nodes around a definition that belong to its text: decorators, `export`."""


_SCRIPT = {
    "function_declaration": _FUNCTION,
    "generator_function_declaration": _FUNCTION,
    "function_signature": _FUNCTION,
    "class_declaration": _CLASS,
    "abstract_class_declaration": _CLASS,
    "method_definition": _METHOD,
    "method_signature": _METHOD,
    "abstract_method_signature": _METHOD,
    "field_definition": _VARIABLE,
    "public_field_definition": _VARIABLE,
    "variable_declarator": _VARIABLE,
    "interface_declaration": _INTERFACE,
    "type_alias_declaration": _TYPE,
    "enum_declaration": _ENUM,
    "internal_module": _MODULE,
}
_JAVASCRIPT = Definitions(
    _SCRIPT,
    wrappers=frozenset({"export_statement", "lexical_declaration", "variable_declaration", "ambient_declaration"}),
)

_C = {
    "function_definition": _FUNCTION,
    "struct_specifier": _TYPE,
    "union_specifier": _TYPE,
    "enum_specifier": _ENUM,
    "type_definition": _TYPE,
    "preproc_def": "macro",
    "preproc_function_def": "macro",
}

DEFINITIONS: Mapping[str, Definitions] = {
    "python": Definitions(
        {"function_definition": _FUNCTION, "class_definition": _CLASS, "assignment": _VARIABLE},
        wrappers=frozenset({"decorated_definition"}),
    ),
    "javascript": _JAVASCRIPT,
    "typescript": _JAVASCRIPT,
    "tsx": _JAVASCRIPT,
    "go": Definitions(
        {
            "function_declaration": _FUNCTION,
            "method_declaration": _METHOD,
            "method_elem": _METHOD,
            "type_spec": _TYPE,
            "type_alias": _TYPE,
            "const_spec": _VARIABLE,
            "var_spec": _VARIABLE,
        },
        receivers={"method_declaration": "receiver"},
        wrappers=frozenset({"type_declaration"}),
    ),
    "rust": Definitions(
        {
            "function_item": _FUNCTION,
            "function_signature_item": _FUNCTION,
            "struct_item": _TYPE,
            "union_item": _TYPE,
            "enum_item": _ENUM,
            "trait_item": _INTERFACE,
            "mod_item": _MODULE,
            "const_item": _VARIABLE,
            "static_item": _VARIABLE,
            "type_item": _TYPE,
            "macro_definition": "macro",
        },
        scopes={"impl_item": "type"},
    ),
    "java": Definitions(
        {
            "class_declaration": _CLASS,
            "interface_declaration": _INTERFACE,
            "annotation_type_declaration": _INTERFACE,
            "enum_declaration": _ENUM,
            "record_declaration": _CLASS,
            "method_declaration": _METHOD,
            "constructor_declaration": _METHOD,
            "field_declaration": _VARIABLE,
        }
    ),
    "ruby": Definitions(
        {
            "class": _CLASS,
            "module": _MODULE,
            "method": _METHOD,
            "singleton_method": _METHOD,
            "assignment": _VARIABLE,
        }
    ),
    "php": Definitions(
        {
            "class_declaration": _CLASS,
            "interface_declaration": _INTERFACE,
            "trait_declaration": _INTERFACE,
            "enum_declaration": _ENUM,
            "function_definition": _FUNCTION,
            "method_declaration": _METHOD,
            "const_element": _VARIABLE,
        }
    ),
    "c#": Definitions(
        {
            "class_declaration": _CLASS,
            "struct_declaration": _TYPE,
            "interface_declaration": _INTERFACE,
            "enum_declaration": _ENUM,
            "record_declaration": _CLASS,
            "delegate_declaration": _TYPE,
            "method_declaration": _METHOD,
            "constructor_declaration": _METHOD,
            "property_declaration": _VARIABLE,
        },
        scopes={"namespace_declaration": "name"},
    ),
    "c": Definitions(_C),
    "c++": Definitions(
        _C | {"class_specifier": _CLASS, "alias_declaration": _TYPE, "concept_definition": _TYPE},
        scopes={"namespace_definition": "name"},
        wrappers=frozenset({"template_declaration"}),
    ),
    "kotlin": Definitions(
        {
            "class_declaration": _CLASS,
            "object_declaration": _CLASS,
            "function_declaration": _FUNCTION,
            "property_declaration": _VARIABLE,
            "type_alias": _TYPE,
        }
    ),
    "swift": Definitions(
        {
            "class_declaration": _CLASS,
            "protocol_declaration": _INTERFACE,
            "function_declaration": _FUNCTION,
            "protocol_function_declaration": _METHOD,
            "property_declaration": _VARIABLE,
            "typealias_declaration": _TYPE,
        }
    ),
    "scala": Definitions(
        {
            "class_definition": _CLASS,
            "object_definition": _CLASS,
            "trait_definition": _INTERFACE,
            "enum_definition": _ENUM,
            "function_definition": _FUNCTION,
            "function_declaration": _FUNCTION,
            "val_definition": _VARIABLE,
            "type_definition": _TYPE,
        }
    ),
    "lua": Definitions({"function_declaration": _FUNCTION}),
    "bash": Definitions({"function_definition": _FUNCTION}),
}
"""By the names of `grammars.Grammar.language`."""

BODIES = frozenset({_FUNCTION, _METHOD})
"""Kinds within which a variable is local, and no symbol."""
