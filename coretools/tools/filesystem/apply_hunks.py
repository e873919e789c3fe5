"""Apply the hunks of a patch to a text: where their lines are, exactly.

Pure. A hunk whose lines are not at the line that it names is applied elsewhere only if they occur once. Nothing else is
tolerated: no missing context, no other white space. Line endings are those of the file.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from coretools.errors import EditRefused
from coretools.tools.filesystem.closest_lines import closest_lines
from coretools.tools.filesystem.edits import LINES_NAMED, EditedText, TextChange, composed, ending_at, spliced
from coretools.tools.filesystem.patches import PatchHunk
from coretools.truncation import and_more


class _Lines:
    """The lines of a text, without their endings, and where each begins."""

    def __init__(self, text: str) -> None:
        raw = text.split("\n")
        if not raw[-1]:
            raw.pop()
        self._raw = raw
        self.texts = [line.removesuffix("\r") for line in raw]
        self.starts = [0, *accumulate(len(line) + 1 for line in raw)]
        if raw and not text.endswith("\n"):
            self.starts[-1] -= 1

    def find(self, wanted: Sequence[str], begin: int, *, with_cr: bool) -> Iterator[int]:
        """Yield the numbers, from 0, of the lines from `begin` on where `wanted` is; `with_cr`: CR is compared too."""
        texts = self._raw if with_cr else self.texts
        # The longest line is the rarest.
        index = max(range(len(wanted)), key=lambda number: len(wanted[number]))
        at = begin + index - 1
        last = len(self.texts) - (len(wanted) - index)
        while at < last:
            try:
                at = texts.index(wanted[index], at + 1, last + 1)
            except ValueError:
                return
            if texts[at - index : at - index + len(wanted)] == wanted:
                yield at - index


def apply_hunks(text: str, hunks: Sequence[PatchHunk], *, display_path: str) -> tuple[EditedText, list[int]]:
    """Apply hunks in order; return the text, and for each hunk the line of the old text, from 1, where it was.

    Raises:
        EditRefused: the lines of a hunk are nowhere, or in several places.
    """
    lines = _Lines(text)
    changes: list[TextChange] = []
    found: list[int] = []
    end = offset = 0
    for number, hunk in enumerate(hunks, 1):
        label = f"{display_path}: hunk {number} of {len(hunks)} (line {hunk.number} of the patch)"
        first = _place(text, lines, hunk, begin=end, offset=offset, label=label)
        if hunk.start:
            offset = first + 1 - hunk.start
        found.append(first + 1)
        changes += _changes(text, lines, hunk, first)
        end = first + len(hunk.old)
    return EditedText(spliced(text, changes), len(changes), composed((), changes)), found


def _place(text: str, lines: _Lines, hunk: PatchHunk, *, begin: int, offset: int, label: str) -> int:
    """The number, from 0, of the line where the hunk's lines are, not before `begin`."""
    old = hunk.old
    if not old:
        if text:  # only in an empty file it is certain where lines are added
            raise EditRefused(f"{label}: it has no line that is in the file; give some lines around the change")
        return 0
    begin = _after_anchors(text, lines, hunk.anchors, begin, label)
    found = lines.find(old, begin, with_cr=hunk.names_endings)
    places = [place for place in found if _fits_end(text, lines, hunk, place + len(old))]
    if hunk.start is not None and hunk.start - 1 + offset in places:
        return hunk.start - 1 + offset
    if len(places) == 1 or (places and hunk.anchors):
        return places[0]
    if places:
        named = [place + 1 for place in places[:LINES_NAMED]]
        raise EditRefused(
            f"{label}: its lines occur {len(places)} times, on lines {and_more(map(str, named), len(places))}, and none"
            " is where the patch says; add more of the lines around the change",
            lines=named,
            matches=len(places),
        )
    end = ", at the end of the file as it says" if hunk.is_at_end or hunk.ends_without_newline else ""
    raise EditRefused(f"{label}: its lines are not in the file{end}{closest_lines(text, chr(10).join(old))}")


def _after_anchors(text: str, lines: _Lines, anchors: Sequence[str], begin: int, label: str) -> int:
    """The line that the anchors lead to: the first must be unique, each further one is the next below it."""
    for depth, anchor in enumerate(anchors):
        found = [number for number in range(begin, len(lines.texts)) if lines.texts[number].strip() == anchor]
        if not found:
            raise EditRefused(f"{label}: the line after @@ is not in the file{closest_lines(text, anchor)}")
        if depth == 0 and len(found) > 1:
            raise EditRefused(
                f"{label}: the line after @@ occurs {len(found)} times; name one that occurs once, then the"
                " inner one in a line of its own"
            )
        begin = found[0]
    return begin


def _fits_end(text: str, lines: _Lines, hunk: PatchHunk, end: int) -> bool:
    """Whether a place that ends before the line `end` is at the end of the file, where the hunk requires that."""
    if not hunk.is_at_end and not hunk.ends_without_newline:
        return True
    is_last = end == len(lines.texts)
    return is_last and not (hunk.ends_without_newline.get("-") and text.endswith("\n"))


def _changes(text: str, lines: _Lines, hunk: PatchHunk, first: int) -> Iterator[TextChange]:
    """The changed lines of a hunk: context lines stay byte for byte."""
    number = first
    for kept, removed, added in _groups(hunk):
        number += kept
        start, end = lines.starts[number], lines.starts[number + removed]
        ending = "\n" if hunk.names_endings else ending_at(text, start)
        new = "".join(line + ending for line in added)
        if end == len(text) and text:
            start, new = _at_end(text, hunk, start, new, ending=ending, is_added=start == end)
        elif not text and hunk.ends_without_newline.get("+"):
            new = new.removesuffix(ending)
        yield TextChange(start, end, new)
        number += removed


def _at_end(text: str, hunk: PatchHunk, start: int, new: str, *, ending: str, is_added: bool) -> tuple[int, str]:
    """The change at the end of the text: whether there is a newline after it stays, unless the hunk says otherwise."""
    had_newline = text.endswith("\n")
    has_newline = had_newline
    if "+" in hunk.ends_without_newline or "-" in hunk.ends_without_newline:
        has_newline = "+" not in hunk.ends_without_newline
    if is_added and not had_newline:  # below a last line without a newline
        new = ending + new
    if not has_newline and new:
        new = new.removesuffix(ending)
    elif not has_newline and start > 0:  # the line above is the last one now
        start -= 2 if text[start - 2 : start] == "\r\n" else 1
    return start, new


def _groups(hunk: PatchHunk) -> Iterator[tuple[int, int, list[str]]]:
    """Yield how many lines are kept, then removed, and which ones are added there."""
    kept = removed = 0
    added: list[str] = []
    for mark, line in hunk.lines:
        if mark == " ":
            if removed or added:
                yield kept, removed, added
                kept, removed, added = 0, 0, []
            kept += 1
        elif mark == "-":
            removed += 1
        else:
            added.append(line)
    if removed or added:
        yield kept, removed, added
