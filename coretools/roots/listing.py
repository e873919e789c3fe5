"""What directories hold: one listing, or a walk through everything beneath. Links are met, never followed."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coretools.cancellation import check_cancelled
from coretools.roots.directory_access import translate_errors
from coretools.roots.file_version import Kind, kind_of
from coretools.roots.path_text import printable
from coretools.roots.read import open_directory
from coretools.roots.root_set import RootedPath, Roots, join_path

_SCAN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A name in a directory and what has it; links are not followed."""

    name: str
    kind: Kind
    size: int | None
    """Bytes of a regular file, None of anything else."""


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """A directory's entries by name. Closed ones are there too: their names are no secret, their content is."""

    shown: str
    entries: tuple[DirectoryEntry, ...]
    total: int
    """Entries in the directory; more than `entries` holds when the limit cut them."""


WalkEntry = tuple[str, Kind]
"""A name and what has it. A name is as the file system has it: bytes that are no UTF-8 as lone surrogates."""

WalkBatch = tuple[str, list[WalkEntry]]
"""What stands before some names (empty, or a path with a slash at its end), and these, of which only the last may be a
directory."""

EntryFilter = Callable[[str, list[WalkEntry]], list[WalkEntry]]
"""Given a directory, relative to its root, and what it holds in order: the part of it that a walk meets."""


def list_directory(roots: Roots, path: str, *, limit: int) -> DirectoryListing:
    """The first `limit` entries of a directory in the order of their names.

    Raises:
        WrongType: not a directory. And what `resolve` raises.
    """
    with open_directory(roots, path) as directory, translate_errors(directory.shown):
        # A descriptor of its own: the position of a shared one is shared as well.
        fd = os.open(".", _SCAN | os.O_CLOEXEC, dir_fd=directory.fd)
        try:
            with os.scandir(fd) as scan:
                found = sorted(scan, key=lambda entry: entry.name)
            entries = tuple(_entry(entry) for entry in found[:limit])
        finally:
            os.close(fd)
    return DirectoryListing(directory.shown, entries, len(found))


def complete_path(roots: Roots, typed: str, *, most: int) -> list[str]:
    """At most `most` paths that go on from what was typed of one, directories with a slash at their end.

    In the order of their names, whatever the case of the last word. What a deny glob closes is left out.

    Raises:
        WrongType: what stands before the last slash is no directory. And what `resolve` raises.
    """
    above, slash, word = typed.rpartition("/")
    found = []
    with open_directory(roots, above + slash or ".") as directory, translate_errors(directory.shown):
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
        if roots.denied_by(RootedPath(here.root, join_path(here.relative, name))) is None:
            kept.append(f"{above}{slash}{printable(name)}{'/' if is_directory else ''}")
        if len(kept) == most:
            break
    return kept


def walk(roots: Roots, path: str, *, choose: EntryFilter, most: int) -> Iterator[WalkEntry]:
    """Everything that `walk_batches` meets, one by one, named by its path relative to the root."""
    for above, run in walk_batches(roots, path, choose=choose, most=most):
        for name, kind in run:
            yield above + name, kind


def walk_batches(roots: Roots, path: str, *, choose: EntryFilter, most: int) -> Iterator[WalkBatch]:
    """Everything beneath a directory, each directory before what it holds, names in order, at most `most` things.

    Links are met, never followed. What a deny glob closes is left out, and so is what `choose` leaves out. A directory
    that can't be read is met and not entered.

    Raises:
        WrongType: not a directory. And what `resolve` raises. All of it at once, not at the first step.
    """
    with open_directory(roots, path) as directory:
        place, shown = directory.place, directory.shown
    with translate_errors(shown):
        top = _scan(roots, place)
    return _batches(roots, place, top, choose, most=most)


def _batches(
    roots: Roots, place: RootedPath, top: list[WalkEntry], choose: EntryFilter, *, most: int
) -> Iterator[WalkBatch]:
    # No descriptor is held between two steps: each directory is opened from the root, in one act that takes no link.
    ahead = [_split_at_directories(*_filtered(roots, place, top, choose))]
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
            here = RootedPath(place.root, above + name)
            try:
                inside = _scan(roots, here)
            except OSError:
                continue
            ahead.append(_split_at_directories(*_filtered(roots, here, inside, choose)))


def _split_at_directories(above: str, found: list[WalkEntry]) -> Iterator[tuple[str, list[WalkEntry] | None]]:
    """What a directory holds, in runs that end with a directory, since what that holds comes next."""
    start = 0
    for at, (_, kind) in enumerate(found):
        if kind == "directory":
            yield above, found[start : at + 1]
            start = at + 1
    if start < len(found):
        yield above, found[start:]


def _filtered(
    roots: Roots, place: RootedPath, found: list[WalkEntry], choose: EntryFilter
) -> tuple[str, list[WalkEntry]]:
    """What stands before the names of a directory, and what is chosen of them and closed by no deny glob."""
    above = "" if place.relative == "." else f"{place.relative}/"
    found = choose(place.relative, found)
    # A name that no deny glob speaks of is open in an open directory, unless a glob speaks of one above it.
    may_deny = roots.deny.may_deny
    if roots.are_nested or any(map(may_deny, place.relative.split("/"))) or any(map(may_deny, dict(found))):
        found = [one for one in found if roots.denied_by(RootedPath(place.root, above + one[0])) is None]
    return above, found


def _scan(roots: Roots, place: RootedPath) -> list[WalkEntry]:
    """What a directory holds, in order."""
    fd = roots.resolver.open(place.root.fd, place.relative, _SCAN)
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


def _entry(entry: "os.DirEntry[str]") -> DirectoryEntry:
    name = printable(entry.name)
    if entry.is_symlink():
        return DirectoryEntry(name, "link", None)
    if entry.is_dir(follow_symlinks=False):
        return DirectoryEntry(name, "directory", None)
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        # Gone since the scan; the kind is what the directory said.
        return DirectoryEntry(name, "file" if entry.is_file(follow_symlinks=False) else "device", None)
    kind = kind_of(found.st_mode)
    return DirectoryEntry(name, kind, found.st_size if kind == "file" else None)
