"""Redact a stream: a credential that is split between two pieces is found too. Complete text is passed on at once.

Held back are an unfinished word, a line that may belong to a private key, and at most `MAX_HELD_BYTES` bytes.
"""

import re

from coretools.redaction.private_keys import find_open_key
from coretools.redaction.redactor import BREAKS, Redactor, replace_spans
from coretools.redaction.spans import Span

MAX_HELD_BYTES = 16 * 1024
"""Bytes held back at most; a longer line is passed on in parts, a longer credential is dropped up to its line's end."""

RECOGNISED = 4096
"""Bytes from its beginning within which every credential is recognised."""

CONTEXT = 256
"""Bytes of an unfinished line that are kept after they were passed on: the name before a value."""

_BLANKS = " \t"

_PROMPT = re.compile(r"[A-Za-z'()-]{0,30}[:>$#?]{1,3}")
"""The last word of a prompt without a blank after it: no credential begins so, and a user may wait for it."""


class StreamRedactor:
    """Redacts the output of one stream of one program, piece by piece."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._buffer = ""
        """Text from the last line break on, or from the start of a private key. Latin-1: one character per byte."""
        self._passed_on = 0
        """Characters of the buffer that were already passed on."""
        self._in_key = False
        self._is_skipping = False
        """Inside a credential that is too long to hold back."""

    def feed(self, data: bytes) -> bytes:
        """Add the next piece and return what can be shown now."""
        text = self._after_long_credential(data.decode("latin-1"))
        self._buffer += text
        out = self._pass_on_lines()
        if not self._in_key:
            if any(mark in text for mark in BREAKS):
                out += self._pass_on_words()
            if len(self._buffer) - self._passed_on > MAX_HELD_BYTES:
                out += self._pass_on_excess()
        return out.encode("latin-1")

    def end(self) -> bytes:
        """Return the rest at the end of the output."""
        out = self._pass_on(len(self._buffer), self._spans())
        self._buffer, self._passed_on, self._in_key = "", 0, False
        return out.encode("latin-1")

    def _after_long_credential(self, text: str) -> str:
        """The text after a credential that was too long to hold back."""
        if not self._is_skipping:
            return text
        # A credential ends at a line break or a quote.
        ends = [at for at in map(text.find, "\n\r\"'") if at >= 0]
        self._is_skipping = not ends
        return text[min(ends) :] if ends else ""

    def _spans(self) -> list[Span]:
        return self._redactor.byte_spans(self._buffer)

    def _pass_on(self, upto: int, spans: list[Span]) -> str:
        """Pass on the buffer up to `upto`, redacted. No span may cross either end."""
        start = self._passed_on
        self._passed_on = max(start, upto)
        inside = [
            Span(span.start - start, span.end - start, span.kind)
            for span in spans
            if start <= span.start and span.end <= upto
        ]
        return replace_spans(self._buffer[start:upto], inside)

    def _pass_on_lines(self) -> str:
        """Pass on complete lines, except those that a private key may continue from."""
        border = _last_line_end(self._buffer)
        if border <= self._passed_on:
            return ""
        lines, rest = self._buffer[:border], self._buffer[border:]
        key = find_open_key(lines)
        upto = max(key.start, self._passed_on) if key else border
        spans = self._redactor.byte_spans(lines)
        out = self._pass_on(upto, [span for span in spans if span.end <= upto])
        self._buffer = (key.kept if key else "") + rest
        self._passed_on, self._in_key = 0, key is not None
        if self._in_key and len(self._buffer) > 2 * MAX_HELD_BYTES:
            out += self._pass_on_excess()
        return out

    def _pass_on_words(self) -> str:
        """Pass on words of an unfinished line that no later text can turn into a credential."""
        upto = max(self._passed_on, *(self._buffer.rfind(blank) + 1 for blank in _BLANKS))
        if _PROMPT.fullmatch(self._buffer, upto):
            upto = len(self._buffer)
        # May be the beginning of a private key, which is recognised by its first line.
        dashes = self._buffer.find("-----", self._passed_on)
        if dashes >= 0:
            upto = min(upto, dashes)
        upto = self._redactor.value_start(self._buffer, upto)
        if upto <= self._passed_on:
            return ""
        spans = self._spans()
        upto = min([upto, *(span.start for span in spans if span.end > upto or span.end == len(self._buffer))])
        if upto <= self._passed_on:
            return ""
        out = self._pass_on(upto, spans)
        self._forget()
        return out

    def _forget(self) -> None:
        """Drop the part of a long line that was passed on, except the last words before the rest."""
        if self._passed_on > 2 * CONTEXT:
            blanks = (self._buffer.find(blank, self._passed_on - CONTEXT) for blank in _BLANKS)
            cut = min(at for at in (self._passed_on, *blanks) if at >= 0)
            self._buffer, self._passed_on = self._buffer[cut:], self._passed_on - cut

    def _pass_on_excess(self) -> str:
        """Pass on a part of what is too long to hold back, except what is needed to recognise a credential."""
        spans = self._spans()
        last = spans[-1] if spans else None
        if last is not None and last.end == len(self._buffer) and last.end - last.start > RECOGNISED:
            out = self._pass_on(last.end, spans)
            self._buffer, self._passed_on, self._in_key, self._is_skipping = "", 0, False, True
            return out
        upto = len(self._buffer) - RECOGNISED
        upto = min([upto, *(span.start for span in spans if span.start < upto < span.end)])
        out = self._pass_on(max(upto, self._passed_on), spans)
        self._buffer, self._passed_on, self._in_key = self._buffer[self._passed_on :], 0, False
        return out


def _last_line_end(text: str) -> int:
    """The end of the last line break; a trailing carriage return may be the first half of one."""
    feed = text.rfind("\n") + 1
    back = text.rfind("\r", feed, len(text) - 1) + 1
    return max(feed, back)
