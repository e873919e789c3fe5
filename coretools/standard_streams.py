"""The three standard descriptors of a server on stdio, looked after before anything else is opened."""

import os
import sys

from coretools.errors import BadSetting


def have_standard_error() -> None:
    """Give a process that was started without fd 2 a null device there: the next file would be taken for its log."""
    try:
        os.fstat(2)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != 2:
            os.dup2(null, 2)
            os.close(null)
        sys.stderr = os.fdopen(2, "w", closefd=False)


def require_wire() -> None:
    """Look for fd 0 and 1 before anything is opened, which would get the number of one that is closed.

    Raises:
        BadSetting: one of them is closed.
    """
    for number in (0, 1):
        try:
            os.fstat(number)
        except OSError:
            raise BadSetting("standard input and output must be open: they are the wire to the client") from None
