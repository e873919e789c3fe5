"""What authors may declare, and what is refused before anybody connects (docs/specs/declarations.md)."""

import dataclasses
import enum
import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from mcp import Client, MCPError
from pydantic import (
    BaseModel,
    ConfigDict,
    EmailStr,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_serializer,
    model_serializer,
)

from coretools.config.operator_policy import ToolPolicy
from coretools.errors import BadSetting
from coretools.hosting.serve import build
from coretools.operations.call import Call, SilentCall
from coretools.operations.completion import Completes
from coretools.operations.content import Image, Message, Result, Text
from coretools.operations.declare import (
    Effect,
    asks,
    at,
    channels,
    details,
    hidden,
    metadata,
    prompt,
    raw_schema,
    resource,
    tool,
)
from coretools.operations.dispatch import Dispatcher
from coretools.operations.registry import Registry, merge_registries
from coretools.questions.kinds import AskChoice, AskConfirmation, AskForm, AskText, Question
from tests.checkout import TREE

ERAS = ("legacy", "auto")


class Odd:
    """A class without a schema."""


class Failing:
    """A class whose schema raises."""

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        raise ZeroDivisionError("of somebody else")


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    when: date | None = None


class Entry(TypedDict):
    a: int
    b: NotRequired[list[Point]]


class Model(BaseModel):
    points: list[Point]
    kind: Literal["one", "two"] = "one"


class ModelWithBytes(BaseModel):
    data: bytes


class Silent(Result):
    """A result without text."""

    n: int
    why: str | None = None


