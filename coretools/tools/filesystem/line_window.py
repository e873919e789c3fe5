"""Lines of a text: where they begin, and which of them an answer shows within a budget of bytes.

Pure. The lines are exactly those of the file; remarks on them are in `gap` and `note`. A line ends with LF, so the CR
of CRLF is part of the line. A newline at the end of the text starts no further line.
"""

import re
from dataclasses import dataclass, replace
from itertools import count

from coretools.errors import InvalidArguments
from coretools.tools.answer_budget import LINE_CHARACTERS, cut_line


@dataclass(frozen=True, slots=True)
class Window:
    """The selected text: `head`, then possibly `gap` (a remark) and `tail`; `note` describes its position."""

    head: str
    gap: str = ""
    tail: str = ""
    note: str = ""
    first: int = 1
    """Number of the line in which `head` begins."""
    tail_first: int = 1
    """Number of the line in which `tail` begins."""
    is_part: bool = False
    """Whether `head` is a part of a line that was requested by its offset; it is not cut further."""
    is_unfinished: bool = False
    """Whether `head` is the start of one line that exceeds the budget."""

    def text(self, *, numbered: bool = False) -> str:
        """Return the text to show. Without `gap`, `note` and numbers it is the file, character for character."""
        head = self.head if self.is_part else _with_cut_lines(self.head, self.first)
        tail = _with_cut_lines(self.tail, self.tail_first)
        head = _numbered(head, self.first) if numbered else head
        tail = _numbered(tail, self.tail_first) if numbered else tail
        parts = [head]
        for remark, following in ((self.gap, tail), (self.note, "")):
            if remark:
                before = parts[-1]
                parts += ("" if before.endswith("\n") or not before else "\n", f"[{remark}]\n", following)
        return "".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRange:
    """The lines that a caller requests; `None` is not requested. Lines count from 1."""

    offset: int | None = None
    limit: int | None = None
    head: int | None = None
    tail: int | None = None
    cursor: str | None = None
    """Position at which an earlier answer ended, instead of `offset`."""
    line_numbers: bool = False
    """Whether each line is preceded by its number and a tab."""

    @property
    def need_counting(self) -> bool:
        """Whether lines that are not shown must be counted, to number the last ones."""
        is_from_start = self.head is not None or self.offset is not None or self.limit is not None
        return self.line_numbers and not is_from_start and self.cursor is None

    def __post_init__(self) -> None:
        """Refuse contradictory requests.

        Raises:
            InvalidArguments: more than one of `head`, `tail` and the pair of `offset` and `limit`.
        """
        ranges = {"head": self.head, "tail": self.tail, "offset": self.offset or self.cursor}
        given = [name for name, value in {**ranges, "limit": self.limit}.items() if value is not None]
        if len(given) > 1 and given != ["offset", "limit"]:
            raise InvalidArguments(f"{' and '.join(given)} together: give head, or tail, or offset with limit")


def _with_cut_lines(text: str, first: int) -> str:
    if len(text) <= LINE_CHARACTERS:
        return text
    lines = text.split("\n")
    if max(map(len, lines)) <= LINE_CHARACTERS:
        return text
    return "\n".join(cut_line(line, f"offset={first + at}, limit=1 shows it") for at, line in enumerate(lines))


def _numbered(text: str, first: int) -> str:
    """Each line after its number and a tab."""
    numbers = count(first)
    return re.sub(r"^(?=.|\n)", lambda _: f"{next(numbers)}\t", text, flags=re.MULTILINE)


def window(
    text: str, lines: LineRange, *, display_path: str, budget_bytes: int, first_byte: int | None = None
) -> Window:
    """Return the requested lines, at most `budget_bytes` of UTF-8. `first_byte`: where the text of a UTF-8 file starts.

    Raises:
        InvalidArguments: `offset` is past the end.
    """
    if lines.tail is not None:
        return _last(text, lines.tail, budget_bytes)
    if lines.offset is None and lines.limit is None and lines.head is None:
        return _whole(text, budget_bytes)
    limit = lines.head if lines.head is not None else lines.limit
    selected = _range(text, lines.offset or 1, limit, display_path, budget_bytes)
    if first_byte is None or not selected.is_unfinished:
        return selected
    start = after_lines(text, 0, selected.first - 1)
    reached = first_byte + len(text[: start + len(selected.head)].encode())
    return replace(selected, note=f"{selected.note}; offset={selected.first}@{reached} reads the rest of this line")


