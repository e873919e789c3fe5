"""Keep what a command is about to change: by hard link, reflink or copy, once for each entry (ADR 0055).

Paths are those of the command's view, without links or `..`. What lies there is opened beneath handles of the roots,
taken outside the view, because a file can be linked into the spool only within one mount. It is kept only if the view
shows the same inode, so that neither a cover nor a path that was exchanged meanwhile leads elsewhere. Every method is
called before the change. An OSError means that the change must not take place. Runs in the supervisor.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from coretools.data_ranges import data_ranges
from coretools.roots.open_beneath import Openat2Resolver, birth_time, statx_identity
from coretools.undo.change_log import (
    ABSENT,
    DIRECTORY,
    FILE,
    LINK,
    METADATA,
    MOVED,
    NOT_KEPT,
    OTHER,
    ChangeLog,
    ChangeRecord,
    EntryStatus,
)

_FICLONE = 0x40049409
"""ioctl(2) request to share the blocks of another file (ioctl_ficlone(2))."""
_PIECE_BYTES = 64 << 20
"""Copied at once; a disk takes less than a second, after which the supervisor looks for messages."""
_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EMLINK)
"""Errors of links, reflinks and copy_file_range(2) where the file system or the owner of the file does not allow it."""

_CONTENT, _METADATA, _TIMES = "content", "metadata", "times"
"""What of an entry was kept: everything, its metadata, or the times of a directory in which something changes."""


class RecordedRoot(NamedTuple):
    """A root in which changes are recorded."""

    path: bytes
    """Its path in the view."""
    handle: int
    """Opened with O_PATH outside the view."""


class PreimageLimits(NamedTuple):
    """What is kept for one command, in bytes. What is beyond is recorded as not kept."""

    file_bytes: int
    """Largest file that is copied; links and reflinks have no such limit."""
    total_bytes: int
    """Space that copies and linked files occupy together."""


class _Entry(NamedTuple):
    root: int
    path: bytes
    parent: int
    """Descriptor of the directory, opened from outside the view."""
    name: bytes
    status: EntryStatus | None


class Preimages:
    """Keeps the states before the changes of one command. Not thread-safe."""

    def __init__(
        self,
        roots: Sequence[RecordedRoot],
        spool: int,
        log: ChangeLog,
        limits: PreimageLimits,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        """`spool` is an empty directory of this command. `progress` is called between the pieces of a large copy."""
        self._roots, self._spool, self._log, self._limits, self._progress = roots, spool, log, limits, progress
        self._resolver = Openat2Resolver()
        self._kept: set[tuple[int, bytes, str]] = set()
        self._contents: dict[tuple[int, int, int | None], ChangeRecord] = {}
        """Records of files with several names, by device, inode and birth time: numbers of inodes are used again."""
        self._linked: dict[tuple[int, int], bytes] = {}
        """Names in the spool of files that were linked, by device and inode."""
        self._files = 0
        self._bytes = 0

    def forget(self) -> None:
        """Keep each entry again at its next change: a checkpoint was made, or paths have new meanings."""
        self._kept.clear()
        self._contents.clear()

    def before_write(self, path: bytes) -> None:
        """Keep a file that is about to be opened for writing, or the fact that there is none.

        What is no file stays: opening a FIFO changes nothing, and a directory can't be opened.
        """
        self._keep(path, can_link=False, is_write=True)

    def before_creation(self, path: bytes) -> None:
        """Record that there is nothing; if there is something the call fails."""
        if _lstat(path) is None:
            self.before_removal(path)

    def before_removal(self, path: bytes) -> None:
        """Keep an entry that is about to be removed or replaced, or the fact that there is none."""
        self._keep(path, can_link=True)

    def before_link(self, old: bytes, new: bytes) -> None:
        """Keep both names of a hard link: from now on a write to the new one changes the old one."""
        self.before_write(old)
        self.before_removal(new)

    def before_metadata(self, path: bytes) -> None:
        """Keep mode, owner and times."""
        with self._entry(path) as entry:
            if entry is not None and entry.status is not None and self._is_new(entry, _METADATA):
                is_shared = stat.S_ISREG(entry.status.mode) and entry.status.links > 1
                self._log.append(ChangeRecord(METADATA, entry.root, entry.path, entry.status, is_shared=is_shared))
                self._kept.add((entry.root, entry.path, _METADATA))

    def before_move(self, old: bytes, new: bytes, *, replaces: bool = True) -> None:
        """Keep what is needed to take back a rename. One that does not replace fails if something is there.

        Raises:
            OSError: EXDEV if a directory would leave its root or enter it. Programs copy and delete it then.
        """
        if not replaces and _lstat(new) is not None:
            return
        source, target = self._place(old), self._place(new)
        if source is None and target is None:
            return
        is_directory = _is_directory(old)
        if source is not None and target is not None and source[0] == target[0]:
            self._keep_move(old, new, is_directory=is_directory)
        elif is_directory:
            raise OSError(errno.EXDEV, "recorded directories are moved elsewhere by copying")
        else:
            # Not by a link: at its new path the file can be written to without notice.
            self._keep(old, can_link=False)
            self.before_removal(new)

    def before_exchange(self, one: bytes, other: bytes) -> None:
        """Keep two entries that are about to get each other's names, as if both were written.

        Raises:
            OSError: EINVAL if one is a directory, as on a file system that can't exchange names (renameat2(2)).
        """
        if self._place(one) is None and self._place(other) is None:
            return
        if _is_directory(one) or _is_directory(other):
            raise OSError(errno.EINVAL, "recorded directories are not exchanged")
        self._keep(one, can_link=False)
        self._keep(other, can_link=False)

    def _keep_move(self, old: bytes, new: bytes, *, is_directory: bool) -> None:
        self.before_removal(new)
        with self._entry(old) as moved, self._entry(new) as other:
            if moved is None or other is None or moved.status is None:
                return  # the call will fail
            if not (is_directory or self._is_new(moved, _CONTENT)):
                return  # it was made by the command, or kept before
            self._keep_times(moved)
            self._keep_times(other)
            self._log.append(ChangeRecord(MOVED, moved.root, moved.path, moved.status, other.path))
        if is_directory:
            self.forget()
        else:
            self._kept -= {(other.root, other.path, _CONTENT), (other.root, other.path, _METADATA)}

    def _keep(self, path: bytes, *, can_link: bool, is_write: bool = False) -> None:
        place = self._place(path)
        if place is None or ((can_link or not self._linked) and (*place, _CONTENT) in self._kept):
            return
        with self._entry(path) as entry:
            if entry is None or (is_write and entry.status is not None and not stat.S_ISREG(entry.status.mode)):
                return
            if not can_link:
                self._separate(entry)
            if not self._is_new(entry, _CONTENT):
                return
            self._keep_times(entry)
            record = self._record(entry, can_link=can_link)
            self._log.append(record)
            # A directory each time: its removal may have failed before what is in it was removed, and backwards it has
            # to be there first.
            if record.kind != DIRECTORY:
                self._kept.add((entry.root, entry.path, _CONTENT))

    def _is_new(self, entry: _Entry, what: str) -> bool:
        """Whether this was not kept yet. Everything includes the metadata."""
        return not {(entry.root, entry.path, kind) for kind in (_CONTENT, what)} & self._kept

    def _record(self, entry: _Entry, *, can_link: bool) -> ChangeRecord:
        status = entry.status
        if status is None:
            return ChangeRecord(ABSENT, entry.root, entry.path)
        if stat.S_ISREG(status.mode):
            return self._keep_file(entry, status, can_link=can_link)
        if stat.S_ISLNK(status.mode):
            target = os.readlink(entry.name, dir_fd=entry.parent)
            return ChangeRecord(LINK, entry.root, entry.path, status, target)
        kind = DIRECTORY if stat.S_ISDIR(status.mode) else OTHER
        return ChangeRecord(kind, entry.root, entry.path, status)

    def _keep_times(self, entry: _Entry) -> None:
        """Keep the times of the directory that contains an entry."""
        above = os.path.dirname(entry.path)
        if not entry.path or (entry.root, above, _TIMES) in self._kept:
            return
        status = _status_of(os.stat(entry.parent))
        self._log.append(ChangeRecord(METADATA, entry.root, above, status))
        self._kept.add((entry.root, above, _TIMES))

    def _keep_file(self, entry: _Entry, status: EntryStatus, *, can_link: bool) -> ChangeRecord:
        record = ChangeRecord(FILE, entry.root, entry.path, status, is_shared=not can_link and status.links > 1)
        identity = (status.device, status.inode)
        # Also if this is the last name that is left.
        born = birth_time(os.fsdecode(entry.name), entry.parent) if status.links > 1 or self._contents else None
        if (*identity, born) in self._contents:
            return self._contents[*identity, born]._replace(root=entry.root, path=entry.path, is_shared=False)
        if can_link and identity in self._linked:
            return record._replace(detail=self._linked[identity])
        self._files += 1
        name = b"%d" % self._files
        is_linked = can_link and self._is_linked(entry, status, name)
        record = record._replace(detail=name) if is_linked else self._copied(entry, record, name)
        if is_linked:
            self._linked[identity] = name
        if status.links > 1:
            self._contents[*identity, born] = record
        return record

    def _separate(self, entry: _Entry) -> None:
        """Replace a link in the spool by a copy before the file is written to.

        The change before which it was linked has failed, or the file has another name.
        """
        status = entry.status
        name = None if status is None else self._linked.pop((status.device, status.inode), None)
        if name is None:
            return
        copy = name + b".copy"
        record = self._copied(entry, ChangeRecord(FILE, entry.root, entry.path, status), copy)
        if record.kind == FILE:
            os.rename(copy, name, src_dir_fd=self._spool, dst_dir_fd=self._spool)
        else:
            self._log.append(record)

    def _is_linked(self, entry: _Entry, status: EntryStatus, name: bytes) -> bool:
        """Link a file into the spool; False if that is impossible, or would change the times of a file that stays."""
        if self._bytes + status.size > self._limits.total_bytes or self._is_fixed(entry, status):
            return False
        try:
            os.link(entry.name, name, src_dir_fd=entry.parent, dst_dir_fd=self._spool, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_COPY:  # another file system, or another owner (proc(5), protected_hardlinks)
                return False
            raise
        if os.stat(name, dir_fd=self._spool, follow_symlinks=False).st_ino != status.inode:
            os.unlink(name, dir_fd=self._spool)
            raise OSError(errno.ESTALE, "was replaced while it was kept")
        self._bytes += status.size
        return True

    def _is_fixed(self, entry: _Entry, status: EntryStatus) -> bool:
        """Whether the view shows a file on a read-only mount: its removal will fail."""
        try:
            handle = os.open(self._roots[entry.root].path + b"/" + entry.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            is_same = statx_identity(handle) == (status.device, status.inode)  # asks no other file system
            return is_same and bool(os.fstatvfs(handle).f_flag & os.ST_RDONLY)
        finally:
            os.close(handle)

    def _copied(self, entry: _Entry, record: ChangeRecord, name: bytes) -> ChangeRecord:
        """Copy a file into the spool; return the record to write."""
        assert record.status is not None
        # Without O_NONBLOCK a lease of the command would stop us (fcntl(2), F_SETLEASE).
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            source = os.open(entry.name, flags, dir_fd=entry.parent)
        except (PermissionError, BlockingIOError) as error:
            return record._replace(kind=NOT_KEPT, detail=(error.strerror or "").encode())
        try:
            found = os.fstat(source)
            if (found.st_dev, found.st_ino) != (record.status.device, record.status.inode):
                raise OSError(errno.ESTALE, "was replaced while it was kept")
            has_writer = _has_writer(source)
            reason = self._copy_content(source, found, name)
        finally:
            os.close(source)
        if reason:
            return record._replace(kind=NOT_KEPT, detail=reason)
        return record._replace(detail=name, has_writer=has_writer)

    def _copy_content(self, source: int, status: os.stat_result, name: bytes) -> bytes:
        """Copy a file into the spool; return why not, or nothing."""
        target = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._spool
        )
        reason, is_whole = b"", False
        try:
            if status.st_size and not _is_cloned(source, target):
                size = min(status.st_size, status.st_blocks * 512)  # a sparse file occupies less
                if size > self._limits.file_bytes:
                    reason = b"larger than %d bytes" % self._limits.file_bytes
                elif self._bytes + size > self._limits.total_bytes:
                    reason = b"the command changed more than %d bytes" % self._limits.total_bytes
                else:
                    self._copy_ranges(source, target, status.st_size)
                    self._bytes += size
            os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
            is_whole = not reason
        finally:
            os.close(target)
            if not is_whole:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._spool)
        return reason

    def _copy_ranges(self, source: int, target: int, size: int) -> None:
        os.ftruncate(target, size)
        for begin, end in data_ranges(source, size):
            at = begin
            while at < end:
                copied = _copy_piece(source, target, at, min(end - at, _PIECE_BYTES))
                if copied == 0:  # became shorter meanwhile: there is a writer
                    return
                at += copied
                if at < end:
                    self._progress()

    def _place(self, path: bytes) -> tuple[int, bytes] | None:
        """Return the root and the relative path; None if the path is in no root. The innermost root counts."""
        inside = [
            (len(root.path), number)
            for number, root in enumerate(self._roots)
            if path == root.path or path.startswith(root.path.rstrip(b"/") + b"/")
        ]
        if not inside:
            return None
        length, number = max(inside)
        return number, path[length:].strip(b"/")

    @contextmanager
    def _entry(self, path: bytes) -> Iterator[_Entry | None]:
        """Find an entry from outside the view; None if it is in no root, or the view shows something else there."""
        place = self._place(path)
        if place is None or not place[1]:  # commands can't replace a root
            yield None
            return
        number, relative = place
        above, _, name = relative.rpartition(b"/")
        flags = os.O_PATH | os.O_DIRECTORY
        try:
            parent = self._resolver.open(self._roots[number].handle, os.fsdecode(above or b"."), flags)
        except (FileNotFoundError, NotADirectoryError):  # the call of the command will fail too
            yield None
            return
        try:
            status = _lstat(name, parent)
            is_same = _is_shown(path, parent, status)
            yield _Entry(number, relative, parent, name, status) if is_same else None
        finally:
            os.close(parent)


def _is_shown(path: bytes, parent: int, status: EntryStatus | None) -> bool:
    """Whether the view shows this entry at the path, and not a cover."""
    shown = _lstat(path)
    if shown is not None and status is not None:
        return (shown.device, shown.inode) == (status.device, status.inode)
    above, real = _lstat(os.path.dirname(path)), os.stat(parent)
    return above is not None and (above.device, above.inode) == (real.st_dev, real.st_ino)


def _is_directory(path: bytes) -> bool:
    status = _lstat(path)
    return status is not None and stat.S_ISDIR(status.mode)


def _lstat(path: bytes, parent: int | None = None) -> EntryStatus | None:
    try:
        return _status_of(os.stat(path, dir_fd=parent, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _status_of(found: os.stat_result) -> EntryStatus:
    return EntryStatus(
        found.st_mode,
        found.st_uid,
        found.st_gid,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_dev,
        found.st_ino,
        found.st_nlink,
    )


def _has_writer(handle: int) -> bool:
    """Whether a process has the file open for writing: a read lease is then refused (fcntl(2), F_SETLEASE)."""
    try:
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:  # the file of another user, or a file system without leases: unknown
        return False
    fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _is_cloned(source: int, target: int) -> bool:
    """Share the blocks of a file, if the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in (*_NO_COPY, errno.ENOTTY):
            return False
        raise
    return True


def _copy_piece(source: int, target: int, at: int, size: int) -> int:
    try:
        return os.copy_file_range(source, target, size, at, at)
    except OSError as error:
        if error.errno not in _NO_COPY:
            raise
    return os.pwrite(target, os.pread(source, min(size, 1 << 20), at), at)
