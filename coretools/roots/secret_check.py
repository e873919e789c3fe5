"""Decide whether a suspect file is hidden: by its content, unless git's index has the same content.

The only implementation of this decision, for tools and for the mount namespaces of commands. It is not enough that a
path is tracked: a command can write any path into an index. It cannot know the object name of content that it never
read, so the object names are compared, for this path and a single entry. Blocks on files: call it in a worker thread,
or for the few files whose name suggests a secret.
"""

import hashlib
import os
import posixpath
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from coretools.roots.file_version import Version, version_of
from coretools.roots.git_index import MAX_INDEX_BYTES, BadIndex, index_objects
from coretools.roots.open_beneath import Resolver
from coretools.roots.secret_formats import HEAD_BYTES, MAX_BYTES, is_settled, secret_in
from coretools.roots.secret_names import ANY_CONFIGURATION

UNREADABLE = "it can't be read to see whether it holds a secret"
UNDECIDED = f"it holds no secret in its first {MAX_BYTES // 1024} KiB and is too long to look further"
NO_FILE = "it is no regular file, and what it gives may be a secret"

ABSENT = (0, 0)

HASHED_BYTES = 16 * 1024 * 1024
"""A larger secret is hidden, whatever git has."""

MAX_LEVELS = 64
"""Parent directories searched for a repository; a secret nested deeper in one is hidden."""

_POINTER_BYTES = 4096
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_HANDLE = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
_HASHES = (("sha1", 20), ("sha256", 32))
"""Hash algorithms of repositories, and the size of their object names in bytes (extensions.objectFormat)."""


class SecretDecision(NamedTuple):
    """The decision about a suspect file."""

    reason: str
    """Why it is hidden, as a clause; "" if it may be read."""
    index_paths: tuple[str, ...] = ()
    """Absolute path of the deciding index; of all possible ones, if there is no repository yet."""
    inode: tuple[int, int] | None = None
    """Device and inode of the examined file; `ABSENT` if there was none."""


class _Index(NamedTuple):
    version: Version
    data: bytes
    objects: dict[bytes, bytes]