def line_start(text: str, position: int, lines_back: int) -> int:
    """Return the start of the line `lines_back` above the one at `position`, or of the text."""
    start = text.rfind("\n", 0, position) + 1
    for _ in range(lines_back):
        if start == 0:
            break
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def after_lines(text: str, position: int, count: int) -> int:
    """Return the offset after the next `count` ends of lines from `position` on, or the end of the text."""
    for _ in range(count):
        end = text.find("\n", position)
        if end < 0:
            return len(text)
        position = end + 1
    return position


def count_lines(text: str) -> int:
    """Lines in a text."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def _whole(text: str, budget_bytes: int) -> Window:
    head = _fitting(text, budget_bytes)
    if len(head) == len(text):
        return Window(text)
    head = _whole_lines(_fitting(text, budget_bytes // 2))
    tail = _fitting_end(text, budget_bytes - budget_bytes // 2)
    tail = tail[tail.find("\n") + 1 :] or tail
    left_out = text[len(head) : len(text) - len(tail)]
    first = head.count("\n") + 1
    last = first + left_out.count("\n") - left_out.endswith("\n")
    if head.endswith("\n") and left_out.endswith("\n"):
        gap = f"... lines {first} to {last} left out, {len(left_out)} characters; offset={first} reads on ..."
    else:
        gap = f"... {len(left_out)} characters left out, from line {first} to line {last} ..."
    return Window(head, gap, tail, tail_first=count_lines(text) - count_lines(tail) + 1)


def _range(text: str, offset: int, limit: int | None, display_path: str, budget_bytes: int) -> Window:
    total = count_lines(text)
    if offset > max(total, 1):
        raise InvalidArguments(
            f"{display_path}: offset {offset} lies behind the end; it has {total} lines", lines=total
        )
    start = after_lines(text, 0, offset - 1)
    stop = len(text) if limit is None else after_lines(text, start, limit)
    body = _fitting(text[start:stop], budget_bytes)
    omitted = ""
    if start + len(body) < stop:
        body = _whole_lines(body)
        if not body.endswith("\n"):
            # A single line exceeds the budget: its start is shown, and the next line can still be reached.
            end = after_lines(text, start, 1)
            omitted = f", {end - start - len(body)} characters of it left out"
            stop = end
        else:
            stop = start + len(body)
    last = offset + count_lines(text[start:stop]) - 1
    if offset == 1 and stop == len(text) and not omitted:
        return Window(body, is_part=limit == 1)
    more = f"; offset={last + 1} reads on" if last < total else ""
    note = f"{lines_text(offset, last)} of {total}{omitted}{more}"
    return Window(body, note=note, first=offset, is_part=limit == 1, is_unfinished=bool(omitted))


def _last(text: str, count: int, budget_bytes: int) -> Window:
    total = count_lines(text)
    start = len(text)
    # The newline at the very end closes the last line, it starts no further one.
    if text.endswith("\n"):
        start -= 1
    for _ in range(min(count, total)):
        start = text.rfind("\n", 0, start)
        if start < 0:
            break
    start += 1
    body = _fitting_end(text[start:], budget_bytes)
    omitted = ""
    if len(body) < len(text) - start and text[-len(body) - 1] != "\n":
        # A newline at the very end of the text does not show that the line before it is complete.
        whole = body.find("\n", 0, len(body) - 1) + 1
        body = body[whole:]
        if not whole:
            omitted = f", {len(text) - start - len(body)} characters of it left out"
    if len(body) == len(text):
        return Window(body)
    first = total - count_lines(body) + 1
    note = f"{lines_text(first, total)} of {total}{omitted}"
    return Window(body, note=note, first=first, is_part=bool(omitted))


def lines_text(first: int, last: int) -> str:
    """Name a range of lines in a remark."""
    return f"line {first}" if last <= first else f"lines {first} to {last}"


def _fitting(text: str, budget_bytes: int) -> str:
    """Return the start of a text that fits into the budget."""
    if len(text) > budget_bytes:
        text = text[:budget_bytes]
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= budget_bytes else data[:budget_bytes].decode("utf-8", "ignore")


def _fitting_end(text: str, budget_bytes: int) -> str:
    if len(text) > budget_bytes:
        text = text[len(text) - budget_bytes :]
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= budget_bytes else data[len(data) - budget_bytes :].decode("utf-8", "ignore")


def _whole_lines(text: str) -> str:
    """Remove an incomplete last line unless it is the only one."""
    return text[: text.rfind("\n") + 1] or text
