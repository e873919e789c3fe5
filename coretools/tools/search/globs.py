"""Globs on paths: `*.py` anywhere, `src/**/*.ts` from the directory searched, `*.{js,ts}`, `!*.min.js`.

Pure. Matched component by component: no glob, not even one planted in a repository, takes longer than its own length
times that of the path. (One regular expression for a whole path backtracks: four `*a` against a name of 250 `a` took
14 s in pathspec 1.1.1, with the interpreter's lock held.)
"""

import fnmatch
import functools
import re
from collections.abc import Callable, Sequence

from coretools.errors import InvalidArguments

ALTERNATIVES = 64
"""Most globs that one with braces may stand for."""

CHARACTERS = 1_000
"""Longest glob of a caller."""

ANY_NUMBER = None
"""Stands for `**`: any number of components."""

ComponentTest = Callable[[str], bool] | None


def glob_matcher(glob: str) -> Callable[[str], bool]:
    """A test of paths (components joined by `/`, a directory with `/` at its end).

    A glob without `/` matches the name; with one, the path from the directory searched on. `*`, `?` and `[...]` stay
    inside one component, `**` is any number of them. With `/` at its end it matches directories only. `!` in front
    turns it round.

    Raises:
        InvalidArguments: it is too long, or its braces stand for too many globs.
    """
    if len(glob) > CHARACTERS:
        raise InvalidArguments(f"glob: has {len(glob)} characters; the most is {CHARACTERS}")
    wanted = not glob.startswith("!")
    matches = _any_of(expand_braces(glob if wanted else glob[1:]))
    return lambda path: matches(path) is wanted


def name_matcher(glob: str) -> Callable[[str], bool] | None:
    """The same as a test of the last name alone; None where the glob speaks of more than that.

    Raises:
        What `glob_matcher` raises.
    """
    globs = expand_braces(glob)
    if glob.startswith("!") or any("/" in one or one in ("", ".", "**") for one in globs):
        return None
    fits = re.compile("|".join(map(component_pattern, globs))).match
    return lambda name: fits(name) is not None


def _any_of(globs: Sequence[str]) -> Callable[[str], bool]:
    alternatives = [_compiled(one) for one in globs]
    lasts = [one.rstrip("/").rpartition("/")[2] for one in globs]
    if any(last in ("", ".", "**") for last in lasts):
        return lambda path: any(matches(path) for matches in alternatives)
    # Most paths are told by their last name alone, however many globs there are.
    fits = re.compile("|".join(map(component_pattern, lasts))).match
    if not any("/" in one for one in globs):
        return lambda path: fits(path.rstrip("/").rpartition("/")[2]) is not None
    return lambda path: (
        fits(path.rstrip("/").rpartition("/")[2]) is not None and any(matches(path) for matches in alternatives)
    )


def expand_braces(glob: str) -> list[str]:
    """`a.{b,c}` as `a.b` and `a.c`; braces may stand in braces. A brace without partner is a character like others.

    Raises:
        InvalidArguments: it would stand for more than ALTERNATIVES globs.
    """
    found = _first_braces(glob)
    if found is None:
        return [glob]
    before, pieces, after = found
    expanded: list[str] = []
    for piece in pieces:
        expanded += expand_braces(before + piece + after)
        if len(expanded) > ALTERNATIVES:
            raise InvalidArguments(f"glob {glob}: its braces stand for more than {ALTERNATIVES} globs")
    return expanded


def component_tests(parts: Sequence[str]) -> list[ComponentTest]:
    """One test for each component of a glob."""
    return [ANY_NUMBER if part == "**" else _component(part) for part in parts]


def components_fit(names: list[str], tests: list[ComponentTest]) -> bool:
    """Whether the components of a path fit, each `**` taking any number of them (at the end: at least one)."""
    if len(tests) == 2 and tests[0] is ANY_NUMBER and tests[1] is not ANY_NUMBER:
        return tests[1](names[-1])
    # reached[i]: the first i components fit the tests so far.
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


def _compiled(glob: str) -> Callable[[str], bool]:
    directories = glob.endswith("/")
    parts = [part for part in glob.split("/") if part not in ("", ".")]
    if "/" not in glob.rstrip("/"):
        parts.insert(0, "**")
    tests = component_tests(parts)
    return lambda path: (path.endswith("/") or not directories) and components_fit(path.rstrip("/").split("/"), tests)


@functools.lru_cache(maxsize=1024)
def _component(part: str) -> Callable[[str], bool]:
    if not any(character in part for character in "*?["):
        return part.__eq__
    match = re.compile(component_pattern(part)).match
    return lambda name: match(name) is not None


def component_pattern(part: str) -> str:
    """The regular expression of one component."""
    # fnmatch knows [!a] only. Its expressions use atomic groups and don't backtrack (bpo-40480, CPython 3.9).
    return fnmatch.translate(part.replace("[^", "[!"))


def _first_braces(glob: str) -> tuple[str, list[str], str] | None:
    """What stands before the first pair of braces, its alternatives, and what stands after it."""
    start = _outside_brackets(glob, "{", 0)
    while start >= 0:
        depth, piece, pieces, at = 0, start + 1, [], start
        while at >= 0:
            depth += (glob[at] == "{") - (glob[at] == "}")
            if depth == 0 or (glob[at] == "," and depth == 1):
                pieces.append(glob[piece:at])
                piece = at + 1
            if depth == 0:
                return glob[:start], pieces, glob[at + 1 :]
            at = _outside_brackets(glob, "{,}", at + 1)
        start = _outside_brackets(glob, "{", start + 1)
    return None


def _outside_brackets(glob: str, wanted: str, at: int) -> int:
    """Where the next of these characters stands outside of `[...]`, or -1."""
    while at < len(glob):
        if glob[at] in wanted:
            return at
        # A bracket directly after the first (or after ! or ^) is a member, not the end.
        first = at + 1 + (glob[at + 1 : at + 2] in ("!", "^"))
        end = glob.find("]", first + 1) if glob[at] == "[" else -1
        at = end + 1 if end >= 0 else at + 1
    return -1
