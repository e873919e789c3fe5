"""What a command on trial changed: the upper directory of an overlay compared with the root beneath it.

The command has written everything here, so nothing is followed or believed: entries are opened by name in an open
directory, links are not followed, and size, number and depth are limited. What the kernel notes there itself
(`user.overlay.*`) no command can write: inside an overlay that name is another one.
"""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

from coretools.confinement.trial_view import Layer
from coretools.errors import TooLarge
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.root import Root, join_path
from coretools.undo.entry_state import BLOCK_BYTES, READ

OWN = "user.overlay."
"""Attributes of the overlay itself."""
_ORIGIN, _OPAQUE = "user.overlay.origin", "user.overlay.opaque"
"""On what was copied from the root, and on a directory that shows nothing of the one beneath it."""

MAX_DEPTH = 200
"""Directories in each other; each takes two descriptors while a trial is compared."""

_STATUS_BLOCK = 512
"""Unit of `st_blocks` (stat(2))."""

What = Literal["added", "changed", "replaced", "deleted", "touched"]


class Difference(NamedTuple):
    """One entry that a trial would change. Its descriptor stays open until the iterator advances."""

    root: Root
    path: str
    what: What
    """`replaced`: by another kind of entry; `touched`: only the time changed, of a directory perhaps what is in it."""
    directory: int
    """Descriptor of the directory with the new entry."""
    name: str
    above: os.stat_result
    below: os.stat_result | None
    """What the root has there now."""
    details: tuple[str, ...] = ()
    """What changed: `content`, `mode`, `attributes`, `links`."""
    is_copy: bool = False
    """Whether it was copied from the root, where it was under this name or another when the command changed it."""
    directory_changed_ns: int = 0
    """When the root's directory was last changed; 0 if there is none."""

    @property
    def is_directory(self) -> bool:
        """Whether the new entry is a directory, or the deleted one was."""
        status = self.below if self.what == "deleted" and self.below is not None else self.above
        return stat.S_ISDIR(status.st_mode)


@dataclass(slots=True)
class Budget:
    """What a trial may still have."""

    entries: int
    size: int

    def take(self, status: os.stat_result) -> None:
        """Count an entry.

        Raises:
            TooLarge: the trial has more than it may.
        """
        self.entries -= 1
        self.size -= status.st_blocks * _STATUS_BLOCK
        if self.entries < 0:
            raise TooLarge("it changed too many entries")
        if self.size < 0:
            raise TooLarge("what it wrote is too large")


def differences(layer: Layer, budget: Budget) -> Generator[Difference]:
    """Yield what differs from a root, a directory before what is in it. Close the iterator.

    Raises:
        TooLarge: more than the budget, or nested too deep. OSError.
    """
    upper = os.open(layer.upper, DIRECTORY)
    try:
        top = Difference(layer.root, ".", "changed", upper, ".", os.fstat(upper), os.fstat(layer.root.fd), is_copy=True)
        yield from _directory_itself(top)
        yield from _Walk(layer.root, budget).compare(upper, layer.root.fd, ".", is_opaque=False)
    finally:
        os.close(upper)


class _Walk:
    def __init__(self, root: Root, budget: Budget) -> None:
        self._root = root
        self._budget = budget

    def compare(
        self, upper: int, lower: int | None, path: str, *, is_opaque: bool, depth: int = 0
    ) -> Iterator[Difference]:
        """Compare two directories; nothing is there to compare with if `lower` is None."""
        if depth > MAX_DEPTH:
            raise TooLarge(f"it nested directories deeper than {MAX_DEPTH}")
        names = []
        with os.scandir(upper) as entries:
            for entry in entries:
                self._budget.take(entry.stat(follow_symlinks=False))
                names.append(entry.name)
        changed_ns = 0 if lower is None else os.fstat(lower).st_ctime_ns
        for name in sorted(names):
            above = os.stat(name, dir_fd=upper, follow_symlinks=False)
            below = _status(lower, name)
            here = Difference(self._root, join_path(path, name), "changed", upper, name, above, below)
            here = here._replace(directory_changed_ns=changed_ns)
            if stat.S_ISCHR(above.st_mode):  # a whiteout; commands can't make devices
                if below is not None:
                    yield here._replace(what="deleted")
            elif stat.S_ISDIR(above.st_mode):
                yield from self._compare_directory(here, lower, depth)
            else:
                yield from _compare_file(here, lower)
        if is_opaque and lower is not None:
            yield from self._deleted_in(upper, lower, path, set(names))

    def _compare_directory(self, here: Difference, lower: int | None, depth: int) -> Iterator[Difference]:
        with _opened(here.directory, here.name, here.above, DIRECTORY) as upper:
            own = set(os.listxattr(upper))
            is_opaque = _OPAQUE in own and os.getxattr(upper, _OPAQUE) == b"y"
            here = here._replace(is_copy=_ORIGIN in own)
            if here.below is None or not stat.S_ISDIR(here.below.st_mode):
                yield here._replace(what="added" if here.below is None else "replaced")
                yield from self.compare(upper, None, here.path, is_opaque=False, depth=depth + 1)
                return
            if not here.is_copy and not is_opaque:  # in the root it is newer than the trial
                yield here._replace(what="added")
            else:
                yield from _directory_itself(here)
            assert lower is not None
            below = os.open(here.name, DIRECTORY, dir_fd=lower)
            try:
                yield from self.compare(upper, below, here.path, is_opaque=is_opaque, depth=depth + 1)
            finally:
                os.close(below)

    def _deleted_in(self, upper: int, lower: int, path: str, kept: set[str]) -> Iterator[Difference]:
        """Yield what the root has in a directory that the command deleted and made again."""
        for name in sorted(set(os.listdir(lower)) - kept):
            below = _status(lower, name)
            if below is not None:
                place = join_path(path, name)
                yield Difference(self._root, place, "deleted", upper, name, below, below)


