"""Output that comes in pieces, without the credentials in it: none gets through because two pieces share it.

What is complete goes on at once. Held back are the word that is being written, a line that may belong to a private key,
and no more than `MOST_HELD` bytes of anything.
"""

import re

from coretools.redact import BREAKS, Redactor, replaced
from coretools.secret_shapes import Span, open_key

MOST_HELD = 16 * 1024
"""Bytes held back at most; a longer line goes on in parts, a longer credential is left out to its line's end."""

RECOGNISED = 4096
"""Bytes within which every credential can be told as one, from its first byte on."""

CONTEXT = 256
"""Bytes of an unfinished line that are kept after they were given on: the name in front of a value."""

_BLANKS = " \t"
_PROMPT = re.compile(r"[A-Za-z'()-]{0,30}[:>$#?]{1,3}")
"""The last word of a question without a blank after it: no credential begins so, and somebody may wait for it."""


class StreamRedactor:
    """Takes an output piece by piece and gives back what is safe to show. For one stream of one program."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._buffer = ""
        """From the last line break on, or from the start of a private key. Latin-1: a character is a byte."""
        self._shown = 0
        """Characters of the buffer that were given on already."""
        self._in_key = False
        self._is_skipping = False
        """Inside a credential that is longer than what may be held."""

    def feed(self, data: bytes) -> bytes:
        """Take the next piece; what can be shown now."""
        text = self._skipped(data.decode("latin-1"))
        self._buffer += text
        out = self._lines()
        if not self._in_key:
            if any(mark in text for mark in BREAKS):
                out += self._words()
            if len(self._buffer) - self._shown > MOST_HELD:
                out += self._excess()
        return out.encode("latin-1")

    def end(self) -> bytes:
        """What was held back, at the end of the output."""
        out = self._give(len(self._buffer), self._spans())
        self._buffer, self._shown, self._in_key = "", 0, False
        return out.encode("latin-1")

    def _skipped(self, text: str) -> str:
        """The text from where a credential ends that was too long to hold."""
        if not self._is_skipping:
            return text
        ends = [at for at in map(text.find, "\n\r\"'") if at >= 0]
        self._is_skipping = not ends
        return text[min(ends) :] if ends else ""

    def _spans(self) -> list[Span]:
        return self._redactor.byte_spans(self._buffer)

    def _give(self, upto: int, spans: list[Span]) -> str:
        """The buffer from what was shown up to there, redacted. No span may lie across either end."""
        start = self._shown
        self._shown = max(start, upto)
        inside = [_moved(span, start) for span in spans if start <= span.start and span.end <= upto]
        return replaced(self._buffer[start:upto], inside)

    def _lines(self) -> str:
        """Give on the complete lines, but for those that a private key may go on from."""
        border = _last_break(self._buffer)
        if border <= self._shown:
            return ""
        lines, rest = self._buffer[:border], self._buffer[border:]
        key = open_key(lines)
        upto = max(key.start, self._shown) if key else border
        spans = self._redactor.byte_spans(lines)
        out = self._give(upto, [span for span in spans if span.end <= upto])
        self._buffer = (key.kept if key else "") + rest
        self._shown, self._in_key = 0, key is not None
        if self._in_key and len(self._buffer) > 2 * MOST_HELD:
            out += self._excess()
        return out

    def _words(self) -> str:
        """Give on the words of an unfinished line that nothing after them can turn into a credential."""
        upto = max(self._shown, *(self._buffer.rfind(blank) + 1 for blank in _BLANKS))
        if _PROMPT.fullmatch(self._buffer, upto):
            upto = len(self._buffer)
        dashes = self._buffer.find("-----", self._shown)
        if dashes >= 0:
            upto = min(upto, dashes)
        upto = self._redactor.begun(self._buffer, upto)
        if upto <= self._shown:
            return ""
        spans = self._spans()
        upto = min([upto, *(span.start for span in spans if span.end > upto or span.end == len(self._buffer))])
        if upto <= self._shown:
            return ""
        out = self._give(upto, spans)
        self._forget()
        return out

    def _forget(self) -> None:
        """Drop what was shown of a long line, but for the words next to what comes."""
        if self._shown > 2 * CONTEXT:
            blanks = (self._buffer.find(blank, self._shown - CONTEXT) for blank in _BLANKS)
            cut = min(at for at in (self._shown, *blanks) if at >= 0)
            self._buffer, self._shown = self._buffer[cut:], self._shown - cut

    def _excess(self) -> str:
        """Give on a part of what is too much to hold: all but what a credential may be told from."""
        spans = self._spans()
        last = spans[-1] if spans else None
        if last is not None and last.end == len(self._buffer) and last.end - last.start > RECOGNISED:
            out = self._give(last.end, spans)
            self._buffer, self._shown, self._in_key, self._is_skipping = "", 0, False, True
            return out
        upto = len(self._buffer) - RECOGNISED
        upto = min([upto, *(span.start for span in spans if span.start < upto < span.end)])
        out = self._give(max(upto, self._shown), spans)
        self._buffer, self._shown, self._in_key = self._buffer[self._shown :], 0, False
        return out


def _moved(span: Span, by: int) -> Span:
    return Span(span.start - by, span.end - by, span.kind)


def _last_break(text: str) -> int:
    """Behind the last line break; a carriage return at the very end may be the first half of one."""
    feed = text.rfind("\n") + 1
    back = text.rfind("\r", feed, len(text) - 1) + 1
    return max(feed, back)
