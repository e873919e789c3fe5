"""Globs on paths: `*.py` anywhere, `src/**/*.ts` from the directory searched, `*.{js,ts}`, `!*.min.js`.

Pure. `roots.path_globs` translates single components, with `*`, `?` and `[...]`; braces are expanded here.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from coretools.errors import InvalidArguments
from coretools.roots.path_globs import component_pattern, component_tests, components_match

ALTERNATIVES = 64
"""Most alternatives of a glob with braces."""

CHARACTERS = 1_000
"""Longest glob accepted."""


def glob_matcher(glob: str) -> Callable[[str], bool]:
    """Return a predicate on paths (components joined by `/`, a directory with `/` at its end).

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
    """Return the same predicate on the last name alone; None if the glob depends on more than that.

    Raises:
        What `glob_matcher` raises.
    """
    globs = expand_braces(glob)
    if glob.startswith("!") or any("/" in part or part in ("", ".", "**") for part in globs):
        return None
    fits = re.compile("|".join(map(component_pattern, globs))).match
    return lambda name: fits(name) is not None


def _any_of(globs: Sequence[str]) -> Callable[[str], bool]:
    alternatives = [_compiled(glob) for glob in globs]
    lasts = [glob.rstrip("/").rpartition("/")[2] for glob in globs]
    if any(last in ("", ".", "**") for last in lasts):
        return lambda path: any(matches(path) for matches in alternatives)
    # The last name alone decides most paths, however many globs there are.
    fits = re.compile("|".join(map(component_pattern, lasts))).match
    if not any("/" in glob for glob in globs):
        return lambda path: fits(path.rstrip("/").rpartition("/")[2]) is not None
    return lambda path: (
        fits(path.rstrip("/").rpartition("/")[2]) is not None and any(matches(path) for matches in alternatives)
    )


def expand_braces(glob: str, *, escape: str = "") -> list[str]:
    """Expand `a.{b,c}` to `a.b` and `a.c`; braces may be nested. An unpaired brace is an ordinary character.

    The character after `escape` is an ordinary one.

    Raises:
        InvalidArguments: it would stand for more than ALTERNATIVES globs, or has too many braces.
    """
    expanded: list[str] = []
    pending = [glob]
    for _ in range(2 * ALTERNATIVES):
        if not pending or len(pending) + len(expanded) > ALTERNATIVES:
            break
        current = pending.pop()
        braces = _first_braces(current, escape)
        if braces is None:
            expanded.append(current)
        else:
            before, pieces, after = braces
            pending += [before + piece + after for piece in reversed(pieces)]
    if pending:
        raise InvalidArguments(f"glob {glob}: its braces expand to more than {ALTERNATIVES} globs")
    return expanded


def _compiled(glob: str) -> Callable[[str], bool]:
    directories = glob.endswith("/")
    parts = [part for part in glob.split("/") if part not in ("", ".")]
    if "/" not in glob.rstrip("/"):
        parts.insert(0, "**")
    tests = component_tests(parts)
    return lambda path: (path.endswith("/") or not directories) and components_match(path.rstrip("/").split("/"), tests)


def _first_braces(glob: str, escape: str) -> tuple[str, list[str], str] | None:
    """Split at the first pair of braces: the text before it, its alternatives, the text after it."""
    opened: list[list[int]] = []
    """For each open brace: its position, and the commas directly within it."""
    first: list[int] = []
    for at in _outside_brackets(glob, escape):
        if glob[at] == "{":
            opened.append([at])
        elif opened and glob[at] == ",":
            opened[-1].append(at)
        elif opened:
            pair = [*opened.pop(), at]
            first = min(first or pair, pair)
    if not first:
        return None
    pieces = [glob[start + 1 : end] for start, end in pairwise(first)]
    return glob[: first[0]], pieces, glob[first[-1] + 1 :]


def _outside_brackets(glob: str, escape: str) -> Iterator[int]:
    """Yield the positions of braces and commas outside of `[...]`."""
    at = 0
    last = glob.rfind("]")
    while at < len(glob):
        if glob[at] == escape:
            at += 2
            continue
        if glob[at] in "{,}":
            yield at
        # A bracket directly after the first (or after ! or ^) is a member, not the end.
        first = at + 1 + (glob[at + 1 : at + 2] in ("!", "^"))
        end = glob.find("]", first + 1) if glob[at] == "[" and at < last else -1
        at = end + 1 if end >= 0 else at + 1
