"""What the operating system refuses, as an error that a caller understands. The one place that reads errno for that."""

import errno
import os
from types import TracebackType

from coretools.errors import (
    AlreadyExists,
    Busy,
    CoreError,
    InputOutput,
    InvalidPath,
    NotFound,
    OutsideRoot,
    PermissionRefused,
    ReadOnly,
    WrongType,
)

_MEANINGS: dict[int, tuple[type[CoreError], str]] = {
    errno.ENOENT: (NotFound, "there is nothing at this path"),
    errno.EACCES: (PermissionRefused, "the operating system refused: permission denied"),
    errno.EPERM: (PermissionRefused, "the operating system refused: operation not permitted"),
    errno.EROFS: (ReadOnly, "the file system is mounted read-only"),
    errno.EEXIST: (AlreadyExists, "something stands at this path already"),
    errno.ENOTEMPTY: (AlreadyExists, "a directory that is not empty stands at this path already"),
    errno.ENOTDIR: (WrongType, "a part of the path that must be a directory is none"),
    errno.EISDIR: (WrongType, "it is a directory"),
    errno.ENXIO: (WrongType, "it is a device or socket that nothing answers on"),
    errno.ELOOP: (OutsideRoot, "a link in the path can't be followed"),
    errno.EXDEV: (OutsideRoot, "the path leads to another file system"),
    errno.ENAMETOOLONG: (InvalidPath, "the path, or a name in it, is too long for the file system"),
    errno.EILSEQ: (InvalidPath, "the file system can't hold a name like this"),
    errno.EBUSY: (Busy, "the operating system uses it just now"),
    errno.ETXTBSY: (Busy, "a program runs from it just now"),
    errno.ENOSPC: (InputOutput, "the disk is full"),
    errno.EDQUOT: (InputOutput, "the disk quota is used up"),
    errno.EFBIG: (InputOutput, "larger than the file system or a resource limit allows"),
    errno.EMFILE: (InputOutput, "too many files are open in this server"),
    errno.ENFILE: (InputOutput, "too many files are open on this machine"),
    errno.ESTALE: (NotFound, "it went away on its file server"),
}


class translated:  # noqa: N801 - used like a function: `with translated(shown):`
    """Turn an OSError of the block into the CoreError that goes with it, named for the path as the caller writes it."""

    __slots__ = ("_shown",)

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise failure(error, self._shown) from error


def failure(error: OSError, shown: str) -> CoreError:
    """The CoreError for an OSError. Anything unforeseen is an InputOutput with the system's own words."""
    number = error.errno or errno.EIO
    meaning, sentence = _MEANINGS.get(number, (InputOutput, os.strerror(number)))
    return meaning(f"{shown}: {sentence}", path=shown)
