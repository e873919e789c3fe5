"""List one directory, or walk a whole tree. Links are reported, never followed."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from coretools.cancellation import check_cancelled
from coretools.roots.directory_access import translate_errors
from coretools.roots.file_version import Kind, kind_of
from coretools.roots.path_text import printable
from coretools.roots.read import open_directory
from coretools.roots.root import RootedPath, join_path
from coretools.roots.root_set import Roots

_SCAN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class DirectoryEntry(NamedTuple):
    """An entry of a directory; links are not followed."""

    name: str
    kind: Kind
    size: int | None
    """Bytes of a regular file, None of anything else."""


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """A directory's entries, sorted by name. Denied ones are included: their content is secret, their names are not."""

    display_path: str
    entries: tuple[DirectoryEntry, ...]
    total: int
    """Number of entries in the directory, which may exceed the limit on `entries`."""


WalkEntry = tuple[str, Kind]
"""Name and kind of an entry. Bytes of the name that are not UTF-8 appear as lone surrogates."""

WalkBatch = tuple[str, list[WalkEntry]]
"""A prefix (empty, or a path with a trailing slash) and entries beneath it; only the last one may be a directory."""

PlacedEntry = tuple[RootedPath, DirectoryEntry]
"""An entry and its place, whose name is as in the file system."""

EntryFilter = Callable[[str, list[WalkEntry]], list[WalkEntry]]
"""Given a directory, relative to its root, and its sorted entries: those that a walk reports."""


def list_directory(roots: Roots, path: str, *, limit: int) -> DirectoryListing:
    """The first `limit` entries of a directory, sorted by name.

    Raises:
        WrongType: not a directory. And what `resolve` raises.
    """
    with open_directory(roots, path) as directory, translate_errors(directory.display_path):
        # A separate descriptor: duplicates share one read position.
        fd = os.open(".", _SCAN | os.O_CLOEXEC, dir_fd=directory.fd)
        try:
            with os.scandir(fd) as scan:
                listed = sorted(scan, key=lambda entry: entry.name)
            entries = tuple(_entry(entry) for entry in listed[:limit])
        finally:
            os.close(fd)
    return DirectoryListing(directory.display_path, entries, len(listed))


def complete_path(roots: Roots, typed: str, *, most: int) -> list[str]:
    """Up to `most` completions of a partly typed path, sorted by name; directories end with a slash.

    The last component matches regardless of case. Paths that a deny glob matches are left out.

    Raises:
        WrongType: the part before the last slash is not a directory. And what `resolve` raises.
    """
    above, slash, word = typed.rpartition("/")
    matching = []
    with open_directory(roots, above + slash or ".") as directory, translate_errors(directory.display_path):
        fd = os.open(".", _SCAN | os.O_CLOEXEC, dir_fd=directory.fd)
        try:
            with os.scandir(fd) as scan:
                for entry in scan:
                    check_cancelled()
                    if entry.name.casefold().startswith(word.casefold()):
                        matching.append((entry.name, entry.is_dir(follow_symlinks=False)))
        finally:
            os.close(fd)
        here = directory.place
    kept = []
    for name, is_directory in sorted(matching):
        if roots.denied_by(RootedPath(here.root, join_path(here.relative, name))) is None:
            kept.append(f"{above}{slash}{printable(name)}{'/' if is_directory else ''}")
        if len(kept) == most:
            break
    return kept


def walk_batches(roots: Roots, path: str, *, choose: EntryFilter, most: int) -> Iterator[WalkBatch]:
    """All entries beneath a directory, in pre-order and sorted by name, at most `most` of them.

    Links are reported, never followed. Entries that a deny glob matches, or that `choose` drops, are left out. A
    directory that cannot be read is reported and not entered.

    Raises:
        WrongType: not a directory. And what `resolve` raises. Raised by the call, not by the first step.
    """
    with open_directory(roots, path) as directory:
        place, display_path = directory.place, directory.display_path
    with translate_errors(display_path):
        top = _scan(roots, place)
    return _batches(roots, place, top, choose, most=most)


def sized_entries(
    roots: Roots, place: RootedPath, choose: EntryFilter
) -> list[tuple[RootedPath, DirectoryEntry]] | None:
    """The entries of a directory that `choose` keeps, each with its place, sorted by name; None if it cannot be read.

    As in a walk: no links are followed, and entries that a deny glob matches are left out.
    """
    try:
        fd = roots.resolver.open(place.root.fd, place.relative, _SCAN)
    except OSError:
        return None
    try:
        with os.scandir(fd) as scan:
            # Names as they are in the file system: `choose` and the deny globs decide by them.
            entries = {entry.name: _entry(entry) for entry in scan}
    except OSError:
        return None
    finally:
        os.close(fd)
    names = sorted((name, entry.kind) for name, entry in entries.items())
    above, kept = _filtered(roots, place, names, choose)
    return [(RootedPath(place.root, above + name), entries[name]) for name, _ in kept]


def _batches(
    roots: Roots, place: RootedPath, top: list[WalkEntry], choose: EntryFilter, *, most: int
) -> Iterator[WalkBatch]:
    # No descriptor stays open between two steps: each directory is opened from the root, in one call without links.
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


def modification_times(roots: Roots, place: RootedPath, names: Iterable[str]) -> dict[str, int]:
    """Return the modification times, in ns, of entries of a directory; without those that are gone meanwhile."""
    times = {}
    with suppress(OSError):
        fd = roots.resolver.open(place.root.fd, place.relative, _SCAN)
        try:
            for name in names:
                with suppress(OSError):
                    times[name] = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime_ns
        finally:
            os.close(fd)
    return times


def _split_at_directories(above: str, entries: list[WalkEntry]) -> Iterator[tuple[str, list[WalkEntry] | None]]:
    """Split the entries of a directory after each subdirectory, whose own entries come next."""
    start = 0
    for at, (_, kind) in enumerate(entries):
        if kind == "directory":
            yield above, entries[start : at + 1]
            start = at + 1
    if start < len(entries):
        yield above, entries[start:]


def _filtered(
    roots: Roots, place: RootedPath, entries: list[WalkEntry], choose: EntryFilter
) -> tuple[str, list[WalkEntry]]:
    """The prefix of a directory's names, and its entries that `choose` keeps and no deny glob matches."""
    above = "" if place.relative == "." else f"{place.relative}/"
    entries = choose(place.relative, entries)
    # A name that occurs in no deny glob is allowed in an allowed directory, unless a glob names a parent.
    may_deny = roots.deny.may_deny
    if roots.are_nested or any(map(may_deny, place.relative.split("/"))) or any(map(may_deny, dict(entries))):
        entries = [one for one in entries if roots.denied_by(RootedPath(place.root, above + one[0])) is None]
    return above, entries


def _scan(roots: Roots, place: RootedPath) -> list[WalkEntry]:
    """The sorted entries of a directory."""
    fd = roots.resolver.open(place.root.fd, place.relative, _SCAN)
    try:
        with os.scandir(fd) as scan:
            return sorted(
                # Most entries are files: test for those first, without a function call.
                [(entry.name, "file" if entry.is_file(follow_symlinks=False) else _kind(entry)) for entry in scan]
            )
    finally:
        os.close(fd)


def _kind(entry: "os.DirEntry[str]") -> Kind:
    """The kind of an entry that is not a file, as far as the directory itself reports it."""
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
        # Deleted since the scan; use the kind that the directory reported.
        return DirectoryEntry(name, "file" if entry.is_file(follow_symlinks=False) else "device", None)
    kind = kind_of(found.st_mode)
    return DirectoryEntry(name, kind, found.st_size if kind == "file" else None)
