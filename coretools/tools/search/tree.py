"""Walk the entries of a tree that a search covers: everything beneath a directory that no ignore file excludes."""

from collections.abc import Callable, Iterator

from coretools.errors import CoreError
from coretools.roots import directory_access
from coretools.roots.directory_listing import WalkBatch, WalkEntry, walk_batches
from coretools.roots.read import open_directory
from coretools.roots.root_set import RootedPath, Roots, join_path
from coretools.tools.search.ignore import KINDS, REPOSITORY, IgnoreRules

RULES_BYTES = 1024 * 1024
"""Largest ignore file; a larger one is disregarded."""

ENTRIES_MOST = 2_000_000
"""Most entries of one walk. The deadline is reached earlier on any disk."""


def ignore_rules(roots: Roots, top: RootedPath) -> IgnoreRules:
    """Return the ignore rules for everything beneath `top`; the files are read beneath its root on demand."""

    def look(relative: str) -> tuple[str | None, ...]:
        try:
            with open_directory(roots, roots.shown(RootedPath(top.root, relative))) as directory:
                return tuple(_ignore_file(directory.fd, kind) for kind in KINDS)
        except CoreError:
            return (None,) * len(KINDS)

    return IgnoreRules(top.relative, look)


def _ignore_file(directory: int, name: str) -> str | None:
    """Return the text of an ignore file. Links are disregarded, and a FIFO is never opened."""
    if directory_access.entry_kind(directory, name) != "file":
        return None
    try:
        return directory_access.read_file(directory, name, limit_bytes=RULES_BYTES).decode("utf-8", "replace")
    except CoreError:
        return None


def entries_beneath(roots: Roots, top: RootedPath, *, include_ignored: bool) -> Iterator[WalkEntry]:
    """Every entry beneath `top` with its path from there, sorted. `.git` never."""
    for above, run in runs_beneath(roots, top, include_ignored=include_ignored):
        for name, kind in run:
            yield above + name, kind


def runs_beneath(roots: Roots, top: RootedPath, *, include_ignored: bool) -> Iterator[WalkBatch]:
    """The same in runs of neighbours."""
    choose: Callable[[str, list[WalkEntry]], list[WalkEntry]] = _all_but_repositories
    if not include_ignored:
        choose = ignore_rules(roots, top).chosen
    length = 0 if top.relative == "." else len(top.relative) + 1
    for above, run in walk_batches(roots, roots.shown(top), choose=choose, most=ENTRIES_MOST):
        yield above[length:], run


def _all_but_repositories(_: str, found: list[WalkEntry]) -> list[WalkEntry]:
    return [one for one in found if one[0] != REPOSITORY]


def is_text_path(path: str) -> bool:
    """Whether a name from the file system can be encoded, so that a caller can use it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def beneath(top: RootedPath, relative: str) -> str:
    """Convert a path relative to `top` to one relative to its root."""
    return join_path(top.relative, relative)
