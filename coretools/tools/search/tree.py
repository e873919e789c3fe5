"""The files of a tree that a search looks at: everything beneath a directory but what its ignore files leave out."""

from collections.abc import Callable, Iterator

from coretools.errors import CoreError
from coretools.roots import directory_access
from coretools.roots.listing import Met, Run, walk_in_runs
from coretools.roots.read import open_directory
from coretools.roots.root_set import Place, Roots, joined
from coretools.tools.search.ignore import KINDS, REPOSITORY, IgnoreRules

RULES_BYTES = 1024 * 1024
"""A larger ignore file is none."""

ENTRIES_MOST = 2_000_000
"""Entries of one walk. The deadline comes first on any disk."""


def ignore_rules(roots: Roots, top: Place) -> IgnoreRules:
    """The ignore files that speak of what lies beneath `top`, read beneath its root as they are needed."""

    def look(relative: str) -> tuple[str | None, ...]:
        try:
            with open_directory(roots, roots.shown(Place(top.root, relative))) as directory:
                return tuple(_ignore_file(directory.fd, kind) for kind in KINDS)
        except CoreError:
            return (None,) * len(KINDS)

    return IgnoreRules(top.relative, look)


def _ignore_file(directory: int, name: str) -> str | None:
    """The text of an ignore file. A link is none, and nothing waits on a FIFO."""
    if directory_access.kind(directory, name) != "file":
        return None
    try:
        return directory_access.read(directory, name, limit_bytes=RULES_BYTES).decode("utf-8", "replace")
    except CoreError:
        return None


def entries_beneath(roots: Roots, top: Place, *, include_ignored: bool) -> Iterator[Met]:
    """Every entry beneath `top` with its path from there, sorted. `.git` never."""
    for above, run in runs_beneath(roots, top, include_ignored=include_ignored):
        for name, kind in run:
            yield above + name, kind


def runs_beneath(roots: Roots, top: Place, *, include_ignored: bool) -> Iterator[Run]:
    """The same in runs of neighbours."""
    choose: Callable[[str, list[Met]], list[Met]] = _all_but_repositories
    if not include_ignored:
        choose = ignore_rules(roots, top).chosen
    length = 0 if top.relative == "." else len(top.relative) + 1
    for above, run in walk_in_runs(roots, roots.shown(top), choose=choose, most=ENTRIES_MOST):
        yield above[length:], run


def _all_but_repositories(_: str, found: list[Met]) -> list[Met]:
    return [one for one in found if one[0] != REPOSITORY]


def is_text_path(path: str) -> bool:
    """Whether a name from the file system can be said, and so asked for again."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def beneath(top: Place, relative: str) -> str:
    """A path from `top` on as a path from its root on."""
    return joined(top.relative, relative)
