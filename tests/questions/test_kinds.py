"""What counts as an answer, and the order in which sources are tried (docs/specs/questions.md)."""

import itertools
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from coretools.config.operator_policy import ToolPolicy
from coretools.config.settings import ASK_MODES, AskMode
from coretools.errors import AnswerNeeded, BadSetting, Declined, InvalidArguments
from coretools.operations.call import Call, SilentCall, require_confirmation
from coretools.operations.command import Command
from coretools.operations.declare import Effect, asks, tool
from coretools.operations.dispatch import Dispatcher, Outcome
from coretools.operations.registry import Registry
from coretools.questions.answer_resolution import AnswerResolution, AskChannel, ResolvedAnswer, channels_for, example
from coretools.questions.confirmation import call_confirmation
from coretools.questions.kinds import (
    AskChoice,
    AskChoices,
    AskConfirmation,
    AskForm,
    AskModel,
    AskRoots,
    AskSecret,
    AskText,
    Question,
)


class Person(BaseModel):
    name: str
    age: int = 0
    size: Literal["s", "m"] = "m"


COLOURS = ("red", "green", "grey", "Blue")
TEXT = AskText(key="k", message="m", most_characters=5)
SECRET = AskSecret(key="k", message="m")
CHOICE = AskChoice(key="k", message="m", choices=COLOURS)
SOME = AskChoices(key="k", message="m", choices=COLOURS, at_least=1, at_most=2)
ANY = AskChoices(key="k", message="m", choices=COLOURS)
YES = AskConfirmation(key="k", message="m", is_prefillable=True)
FORM = AskForm(key="k", message="m", model=Person)
MODEL = AskModel(key="k", message="m")
ROOTS = AskRoots(key="k")
PERMISSION = AskChoice(key="p", message="m", choices=("once", "never"), is_for_operator=True)
ALL: tuple[Question[Any], ...] = (TEXT, SECRET, CHOICE, SOME, YES, FORM, MODEL, ROOTS)


def test_a_valid_answer_is_accepted() -> None:
    """questions-1: exact, then an unambiguous prefix; yes, no, true, false; lists or text with commas."""
    for question, raw, answer in (
        (TEXT, "hello", "hello"),
        (TEXT, "", ""),
        (TEXT, {"answer": "x"}, "x"),
        (SECRET, "s", "s"),
        (CHOICE, "red", "red"),
        (CHOICE, "R", "red"),
        (CHOICE, "b", "Blue"),
        (CHOICE, {"answer": "gree"}, "green"),
        (AskChoice(key="k", message="m", choices=("bluegreen", "blue")), "BLUE", "blue"),
        (AskChoices(key="k", message="m", choices=("bluegreen", "blue")), "Blue", ("blue",)),
        (SOME, ["grey", "red"], ("red", "grey")),
        (SOME, "red, b", ("red", "Blue")),
        (SOME, ["red", "r"], ("red",)),
        (ANY, [], ()),
        (ANY, "", ()),
        *[(YES, word, True) for word in (True, "yes", "Y", " true ", {"answer": True})],
        *[(YES, word, False) for word in (False, "no", "N", "FALSE", {"answer": False})],
        (FORM, {"name": "Ann", "age": 3}, Person(name="Ann", age=3)),
        (MODEL, {"answer": "words"}, "words"),
        (ROOTS, ["file:///a"], ("file:///a",)),
    ):
        assert question.accept(raw) == answer, (question, raw, answer)


