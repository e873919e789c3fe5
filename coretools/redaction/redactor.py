"""Texts without the credentials in them: for the log always, for what commands print when the operator wants it.

Pure. What is found is replaced by `[redacted:KIND]`. Three looks: values that are known to be secret, shapes that
issuers give their tokens (`secret_shapes`), and values behind telling names (`secret_names`). Nothing crosses a line
but a private key, so a text may be treated line by line (`redact_stream`). This is care, not a wall: who can run a
program can also make it print a secret backwards.
"""

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

from coretools.excerpt import Excerpt
from coretools.redaction.names import find_assignments, is_credential_name
from coretools.redaction.patterns import Span, compiled, find_credentials, find_open_key, merge_overlapping

SHORTEST_VALUE = 8
"""Characters; a shorter value would be found in half of all words."""

LONGEST_VALUE = 1024
"""Characters of a value that are looked for at once; a longer one is looked for in pieces."""

MOST_VALUES = 500
"""Values that are looked for; the rest is left to the other looks."""

MOST_TRIMMED = 4096
"""Bytes that are given up on each side of a gap when no line begins there."""

BREAKS = " \t:>$#?"
"""Where an unfinished line may be shown up to: behind a word, or behind a prompt."""

_MARK = r"\[redacted:[a-z-]{1,24}\]"
_FILLER = "\0"
"""Stands for what is replaced already: no expression goes across it, so that a second pass finds nothing new."""

_ESCAPES = r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)|[()][0-9A-B])"
"""Colours, titles and character sets (ECMA-48 parts 5.4 and 5.6): they stand next to a token, or inside it."""

_ADDRESS = r"://[^\s/:@]{0,256}:([^\s/]{1,512})@"


class Redactor:
    """Replaces what looks like a credential, and every one of `values` in its usual spellings."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        # A value that is but a name for what it should be ("password") would hide the names that other looks need.
        telling = [value for value in values if not (value.isalpha() and is_credential_name(value))]
        spellings = {spelling for value in telling[:MOST_VALUES] for spelling in _spellings(value)}
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
        """Where the credentials stand in bytes that were decoded as Latin-1; sorted, none over another."""
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
        """Where the credentials stand, those of `spellings` among them; sorted, none over another."""
        if "\x1b" in text:
            bare, cuts = _without_escapes(text)
            return [_restore_offsets(span, cuts) for span in self.spans(bare, spellings)]
        found = [Span(*match.span(), "") for match in compiled(_MARK).finditer(text)] if "[redacted:" in text else []
        text = _blank_out(text, found)
        values = merge_overlapping(list(_occurrences(text, spellings)))
        text = _blank_out(text, values)
        known = find_credentials(text)
        named = find_assignments(_blank_out(text, known))
        return sorted([*values, *known, *named])


def replace_spans(text: str, spans: Iterable[Span]) -> str:
    """The text with a mark in the place of each span."""
    pieces, at = [], 0
    for start, end, kind in spans:
        pieces += [text[at:start], f"[redacted:{kind}]"]
        at = end
    return "".join([*pieces, text[at:]])


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values that are secret by the name of their variable, and the passwords in addresses of any variable."""
    values = []
    for name, value in environment.items():
        # A path to a file of credentials is no secret, and would be missed in every message.
        if is_credential_name(name) and not ("credential" in name.lower() and value.startswith(("/", "~"))):
            values.append(value)
        if "://" in value:
            values += [match[1] for match in compiled(_ADDRESS).finditer(value[: 64 * 1024])]
    return values


def drop_partial_lines(excerpt: Excerpt) -> Excerpt:
    """The excerpt without the lines that its gap has cut: half a token can't be told from a word."""
    if not excerpt.dropped_bytes:
        return excerpt
    head = excerpt.head[: _last_break(excerpt.head)]
    first = excerpt.tail.find(b"\n", 0, MOST_TRIMMED)
    tail = excerpt.tail[first + 1 if first >= 0 else MOST_TRIMMED :]
    dropped = excerpt.total_bytes - len(head) - len(tail)
    return Excerpt(head, tail, dropped)


def _last_break(head: bytes) -> int:
    floor = max(0, len(head) - MOST_TRIMMED)
    return head.rfind(b"\n", floor) + 1 or floor


def _blank_out(text: str, spans: Iterable[Span]) -> str:
    """The text with its spans filled, every other character in its place."""
    pieces, at = [], 0
    for start, end, _ in spans:
        pieces += [text[at:start], _FILLER * (end - start)]
        at = end
    return "".join([*pieces, text[at:]]) if at else text


def _without_escapes(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without colours and the like, and how much is missing from each place on that lost something."""
    pieces, cuts, at, missing = [], [], 0, 0
    for match in compiled(_ESCAPES).finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        missing += at - match.start()
        cuts.append((at - missing, missing))
    # An escape that no expression takes for one must not bring us back here.
    return "".join([*pieces, text[at:]]).replace("\x1b", _FILLER), cuts


def _restore_offsets(span: Span, cuts: list[tuple[int, int]]) -> Span:
    """The same span in the text with its escape sequences."""
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
    """A value as it is, and as programs write it; of several lines, each long one for itself."""
    value = value.strip()
    lines = [line.strip() for line in value.splitlines()]
    wholes = [value] if len(lines) < 2 else [line for line in lines if len(line) >= 2 * SHORTEST_VALUE]
    for whole in {*wholes, *map(unquote, wholes)}:
        for at in range(0, len(whole), LONGEST_VALUE):
            yield from _long(_forms(whole[at : at + LONGEST_VALUE]) if len(whole) >= SHORTEST_VALUE else ())


def _long(forms: Iterable[str]) -> Iterator[str]:
    return (form for form in forms if len(form) >= SHORTEST_VALUE)


def _forms(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "surrogateescape")
    yield value
    yield quote(raw, safe="")
    yield quote(raw)
    yield quote_plus(raw)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    for before in range(3):
        # In the middle of a longer text base64 has three forms; what the neighbours have a part in is left out.
        encoded = base64.b64encode(b"\0" * before + raw)
        first = (0, 2, 3)[before]
        core = encoded[first : (before + len(raw)) * 8 // 6]
        yield core.decode()
        yield core.translate(bytes.maketrans(b"+/", b"-_")).decode()


# Output that comes in pieces, without the credentials in it: none gets through because two pieces share it.
#
# What is complete goes on at once. Held back are the word that is being written, a line that may belong to a private
# key, and no more than `MOST_HELD` bytes of anything.


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
        return replace_spans(self._buffer[start:upto], inside)

    def _lines(self) -> str:
        """Give on the complete lines, but for those that a private key may go on from."""
        border = _last_line_end(self._buffer)
        if border <= self._shown:
            return ""
        lines, rest = self._buffer[:border], self._buffer[border:]
        key = find_open_key(lines)
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
        upto = self._redactor.value_start(self._buffer, upto)
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


def _last_line_end(text: str) -> int:
    """Behind the last line break; a carriage return at the very end may be the first half of one."""
    feed = text.rfind("\n") + 1
    back = text.rfind("\r", feed, len(text) - 1) + 1
    return max(feed, back)
