"""Whether an agent or a command can change, or read, what a path leads to.

What the server or the client starts, loads or trusts outside the sandbox must not be what an agent can write. A path is
followed as the kernel follows it, name by name and link by link (path_resolution(7)): if one of the names lies where
tools or commands may write, somebody could put another file there. The answer "no" stays true, since no agent can
change any name on the path; so it needs no second look when the file is used.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from coretools.mounts import Mount, read_mounts

MAX_LINKS = 40
"""Links followed on one path, as in Linux (path_resolution(7))."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc", "/nix/store", "/gnu/store")
"""Directories whose files have several names by installation, such as `git` and its commands (git's Makefile)."""


class Place(NamedTuple):
    """A file or directory that tools or commands may use."""

    path: str
    kind: str
    """What it is, for sentences: `the writable root`."""


class Name(NamedTuple):
    """A name that is looked up on the way to a file."""

    path: str
    """Without links or `..` in the directory."""
    status: os.stat_result | None
    """Of the link, where it is one; None for a name that does not exist."""


def looked_up(path: str) -> list[Name]:
    """Return every name that is looked up on an absolute path, links followed one by one.

    The last is what the path leads to, or the first name that does not exist.

    Raises:
        OSError: a directory can't be searched. ValueError: the links form a loop.
    """
    top = Name("/", os.lstat("/"))
    names, directories, waiting, links = [top], [top], path.split("/")[::-1], 0
    while waiting:
        name = waiting.pop()
        if name in ("", "."):
            continue
        if name == "..":
            del directories[max(1, len(directories) - 1) :]
            names.append(directories[-1])
            continue
        entry = _name(os.path.join(directories[-1].path, name))
        names.append(entry)
        if entry.status is None:
            break
        if not stat.S_ISLNK(entry.status.st_mode):
            directories.append(entry)
            continue
        links += 1
        if links > MAX_LINKS:
            raise ValueError("its links form a loop")
        target = os.readlink(entry.path)
        if target.startswith("/"):
            del directories[1:]
        waiting += target.split("/")[::-1]
    return names


