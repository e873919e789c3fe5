"""Exact replacements in a text: an ambiguous match is refused, and either all edits are applied or none.

The one difference that is tolerated is the indentation of whole lines (`indentation`).

Pure: text in, text out. It works on decoded text with original line endings, so a file with CRLF, with mixed endings or
without a newline at its end keeps them.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from coretools.cancellation import check_cancelled
from coretools.errors import EditRefused, TooLarge
from coretools.operations.declare import Aliases
from coretools.tools.filesystem.closest_lines import closest_lines
from coretools.tools.filesystem.indentation import indented_places, reindented
from coretools.tools.filesystem.line_window import after_lines
from coretools.truncation import and_more

LINES_NAMED = 20
"""Line numbers listed in an error; the rest is counted."""

MATCHES_MOST = 1_000_000
"""Most matches of one edit. The positions of more would fill memory."""


EDITS_MOST = 1_000
"""Most edits of one call. Each searches the whole text, so their time adds up."""

CHARACTERS_MOST = 2 * 1024**3
"""Largest product of edits and characters: 1,000 edits of 1.1 MB took 1.1 s (CPython 3.11), and the file is locked
meanwhile."""


class Edit(BaseModel):
    """One exact replacement."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)

    old: Annotated[
        str,
        Field(
            description="The text to replace, exactly as in the file, with its spaces and line breaks and "
            "without line numbers; enough of it to occur once"
        ),
        Aliases("old_string", "old_str", "old_text"),
    ]
    new: Annotated[
        str,
        Field(description="The text to put in its place; empty to delete it"),
        Aliases("new_string", "new_str", "new_text"),
    ]
    all: Annotated[
        bool,
        Field(description="Replace every match of `old`; default false: it must occur exactly once"),
        Aliases("replace_all", "allow_multiple", hints=("expected_replacements",)),
    ] = False
    line: Annotated[
        int | None,
        Field(
            ge=1,
            description="Of several matches, replace the one that starts nearest to this line (from 1) of the "
            "file as it was before the call. Excludes `all`",
        ),
        Aliases("line_number", "near_line"),
    ] = None


@dataclass(frozen=True, slots=True)
class TextChange:
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Hunk:
    """`before[a0:a1]` became `after[b0:b1]`; between hunks both texts are equal."""

    a0: int
    a1: int
    b0: int
    b1: int


@dataclass(frozen=True, slots=True)
class EditedText:
    """The text after all edits, the number of replaced matches, and their positions."""

    text: str
    replaced: int
    hunks: tuple[Hunk, ...]
    reindented: tuple[int, ...] = ()
    """The lines of the new text where an edit was applied with the indentation of the file."""


