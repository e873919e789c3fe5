"""What stands outside the roots, as far as a decision needs it: may another program be left to open this file?

Opens nothing and reads nothing; and the answer is one bit, so that a refusal need not say what stands there.
"""

import os
import stat


def is_harmless_to_open(path: str, *, limit_bytes: int) -> bool:
    """Whether nothing is at this absolute path, or a regular file of at most `limit_bytes`. Links are followed.

    Blocks as long as the file system does: for a worker thread that can be abandoned.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= limit_bytes
