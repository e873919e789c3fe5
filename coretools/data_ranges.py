"""Where a sparse file has data. Standard library only: supervisors import it."""

import errno
import os
from collections.abc import Iterator


def data_ranges(handle: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that are no holes."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(handle, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = min(os.lseek(handle, begin, os.SEEK_HOLE), size)
        yield begin, end
