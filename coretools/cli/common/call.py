"""The `Call` of a typed command: asks the person at the terminal, draws a progress bar, logs to standard error."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from coretools.cli.common.progress_bar import ProgressBar
from coretools.cli.common.terminal import TerminalCapabilities, for_terminal, print_error, read_line
from coretools.config.commit_author import Author
from coretools.config.settings import AskMode
from coretools.errors import AnswerNeeded, InvalidArguments
from coretools.operations.call import LOCAL, Capability, Level
from coretools.operations.declare import Channel
from coretools.operations.session_state import SessionState
from coretools.questions.answer_resolution import AnswerResolution, AskChannel, ResolvedAnswer, declined_error
from coretools.questions.kinds import AskChoice, AskChoices, AskConfirmation, AskForm, AskSecret, Missing, Question

T = TypeVar("T")

MAX_ATTEMPTS = 3
"""Times that a question is asked when its answers are invalid."""


class CliCall:
    """The call of one command typed in a shell or in the REPL."""

    principal = LOCAL
    """The person who started the process."""
    author: Author | None = None
    """The author of the settings applies."""
    session = address = ""
    """There is no connection."""

    def __init__(
        self,
        terminal: TerminalCapabilities,
        ask: AskMode = "elicitation",
        roots: Sequence[str] = (),
        *,
        channel: Channel = "command-line",
        state: SessionState | None = None,
    ) -> None:
        """`ask` limits how questions may be asked; `roots` are the root directories, as file URIs."""
        self.channel = channel
        """Where it was typed."""
        self.state = state
        """What commands keep until the REPL ends; None for a single line."""
        self._terminal = terminal
        self._roots = list(roots)
        self._resolution = AnswerResolution(ask, trusts_answers=True)
        self._bar = ProgressBar(is_shown=terminal.can_show_progress)
        self._highest = -1.0

    def prefill(self, answers: Mapping[str, Any], asks: Sequence[str] | None = None) -> None:
        """Take the answers of `--answer`."""
        self._resolution.prefill(answers, asks)

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Draw the bar, if standard error is a terminal. It never moves back."""
        self._highest = max(done, self._highest)
        self._bar.step(self._highest, total, message)

    async def log(self, level: Level, text: str) -> None:
        """Log to standard error; messages below a warning only if it is a terminal."""
        if level in ("warning", "error") or self._terminal.can_show_progress:
            with self._bar.paused():
                print_error(for_terminal(f"{level}: {text}"))

    def has_capability(self, capability: Capability) -> bool:
        """Whether a capability is available: roots, and elicitation at a terminal; never a model."""
        return capability == "roots" or (capability == "elicitation" and self._terminal.can_ask)

    async def close_stream(self) -> None:
        """Do nothing: there is no stream."""

    async def ask(self, question: Question[T]) -> T:
        """Return the answer given in advance, that of the person, or the default."""
        able = (AskChannel.TERMINAL, AskChannel.ROOTS) if self._terminal.can_ask else (AskChannel.ROOTS,)
        try:
            resolved = self._resolution.resolve(question, able)
        except AnswerNeeded as error:
            raise _answer_needed(question) from error
        except InvalidArguments as error:
            raise InvalidArguments(f"--answer {question.key}: {_problem(question, error)}") from error
        if isinstance(resolved, ResolvedAnswer):
            return resolved.answer
        if resolved is AskChannel.ROOTS:
            return question.accept(self._roots)
        with self._bar.paused():
            return await _ask_at_terminal(question)

    async def ask_all(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask one question after the other."""
        return tuple([await self.ask(question) for question in questions])

    def close(self) -> None:
        """Remove the progress bar."""
        self._bar.close()


async def _ask_at_terminal(question: Question[T]) -> T:
    """Ask at the terminal until there is a valid answer, at most `MAX_ATTEMPTS` times.

    Raises:
        Declined: the input ended. InvalidArguments: no answer was valid.
    """
    for tries_left in reversed(range(MAX_ATTEMPTS)):
        try:
            raw = await _read_answer(question)
            if raw == "" and not isinstance(question.default, Missing):
                return question.default
            return question.accept(raw)
        except InvalidArguments as error:
            if not tries_left:
                raise
            sys.stderr.write(f"{for_terminal(_problem(question, error))}\n")
    raise AssertionError("the last try returns or raises")


def _problem(question: Question[Any], error: InvalidArguments) -> str:
    return str(error).removeprefix(f"answers.{question.key}: ")


async def _read_answer(question: Question[Any]) -> Any:
    if isinstance(question, AskForm):
        return await _read_form(question)
    typed = await _read_line(question, prompt_of(question), echo=not isinstance(question, AskSecret))
    return _choice_names(question, typed) if typed else typed


async def _read_line(question: Question[Any], prompt: str, *, echo: bool = True) -> str:
    typed = await read_line(prompt, echo=echo)
    if typed is None:
        sys.stderr.write("\n")
        raise declined_error(question, "no answer was given")
    return typed


async def _read_form(question: Question[Any]) -> dict[str, Any]:
    """Read the values of a form, one line each; an empty line omits an optional one."""
    schema = question.schema()
    sys.stderr.write(f"{for_terminal(question.message)}\n")
    values: dict[str, Any] = {}
    for name, shape in schema.get("properties", {}).items():
        description = f" ({', '.join(map(str, shape['enum']))})" if "enum" in shape else ""
        text = await _read_line(question, f"  {shape.get('description') or name}{description}: ")
        if text or name in schema.get("required", ()):
            values[name] = text
    return values


def prompt_of(question: Question[Any]) -> str:
    """Return the prompt of a question, with its choices and its default."""
    lines = [question.message]
    if isinstance(question, AskChoice | AskChoices):
        lines += [f"  {number}) {choice}" for number, choice in enumerate(question.choices, 1)]
        lines.append("number or name" if isinstance(question, AskChoice) else "numbers or names, separated by commas")
    hint = " [yes/no]" if isinstance(question, AskConfirmation) else ""
    default = "" if isinstance(question.default, Missing) else f" [{_default_text(question.default)}]"
    return "\n".join(lines) + f"{hint}{default}: "


def _default_text(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _choice_names(question: Question[Any], typed: str) -> Any:
    """Replace numbers by the choices at these positions; leave everything else as typed."""
    if isinstance(question, AskChoice):
        return _choice_name(typed.strip(), question.choices)
    if isinstance(question, AskChoices):
        parts = [part.strip() for part in typed.split(",")]
        return [_choice_name(part, question.choices) for part in parts if part]
    return typed


def _choice_name(text: str, choices: Sequence[str]) -> str:
    # A question that can be answered with no is answered with yes too: its first choice consents to least.
    if "no" in choices and "yes" not in choices and text.lower() in ("y", "yes", "n"):
        return "no" if text.lower() == "n" else choices[0]
    is_number = text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= len(choices)
    return choices[int(text) - 1] if is_number and text not in choices else text


def _answer_needed(question: Question[Any]) -> AnswerNeeded:
    choices = f" (one of {', '.join(question.choices)})" if isinstance(question, AskChoice) else ""
    value = "yes" if isinstance(question, AskConfirmation) else "VALUE"
    return AnswerNeeded(
        f"{question.message}: nobody can be asked here; give --answer {question.key}={value}{choices}",
        question=question.key,
    )
