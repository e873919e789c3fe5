"""Lines of a REPL: when one goes on, its words, and the word that is being typed. Pure.

By the parser of the process runner (`coretools.command`), with nothing of a shell but its quotes.
"""

from coretools.command import BLANKS, join, split
from coretools.errors import CommandSyntax

MARK = "\ue000"
"""Stands for the cursor; of the private use area, so nobody types it."""


def goes_on(text: str) -> bool:
    """Whether a line needs another: a quote is open, or it ends in a backslash that escapes nothing."""
    if _is_whole(text):
        return False
    return any(_is_whole(text + end) for end in ("'", '"', "x", 'x"'))


def words_of(text: str) -> list[str]:
    """The words of a line; none for a blank one.

    Raises:
        CommandSyntax: what `split` raises.
    """
    return split(text) if text.strip() else []


def at_cursor(text: str) -> tuple[list[str], str, int]:
    """The words before the one that ends here, that one, and where in the text it begins.

    Raises:
        CommandSyntax: nothing can be told, for an operator of a shell stands in the line.
    """
    words = _open_words(text)
    start = len(text)
    while start and len(_open_words(text[: start - 1])) == len(words):
        start -= 1
    while text[start : start + 1] in tuple(BLANKS):
        start += 1
    return words[:-1], words[-1], start


def as_typed(word: str) -> str:
    """A word with the quotes that it needs, not being the first."""
    return join(("x", word)).removeprefix("x ")


def _open_words(text: str) -> list[str]:
    """The words of half a line, the last as far as it is there."""
    for end in ("", "'", '"'):
        try:
            words = split(f"{text}{MARK}{end}")
        except CommandSyntax as error:
            fault = error
            continue
        return [*words[:-1], words[-1].removesuffix(MARK)]
    raise fault


def _is_whole(text: str) -> bool:
    try:
        words_of(text)
    except CommandSyntax:
        return False
    return True
