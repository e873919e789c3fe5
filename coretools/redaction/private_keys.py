"""Find private keys in PEM (RFC 7468) or OpenPGP armor, whole or in part: the one kind of credential that spans lines.

Repeats are possessive or bounded, so the work is linear in the length of the text (see `patterns`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from coretools.redaction.spans import Span, compiled

_BASE64 = "[A-Za-z0-9+/=]"
_EDGE = r"[ \t>|\"'+#*]{0,20}+"
_TAIL = r"(?>(?:\\[nr]|[\\\"',;+ \t]){0,12})\r?"
_NAME = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_LINE = rf"{_EDGE}{_BASE64}{{16,}}+{_TAIL}(?:\n|\Z)"
_KEY = (
    rf"(?P<begin>-----BEGIN {_NAME})"
    rf"(?:(?P<inline>(?>(?:\\[nrt]|{_BASE64}++)+))"
    rf"|{_TAIL}\n(?>(?:[A-Za-z]{{1,12}}(?:-[A-Za-z]{{1,12}})?: [^\n]{{0,200}}\n)*)(?:[ \t]*+\r?\n)?"
    rf"(?P<first>{_LINE})?(?>(?:{_LINE})*)"
    rf"(?P<short>{_EDGE}{_BASE64}{{1,80}}+{_TAIL}\n?(?={_EDGE}-----END|\Z))?)?"
    rf"(?P<end>{_EDGE}-----END {_NAME})?"
)
"""A private key in PEM (RFC 7468) or OpenPGP armor, complete or without its end, also as a literal in code or JSON."""

_LONG_LINE = rf"{_EDGE}{_BASE64}{{60,}}+{_TAIL}\n"
_ANY_LINE = rf"{_EDGE}{_BASE64}{{1,}}+{_TAIL}\n"
_END = rf"-----END {_NAME}"
_EDGES = " \t>|\"'+#*"
_BODY = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\"

MAX_BEFORE_END = 16 * 1024
"""Characters examined before the end of a private key whose beginning is missing."""


def find_private_keys(text: str) -> Iterator[Span]:
    """Every private key in the text, in PEM or OpenPGP armor."""
    floor = 0
    for match in compiled(rf"{_KEY}|(?P<lone>{_END})").finditer(text):
        if match["lone"]:
            start = _body_before(text, match.start(), max(floor, match.start() - MAX_BEFORE_END))
            if start < match.start():
                yield Span(start, match.end(), "private-key")
        elif match["first"] or match["end"] or len(match["inline"] or "") >= 16:
            end = match.end()
            while text[end - 1] in "\r\n":  # keep the line break after it
                end -= 1
            yield Span(match.start(), end, "private-key")
        # The body before a lone end never reaches into the key before it.
        floor = match.end()


def _body_before(text: str, at: int, floor: int) -> int:
    """Where the body of a key begins whose end marker is at `at`, or `at`."""
    line = text.rfind("\n", floor, at) + 1 or floor
    before = text[line:at].rstrip(_BODY)
    if before.strip(_EDGES):
        inline = line + len(before)
        return inline if at - inline >= 16 else at
    start = _long_lines_before(text, line, floor)
    return start + len(text[start:at]) - len(text[start:at].lstrip(_EDGES)) if start < line else at


def _long_lines_before(text: str, end: int, floor: int) -> int:
    """Where a run of long base64 lines begins that ends at `end`, the last line possibly short; or `end`."""
    start = line = end
    while line > floor:
        above = text.rfind("\n", floor, line - 1) + 1 or floor
        if compiled(_LONG_LINE).fullmatch(text, above, line):
            start = above
        elif line != end or not compiled(_ANY_LINE).fullmatch(text, above, line):
            break
        line = above
    return start


class OpenKey(NamedTuple):
    """A private key that may continue after the end of a text: where it begins, and the part that must be kept."""

    start: int
    kept: str


def find_open_key(lines: str) -> OpenKey | None:
    """A possible private key that the next lines may continue; `lines` ends with a line break."""
    last = None
    at = lines.rfind("-----BEGIN ")
    if at >= 0:
        last = compiled(_KEY).match(lines, at)
    if last and last.end() == len(lines) and not last["end"]:
        # Without a first line of base64 it may still turn out not to be a key; then all of it is shown.
        kept = f"{last['begin']}\n{last['first']}{last['short'] or ''}" if last["first"] else lines[at:]
        return OpenKey(at, kept)
    start = _long_lines_before(lines, len(lines), max(0, len(lines) - MAX_BEFORE_END))
    return OpenKey(start, lines[start:]) if start < len(lines) else None
