"""Choose hunks or lines of a file's patch, and write the patch of what was chosen.

Pure. A choice is a number (`2`), numbers (`1-3`), an id (`3f2a91c0`), both (`2:3f2a91c0`), or lines: `+5-9` are added
lines by their number in the new file, `-3` removed ones by that in the old file.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coretools.errors import Conflict, GitRefused, InvalidArguments
from coretools.tools.git.repository.patches import FilePatch, Hunk
from coretools.tools.git.repository.porcelain import quoted

_NUMBERS = re.compile(r"(?P<first>[1-9][0-9]{0,6})(?:-(?P<last>[1-9][0-9]{0,6}))?(?::(?P<id>[0-9a-f]{8}))?")
_ID = re.compile(r"[0-9a-f]{8}")
_LINES = re.compile(r"(?P<sign>[+-])(?P<first>[1-9][0-9]{0,8})(?:-(?P<last>[1-9][0-9]{0,8}))?")

_HOW = "choose hunks by number ('2', '1-3'), id ('3f2a91c0', '2:3f2a91c0') or lines ('+5-9' added, '-3' removed)"


@dataclass(slots=True)
class _Chosen:
    """A hunk, and the places in its lines of the changes that were chosen."""

    hunk: Hunk
    places: set[int]


def chosen_patch(file: FilePatch, choices: Sequence[str], *, reverse: bool) -> tuple[bytes, list[Hunk]]:
    """Return the patch of the chosen hunks and lines, and the hunks that it touches.

    With `reverse` the patch is to be undone: it fits the new side.

    Raises:
        InvalidArguments: not a choice. Conflict: a hunk has changed since it was shown. GitRefused: the file has none.
    """
    _refuse_whole(file)
    chosen: dict[int, _Chosen] = {}
    for choice in choices:
        for hunk, places in _matches(file, choice.strip()):
            chosen.setdefault(hunk.number, _Chosen(hunk, set())).places |= places
    lines: list[bytes] = [line for line in file.header if line.startswith((b"diff --git ", b"--- ", b"+++ "))]
    shift = 0
    for number in sorted(chosen):
        body, old, new = _body(chosen[number], file, reverse=reverse)
        hunk = chosen[number].hunk
        # The side that is there keeps its positions, so that git finds the place exactly.
        old_start = hunk.new_start - shift if reverse else hunk.old_start
        new_start = hunk.new_start if reverse else hunk.old_start + shift
        lines.append(f"@@ -{_start(old_start, old)},{old} +{_start(new_start, new)},{new} @@".encode())
        lines += body
        shift += new - old
    return b"\n".join(lines) + b"\n", [chosen[number].hunk for number in sorted(chosen)]


def _start(line: int, count: int) -> int:
    """Return the position of a side: of an empty one it is the line before."""
    return line if count else max(line - 1, 0)


def _refuse_whole(file: FilePatch) -> None:
    """Refuse files whose change has no hunks to choose from.

    Raises:
        GitRefused: names what would work.
    """
    name = quoted(file.name)
    if file.is_conflict:
        raise GitRefused(f"{name}: is in conflict; git_conflicts shows it, and git_continue takes resolutions")
    if file.is_binary:
        raise GitRefused(f"{name}: is binary, so it has no hunks; leave out hunks for the whole file")
    if file.old is None or file.new is None or file.old != file.new:
        raise GitRefused(f"{name}: is new, deleted or renamed as a whole; leave out hunks")
    if not file.hunks:
        raise GitRefused(f"{name}: only its mode has changed; leave out hunks")


def _matches(file: FilePatch, choice: str) -> Iterator[tuple[Hunk, set[int]]]:
    lines, numbers = _LINES.fullmatch(choice), _NUMBERS.fullmatch(choice)
    same = [hunk for hunk in file.hunks if hunk.id == choice]
    if lines is not None:
        yield from _by_lines(file, choice, lines)
    elif same:
        yield same[0], _changes(same[0])
    elif _ID.fullmatch(choice):
        raise _changed(file, choice)
    elif numbers is None:
        raise InvalidArguments(f"hunks, {choice[:40]!r}: {_HOW}")
    else:
        yield from _by_numbers(file, choice, numbers)


def _by_numbers(file: FilePatch, choice: str, match: re.Match[str]) -> Iterator[tuple[Hunk, set[int]]]:
    first, last = int(match["first"]), int(match["last"] or match["first"])
    wanted = [hunk for hunk in file.hunks if first <= hunk.number <= last]
    if not wanted or len(wanted) != last - first + 1:
        raise GitRefused(f"hunks, {choice!r}: {quoted(file.name)} has {len(file.hunks)} now; git_diff shows them")
    if match["id"] and any(hunk.id != match["id"] for hunk in wanted):
        raise _changed(file, choice)
    yield from ((hunk, _changes(hunk)) for hunk in wanted)


def _changed(file: FilePatch, choice: str) -> Conflict:
    now = ", ".join(f"{hunk.number}:{hunk.id}" for hunk in file.hunks[:20])
    return Conflict(f"hunks, {choice!r}: has changed since, or is no hunk of {quoted(file.name)}; it has {now} now")


def _by_lines(file: FilePatch, choice: str, match: re.Match[str]) -> Iterator[tuple[Hunk, set[int]]]:
    sign, first = match["sign"].encode(), int(match["first"])
    last = int(match["last"] or first)
    is_any = False
    for hunk in file.hunks:
        places = {place for place, kind, number in _numbered(hunk) if kind == sign and first <= number <= last}
        if places:
            is_any = True
            yield hunk, places
    if not is_any:
        raise GitRefused(f"hunks, {choice!r}: no such line has changed in {quoted(file.name)}; git_diff shows them")


def _numbered(hunk: Hunk) -> Iterator[tuple[int, bytes, int]]:
    """The changed lines of a hunk: place, sign, and number in the file of that side."""
    old, new = hunk.old_start, hunk.new_start
    for place, line in enumerate(hunk.lines):
        sign = line[:1]
        if sign == b"+":
            yield place, sign, new
        elif sign == b"-":
            yield place, sign, old
        old += sign in (b" ", b"-")
        new += sign in (b" ", b"+")


def _changes(hunk: Hunk) -> set[int]:
    return {place for place, _, _ in _numbered(hunk)}


def _body(chosen: _Chosen, file: FilePatch, *, reverse: bool) -> tuple[list[bytes], int, int]:
    """Return the lines of a hunk with only the chosen changes, and the lines of each side.

    A change that was not chosen is context where its line is there (a removed one, or in reverse an added one), and
    left out where it is not.
    """
    hunk = chosen.hunk
    lines = list(hunk.lines)
    if chosen.places != _changes(hunk):
        if any(line.startswith(b"\\") for line in lines):
            where = f"{quoted(file.name)}: hunk {hunk.number}"
            raise GitRefused(f"{where} is at the end of a file without a newline; choose the whole hunk")
        lines = _reduced(chosen, stays=b"+" if reverse else b"-")
    old = sum(line[:1] in (b" ", b"-") for line in lines)
    new = sum(line[:1] in (b" ", b"+") for line in lines)
    return lines, old, new


def _reduced(chosen: _Chosen, *, stays: bytes) -> list[bytes]:
    lines: list[bytes] = []
    for place, line in enumerate(chosen.hunk.lines):
        if line.startswith(b" ") or place in chosen.places:
            lines.append(line)
        elif line.startswith(stays):
            lines.append(b" " + line[1:])
    return lines