class Unrepresentable(Result):
    """A value that cannot be represented as text."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    odd: Odd


def returning(name: str, annotation: Any, value: Any) -> Callable[[], Any]:
    """Create a function that returns a value."""

    def made() -> Any:
        """Give it."""
        return value

    made.__name__ = made.__qualname__ = name
    made.__annotations__ = {"return": annotation}
    return made


def function(returned: Any = str, doc: str = "Do.", **parameters: Any) -> Callable[..., Any]:
    """Create a function with these annotations."""

    names = ", ".join(parameters)
    space: dict[str, Any] = {}
    exec(f"def made({names}): return ''", space)  # names of parameters of the tables below
    made: Callable[..., Any] = space["made"]
    made.__annotations__ = {**parameters, "return": returned}
    made.__doc__, made.__module__, made.__qualname__ = doc, "authors", "made"
    return made


class AuthorsError(Exception):
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise AuthorsError("not with me")


REFUSED_PARAMETERS = {
    "what raises an exception of its author": (list[AuthorsError], "can't be served: AuthorsError: not with me"),
    "a class": (Odd, "parameter 'value' (Odd)"),
    "a class that fails": (Failing, "of somebody else"),
    "a name that is nowhere": ("Nowhere", "the annotation of parameter 'value' can't be resolved: name 'Nowhere'"),
    "a module that is nowhere": ("nowhere.Thing", "can't be resolved: name 'nowhere'"),
    "no type": ("int[", "the annotation of parameter 'value' can't be resolved"),
    "a function": (Callable[[], int], "parameter 'value'"),
    "a list of classes": (list[Odd], "parameter 'value' (list["),
    "a package that is missing": (EmailStr, "email-validator is not installed"),
    "a pattern that is none": (Annotated[str, Field(pattern="(")], "unclosed group"),
    "a lone surrogate": (Literal["\ud800"], "parameter 'value'"),
    "a source of values that is not there": (Annotated[str, Completes("nowhere")], "value completes with 'nowhere'"),
    "an optional call": (Call | None, "parameter 'value'"),
}

DECLARED: dict[str, tuple[Callable[[], object], str]] = {
    "a title": (lambda: tool(Effect.READ, title=5), "@tool: title must be str, not int"),  # type: ignore[arg-type]
    "a hint": (lambda: tool(Effect.READ, idempotent="yes"), "idempotent must be bool"),  # type: ignore[arg-type]
    "profiles": (lambda: tool(Effect.READ, profiles="dev"), "profiles must be tuple, not str"),  # type: ignore[arg-type]
    "an address": (lambda: resource(5), "@resource: uri must be str"),  # type: ignore[arg-type]
    "a media type": (lambda: resource("app://x", mime_type=5), "mime_type must be str"),  # type: ignore[arg-type]
    "details": (lambda: details(5), "@details: its text must be str"),  # type: ignore[arg-type]
    "metadata": (lambda: metadata({5: 1}), "@metadata: key 5 must be str"),  # type: ignore[dict-item]
    "a question": (lambda: asks(AskText), "write AskText\\(key="),  # type: ignore[arg-type]
    "a builtin": (lambda: tool(Effect.READ)(len), "builtins.len: can't be declared"),
}


class Nested(BaseModel):
    points: list[int]


class Coloured(BaseModel):
    colour: Colour


class Flat(BaseModel):
    name: str
    day: date | None = None
    size: Literal["s", "m"] = "s"
    days: list[Literal["mo", "tu"]] = []


QUESTIONS: dict[str, tuple[Callable[[], Question[Any]], str]] = {
    "a dataclass": (lambda: AskForm(key="q", message="?", model=Point), "'q': model must be a pydantic model"),  # type: ignore[type-var]
    "a list of numbers": (lambda: AskForm(key="q", message="?", model=Nested), "'q': field 'points' is not possible"),
    "an enumeration": (lambda: AskForm(key="q", message="?", model=Coloured), r"'colour' is not possible .*Literal"),
    "no choices": (lambda: AskChoice(key="q", message="?", choices=()), "'q': there is nothing to choose from"),
    "another default": (
        lambda: AskChoice(key="q", message="?", choices=("a", "b"), default="c"),
        "default 'c' is not one of its choices",
    ),
}


def serve_question(made: Callable[[], Question[Any]]) -> None:
    registry = Registry()
    registry.add(tool(Effect.READ)(asks(made())(function())))
    registry.validate()


@pytest.mark.parametrize("case", QUESTIONS)
def test_an_unanswerable_question_ends_the_start(case: str) -> None:
    """questions-19: not the first call that asks it."""
    made, expected = QUESTIONS[case]
    serve_question(lambda: AskForm(key="q", message="?", model=Flat))
    with pytest.raises(BadSetting, match=expected):
        serve_question(made)


@pytest.mark.parametrize("case", DECLARED)
def test_a_value_of_the_wrong_type_is_refused_where_it_is_declared(case: str) -> None:
    """declarations-17: it would break the list of every client."""
    declare, expected = DECLARED[case]
    with pytest.raises(BadSetting, match=expected):
        declare()


class Unsure(BaseModel):
    at: date
    free: Annotated[int, PlainSerializer(lambda value: {"is": value})] = 1

    @field_serializer("at")
    def _number(self, value: date) -> int:
        return value.toordinal()


class Liar(BaseModel):
    n: int = 1

    @field_serializer("n")
    def _text(self, value: int) -> int:
        return str(value)  # type: ignore[return-value]  # what is tested


class Shapeless(BaseModel):
    n: int = 1

    @model_serializer
    def _list(self):  # type: ignore[no-untyped-def]  # noqa: ANN202  # what is tested
        return [self.n]


REFUSED_RESULTS = {
    "an exception": (ValueError | None, "its result (ValueError | None) can't be sent"),
    "what raises an exception of its author": (AuthorsError, "can't be served: AuthorsError: not with me"),
    "a serializer without a return annotation": (Shapeless, "it may be anything (a custom serializer needs"),
    "a number with such a serializer": (
        Annotated[int, PlainSerializer(lambda value: [value])],
        "it may be anything (a custom serializer",
    ),
    "a schema that is none": (
        Annotated[int, WithJsonSchema({"type": "number of"})],
        "its schema is invalid",
    ),
    "a class": (Odd, "its result (Odd) can't be sent"),
    "anything": (Any, "it may be anything"),
    "an object": (object, "it may be anything"),
    "a name that is nowhere": ("Nowhere", "the annotation of its result can't be resolved"),
    "a function": (Callable[[], int], "can't be sent"),
    "an iterator": (Iterator[int], "can't be sent"),
    "an async iterator": (AsyncIterator[int], "can't be sent"),
    "bytes within": (ModelWithBytes, "JSON has no bytes"),
    "a list of bytes": (list[bytes], "JSON has no bytes"),
    "content and numbers": (int | Image, "is mixed"),
    "content and text in a list": (list[str | Image], "is mixed"),
    "messages and content in a list": (list[Message | Text], "is mixed"),
    "a result that can't say itself": (Unrepresentable, "can't be sent"),
    "a package that is missing": (list[EmailStr], "email-validator is not installed"),
}


@pytest.mark.parametrize("case", [*REFUSED_PARAMETERS, *(f"returns {case}" for case in REFUSED_RESULTS)])
def test_an_invalid_type_ends_the_start_with_its_place(case: str) -> None:
    """declarations-14, declarations-20, api-2: in one line, with function and parameter; nobody connects before."""
    if case.startswith("returns "):
        returned, expected = REFUSED_RESULTS[case.removeprefix("returns ")]
        made = function(returned)
    else:
        taken, expected = REFUSED_PARAMETERS[case]
        made = function(str, good=int, value=taken)
    registry = Registry()
    registry.add(tool(Effect.READ)(made))
    with pytest.raises(BadSetting) as refused:
        build(registry)
    assert str(refused.value).startswith("authors.made: ")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_metadata_that_is_not_json_ends_the_start() -> None:
    """declarations-14: one such value would break everybody's list."""
    for made, expected in (
        (metadata({"org.example/x": object()})(tool(Effect.READ)(function())), "as JSON in UTF-8"),
        (metadata({"org.example/x": math.nan})(tool(Effect.READ)(function())), "as JSON in UTF-8"),
        (tool(Effect.READ, title="\ud800")(function()), "as JSON in UTF-8"),
        (details("\udcff")(tool(Effect.READ)(function())), "as JSON in UTF-8"),
        (asks("sure")(tool(Effect.READ)(function(str, answers=str))), "'answers' is taken"),
        (raw_schema({"type": "strnig"})(tool(Effect.READ)(function(str, given=dict))), "@raw_schema) is invalid"),
        (raw_schema({"type": "array"})(tool(Effect.READ)(function(str, given=dict))), '"type": "object"'),
        (
            raw_schema({"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}})(
                tool(Effect.READ)(function(str, given=dict))
            ),
            "'#/$defs/x', which is not within it",
        ),
        (raw_schema({"type": "object"})(tool(Effect.READ)(function(str, one=int, two=int))), "takes one parameter"),
        (tool(Effect.READ)(function(str, _private=int)), "parameter '_private'"),
        (tool(Effect.READ)(function(str, model_config=int)), "parameter 'model_config'"),
        (tool(Effect.READ)(function(str, model_dump=int)), "parameter 'model_dump'"),
        (tool(Effect.READ, structured=True)(function(Image)), "never structured"),
    ):
        registry = Registry()
        registry.add(made)
        with pytest.raises(BadSetting) as refused:
            build(registry)
        assert str(refused.value).startswith("authors.made: "), expected
        assert expected in str(refused.value)
    # The policy's question adds the argument `answers`, which the author cannot know.
    mine = Registry()
    mine.add(tool(Effect.READ)(function(str, answers=str)))
    mine.validate()
    with pytest.raises(BadSetting, match=r"authors\.made: 'answers' is taken"):
        merge_registries(Registry(policy=ToolPolicy(ask=("made",))), [mine])


def _plain() -> int:
    """Not declared."""
    return 1


def test_a_method_is_registered_with_its_object() -> None:
    """declarations-15: otherwise `self` would be an argument of clients."""

    class Shelf:
        """Books."""

        @tool(Effect.READ)
        def count(self) -> int:
            """Count."""
            return 2

    registry = Registry()
    with pytest.raises(BadSetting, match=r"Shelf\.count: is a method without its object; .*add\(an_object\.count\)"):
        registry.add(Shelf.count)
    registry.add(Shelf().count)
    (command,) = registry
    assert command.function() == 2
    registry.validate()
    with pytest.raises(BadSetting, match=r"_plain: not declared with .*, which stand below @registry\.add"):
        registry.add(_plain)


def test_parameters_without_names_are_refused_at_registration() -> None:
    """declarations-15: each argument of a call has a name of its own."""

    def many(*args: int) -> str:
        """Take many."""
        return str(args)

    def any_name(**kw: int) -> str:
        """Take any."""
        return str(kw)

    def by_place(a: int, /) -> str:
        """Take by place."""
        return str(a)

    for made, expected in ((many, r"\*args"), (any_name, r"\*\*kw"), (by_place, "a, /")):
        with pytest.raises(BadSetting, match=f"{made.__name__}: parameter {expected} can't be given by name"):
            Registry().tool(Effect.READ)(made)
    with pytest.raises(BadSetting, match=r"write tool\(Effect.READ\)"):
        Registry().tool(many)  # type: ignore[arg-type]  # @registry.tool without its effect
    with pytest.raises(BadSetting, match=r"unknown hint read_only; choose from title, .*Effect.READ is read-only"):
        Registry().tool(Effect.READ, read_only=True)  # type: ignore[call-arg]  # what is tested

    def stream() -> Iterator[int]:
        """Stream."""
        yield 1

    registry = Registry()
    registry.tool(Effect.READ)(stream)
    with pytest.raises(BadSetting, match="is a generator"):
        registry.validate()
    untyped = Registry()
    untyped.tool(Effect.READ)(unsaid_type)
    with pytest.raises(BadSetting, match="no return annotation"):
        untyped.validate()


def unsaid_type():  # type: ignore[no-untyped-def]  # noqa: ANN201  # what is tested
    """Return what nobody knows."""
    return 1


LATE = {
    "channels": channels("repl"),
    "hidden": hidden,
    "asks": asks("sure"),
    "details": details("At length."),
    "metadata": metadata({"org.example/x": 1}),
    "at": at("else", "where"),
    "prompt": prompt(),
    "resource": resource("app://x"),
    "raw_schema": raw_schema({"type": "object"}),
}


@pytest.mark.parametrize("late", LATE)
def test_a_decorator_above_the_registration_is_an_error_and_below_it_counts(late: str) -> None:
    """declarations-16: no declaration is lost silently."""
    for register in (Registry().tool(Effect.READ), lambda made: Registry().add(tool(Effect.READ)(made))):
        registered = register(function(str, given=dict))
        with pytest.raises(BadSetting, match=f"authors.made: @{late} is applied after .* below @registry.tool"):
            LATE[late](registered)
        copied = functools.wraps(registered)(function(str, given=dict))
        LATE[late](copied)  # another function, which no registry contains

    above, below = Registry(), Registry()
    if late != "resource":  # whose URI would lack the parameter
        above.add(LATE[late](tool(Effect.READ)(function(str, given=dict))))
        below.tool(Effect.READ)(LATE[late](function(str, given=dict)))
        (one,), (other,) = above, below
        assert one.declaration == other.declaration
        assert one.declaration != next(iter(_plain())).declaration


def _plain() -> Registry:
    registry = Registry()
    registry.tool(Effect.READ)(function(str, given=dict))
    return registry


def test_registering_returns_the_function_unchanged() -> None:
    """declarations-17: `add` and `tool` return it, and hints are those of `tool`."""
    registry = Registry()

    @registry.tool(Effect.CHANGE, title="Double it", idempotent=True, open_world=True, long_running=True)
    def double(number: int) -> int:
        """Double."""
        return 2 * number

    @registry.context("sums").add
    @tool(Effect.READ)
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert (double(2), add(1, 2)) == (4, 3)
    declared = registry.command_of(double).declaration
    assert (declared.title, declared.destructive, declared.idempotent) == ("Double it", True, True)
    assert (declared.open_world, declared.long_running) == (True, True)
    assert registry.command_of(add).route == ("sums", "add")
    registry.tool(Effect.READ)(add)  # the same once more, at another place, is no change
    with pytest.raises(KeyError, match="made"):
        registry.command_of(function())


VALUES: dict[str, tuple[Any, Any, Any]] = {
    "an int": (int, 5, {"result": 5}),
    "a float": (float, 0.5, {"result": 0.5}),
    "text": (str, "é", {"result": "é"}),
    "a boolean": (bool, False, {"result": False}),
    "nothing": (None, None, {"result": None}),
    "a list": (list[int], [1, 2], {"result": [1, 2]}),
    "an empty list": (list[Point], [], {"result": []}),
    "a tuple": (tuple[int, str], (1, "a"), {"result": [1, "a"]}),
    "a set": (set[int], {1}, {"result": [1]}),
    "a dict": (dict[str, int], {"a": 1}, {"a": 1}),
    "a dict of anything": (dict[str, Any], {"a": [None, date(2026, 1, 2)]}, {"a": [None, "2026-01-02"]}),
    "a dict with numbers for keys": (dict[int, str], {1: "a"}, {"1": "a"}),
    "a model with serializers": (Unsure, Unsure(at=date(1, 1, 2)), {"at": 2, "free": {"is": 1}}),
    "a date": (date, date(2026, 1, 2), {"result": "2026-01-02"}),
    "a dataclass": (Point, Point(1), {"x": 1, "when": None}),
    "a model": (Model, Model(points=[Point(1)]), {"points": [{"x": 1, "when": None}], "kind": "one"}),
    "a TypedDict": (Entry, {"a": 1}, {"a": 1}),
    "a TypedDict in a list": (
        list[Entry],
        [{"a": 1, "b": [Point(2)]}],
        {"result": [{"a": 1, "b": [{"x": 2, "when": None}]}]},
    ),
    "a dict of dataclasses": (
        dict[str, Point],
        {"p": Point(1, date(2026, 1, 2))},
        {"p": {"x": 1, "when": "2026-01-02"}},
    ),
    "a union": (int | str | None, None, {"result": None}),
    "a union of models": (Point | list[Point], [Point(1)], {"result": [{"x": 1, "when": None}]}),
    "a result or nothing": (Silent | None, Silent(n=1), {"result": {"n": 1, "why": None}}),
    "a literal": (Literal["a", 1], 1, {"result": 1}),
}


@pytest.mark.parametrize("mode", ERAS)
async def test_json_values_are_structured_content_with_their_schema(mode: str) -> None:
    """declarations-18: the client validates each with the listed schema; the text says the same."""
    registry = Registry()
    for number, (annotation, value, _) in enumerate(VALUES.values()):
        registry.tool(Effect.READ)(returning(f"value_{number}", annotation, value))
    async with Client(build(registry), mode=mode) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        for number, (_, _, expected) in enumerate(VALUES.values()):
            name = f"value_{number}"
            answer = await client.call_tool(name)  # the SDK's client validates it with the output schema
            assert answer.is_error is False
            assert answer.structured_content == expected
            assert listed[name].output_schema is not None
            assert listed[name].output_schema["type"] == "object"
            inside = expected if set(expected) != {"result"} else expected["result"]
            (block,) = answer.content
            text = getattr(block, "text", "")
            assert (text == inside) if isinstance(inside, str) else (json.loads(text) == inside)


MODES: dict[str, tuple[Any, Any, str]] = {
    "text only": (str, "spoken", "spoken"),
    "a result": (Silent, Silent(n=4), '{"n":4,"why":null}'),
    "content": (list[Text], [Text("one"), Text("two")], "one\ntwo"),
    "no content": (list[Image], [], ""),
    "content or nothing": (Image | None, None, ""),
    "messages": (list[Message], [], ""),
}


@pytest.mark.parametrize("case", MODES)
async def test_text_and_content_have_no_schema(case: str) -> None:
    """declarations-5, declarations-18: `structured=False` keeps text alone; a `Result` without `text` is its fields."""
    annotation, value, text = MODES[case]
    registry = Registry()
    registry.tool(Effect.READ, structured=False)(returning("made", annotation, value))
    registry.validate()
    (command,) = registry
    outcome = await Dispatcher(threads=1).dispatch(command, {}, SilentCall())
    assert (outcome.text, outcome.data, outcome.error, command.output_schema) == (text, None, None, None)


def test_a_resource_has_its_media_type() -> None:
    """declarations-19: JSON, text, or what was declared."""
    registry = Registry()
    for number, (annotation, declared) in enumerate([(Point, ""), (str, ""), (bytes, "image/png"), (int, "text/x")]):
        made = returning(f"value_{number}", annotation, None)
        registry.add(resource(f"app://{number}", mime_type=declared)(made))
    assert [command.mime_type for command in registry] == ["application/json", "text/plain", "image/png", "text/x"]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Liar, Liar()),
        (list[Annotated[int, PlainSerializer(str, return_type=float)]], [1]),
        (Annotated[int, WithJsonSchema({"type": "string"})], 1),
        (Model, Model(points=[]).model_copy(update={"points": 5})),
        (int, "a"),
        (float, math.nan),
        (list[Point], [None]),
        (Entry, {}),
        (Silent, "spoken"),
    ],
)
async def test_an_invalid_result_says_that_the_command_ran(
    annotation: Any, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """declarations-18, declarations-20: the model must not repeat what had its effect; the log has the reason."""
    registry = Registry()
    registry.tool(Effect.CHANGE, structured=True)(returning("made", annotation, value))
    registry.validate()
    (command,) = registry
    outcome = await Dispatcher(threads=1).dispatch(command, {}, SilentCall())
    assert outcome.error is not None
    assert outcome.text.startswith("made ran, but its result does not have the declared type")
    assert "Traceback" in caplog.text


TONE = AskChoice(key="tone", message="Which tone?", choices=("warm", "cold"))


class Speechless(Result):
    n: int

    def text(self) -> str:
        return self.n  # type: ignore[return-value]  # what is tested


class Factual(Result):
    def text(self) -> str:
        return "spoken"

    def facts(self) -> dict[str, object]:
        return {"x": object()}


@pytest.mark.parametrize("value", [Speechless(n=5), Factual()], ids=["text that is none", "facts that are no JSON"])
async def test_a_result_that_cannot_be_sent_does_not_break_the_connection(value: Result) -> None:
    """declarations-18: an error of this call, and of no other."""
    registry = Registry()
    registry.tool(Effect.CHANGE)(returning("made", type(value), value))
    registry.tool(Effect.READ)(returning("other", Image, Image(b"x", "image/png")))
    async with Client(build(registry), mode="legacy") as client:
        refused = await client.call_tool("made")
        assert refused.is_error
        assert "made ran, but" in getattr(refused.content[0], "text", "")
        assert not (await client.call_tool("other")).is_error
    with pytest.raises(TypeError, match=r"Image\.data must be bytes, not str"):
        Image("x", "image/png")  # type: ignore[arg-type]  # where it is created, not where it is sent


async def test_an_async_function_in_a_plain_wrapper_is_awaited() -> None:
    """declarations-12: the wrapper returns a coroutine, which is no result yet."""
    registry = Registry()

    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @functools.wraps(add)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return add(*args, **kwargs)

    registry.tool(Effect.READ)(wrapper)
    registry.validate()
    (command,) = registry
    outcome = await Dispatcher(threads=1).dispatch(command, {"a": 1, "b": 2}, SilentCall())
    assert outcome.data == {"result": 3}


def test_a_name_may_be_defined_below_the_function_that_uses_it() -> None:
    """declarations-14: annotations are evaluated at the start, for resources too; an invalid URI is reported then."""
    space: dict[str, Any] = {"__name__": "authors", "resource": resource, "registry": Registry()}
    text = (
        "@registry.add\n@resource({uri!r})\ndef made(n: 'Below') -> 'Below':\n    'Give it.'\n    return n\nBelow = int"
    )
    exec(text.format(uri="app://{n}"), space)  # a module that defines its names in this order
    build(space["registry"])
    space["registry"] = Registry()
    exec(text.format(uri="app://{m}").replace("Below", "Under"), space)  # as above
    with pytest.raises(BadSetting, match=r"authors\.made: .*has a variable for an unknown parameter: m"):
        build(space["registry"])


async def test_a_prompt_with_a_given_schema_lists_its_properties() -> None:
    """catalog-13, questions-4: not the parameter that gets the mapping; `answers` in addition."""
    schema = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
    registry = Registry()

    @registry.add
    @prompt()
    @raw_schema(schema)
    @asks(TONE)
    async def letter(given: dict[str, Any], call: Call) -> str:
        """Write a letter."""
        return f"{given['topic']}, {await call.ask(TONE)}"

    async with Client(build(registry), mode="legacy") as client:
        (listed,) = (await client.list_prompts()).prompts
        assert [(one.name, one.required) for one in listed.arguments or ()] == [("topic", True), ("answers", False)]
        result = await client.get_prompt("letter", {"topic": "tea", "answers": '{"tone": "w"}'})
        assert getattr(result.messages[0].content, "text", "") == "tea, warm"


async def test_a_prompt_takes_a_list_as_json_text() -> None:
    """declarations-4: its arguments are text; one item may be sent as it is."""
    registry = Registry()

    @registry.add
    @prompt()
    def tour(days: list[int], names: list[str] | None = None) -> str:
        """Plan a tour."""
        return f"{days} {names}"

    deep = "[" * 100_000
    async with Client(build(registry)) as client:
        for given, planned in (
            ({"days": "[1, 2]", "names": '["a", "b"]'}, "[1, 2] ['a', 'b']"),
            ({"days": "1", "names": "a"}, "[1] ['a']"),
            ({"days": "[]", "names": "[a"}, "[] ['[a']"),
        ):
            result = await client.get_prompt("tour", given)
            assert getattr(result.messages[0].content, "text", "") == planned
        with pytest.raises(MCPError, match="must be a whole number"):
            await client.get_prompt("tour", {"days": deep})


class Trip(BaseModel):
    days: int


SURE = AskConfirmation(key="sure", message="Sure?", is_prefillable=True)
TRIP: Question[Trip] = AskForm(key="trip", message="Which trip?", model=Trip)


async def test_a_prompt_with_questions_can_be_prefilled_and_describes_the_answers() -> None:
    """questions-4, questions-18: `answers` is listed, and accepted as JSON text; by a resource if its URI has it."""
    registry = Registry()

    @registry.add
    @prompt(title="Write a letter")
    @asks(TONE, "name")
    async def letter(topic: str, call: Call) -> str:
        """Write a letter."""
        return f"{topic}, {await call.ask(TONE)}, {await call.ask(AskText(key='name', message='Who?'))}"

    @registry.tool(Effect.READ)
    @asks(SURE, TRIP)
    async def travel(call: Call) -> str:
        """Travel."""
        return f"{await call.ask(SURE)} {(await call.ask(TRIP)).days}"

    @registry.add
    @resource("app://tone{?answers}")
    @asks(TONE)
    async def tone(call: Call) -> str:
        """Tell the tone."""
        return await call.ask(TONE)

    for mode in ERAS:
        async with Client(build(registry), mode=mode) as client:
            (listed,) = (await client.list_prompts()).prompts
            assert listed.title == "Write a letter"
            topic, answers = listed.arguments or ()
            assert (topic.name, topic.required, answers.name, answers.required) == ("topic", True, "answers", False)
            assert '"tone": {"type": "string", "enum": ["warm", "cold"], "description": "Which tone?"}' in str(answers)
            given = {"topic": "tea", "answers": '{"tone": "cold", "name": "Ada"}'}
            result = await client.get_prompt("letter", given)
            assert getattr(result.messages[0].content, "text", "") == "tea, cold, Ada"
            with pytest.raises(MCPError, match=r'send answers={"tone": "warm"}'):
                await client.get_prompt("letter", {"topic": "tea"})
            with pytest.raises(MCPError, match="answers: must be an object, got text"):
                await client.get_prompt("letter", {"topic": "tea", "answers": "cold"})
            (tool_,) = (await client.list_tools()).tools
            shapes = tool_.input_schema["properties"]["answers"]["properties"]
            assert shapes["sure"] == {"type": "boolean", "description": "Sure?"}
            assert shapes["trip"]["properties"] == {"days": {"type": "integer"}}
            answer = await client.call_tool("travel", {"answers": {"sure": True, "trip": {"days": 3}}})
            assert answer.structured_content == {"result": "True 3"}
            read = await client.read_resource("app://tone?answers=%7B%22tone%22%3A%22warm%22%7D")
            assert read.contents[0].text == "warm"


BROKEN = """
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry
registry = Registry()
class Odd: ...
@registry.tool(Effect.READ)
def greet(whom: Odd) -> str:
    '''Greet.'''
    return "hello"
"""

COMMANDS = {
    "typed": ("coretools.cli.main", "--with", "./broken.py:registry", "greet"),
    "serve": ("coretools.cli.main", "serve", "--with", "./broken.py:registry"),
    "check": (
        "coretools.servers.http_server",
        "--root",
        ".:ro",
        "--port",
        "0",
        "--check",
        "--with",
        "./broken.py:registry",
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_entry_point_refuses_it_in_one_line(command: str, tmp_path: Path) -> None:
    """api-2, api-9: with the flag, the function and the parameter; no traceback, and 78."""
    (tmp_path / "broken.py").write_text(BROKEN)
    module, *arguments = COMMANDS[command]
    code = f"import sys; from {module} import main; sys.argv[1:] = {arguments!r}; raise SystemExit(main())"
    environment = {**os.environ, "PYTHONPATH": str(TREE), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        input="",
    )
    assert done.returncode == 78, done.stderr
    # The check goes on without it, and logs what it starts.
    (line,) = (line for line in done.stderr.strip().splitlines() if not line.startswith("{"))
    assert "--with ./broken.py:registry: broken.greet: parameter 'whom' (Odd) has no JSON Schema" in line
    assert "Use text" in line
