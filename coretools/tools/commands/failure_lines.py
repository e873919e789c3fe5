"""Recognise the lines of an output that look like failures, whatever program printed them."""

import math
import re
import time
from collections.abc import Iterator

_SIGNS = re.compile(
    # Each contains one of _KEYWORDS, or a place.
    r"\berror\b|(?-i:[a-z]Error)\b|\b(?:errors?|fail\w*)\s*[:=]\s*[1-9]|\b[1-9]\d* errors?\b"
    r"|\bfail(?:ed|ure|ures|ing)?\b|\bfatal\b|\bpanic(?:ked)?\b|exception\b|\btraceback\b|\bassert(?:ion)?\b(?![-_./])"
    r"|undefined (?:reference|symbol)|\bunresolved\b|\b(?:cannot|can't|could not|unable to)\b|not found\b|no such file"
    r"|\bdenied\b|\brejected\b|\bconflict\b|\btimed out\b|no space left|unbound variable|\*\*\* "
    r"|segmentation fault|core dumped|out of memory|\bkilled\b|\bnot ok\b|\berr!|[\u2717\u2718\u2715\u274c]|^E  "
    r"|^[^\s:]*\.[a-z]\w*:\d+:\d+(?!\d|:? *(?:warning|note|info|remark)\b)|_test\.go:\d+:|non-?zero"
    r"|exited with (?!.*\b0\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""What the lines of a failure contain, in the output of compilers, test runners, package managers and shells."""

_KEYWORDS = (
    *("error", "fail", "fatal", "panic", "exception", "traceback", "assert", "undefined ", "unresolved"),
    *("cannot", "can't", "could not", "unable to", "not found", "no such file", "denied", "rejected", "conflict"),
    *("timed out", "*** ", "no space left", "unbound variable", "segmentation fault", "core dumped", "out of memory"),
    *("killed", "not ok", "err!"),
    *("\u2717", "\u2718", "\u2715", "\u274c", "\ne  ", "_test.go:", "nonzero", "non-zero", "exited with "),
)
"""Searched first, in lower case: much faster than the expression, and found on few lines of a long output."""

_PLACE = re.compile(r":\d+:\d")

_HARMLESS = re.compile(
    r"^\s*(?:ok \d|[\u2713\u2714\u221a] |(?:---\s)?PASS:).*"
    r"|^.*(?:\.\.\.\s*(?:ok|yes|no)|\bPASSED(?:\s+\[\s*\d+%\])?)\s*$"
    r"|\b(?:0|no) (?:errors?|fail(?:ed|ures?)|exceptions?)\b"
    r"|\b(?:errors?|fail(?:ed|ures?))\s*[:=]\s*0(?=\s*(?:$|[,;.)\]]|\w+\s*[:=]))"
    r"|-W(?:no-)?error|\b(?:errors?|exceptions?|failures?)[-_./](?!error:)\w|[-_./](?:errors?|exceptions?|failures?)\b(?!:)"
    r"|\bfail[-_]?fast\b|\bon[-_]?error\b"
    r"|\b(?:error|exception|failure)s?[- ](?:messages?|handl(?:er|ers|ing)|codes|types?|class(?:es)?|cases?|paths?"
    r"|pages?|reports?|reporting|logs?|logging|strings?|checks?|checking|recovery|tracking|boundar(?:y|ies))\b(?!\s*[:=\d])"
    r"|\b(?:fix(?:e[sd])?|handles?|add(?:s|ed)?|improve[sd]?|docs?|messages?|tests?|support) (?:[a-z]+ )?"
    r"(?:for|of|on|about) (?:an? |the )?(?:[a-z]+ )?(?:error|exception|failure)s?\b",
    re.IGNORECASE,
)
"""What names failures without being one: tests that passed, counts of none, names of files and options, and prose."""


class _Candidates:
    """The places of a text in which a line may look like a failure, in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lowered = text.replace("\u0130", "I").lower()  # the one letter whose lower case is longer
        self._places = {word: self._lowered.find(word) for word in _KEYWORDS}
        self._place = _PLACE.search(text)

    def following(self, start: int) -> int:
        """The first one from a position on, or -1. Positions only grow."""
        for word in [word for word, at in self._places.items() if 0 <= at < start]:
            self._places[word] = self._lowered.find(word, start)
        if self._place is not None and self._place.start() < start:
            self._place = _PLACE.search(self._text, start)
        positions = [at for at in self._places.values() if at >= 0]
        return min([*positions, self._place.start()] if self._place is not None else positions, default=-1)


def find_failures(text: str, deadline: float = math.inf) -> Iterator[int]:
    """Yield the position of each line that looks like a failure, until the deadline (monotonic)."""
    end = 0 if time.monotonic() < deadline else -1
    candidates = _Candidates(text if end == 0 else "")
    while end >= 0 and (position := candidates.following(end)) >= 0 and time.monotonic() < deadline:
        begin = text.rfind("\n", 0, position + 1) + 1
        end = text.find("\n", begin)
        line = text[begin : end if end >= 0 else len(text)]
        if _SIGNS.search(line) and _SIGNS.search(_HARMLESS.sub(" ", line)):
            yield begin
