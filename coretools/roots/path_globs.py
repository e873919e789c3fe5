"""Path globs: translate and match the globs of deny rules, searches and ignore files. Pure.

Matching goes component by component: no glob, not even a hostile one in a repository, takes longer than its length
times that of the path. (One regular expression for a whole path backtracks: `pathspec`, ADR 0005.)
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from coretools.errors import InvalidArguments

ANY_NUMBER = None
"""Stands for `**`: any number of components."""

ComponentTest = Callable[[str], bool] | None

POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\r\f\v ",
    "upper": "A-Z",
    "word": "0-9A-Z_a-z",
    "xdigit": "0-9A-Fa-f",
}
"""What `[:name:]` means within brackets: ASCII, as in git and ripgrep. No LF: a line has none."""

_SPECIAL = re.compile(r"[*?\[\\]")
_POSIX_CLASS = re.compile(r"\[:(\w+):\]")


def component_tests(
    parts: Sequence[str], *, flags: re.RegexFlag = re.NOFLAG, as_git: bool = False
) -> list[ComponentTest]:
    """One test for each component of a glob.

    Raises:
        InvalidArguments: see `component_pattern`.
    """
    return [ANY_NUMBER if part == "**" else _component(part, flags, as_git=as_git) for part in parts]


def components_match(names: Sequence[str], tests: Sequence[ComponentTest]) -> bool:
    """Whether the components of a path match; each `**` takes any number of them (at the end: at least one)."""
    if len(tests) == 2 and tests[0] is ANY_NUMBER and tests[1] is not ANY_NUMBER:
        return tests[1](names[-1])
    # reached[i]: the first i components match the tests so far.
    reached = [True] + [False] * len(names)
    for index, test in enumerate(tests):
        if test is ANY_NUMBER:
            first = reached.index(True) if True in reached else len(reached)
            first += index == len(tests) - 1
            reached = [at >= first for at in range(len(reached))]
        else:
            fits = [before and test(name) for before, name in zip(reached, names, strict=False)]
            reached = [False, *fits]
    return reached[-1]


def component_pattern(part: str, *, as_git: bool = False) -> str:
    r"""The regular expression of one component: `*`, `?`, and `[...]` with ranges, `!` or `^`, and `[:alpha:]`.

    An unclosed bracket is an ordinary character. With `as_git` it is an error, and `\` escapes the next character,
    within brackets too.

    Raises:
        InvalidArguments: a range runs backwards, a class has an unknown name, or git would not take it (`as_git`).
    """
    fixed = [""]
    for piece in _translated(part, as_git=as_git):
        if piece == "*":
            fixed.append("")
        else:
            fixed[-1] += piece
    first, *others = fixed
    if not others:
        return f"(?s:{first})\\Z"
    # Text between two stars matches at its first occurrence and is never given back: atomic groups do not backtrack.
    between = "".join(f"(?>.*?{some})" for some in others[:-1] if some)
    return f"(?s:{first}{between}.*{others[-1]})\\Z"


@lru_cache(maxsize=1024)
def _component(part: str, flags: re.RegexFlag, *, as_git: bool) -> Callable[[str], bool]:
    if not flags and not any(character in part for character in "*?[\\"):
        return part.__eq__
    match = re.compile(component_pattern(part, as_git=as_git), flags).match
    return lambda name: match(name) is not None


def _translated(part: str, *, as_git: bool) -> Iterator[str]:
    """Regular expressions of the pieces of a component, `*` as it stands."""
    last = part.rfind("]")
    at = 0
    while at < len(part):
        piece, at = _piece(part, at, last=last, as_git=as_git)
        yield piece


def _piece(part: str, at: int, *, last: int, as_git: bool) -> tuple[str, int]:
    """The regular expression of the piece at `at`, and where it ends; no bracket is closed after `last`."""
    character = part[at]
    if character in "*?":
        return "*" if character == "*" else ".", at + 1
    if character == "[":
        bracket = _bracket(part, at, as_git=as_git) if at < last else None
        if bracket is not None:
            return bracket
        if as_git:
            raise InvalidArguments(f"glob {part}: a bracket is not closed")
    if as_git and character == "\\":
        character, at = _after_backslash(part, at)
        return re.escape(character), at
    special = _SPECIAL.search(part, at + 1)
    end = special.start() if special else len(part)
    return re.escape(part[at:end]), end


def _bracket(part: str, at: int, *, as_git: bool) -> tuple[str, int] | None:
    """The set of characters that begins at a bracket, and where it ends; None when it is not closed."""
    negated = part[at + 1] in "!^"
    first = at = at + 1 + negated
    members = ""
    while at < len(part):
        if part[at] == "]" and at > first:
            return f"[{'^' if negated else ''}{members}]", at + 1
        named = _POSIX_CLASS.match(part, at)
        if named is not None:
            if named[1] not in POSIX_CLASSES:
                raise InvalidArguments(f"glob {part}: {named[0]} is not known")
            members += POSIX_CLASSES[named[1]]
            at = named.end()
            continue
        member, at = _range(part, at, as_git=as_git)
        members += member
    return None


def _range(part: str, at: int, *, as_git: bool) -> tuple[str, int]:
    """A character or a range within brackets, and where it ends."""
    low, at = _member(part, at, as_git=as_git)
    if not part.startswith("-", at) or part[at + 1 : at + 2] in ("", "]"):
        return re.escape(low), at
    high, at = _member(part, at + 1, as_git=as_git)
    if high < low:
        raise InvalidArguments(f"glob {part}: the range {low}-{high} runs backwards")
    return f"{re.escape(low)}-{re.escape(high)}", at


def _member(part: str, at: int, *, as_git: bool) -> tuple[str, int]:
    return _after_backslash(part, at) if as_git and part[at] == "\\" else (part[at], at + 1)


def _after_backslash(part: str, at: int) -> tuple[str, int]:
    if at + 1 == len(part):
        raise InvalidArguments(f"glob {part}: a backslash at the end")
    return part[at + 1], at + 2
