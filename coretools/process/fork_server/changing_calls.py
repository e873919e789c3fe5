"""From an intercepted call to what it is about to change: the kind of change, and paths without links or `..`.

The command may exchange what its arguments and paths lead to after they were read here; then the record of its change
is wrong, and undo finds that out. Nothing here opens a file for reading, and no file system that may not answer is
asked. Runs in the supervisor; standard library only.
"""

import errno
import os
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from coretools.confinement import syscalls
from coretools.confinement.seccomp import CHANGING, CHANGING_OPENS
from coretools.mounts import mount_id
from coretools.process.fork_server.notifications import InterceptedCall
from coretools.process.fork_server.socket_paths import allowed_mounts, open_pinned
from coretools.roots.open_beneath import open_at_once, statx_identity

_NAMES = {syscalls.NUMBERS[name]: name for name in (*CHANGING, *CHANGING_OPENS) if name in syscalls.NUMBERS}
CHANGING_NUMBERS = frozenset(_NAMES)

WRITE, REMOVE, CREATE, METADATA, MOVE, EXCHANGE, LINK = (
    *("write", "remove", "create", "metadata", "move", "exchange", "link"),
)
"""Kinds of changes. A write may create the file."""

_PATH_BYTES = 4096
_LONG = "a path longer than 4096 bytes"
_MOST_LINKS = 40
_AT_FDCWD = -100
_O_TMPFILE = 0o20000000
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_AT_SYMLINK_NOFOLLOW, _AT_SYMLINK_FOLLOW, _AT_EMPTY_PATH = 0x100, 0x400, 0x1000
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2

_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
"""Errors of a path for which the call of the command fails too."""


class CannotTell(Exception):
    """What a call changes can't be found out; the text says why."""


class ChangingCall(NamedTuple):
    """A change that is about to be made."""

    kind: str
    path: bytes
    """Absolute, without links and `..`."""
    other: bytes = b""
    """New path of a MOVE, an EXCHANGE or a LINK."""
    replaces: bool = True
    """Whether a MOVE replaces what is at its new path."""


class CallReader:
    """Reads what the calls of one command change."""

    def __init__(self, places: Sequence[str]) -> None:
        """`places` are the roots: the server relies on their file systems."""
        self._places = places
        self._devices = set[int]()
        """Those of file systems that always answer."""

    def read(self, call: InterceptedCall) -> ChangingCall | None:
        """Return what a call changes; None for nothing, or if it will fail.

        Raises:
            CannotTell, OSError.
        """
        return _READERS[_NAMES[call.number]](self, call)

    def path(self, call: InterceptedCall, base: int, address: int, *, follow: bool, is_empty: bool = False) -> bytes:
        """Resolve the path at an address, relative to a descriptor; with `is_empty` an empty one is the descriptor.

        Raises:
            OSError: one of `_LEADS_NOWHERE`. CannotTell.
        """
        text = _text(call, address)
        if not text:
            if is_empty:
                return self.of_descriptor(call, base)
            raise FileNotFoundError(errno.ENOENT, "")
        for _ in range(_MOST_LINKS):
            text = text if text.startswith(b"/") else self._base(call, base) + b"/" + text
            above, _, name = text.rstrip(b"/").rpartition(b"/")
            if name in (b".", b".."):
                return self._directory(call, text)
            directory = self._directory(call, above or b"/")
            if not name:
                return directory
            here = directory.rstrip(b"/") + b"/" + name
            if len(here) >= _PATH_BYTES:
                raise CannotTell(_LONG)
            link = _link_at(here) if follow else b""
            if not link:
                return here
            text = link if link.startswith(b"/") else directory + b"/" + link
        raise OSError(errno.ELOOP, "")

    def of_descriptor(self, call: InterceptedCall, descriptor: int) -> bytes:
        """The path of an open file.

        Raises:
            OSError: it has none, or none in this view. CannotTell.
        """
        path = self._base(call, descriptor)
        if not path.startswith(b"/"):
            raise FileNotFoundError(errno.ENOENT, "")
        return path

    def _base(self, call: InterceptedCall, descriptor: int) -> bytes:
        number = descriptor & 0xFFFFFFFF
        what = "cwd" if number == _AT_FDCWD & 0xFFFFFFFF else f"fd/{number}"
        try:
            path = os.readlink(b"/proc/%d/%b" % (call.thread, what.encode()))
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise CannotTell(_LONG) from error
            if isinstance(error, PermissionError):
                raise CannotTell("a process whose descriptors can't be read") from error
            raise
        if path.endswith(b" (deleted)") and not os.path.lexists(path):
            raise FileNotFoundError(errno.ENOENT, "")
        return path

    def _directory(self, call: InterceptedCall, path: bytes) -> bytes:
        """The path of a directory without links."""
        if len(path) >= _PATH_BYTES:
            raise CannotTell(_LONG)
        try:
            handle = open_at_once(path)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ELOOP, errno.EXDEV):
                raise
            return self._slowly(call, path)
        found = self._checked(handle)
        return self._slowly(call, path) if found.startswith(b"/proc/") else found

    def _slowly(self, call: InterceptedCall, path: bytes) -> bytes:
        try:
            handle = open_pinned(path, -1, self._places, thread=call.thread)
        except OSError as error:
            if error.errno == errno.EACCES:
                raise CannotTell("a path on a file system that may not answer, or that can't be searched") from error
            raise
        return self._checked(handle)

    def _checked(self, handle: int) -> bytes:
        """The path of a handle, which is closed."""
        try:
            device, _ = statx_identity(handle)
            if device not in self._devices:
                if mount_id(handle) not in allowed_mounts(self._places):
                    raise CannotTell("a path on a file system that may not answer")
                self._devices.add(device)
            path = os.readlink(b"/proc/self/fd/%d" % handle)
        finally:
            os.close(handle)
        if not path.startswith(b"/"):
            raise FileNotFoundError(errno.ENOENT, "")
        return path


