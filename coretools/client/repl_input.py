"""Where the lines of a REPL come from: a person at a terminal, by prompt_toolkit, or a pipe."""

import os
import stat
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio

from coretools.client.completing import candidates
from coretools.client.output import complain
from coretools.client.repl_lines import as_typed, at_cursor, goes_on
from coretools.client.terminal import escaped
from coretools.client.typed import Desk
from coretools.errors import CommandSyntax

if TYPE_CHECKING:  # half a second of imports, for a person only
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer

PROMPT = "coretools> "
WORDS = ("help", "exit")
"""What the REPL knows beside the commands."""

_BLOCK = 64 * 1024


class Lines(Protocol):
    """Gives one line after the other, with all that goes on of it."""

    async def next(self) -> str | None:
        """The next line; None at the end."""
        ...


class PipedLines:
    """Lines of standard input that is no terminal. Nothing is printed for them."""

    def __init__(self) -> None:
        self._stream = sys.stdin.fileno()
        self._data = b""
        self._is_at_end = False

    async def next(self) -> str | None:
        """The next line; None at the end."""
        text = await self._one()
        while text is not None and goes_on(text):
            more = await self._one()
            if more is None:
                break
            text = f"{text}\n{more}"
        return text

    async def _one(self) -> str | None:
        while b"\n" not in self._data and not self._is_at_end:
            await self._readable()
            taken = os.read(self._stream, _BLOCK)
            self._data += taken
            self._is_at_end = not taken
        if not self._data:
            return None
        line, _, self._data = self._data.partition(b"\n")
        return line.decode("utf-8", "surrogateescape").removesuffix("\r")

    async def _readable(self) -> None:
        # epoll(7) takes no regular file, and none is waited for.
        with suppress(PermissionError):
            await anyio.wait_readable(self._stream)


class PromptedLines:
    """Lines typed by a person: with history, completion and several lines in one."""

    def __init__(self, desk: Desk, environment: Mapping[str, str]) -> None:
        self._session = _session(desk, _history_file(environment))

    async def next(self) -> str | None:
        """The next line; None at the end. What Ctrl-C gave up is an empty one."""
        try:
            # SIGINT is the loop's: it ends the command that runs, and nothing while none does.
            return await self._session.prompt_async(PROMPT, handle_sigint=False)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None


def _session(desk: Desk, history_file: Path | None) -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.output import create_output

    class Remembered(FileHistory):
        """A line that begins with a blank is not kept."""

        def store_string(self, string: str) -> None:
            if not string.startswith(" "):
                super().store_string(string)

    return PromptSession(
        history=Remembered(history_file) if history_file else InMemoryHistory(),
        completer=_completer(desk),
        complete_while_typing=False,
        multiline=Condition(lambda: goes_on(get_app().current_buffer.text)),
        prompt_continuation="... ",
        enable_open_in_editor=False,
        # Standard output is for results.
        output=create_output(sys.stderr),
    )


def _completer(desk: Desk) -> "Completer":
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Graph(Completer):
        """Completes by the commands there are."""

        def get_completions(
            self,
            document: Document,  # noqa: ARG002  # prompt_toolkit's signature
            complete_event: CompleteEvent,  # noqa: ARG002  # as above
        ) -> list[Completion]:
            """None: only the asynchronous way is used."""
            return []

        async def get_completions_async(
            self,
            document: Document,
            complete_event: CompleteEvent,  # noqa: ARG002  # prompt_toolkit's signature
        ) -> AsyncGenerator[Completion, None]:
            text = document.text_before_cursor
            try:
                before, current, start = at_cursor(text)
            except CommandSyntax:
                return
            if before[:1] == ["help"]:
                before = before[1:]
            elif not before:
                for word in WORDS:
                    if word.startswith(current):
                        yield Completion(word, start_position=start - len(text))
            for one in await candidates(desk.bench, before, current):
                yield Completion(
                    as_typed(one.text), start - len(text), display=escaped(one.text), display_meta=escaped(one.said)
                )

    return Graph()


def _history_file(environment: Mapping[str, str]) -> Path | None:
    """A file that only its owner reads, in the state directory (XDG Base Directory); None where none can be had."""
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
        complain(f"the history is not kept: {path}: {error.strerror}")
        return None
    return path
