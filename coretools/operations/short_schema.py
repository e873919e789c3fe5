"""Shorten a JSON Schema: what is redundant for a model is left out."""

from collections.abc import Iterator
from typing import Any

from coretools.errors import BadSetting


def compact(schema: dict[str, Any], *, keeps_null: bool = False) -> dict[str, Any]:
    """A schema without what is redundant for a model, which halves the size of a tool list.

    Left out: titles, descriptions of whole models, null arms (an optional argument is left out instead; null is still
    accepted), lower bounds of 0 and 1, default values null, false, 0, "", [] and "." for a path, and
    `additionalProperties: false`. Models are inlined, unless they contain themselves. Everything left out is still
    validated. `keeps_null` is for results, where null is a value.

    Raises:
        BadSetting: a reference leads out of the schema.
    """
    # Descriptions of models go; that of a parameter whose type is a model stays.
    models = {name: _undescribed(model) for name, model in schema.get("$defs", {}).items()}
    recursive = _recursive(models)
    whole = _inlined({key: value for key, value in _undescribed(schema).items() if key != "$defs"}, models, recursive)
    if "$ref" in whole:  # clients want to see an object at the top
        name, others = _name_of(whole), {key: value for key, value in whole.items() if key != "$ref"}
        whole = {**_inlined(models[name], models, recursive), **others}
    shortened: dict[str, Any] = _without_redundant(whole, keeps_null)
    if recursive:
        kept = {name: _inlined(models[name], models, recursive) for name in sorted(recursive)}
        shortened["$defs"] = {name: _without_redundant(model, keeps_null) for name, model in kept.items()}
    return shortened


def hoisted(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema of an object with one required property; its models are at the top, where references expect them."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    models = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {"type": "object", "properties": {name: inner}, "required": [name], **models}


def _undescribed(model: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in model.items() if key != "description" or "properties" not in model}


def _name_of(reference: dict[str, Any]) -> str:
    name: str = reference["$ref"].removeprefix("#/$defs/")
    return name


def _recursive(models: dict[str, Any]) -> set[str]:
    """The names of the models that contain themselves, directly or within others."""
    reached = {name: set(_references(model)) for name, model in models.items()}
    for _ in models:
        reached = {name: set(names).union(*(reached.get(one, ()) for one in names)) for name, names in reached.items()}
    return {name for name, names in reached.items() if name in names}


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield _name_of(node)
        node = list(node.values())
    for item in node if isinstance(node, list) else ():
        yield from _references(item)


def _inlined(node: Any, models: dict[str, Any], recursive: set[str]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, models, recursive) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = _name_of(node)
        if name not in models:
            raise BadSetting(f"{name}: no model of this name is within the schema")
        if name in recursive:
            return node
        others = {key: value for key, value in node.items() if key != "$ref"}
        return {**_inlined(models[name], models, recursive), **others}
    return {key: _inlined(value, models, recursive) for key, value in node.items()}


def _without_redundant(node: Any, keeps_null: bool) -> Any:
    if isinstance(node, list):
        return [_without_redundant(item, keeps_null) for item in node]
    if not isinstance(node, dict):
        return node
    node = node if keeps_null else _without_null_arm(node)
    return {
        key: _value_without_redundant(key, value, keeps_null)
        for key, value in node.items()
        if not _is_redundant(key, value)
    }


def _value_without_redundant(key: str, value: Any, keeps_null: bool) -> Any:
    # Below `properties` the keys are names of arguments, not keywords of JSON Schema.
    if key == "properties":
        return {name: _without_redundant(item, keeps_null) for name, item in value.items()}
    return _without_redundant(value, keeps_null)


def _is_redundant(key: str, value: Any) -> bool:
    if key == "title":
        return isinstance(value, str)
    if key == "default":
        return not value or value == "."
    if key in ("minimum", "minItems"):
        return value in (0, 1)
    return key == "additionalProperties" and value is False


def _without_null_arm(node: dict[str, Any]) -> dict[str, Any]:
    arms = node.get("anyOf", ())
    others = [arm for arm in arms if arm != {"type": "null"}]
    if len(others) == len(arms):
        return node
    if len(others) == 1:
        return {**others[0], **{key: value for key, value in node.items() if key != "anyOf"}}
    return {**node, "anyOf": others}


def drop_keywords(node: Any, keywords: tuple[str, ...]) -> None:
    """Remove keywords from a schema, except where they are names of fields."""
    if isinstance(node, list):
        for item in node:
            drop_keywords(item, keywords)
    if isinstance(node, dict):
        for keyword in keywords:
            node.pop(keyword, None)
        for key, value in node.items():
            for inner in value.values() if key in ("properties", "$defs") else (value,):
                drop_keywords(inner, keywords)
