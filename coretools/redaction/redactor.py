"""Redact credentials: always in the log, and in the output of commands if the operator wants it. Pure.

Each one is replaced by `[redacted:KIND]`. There are three passes: values that are known to be secret, formats of tokens
(`patterns`), and values after the names of credentials (`names`). Only a private key spans lines, so a stream can be
redacted line by line (`StreamRedactor`). This is a precaution, not a security boundary: whoever can run a program can
make it print a secret backwards.
"""

import base64
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

from coretools.redaction.names import find_assignments, is_credential_name
from coretools.redaction.patterns import find_credentials
from coretools.redaction.spans import Span, compiled, merge_overlapping, overwritten, replaced
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
        self._in_bytes = [text.encode("utf-8", "surrogateescape").decode("latin-1") for text in self._in_text]
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
        marked = [Span(*match.span(), "") for match in compiled(_MARK).finditer(text)] if "[redacted:" in text else []
        text = overwritten(text, marked, _FILLER)
        values = merge_overlapping(list(_occurrences(text, spellings)))
        # Blanked out before the next pass, so that no two spans overlap; offsets stay.
        text = overwritten(text, values, _FILLER)
        known = find_credentials(text)
        named = find_assignments(overwritten(text, known, _FILLER))
        return sorted([*values, *known, *named])


def replace_spans(text: str, spans: Iterable[Span]) -> str:
    """The text with each span replaced by a marker."""
    return replaced(text, spans, lambda span: f"[redacted:{span.kind}]")


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
    floor = max(0, len(excerpt.head) - MAX_TRIMMED)
    head = excerpt.head[: excerpt.head.rfind(b"\n", floor) + 1 or floor]
    first = excerpt.tail.find(b"\n", 0, MAX_TRIMMED)
    tail = excerpt.tail[first + 1 if first >= 0 else MAX_TRIMMED :]
    dropped = excerpt.total_bytes - len(head) - len(tail)
    return Excerpt(head, tail, dropped)


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


def _spellings(value: str) -> Iterator[str]:
    """The value, and its usual encodings; for several lines, those of each long line."""
    value = value.strip()
    lines = [line.strip() for line in value.splitlines()]
    wholes = [value] if len(lines) < 2 else [line for line in lines if len(line) >= 2 * MIN_VALUE_CHARACTERS]
    for whole in {*wholes, *map(unquote, wholes)}:
        if len(whole) >= MIN_VALUE_CHARACTERS:
            for at in range(0, len(whole), MAX_VALUE_CHARACTERS):
                forms = _forms(whole[at : at + MAX_VALUE_CHARACTERS])
                yield from (form for form in forms if len(form) >= MIN_VALUE_CHARACTERS)


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
