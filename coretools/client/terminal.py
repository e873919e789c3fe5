"""The terminal that a person sits at: what of it is there, a line typed at it, a bar drawn on it.

Control characters of what is shown are escaped: a file name or a commit message must not drive the terminal.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

LINE_BYTES = 64 * 1024
"""Taken of one read: more than a terminal hands over at once (4096, termios(3))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Which of the standard streams are a terminal, and what may be done with that."""

    shows_results: bool
    """Standard output is a terminal: what would drive it is escaped."""
    has_colours: bool
    can_ask: bool
    shows_progress: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Screen":
        """What the standard streams are. NO_COLOR (no-color.org) and TERM=dumb take colours away."""
        is_plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        results, errors = sys.stdout.isatty(), sys.stderr.isatty()
        return cls(
            shows_results=results,
            has_colours=results and not is_plain,
            can_ask=sys.stdin is not None and sys.stdin.isatty() and errors,
            shows_progress=errors and environment.get("TERM") != "dumb",
        )


def escaped(text: str) -> str:
    """Text without what drives a terminal; line breaks and tabs stay."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


async def read_line(prompt: str, *, echo: bool = True) -> str | None:
    """A line typed at the terminal; None when its input ended.

    Not read in a thread: one that waits for a line can't be ended, and would hold up the end of the process.
    """
    stream = sys.stdin.fileno()
    data = b""
    with _echo(stream, on=echo):
        # Shown when the terminal is ready for the answer: what is typed at once must not be seen either.
        sys.stderr.write(escaped(prompt))
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
    """Keep the terminal from showing what is typed, but for the end of the line."""
    if on:
        yield
        return
    import termios  # a POSIX platform's own

    before = termios.tcgetattr(stream)
    quiet = [*before]
    quiet[3] = before[3] & ~termios.ECHO | termios.ECHONL
    termios.tcsetattr(stream, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)