def _directory_itself(here: Difference) -> Iterator[Difference]:
    """Compare permissions and time of a directory that is in both. Special permissions are not kept."""
    above, below = here.above, here.below
    assert below is not None
    if (above.st_mode ^ below.st_mode) & 0o1777:
        yield here._replace(details=("mode",))
    elif above.st_mtime_ns != below.st_mtime_ns:
        yield here._replace(what="touched")


def _compare_file(here: Difference, lower: int | None) -> Iterator[Difference]:
    above, below = here.above, here.below
    if stat.S_ISREG(above.st_mode):
        with _opened(here.directory, here.name, above, READ) as upper:
            here = here._replace(is_copy=_ORIGIN in os.listxattr(upper))
            if below is not None and lower is not None and stat.S_ISREG(below.st_mode):
                details = _file_details(here, upper, lower)
                if details or above.st_mtime_ns != below.st_mtime_ns:
                    yield here._replace(what="changed" if details else "touched", details=details)
                return
    if below is None:
        yield here._replace(what="added")
    elif stat.S_IFMT(above.st_mode) != stat.S_IFMT(below.st_mode):
        yield here._replace(what="replaced")
    elif stat.S_ISLNK(above.st_mode):
        assert lower is not None
        if os.readlink(here.name, dir_fd=here.directory) != os.readlink(here.name, dir_fd=lower):
            yield here._replace(details=("content",))


def _file_details(here: Difference, upper: int, lower: int) -> tuple[str, ...]:
    """What differs between two files: one that was opened for writing is copied, whatever was written."""
    above, below = here.above, here.below
    assert below is not None
    try:
        former = os.open(here.name, READ, dir_fd=lower)
    except PermissionError:
        return ("content",)
    try:
        tests = {
            "content": above.st_size != below.st_size or not _has_same_content(upper, former),
            "mode": stat.S_IMODE(above.st_mode) != stat.S_IMODE(below.st_mode),
            "attributes": attributes(upper) != attributes(former),
            "links": above.st_nlink > 1,  # the command made another name for it
        }
    finally:
        os.close(former)
    return tuple(what for what, differs in tests.items() if differs)


def _has_same_content(one: int, other: int) -> bool:
    offset = 0
    while True:
        block = os.pread(one, BLOCK_BYTES, offset)
        if block != os.pread(other, BLOCK_BYTES, offset):
            return False
        if not block:
            return True
        offset += len(block)


def attributes(handle: int) -> dict[str, bytes]:
    """The extended attributes of an open file that are not the overlay's own."""
    names = [name for name in os.listxattr(handle) if name.startswith("user.") and not name.startswith(OWN)]
    return {name: os.getxattr(handle, name) for name in names}


@contextmanager
def _opened(directory: int, name: str, status: os.stat_result, flags: int) -> Iterator[int]:
    """Open an entry of the upper directory, with the owner's rights for a moment if the command took them away."""
    missing = (0o700 if flags == DIRECTORY else 0o400) & ~status.st_mode
    if missing:
        os.chmod(name, stat.S_IMODE(status.st_mode) | missing, dir_fd=directory)
    try:
        handle = os.open(name, flags, dir_fd=directory)
    finally:
        if missing and flags != DIRECTORY:
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=directory)
    try:
        yield handle
    finally:
        if missing and flags == DIRECTORY:
            os.fchmod(handle, stat.S_IMODE(status.st_mode))
        os.close(handle)


def _status(directory: int | None, name: str) -> os.stat_result | None:
    if directory is not None:
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
    return None


def statuses_beneath(directory: int, name: str) -> Iterator[os.stat_result]:
    """The statuses of what is in the directory of this name, links not followed.

    Raises:
        OSError: it can't be listed. RecursionError: it is nested some 900 deep.
    """

    def fail(error: OSError) -> None:
        raise error

    for _, directories, files, handle in os.fwalk(name, dir_fd=directory, onerror=fail):
        for name in (*directories, *files):
            status = _status(handle, name)
            if status is not None:
                yield status
