"""Redact credentials: always in the log, and in the output of commands if the operator wants it. Pure.

Each one is replaced by `[redacted:KIND]`. There are three passes: values that are known to be secret, formats of tokens
(`patterns`), and values after the names of credentials (`names`). Only a private key spans lines, so a stream can be
redacted line by line (`StreamRedactor`). This is a precaution, not a security boundary: whoever can run a program can
make it print a secret backwards.
"""

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

from coretools.redaction.names import find_assignments, is_credential_name
from coretools.redaction.patterns import Span, compiled, find_credentials, find_open_key, merge_overlapping
from coretools.truncation import Excerpt

MIN_VALUE_CHARACTERS = 8
"""Characters; a shorter value would occur in ordinary words."""

MAX_VALUE_CHARACTERS = 1024
"""Characters of a value that are searched for; a longer one is split into pieces."""

MAX_VALUES = 500
"""Known values that are searched for; the others are left to the other passes."""

MAX_TRIMMED = 4096
"""Bytes dropped on each side of a gap if no line begins there."""

BREAKS = " \t:>$#?"
"""An unfinished line may be shown up to one of these: the end of a word, or of a prompt."""

_MARK = r"\[redacted:[a-z-]{1,24}\]"
_FILLER = "\0"
"""Replaces text that is already redacted: no expression matches across it, so a second pass finds nothing new."""

_ESCAPES = r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)|[()][0-9A-B])"
"""Colours, titles and character sets (ECMA-48 parts 5.4 and 5.6): they occur next to a token, or inside it."""

_ADDRESS = r"://[^\s/:@]{0,256}:([^\s/]{1,512})@"


class Redactor:
    """Redacts what looks like a credential, and each of `values` in its usual encodings."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        # A value that is only the name of a credential ("password") would hide names that the other passes need.
        telling = [value for value in values if not (value.isalpha() and is_credential_name(value))]
        spellings = {spelling for value in telling[:MAX_VALUES] for spelling in _spellings(value)}
        # The longest first: a value may begin with another one, and the rest of it must not stay.
        self._in_text = sorted(spellings, key=len, reverse=True)
        self._in_bytes = [_as_bytes(spelling) for spelling in self._in_text]
        self._broken = [spelling for spelling in self._in_bytes if set(spelling) & set(BREAKS)]

    def text(self, text: str) -> str:
        """The text with every credential replaced."""
        return replace_spans(text, self.spans(text, self._in_text))

    def data(self, data: bytes) -> bytes:
        """The same for bytes in any encoding that writes ASCII as ASCII."""
        text = data.decode("latin-1")
        return replace_spans(text, self.byte_spans(text)).encode("latin-1")

    def byte_spans(self, text: str) -> list[Span]:
        """The credentials in bytes that were decoded as Latin-1; sorted and disjoint."""
        return self.spans(text, self._in_bytes)

    def value_start(self, text: str, end: int) -> int:
        """Where a value begins that may continue behind `end`, a break; `end` if none does. In decoded bytes."""
        starts = (
            end - length
            for spelling in self._broken
            for length in range(min(len(spelling) - 1, end), 0, -1)
            if text.endswith(spelling[:length], 0, end)
        )
        return min(starts, default=end)

    def spans(self, text: str, spellings: Iterable[str]) -> list[Span]:
        """The credentials, including those of `spellings`; sorted and disjoint."""
        if "\x1b" in text:
            bare, cuts = _without_escapes(text)
            return [_restore_offsets(span, cuts) for span in self.spans(bare, spellings)]
        found = [Span(*match.span(), "") for match in compiled(_MARK).finditer(text)] if "[redacted:" in text else []
        text = _blank_out(text, found)
        values = merge_overlapping(list(_occurrences(text, spellings)))
        # Blanked out before the next pass, so that no two spans overlap; offsets stay.
        text = _blank_out(text, values)
        known = find_credentials(text)
        named = find_assignments(_blank_out(text, known))
        return sorted([*values, *known, *named])


def replace_spans(text: str, spans: Iterable[Span]) -> str:
    """The text with each span replaced by a marker."""
    pieces, at = [], 0
    for start, end, kind in spans:
        pieces += [text[at:start], f"[redacted:{kind}]"]
        at = end
    return "".join([*pieces, text[at:]])


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """Values that are secret by the name of their variable, and passwords in URLs of any variable."""
    values = []
    for name, value in environment.items():
        # The path of a credential file is not a secret, and messages need it.
        if is_credential_name(name) and not ("credential" in name.lower() and value.startswith(("/", "~"))):
            values.append(value)
        if "://" in value:
            values += [match[1] for match in compiled(_ADDRESS).finditer(value[: 64 * 1024])]
    return values


def drop_partial_lines(excerpt: Excerpt) -> Excerpt:
    """The excerpt without lines that its gap has cut: half a token cannot be told from a word."""
    if not excerpt.dropped_bytes:
        return excerpt
    head = excerpt.head[: _last_break(excerpt.head)]
    first = excerpt.tail.find(b"\n", 0, MAX_TRIMMED)
    tail = excerpt.tail[first + 1 if first >= 0 else MAX_TRIMMED :]
    dropped = excerpt.total_bytes - len(head) - len(tail)
    return Excerpt(head, tail, dropped)


def _last_break(head: bytes) -> int:
    floor = max(0, len(head) - MAX_TRIMMED)
    return head.rfind(b"\n", floor) + 1 or floor


def _blank_out(text: str, spans: Iterable[Span]) -> str:
    """The text with its spans overwritten, all other characters unchanged."""
    pieces, at = [], 0
    for start, end, _ in spans:
        pieces += [text[at:start], _FILLER * (end - start)]
        at = end
    return "".join([*pieces, text[at:]]) if at else text


def _without_escapes(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without escape sequences, and the offset to add from each removed one on."""
    pieces, cuts, at, missing = [], [], 0, 0
    for match in compiled(_ESCAPES).finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        missing += at - match.start()
        cuts.append((at - missing, missing))
    # An unrecognised escape must not cause another round.
    return "".join([*pieces, text[at:]]).replace("\x1b", _FILLER), cuts


