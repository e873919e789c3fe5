"""The symbols that a source file defines, by its syntax alone: their names, kinds and lines.

What a parser could not make sense of is skipped, so that an outline of an incomplete file lacks a symbol rather than
showing a wrong one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from time import thread_time
from typing import TYPE_CHECKING

from coretools.distribution import needs_extra
from coretools.errors import InvalidArguments, NotFound
from coretools.tools.definitions import BODIES, DEFINITIONS, Definitions
from coretools.tools.grammars import grammar_for, load, parse
from coretools.truncation import and_more

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_BYTES = 1024 * 1024
"""Largest file that is parsed."""

MAX_SECONDS = 2.0
"""Processor time for one file: one of 1 MiB takes up to 1 s."""

NAMED_SYMBOLS = 40
"""Symbols that an error names."""

NEAR_SYMBOLS = 5
"""Of those with a similar name."""

SIGNATURE_CHARACTERS = 200
NAME_CHARACTERS = 200

REMEMBERED = 32
"""Outlines that are kept, with their texts: an answer asks for that of a file several times, and so does the next one.

References of a method in a file of 140 KB took 485 ms of the processor without, and 40 ms with them (click, core.py).
"""

_NAME_FIELDS = ("name", "declarator", "left", "pattern", "property")
"""Fields that lead to the name of a definition, in the order in which they are tried."""

_UNNAMED_FIELDS = frozenset({"name", "variable_declaration", "identifier", "simple_identifier", "type_identifier"})
"""Nodes with a name that no field leads to: PHP's constants, Kotlin's properties, Swift's extensions."""

_WHOLE_NAMES = frozenset(
    {"qualified_identifier", "operator_name", "destructor_name", "dot_index_expression", "method_index_expression"}
)
"""Nodes that are a name as a whole: `n::A::f` in C++, `M.b` in Lua."""

_PLAIN_NAME = re.compile(r"[^\W\d][\w#$!?=.:~<>*&' -]*|#\w+|~\w+|[@$]\w+")
_LAST_NAME = re.compile(r"[.:]+")


_SEPARATORS = re.compile(r"::|[.#/]")
_PART = re.compile(r"[^\W\d][\w$!?=-]*")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A definition."""

    kind: str
    name: str
    scope: tuple[str, ...]
    """Names of what it is defined in, outermost first."""
    line: int
    """The first line, with its decorators; from 1."""
    end_line: int
    signature: str
    """The line with its name, without the indentation; at most `SIGNATURE_CHARACTERS`."""

    @property
    def path(self) -> str:
        """The name with those of its scope: `Class.method`."""
        return ".".join((*self.scope, self.name))


@dataclass(frozen=True, slots=True)
class Outline:
    """The symbols of a file in the order of their lines."""

    language: str
    symbols: tuple[Symbol, ...] = ()
    problem: str = ""
    """Why there are none, or not all."""

    def named(self, parts: tuple[str, ...]) -> list[Symbol]:
        """Return the symbols of a name, whose last components these are."""
        return [one for one in self.symbols if (*one.scope, one.name)[-len(parts) :] == parts]

    def enclosing(self, line: int) -> Symbol | None:
        """Return the innermost symbol around a line, counted from 1; a variable only on its own first line."""
        found = None
        for one in self.symbols:
            if one.line <= line <= one.end_line and (found is None or one.line >= found.line):
                found = one
        return found


def name_parts(name: str) -> tuple[str, ...]:
    """Return the components of a name.

    Raises:
        InvalidArguments: it is not a name.
    """
    parts = tuple(_SEPARATORS.split(name.strip().removesuffix("()"))) if name.strip() else ()
    if not all(map(_PART.fullmatch, parts)):
        raise InvalidArguments(
            f"name: {name!r} is not the name of a symbol; give one such as parse or Class.method, or take search_text"
        )
    return parts


@lru_cache(maxsize=REMEMBERED)
def outline_of(path: str, text: str) -> Outline | None:
    """Return the outline of a source file; None if its language is not known."""
    grammar = grammar_for(path, text)
    definitions = DEFINITIONS.get(grammar.language) if grammar else None
    if grammar is None or definitions is None:
        return None
    language = load(grammar)
    if language is None:
        return Outline(grammar.language, problem=f"{grammar.language} {needs_extra('code')}")
    source = text.encode("utf-8", "replace")
    if len(source) > MAX_BYTES:
        return Outline(grammar.language, problem=f"larger than {MAX_BYTES} bytes")
    deadline = thread_time() + MAX_SECONDS
    try:
        root = parse(language, source, deadline=deadline)
        symbols = tuple(_SymbolReader(source, definitions, deadline).symbols(root))
    except TimeoutError:
        return Outline(grammar.language, problem="parsing took too long")
    problem = "has syntax errors, so symbols may be missing" if grammar.is_exact and root.has_error else ""
    return Outline(grammar.language, symbols, problem)


def require_lines_of(name: str, path: str, text: str) -> tuple[int, int]:
    """Return the first and the last line in which a file defines a symbol, with all its overloads.

    Raises:
        InvalidArguments: it is not a name.
        NotFound: the file defines no such symbol, or several; names those that there are.
    """
    outline = outline_of(path, text)
    found = [] if outline is None else outline.named(name_parts(name))
    names = list(dict.fromkeys(one.path for one in found))
    if len(names) == 1:
        return min(one.line for one in found), max(one.end_line for one in found)
    known = [] if outline is None else list(dict.fromkeys(one.path for one in outline.symbols))
    near = [] if names else get_close_matches(name, known, n=NEAR_SYMBOLS)
    shown = and_more((names or near or known)[:NAMED_SYMBOLS], len(names or known)) or "no symbols are known of it"
    why = "defines several of this name" if names else f"defines no {name}"
    raise NotFound(f"{path}: {why}; there are: {shown}", path=path)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What encloses the nodes up to a byte."""

    end: int
    names: tuple[str, ...]
    is_local: bool
    """Whether it is within a function, where variables are no symbols."""


