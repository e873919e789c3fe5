"""Find the paths of a tree that a glob or a query matches, and select one page of them, in one pass over the tree."""

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from coretools.roots.directory_listing import WalkEntry, modification_times
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.search.fuzzy import Rank
from coretools.tools.search.ignore import beneath, runs_beneath

NameOrder = Literal["path", "newest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameQuery:
    """Which paths, in which order, and how many of them."""

    wanted: Callable[[str, list[WalkEntry]], list[WalkEntry]]
    """Selects the entries of one directory; the first argument is its path with a slash, empty for the top."""
    rank: Callable[[str], Rank | None] | None
    """How well a path matches; None for "all that are wanted"."""
    newest: bool
    directories: bool
    """Whether directories are among the paths."""
    skip: int
    limit: int
    deadline: float
    """On the monotonic clock."""


@dataclass(slots=True)
class NamePage:
    """Some of the paths, relative to the directory searched; a directory ends with a slash."""

    names: list[str]
    total: int = 0
    timed_out: bool = False


def find_names(roots: Roots, top: RootedPath, query: NameQuery, *, include_ignored: bool) -> NamePage:
    """Return the asked-for page, and the number of all matching paths.

    In the order of the walk, that of the paths; else with the smallest keys first.
    """
    page = NamePage([])
    runs = _matching_runs(roots, top, query, page, include_ignored=include_ignored)
    if query.rank is None and not query.newest:
        first, end = query.skip, query.skip + query.limit
        for above, run in runs:
            # Only the part of the run that is on the page is made into paths.
            before = page.total - len(run)
            page.names += [_path(above, entry) for entry in run[max(0, first - before) : max(0, end - before)]]
    else:
        smallest = heapq.nsmallest(query.skip + query.limit, _keyed(roots, top, query, page, runs))
        page.names = [name for *_, name in smallest[query.skip :]]
    return page


Run = tuple[str, list[WalkEntry]]


def _matching_runs(
    roots: Roots, top: RootedPath, query: NameQuery, page: NamePage, *, include_ignored: bool
) -> Iterator[Run]:
    """Yield what the glob matches, and count it."""
    for above, run in runs_beneath(roots, top, include_ignored=include_ignored):
        entries = query.wanted(above, run)
        if not query.directories:
            entries = [entry for entry in entries if entry[1] != "directory"]
        page.total += len(entries)
        if entries:
            yield above, entries
        page.timed_out = time.monotonic() >= query.deadline
        if page.timed_out:
            return


def _keyed(
    roots: Roots, top: RootedPath, query: NameQuery, page: NamePage, runs: Iterator[Run]
) -> Iterator[tuple[int, Rank, int, str]]:
    """Yield each path that the query matches, behind what it is sorted by; those it does not match are counted off."""
    for above, run in runs:
        matching: dict[str, tuple[Rank, str]] = {}
        for entry in run:
            path = _path(above, entry)
            rank = query.rank(path) if query.rank else (0, 0)
            if rank is not None:
                matching[entry[0]] = rank, path
        page.total -= len(run) - len(matching)
        times: dict[str, int] = {}
        if query.newest and matching:
            place = RootedPath(top.root, beneath(top, above.rstrip("/") or "."))
            times = modification_times(roots, place, matching)
        for name, (rank, path) in matching.items():
            yield -times.get(name, 0), rank, len(path) if query.rank else 0, path


def _path(above: str, entry: WalkEntry) -> str:
    name, kind = entry
    return f"{above}{name}/" if kind == "directory" else above + name
