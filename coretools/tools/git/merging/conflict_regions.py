"""The regions in conflict of a file: what git wrote between its markers, and the file with other texts in their place.

Pure. A line of the file itself may look like a marker; then no regions are given, since none could be relied on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MARKER = 7
"""Characters of a marker (gitattributes(5), `conflict-marker-size`)."""

_OURS, _BASE, _MIDDLE, _THEIRS = (sign * MARKER for sign in (b"<", b"|", b"=", b">"))


@dataclass(frozen=True, slots=True)
class Region:
    """One region, with its lines as in the file, markers included, counted from 1."""

    first: int
    last: int
    texts: Mapping[str, bytes]
    """`ours` and `theirs`, and `base` if git wrote it (`merge.conflictStyle`)."""

    def text(self, side: str) -> bytes | None:
        """The text of a side, or of both one after the other; None if it is not there."""
        if side == "both":
            return self.texts["ours"] + self.texts["theirs"]
        return self.texts.get(side)


def read_regions(data: bytes) -> list[Region]:
    """Return the regions of a file; none if there are none, or if a line of the file may be taken for a marker."""
    regions: list[Region] = []
    texts: dict[str, list[bytes]] = {}
    side, first = "", 0
    following = {"": {_OURS: "ours"}, "ours": {_BASE: "base", _MIDDLE: "theirs"}, "base": {_MIDDLE: "theirs"}}
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        kind = _kind(line, is_inside=bool(side))
        if not kind:
            texts.setdefault(side, []).append(line)
            continue
        if side == "theirs" and kind == _THEIRS:
            regions.append(Region(first, number, {name: b"".join(lines) for name, lines in texts.items()}))
            side = ""
            continue
        then = following.get(side, {}).get(kind)
        if then is None:
            return []
        if not side:
            texts, first = {}, number
        side = then
        texts[side] = []
    return [] if side else regions


def _kind(line: bytes, *, is_inside: bool) -> bytes:
    """Return which marker a line is, or b"". Outside of a region only the one that begins it is one."""
    start, rest = line[:MARKER], line[MARKER:]
    if not is_inside and start != _OURS:
        return b""
    if start == _MIDDLE:
        return start if rest in (b"\n", b"\r\n", b"") else b""
    return start if start in (_OURS, _BASE, _THEIRS) and rest[:1] in (b" ", b"\n", b"\r", b"") else b""


def with_texts(data: bytes, regions: Sequence[Region], texts: Sequence[bytes]) -> bytes:
    """Return the file with these texts in place of its regions."""
    lines = data.splitlines(keepends=True)
    parts: list[bytes] = []
    at = 0
    for region, text in zip(regions, texts, strict=True):
        parts += lines[at : region.first - 1]
        parts.append(text)
        at = region.last
    return b"".join([*parts, *lines[at:]])
