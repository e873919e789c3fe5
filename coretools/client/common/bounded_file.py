"""Files that a person or a configuration names: regular ones of limited size, and for an argument also a pipe."""

import os
import stat

from coretools.errors import BadSetting

MAX_BYTES = 16 * 1024 * 1024


def read_bounded(path: str, most: int = MAX_BYTES, *, is_pipe_allowed: bool = False) -> bytes:
    """Read a regular file of at most `most` bytes; a FIFO without a writer never blocks.

    Raises:
        BadSetting: it can't be read, is larger, or is no regular file (nor a pipe, where one is allowed).
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            is_pipe = is_pipe_allowed and stat.S_ISFIFO(mode)
            if not (stat.S_ISREG(mode) or is_pipe):
                raise BadSetting(f"{path}: is not a regular file")
            os.set_blocking(file.fileno(), True)  # a pipe ends with its writers
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{path}: cannot be read: {reason}") from error
    if len(data) > most:
        raise BadSetting(f"{path}: larger than {most} bytes")
    return data
