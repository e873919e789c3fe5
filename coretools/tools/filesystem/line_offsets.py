"""Offsets of lines in a text. Pure. A line ends with LF."""


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