def apply_edits(text: str, edits: Sequence[Edit], *, display_path: str, most_characters: int) -> EditedText:
    """Apply `edits` in order; each one is applied to the result of those before it.

    Raises:
        EditRefused: an edit matches nothing, or more than once without `all`.
        TooLarge: the result would exceed `most_characters`, or there are too many edits.
    """
    if len(edits) > EDITS_MOST or len(edits) * len(text) > CHARACTERS_MOST:
        most = min(EDITS_MOST, CHARACTERS_MOST // max(1, len(text)))
        raise TooLarge(f"{display_path}: {len(edits)} edits; at most {most} per call for a text of this size")
    before = text
    hunks: tuple[Hunk, ...] = ()
    replaced = 0
    reindented_lines: list[int] = []
    for number, edit in enumerate(edits, 1):
        check_cancelled()
        label = display_path if len(edits) == 1 else f"{display_path}: edit {number} of {len(edits)}"
        near = None if edit.line is None else _after(hunks, after_lines(before, 0, edit.line - 1))
        changes, is_reindented = _changes(text, edit, label, near=near, most_characters=most_characters)
        if is_reindented:
            reindented_lines.append(text.count("\n", 0, changes[0].start) + 1)
        text = spliced(text, changes)
        hunks = composed(hunks, changes)
        replaced += len(changes)
    return EditedText(text, replaced, hunks, tuple(reindented_lines))


def _after(hunks: Sequence[Hunk], position: int) -> int:
    """The position in the text after `hunks` of a position in the text before them."""
    shift = 0
    for hunk in hunks:
        if position < hunk.a1:
            return position + shift if position < hunk.a0 else hunk.b0
        shift = hunk.b1 - hunk.a1
    return position + shift


def _changes(
    text: str, edit: Edit, label: str, *, near: int | None, most_characters: int
) -> tuple[list[TextChange], bool]:
    """The changes of one edit, and whether its lines were indented like those of the file."""
    if not edit.old:
        raise EditRefused(f"{label}: old is empty; name the text to replace, or use write_file")
    if edit.old == edit.new:
        raise EditRefused(f"{label}: old and new are the same; nothing would change")
    if edit.all and edit.line is not None:
        raise EditRefused(f"{label}: all replaces every match, and line chooses one; give only one of the two")
    found = _found(text, edit)
    is_reindented = found is None
    edit, spans = found or _found_reindented(text, edit, label)
    if len(spans) > 1 and near is not None:
        spans = _nearest(text, spans, near)
    if len(spans) > 1 and not edit.all:
        raise _ambiguous(text, spans, label)
    if len(spans) > MATCHES_MOST:
        raise TooLarge(f"{label}: old matches more than {MATCHES_MOST} times; edit in smaller steps")
    if len(text) + len(spans) * len(edit.new) > most_characters:
        raise TooLarge(f"{label}: the result could pass {most_characters} characters; edit in smaller steps")
    return [TextChange(start, end, _replacement(text, start, end, edit)) for start, end in spans], is_reindented


def _found(text: str, edit: Edit) -> tuple[Edit, list[tuple[int, int]]] | None:
    """The edit as it fits the line endings of the file, and its matches; None if there are none."""
    spans = find_spans(text, edit.old, every=edit.all)
    if not spans and "\r\n" in edit.old:
        # The caller wrote CRLF where the file has LF: the file's own ending is used on both sides.
        edit = edit.model_copy(update={"old": edit.old.replace("\r\n", "\n"), "new": edit.new.replace("\r\n", "\n")})
        spans = find_spans(text, edit.old, every=edit.all)
    return (edit, spans) if spans else None


def _found_reindented(text: str, edit: Edit, label: str) -> tuple[Edit, list[tuple[int, int]]]:
    """The edit as the file indents its lines, and its only match.

    Raises:
        EditRefused: there is none, or more than one.
    """
    place = None if edit.all else reindented(text, edit.old, edit.new)
    if place is None:
        places = indented_places(text, edit.old)
        if len(places) > 1:
            raise EditRefused(
                f"{label}: old matches nothing as it is indented, and with another indentation more than one place,"
                f" such as lines {places[0]} and {places[1]}; give it exactly as it is in the file",
                lines=places,
            )
        raise EditRefused(f"{label}: old matches nothing{closest_lines(text, edit.old)}")
    return edit.model_copy(update={"old": place.old, "new": place.new}), [(place.start, place.end)]


def _nearest(text: str, spans: list[tuple[int, int]], near: int) -> list[tuple[int, int]]:
    """The matches that start on the line nearest to this position, in lines: more than one if they are equally near."""
    line_start = text.rfind("\n", 0, near) + 1
    # The spans are in order. Two on each side suffice to notice that two are equally near.
    middle = bisect_left(spans, (line_start, 0))
    candidates = spans[max(0, middle - 2) : middle + 2]
    distances = [text.count("\n", *sorted((line_start, start))) for start, _ in candidates]
    return [span for span, distance in zip(candidates, distances, strict=True) if distance == min(distances)]


def _ambiguous(text: str, spans: list[tuple[int, int]], label: str) -> EditRefused:
    lines: list[int] = []
    line, position = 1, 0
    for start, _ in spans[:LINES_NAMED]:
        line += text.count("\n", position, start)
        position = start
        lines.append(line)
    named = and_more(map(str, lines), len(spans))
    count = f"more than {MATCHES_MOST}" if len(spans) > MATCHES_MOST else str(len(spans))
    return EditRefused(
        f"{label}: old matches {count} times, on lines {named}; add the text around the one you mean, name its line, or"
        " set all",
        lines=lines,
        matches=len(spans),
    )


def find_spans(text: str, old: str, *, every: bool = False) -> list[tuple[int, int]]:
    """Return the positions of `old`: exact matches, or else matches of its newlines with CRLF in the text."""
    # For uniqueness matches may overlap ("aa" occurs twice in "aaa"); replacing goes from left to right.
    step = len(old) if every else 1
    exact = [
        (start, start + len(old)) for start in _positions(text, old, step) if not _splits_an_ending(text, old, start)
    ]
    if exact or "\r" in old or "\n" not in old or "\r\n" not in text:
        return exact
    plain = text.replace("\r\n", "\n")
    spans: list[tuple[int, int]] = []
    near = (0, 0)
    for start in _positions(plain, old, step):
        first = near = _raw_offset(text, start, near)
        last = _raw_offset(text, start + len(old), near)
        spans.append((first[1], last[1]))
    return spans


def _positions(text: str, old: str, step: int) -> Iterator[int]:
    """Yield the starts of the matches, at most one more than MATCHES_MOST."""
    at = text.find(old)
    for _ in range(MATCHES_MOST + 1):
        if at < 0:
            return
        yield at
        at = text.find(old, at + step)


def _splits_an_ending(text: str, old: str, start: int) -> bool:
    """Whether a match begins between the CR and the LF of one line ending, which is never intended."""
    return old[0] == "\n" and start > 0 and text[start - 1] == "\r"


def _raw_offset(text: str, plain: int, near: tuple[int, int]) -> tuple[int, int]:
    """Return (plain, raw): the offset in `text` that corresponds to `plain` in the text with LF only.

    `near` is an earlier pair. Each iteration counts the CRLF passed so far; it approaches the result from below and is
    right once it is stable. A table of all line ends would need more memory than the file.
    """
    known_plain, known_raw = near
    raw = known_raw + plain - known_plain
    while (better := known_raw + plain - known_plain + text.count("\r\n", known_raw, raw)) != raw:
        raw = better
    if raw > known_raw and text[raw - 1 : raw + 1] == "\r\n":
        raw += 1
    return plain, raw


def _replacement(text: str, start: int, end: int, edit: Edit) -> str:
    """Return `new` with the line ending used at this place, unless the caller wrote CR."""
    old, new = edit.old, edit.new
    if "\r" in old or "\r" in new or "\n" not in new:
        return new
    raw = text[start:end]
    if raw == old:
        return new if "\n" in old else new.replace("\n", ending_at(text, start))
    # Mixed endings in the match: the common start and end of old and new keep their endings.
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    tail = next((at for at in range(most - head) if old[-1 - at] != new[-1 - at]), most - head)
    kept_head = raw[: _raw_offset(raw, head, (0, 0))[1]]
    kept_tail = raw[_raw_offset(raw, len(old) - tail, (0, 0))[1] :]
    middle = new[head : len(new) - tail]
    return kept_head + middle.replace("\n", ending_at(text, start + len(kept_head))) + kept_tail


def ending_at(text: str, position: int) -> str:
    """Return the line ending of the line at `position`, or of the line before if it is the last one."""
    at = text.find("\n", position)
    if at < 0:
        at = text.rfind("\n", 0, position)
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def spliced(text: str, changes: Sequence[TextChange]) -> str:
    """Return the text after changes, which are in order and do not overlap."""
    pieces: list[str] = []
    position = 0
    for change in changes:
        pieces += (text[position : change.start], change.new)
        position = change.end
    pieces.append(text[position:])
    return "".join(pieces)


def composed(hunks: tuple[Hunk, ...], changes: Sequence[TextChange]) -> tuple[Hunk, ...]:
    """Combine `hunks` with later `changes`, whose offsets refer to the text after `hunks`."""
    # Both as intervals of the text between, with the change of length on either side.
    earlier = ((hunk.b0, hunk.b1, (hunk.a1 - hunk.a0) - (hunk.b1 - hunk.b0), 0) for hunk in hunks)
    later = ((change.start, change.end, 0, len(change.new) - (change.end - change.start)) for change in changes)
    merged: list[Hunk] = []
    shift_a = shift_c = 0
    end = -1
    for start, stop, grow_a, grow_c in heapq.merge(earlier, later):
        if start <= end:  # touches the previous one: merge them
            last = merged.pop()
            first_a, first_c = last.a0, last.b0
        else:
            first_a, first_c = start + shift_a, start + shift_c
        end = max(end, stop)
        shift_a += grow_a
        shift_c += grow_c
        merged.append(Hunk(first_a, end + shift_a, first_c, end + shift_c))
    return tuple(merged)
