"""The words of a line of the REPL, by the parser of the process runner: of a shell it has only the quotes. Pure."""

from coretools.errors import CommandSyntax
from coretools.shell_words import BLANKS, join, split

MCP = "/mcp"
"""First word of lines about the servers of others."""

CURSOR_MARK = "\ue000"
"""Placeholder for the cursor, from the private use area, which nobody types."""


def needs_more(text: str) -> bool:
    """Whether a line continues on the next: a quote is open, or it ends with a backslash."""
    if _is_complete(text):
        return False
    return any(_is_complete(text + end) for end in ("'", '"', "x", 'x"'))


def words_of(text: str) -> list[str]:
    """Return the words of a line; none for a blank line.

    Raises:
        CommandSyntax: as raised by `split`.
    """
    return split(text) if text.strip() else []


def split_at_cursor(text: str) -> tuple[list[str], str, int]:
    """Return the words before the word at the cursor, that word, and where it begins in the text.

    Raises:
        CommandSyntax: the line contains a shell operator.
    """
    words = _open_words(text)
    start = len(text)
    while start and len(_open_words(text[: start - 1])) == len(words):
        start -= 1
    while text[start : start + 1] in tuple(BLANKS):
        start += 1
    return words[:-1], words[-1], start


def quoted(word: str) -> str:
    """Return a word with the quotes that it needs after the first word."""
    return join(("x", word)).removeprefix("x ")


def _open_words(text: str) -> list[str]:
    """Return the words of an unfinished line, including the unfinished last one."""
    for end in ("", "'", '"'):
        try:
            words = split(f"{text}{CURSOR_MARK}{end}")
        except CommandSyntax as error:
            fault = error
            continue
        return [*words[:-1], words[-1].removesuffix(CURSOR_MARK)]
    raise fault


def _is_complete(text: str) -> bool:
    try:
        words_of(text)
    except CommandSyntax:
        return False
    return True