def _restore_offsets(span: Span, cuts: list[tuple[int, int]]) -> Span:
    """The span in the original text, with its escape sequences."""
    most = cuts[-1][1] if cuts else 0
    first, last = (bisect_right(cuts, (at, most)) - 1 for at in (span.start, span.end - 1))
    start = span.start + (cuts[first][1] if first >= 0 else 0)
    return Span(start, span.end + (cuts[last][1] if last >= 0 else 0), span.kind)


def _occurrences(text: str, spellings: Iterable[str]) -> Iterator[Span]:
    for spelling in spellings:
        at = text.find(spelling)
        while at >= 0:
            yield Span(at, at + len(spelling), "environment")
            at = text.find(spelling, at + len(spelling))


def _as_bytes(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _spellings(value: str) -> Iterator[str]:
    """The value, and its usual encodings; for several lines, those of each long line."""
    value = value.strip()
    lines = [line.strip() for line in value.splitlines()]
    wholes = [value] if len(lines) < 2 else [line for line in lines if len(line) >= 2 * MIN_VALUE_CHARACTERS]
    for whole in {*wholes, *map(unquote, wholes)}:
        for at in range(0, len(whole), MAX_VALUE_CHARACTERS):
            yield from _long(
                _forms(whole[at : at + MAX_VALUE_CHARACTERS]) if len(whole) >= MIN_VALUE_CHARACTERS else ()
            )


def _long(forms: Iterable[str]) -> Iterator[str]:
    return (form for form in forms if len(form) >= MIN_VALUE_CHARACTERS)


def _forms(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "surrogateescape")
    yield value
    yield quote(raw, safe="")
    yield quote(raw)
    yield quote_plus(raw)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    for before in range(3):
        # Inside a longer text base64 has three forms; characters shared with neighbouring bytes are left out.
        encoded = base64.b64encode(b"\0" * before + raw)
        first = (0, 2, 3)[before]
        core = encoded[first : (before + len(raw)) * 8 // 6]
        yield core.decode()
        yield core.translate(bytes.maketrans(b"+/", b"-_")).decode()


# Redaction of a stream: a credential that is split between two pieces is found too. Complete text is passed on at once.
# Held back are an unfinished word, a line that may belong to a private key, and at most `MAX_HELD_BYTES` bytes.

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
        inside = [_moved(span, start) for span in spans if start <= span.start and span.end <= upto]
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


def _moved(span: Span, by: int) -> Span:
    return Span(span.start - by, span.end - by, span.kind)


def _last_line_end(text: str) -> int:
    """The end of the last line break; a trailing carriage return may be the first half of one."""
    feed = text.rfind("\n") + 1
    back = text.rfind("\r", feed, len(text) - 1) + 1
    return max(feed, back)
