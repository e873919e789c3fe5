"""Match the rules of the policy file with the programs that a command starts.

Pure. Rules match in two ways on purpose. A rule that allows matches narrowly, so that it lets through no more than its
words say. A rule that refuses matches widely, so that no other spelling gets past it.
"""

import posixpath
import re
import unicodedata
from functools import lru_cache

from coretools.command_policy.subcommand import Subcommand, Words, program_names
from coretools.config.operator_policy import CommandRule

ANY_REMAINING_WORDS = "**"
"""The last pattern of a rule for any further words, or none."""

MAX_MATCHED_LENGTH = 4096
"""Longest word, in characters, that a wildcard pattern of an allowing rule matches."""

_USR_PREFIX = re.compile(r"^/usr/(s?bin)/")
"""/bin is a link to /usr/bin on most systems (file-hierarchy(7)), so the policy treats them as one."""


def is_allowed_program(pattern: str, program: str) -> bool:
    """Whether an allowing rule covers this program: exactly this name, or exactly this path."""
    if "/" in pattern and program != posixpath.normpath(program):
        return False
    return ("/" in pattern) == ("/" in program) and matches_narrowly(pattern, program)


def is_allowed(patterns: Words | None, subcommand: Subcommand) -> bool:
    """Whether the words match the patterns one by one, in order, case-sensitively, with none left over."""
    words = subcommand.argv[1:]
    if patterns is None:
        return True
    named = single_word_patterns(patterns)
    is_exact_length = len(named) == len(patterns)
    fits = len(words) == len(named) and not subcommand.has_unseen_words if is_exact_length else len(words) >= len(named)
    return fits and all(_is_allowed_word(pattern, word) for pattern, word in zip(named, words, strict=False))


def single_word_patterns(patterns: Words) -> Words:
    """Return the patterns that stand for one word each."""
    return patterns[:-1] if patterns[-1:] == (ANY_REMAINING_WORDS,) else patterns


def is_exact(patterns: Words | None) -> bool:
    """Whether the patterns match one argv only."""
    return patterns is not None and not any(re.search(r"(?<!\\)(?:\\\\)*[*?]", pattern) for pattern in patterns)


def is_refused_program(pattern: str, program: str) -> bool:
    """Whether a refusing rule may cover this program: by any path, in any case, with or without a version."""
    meant = program_names(pattern)[0]
    if "/" not in pattern or "/" not in program:
        return any(wide_pattern(meant).fullmatch(name) for name in program_names(program))
    path = _USR_PREFIX.sub(r"/\1/", folded(posixpath.normpath(program)))
    is_relative = not program.startswith("/")  # its directory is unknown
    return wide_pattern(_USR_PREFIX.sub(r"/\1/", pattern)).fullmatch(path) is not None or (
        is_relative and any(wide_pattern(meant).fullmatch(name) for name in program_names(program))
    )


def is_refused(patterns: Words | None, subcommand: Subcommand) -> bool:
    """Whether each pattern matches some word, in any order, or may match an unseen one."""
    words = subcommand.argv[1:]
    # A rule that refuses has to hold for words that this policy cannot see, so unseen words match.
    if patterns is None or subcommand.has_unseen_words:
        return True
    if not patterns:
        return not words
    return all(
        any(_is_refused_word(pattern, words, index) for index in range(len(words)))
        for pattern in single_word_patterns(patterns)
    )


def _is_allowed_word(pattern: str, word: str) -> bool:
    if word.startswith("-") and not pattern.startswith("-"):  # `*.py` must not match `-c...py`
        return False
    return matches_narrowly(pattern, word)


def _is_refused_word(pattern: str, words: Words, index: int) -> bool:
    word = words[index]
    if wide_pattern(pattern).fullmatch(folded(word)):
        return True
    following = words[index + 1] if index + 1 < len(words) else ""
    if pattern.startswith("--"):
        return re.match(r"--[^=]", word) is not None and _is_refused_option(pattern, word, following)
    if re.fullmatch(r"-[A-Za-z0-9]", pattern):
        return re.match(r"-[^-]", word) is not None and pattern[1] in word[1:]
    if re.match(r"-[A-Za-z0-9].", pattern) and word == pattern[:2]:
        return wide_pattern(pattern[2:]).fullmatch(folded(following)) is not None
    return False


def _is_refused_option(pattern: str, word: str, following: str) -> bool:
    """Whether a word is this long option, perhaps abbreviated, with its value in the word or the next one."""
    name, equals, value = pattern.partition("=")
    typed, joined, given = word.partition("=")
    # Most programs accept any unambiguous prefix of a long option (getopt_long(3)).
    if not folded(name).startswith(folded(typed)) and not wide_pattern(name).fullmatch(folded(typed)):
        return False
    return not equals or wide_pattern(value).fullmatch(folded(given if joined else following)) is not None


def folded(word: str) -> str:
    """Return a word as `wide_pattern` compares it: without differences of case or of compatible characters."""
    return unicodedata.normalize("NFKC", word).casefold()


@lru_cache(maxsize=1024)
def _pieces(pattern: str) -> tuple[str, ...]:
    """Split a pattern into characters, escaped characters, `?` and stars."""
    return tuple(re.findall(r"\\.|\*+|\?|.", pattern, re.DOTALL))


@lru_cache(maxsize=1024)
def _literal(pattern: str) -> str | None:
    """Return the only word that matches, for a pattern without wildcards."""
    return "".join(piece[-1] for piece in _pieces(pattern)) if is_exact((pattern,)) else None


def matches_narrowly(pattern: str, word: str) -> bool:
    """Whether the whole word matches; `*` and `?` stop at `/`, `**` does not.

    All matches are followed at once, so the time is bounded by the product of both lengths.
    """
    literal = _literal(pattern)
    if literal is not None or len(word) > MAX_MATCHED_LENGTH:
        return literal == word
    pieces = _pieces(pattern)
    states = _after_stars(pieces, {0})
    for character in word:
        passed = {state for state in states - {len(pieces)} if _matches_character(pieces[state], character)}
        states = _after_stars(pieces, {state + (pieces[state][0] != "*") for state in passed})
    return len(pieces) in states


def _matches_character(piece: str, character: str) -> bool:
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
def wide_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which `*` and `?` match every character. The word must be case-folded.

    Atomic groups keep a star from backtracking. With stars that match everything this changes no answer, and it bounds
    the time for a long word.
    """
    fixed = [""]
    for piece in _pieces(folded(pattern)):
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


def covers(rule: CommandRule, subcommand: Subcommand) -> bool:
    """Whether a rule matches a program: narrowly if it allows, widely if it refuses."""
    if rule.verdict == "allow":
        return is_allowed_program(rule.program, subcommand.argv[0]) and is_allowed(rule.arguments, subcommand)
    return is_refused_program(rule.program, subcommand.argv[0]) and is_refused(rule.arguments, subcommand)
