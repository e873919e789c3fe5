"""Files that a person or a configuration names: regular ones of limited size, and for an argument also a pipe."""

from coretools.errors import BadSetting
from coretools.regular_file import read_regular

MAX_BYTES = 16 * 1024 * 1024
"""Claude Code keeps its history beside its servers."""


def read_bounded(path: str, most: int = MAX_BYTES, *, is_pipe_allowed: bool = False) -> bytes:
    """Read a regular file of at most `most` bytes; a FIFO without a writer never blocks.

    Raises:
        BadSetting: it can't be read, is larger, or is not a regular file (or a pipe, where one is allowed).
    """
    try:
        return read_regular(path, most, follow=True, pipes=is_pipe_allowed)[0]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{path}: cannot be read: {reason}") from error