class SecretCheck:
    """Decides about suspect files beneath the roots, which are given by path and descriptor."""

    def __init__(self, resolver: Resolver, tops: Sequence[tuple[str, int]]) -> None:
        self._resolver = resolver
        self._tops = tops
        self._last: _Index | None = None
        """The last index that was read: many files of one repository are checked in a row."""

    def decide(self, top: tuple[str, int], relative: str, kind: str) -> SecretDecision:
        """Decide about a path beneath a root, links not followed. A directory or a link is never hidden."""
        decision = self._decide(top, relative, kind)
        # With an ordinary name it is no suspect.
        return (
            SecretDecision("") if kind == ANY_CONFIGURATION and decision.reason in (UNREADABLE, NO_FILE) else decision
        )

    def _decide(self, top: tuple[str, int], relative: str, kind: str) -> SecretDecision:
        try:
            handle = self._resolver.open(top[1], relative, _HANDLE)
        except FileNotFoundError:
            return SecretDecision("", inode=ABSENT)
        except (OSError, ValueError):
            return SecretDecision(UNREADABLE)
        try:
            status = os.fstat(handle)
        finally:
            os.close(handle)
        mode = status.st_mode
        if stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
            return SecretDecision("", inode=(status.st_dev, status.st_ino))
        if not stat.S_ISREG(mode):
            return SecretDecision(NO_FILE)
        with self._opened(top[1], relative) as fd:
            return SecretDecision(UNREADABLE) if fd is None else self.decide_open(top, relative, kind, fd)

    def decide_open(self, top: tuple[str, int], relative: str, kind: str, fd: int) -> SecretDecision:
        """Decide about a regular file by its descriptor."""
        try:
            version, reason = _version_of(fd)[0], _content(kind, fd)
            inode = (version.device, version.inode)
            if not reason:
                return SecretDecision("", inode=inode)
            index = next(self._repositories(top, relative), None)
            if index is None:
                return SecretDecision(reason, _possible_indexes(top[0], relative), inode)
            path = f"{index[0][0]}/{index[1]}"
            return SecretDecision("" if self._is_published(index, fd) else reason, (path,), inode)
        except OSError:
            return SecretDecision(UNREADABLE)

    def _is_published(self, place: tuple[tuple[str, int], str, str], fd: int) -> bool:
        """Whether git's index has this content for this path, with line endings as they are or as git stores them."""
        data = _read(fd, HASHED_BYTES + 1)
        index = self._index_at(place[0][1], place[1]) if len(data) <= HASHED_BYTES else None
        if index is None:
            return False
        names = {data, data.replace(b"\r\n", b"\n")}
        for algorithm, size in _HASHES:
            wanted = {_object_name(algorithm, content) for content in names}
            # A search of the bytes first: most secrets are in no index, and parsing one of 300,000 files takes long.
            if any(one in index.data for one in wanted):
                return self._objects(index, size).get(os.fsencode(place[2])) in wanted
        return False

    def _objects(self, index: _Index, size: int) -> dict[bytes, bytes]:
        if not index.objects:
            try:
                index.objects.update(index_objects(index.data, hash_bytes=size))
            except BadIndex:
                return {}
        return index.objects

    def _index_at(self, beneath: int, path: str) -> _Index | None:
        with self._opened(beneath, path) as fd:
            if fd is None:
                return None
            version, now = _version_of(fd)[0], time.time_ns()
            if version.size > MAX_INDEX_BYTES:
                return None
            last = self._last
            if last is None or last.version != version or not version.is_settled(now):
                last = self._last = _Index(version, _read(fd, MAX_INDEX_BYTES), {})
            return last

    def _repositories(self, top: tuple[str, int], relative: str) -> Iterator[tuple[tuple[str, int], str, str]]:
        """Root, path and file name for the nearest index upwards: at most one."""
        outer = next((one for one in self._tops if top[0].startswith(f"{one[0]}/")), None)
        if outer is not None:  # a nested root may be part of the outer root's repository
            top, relative = outer, f"{top[0][len(outer[0]) + 1 :]}/{relative}"
        above = relative
        for _ in range(MAX_LEVELS):
            if not above:
                return
            above = posixpath.dirname(above)
            path = posixpath.join(above, ".git")
            entry = self._version(top[1], path)
            if entry is not None:
                name = posixpath.relpath(relative, above or ".")
                if stat.S_ISDIR(entry[1]):
                    yield top, f"{path}/index", name
                elif stat.S_ISREG(entry[1]):
                    yield from ((place, inner, name) for place, inner in self._pointed(top, path, above))
                return

    def _pointed(self, top: tuple[str, int], path: str, above: str) -> Iterator[tuple[tuple[str, int], str]]:
        """The index that a `.git` file leads to (gitrepository-layout(5)), if it lies beneath a root."""
        with self._opened(top[1], path) as fd:
            words = b"" if fd is None else _read(fd, _POINTER_BYTES)
        if not words.startswith(b"gitdir: "):
            return
        target = os.fsdecode(words[len(b"gitdir: ") :].rstrip(b"\r\n"))
        absolute = posixpath.normpath(posixpath.join(top[0], above, target))
        for place in self._tops:
            if absolute.startswith(f"{place[0]}/"):
                yield place, f"{absolute[len(place[0]) + 1 :]}/index"
                return

    @contextmanager
    def _opened(self, beneath: int, path: str) -> Iterator[int | None]:
        """Open a regular file; None for anything else. Opening a FIFO would wake its writer."""
        entry = self._version(beneath, path)
        fd = None
        try:
            if entry is not None and stat.S_ISREG(entry[1]):
                fd = self._resolver.open(beneath, path, _READ)
        except OSError:
            fd = None
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def _version(self, beneath: int, path: str) -> tuple[Version, int] | None:
        """Version and mode of a path; None if it does not exist or contains a link."""
        try:
            handle = self._resolver.open(beneath, path, _HANDLE)
        except (OSError, ValueError):
            return None
        try:
            return _version_of(handle)
        finally:
            os.close(handle)


def _version_of(fd: int) -> tuple[Version, int]:
    status = os.fstat(fd)
    return version_of(status), status.st_mode


def _possible_indexes(top: str, relative: str) -> tuple[str, ...]:
    parts = relative.split("/")
    nearest = range(max(0, len(parts) - MAX_LEVELS), len(parts))
    return tuple("/".join((top, *parts[:end], ".git", "index")) for end in nearest)


def _content(kind: str, fd: int) -> str:
    """Why the content must be hidden; "" if it need not be."""
    data = _read(fd, HEAD_BYTES)
    secret = secret_in(kind, data)
    if not secret and len(data) == HEAD_BYTES and not is_settled(kind, data):
        data = _read(fd, MAX_BYTES + 1)
        secret = secret_in(kind, data)
        if not secret and len(data) > MAX_BYTES:
            return UNDECIDED
    return f"it holds {secret}" if secret else ""


def _read(fd: int, most: int) -> bytes:
    """The first bytes of a file, regardless of the descriptor's position."""
    blocks: list[bytes] = []
    total = 0
    while total < most and (block := os.pread(fd, most - total, total)):
        blocks.append(block)
        total += len(block)
    return b"".join(blocks)


def _object_name(algorithm: str, content: bytes) -> bytes:
    return hashlib.new(algorithm, b"blob %d\0" % len(content) + content, usedforsecurity=False).digest()
