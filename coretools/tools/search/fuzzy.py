"""Rank paths by how well a short, inexact query names them: `usrctl` for `src/user_controller.py`. Pure.

Each word of the query must be contained in the name, or failing that in the path, its characters in order. rapidfuzz
measures something else, the number of edits: to it `usrctl` is nearer to `users` than to `user_controller`.
"""

import re
from collections.abc import Callable

from coretools.errors import InvalidArguments

CHARACTERS = 100
"""Longest query."""

Rank = tuple[int, int]
"""How good a match is, the smallest first: its kind, and how many characters it spreads over."""

_NAME, _NAME_START, _NAME_WORD, _NAME_PART, _NAME_LETTERS, _PATH_PART, _PATH_LETTERS = range(7)
"""Kinds of matches: the name itself, its start, the start of a word in it, any part, letters; the same of the path."""


def fuzzy_rank(query: str) -> Callable[[str], Rank | None]:
    """Return a function that ranks a path; None if it does not match. Case does not matter.

    Raises:
        InvalidArguments: the query is too long.
    """
    if len(query) > CHARACTERS:
        raise InvalidArguments(f"query: has {len(query)} characters; the most is {CHARACTERS}")
    words = [_word_rank(word) for word in query.lower().split()]

    def rank(path: str) -> Rank | None:
        path = path.lower().rstrip("/")
        kind = spread = 0
        for word in words:
            found = word(path)
            if found is None:
                return None
            kind, spread = max(kind, found[0]), spread + found[1]
        return kind, spread

    return rank


def _word_rank(word: str) -> Callable[[str], Rank | None]:
    # Possessive: no backtracking, so the time is that of one pass.
    letters = re.compile("".join(f"[^{re.escape(one)}]*+{re.escape(one)}" for one in word), re.DOTALL)
    is_path = "/" in word

    def rank(path: str) -> Rank | None:
        if not letters.match(path):  # most paths end here
            return None
        name = path[path.rfind("/") + 1 :]
        if not is_path and letters.match(name):
            return _rank_in_name(word, name)
        at = path.find(word)
        return (_PATH_LETTERS, _spread(word, path)) if at < 0 else (_PATH_PART, len(path) - at)

    return rank


def _rank_in_name(word: str, name: str) -> Rank:
    at = name.find(word)
    if at < 0:
        return _NAME_LETTERS, _spread(word, name)
    if word in (name, name.partition(".")[0]):
        return _NAME, len(name)
    kind = _NAME_START if at == 0 else _NAME_PART if name[at - 1].isalnum() else _NAME_WORD
    return kind, len(name)


def _spread(word: str, text: str) -> int:
    """The characters from the first to the last of a match that is the shortest with its end."""
    end = -1
    for character in word:
        end = text.index(character, end + 1)
    start = end + 1
    for character in reversed(word):
        start = text.rindex(character, 0, start)
    return end - start + 1
