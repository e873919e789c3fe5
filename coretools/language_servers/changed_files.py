"""Which files of a project changed since the last question, whoever changed them: by their stamps.

Only names and stamps are looked at; no file is opened, no link followed.
"""

import os
import time
from collections.abc import Collection
from typing import Literal, NamedTuple

MAX_FILES = 50_000
"""Maximum number of watched files. In a larger project the answer says that changes may be missed."""

MAX_SECONDS = 3.0
"""Time for one look."""

SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"})
"""Directories whose files no answer is about."""

Change = Literal["created", "changed", "deleted"]
Stamp = tuple[int, int, int]


class FileChange(NamedTuple):
    """A file that is not as it was."""

    path: str
    change: Change


class ChangedFiles:
    """The stamps of the files beneath a directory that a server knows by their names."""

    def __init__(self, top: str, endings: Collection[str], names: Collection[str]) -> None:
        self._top = top
        self._endings = tuple(f".{ending}" for ending in endings)
        self._names = frozenset(names)
        self._stamps: dict[str, Stamp] = {}
        self.is_complete = True
        """Whether the last look saw every file."""

    def look(self, seconds: float = MAX_SECONDS) -> list[FileChange]:
        """Return what changed since the last look; everything is new to the first."""
        before, after = self._stamps, self._read(seconds)
        changes = [
            FileChange(path, "changed" if path in before else "created")
            for path, stamp in after.items()
            if before.get(path) != stamp
        ]
        if self.is_complete:
            changes += [FileChange(path, "deleted") for path in before.keys() - after.keys()]
        else:
            after = {**before, **after}
        self._stamps = after
        return changes

    def _read(self, seconds: float) -> dict[str, Stamp]:
        stamps: dict[str, Stamp] = {}
        waiting, deadline = [self._top], time.monotonic() + seconds
        self.is_complete = True
        while waiting:
            if len(stamps) >= MAX_FILES or time.monotonic() > deadline:
                self.is_complete = False
                break
            waiting += _read_directory(waiting.pop(), stamps, self._endings, self._names)
        return stamps


def _read_directory(
    directory: str, stamps: dict[str, Stamp], endings: tuple[str, ...], names: Collection[str]
) -> list[str]:
    """Add the stamps of a directory's files; return its directories."""
    inner: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        inner.append(entry.path)
                elif entry.name.lower().endswith(endings) or entry.name in names:
                    status = entry.stat(follow_symlinks=False)
                    stamps[entry.path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    except OSError:  # deleted meanwhile, no permission
        pass
    return inner
