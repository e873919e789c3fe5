"""What directories hold: one listing, or a walk through everything beneath. Links are met, never followed."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coretools.cancellation import check_cancelled
from coretools.roots.directory_access import translated
from coretools.roots.file_version import Kind, kind_of
from coretools.roots.path_text import printable
from coretools.roots.read import open_directory
from coretools.roots.root_set import Place, Roots, joined

_SCAN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a directory and what has it; links are not followed."""

    name: str
    kind: Kind
    size: int | None
    """Bytes of a regular file, None of anything else."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory's entries by name. Closed ones are there too: their names are no secret, their content is."""

    shown: str
    entries: tuple[Entry, ...]
    total: int
    """Entries in the directory; more than `entries` holds when the limit cut them."""


Met = tuple[str, Kind]
"""A name and what has it. A name is as the file system has it: bytes that are no UTF-8 as lone surrogates."""

Run = tuple[str, list[Met]]
"""What stands before some names (empty, or a path with a slash at its end), and these, of which only the last may be a
directory."""

Choose = Callable[[str, list[Met]], list[Met]]
"""Given a directory, relative to its root, and what it holds in order: the part of it that a walk meets."""


def list_directory(roots: Roots, path: str, *, limit: int) -> Listing:
    """The first `limit` entries of a directory in the order of their names.

    Raises:
        WrongType: not a directory. And what `locate` raises.
    """
    with open_directory(roots, path) as directory, translated(directory.shown):
        # A descriptor of its own: the position of a shared one is shared as well.
        fd = os.open(".", _SCAN | os.O_CLOEXEC, dir_fd=directory.fd)
        try:
            with os.scandir(fd) as scan:
                found = sorted(scan, key=lambda entry: entry.name)
            entries = tuple(_entry(entry) for entry in found[:limit])
        finally:
            os.close(fd)
    return Listing(directory.shown, entries, len(found))


def beginning_with(roots: Roots, typed: str, *, most: int) -> list[str]:
    """At most `most` paths that go on from what was typed of one, directories with a slash at their end.

    In the order of their names, whatever the case of the last word. What a deny glob closes is left out.

    Raises:
        WrongType: what stands before the last slash is no directory. And what `locate` raises.
    """
    above, slash, word = typed.rpartition("/")
    found = []
    with open_directory(roots, above + slash or ".") as directory, translated(directory.shown):
        fd = os.open(".", _SCAN | os.O_CLOEXEC, dir_fd=directory.fd)
        try:
            with os.scandir(fd) as scan:
                for entry in scan:
                    check_cancelled()
                    if entry.name.casefold().startswith(word.casefold()):
                        found.append((entry.name, entry.is_dir(follow_symlinks=False)))
        finally:
            os.close(fd)
        here = directory.place
    kept = []
    for name, is_directory in sorted(found):
        if roots.closed_by(Place(here.root, joined(here.relative, name))) is None:
            kept.append(f"{above}{slash}{printable(name)}{'/' if is_directory else ''}")
        if len(kept) == most:
            break
    return kept


def walk(roots: Roots, path: str, *, choose: Choose, most: int) -> Iterator[Met]:
    """Everything that `walk_in_runs` meets, one by one, named by its path relative to the root."""
    for above, run in walk_in_runs(roots, path, choose=choose, most=most):
        for name, kind in run:
            yield above + name, kind


def walk_in_runs(roots: Roots, path: str, *, choose: Choose, most: int) -> Iterator[Run]:
    """Everything beneath a directory, each directory before what it holds, names in order, at most `most` things.

    Links are met, never followed. What a deny glob closes is left out, and so is what `choose` leaves out. A directory
    that can't be read is met and not entered.

    Raises:
        WrongType: not a directory. And what `locate` raises. All of it at once, not at the first step.
    """
    with open_directory(roots, path) as directory:
        place, shown = directory.place, directory.shown
    with translated(shown):
        top = _scanned(roots, place)
    return _runs(roots, place, top, choose, most=most)


def _runs(roots: Roots, place: Place, top: list[Met], choose: Choose, *, most: int) -> Iterator[Run]:
    # No descriptor is held between two steps: each directory is opened from the root, in one act that takes no link.
    ahead = [_cut(*_chosen(roots, place, top, choose))]
    while ahead:
        above, run = next(ahead[-1], ("", None))
        if run is None:
            ahead.pop()
            continue
        if len(run) > most:
            yield above, run[:most]
            return
        most -= len(run)
        yield above, run
        name, kind = run[-1]
        if kind == "directory":
            check_cancelled()
            here = Place(place.root, above + name)
            try:
                inside = _scanned(roots, here)
            except OSError:
                continue
            ahead.append(_cut(*_chosen(roots, here, inside, choose)))


def _cut(above: str, found: list[Met]) -> Iterator[tuple[str, list[Met] | None]]:
    """What a directory holds, in runs that end with a directory, since what that holds comes next."""
    start = 0
    for at, (_, kind) in enumerate(found):
        if kind == "directory":
            yield above, found[start : at + 1]
            start = at + 1
    if start < len(found):
        yield above, found[start:]


def _chosen(roots: Roots, place: Place, found: list[Met], choose: Choose) -> tuple[str, list[Met]]:
    """What stands before the names of a directory, and what is chosen of them and closed by no deny glob."""
    above = "" if place.relative == "." else f"{place.relative}/"
    found = choose(place.relative, found)
    # A name that no deny glob speaks of is open in an open directory, unless a glob speaks of one above it.
    may_cover = roots.deny.may_cover
    if roots.are_nested or any(map(may_cover, place.relative.split("/"))) or any(map(may_cover, dict(found))):
        found = [one for one in found if roots.closed_by(Place(place.root, above + one[0])) is None]
    return above, found


def _scanned(roots: Roots, place: Place) -> list[Met]:
    """What a directory holds, in order."""
    fd = roots.engine.open(place.root.fd, place.relative, _SCAN)
    try:
        with os.scandir(fd) as scan:
            return sorted(
                # Most are files: those take one question, and no call of a function.
                [(entry.name, "file" if entry.is_file(follow_symlinks=False) else _kind(entry)) for entry in scan]
            )
    finally:
        os.close(fd)


def _kind(entry: "os.DirEntry[str]") -> Kind:
    """Of what is no file, as far as the directory itself tells."""
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "link" if entry.is_symlink() else "device"


def _entry(entry: "os.DirEntry[str]") -> Entry:
    name = printable(entry.name)
    if entry.is_symlink():
        return Entry(name, "link", None)
    if entry.is_dir(follow_symlinks=False):
        return Entry(name, "directory", None)
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        # Gone since the scan; the kind is what the directory said.
        return Entry(name, "file" if entry.is_file(follow_symlinks=False) else "device", None)
    kind = kind_of(found.st_mode)
    return Entry(name, kind, found.st_size if kind == "file" else None)
