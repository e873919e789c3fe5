"""Where the lines of the REPL come from: a person at a terminal, through prompt_toolkit, or a pipe.

What is written to standard error while a line is typed appears above the prompt, and the line is drawn again.
"""

import asyncio
import io
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO, cast

import anyio

from coretools.cli.command_runner import CommandRunner
from coretools.cli.common.candidates import Candidate
from coretools.cli.common.terminal import for_terminal, print_error, program_name
from coretools.cli.completion import candidates
from coretools.cli.completion_key import completion_keys
from coretools.cli.line_words import needs_more, quoted, split_at_cursor
from coretools.client.common.state_files import is_own_file
from coretools.config.logs import divert_log
from coretools.errors import BadSetting, CommandSyntax
from coretools.own_state import state_path

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.output import Output

    from coretools.cli.repl_servers import ReplServers

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
            with suppress(PermissionError):  # epoll(7) does not accept regular files; those need no waiting
                await anyio.wait_readable(self._stream)
            taken = os.read(self._stream, _READ_BYTES)
            self._data += taken
            self._is_at_end = not taken
        if not self._data:
            return None
        line, _, self._data = self._data.partition(b"\n")
        return line.decode("utf-8", "surrogateescape").removesuffix("\r")


Completions = Callable[[Sequence[str], str], list[Candidate]]
"""Returns completions of a word behind others."""


class PromptedLines:
    """Lines typed at a terminal, with history, completion and continuation lines."""

    def __init__(
        self,
        runner: CommandRunner,
        environment: Mapping[str, str],
        servers: "ReplServers | None" = None,
        *,
        history: str = "history",
    ) -> None:
        """`servers` complete lines about them, and ask nothing while a line is typed. `history` is a state file."""
        from prompt_toolkit.output import create_output

        # Standard output is for results.
        self._screen = None if servers is None else servers.screen
        complete = servers.complete if servers else lambda _before, _current: []
        self._session = _session(
            _completer(runner, complete), _history_file(environment, history), create_output(sys.stderr)
        )

    async def next(self) -> str | None:
        """Return the next line; None at the end. After Ctrl-C, an empty line."""
        try:
            with _printing_above(), self._typing():
                # The loop handles SIGINT: it ends the running command, and does nothing between commands.
                return await self._session.prompt_async(f"{program_name()}> ", handle_sigint=False)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None

    @contextmanager
    def _typing(self) -> Iterator[None]:
        if self._screen is None:
            yield
            return
        self._screen.is_at_prompt = True
        try:
            yield
        finally:
            self._screen.is_at_prompt = False


class _AbovePrompt(io.TextIOBase):
    """Standard error while a line is typed: complete lines are printed above the prompt, which is drawn again."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._text = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Print a text soon; from any thread."""
        with self._lock:
            is_first = not self._text
            self._text += text
        if is_first:
            self._loop.call_soon_threadsafe(self._print)
        return len(text)

    def isatty(self) -> bool:
        """Whether the stream is a terminal, which it is."""
        return self._stream.isatty()

    def _print(self) -> None:
        from prompt_toolkit.application import run_in_terminal

        with self._lock:
            text, self._text = self._text, ""
        run_in_terminal(lambda: self._shown(text))

    def _shown(self, text: str) -> None:
        self._stream.write(text if text.endswith("\n") else f"{text}\n")
        self._stream.flush()


@contextmanager
def _printing_above() -> Iterator[None]:
    """Print what is written to standard error, and the log, above the prompt."""
    before = sys.stderr
    proxy = _AbovePrompt(before)
    sys.stderr = cast("TextIO", proxy)
    try:
        with divert_log(proxy.write):
            yield
    finally:
        sys.stderr = before


def _session(completer: "Completer", history_file: Path | None, output: "Output") -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Remembered(FileHistory):
        """A history file without the lines that begin with a blank."""

        def store_string(self, string: str) -> None:
            if not string.startswith(" "):
                super().store_string(string)

    return PromptSession(
        history=Remembered(history_file) if history_file else InMemoryHistory(),
        completer=completer,
        complete_while_typing=False,
        key_bindings=completion_keys(completer),
        multiline=Condition(lambda: needs_more(get_app().current_buffer.text)),
        prompt_continuation="... ",
        enable_open_in_editor=False,
        output=output,
    )


def _completer(runner: CommandRunner, complete: Completions) -> "Completer":
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
            for one in [*complete(before, current), *await candidates(runner.context, before, current)]:
                yield Completion(
                    quoted(one.text),
                    start - len(text),
                    display=for_terminal(one.text),
                    display_meta=for_terminal(one.description),
                )

    return CommandCompleter()


def _history_file(environment: Mapping[str, str], history: str) -> Path | None:
    """Return a history file in the XDG state directory, readable only by its owner; None if it can't be created."""
    try:
        named = state_path(environment, history)
    except BadSetting as error:
        print_error(f"the history is not saved: {error}")
        return None
    if named is None:
        return None
    path = Path(named)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if stat.S_IMODE(os.fstat(handle).st_mode) != 0o600:
                os.fchmod(handle, 0o600)
            if not is_own_file(os.fstat(handle), hidden_bits=0o077):
                print_error(f"the history is not saved: {path} belongs to another user or has another name")
                return None
        finally:
            os.close(handle)
    except OSError as error:
        print_error(f"the history is not saved: {path}: {error.strerror}")
        return None
    return path
