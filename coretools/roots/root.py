"""A root, paths beneath one, and the directories that are kept open for them."""

import difflib
import os
import posixpath
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Self

from coretools.errors import NotFound
from coretools.roots.open_beneath import HANDLE
from coretools.roots.path_text import printable


@dataclass(frozen=True, slots=True)
class RootSpec:
    """A root as the operator configures it."""

    path: str
    writable: bool = True


@dataclass(frozen=True, slots=True)
class Root:
    """A directory that is kept open. `path` is its path at start, with all links resolved."""

    name: str
    path: str
    writable: bool
    fd: int
    identity: tuple[int, int]
    """Device and inode."""
    is_on_disk: bool = False
    """Whether it lies on a local file system that no other program or machine serves, as far as known."""
    only_git: bool = False
    """Whether it is no root of the operator, but the repository of one, which only git may use."""
    is_above: bool = False
    """Whether it is no root of the operator, but the work tree above one, which only git may read."""


@dataclass(frozen=True, slots=True)
class RootedPath:
    """A path by its text: a root and a path relative to it, `.` for the root itself. May contain `..`."""

    root: Root
    relative: str

    @property
    def path(self) -> str:
        """Absolute path, for messages and comparisons only: it may name something else by now."""
        return join_path(self.root.path, self.relative)


def join_path(above: str, relative: str) -> str:
    """Join a directory's path and a relative path, where `.` is the directory itself."""
    if relative == ".":
        return above
    return relative if above == "." else f"{above}/{relative}"


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Device and inode: the identity of a file, whatever its path."""
    return status.st_dev, status.st_ino


class Closing:
    """A context manager that is closed at the end of the block."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what it holds."""
        raise NotImplementedError


@dataclass(slots=True)
class Directory(Closing):
    """An open directory. Use as a context manager, or close it."""

    fd: int
    """A descriptor to start from (`dir_fd`, working directory); it may not permit reading."""
    place: RootedPath
    """Its location, links followed."""
    display_path: str

    @property
    def path(self) -> str:
        """Absolute path of its place."""
        return self.place.path

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


NEAR_NAMES = 3
"""Similar names that an error suggests for a missing one."""


_NAMES_COMPARED = 2_000
"""Directory entries compared with a missing name; takes about 20 ms."""


@dataclass(slots=True)
class ResolvedPath(Closing):
    """The end of a path: an open directory and a name in it. Use as a context manager: it may own a descriptor."""

    root: Root
    display_path: str
    """The path as the caller wrote it."""
    fd: int
    """Descriptor of the last existing directory on the way."""
    above: str
    """That directory, relative to the root; `.` for the root."""
    name: str
    """The last name of the path; `.` when the path ends in the directory itself."""
    missing: tuple[str, ...] = ()
    """Directories between `fd` and `name` that do not exist."""
    found: os.stat_result | None = None
    """Status of the entry with that name, links not followed; None if there is none."""

    @property
    def place(self) -> RootedPath:
        """The resolved location, without links and `..`."""
        return RootedPath(
            self.root, "/".join(part for part in (self.above, *self.missing, self.name) if part != ".") or "."
        )

    def close(self) -> None:
        """Close the descriptor, unless it is the root's own."""
        if self.fd != self.root.fd:
            os.close(self.fd)
            self.fd = self.root.fd

    def enter(self, name: str) -> None:
        """Enter the directory of this name: the first of `missing`, which exists by now."""
        below = os.open(name, HANDLE, dir_fd=self.fd)
        self.close()
        self.fd = below
        self.above = join_path(self.above, name)
        self.missing = self.missing[1:]

    def require_found(self) -> os.stat_result:
        """The status of the entry at the path.

        Raises:
            NotFound: there is none.
        """
        if self.found is None:
            near = self._similar_paths()
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            what = "there is nothing at this path"
            if self._is_behind_link():
                what = f"a link leads to {printable(self.place.relative)}, where there is nothing"
            raise NotFound(f"{self.display_path}: {what}{hint}", path=self.display_path)
        return self.found

    def _is_behind_link(self) -> bool:
        """Whether a link led somewhere else than the path as written."""
        written = posixpath.normpath(self.display_path).removeprefix("/")
        return not posixpath.join(self.root.path, self.place.relative).endswith(f"/{written}")

    def _similar_paths(self) -> list[str]:
        """Existing paths that differ slightly in the first missing name."""
        wanted = (*self.missing, self.name)[0]
        parts = self.display_path.split("/")
        above = "/".join(parts[: -1 - len(self.missing)])
        with suppress(OSError):
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
            try:
                with os.scandir(fd) as scan:
                    names = [printable(entry.name) for entry in islice(scan, _NAMES_COMPARED)]
            finally:
                os.close(fd)
            same = [name for name in names if name.casefold() == wanted.casefold()]
            near = same or difflib.get_close_matches(wanted, names, n=NEAR_NAMES, cutoff=0.7)
            return [join_path(above, name) if above else name for name in near[:NEAR_NAMES]]
        return []
