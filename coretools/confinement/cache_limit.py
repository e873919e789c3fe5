"""Keep a cache that commands wrote within its limit, whatever they made of it.

Nothing in it is trusted: links are removed and never followed, directories may be nested without end or unreadable,
and every step is relative to an open directory.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from coretools.roots.directory_access import DIRECTORY

MAX_DEPTH = 64
"""Deepest directory that is measured; package managers stay far above. A cache with deeper ones is emptied."""

MAX_ENTRIES = 500_000
"""Most entries of a cache that are measured; one with more is emptied."""

_BLOCK = 512
"""Unit of `st_blocks` (inode(7))."""


@dataclass(slots=True)
class _Unit:
    """What is removed as a whole."""

    used_bytes: int = 0
    modified: float = 0.0


@dataclass(slots=True)
class _Measured:
    """The content of a cache."""

    units: dict[tuple[str, ...], _Unit] = field(default_factory=dict)
    entries: int = 0
    is_whole: bool = True
    """Whether everything was measured."""


def limit_cache(above: int, name: str, *, unit: int | None, limit_bytes: int, kept: Sequence[str] = ()) -> int:
    """Remove the oldest entries of a cache until it is within the limit; return the bytes removed.

    `unit` is the depth of what is removed as a whole, None for single files. Other entries than `kept` are removed in
    any case, if that names some. No command may use the cache meanwhile.
    """
    _make_accessible(above, name)
    top = os.open(name, DIRECTORY, dir_fd=above)
    try:
        for entry in set(os.listdir(top)) - set(kept) if kept else ():
            remove_entry(top, entry)
        measured = _measure(top, unit)
        if not measured.is_whole:
            _empty(top)
            return sum(one.used_bytes for one in measured.units.values())
        used = sum(one.used_bytes for one in measured.units.values())
        removed = 0
        for parts, one in sorted(measured.units.items(), key=lambda item: item[1].modified):
            if used - removed <= limit_bytes:
                break
            with suppress(OSError):
                _remove_at(top, parts)
                removed += one.used_bytes
        return removed
    finally:
        os.close(top)


def _measure(top: int, unit: int | None) -> _Measured:
    measured = _Measured()
    waiting: list[tuple[str, ...]] = [()]
    while waiting and measured.is_whole:
        parts = waiting.pop()
        try:
            here = _open_beneath(top, parts)
        except OSError:
            measured.is_whole = False  # a command made it so: package managers leave their directories readable
            break
        try:
            for name in os.listdir(here):
                inner = (*parts, name)
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
                is_directory = stat.S_ISDIR(status.st_mode)
                waiting += [inner] if is_directory else []
                _add(measured, inner, status, unit)
            measured.is_whole = measured.entries <= MAX_ENTRIES and len(parts) < MAX_DEPTH
        finally:
            os.close(here)
    return measured


def _add(measured: _Measured, parts: tuple[str, ...], status: os.stat_result, unit: int | None) -> None:
    measured.entries += 1
    is_directory = stat.S_ISDIR(status.st_mode)
    if is_directory and (unit is None or len(parts) < unit):
        return  # empty directories are left
    one = measured.units.setdefault(parts if unit is None else parts[:unit], _Unit())
    one.used_bytes += status.st_blocks * _BLOCK
    one.modified = max(one.modified, status.st_mtime)


def _open_beneath(top: int, parts: Sequence[str]) -> int:
    """Open a directory beneath another one, no link followed."""
    here = os.dup(top)
    for part in parts:
        try:
            inner = os.open(part, DIRECTORY, dir_fd=here)
        finally:
            os.close(here)
        here = inner
    return here


def _remove_at(top: int, parts: Sequence[str]) -> None:
    """Remove an entry beneath a directory; for no parts everything in it."""
    if not parts:
        _empty(top)
        return
    here = _open_beneath(top, parts[:-1])
    try:
        remove_entry(here, parts[-1])
    finally:
        os.close(here)


def remove_entry(above: int, name: str) -> None:
    """Remove a file, or a directory with everything in it."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=above)
        return
    _make_accessible(above, name)
    inner = os.open(name, DIRECTORY, dir_fd=above)
    try:
        _empty(inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=above)


def _empty(top: int) -> None:
    """Remove everything in a directory, however deep: what is further down is moved up first."""
    numbers = count()
    while names := os.listdir(top):
        for name in names:
            try:
                os.unlink(name, dir_fd=top)
            except (IsADirectoryError, PermissionError):
                _move_up(top, name, f".removed-{os.getpid()}-", numbers)


def _move_up(top: int, name: str, prefix: str, numbers: "count[int]") -> None:
    """Remove a directory after its files were removed and its directories moved to the one above."""
    _make_accessible(top, name)
    inner = os.open(name, DIRECTORY, dir_fd=top)
    try:
        for entry in os.listdir(inner):
            if stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                _make_accessible(inner, entry)  # the entry `..` of a moved directory changes
                os.rename(entry, _free_name(top, prefix, numbers), src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _free_name(top: int, prefix: str, numbers: "count[int]") -> str:
    for number in numbers:
        name = f"{prefix}{number}"
        try:
            os.stat(name, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            return name
    raise AssertionError("count ends")


def _make_accessible(above: int, name: str) -> None:
    """Give the owner every right on a directory: Go's module cache is read-only, and commands may hide others."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if os.fstat(handle).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
