"""`coretools repl`: run commands line by line, with one assembly for the whole session.

A line is run as by `coretools WORDS`. After an error the loop continues; Ctrl-C ends the running command and everything
that it started. Input from a pipe has no prompt, and the exit code is that of the last failure.
"""

import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio.abc import TaskStatus

from coretools.app.assembly import open_assembly
from coretools.cli.command_runner import CommandContext, CommandLine, CommandRunner
from coretools.cli.completion import candidates
from coretools.cli.global_options import LINE_OPTIONS, line_parser, split_options
from coretools.cli.manual import WIDTH, overview
from coretools.cli.terminal import TerminalCapabilities, escape_controls, print_error, print_text
from coretools.config.settings import Settings
from coretools.errors import CommandSyntax, CoreError
from coretools.operations.registry import Registry
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal
from coretools.shell_words import BLANKS, join, split

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer

# Splitting lines, by the parser of the process runner (`coretools.shell_words`): of a shell it has only the quotes.


CURSOR_MARK = "\ue000"
"""Placeholder for the cursor, from the private use area, which nobody types."""


def needs_more(text: str) -> bool:
    """Whether a line continues on the next: a quote is open, or it ends with a backslash."""
    if _is_complete(text):
        return False
    return any(_is_complete(text + end) for end in ("'", '"', "x", 'x"'))


def words_of(text: str) -> list[str]:
    """Return the words of a line; none for a blank line.

    Raises:
        CommandSyntax: as raised by `split`.
    """
    return split(text) if text.strip() else []


def split_at_cursor(text: str) -> tuple[list[str], str, int]:
    """Return the words before the word at the cursor, that word, and where it begins in the text.

    Raises:
        CommandSyntax: the line contains a shell operator.
    """
    words = _open_words(text)
    start = len(text)
    while start and len(_open_words(text[: start - 1])) == len(words):
        start -= 1
    while text[start : start + 1] in tuple(BLANKS):
        start += 1
    return words[:-1], words[-1], start


def quoted(word: str) -> str:
    """Return a word with the quotes that it needs after the first word."""
    return join(("x", word)).removeprefix("x ")


def _open_words(text: str) -> list[str]:
    """Return the words of an unfinished line, including the unfinished last one."""
    for end in ("", "'", '"'):
        try:
            words = split(f"{text}{CURSOR_MARK}{end}")
        except CommandSyntax as error:
            fault = error
            continue
        return [*words[:-1], words[-1].removesuffix(CURSOR_MARK)]
    raise fault


def _is_complete(text: str) -> bool:
    try:
        words_of(text)
    except CommandSyntax:
        return False
    return True


# Sources of lines: a person at a terminal, through prompt_toolkit, or a pipe.


PROMPT = "coretools> "
BUILT_IN_WORDS = ("help", "exit")
"""Words of the REPL itself, in addition to the commands."""

_READ_BYTES = 64 * 1024


class LineSource(Protocol):
    """Yields lines, each with its continuation lines."""

    async def next(self) -> str | None:
        """Return the next line; None at the end."""
        ...


class PipedLines:
    """Lines of standard input that is not a terminal. No prompt is printed."""

    def __init__(self) -> None:
        self._stream = sys.stdin.fileno()
        self._data = b""
        self._is_at_end = False

    async def next(self) -> str | None:
        """Return the next line; None at the end."""
        text = await self._one()
        while text is not None and needs_more(text):
            more = await self._one()
            if more is None:
                break
            text = f"{text}\n{more}"
        return text

    async def _one(self) -> str | None:
        while b"\n" not in self._data and not self._is_at_end:
            await self._readable()
            taken = os.read(self._stream, _READ_BYTES)
            self._data += taken
            self._is_at_end = not taken
        if not self._data:
            return None
        line, _, self._data = self._data.partition(b"\n")
        return line.decode("utf-8", "surrogateescape").removesuffix("\r")

    async def _readable(self) -> None:
        # epoll(7) does not accept regular files; those need no waiting.
        with suppress(PermissionError):
            await anyio.wait_readable(self._stream)


class PromptedLines:
    """Lines typed at a terminal, with history, completion and continuation lines."""

    def __init__(self, runner: CommandRunner, environment: Mapping[str, str]) -> None:
        self._session = _session(runner, _history_file(environment))

    async def next(self) -> str | None:
        """Return the next line; None at the end. After Ctrl-C, an empty line."""
        try:
            # The loop handles SIGINT: it ends the running command, and does nothing between commands.
            return await self._session.prompt_async(PROMPT, handle_sigint=False)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None


def _session(runner: CommandRunner, history_file: Path | None) -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.output import create_output

    class Remembered(FileHistory):
        """A history file without the lines that begin with a blank."""

        def store_string(self, string: str) -> None:
            if not string.startswith(" "):
                super().store_string(string)

    return PromptSession(
        history=Remembered(history_file) if history_file else InMemoryHistory(),
        completer=_completer(runner),
        complete_while_typing=False,
        multiline=Condition(lambda: needs_more(get_app().current_buffer.text)),
        prompt_continuation="... ",
        enable_open_in_editor=False,
        # Standard output is for results.
        output=create_output(sys.stderr),
    )


