"""Look for a regular expression in output that is still coming.

Line by line, with the language of `search_text`, in a worker thread and with a time limit, so that no pattern and no
output holds up the server. A line may come in many pieces: the last one is looked at again when more of it is there.
"""

from functools import partial

import anyio.to_thread
from anyio import CapacityLimiter

from coretools.errors import InvalidArguments
from coretools.process.runs import Run
from coretools.tools.ci.output import plain
from coretools.tools.search.pattern import parse_pattern

PIECE_BYTES = 64 * 1024
"""Looked at in one go."""

LINE_BYTES = 8 * 1024
"""Of a line that has no end yet, only so much of its end is looked at again."""

MATCH_SECONDS = 1.0
"""Given to one piece; an ordinary pattern takes a thousandth of it."""

_RETURN = "\u240d"
"""A carriage return, made visible."""


class Matcher:
    """One pattern, looked for in one run from its mark on. Remembers how far it looked."""

    def __init__(self, pattern: str, run: Run, limiter: CapacityLimiter) -> None:
        self._pattern = parse_pattern(pattern, literal=False, ignore_case=False).compiled
        self._run = run
        self._limiter = limiter
        self._at = run.mark
        self._seen = -1
        self.line = ""
        """The line that matched."""

    @property
    def is_behind(self) -> bool:
        """Whether there is output that was not looked at."""
        return self._seen < self._run.output.end

    async def has_matched(self) -> bool:
        """Look at the next piece of what came since the last time. After a match the run's mark stands behind its line.

        Raises:
            InvalidArguments: the pattern takes too long.
        """
        if not self.is_behind:
            return False
        output = self._run.output
        start = max(self._at, output.first)
        data = output.read(start, PIECE_BYTES)
        self._seen = start + len(data)
        length = await anyio.to_thread.run_sync(partial(self._look, data), limiter=self._limiter)
        if length >= 0:
            self._run.mark = start + length
            return True
        whole = data.rfind(b"\n") + 1
        self._at = start + max(whole, len(data) - LINE_BYTES)
        return False

    def _look(self, data: bytes) -> int:
        """How many bytes stand before the end of the first line that matches; -1 for none."""
        text = plain(data.decode("utf-8", "replace"))
        try:
            found = self._pattern.search(text, 0, timeout=MATCH_SECONDS)
            if found is None and self._run.terminal is not None:
                text = "\n".join(map(_shown, text.split("\n")))
                found = self._pattern.search(text, 0, timeout=MATCH_SECONDS)
        except TimeoutError:
            raise InvalidArguments("pattern: takes too long on this output; make it simpler") from None
        if found is None:
            return -1
        number = text.count("\n", 0, found.start())
        self.line = text.split("\n")[number].strip()
        position = 0
        for _ in range(number + 1):
            position = data.find(b"\n", position) + 1
            if position == 0:
                return len(data)
        return position


def _shown(line: str) -> str:
    """A line as a terminal shows it: what stands behind a return to its start covers it, blanks at the end are none."""
    covered = ""
    for part in line.split(_RETURN):
        covered = part + covered[len(part) :]
    return covered.rstrip()
