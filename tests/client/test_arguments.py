"""Arguments of foreign tools (docs/specs/client.md)."""

from typing import Any

import pytest

from coretools.client.common.arguments import check_arguments, parse_arguments
from coretools.client.common.errors import SchemaMismatch
from coretools.errors import InvalidArguments

SLOW = "^(a|a)*$"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {"type": "string", "description": "File to read"},
        "limit": {"type": ["integer", "null"], "minimum": 1},
        "deep": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "counts": {"anyOf": [{"type": "array"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "mode": {"enum": ["r", "w"]},
        "place": {"type": "object", "properties": {"row": {"type": "integer"}}},
    },
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["path=a=b"], {"path": "a=b"}),
        (["path=5", "limit=5", "deep=true"], {"path": "5", "limit": 5, "deep": True}),
        (["limit=null"], {"limit": None}),
        (["limit=many"], {"limit": "many"}),
        (["names=a", "names=b"], {"names": ["a", "b"]}),
        (['names=["a"]'], {"names": ["a"]}),
        (["counts=1", "counts:=2"], {"counts": ["1", 2]}),
        (["either=5"], {"either": "5"}),
        (['place:={"row": 1}'], {"place": {"row": 1}}),
        (['place={"row": 1}'], {"place": {"row": 1}}),
        (["path@=f"], {"path": "text of f"}),
        (["path=@f", "unknown=@f", "names=@f"], {"path": "@f", "unknown": "@f", "names": ["@f"]}),
        (["place=@f"], {"place": "text of f"}),
        (["path="], {"path": ""}),
        (["unknown=1"], {"unknown": "1"}),
    ],
    ids=str,
)
def test_words_become_what_the_schema_wants(words: list[str], arguments: dict[str, Any]) -> None:
    """client-13: text stays text where text is possible."""
    assert parse_arguments(words, SCHEMA, lambda path: f"text of {path}") == arguments


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["path"], "'path': write name=value, name:=JSON or name@=FILE"),
        (["=x"], "'=x': write name=value"),
        ([":=1"], "':=1': write name=value"),
        (["place:={"], "place: no JSON"),
        (["path=a", "path=b"], "path: is given twice"),
        (["names:=[]", "names:=[]"], "names: is given twice"),
    ],
    ids=str,
)
def test_a_wrong_word_is_refused(words: list[str], error: str) -> None:
    """client-13"""
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(words, SCHEMA, str)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "path: is missing (File to read)"),
        ({"path": "a", "pth": "b"}, "pth: unknown argument; did you mean path?"),
        ({"path": "a", "zzz": "b"}, "zzz: unknown argument (there are: path, limit, deep"),
        ({"path": "a", "limit": "many"}, "limit: must be integer or null"),
        ({"path": "a", "limit": 0}, "limit: 0 is less than the minimum of 1"),
        ({"path": "a", "mode": "x"}, "mode: must be one of r, w"),
        ({"path": "a", "place": {"row": "x"}}, "place.row: must be integer"),
        (
            {"path": 1, "deep": 1, "limit": "x"},
            "deep: must be boolean; limit: must be integer or null; path: must be string",
        ),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], error: str) -> None:
    """client-13: with what would be right."""
    with pytest.raises(SchemaMismatch) as caught:
        check_arguments(arguments, SCHEMA)
    assert str(caught.value).startswith(error)
    check_arguments({"path": "a", "limit": None}, SCHEMA)


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"type": "strung"}, "declares an invalid schema: type"),
        ({"properties": []}, "declares an invalid schema: properties"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}, "declares a schema that can't be used"),
        ({"properties": {"a": {"$ref": "#/none"}}}, "declares a schema that can't be used"),
        ({"$ref": "#"}, "declares a schema that can't be used"),
        ({"properties": {"a": {"pattern": "("}}}, "declares an invalid schema: properties.a.pattern"),
        ({"properties": {"a": {"pattern": "^(a|a)*$"}}}, "declares a schema that can't be used: regex timed out"),
        (
            {"allOf": [{"$schema": "https://json-schema.org/draft/2020-12/schema", "patternProperties": {SLOW: {}}}]},
            "declares a schema that can't be used: regex timed out",
        ),
        (
            {"additionalProperties": False, "patternProperties": {SLOW: {}}},
            "declares a schema that can't be used: regex timed out",
        ),
        (
            {"unevaluatedProperties": False, "patternProperties": {SLOW: {}}},
            "declares a schema that can't be used: `unevaluatedProperties` together with `patternProperties`",
        ),
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_used_is_an_error_in_bounded_time(schema: dict[str, Any], error: str) -> None:
    """client-13: nothing is fetched."""
    with pytest.raises(SchemaMismatch) as caught:
        check_arguments({"a": "a" * 40 + "b", "a" * 40 + "b": 1}, schema)
    assert str(caught.value).startswith(error)


def test_names_may_follow_a_pattern() -> None:
    """client-13: `patternProperties`, with and without `additionalProperties`."""
    schema = {"properties": {"path": {}}, "patternProperties": {"^x-": {"type": "integer"}}}
    for wanted in (schema | {"additionalProperties": False}, schema | {"additionalProperties": {"type": "integer"}}):
        check_arguments({"path": "", "x-b": 1}, wanted)
        for name in ("x-a", "y"):
            with pytest.raises(SchemaMismatch, match=f"{name}: "):
                check_arguments({"path": "", name: "text"}, wanted)