def test_anything_else_is_not_an_answer() -> None:
    """questions-1: nothing is guessed, and the error names the key and the valid values."""
    for question, raw, expected in (
        (TEXT, 5, "must be text"),
        (TEXT, None, "must be text"),
        (TEXT, "123456", "at most 5 characters"),
        (TEXT, {"answer": "x", "more": 1}, "must be text"),
        (SECRET, "", "not empty"),
        (CHOICE, "gr", "green"),
        (CHOICE, "pink", "red"),
        (CHOICE, "", "red"),
        (CHOICE, 1, ""),
        (SOME, [], "choose 1 to 2"),
        (SOME, "red,green,grey", "choose 1 to 2"),
        (SOME, ["red", "gr"], "green"),
        (SOME, 5, "must be a list"),
        *[(YES, word, "true or false") for word in (1, 0, 1.0, "1", "on", "yes please", "", None, [], {}, "ja")],
        (FORM, {"age": 3}, "name"),
        (FORM, {"name": "Ann", "size": "xl"}, "size"),
        (FORM, "Ann", ""),
        (MODEL, ["x"], "must be text"),
        (ROOTS, "file:///a", "list of URIs"),
        (ROOTS, [1], "list of URIs"),
    ):
        with pytest.raises(InvalidArguments, match=r"answers\.k: ") as refused:
            question.accept(raw)
        assert expected in str(refused.value), (question, raw, expected)


