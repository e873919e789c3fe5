"""Shorten a JSON Schema: what is redundant for a model is left out."""

from typing import Any

from coretools.errors import BadSetting


def compact(schema: dict[str, Any], *, keeps_null: bool = False) -> dict[str, Any]:
    """A schema without what is redundant for a model, which halves the size of a tool list.

    Left out: titles, descriptions of whole models, null arms (an optional argument is left out instead; null is still
    accepted), lower bounds of 0 and 1, default values null, false, 0, "", [] and "." for a path, and
    `additionalProperties: false`. Models are inlined. Everything left out is still validated. `keeps_null` is for
    results, where null is a value.

    Raises:
        BadSetting: a model contains itself, so it can't be inlined.
    """
    whole: dict[str, Any] = _without_redundant(_inlined(schema, schema.get("$defs", {})), keeps_null)
    whole.pop("$defs", None)
    return whole


def _inlined(node: Any, models: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, models) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        if name not in models:
            raise BadSetting(f"{name}: a model that contains itself can't be an argument or a result")
        others = {other: model for other, model in models.items() if other != name}
        return {**_inlined(models[name], others), **{key: value for key, value in node.items() if key != "$ref"}}
    return {key: value if key == "$defs" else _inlined(value, models) for key, value in node.items()}


def _without_redundant(node: Any, keeps_null: bool) -> Any:
    if isinstance(node, list):
        return [_without_redundant(item, keeps_null) for item in node]
    if not isinstance(node, dict):
        return node
    node = node if keeps_null else _without_null_arm(node)
    return {
        key: _value_without_redundant(key, value, keeps_null)
        for key, value in node.items()
        if not _is_redundant(key, value, node)
    }


def _value_without_redundant(key: str, value: Any, keeps_null: bool) -> Any:
    # Below `properties` the keys are names of arguments, not keywords of JSON Schema.
    if key == "properties":
        return {name: _without_redundant(item, keeps_null) for name, item in value.items()}
    return _without_redundant(value, keeps_null)


def _is_redundant(key: str, value: Any, node: dict[str, Any]) -> bool:
    if key == "title":
        return isinstance(value, str)
    if key == "default":
        return not value or value == "."
    if key in ("minimum", "minItems"):
        return value in (0, 1)
    if key == "additionalProperties":
        return value is False
    return key == "description" and "properties" in node


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
            for inner in value.values() if key == "properties" else (value,):
                drop_keywords(inner, keywords)
