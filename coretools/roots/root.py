"""A root, a path beneath one, and a directory that is kept open."""

import os
from dataclasses import dataclass
from types import TracebackType
from typing import Self


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


@dataclass(frozen=True, slots=True)
class RootedPath:
    """A path by its text: a root and a path relative to it, `.` for the root itself. May contain `..`."""

    root: Root
    relative: str


def join_path(above: str, relative: str) -> str:
    """Join a directory's path and a relative path, where `.` is the directory itself."""
    if relative == ".":
        return above
    return relative if above == "." else f"{above}/{relative}"


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """Device and inode: the identity of a file, whatever its path."""
    return found.st_dev, found.st_ino


@dataclass(slots=True)
class Directory:
    """An open directory. Use as a context manager, or close it."""

    fd: int
    """A descriptor to start from (`dir_fd`, working directory); it may not permit reading."""
    place: RootedPath
    """Its location, links followed."""
    display_path: str

    @property
    def path(self) -> str:
        """Absolute path, for messages only: it may name something else by now."""
        return join_path(self.place.root.path, self.place.relative)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
