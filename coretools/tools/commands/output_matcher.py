"""Match a regular expression in the growing output of a run.

Lines are matched with the pattern language of `search_text`, in a worker thread and with a time limit, so that no
pattern and no output blocks the server. A line may arrive in pieces: an incomplete last line is searched again.
"""

from functools import partial

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from coretools.errors import InvalidArguments
from coretools.process.jobs.job import Job
from coretools.tools.answer_budget import cut_line
from coretools.tools.output_text import plain
from coretools.tools.search.pattern import parse_pattern

PIECE_BYTES = 64 * 1024
"""Most bytes searched in one step."""

LINE_BYTES = 8 * 1024
"""Most bytes at the end of an incomplete line that are searched again."""

MATCH_SECONDS = 1.0
"""Time limit for one piece; an ordinary pattern takes a thousandth of it."""

MATCH_CHARACTERS = 500
"""Characters shown of a matching line."""

_RETURN = "\u240d"
"""A carriage return, made visible."""


class OutputMatcher:
    """Searches the output of one run for a pattern: what no answer has shown yet, or all from an offset on.

    Remembers its position.
    """

    def __init__(self, pattern: str, job: Job, limiter: CapacityLimiter, *, since: int | None = None) -> None:
        self._pattern = parse_pattern(pattern, literal=False, ignore_case=False).compiled
        self._job = job
        self._limiter = limiter
        self._at = job.match_offset if since is None else since
        self._seen = job.match_seen if since is None else -1
        self.is_for_new = since is None
        self.line = ""
        """The matching line."""

    @property
    def is_behind(self) -> bool:
        """Whether there is output that was not searched."""
        return self._seen < self._job.output.end

    async def has_matched(self) -> bool:
        """Search the next piece of new output. After a match the run's mark is set to the end of the matching line.

        Raises:
            InvalidArguments: the pattern takes too long.
        """
        if not self.is_behind:
            return False
        output = self._job.output
        start = max(self._at, output.first)
        data = output.read(start, PIECE_BYTES)
        self._seen = start + len(data)
        length = await anyio.to_thread.run_sync(partial(self._search, data), limiter=self._limiter)
        if length >= 0:
            self._job.match_from(start + length)
            return True
        whole = data.rfind(b"\n") + 1
        # The unfinished line is searched again with what follows it, up to a limit.
        self._at = start + max(whole, len(data) - LINE_BYTES)
        return False

    def _search(self, data: bytes) -> int:
        """Return the offset of the end of the first matching line, or -1."""
        text = plain(data.decode("utf-8", "replace"))
        try:
            match = self._pattern.search(text, 0, timeout=MATCH_SECONDS)
            if match is None and self._job.terminal is not None:
                text = "\n".join(map(_as_displayed, text.split("\n")))
                match = self._pattern.search(text, 0, timeout=MATCH_SECONDS)
        except TimeoutError:
            raise InvalidArguments("pattern: takes too long on this output; make it simpler") from None
        if match is None:
            return -1
        number = text.count("\n", 0, match.start())
        self.line = cut_line(text.split("\n")[number].strip(), longest=MATCH_CHARACTERS)
        position = 0
        for _ in range(number + 1):
            position = data.find(b"\n", position) + 1
            if position == 0:
                return len(data)
        return position


def skip_shown(job: Job, stop: int) -> None:
    """Let patterns match only what comes after an offset that was shown.

    A line that was shown incomplete is searched as a whole once more of it has come, but not what is before an input.
    """
    if stop > job.match_seen:
        start = max(job.match_offset, stop - LINE_BYTES)
        job.match_from(start + job.output.read(start, stop - start).rfind(b"\n") + 1, stop)


def _as_displayed(line: str) -> str:
    """Return a line as a terminal shows it: text after a carriage return overwrites the start of the line."""
    covered = ""
    for part in line.split(_RETURN):
        covered = part + covered[len(part) :]
    return covered.rstrip()
