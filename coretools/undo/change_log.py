"""The log of what a command changed: one record for the state of each entry before its first change, oldest first.

A supervisor appends a record before the change takes place; whoever undoes the command reads them backwards. A record
is one write(2) with a checksum, so a log that SIGKILL broke off is readable up to its last whole record. Standard
library only: supervisors import it.
"""

import errno
import marshal
import os
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

LOG = "log"
"""Name of the log in a directory of the spool."""

ABSENT, FILE, LINK, DIRECTORY, OTHER = "absent", "file", "link", "directory", "other"
"""What was at a path. OTHER is a FIFO, a socket or a device: its contents, if any, are not kept."""
METADATA = "metadata"
"""Only mode, owner or times are about to change."""
MOVED = "moved"
"""The entry goes to the path in `detail`. If the call failed, the entry is still at `path`."""
NOT_KEPT = "not-kept"
"""A file whose content was not kept; `detail` says why."""

BEGUN = "begun"
"""The first record: `path` is the command line, its words ended by NUL; `detail` (by `marshal`) has the role, the paths
of the roots, when it was, in seconds since the epoch, and the identity of the server."""

_HEAD = struct.Struct("<II")
"""Length and CRC-32 of the record that follows."""
_LARGEST_RECORD = 1 << 20
"""Bytes. A path has at most 4,096; only the first record has more than two."""


class EntryStatus(NamedTuple):
    """What lstat(2) says about an entry."""

    mode: int
    owner: int
    group: int
    size: int
    """Bytes."""
    modified_ns: int
    changed_ns: int
    device: int
    inode: int
    links: int


class ChangeRecord(NamedTuple):
    """The state of one entry before a change."""

    kind: str
    root: int
    """Index of the root."""
    path: bytes
    """Relative to the root; empty for the root itself."""
    status: EntryStatus | None = None
    """None for ABSENT."""
    detail: bytes = b""
    """FILE: name of its content in the spool. LINK: target. MOVED: new path. NOT_KEPT: reason."""
    has_writer: bool = False
    """Another process had the file open for writing while it was copied, so that the copy may be torn."""
    is_shared: bool = False
    """The change is seen by all names of the file, of which it has several."""


class ChangeLog:
    """Appends records to an open file, which the caller closes."""

    def __init__(self, handle: int) -> None:
        """`handle` is opened with O_APPEND."""
        self._handle = handle
        self.records = 0
        self.bytes = 0

    def append(self, record: ChangeRecord) -> None:
        """Append a record.

        Raises:
            OSError: it could not be written as a whole; then the change that it announces must not take place.
        """
        status = None if record.status is None else tuple(record.status)
        body = marshal.dumps(tuple(record._replace(status=status)))  # type: ignore[arg-type]  # marshal has no classes
        data = _HEAD.pack(len(body), zlib.crc32(body)) + body
        begin = os.fstat(self._handle).st_size
        written = os.write(self._handle, data)
        if written != len(data):  # the file system is full: nothing may follow half a record
            os.ftruncate(self._handle, begin)
            raise OSError(errno.ENOSPC, "no space for the record of a change")
        self.records += 1
        self.bytes += written


def read_changes(data: bytes) -> Iterator[ChangeRecord]:
    """Yield the records of a log, oldest first, up to the first that is not whole."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        body = data[at : at + length]
        if length > _LARGEST_RECORD or len(body) < length or zlib.crc32(body) != checksum:
            return
        at += length
        record = ChangeRecord(*marshal.loads(body))  # noqa: S302  # of our own supervisor
        yield record if record.status is None else record._replace(status=EntryStatus(*record.status))
