"""PATH of commands: that of the server, of the user's login shell, and the directories of found toolchains.

A directory from the login shell counts only if nobody else could put programs there: not another user, and not a
command that writes in a root.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from coretools.confinement.toolchains import VENV_FILE, is_in
from coretools.errors import CannotStart
from coretools.reach import Reach, is_beneath

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/snap")
"""Directories of programs and libraries."""

MAX_ENTRIES = 256
"""Most directories in the PATH of commands."""

SYSTEM_DIRECTORIES = frozenset(
    {
        *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"),
        *("/usr/local/games", "/usr/games", "/snap/bin"),
    }
)
"""Entries that every PATH has. Others in the server's PATH were put there by who started it."""


class Programs(NamedTuple):
    """The directories of programs of found toolchains."""

    chosen: tuple[str, ...] = ()
    """Of those with a default version that the user chose."""
    others: tuple[str, ...] = ()


def merged_path(server: str, login: Sequence[str], programs: Programs, *, roots: Sequence[str], home: str = "") -> str:
    """Return the PATH of commands.

    First what whoever started the server added to its PATH (an activated environment), then the login shell's order,
    then the rest of the server's PATH, then the programs of found toolchains, which replace none.

    Version managers are set up for interactive shells alone, usually. So a version that the user chose as the default
    precedes the system's directories where the login shell decides and does not have its directory.

    Directories beneath a root do not count, since commands could put programs there. Where a root contains the home,
    those of the home come last, and replace none.
    """
    usual = _usable(login, roots)
    given = server.split(os.pathsep) if server else []
    own = [entry for entry in given if entry not in {*usual, *SYSTEM_DIRECTORIES}] if usual else []
    at = next((number for number, entry in enumerate(usual) if entry in SYSTEM_DIRECTORIES), len(usual))
    chosen, others = _usable(programs.chosen, roots), _usable(programs.others, roots)
    before = [entry for entry in chosen if usual and entry not in usual]
    last = _in_home([*login, *programs.chosen, *programs.others], roots, home)
    merged = dict.fromkeys([*own, *usual[:at], *before, *usual[at:], *given, *chosen, *others, *last])
    return os.pathsep.join(list(merged)[:MAX_ENTRIES])


def _usable(entries: Iterable[str], roots: Iterable[str]) -> list[str]:
    return [entry for entry in entries if is_usable(entry, roots)]


def _in_home(entries: Iterable[str], roots: Sequence[str], home: str) -> list[str]:
    """Return the directories that are unusable only because a root contains the home."""
    others = [root for root in roots if not home or not is_beneath(home, root)]
    if len(others) == len(roots):
        return []
    return [entry for entry in _usable(entries, others) if not is_usable(entry, roots)]


def tool_path(server: str, reach: Reach) -> str:
    """Return the PATH of the programs that tools start outside the sandbox, such as git.

    That of the server, without directories in which a command, or any user, could put another program.
    """
    entries = server.split(os.pathsep) if server else []
    trusted = [one for one in entries if os.path.isabs(one) and not (reach.reason(one) or _open_to_all(one))]
    return os.pathsep.join(trusted) or os.defpath  # an empty one would mean the working directory


def trusted_program(name: str, path: str, reach: Reach, *, directory: str = "/") -> str | None:
    """Return the first program of this name on a PATH that agents can't change; None if there is none of this name.

    A name with a slash is a path, where it is relative in `directory`, and is returned as it is.

    Raises:
        CannotStart: there are only such that agents can change.
    """
    folders = [one for one in path.split(os.pathsep) if os.path.isabs(one)]
    files = [os.path.join(directory, name)] if "/" in name else [f"{folder}/{name}" for folder in folders]
    there = [file for file in files if os.access(file, os.X_OK) and os.path.isfile(file)]
    reasons = [reach.reason(file) or _open_to_all(os.path.dirname(file)) for file in there]
    if there and all(reasons):
        raise CannotStart(f"{name}: {reasons[0]}; install it elsewhere, or vouch for it with --trust PATH")
    trusted = next((file for file, reason in zip(there, reasons, strict=True) if not reason), None)
    return name if trusted and "/" in name else trusted


def without_links_into(path: str, reach: Reach) -> str:
    """Return a PATH without directories in which a link leads to what agents can change.

    For programs that look for further programs on their PATH, which nobody can check one by one.
    """
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if not _leads_into(folder, reach))


def _leads_into(folder: str, reach: Reach) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(reach.reason(entry.path) for entry in entries if entry.is_symlink())
    except OSError:
        return True


def _open_to_all(folder: str) -> str:
    """Return why any user could put programs in a directory; "" if not, or if there is none."""
    with suppress(OSError):
        if os.stat(folder).st_mode & stat.S_IWOTH:
            return f"any user may write to {folder}"
    return ""


def is_usable(entry: str, roots: Iterable[str]) -> bool:
    """Whether a directory may be added to PATH: absolute, there, changed by the user and root only, in no root.

    The programs of a virtual environment may be in a root: who activates it means to run what is installed there.
    """
    if not os.path.isabs(entry) or os.pathsep in entry or not entry.isprintable() or not os.path.isdir(entry):
        return False
    real = os.path.realpath(entry)
    if is_in(entry, roots) and not os.path.isfile(f"{os.path.dirname(real)}/{VENV_FILE}"):
        return False
    return _is_safe(real) and _is_safe(os.path.normpath(entry))


def _is_safe(path: str) -> bool:
    """Whether only the user and root can change the directory, and replace it or a directory above it."""
    is_above = False
    while True:
        try:
            status = os.stat(path)
        except OSError:
            return False
        # Above it, like in /tmp, only the owner of an entry may replace it (inode(7), sticky).
        is_sticky = is_above and bool(status.st_mode & stat.S_ISVTX)
        if status.st_uid not in (0, os.geteuid()) or not (is_sticky or _is_private(status)):
            return False
        if path == "/":
            return True
        path, is_above = os.path.dirname(path), True


def _is_private(status: os.stat_result) -> bool:
    """Whether no other user can create entries."""
    if status.st_mode & stat.S_IWOTH:
        return False
    return not status.st_mode & stat.S_IWGRP or status.st_uid == 0 or _is_private_group(status.st_gid)


def _is_private_group(number: int) -> bool:
    """Whether a group has no other member than the user: the own group that many systems give each user."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        return grp.getgrgid(number).gr_name == name and set(grp.getgrgid(number).gr_mem) <= {name}
    except KeyError:
        return False
