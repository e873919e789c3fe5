"""The `Call` of a typed command: questions, messages, progress (docs/specs/cli.md)."""

from typing import Any

import pytest

from coretools.cli.common.call import CliCall, prompt_of
from coretools.cli.common.terminal import TerminalCapabilities
from coretools.errors import AnswerNeeded, InvalidArguments
from coretools.operations.call import LOCAL, Call
from coretools.questions.kinds import AskChoice, AskChoices, AskConfirmation, AskModel, AskRoots, AskSecret, AskText
from tests.cli.contacts import QUIET

Captured = pytest.CaptureFixture[str]
SEEN = TerminalCapabilities(is_stdout_terminal=True, has_colours=False, can_ask=True, can_show_progress=True)


@pytest.mark.parametrize(
    ("question", "prompt"),
    [
        (AskText(key="k", message="Name"), "Name: "),
        (AskText(key="k", message="Name", default="Ada"), "Name [Ada]: "),
        (AskSecret(key="k", message="Token"), "Token: "),
        (AskConfirmation(key="k", message="Go on?"), "Go on? [yes/no]: "),
        (AskConfirmation(key="k", message="Go on?", default=False), "Go on? [yes/no] [no]: "),
        (AskConfirmation(key="k", message="Go on?", default=True), "Go on? [yes/no] [yes]: "),
        (AskChoice(key="k", message="One", choices=("a", "b")), "One\n  1) a\n  2) b\nnumber or name: "),
        (
            AskChoices(key="k", message="Some", choices=("a", "b"), default=("a", "b")),
            "Some\n  1) a\n  2) b\nnumbers or names, separated by commas [a, b]: ",
        ),
    ],
)
def test_a_question_shows_its_choices_and_its_default(question: Any, prompt: str) -> None:
    """cli-13: an empty line means the default, which is shown."""
    assert prompt_of(question) == prompt


@pytest.mark.parametrize(
    "question",
    [
        AskText(key="k", message="Name"),
        AskSecret(key="k", message="Token"),
        AskConfirmation(key="k", message="Go on?"),
        AskModel(key="k", message="Sum it up"),
    ],
    ids=lambda question: type(question).__name__,
)
async def test_without_a_terminal_the_error_names_the_option(question: Any) -> None:
    """cli-13: the option of the command line, not the argument for a model; the key is in the facts."""
    value = "yes" if isinstance(question, AskConfirmation) else "VALUE"
    with pytest.raises(AnswerNeeded, match=rf"nobody can be asked here; give --answer k={value}$") as caught:
        await CliCall(QUIET).ask(question)
    assert caught.value.facts == {"question": "k"}


async def test_a_model_is_not_asked_on_the_command_line() -> None:
    """cli-13: a person is no model; the default is used."""
    question = AskModel(key="k", message="Sum it up")
    with pytest.raises(AnswerNeeded):
        await CliCall(SEEN).ask(question)
    assert await CliCall(SEEN).ask(AskModel(key="k", message="Sum it up", default="nothing")) == "nothing"


async def test_answers_given_beforehand_precede_the_terminal() -> None:
    """cli-13: they are validated like typed ones; several at once keep their order."""
    call = CliCall(SEEN, roots=["file:///work"])
    call.prefill({"a": "yes", "b": "gr", "c": "perhaps"})
    sure, pick = AskConfirmation(key="a", message=""), AskChoice(key="b", message="", choices=("red", "green"))
    assert await call.ask_all(sure, pick, AskRoots(key="r")) == (True, "green", ("file:///work",))
    with pytest.raises(InvalidArguments, match=r"--answer c: "):
        await call.ask(AskConfirmation(key="c", message=""))


async def test_an_undeclared_question_is_a_bug() -> None:
    """cli-13: as on every surface."""
    call = CliCall(QUIET)
    call.prefill({}, ["other"])
    with pytest.raises(LookupError, match="not declared"):
        await call.ask(AskText(key="k", message="Name", default="x"))


async def test_the_command_line_states_its_capabilities() -> None:
    """cli-13: a terminal is a person, the roots are known, there is no model."""
    call: Call = CliCall(SEEN)
    assert [call.has_capability("elicitation"), call.has_capability("roots"), call.has_capability("sampling")] == [
        True,
        True,
        False,
    ]
    assert CliCall(QUIET).has_capability("elicitation") is False
    assert call.principal == LOCAL
    await call.close_stream()


async def test_messages_are_printed_with_their_level(capsys: Captured) -> None:
    """cli-14: on standard error, escaped."""
    for screen in (QUIET, SEEN):
        call = CliCall(screen)
        for level in ("debug", "info", "warning", "error"):
            await call.log(level, "text \x1b[2J")  # type: ignore[arg-type]  # each is a level
    captured = capsys.readouterr()
    levels = [line.removeprefix("coretools: ").partition(":")[0] for line in captured.err.splitlines()]
    assert levels == ["warning", "error", "debug", "info", "warning", "error"]
    assert "\x1b" not in captured.err
    assert captured.out == ""


async def test_progress_without_a_terminal_is_silent(capsys: Captured) -> None:
    """cli-14: not a byte."""
    call = CliCall(QUIET)
    for done in (1, 0.5, 2):
        await call.progress(done, 2, "working")
    call.close()
    assert capsys.readouterr() == ("", "")
