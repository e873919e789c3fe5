"""Build the unified diff of an edit from the regions that the edit changed.

Pure. Comparing two whole texts can take time quadratic in their lines. The changed regions are known here, so only the
lines around them are compared, and the cost depends on the size of the change.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coretools.tools.filesystem.edits import Hunk
from coretools.tools.filesystem.line_window import after_lines, line_start

CONTEXT_LINES = 2
"""Lines of context around a change: enough to locate it, since a model pays for every line."""

COMPARED_LINES = 400
"""A larger changed region is shown as all old lines followed by all new lines."""

SHOWN_LINES = 400
"""Lines of a diff in an answer; the rest are counted."""

SHOWN_CHARACTERS = 1_000
"""Characters shown of one line; a minified file has lines of megabytes."""


FOREIGN_LINES = 40
FOREIGN_CHARACTERS = 200
"""Lines, and characters of one of them, shown of a change that somebody else made: enough to see what it was about."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines `i1` to `i2` of the text before became lines `j1` to `j2` of the text after (0-based, end excluded)."""

    i1: int
    i2: int
    j1: int
    j2: int


def foreign_diff(before: str, after: str, *, display_path: str) -> str:
    """Return a short diff of two texts, between which the changed regions are not known."""
    start = _equal_characters(before, after)
    same_end = _equal_characters(before[start:][::-1], after[start:][::-1])
    hunk = Hunk(start, len(before) - same_end, start, len(after) - same_end)
    most = FOREIGN_LINES, FOREIGN_CHARACTERS
    return unified_diff(before, after, [hunk], display_path=display_path, most=most)


def unified_diff(
    before: str,
    after: str,
    hunks: Sequence[Hunk],
    *,
    display_path: str,
    most: tuple[int, int] = (SHOWN_LINES, SHOWN_CHARACTERS),
) -> str:
    """Return the diff, cut after the most lines and characters of a line, with the rest counted.

    Line endings are shown unchanged.
    """
    most_lines, most_characters = most
    # Both texts are equal outside of this window, and only the window is split into lines.
    start = line_start(before, hunks[0].a0, CONTEXT_LINES)
    stop = after_lines(before, hunks[-1].a1, CONTEXT_LINES + 1)
    first_line = before.count("\n", 0, start)
    old = _lines(before[start:stop])
    new = _lines(after[start : stop + len(after) - len(before)])
    blocks = list(_refined(_blocks(before, after, hunks, start), old, new))
    out = [f"--- {display_path}\n", f"+++ {display_path}\n"]
    left_out = 0
    for group in _grouped(blocks):
        for line in _printed(group, old, new, first_line, most_characters):
            if len(out) < most_lines:
                out.append(line)
            else:
                left_out += 1
    if left_out:
        out.append(f"[... {left_out} lines of the diff left out ...]\n")
    return "".join(out)


def _equal_characters(one: str, other: str) -> int:
    """Return how many characters at the start are the same in both, by halving: comparing slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _lines(text: str) -> list[str]:
    """Split into lines with their newline. Not `splitlines`, which splits at other characters too."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _blocks(before: str, after: str, hunks: Sequence[Hunk], start: int) -> Iterator[_Block]:
    """Convert hunks to whole lines, counted from the window's start; hunks on one line become one block."""
    line_a = line_b = 0
    at_a = at_b = start
    group: list[Hunk] = []
    for hunk, following in zip(hunks, (*hunks[1:], None), strict=True):
        group.append(hunk)
        end_a, end_b = _line_ends(before, after, hunk)
        if following is not None and following.a0 < end_a:
            continue
        head_a = before.rfind("\n", 0, group[0].a0) + 1
        head_b = group[0].b0 - (group[0].a0 - head_a)
        i1 = line_a + before.count("\n", at_a, head_a)
        j1 = line_b + after.count("\n", at_b, head_b)
        line_a = i1 + _line_count(before, head_a, end_a)
        line_b = j1 + _line_count(after, head_b, end_b)
        at_a, at_b, group = end_a, end_b, []
        yield _Block(i1, line_a, j1, line_b)


def _line_ends(before: str, after: str, hunk: Hunk) -> tuple[int, int]:
    """Return where the changed lines end in both texts: at the hunk if both ends start a line, else after the line."""
    if before[hunk.a1 - 1 : hunk.a1] in ("", "\n") and after[hunk.b1 - 1 : hunk.b1] in ("", "\n"):
        return hunk.a1, hunk.b1
    return after_lines(before, hunk.a1, 1), after_lines(after, hunk.b1, 1)


def _line_count(text: str, start: int, end: int) -> int:
    return text.count("\n", start, end) + (end > start and text[end - 1] != "\n")


def _refined(blocks: Iterator[_Block], old: list[str], new: list[str]) -> Iterator[_Block]:
    """Remove lines that are equal on both sides from the blocks."""
    for block in blocks:
        if max(block.i2 - block.i1, block.j2 - block.j1) > COMPARED_LINES:
            yield block
            continue
        matcher = difflib.SequenceMatcher(None, old[block.i1 : block.i2], new[block.j1 : block.j2], autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag != "equal":
                yield _Block(block.i1 + i1, block.i1 + i2, block.j1 + j1, block.j1 + j2)


def _grouped(blocks: list[_Block]) -> Iterator[list[_Block]]:
    group: list[_Block] = []
    for block in blocks:
        if group and block.i1 - group[-1].i2 > 2 * CONTEXT_LINES:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _printed(group: list[_Block], old: list[str], new: list[str], first_line: int, most: int) -> Iterator[str]:
    head = max(0, group[0].i1 - CONTEXT_LINES)
    tail = min(len(old), group[-1].i2 + CONTEXT_LINES)
    head_new = head + group[0].j1 - group[0].i1
    tail_new = tail + group[-1].j2 - group[-1].i2
    yield f"@@ -{_range(head, tail, first_line)} +{_range(head_new, tail_new, first_line)} @@\n"
    at = head
    for block in group:
        yield from _marked(" ", old[at : block.i1], most)
        yield from _marked("-", old[block.i1 : block.i2], most)
        yield from _marked("+", new[block.j1 : block.j2], most)
        at = block.i2
    yield from _marked(" ", old[at:tail], most)


def _range(start: int, end: int, first_line: int) -> str:
    """Format start and length: an empty range names the line before it."""
    length = end - start
    line = first_line + start + (1 if length else 0)
    return str(line) if length == 1 else f"{line},{length}"


def _marked(mark: str, lines: list[str], most: int) -> Iterator[str]:
    for line in lines:
        body = line.removesuffix("\n")
        if len(body) > most:
            body = f"{body[:most]}[... {len(body) - most} characters left out ...]"
        yield f"{mark}{body}\n" if line.endswith("\n") else f"{mark}{body}\n\\ No newline at end of file\n"