class Reach:
    """What tools and commands may change or read: roots, grants of the operator, caches of commands."""

    def __init__(
        self,
        places: Iterable[Place] = (),
        *,
        use: Literal["changed", "read"] = "changed",
        trusted: Iterable[str] = (),
    ) -> None:
        """Look at the places and at the mounted file systems as they are now.

        `trusted`: paths in the places that the operator vouches for; nothing beneath them is within reach.
        """
        self._places = tuple(place._replace(path=os.path.realpath(place.path)) for place in places)
        self._use = use
        self._trusted = tuple(map(os.path.realpath, trusted))
        found = {_identity(place.path): place for place in self._places}
        self._by_identity = {identity: place for identity, place in found.items() if identity is not None}
        by_path = {place.path: place for place in self._places}
        # Other paths of the places and of what is mounted in them: bind mounts.
        again = {path: place for place in self._places for path in other_paths(place.path)}
        self._by_path = {**again, **by_path}

    @property
    def places(self) -> tuple[Place, ...]:
        """The places, with links resolved."""
        return self._places

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the places, and of their bind mounts."""
        return tuple(self._by_path)

    @property
    def trusted(self) -> tuple[str, ...]:
        """The paths in the places that the operator vouches for, with links resolved."""
        return self._trusted

    def reason(self, path: str) -> str:
        """Return why tools or commands can change (or read) what a path leads to; "" if they can't.

        `path` is absolute; it need not exist. A directory is within reach if its entries are. So is a path that can't
        be followed (no permission, a loop of links), because nothing is known about it.
        """
        if not self._places:
            return ""
        try:
            return self._reason(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            return f"{path}: cannot be examined: {why}"

    def _reason(self, path: str) -> str:
        around: dict[str, Place | None] = {}
        names = looked_up(path)
        for name in names:
            above = around.get(os.path.dirname(name.path))
            if above is not None and not self._is_trusted(name.path, may_be_above=True):
                return self._sentence(path, name.path, above)
            around[name.path] = above or self._place_at(name)
        last = names[-1]
        place = around[last.path]
        if self._is_trusted(last.path):
            return ""
        return self._linked_elsewhere(path, last) if place is None else self._sentence(path, last.path, place)

    def _place_at(self, name: Name) -> Place | None:
        # By the inode as well: a bind mount has another path, and a file system may not tell letters' cases apart.
        identity = (name.status.st_dev, name.status.st_ino) if name.status else (0, 0)
        return self._by_path.get(name.path) or self._by_identity.get(identity)

    def _linked_elsewhere(self, path: str, file: Name) -> str:
        """Return why a file may have another name beneath a place: its hard links are not all in its directory."""
        status = file.status
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_nlink == 1:
            return ""
        near = next((one for (device, _), one in self._by_identity.items() if device == status.st_dev), None)
        if near is None or _is_installed(file.path, status) or _is_whole(file.path, status):
            return ""
        # Whether the user of this process, and so a command, could write the file through another name.
        can_write = os.geteuid() in (0, status.st_uid) or bool(status.st_mode & 0o022)
        if self._use == "changed" and not can_write:
            return ""
        names = f"{path} has {status.st_nlink} names (hard links), and one may lie in {near.kind} {near.path}"
        return f"{names}; replace it by a copy"

    def _sentence(self, path: str, entry: str, place: Place) -> str:
        way = "" if entry == path else f" leads through {entry}, which"
        return f"{path}{way} can be {self._use} by tools or commands: it lies in {place.kind} {place.path}"

    def _is_trusted(self, path: str, *, may_be_above: bool = False) -> bool:
        return any(is_beneath(path, one) or (may_be_above and is_beneath(one, path)) for one in self._trusted)


NO_REACH = Reach()


def is_beneath(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies in it, by text."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def other_paths(path: str, *, with_mounts: bool = True) -> Iterator[str]:
    """Yield the paths of a directory by the table of mounts, also those of bind mounts; looks at no file.

    `path` is absolute and without links; it need not exist. `with_mounts`: also those of what is mounted in it.
    """
    mounts = read_mounts()
    for device, source in list(_sources_in(path, mounts))[: None if with_mounts else 1]:
        for mount in mounts:
            if mount.device == device and is_beneath(source, mount.source):
                yield _moved(source, mount.source, mount.path)
            elif mount.device == device and is_beneath(mount.source, source):
                yield mount.path


def _name(path: str) -> Name:
    try:
        return Name(path, os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return Name(path, None)


def _identity(path: str) -> tuple[int, int] | None:
    with suppress(OSError, ValueError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


def _is_installed(file: str, status: os.stat_result) -> bool:
    return status.st_uid == 0 and any(is_beneath(file, directory) for directory in SYSTEM)


def _is_whole(file: str, status: os.stat_result) -> bool:
    """Whether all names of a file are in its directory."""
    with os.scandir(os.path.dirname(file)) as entries:
        return sum(entry.inode() == status.st_ino and not entry.is_symlink() for entry in entries) == status.st_nlink


def _sources_in(path: str, mounts: list[Mount]) -> Iterator[tuple[bytes, str]]:
    """Yield device and path of a directory in its file system, and of everything that is mounted in it."""
    # Of several mounts at one path the last is on top.
    around = (one for one in reversed(mounts) if is_beneath(path, one.path))
    above = max(around, key=lambda one: len(one.path), default=None)
    if above is not None:
        yield above.device, _moved(path, above.path, above.source)
    yield from ((one.device, one.source) for one in mounts if is_beneath(one.path, path) and one is not above)


def _moved(path: str, directory: str, other: str) -> str:
    """Return the path of the same file beneath another directory."""
    return other.rstrip("/") + path[len(directory.rstrip("/")) :] or "/"
