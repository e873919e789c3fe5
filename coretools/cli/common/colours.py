"""Colours of results and tables on a terminal. Pure.

Line by line: without the escape sequences, a coloured text is byte for byte the plain one. Not with rich, which wraps
lines, expands tabs and interprets brackets: a diff must remain unchanged.
"""

import re
from collections.abc import Callable

_RESET = "\x1b[0m"
_STYLES = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "magenta": "\x1b[35m",
    "cyan": "\x1b[36m",
}

_DIFFS = frozenset({"git_diff", "edit_file"})
_STATUS_LINE = re.compile(r"([ MADRCUT?!.]{2}) ")
_FOUND_LINE = re.compile(r"(.+?):(\d+):")
_LINE_OF_A_FILE = re.compile(r"(\d+)([:-])")
_FOUND_STYLES = {":": "green", "-": "dim"}
_COMMIT_LINE = re.compile(r"([0-9a-f]{7,40}) (\S+) ")
_TOOL_LINE = re.compile(r"(\S+)( +)(reads|adds|changes)( )")
_EFFECT_STYLES = {"reads": "green", "adds": "yellow", "changes": "red"}


def colour_result(name: str, text: str) -> str:
    """Colour the result of a command; return it unchanged if its format is unknown."""
    if name in _DIFFS:
        return _by_line(text, _diff_line)
    if name == "git_status":
        return _by_line(text, _status_line)
    if name == "git_log":
        return _by_line(text, _commit_line)
    if name == "search_text":
        return _by_line(text, _found_line)
    return text


def colour_tools_table(text: str) -> str:
    """Colour the table of tools."""
    return _by_line(text, _tool_line)


def styled(text: str, *styles: str) -> str:
    """Return text between escape sequences; an empty text stays empty."""
    return "".join(_STYLES[style] for style in styles) + text + _RESET if text else text


def _by_line(text: str, style: Callable[[str], str]) -> str:
    return "\n".join(map(style, text.split("\n")))


def _diff_line(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ", "new file", "deleted file", "rename ", "similarity ")):
        return styled(line, "bold")
    if line.startswith("@@"):
        return styled(line, "cyan")
    if line.startswith(("+", "-")):
        return styled(line, "green" if line[0] == "+" else "red")
    return _note(line)


def _status_line(line: str) -> str:
    match = _STATUS_LINE.match(line)
    if match is None:
        return _note(line)
    letters = match[1]
    staged = styled(letters[0], "green") if letters[0] not in " ?" else letters[0]
    unstaged = styled(letters[1], "red") if letters[1] != " " else " "
    return f"{staged if letters != '??' else styled('?', 'red')}{unstaged}{line[2:]}"


def _commit_line(line: str) -> str:
    match = _COMMIT_LINE.match(line)
    return _note(line) if match is None else styled(match[1], "yellow") + line[match.end(1) :]


def _found_line(line: str) -> str:
    match = _LINE_OF_A_FILE.match(line)
    if match is not None:
        return styled(match[1], _FOUND_STYLES[match[2]]) + line[match.end(1) :]
    match = _FOUND_LINE.match(line)
    if match is not None:
        return f"{styled(match[1], 'magenta')}:{styled(match[2], 'green')}{line[match.end(2) :]}"
    return line if line == "--" else styled(line, "dim" if line.startswith("[") else "magenta")


def _tool_line(line: str) -> str:
    match = _TOOL_LINE.match(line)
    if match is None:
        return line
    return f"{styled(match[1], 'bold')}{match[2]}{styled(match[3], _EFFECT_STYLES[match[3]])}{line[match.end(3) :]}"


def _note(line: str) -> str:
    return styled(line, "dim") if line.startswith("[") else line
