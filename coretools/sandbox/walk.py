"""The resolver for kernels without openat2: one component at a time, each from the handle of the one before.

O_NOFOLLOW on every component, so a link is an error here as it is in `openat2`; `follow` reads it and goes on.
"""

import os

HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A directory as a place to start from; needs no right to read it where the platform has O_PATH."""


class Walk:
    """Opens a path beneath a directory step by step. See `resolve.Resolver`."""

    name = "walk"

    def open(self, beneath: int, relative: str, flags: int) -> int:
        """Open `relative`, which holds no `..`; a link anywhere in it is an OSError with ELOOP or ENOTDIR."""
        *directories, last = relative.split("/")
        top = beneath
        try:
            for name in directories:
                below = os.open(name, HANDLE, dir_fd=top)
                if top != beneath:
                    os.close(top)
                top = below
            return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        finally:
            if top != beneath:
                os.close(top)
