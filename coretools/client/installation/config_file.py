"""A configuration file of another client: read it, and replace it as a whole, with the bytes before beside it.

This runs as the person, outside the sandbox. So no path is used on which another user could put a file, a link in a
project does not lead out of it, and a file that was changed since it was read is left alone.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from coretools.client.common.bounded_file import MAX_BYTES
from coretools.errors import BadSetting, Conflict, InputOutput
from coretools.own_state import require_private
from coretools.reach import is_beneath
from coretools.regular_file import copy_owner_and_mode, read_regular, replacing, write_all

BOM = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A file as it was when it was read."""

    path: str
    """As the client names it."""
    target: str
    """What the path leads to, which is replaced: a link of a dotfiles manager stays a link."""
    data: bytes | None
    """None if there is no file."""
    is_shared: bool = False
    """A file of a project: a new one gets the mode of any new file. A user's own may hold secrets later: 0600."""

    @property
    def text(self) -> str:
        """The content, without the byte order mark.

        Raises:
            BadSetting: it is not UTF-8.
        """
        try:
            return (self.data or b"").decode("utf-8").removeprefix(BOM)
        except UnicodeDecodeError as error:
            raise BadSetting(f"{self.path}: is not UTF-8 (byte {error.start}); it is left as it is") from error

    def encoded(self, text: str) -> bytes:
        """Return the bytes of another content, with the byte order mark if the file has one."""
        mark = BOM if self.data is not None and self.data.startswith(BOM.encode()) else ""
        return (mark + text).encode("utf-8")

    def backup_path(self, name: str) -> str:
        """Return where the bytes from before the entry `name` was added are kept."""
        return f"{self.target}.before-{name}"


def open_config(path: str, *, within: str | None = None) -> ConfigFile:
    """Read a configuration, or find that there is none. `within`: the project that links must not lead out of.

    Raises:
        BadSetting: another user could change it; it is no regular file of ours, too large, or read-only.
    """
    above = os.path.dirname(path)
    with _explained(path):
        target = os.path.realpath(path)
    if within is not None and not is_beneath(target, os.path.realpath(within)):
        raise BadSetting(f"{path}: is a link out of the project, to {target}; edit that file yourself")
    require_private(_existing(above))
    require_private(path)
    with _explained(path):
        try:
            data, status = read_regular(target, MAX_BYTES)
        except FileNotFoundError:
            return ConfigFile(path=path, target=target, data=None, is_shared=within is not None)
    if status.st_uid != os.geteuid():
        raise BadSetting(f"{target}: belongs to another user; run this as its owner")
    if not status.st_mode & stat.S_IWUSR:
        raise BadSetting(f"{target}: is read-only; it is left as it is")
    return ConfigFile(path=path, target=target, data=data)


def write_config(file: ConfigFile, data: bytes, *, backup: str | None) -> None:
    """Replace a file, after keeping its bytes at `backup`, unless somebody changed it since it was read.

    Raises:
        Conflict: somebody changed it. InputOutput: it can't be written. The file is as it was then.
    """
    with _failing(file.target):
        os.makedirs(os.path.dirname(file.target), mode=0o755, exist_ok=True)
        if backup is not None and file.data is not None:
            _replace(backup, file.data, file)
        _replace(file.target, data, file)


def delete_config(file: ConfigFile) -> None:
    """Delete a file, unless somebody changed it since it was read.

    Raises:
        Conflict, InputOutput: as for `write_config`.
    """
    with _failing(file.target):
        _require_unchanged(file)
        os.unlink(file.target)


def read_backup(file: ConfigFile, name: str) -> bytes | None:
    """Return the bytes from before an entry was added; None if they were not kept."""
    try:
        data, status = read_regular(file.backup_path(name), MAX_BYTES)
    except OSError:
        return None
    return data if status.st_uid == os.geteuid() else None


def drop_backup(file: ConfigFile, name: str) -> None:
    """Delete the bytes from before an entry was added."""
    with suppress(OSError):
        os.unlink(file.backup_path(name))


def _replace(path: str, data: bytes, file: ConfigFile) -> None:
    """Write a file with owner and mode of the configuration; its name is taken last."""
    with replacing(path, mode=0o666 if path == file.target and file.is_shared else 0o600) as fd:
        with suppress(FileNotFoundError):
            copy_owner_and_mode(fd, os.stat(file.target, follow_symlinks=False))
        write_all(fd, data)
        _require_unchanged(file)


def _require_unchanged(file: ConfigFile) -> None:
    try:
        now: bytes | None = read_regular(file.target, MAX_BYTES)[0]
    except FileNotFoundError:
        now = None
    if now != file.data:
        raise Conflict(f"{file.target}: was changed meanwhile; it is left as it is now, try again")


def _existing(path: str) -> str:
    """Return the nearest directory on a path that exists."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{path}: cannot be read: {reason}") from error


@contextmanager
def _failing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputOutput(f"{path}: cannot be written: {error.strerror}; it is as it was") from error
