"""Strict arguments and their schema (docs/specs/declarations.md)."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from coretools.errors import InvalidArguments
from coretools.operations.arguments import Arguments
from coretools.operations.call import Call
from coretools.operations.content import Result
from coretools.operations.output_schema import output_schema


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    old: str
    new: str = ""


class Tree(BaseModel):
    leaves: list["Tree"] = []


def sample(
    path: str,
    limit: Annotated[int, Field(ge=1, le=10, description="Most lines")] = 5,
    *,
    deep: bool = False,
    note: str | None = None,
    names: list[str] = [],  # noqa: B006  # a default of a schema, never changed
    kind: Literal["a", "b"] = "a",
    items: list[Item] | None = None,
) -> str:
    return path


def with_call(path: str, call: Call) -> str:
    return path


@pytest.fixture
def arguments() -> Arguments:
    return Arguments("sample", sample)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "path: is required"),
        ({"path": "a", "pth": "b"}, "unknown argument 'pth'; did you mean 'path'?"),
        ({"path": "a", "zzzzzz": 1}, "unknown argument 'zzzzzz' (takes path"),
        ({"path": 5}, "path: must be text, got a number 5"),
        ({"path": None}, "path: must be text, got null"),
        ({"path": "a", "limit": "5"}, "limit: must be a whole number, got text '5'"),
        ({"path": "a", "limit": 5.5}, "limit: must be a whole number"),
        ({"path": "a", "limit": True}, "limit: must be a whole number, got true"),
        ({"path": "a", "limit": 11}, "limit: must be at most 10, got a number 11"),
        ({"path": "a", "deep": "true"}, "deep: must be true or false, got text 'true'"),
        ({"path": "a", "deep": 1}, "deep: must be true or false, got a number 1"),
        ({"path": "a", "names": "x"}, "names: must be a list, got text 'x'"),
        ({"path": "a", "names": '["x", 1]'}, "names.1: must be text"),
        ({"path": "a", "names": '{"x": 1}'}, "names: must be a list, got an object"),
        ({"path": "a", "names": "[" * 100_000}, "names: must be a list, got text"),
        ({"path": "a", "items": '"x"'}, "items: must be a list"),
        ({"file_path": "a"}, "unknown argument 'file_path'; did you mean 'path'?"),
        (
            {"path": "a", "items": [{"old_string": "x"}]},
            "items.0: unknown name 'old_string'; did you mean 'old'?",
        ),
        ({"path": "a", "names": ["x", 1]}, "names.1: must be text"),
        ({"path": "a", "kind": "c"}, "kind: input should be 'a' or 'b'"),
        ({"path": "a", "items": [{"old": "x", "extra": 1}]}, "items.0: unknown name 'extra' (takes old, new)"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_invalid_arguments_are_refused_by_name(arguments: Arguments, given: dict[str, object], sentence: str) -> None:
    """declarations-3: strict, every error named, without a library's wording."""
    with pytest.raises(InvalidArguments) as caught:
        arguments.accept(given)
    assert sentence in str(caught.value)
    assert "pydantic" not in str(caught.value)
    assert "https://" not in str(caught.value)


def test_a_pattern_with_braces_is_shown_as_it_is() -> None:
    """declarations-3: it is no format of ours."""

    def named(code: Annotated[str, Field(pattern="^[0-9a-f]{4}$")]) -> str:
        """Name a code."""
        return code

    with pytest.raises(InvalidArguments, match=r"code: string should match pattern '\^\[0-9a-f\]\{4\}\$'"):
        Arguments("named", named).accept({"code": "x"})


def test_a_list_or_an_object_may_come_as_json_text(arguments: Arguments) -> None:
    """declarations-3: as many models send them; a string parameter gets the text."""
    given = {"path": '["a"]', "names": '["x", "y"]', "items": '[{"old": "1"}]'}
    accepted = arguments.accept(given)
    assert (accepted["path"], accepted["names"]) == ('["a"]', ["x", "y"])
    assert accepted["items"][0].old == "1"


def test_an_error_names_the_first_faults_and_counts_the_others(arguments: Arguments) -> None:
    """declarations-3: 100,000 invalid items make no error of 7 MB, and a name of 1 MB is not repeated."""
    with pytest.raises(InvalidArguments) as caught:
        arguments.accept({"path": "a", "items": [{"zzz": 1}] * 10_000})
    assert "items.0.old: is required; items.0: unknown name 'zzz' (takes old, new); items.1" in str(caught.value)
    assert str(caught.value).endswith("; and 19990 more")
    with pytest.raises(InvalidArguments) as caught:
        arguments.accept({"path": "a", "n" * 1_000_000: 1})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["null", '{"a": 1}', "[1, 2]", "true", "5", "", "\n", "é"])
def test_text_that_looks_like_json_stays_text(arguments: Arguments, text: str) -> None:
    """declarations-4: a tool that writes JSON gets it as it was sent, in `str` and in `str | None`."""
    accepted = arguments.accept({"path": text, "note": text})
    assert (accepted["path"], accepted["note"]) == (text, text)


def test_defaults_are_filled_in_and_the_call_is_not_an_argument(arguments: Arguments) -> None:
    """declarations-2: the signature is the schema."""
    accepted = arguments.accept({"path": "a"})
    assert accepted["limit"] == 5
    injected = Arguments("with_call", with_call)
    assert injected.injected == {"call": Call}
    assert injected.names == ("path",)
    with pytest.raises(InvalidArguments, match="unknown argument 'call'"):
        injected.accept({"path": "a", "call": 1})


def test_the_schema_has_only_what_a_model_needs(arguments: Arguments) -> None:
    """declarations-2: JSON Schema 2020-12 without titles, null alternatives, and what is refused anyway."""
    schema = arguments.schema()
    assert "additionalProperties" not in str(schema)
    assert schema["required"] == ["path"]
    assert schema["properties"]["path"] == {"type": "string"}
    assert schema["properties"]["limit"] == {
        "default": 5,
        "description": "Most lines",
        "maximum": 10,
        "type": "integer",
    }
    assert schema["properties"]["note"] == {"type": "string"}
    assert "title" not in str(schema)


def test_a_property_named_title_or_description_stays_in_the_schema() -> None:
    """declarations-2: only the schema's own keywords are dropped, never an argument."""

    def function(title: str, description: str = "") -> str:
        return title

    assert set(Arguments("function", function).schema()["properties"]) == {"title", "description"}


def test_the_output_schema_is_that_of_the_result() -> None:
    """declarations-5: the result of a structured tool is described by its model."""

    class Found(Result):
        count: int
        names: list[str]

    schema = output_schema(Found)
    assert schema["properties"]["count"] == {"type": "integer"}
    assert set(schema) == {"type", "properties"}


def test_models_are_inlined_unless_they_contain_themselves(arguments: Arguments) -> None:
    """declarations-2: no references that a client has to resolve."""
    schema = arguments.schema()
    assert "$defs" not in schema
    assert schema["properties"]["items"]["items"]["properties"]["old"] == {"type": "string"}

    def function(tree: Tree) -> str:
        return str(tree)

    recursive = Arguments("function", function).schema()
    assert recursive["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert set(recursive["$defs"]) == {"Tree"}
