"""The content of a file before a change and now, as far as a tool may show it."""

import os

from coretools.errors import DeniedPath, TooLarge
from coretools.roots.git_layout import git_part
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.undo.change import SAME_CONTENT, EntryChange
from coretools.undo.content_store import ContentStore
from coretools.undo.entry_state import READ

MOST_BYTES = 256 * 1024
"""Largest file that is compared."""


def contents_around(roots: Roots, contents: ContentStore, entry: EntryChange, place: RootedPath) -> tuple[bytes, bytes]:
    """The content before a change and the one now; empty where there was or is no file.

    Raises:
        DeniedPath: it is hidden, or part of a git directory. TooLarge. OSError.
    """
    if any(git_part(part) is not None for part in entry.path.split("/")):
        raise DeniedPath(f"{entry.path}: a part of a git directory", path=entry.path)
    if entry.content == SAME_CONTENT:
        return b"", b""
    before = visible(roots, place, contents.open(entry.content)) if entry.content else b""
    now = b""
    try:
        with roots.open_parent(place) as (directory, name):
            now = visible(roots, place, os.open(name, READ, dir_fd=directory))
    except FileNotFoundError:
        pass
    return before, now


def visible(roots: Roots, place: RootedPath, fd: int) -> bytes:
    """The content of an open file, whose content decides too whether it is hidden at this place."""
    try:
        if reason := roots.hidden(place, fd):
            raise DeniedPath(f"{place.relative}: {reason}", path=place.relative)
        if os.fstat(fd).st_size > MOST_BYTES:
            raise TooLarge(f"{place.relative}: more than {MOST_BYTES} bytes")
        return os.pread(fd, MOST_BYTES, 0)
    finally:
        os.close(fd)
