"""Prepare a command of the caller: the shell for a line, variables, input, terminal, and a person's confirmation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import anyio.to_thread

from coretools.command_policy.shell_lines.parse import needs_shell, parse_line
from coretools.command_policy.verdict import Decision
from coretools.errors import AnswerNeeded, CapabilityMissing, CommandSyntax, InvalidArguments
from coretools.operations.call import Call, require_confirmation
from coretools.process.children.streams import InputBuffer, TerminalSize
from coretools.process.environment import NAME, command_defaults
from coretools.process.jobs.job import Work
from coretools.process.policy_check import judge
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.process.shell import shell_argv
from coretools.questions.confirmation import CONFIRM
from coretools.questions.kinds import AskConfirmation
from coretools.roots.root import Directory
from coretools.shell_words import split, words
from coretools.tools.output_text import plain

MOST_CHARACTERS = 8_000
"""Longest question. A person can't confirm what is too long to read."""

MOST_VARIABLES = 100
"""Variables of one call."""

_TERMINAL = re.compile(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,2})")
END_OF_TRANSMISSION = b"\x04"
"""Ends the input of a program on a terminal (termios(3), VEOF)."""


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """A command before it is approved and given its input."""

    argv: list[str]
    options: RunOptions
    is_readable: bool = True
    """False for a line that the grammar can't read; the shell may."""


class StartedCommand(NamedTuple):
    """Everything needed to start a command."""

    argv: Sequence[str]
    directory: Directory
    options: RunOptions
    work: Work | None = None
    """Replaces running the argv."""


async def prepare_command(
    command: str | list[str], *, env: Mapping[str, str], terminal: str, runner: Runner
) -> PreparedCommand:
    """Prepare a line or a list of words.

    Raises:
        CommandSyntax: no program, a NUL, or a line that exceeds a limit. InvalidArguments: a variable, or the size of
            the terminal. CannotStart, Unsupported: no shell for a line.
    """
    size = terminal_size(terminal)
    _require_variables(env)
    defaults = command_defaults(runner.environment, has_terminal=size is not None)
    options = RunOptions(is_command=True, terminal=size, environment={**defaults, **env}, variables=tuple(env))
    if not isinstance(command, str):
        return PreparedCommand(words(command), options)
    if not needs_shell(command):
        return PreparedCommand(split(command), options)
    parsed = await anyio.to_thread.run_sync(parse_line, command)
    argv = shell_argv(command, runner.tool_path)
    return PreparedCommand(argv, replace(options, line=command), is_readable=parsed.is_readable)


async def require_syntax(prepared: PreparedCommand, directory: Directory, runner: Runner) -> None:
    """Let the shell check the syntax of a line that the grammar can't read, so that no part of a faulty one runs.

    Raises:
        CommandSyntax: the shell can't read it either.
    """
    if prepared.is_readable:
        return
    shell, *_, line = prepared.argv
    options = RunOptions(is_command=True, line=line, is_confirmed=True)
    done = await runner.run([shell, "-n", "-c", line], cwd=directory, options=options)
    if fault := done.stderr.text().strip() or not done.ok:
        raise CommandSyntax(f"nothing was started: {plain(str(fault)).splitlines()[0]}", 0)


def _require_variables(env: Mapping[str, str]) -> None:
    """Check the variables of a call.

    Raises:
        InvalidArguments: too many, an invalid name, a NUL, or a name that the server sets itself.
    """
    if len(env) > MOST_VARIABLES:
        raise InvalidArguments(f"env: {len(env)} variables; at most {MOST_VARIABLES}")
    for name, value in env.items():
        if not NAME.fullmatch(name):
            raise InvalidArguments(f"env: {name[:80]!r} is not the name of a variable (letters, digits and _)")
        if name.startswith("CORETOOLS_"):
            raise InvalidArguments(f"env: {name[:80]}: the server sets variables that begin with CORETOOLS_ itself")
        if "\0" in value:
            raise InvalidArguments(f"env: the value of {name[:80]} contains a NUL")


async def approved(
    argv: Sequence[str], options: RunOptions, *, runner: Runner, place: str, stdin: str | None, call: Call
) -> bool:
    """Whether a person confirmed the command. False if the policy requires no confirmation, or denies the command.

    Raises:
        Declined: the person declined. DeniedCommand, CapabilityMissing: nobody can be asked. InvalidArguments: the
            command is too long to read.
    """
    programs = runner.programs
    if programs is None:
        return False
    decision = await judge(programs, argv, options, environment=runner.environment)
    if decision.verdict != "ask":
        return False
    variables = {name: options.environment[name] for name in options.variables}
    try:
        await require_confirmation(call, confirmation_question(decision, place, stdin, variables))
    except AnswerNeeded as error:
        raise programs.refusal(decision, error.hint) from error
    except CapabilityMissing as error:
        raise CapabilityMissing(error.capability, str(programs.refusal(decision, error.hint))) from error
    return True


def confirmation_question(
    decision: Decision, directory: str, stdin: str | None, variables: Mapping[str, str]
) -> AskConfirmation:
    """Build the question: every argument and variable of the command, unabridged, and why it is asked.

    Raises:
        InvalidArguments: too long to read.
    """
    lines = [f"Run {' '.join(map(_word, decision.argv))}?", f"in: {_word(directory)}"]
    lines += [f"with: {name}={_word(value)}" for name, value in variables.items()]
    if stdin:
        lines.append(f"input: {stdin!a}")
    lines.append(f"asked because {decision.decisive.reason}")
    message = "\n".join(lines)
    if len(message) > MOST_CHARACTERS:
        raise InvalidArguments(f"command: too long for a person to confirm; at most {MOST_CHARACTERS} characters")
    return AskConfirmation(key=CONFIRM, message=message, is_for_operator=True)


def _word(word: str) -> str:
    """Return an argument unchanged if it has only plain characters, else quoted and escaped."""
    plain = word.isascii() and word.isprintable() and not set(word) & set(" '\"\\")
    return word if plain and word else ascii(word)


def feed_of(stdin: str | None, *, is_open: bool, is_terminal: bool) -> InputBuffer | None:
    """Return the input of a command: kept open, or closed after `stdin`. None means /dev/null."""
    data = (stdin or "").encode("utf-8", "surrogatepass")
    if not is_open and is_terminal:
        data += END_OF_TRANSMISSION  # no further input can come
        is_open = True
    elif not data and (stdin is None or not is_open) and not is_terminal:
        return None
    feed = InputBuffer()
    feed.write(data)
    if not is_open:
        feed.end()
    return feed


def terminal_size(text: str) -> TerminalSize | None:
    """Parse the requested size, columns first.

    Raises:
        InvalidArguments: not a size.
    """
    if not text:
        return None
    match = _TERMINAL.fullmatch(text)
    if match is None:
        raise InvalidArguments(f"terminal: columns x rows, such as 80x24, up to 999x999; got {text[:20]!r}")
    return TerminalSize(rows=int(match[2]), columns=int(match[1]))