def _completer(runner: CommandRunner) -> "Completer":
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class CommandCompleter(Completer):
        """Completes commands."""

        def get_completions(
            self,
            document: Document,  # noqa: ARG002  # prompt_toolkit's signature
            complete_event: CompleteEvent,  # noqa: ARG002  # as above
        ) -> list[Completion]:
            """Return nothing: only the asynchronous method is used."""
            return []

        async def get_completions_async(
            self,
            document: Document,
            complete_event: CompleteEvent,  # noqa: ARG002  # prompt_toolkit's signature
        ) -> AsyncGenerator[Completion, None]:
            text = document.text_before_cursor
            try:
                before, current, start = split_at_cursor(text)
            except CommandSyntax:
                return
            if before[:1] == ["help"]:
                before = before[1:]
            elif not before:
                for word in BUILT_IN_WORDS:
                    if word.startswith(current):
                        yield Completion(word, start_position=start - len(text))
            for one in await candidates(runner.context, before, current):
                yield Completion(
                    quoted(one.text),
                    start - len(text),
                    display=escape_controls(one.text),
                    display_meta=escape_controls(one.description),
                )

    return CommandCompleter()


def _history_file(environment: Mapping[str, str]) -> Path | None:
    """Return a history file in the XDG state directory, readable only by its owner; None if it can't be created."""
    home = environment.get("HOME")
    state = environment.get("XDG_STATE_HOME") or (f"{home}/.local/state" if home else "")
    if not os.path.isabs(state):
        return None
    path = Path(state) / "coretools" / "history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if stat.S_IMODE(os.fstat(handle).st_mode) != 0o600:
                os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
    except OSError as error:
        print_error(f"the history is not saved: {path}: {error.strerror}")
        return None
    return path


INTERRUPTED = 128 + signal.SIGINT


async def repl(settings: Settings, registries: Sequence[Registry]) -> int:
    """Run lines until the input ends; `registries` are served in addition to the built-in commands.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    process_exit = ProcessExit()
    exit_code = 0
    async with open_assembly(settings, dict(os.environ), registries) as assembly, cancel_on_signal(process_exit):
        terminal = TerminalCapabilities.of(os.environ)
        runner = CommandRunner(CommandContext.of(assembly, settings), terminal, program="")
        if terminal.can_ask:
            await _ReadLoop(runner, PromptedLines(runner, os.environ)).run_interrupted()
        else:
            exit_code = await _ReadLoop(runner, PipedLines()).run()
    return process_exit.exit_code or exit_code


class _ReadLoop:
    """Reads and runs the lines of one source."""

    def __init__(self, runner: CommandRunner, lines: LineSource) -> None:
        self._runner = runner
        self._lines = lines
        self._running: anyio.CancelScope | None = None

    async def run_interrupted(self) -> None:
        """Run every line; SIGINT ends the running one."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watch)
            await self.run()
            tasks.cancel_scope.cancel()

    async def run(self) -> int:
        """Run every line; return the exit code of the last failure, or 0."""
        failed = 0
        while (text := await self._lines.next()) is not None:
            try:
                words = words_of(text)
            except CoreError as error:
                print_error(str(error))
                failed = error.exit_code
                continue
            if words[:1] == ["exit"]:
                break
            if words and not words[0].startswith("#"):
                failed = await self._one(words) or failed
        return failed

    async def _one(self, words: Sequence[str]) -> int:
        with anyio.CancelScope() as self._running:
            try:
                return await self._run(words)
            except CoreError as error:
                print_error(str(error))
                return error.exit_code
        print_error("interrupted")
        return INTERRUPTED

    async def _run(self, words: Sequence[str]) -> int:
        if words[0] == "help":
            return print_text(self._runner.help(words[1:]) if words[1:] else self._help())
        return await self._runner.run(parse_line(self._runner, words))

    def _help(self) -> str:
        commands = overview(self._runner.routes, (), WIDTH)
        return f"{commands}\n\n`help COMMAND` shows its usage; `exit` or Ctrl-D leaves; Ctrl-C ends a command."

    async def _watch(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._running is not None:
                    self._running.cancel()


def parse_line(runner: CommandRunner, words: Sequence[str]) -> CommandLine:
    """Parse a line with the options for one command.

    Raises:
        InvalidArguments: `--answer` without a value.
    """
    own, rest = split_options(words, LINE_OPTIONS, after_command=LINE_OPTIONS.keys() - runner.option_names(words))
    options = line_parser().parse_args(own)
    return CommandLine(words=rest, as_json=options.json, wants_help=options.wants_help, answers=options.answer)
