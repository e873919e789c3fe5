"""Whether a rule's patterns match an argv: narrowly for what allows, widely for what refuses.

Pure. The two ways differ on purpose. A rule that allows must not let through more than its words say; a rule that
refuses must not be got past by another spelling of the same thing.
"""

import posixpath
import re
import unicodedata
from functools import lru_cache

from coretools.sandbox.programs.started import Started, Words, names_of

REST = "**"
"""As the last pattern: any words, or none."""

LONGEST = 4096
"""Characters of a word that a pattern with `*` or `?` of a rule that allows is tried on; a longer one matches none."""

_MERGED = re.compile(r"^/usr/(s?bin)/")
"""/bin is a link to /usr/bin on most systems (the file hierarchy of systemd), so both are one here."""


def is_allowed_program(pattern: str, program: str) -> bool:
    """Whether a rule that allows means this program: the name as it stands, or the very path."""
    if "/" in pattern and program != posixpath.normpath(program):
        return False
    return ("/" in pattern) == ("/" in program) and _is_narrow(pattern, program)


def is_allowed(patterns: Words | None, started: Started) -> bool:
    """Whether the words match one by one, in order, with case, and none is left over."""
    words = started.argv[1:]
    if patterns is None:
        return True
    named = explicit(patterns)
    is_whole = len(named) == len(patterns)
    fits = len(words) == len(named) and not started.is_open if is_whole else len(words) >= len(named)
    return fits and all(_is_allowed_word(pattern, word) for pattern, word in zip(named, words, strict=False))


def explicit(patterns: Words) -> Words:
    """The patterns that stand for one word each."""
    return patterns[:-1] if patterns[-1:] == (REST,) else patterns


def is_exact(patterns: Words | None) -> bool:
    """Whether the patterns are one argv and no other."""
    return patterns is not None and not any(re.search(r"(?<!\\)(?:\\\\)*[*?]", pattern) for pattern in patterns)


def is_refused_program(pattern: str, program: str) -> bool:
    """Whether a rule that refuses may mean this program: by any path, in any case, with or without a version."""
    meant = names_of(pattern)[0]
    if "/" not in pattern or "/" not in program:
        return any(_wide(meant).fullmatch(name) for name in names_of(program))
    found = _MERGED.sub(r"/\1/", _folded(posixpath.normpath(program)))
    is_relative = not program.startswith("/")  # whichever directory it lies in
    return _wide(_MERGED.sub(r"/\1/", pattern)).fullmatch(found) is not None or (
        is_relative and any(_wide(meant).fullmatch(name) for name in names_of(program))
    )


def is_refused(patterns: Words | None, started: Started) -> bool:
    """Whether each pattern matches some word, in whatever order, or may match one that nobody sees."""
    words = started.argv[1:]
    if patterns is None or started.is_open:
        return True
    if not patterns:
        return not words
    return all(
        any(_is_refused_word(pattern, words, index) for index in range(len(words))) for pattern in explicit(patterns)
    )


def _is_allowed_word(pattern: str, word: str) -> bool:
    if word.startswith("-") and not pattern.startswith("-"):  # `*.py` must not take `-c...py`
        return False
    return _is_narrow(pattern, word)


def _is_refused_word(pattern: str, words: Words, index: int) -> bool:
    word = words[index]
    if _wide(pattern).fullmatch(_folded(word)):
        return True
    following = words[index + 1] if index + 1 < len(words) else ""
    if pattern.startswith("--"):
        return re.match(r"--[^=]", word) is not None and _is_refused_option(pattern, word, following)
    if re.fullmatch(r"-[A-Za-z0-9]", pattern):
        return re.match(r"-[^-]", word) is not None and pattern[1] in word[1:]
    if re.match(r"-[A-Za-z0-9].", pattern) and word == pattern[:2]:
        return _wide(pattern[2:]).fullmatch(_folded(following)) is not None
    return False


def _is_refused_option(pattern: str, word: str, following: str) -> bool:
    """Whether a long option is meant by a word, abbreviated too; its value stands in the word or is the next one."""
    name, equals, value = pattern.partition("=")
    typed, joined, given = word.partition("=")
    # Most programs take any beginning of a long option that is clear to them (getopt_long(3)).
    if not _folded(name).startswith(_folded(typed)) and not _wide(name).fullmatch(_folded(typed)):
        return False
    return not equals or _wide(value).fullmatch(_folded(given if joined else following)) is not None


def _folded(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()


@lru_cache(maxsize=1024)
def _pieces(pattern: str) -> tuple[str, ...]:
    """A pattern cut into characters, escaped characters, `?` and stars."""
    return tuple(re.findall(r"\\.|\*+|\?|.", pattern, re.DOTALL))


@lru_cache(maxsize=1024)
def _literal(pattern: str) -> str | None:
    """The one word that a pattern without wildcards means."""
    return "".join(piece[-1] for piece in _pieces(pattern)) if is_exact((pattern,)) else None


def _is_narrow(pattern: str, word: str) -> bool:
    """Whether the whole word matches; `*` and `?` stop at `/`, `**` does not.

    All ways are followed at once, so the time grows with the length of both and no faster.
    """
    literal = _literal(pattern)
    if literal is not None or len(word) > LONGEST:
        return literal == word
    pieces = _pieces(pattern)
    states = _after_stars(pieces, {0})
    for character in word:
        passed = {state for state in states - {len(pieces)} if _takes(pieces[state], character)}
        states = _after_stars(pieces, {state + (pieces[state][0] != "*") for state in passed})
    return len(pieces) in states


def _takes(piece: str, character: str) -> bool:
    if piece in ("*", "?"):
        return character != "/"
    return piece[0] == "*" or piece[-1] == character


def _after_stars(pieces: tuple[str, ...], states: set[int]) -> set[int]:
    reached = set()
    for start in states:
        state = start
        reached.add(state)
        while state < len(pieces) and pieces[state][0] == "*":
            state += 1
            reached.add(state)
    return reached


@lru_cache(maxsize=1024)
def _wide(pattern: str) -> re.Pattern[str]:
    """`*` and `?` take everything; the word is to be folded before.

    What a star takes is never given back (atomic groups), which for stars that take everything changes no answer and
    keeps the time of a long word in bounds.
    """
    fixed = [""]
    for piece in _pieces(_folded(pattern)):
        if piece[0] == "*":
            fixed.append("")
        else:
            fixed[-1] += "." if piece == "?" else re.escape(piece[-1])
    first, *rest = fixed
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    groups = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.compile(f"{first}{groups}.*{last}", re.DOTALL)
