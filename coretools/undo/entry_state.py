"""The state of a file, link or directory: what the journal stores of before and after a change, and compares."""

import hashlib
import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Literal, Self

Kind = Literal["absent", "file", "directory", "link", "other"]

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryState:
    """What is at a path."""

    kind: Kind = "absent"
    mode: int = 0
    """Permission bits; 0 for what has none."""
    modified_ns: int = 0
    size: int = 0
    """Of a file, in bytes."""
    target: str = ""
    """Of a link."""
    digest: str = ""
    """Of a file's content (BLAKE2b, 32 bytes, in hexadecimal). "" where it was not read: time and size stand for it."""

    def is_same(self, other: Self) -> bool:
        """Whether content and mode are the same. Times are not compared where the content is."""
        if (self.kind, self.mode, self.target) != (other.kind, other.mode, other.target):
            return False
        if self.kind != "file" or (self.digest and other.digest):
            return self.digest == other.digest
        return (self.size, self.modified_ns) == (other.size, other.modified_ns)

    def to_json(self) -> str:
        """The state as it is stored."""
        # Not by `asdict`, which copies each value: a command may have thousands of entries.
        return json.dumps({name: value for name in _FIELDS if (value := getattr(self, name))})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The state that `to_json` has written."""
        return cls(**json.loads(text))


_FIELDS = tuple(field.name for field in fields(EntryState))

ABSENT = EntryState()


def state_at(directory: int, name: str, *, most_digested: int) -> EntryState:
    """The state of an entry. The content of files up to `most_digested` bytes is read, where that is allowed."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    if stat.S_ISREG(status.st_mode) and status.st_size <= most_digested:
        with suppress(PermissionError):
            fd = os.open(name, READ, dir_fd=directory)
            try:
                return state_of_open(fd)
            finally:
                os.close(fd)
    target = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(status.st_mode) else ""
    return state_of(status, target=target)


def state_of_open(fd: int) -> EntryState:
    """The state of an open file, with the digest of its content; the position of the descriptor stays."""
    digest, offset = hashlib.blake2b(digest_size=32), 0
    while block := os.pread(fd, BLOCK_BYTES, offset):
        digest.update(block)
        offset += len(block)
    return state_of(os.fstat(fd), digest=digest.hexdigest())


def state_of(status: os.stat_result, *, target: str = "", digest: str = "") -> EntryState:
    """The state for a result of stat(2)."""
    return state_of_fields(status.st_mode, status.st_size, status.st_mtime_ns, target=target, digest=digest)


def state_of_fields(mode: int, size: int, modified_ns: int, *, target: str = "", digest: str = "") -> EntryState:
    """The state for these fields of a result of stat(2)."""
    kind: Kind = "other"
    for test, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link")):
        if test(mode):
            kind = name  # type: ignore[assignment]
    return EntryState(
        kind=kind,
        mode=0 if kind == "link" else stat.S_IMODE(mode),
        modified_ns=modified_ns,
        size=size if kind == "file" else 0,
        target=target,
        digest=digest,
    )
