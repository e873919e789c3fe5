"""The three standard descriptors of a stdio server, checked before anything else is opened."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from coretools.errors import BadSetting


def ensure_standard_error() -> None:
    """Open the null device as fd 2 if it is closed; otherwise the next opened file would receive the log."""
    if not _is_open(2):
        null = os.open(os.devnull, os.O_WRONLY)
        if null != 2:
            os.dup2(null, 2)
            os.close(null)
        sys.stderr = os.fdopen(2, "w", closefd=False)


def require_standard_streams() -> None:
    """Require fd 0 and 1 to be open, before another file gets the number of a closed one.

    Raises:
        BadSetting: one of them is closed.
    """
    if not (_is_open(0) and _is_open(1)):
        raise BadSetting("standard input and output must be open: they carry the protocol")


@contextmanager
def divert_standard_streams() -> Iterator[None]:
    """Keep fd 0 and fd 1 from what runs meanwhile, its children too: it reads nothing, and prints to fd 2.

    The descriptors are exchanged and not `sys.stdout` alone, which a child or `os.write` does not know.
    """
    _flush()
    kept = [(number, fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)) for number in (0, 1) if _is_open(number)]
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number, _ in kept:
        os.dup2(2 if number == 1 and _is_open(2) else null, number)
    os.close(null)
    try:
        yield
    finally:
        # What waits in the buffer was printed meanwhile; later it would go where the descriptor leads then.
        _flush()
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None and not stream.closed:
            with suppress(OSError):
                stream.flush()


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