def _link_at(path: bytes) -> bytes:
    """The target of a symbolic link; empty if it is none."""
    try:
        link = os.readlink(path)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return b""
        raise
    if path.startswith(b"/proc/") and not link.startswith(b"/"):  # a pipe, a socket
        raise FileNotFoundError(errno.ENOENT, "")
    return link


def leads_nowhere(error: OSError) -> bool:
    """Whether the call will fail because of its path."""
    return error.errno in _LEADS_NOWHERE


def _text(call: InterceptedCall, address: int) -> bytes:
    """The path at an address.

    Raises:
        OSError: ENAMETOOLONG. CannotTell.
    """
    try:
        data = call.memory(address, _PATH_BYTES)
    except OSError as error:
        if error.errno == errno.EACCES:
            raise CannotTell("a process whose memory can't be read") from error
        raise FileNotFoundError(errno.ENOENT, "") from error  # an invalid address
    text, end, _ = data.partition(b"\0")
    if not end:
        raise OSError(errno.ENAMETOOLONG, "")
    return text


def _opened(reader: CallReader, call: InterceptedCall, base: int, address: int, flags: int) -> ChangingCall | None:
    if flags & (os.O_PATH | os.O_DIRECTORY | _O_TMPFILE) or not flags & _CHANGING:
        return None
    is_new = flags & os.O_CREAT and flags & os.O_EXCL
    path = reader.path(call, base, address, follow=not (flags & os.O_NOFOLLOW or is_new))
    return ChangingCall(CREATE if is_new else WRITE, path)


def _open(reader: CallReader, call: InterceptedCall) -> ChangingCall | None:
    return _opened(reader, call, _AT_FDCWD, call.arguments[0], call.arguments[1])


def _openat(reader: CallReader, call: InterceptedCall) -> ChangingCall | None:
    return _opened(reader, call, call.arguments[0], call.arguments[1], call.arguments[2])


def _openat2(reader: CallReader, call: InterceptedCall) -> ChangingCall | None:
    try:
        how = call.memory(call.arguments[2], 8)
    except OSError as error:
        if error.errno == errno.EACCES:
            raise CannotTell("a process whose memory can't be read") from error
        return None
    if len(how) < 8:
        return None
    return _opened(reader, call, call.arguments[0], call.arguments[1], struct.unpack("Q", how)[0])


_Reader = Callable[[CallReader, InterceptedCall], ChangingCall | None]


def _plain(kind: str, *, base: int | None = None, at: int = 0, follow: bool = False) -> _Reader:
    """The reader of a call with one path, in argument `at`, relative to argument `base`."""

    def read(reader: CallReader, call: InterceptedCall) -> ChangingCall:
        start = _AT_FDCWD if base is None else call.arguments[base]
        return ChangingCall(kind, reader.path(call, start, call.arguments[at], follow=follow))

    return read