def test_an_invalid_secret_is_not_repeated() -> None:
    """questions-6: no error contains the value."""
    with pytest.raises(InvalidArguments) as refused:
        SECRET.accept({"answer": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_a_prefilled_answer_takes_precedence_in_every_mode() -> None:
    """questions-2: an answered question is not asked."""
    for mode in ASK_MODES:
        for question in ALL:
            given = dict(zip(ALL, ("a", "s", "red", ["red"], True, {"name": "A"}, "w", ["file:///a"]), strict=True))
            resolution = AnswerResolution(mode)
            resolution.prefill({"k": given[question]}, ("k",))
            found = resolution.resolve(question, set(AskChannel))
            assert isinstance(found, ResolvedAnswer), (mode, question)


PERSON = (AskChannel.TERMINAL, AskChannel.FORM)


@pytest.mark.parametrize(
    ("question", "elicitation", "sampling"),
    [
        (TEXT, PERSON, (*PERSON, AskChannel.MODEL)),
        (CHOICE, PERSON, (*PERSON, AskChannel.MODEL)),
        (SOME, PERSON, (*PERSON, AskChannel.MODEL)),
        (FORM, PERSON, (*PERSON, AskChannel.MODEL)),
        (YES, PERSON, PERSON),
        (SECRET, (AskChannel.TERMINAL,), (AskChannel.TERMINAL,)),
        (MODEL, (), (AskChannel.MODEL,)),
        (ROOTS, (AskChannel.ROOTS,), (AskChannel.ROOTS,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Question) else "",
)
def test_each_kind_of_question_has_its_sources(
    question: Question[Any], elicitation: tuple[AskChannel, ...], sampling: tuple[AskChannel, ...]
) -> None:
    """questions-3, questions-6, questions-7: no secret from forms or models, no confirmation from a model."""
    assert channels_for(question, "prefilled") == channels_for(question, "defaults") == ()
    assert channels_for(question, "elicitation") == elicitation
    assert channels_for(question, "sampling") == sampling


@pytest.mark.parametrize(
    ("mode", "has_default", "available", "expected"),
    [
        ("prefilled", True, set(AskChannel), "needed"),
        ("defaults", True, set(AskChannel), "default"),
        ("defaults", False, set(AskChannel), "needed"),
        ("elicitation", True, {AskChannel.FORM, AskChannel.MODEL}, AskChannel.FORM),
        ("elicitation", True, {AskChannel.MODEL}, "default"),
        ("elicitation", False, {AskChannel.MODEL}, "needed"),
        ("sampling", True, {AskChannel.MODEL, AskChannel.FORM}, AskChannel.FORM),
        ("sampling", True, {AskChannel.MODEL}, AskChannel.MODEL),
        ("sampling", True, set(), "default"),
        ("sampling", False, set(), "needed"),
    ],
)
def test_the_resolution_goes_as_far_as_its_mode(
    mode: AskMode, has_default: bool, available: set[AskChannel], expected: AskChannel | str
) -> None:
    """questions-2: a person, then a model, then the default, then an error."""
    question = AskText(key="k", message="m", default="d") if has_default else TEXT
    resolution = AnswerResolution(mode)
    if expected == "needed":
        with pytest.raises(AnswerNeeded):
            resolution.resolve(question, available)
    else:
        assert resolution.resolve(question, available) == (ResolvedAnswer("d") if expected == "default" else expected)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (YES, 'answers={"k": true}'),
        (CHOICE, 'answers={"k": "red"} (one of red, green, grey, Blue)'),
        (SOME, 'answers={"k": ["red"]} (1 to 2 of red, green, grey, Blue)'),
        (TEXT, 'answers={"k": "..."}'),
        (FORM, 'answers={"k": {"name": "..."}}'),
        (ROOTS, 'answers={"k": ["..."]}'),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Question) else "",
)
def test_the_error_shows_the_argument_to_send(question: Question[Any], expected: str) -> None:
    """questions-4: parsed literally it is an answer."""
    assert example(question) == expected
    with pytest.raises(AnswerNeeded) as needed:
        AnswerResolution("elicitation").resolve(question, ())
    assert f"send {expected}" in str(needed.value)
    assert needed.value.facts == {"question": question.key}
    sent = json.loads(expected.removeprefix("answers=").partition(" (")[0])
    question.accept(sent[question.key])


def test_a_prefilled_confirmation_counts_only_if_the_policy_allows_it() -> None:
    """questions-8: the author of the arguments of a call cannot also be the person who confirms."""
    question = AskConfirmation(key="k", message="m", is_for_operator=True)
    resolution = AnswerResolution("elicitation")
    resolution.prefill({"k": True}, ("k",))
    assert resolution.resolve(question, {AskChannel.FORM}) is AskChannel.FORM
    with pytest.raises(AnswerNeeded, match="does not count"):
        resolution.resolve(question, ())
    assert resolution.resolve(YES, ()) == ResolvedAnswer(answer=True)
    trusting = AnswerResolution("elicitation", trusts_answers=True)
    trusting.prefill({"k": True}, ("k",))
    assert trusting.resolve(question, ()) == ResolvedAnswer(answer=True)


async def test_a_silent_call_uses_the_given_answer_or_the_default() -> None:
    """questions-2: there is nobody to ask."""
    call = SilentCall()
    call.prefill({"b": "x"})
    known = AskText(key="a", message="m", default="d"), AskText(key="b", message="m", default="d")
    assert await call.ask_all(*known) == ("d", "x")
    with pytest.raises(AnswerNeeded):
        await call.ask(TEXT)
    call.prefill({"k": False})
    with pytest.raises(Declined, match="nothing was done"):
        await require_confirmation(call, YES)


class Asker:
    def __init__(self) -> None:
        self.done: list[str] = []

    @tool(Effect.CHANGE)
    @asks("colour", is_listed=True)
    async def paint(self, call: Call) -> str:
        """Ask for a colour."""
        return await call.ask(AskChoice(key="colour", message="which", choices=COLOURS))

    @tool(Effect.CHANGE)
    @asks("colour", is_listed=True)
    async def stray(self, call: Call) -> str:
        """Ask what it never declared."""
        return await call.ask(AskText(key="size", message="which", default="m"))

    @tool(Effect.CHANGE)
    def drop(self, path: str) -> str:
        """Drop it."""
        self.done.append(path)
        return "dropped"


async def run(name: str, policy: ToolPolicy | None = None, **given: object) -> tuple[Outcome, Asker]:
    asker = Asker()
    registry = Registry(policy=policy or ToolPolicy())
    registry.add_set("sample", asker)
    return await Dispatcher(threads=2).dispatch(named(registry, name), given, SilentCall()), asker


def named(registry: Registry, name: str) -> Command:
    return next(command for command in registry if command.name == name)


async def test_a_declared_question_is_answered_by_the_argument() -> None:
    """questions-4: `answers` is an argument of a command that asks."""
    outcome, _ = await run("paint", answers={"colour": "bl"})
    assert (outcome.text, outcome.error) == ("Blue", None)
    outcome, _ = await run("paint", answers={"size": "m"})
    assert outcome.error is not None
    assert outcome.error.kind == "invalid-arguments"


async def test_an_undeclared_question_is_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    """questions-5: logged as one, and the command does not continue with the default."""
    outcome, _ = await run("stray")
    assert outcome.error is not None
    assert outcome.error.kind == "internal"
    assert "'size' is not declared" in caplog.text


async def test_a_tool_of_the_policy_asks_before_any_effect() -> None:
    """questions-9: nothing is done without a confirmation; an error in the arguments comes first."""
    policy = ToolPolicy(ask=("dr*",))
    outcome, asker = await run("drop", policy, path="x")
    assert (outcome.error.kind if outcome.error else None, asker.done) == ("answer-needed", [])
    outcome, asker = await run("drop", policy, path="x", answers={"confirm": False})
    assert (outcome.error.kind if outcome.error else None, asker.done) == ("declined", [])
    outcome, asker = await run("drop", policy, path="x", answers={"confirm": True})
    assert (outcome.text, asker.done) == ("dropped", ["x"])
    outcome, _ = await run("drop", policy, answers={"confirm": True})
    assert (outcome.error.kind if outcome.error else None) == "invalid-arguments"
    outcome, asker = await run("drop", path="x")
    assert (outcome.text, asker.done) == ("dropped", ["x"])


@pytest.mark.parametrize("trusts", [False, True])
def test_the_schema_has_answers_only_if_they_count(trusts: bool) -> None:
    """questions-9: an argument without effect is not listed."""
    registry = Registry(policy=ToolPolicy(ask=("drop",), trusts_answers=trusts))
    registry.add_set("sample", Asker())
    drop, paint = named(registry, "drop"), named(registry, "paint")
    assert ("answers" in drop.arguments.schema()["properties"]) is trusts
    assert list(paint.arguments.schema()["properties"]["answers"]["properties"]) == ["colour"]
    assert drop.declaration.needs_confirmation
    assert not paint.declaration.needs_confirmation


def test_merged_commands_ask_too() -> None:
    """questions-9: the operator's policy applies to every author's commands."""
    theirs = Registry()
    theirs.add_set("sample", Asker())
    ours = Registry(policy=ToolPolicy(ask=("drop",)))
    ours.merge(theirs)
    assert named(ours, "drop").declaration.needs_confirmation
    ours.require_known()


def test_a_pattern_that_matches_no_tool_is_refused() -> None:
    """questions-9: a typing error must not leave a tool without its question."""
    registry = Registry(policy=ToolPolicy(ask=("drop", "dorp")))
    registry.add_set("sample", Asker())
    with pytest.raises(BadSetting, match="'dorp'"):
        registry.require_known()


def test_the_question_shows_the_call() -> None:
    """questions-9: every argument, with control characters escaped; of a long one start, end and length."""
    message = call_confirmation("write_file", {"path": "a\u202eb\n", "content": "x" * 5000, "n": 3}).message
    assert message.startswith('Run write_file?\npath: "a\\u202eb\\n"\ncontent: "xxx')
    assert "[906 characters more]" in message
    assert message.endswith("n: 3")
    assert all(character.isprintable() or character == "\n" for character in message)
    assert len(message.split("\n")) == 4
    path = "docs/" + "./" * 1_000 + "../../elsewhere/" + "./" * 1_000
    assert path in call_confirmation("delete_file", {"path": path}).message
    assert call_confirmation("x", {"a\nb": 1}).message == 'Run x?\n"a\\nb": 1'


def test_secrets_and_confirmations_use_no_forbidden_source() -> None:
    """questions-6, questions-7: for every mode and kind: no secret from a form, and no confirmation from a model."""
    for mode, question in itertools.product(ASK_MODES, (*ALL, PERMISSION)):
        found = channels_for(question, mode)
        assert not (question.is_secret and {AskChannel.FORM, AskChannel.MODEL} & set(found))
        assert not (question.is_permission and AskChannel.MODEL in found)
    assert YES.is_permission
    resolution = AnswerResolution("sampling")
    resolution.prefill({"p": "once"}, ("p",))
    assert resolution.resolve(PERMISSION, set(AskChannel)) is AskChannel.TERMINAL
