"""Terminal input and output: capabilities, typed lines, results and errors.

Control characters are escaped: a file name or a commit message must not control the terminal.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from coretools.errors import InputOutput
from coretools.escapes import escape_controls

LINE_BYTES = 64 * 1024
"""Size of one read: more than a terminal returns at once (4096, termios(3))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalCapabilities:
    """Which standard streams are terminals, and what they allow."""

    is_stdout_terminal: bool
    """Standard output is a terminal: control characters are escaped."""
    has_colours: bool
    can_ask: bool
    can_show_progress: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "TerminalCapabilities":
        """Inspect the standard streams. NO_COLOR (no-color.org) and TERM=dumb disable colours."""
        is_plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        results, errors = sys.stdout.isatty(), sys.stderr.isatty()
        return cls(
            is_stdout_terminal=results,
            has_colours=results and not is_plain,
            can_ask=sys.stdin is not None and sys.stdin.isatty() and errors,
            can_show_progress=errors and environment.get("TERM") != "dumb",
        )


def for_terminal(text: str) -> str:
    """Escape control characters, except line breaks and tabs."""
    return escape_controls(text, kept="\n\t")


async def read_line(prompt: str, *, echo: bool = True) -> str | None:
    """Read a line typed at the terminal; None at the end of its input.

    Not in a thread: a thread that waits for a line can't be ended, and would delay the exit of the process.
    """
    stream = sys.stdin.fileno()
    data = b""
    with _echo(stream, on=echo):
        # Shown only after echo is off: an answer that is typed at once must not appear either.
        sys.stderr.write(for_terminal(prompt))
        sys.stderr.flush()
        while not data.endswith(b"\n"):
            await anyio.wait_readable(stream)
            taken = os.read(stream, LINE_BYTES)
            if not taken:
                break
            data += taken
    return data.decode("utf-8", "replace").rstrip("\r\n") if data else None


@contextmanager
def _echo(stream: int, *, on: bool) -> Iterator[None]:
    """Turn off the echo of typed characters, except for the end of the line."""
    if on:
        yield
        return
    import termios  # POSIX only

    before = termios.tcgetattr(stream)
    without_echo = [*before]
    without_echo[3] = before[3] & ~termios.ECHO | termios.ECHONL
    termios.tcsetattr(stream, termios.TCSADRAIN, without_echo)
    try:
        yield
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)


# Results go to standard output, everything else to standard error.

_program = "coretools"


def program_name() -> str:
    """The name of this program in messages and usage lines."""
    return _program


@contextmanager
def program_named(name: str) -> Iterator[None]:
    """Give this program another name: an application has a command line of its own. There is one, as argv[0]."""
    global _program  # noqa: PLW0603  # one for the process
    before, _program = _program, name
    try:
        yield
    finally:
        _program = before


def print_error(text: str) -> None:
    """Print a message to standard error. Control characters are escaped: it may quote a file name."""
    sys.stderr.write(f"{_program}: {for_terminal(text)}\n")
    sys.stderr.flush()


def print_text(text: str) -> int:
    """Print a result; return 0, or an exit code if that failed. A closed pipe (`head`) is not a failure."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except OSError as error:
        # The rest of the buffer would fail again when the interpreter exits.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        if isinstance(error, BrokenPipeError):
            return 0
        print_error(f"standard output: {error.strerror}")
        return InputOutput.exit_code
    return 0


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with columns of the same width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def truncate(line: str, width: int) -> str:
    """Truncate a line at a word boundary, with an ellipsis."""
    if len(line) <= width:
        return line
    room = line[: width - 4]
    words = room if line[width - 4] == " " else room.rpartition(" ")[0]
    # A word that fills half of the line is cut in the middle.
    return (words if len(words) > width // 2 else room).rstrip() + " ..."
