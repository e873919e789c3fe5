"""Where coretools keeps its own state: approvals, tokens, sockets, logs, caches, scratch files. Computed here only.

The server and the client believe what they find there, or keep secrets there, so it is closed to tools and commands
(`coretools.roots.own_state`).
"""

import glob
import os
import pwd
import stat
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from coretools.errors import BadSetting
from coretools.reach import looked_up

NAME = "coretools"

SCRATCH_FALLBACKS = ("/run/coretools", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # names in it are random
"""Places for scratch directories if the usual temporary directory is within reach of commands."""

SCRATCH_BYTES = 8
"""Random bytes in the name of a scratch directory, which has two hexadecimal digits for each."""

_SCRATCH_PATTERN = f"{NAME}-{'[0-9a-f]' * 2 * SCRATCH_BYTES}*"


class OwnDirectory(NamedTuple):
    """A directory of our own state, or one in which such directories are made."""

    path: str
    variable: str
    """The variable that puts it elsewhere."""
    pattern: str = ""
    """Glob of the names of our directories in it; "" if it is ours itself."""

    @property
    def holds_caches(self) -> bool:
        """Whether nothing in it is believed: the caches of commands."""
        return self.variable == "XDG_CACHE_HOME"


def state_path(environment: Mapping[str, str], name: str) -> str | None:
    """Return the path of a state file (approvals, tokens of servers, logs, the history); None without a home.

    Raises:
        BadSetting: another user could replace it.
    """
    path = _based(environment, "XDG_STATE_HOME", ".local/state")
    if path is not None:
        require_private(path)
    return None if path is None else os.path.join(path, name)


def configuration_path(environment: Mapping[str, str], name: str) -> str | None:
    """Return the usual path of a file of the user's configuration; None without a home."""
    path = _based(environment, "XDG_CONFIG_HOME", ".config")
    return None if path is None else os.path.join(path, name)


def cache_directory(environment: Mapping[str, str], home: str) -> str:
    """Return the directory that contains the caches of commands."""
    return _based({**environment, "HOME": home}, "XDG_CACHE_HOME", ".cache") or ""


def server_directory(environment: Mapping[str, str], name: str) -> str | None:
    """Return the directory that a confined server may use as its own where there is no project; None without a home.

    Nothing in it is believed, so it is no part of our own state.
    """
    path = _based(environment, "XDG_DATA_HOME", ".local/share")
    return None if path is None else os.path.join(path, "servers", name)


def runtime_path(environment: Mapping[str, str], name: str) -> str | None:
    """Return the path of a file in the user's runtime directory; None if there is none that is the user's alone."""
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    try:
        status = os.stat(runtime) if os.path.isabs(runtime) else None
    except OSError:
        return None
    if status is None or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        return None
    return os.path.join(runtime, NAME, name)


def own_directories(environment: Mapping[str, str]) -> list[OwnDirectory]:
    """Return every directory of our own state for this environment, existing or not.

    Also those that exist in the usual places: the line that made them had perhaps other variables than this process.
    """
    usual = {"HOME": environment.get("HOME") or _home_of_user()}
    given = {**environment, **usual}
    directories = []
    for variable, below in (
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_CACHE_HOME", ".cache"),
    ):
        path, other = _based(given, variable, below), _based(usual, variable, below)
        directories += [OwnDirectory(one, variable) for one in (path, _existing(other)) if one is not None]
    for runtime in (environment.get("XDG_RUNTIME_DIR", ""), _existing(f"/run/user/{os.geteuid()}") or ""):
        if os.path.isabs(runtime):
            directories.append(OwnDirectory(os.path.join(runtime, NAME), "XDG_RUNTIME_DIR"))
    for path in (tempfile.gettempdir(), *SCRATCH_FALLBACKS):
        directories.append(OwnDirectory(path, "TMPDIR", _SCRATCH_PATTERN))
    return list(dict.fromkeys(directories))


def scratch_directories() -> list[str]:
    """Return the scratch directories of all servers that exist now, with the temporary files of their commands."""
    patterns = (f"{glob.escape(path)}/{_SCRATCH_PATTERN}" for path in (tempfile.gettempdir(), *SCRATCH_FALLBACKS))
    return [os.path.realpath(path) for pattern in patterns for path in glob.glob(pattern)]


def require_private(path: str) -> None:
    """Refuse a path on which another user could put another file.

    Raises:
        BadSetting: a directory on it belongs to another user, or others may write to it.
    """
    try:
        for name in looked_up(path):
            _require_own(path, os.path.dirname(name.path), name.status)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{path}: cannot be used: {reason}") from error


def _require_own(path: str, directory: str, entry: os.stat_result | None) -> None:
    """`entry` is what is looked up in the directory."""
    status = os.stat(directory)
    # Who owns the top is the system: in a user namespace root may have another number.
    owners = {0, os.geteuid(), os.stat("/").st_uid}
    # The user's own group is private to the user on most systems, whose files are then writable for it.
    is_of_others = status.st_gid not in (0, os.getegid())
    is_open = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and is_of_others)
    if is_open and status.st_mode & stat.S_ISVTX:  # only the owner of an entry may rename it (inode(7))
        is_open = entry is None or entry.st_uid not in owners
    if is_open:
        raise BadSetting(f"{path}: others may change {directory}; run chmod go-w {directory}, or use another directory")
    if status.st_uid not in owners:
        raise BadSetting(f"{path}: {directory} belongs to another user; use a directory of your own")


def _based(environment: Mapping[str, str], variable: str, below: str) -> str | None:
    """Return our directory in a base directory (XDG Base Directory Specification 0.8); None without a home."""
    base, home = environment.get(variable, ""), environment.get("HOME", "")
    if not os.path.isabs(base):  # a relative one is to be ignored
        base = os.path.join(home, below) if home else ""
    return os.path.join(base, NAME) if os.path.isabs(base) else None


def _existing(path: str | None) -> str | None:
    return path if path is not None and os.path.lexists(path) else None


def _home_of_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""
