"""The screen of a terminal: the output of a program, drawn by a terminal emulator (pyte, docs/adr/0018).

Drawn on request and not as output arrives: pyte processes about 300 KB a second, and a flood must not block the server.
Blocking: for a worker thread.
"""

import re
from threading import Lock
from typing import TYPE_CHECKING

from coretools.process.children.streams import TerminalSize

if TYPE_CHECKING:
    import pyte

MAX_REDRAWN_BYTES = 64 * 1024
"""Most output that is drawn at once. Older output is skipped: it has scrolled away or is drawn again."""

_SEQUENCES = re.compile(rb"(?=\x1b)")
PYTE_ERRORS = (TypeError, ValueError, LookupError, NameError)
"""What pyte 0.8.2 raises for invalid sequences, such as CSI ? 1 A, or a number of 5,000 digits."""


class TerminalScreen:
    """The screen of one terminal."""

    def __init__(self, size: TerminalSize) -> None:
        self._size = size
        self._lock = Lock()
        self._terminal: tuple[pyte.Screen, pyte.ByteStream] | None = None
        self.drawn = 0
        """Offset after the output that has been drawn."""
        self.shown: list[str] | None = None
        """Its rows as the last answer showed them; None before the first one."""

    def draw(self, data: bytes, end: int) -> str:
        """Draw the output up to offset `end`, where `data` ends, and return the text of the screen.

        Trailing blanks and empty lines at the bottom are stripped.
        """
        # Imported late: pyte takes 50 ms, and only terminals need it.
        import pyte

        with self._lock:
            fresh = data[len(data) - (end - self.drawn) :] if 0 <= end - self.drawn <= len(data) else None
            if fresh is None or self._terminal is None:
                fresh = data
                screen = pyte.Screen(self._size.columns, self._size.rows)
                self._terminal = screen, pyte.ByteStream(screen)
            screen, stream = self._terminal
            for part in _SEQUENCES.split(fresh):
                try:
                    stream.feed(part)
                except PYTE_ERRORS:
                    # Its parser is a generator, which such an error ends: a new one continues on the same screen.
                    stream = pyte.ByteStream(screen)
            self._terminal, self.drawn = (screen, stream), end
            # The column after a wide character is an empty string, so that joining is right. Not `display`: it fails
            # for a lone combining character (pyte 0.8.2).
            rows = (screen.buffer[y] for y in range(screen.lines))
            lines = ["".join(row[x].data for x in range(screen.columns)).rstrip() for row in rows]
            return "\n".join(lines).rstrip("\n")