def _metadata_at(*, flags: int | None) -> _Reader:
    """The reader of a call with descriptor and path first, and flags in an argument. No path is the descriptor."""

    def read(reader: CallReader, call: InterceptedCall) -> ChangingCall:
        base, address = call.arguments[:2]
        if address == 0:
            return ChangingCall(METADATA, reader.of_descriptor(call, base))
        given = 0 if flags is None else call.arguments[flags]
        follow = not given & _AT_SYMLINK_NOFOLLOW
        path = reader.path(call, base, address, follow=follow, is_empty=bool(given & _AT_EMPTY_PATH))
        return ChangingCall(METADATA, path)

    return read


def _metadata_of(reader: CallReader, call: InterceptedCall) -> ChangingCall:
    return ChangingCall(METADATA, reader.of_descriptor(call, call.arguments[0]))


def _move(*, has_bases: bool, flags: int | None = None) -> _Reader:
    def read(reader: CallReader, call: InterceptedCall) -> ChangingCall:
        if has_bases:
            old_base, old, new_base, new = call.arguments[:4]
        else:
            (old, new), old_base, new_base = call.arguments[:2], _AT_FDCWD, _AT_FDCWD
        given = 0 if flags is None else call.arguments[flags]
        kind = EXCHANGE if given & _RENAME_EXCHANGE else MOVE
        paths = [reader.path(call, base, at, follow=False) for base, at in ((old_base, old), (new_base, new))]
        return ChangingCall(kind, paths[0], paths[1], not given & _RENAME_NOREPLACE)

    return read


def _link(reader: CallReader, call: InterceptedCall) -> ChangingCall:
    old, new = call.arguments[:2]
    return ChangingCall(
        LINK, reader.path(call, _AT_FDCWD, old, follow=False), reader.path(call, _AT_FDCWD, new, follow=False)
    )


def _linkat(reader: CallReader, call: InterceptedCall) -> ChangingCall:
    old_base, old, new_base, new, flags = call.arguments[:5]
    target = reader.path(call, new_base, new, follow=False)
    try:
        source = reader.path(
            call, old_base, old, follow=bool(flags & _AT_SYMLINK_FOLLOW), is_empty=bool(flags & _AT_EMPTY_PATH)
        )
    except FileNotFoundError:  # an open file without a name gets one (open(2), O_TMPFILE)
        return ChangingCall(CREATE, target)
    return ChangingCall(LINK, source, target)


_READERS: dict[str, _Reader] = {
    "open": _open,
    "openat": _openat,
    "openat2": _openat2,
    "creat": _plain(WRITE, follow=True),
    "truncate": _plain(WRITE, follow=True),
    "unlink": _plain(REMOVE),
    "rmdir": _plain(REMOVE),
    "unlinkat": _plain(REMOVE, base=0, at=1),
    "mkdir": _plain(CREATE),
    "mkdirat": _plain(CREATE, base=0, at=1),
    "mknod": _plain(CREATE),
    "mknodat": _plain(CREATE, base=0, at=1),
    "symlink": _plain(CREATE, at=1),
    "symlinkat": _plain(CREATE, base=1, at=2),
    "link": _link,
    "linkat": _linkat,
    "rename": _move(has_bases=False),
    "renameat": _move(has_bases=True),
    "renameat2": _move(has_bases=True, flags=4),
    "chmod": _plain(METADATA, follow=True),
    "chown": _plain(METADATA, follow=True),
    "lchown": _plain(METADATA),
    "fchmod": _metadata_of,
    "fchown": _metadata_of,
    "fchmodat": _metadata_at(flags=None),
    "fchmodat2": _metadata_at(flags=3),
    "fchownat": _metadata_at(flags=4),
    "utime": _plain(METADATA, follow=True),
    "utimes": _plain(METADATA, follow=True),
    "futimesat": _metadata_at(flags=None),
    "utimensat": _metadata_at(flags=3),
    "setxattr": _plain(METADATA, follow=True),
    "lsetxattr": _plain(METADATA),
    "fsetxattr": _metadata_of,
    "removexattr": _plain(METADATA, follow=True),
    "lremovexattr": _plain(METADATA),
    "fremovexattr": _metadata_of,
    "setxattrat": _metadata_at(flags=2),
    "removexattrat": _metadata_at(flags=2),
}
