"""What directories hold: one listing, or a walk through everything beneath. Links are met, never followed."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coretools.call import check_cancelled
from coretools.sandbox.failures import translated
from coretools.sandbox.kinds import Kind, kind_of
from coretools.sandbox.names import printable
from coretools.sandbox.reading import open_directory
from coretools.sandbox.roots import Place, Roots, joined

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


@dataclass(frozen=True, slots=True)
class Walked:
    """One thing that a walk met."""

    shown: str
    relative: str
    """To its root, as the file system has it: bytes that are no UTF-8 as lone surrogates."""
    kind: Kind
    size: int | None


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


def walk(roots: Roots, path: str, *, skip: Callable[[str, bool], bool], most: int) -> Iterator[Walked]:
    """Everything beneath a directory, each directory before what it holds, names in order, at most `most` things.

    Links are met, never followed. What a deny glob closes is left out, and so is what `skip` says yes to, given the
    path relative to the root and whether it is a directory. A directory that can't be read is met and not entered.

    Raises:
        WrongType: not a directory. And what `locate` raises. All of it at once, not at the first step.
    """
    with open_directory(roots, path) as directory:
        place, shown = directory.place, directory.shown
    with translated(shown):
        top = _scanned(roots, place)
    return _walk(roots, place, top, skip, most=most)


def _walk(
    roots: Roots, place: Place, top: list[Entry], skip: Callable[[str, bool], bool], *, most: int
) -> Iterator[Walked]:
    # No descriptor is held between two steps: each directory is opened from the root, in one act that takes no link.
    ahead = [iter(_open_entries(roots, place, top))]
    met = 0
    while ahead:
        entry = next(ahead[-1], None)
        if entry is None:
            ahead.pop()
            continue
        is_directory = entry.kind == "directory"
        if skip(entry.name, is_directory):
            continue
        if met >= most:
            return
        met += 1
        here = Place(place.root, entry.name)
        yield Walked(roots.shown(here), entry.name, entry.kind, entry.size)
        if is_directory:
            check_cancelled()
            try:
                inside = _scanned(roots, here)
            except OSError:
                continue
            ahead.append(iter(_open_entries(roots, here, inside)))


def _open_entries(roots: Roots, place: Place, entries: list[Entry]) -> Iterator[Entry]:
    """The entries that no deny glob closes, by their paths relative to the root."""
    for entry in entries:
        relative = joined(place.relative, entry.name)
        if roots.closed_by(Place(place.root, relative)) is None:
            yield Entry(relative, entry.kind, entry.size)


def _scanned(roots: Roots, place: Place) -> list[Entry]:
    """A directory's entries in order, named as the file system has them."""
    fd = roots.engine.open(place.root.fd, place.relative, _SCAN)
    try:
        with os.scandir(fd) as scan:
            return [_entry(entry, raw=True) for entry in sorted(scan, key=lambda entry: entry.name)]
    finally:
        os.close(fd)


def _entry(entry: "os.DirEntry[str]", *, raw: bool = False) -> Entry:
    name = entry.name if raw else printable(entry.name)
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