@dataclass(frozen=True, slots=True)
class _SymbolReader:
    """Reads the symbols of one file."""

    source: bytes
    definitions: Definitions
    deadline: float
    """One of `thread_time`."""

    def symbols(self, root: "Node") -> Iterator[Symbol]:
        """Yield them, outer ones before inner ones."""
        scopes: list[_Scope] = []
        for node in self._nodes(root):
            while scopes and scopes[-1].end <= node.start_byte:
                scopes.pop()
            names = scopes[-1].names if scopes else ()
            is_local = bool(scopes) and scopes[-1].is_local
            kind = self.definitions.kinds.get(node.type)
            if kind is None:
                scope = self._text(node.child_by_field_name(self.definitions.scopes[node.type])).partition("<")[0]
                scopes.append(_Scope(node.end_byte, (*names, scope), is_local=is_local))
            elif _defines(node, kind, is_local=is_local) and (name := self._name(node)):
                kind = "function" if _has_function(node) else kind
                *outer, last = _LAST_NAME.split(name) if kind in BODIES else [name]
                symbol = self._symbol(node, kind, last, (*names, *self._receiver(node), *outer))
                yield symbol
                scopes.append(_Scope(node.end_byte, (*symbol.scope, last), is_local=is_local or kind in BODIES))

    def _nodes(self, root: "Node") -> "Iterator[Node]":
        """Yield the nodes that define or enclose something, outer ones before inner ones.

        By hand, and not by a query of tree-sitter: that one takes minutes for a hostile file, and its
        `progress_callback` crashes the interpreter (0.26.1).

        Raises:
            TimeoutError: the deadline has passed.
        """
        kinds = self.definitions.kinds.keys() | self.definitions.scopes.keys()
        waiting = [root]
        while waiting:
            if thread_time() > self.deadline:
                raise TimeoutError
            node = waiting.pop()
            if node.type in kinds:
                yield node
            waiting += reversed(node.named_children)

    def _name(self, node: "Node") -> str:
        """The name of a definition; empty if it has none, or none that could be asked for."""
        named = _towards_name(node)
        while named is not None and named.type not in _WHOLE_NAMES and (inner := _towards_name(named)) is not None:
            named = inner
        text = self._text(named)
        return text if len(text) <= NAME_CHARACTERS and _PLAIN_NAME.fullmatch(text) else ""

    def _receiver(self, node: "Node") -> list[str]:
        """The type that a method is defined for, outside of it: `T` in Go's `func (t *T) f()`."""
        field = self.definitions.receivers.get(node.type)
        receiver = self._text(node.child_by_field_name(field)) if field else ""
        return re.findall(r"\w+", receiver.partition("[")[0])[-1:]

    def _symbol(self, node: "Node", kind: str, name: str, scope: tuple[str, ...]) -> Symbol:
        whole = node
        while whole.parent is not None and whole.parent.type in self.definitions.wrappers:
            whole = whole.parent
        named = node.child_by_field_name("name") or node.child_by_field_name("declarator") or node
        start = self.source.rfind(b"\n", 0, named.start_byte) + 1
        end = whole.end_point
        # A node may end with its line end.
        last = end.row if end.column == 0 and end.row > whole.start_point.row else end.row + 1
        return Symbol(kind, name, scope, whole.start_point.row + 1, last, self._line_from(start))

    def _line_from(self, at: int) -> str:
        """The rest of a line from this byte on, cut."""
        end = self.source.find(b"\n", at)
        line = self.source[at : end if end >= 0 else None]
        return line.decode("utf-8", "replace").strip()[:SIGNATURE_CHARACTERS]

    def _text(self, node: "Node | None") -> str:
        # Not `Node.text`, which takes 0.2 ms where the parser was given the text in parts.
        return "" if node is None else self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _towards_name(node: "Node") -> "Node | None":
    """The part of a node that has its name: in C a declarator within a declarator, and so on."""
    by_field = (node.child_by_field_name(field) for field in _NAME_FIELDS)
    bare = (child for child in node.named_children if child.type in _UNNAMED_FIELDS)
    return next((child for child in (*by_field, *bare) if child is not None), None)


def _defines(node: "Node", kind: str, *, is_local: bool) -> bool:
    """Whether a node of this kind is a definition here, and not a mention or a local variable."""
    if node.type.endswith("_specifier") and node.child_by_field_name("body") is None:
        return False  # `struct s *p;`
    left = node.child_by_field_name("left")
    if left is not None and left.type not in ("identifier", "constant"):
        return False  # `a.b = 1`
    return kind != "variable" or not is_local


def _has_function(node: "Node") -> bool:
    """Whether a variable is a function: `const f = () => ...`."""
    value = node.child_by_field_name("value")
    return value is not None and value.type in ("arrow_function", "function_expression", "generator_function")
