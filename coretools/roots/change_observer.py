"""The interface that observes each change beneath the roots before it is made: the undo journal, or nothing."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from coretools.roots.root import RootedPath


class Entry(NamedTuple):
    """A name in an open directory, and its place."""

    directory: int
    name: str
    place: RootedPath


class ChangeObserver(Protocol):
    """Receives changes before they are made. An error raised by a method prevents the change."""

    @property
    def last(self) -> int:
        """Id of the change that the last operation of this thread made; 0 for none."""
        ...

    @property
    def uncovered(self) -> Callable[[], Sequence[str]]:
        """Returns what undo can't take back here, as far as it is known before a change."""
        ...

    def operation(self, name: str, summary: str) -> AbstractContextManager[None]:
        """Changes of this block belong together; within another block of the same thread it does nothing."""
        ...

    def before_write(self, entry: Entry, written: int, *, is_new: bool = False, is_linked: bool = False) -> None:
        """Record that a file is about to be created or replaced by the open one, `written`.

        `is_new`: it is created, and has its name already. `is_linked`: the former file is kept itself, not as a copy,
        since its name is taken from it.
        """
        ...

    def before_new_link(self, entry: Entry, target: str) -> None:
        """Record that a symbolic link is about to be created."""
        ...

    def before_removal(self, entries: Iterable[Entry], *, is_emptied: bool = False) -> None:
        """Record that files, links or empty directories are about to be removed; with `is_emptied` emptied first."""
        ...

    def before_new_directory(self, entry: Entry) -> None:
        """Record that a directory is about to be created."""
        ...

    def before_metadata(self, entry: Entry, *, mode: int | None = None, modified_ns: int | None = None) -> None:
        """Record that the mode or time of an entry is about to be changed to these. Times of directories are not."""
        ...

    def before_move(self, source: Entry, destination: Entry) -> None:
        """Record that an entry is about to be renamed to a free name."""
        ...

    def retract(self) -> None:
        """Forget what was recorded in this operation: none of it was done."""
        ...

    def require_room(self, size: int, display_path: str) -> None:
        """Refuse to remove so many bytes if they could not be kept.

        Raises:
            TooLarge: they could not.
        """
        ...


class NoObserver:
    """Records nothing."""

    last = 0

    def uncovered(self) -> Sequence[str]:
        """Everything."""
        return ["any change: nothing is recorded, because of --no-undo, read-only roots, or what the log says"]

    def operation(self, name: str, summary: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing."""
        return nullcontext()

    def before_write(self, entry: Entry, written: int, *, is_new: bool = False, is_linked: bool = False) -> None:
        """Do nothing."""

    def before_new_link(self, entry: Entry, target: str) -> None:
        """Do nothing."""

    def before_removal(self, entries: Iterable[Entry], *, is_emptied: bool = False) -> None:
        """Do nothing."""

    def before_new_directory(self, entry: Entry) -> None:
        """Do nothing."""

    def before_metadata(self, entry: Entry, *, mode: int | None = None, modified_ns: int | None = None) -> None:
        """Do nothing."""

    def before_move(self, source: Entry, destination: Entry) -> None:
        """Do nothing."""

    def retract(self) -> None:
        """Do nothing."""

    def require_room(self, size: int, display_path: str) -> None:
        """Do nothing."""
