"""Copies of git's configurations for one view: laid out in a directory of the server's own, and read back.

Commands can do to a copy whatever they like, so it is read back like anything of theirs: no links, regular files only,
a bounded length, and nothing is written to a directory that they have had.
"""

import errno
import os
import stat
from dataclasses import dataclass
from secrets import token_hex

from coretools.confinement import namespaces
from coretools.confinement.masks import MaskedGitConfig, Masks
from coretools.errors import GitRefused
from coretools.roots.file_version import Version, version_of
from coretools.roots.git_config import NotWritable, Values, parse, serialize, values_of
from coretools.roots.root_set import identity_of

MAX_CONFIG_BYTES = 256 * 1024
"""Of a configuration; a longer one is hidden. Ordinary ones have a few hundred bytes."""

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FIXED = "fixed"
"""Directory of the copies that commands may not change."""
_FORMAT = "core.repositoryformatversion"
"""Key that every repository has."""


@dataclass(slots=True)
class ConfigCopy:
    """One of them, as it was when it was read back last."""

    repository: MaskedGitConfig
    name: str
    """Of its directory."""
    base: Values
    version: Version


class ConfigCopies:
    """The copies of one view."""

    def __init__(self, path: str, masks: Masks) -> None:
        """Lay them out in a new directory.

        Raises:
            OSError: no place for them.
        """
        self.path = path
        self.files: list[ConfigCopy] = []
        self.links: list[tuple[str, str]] = []
        self.texts: dict[str, MaskedGitConfig] = {}
        """What the copies were made of, by what a link to one says."""
        for directory in (path, f"{path}/{_FIXED}"):
            os.mkdir(directory, 0o700)
        self._identities = {one: identity_of(os.lstat(one)) for one in (path, f"{path}/{_FIXED}")}
        for one in masks.git_configs:
            self._add(one)

    def added_to(self, plan: namespaces.NamespacePlan) -> namespaces.NamespacePlan:
        """The plan of a view with these copies."""
        fixed = f"{self.path}/{_FIXED}"
        binds = [
            namespaces.BindMount(
                namespaces.CONFIG_COPIES, writable=True, source=self.path, identity=self._identities[self.path]
            ),
            namespaces.BindMount(
                f"{namespaces.CONFIG_COPIES}/{_FIXED}", writable=False, source=fixed, identity=self._identities[fixed]
            ),
        ]
        return plan._replace(binds=[*plan.binds, *binds], linked=self.links)

    def _add(self, one: MaskedGitConfig) -> None:
        name = token_hex(8)  # a link that a command copied leads nowhere later
        inside = name if one.is_writable else f"{_FIXED}/{name}"
        os.mkdir(f"{self.path}/{inside}", 0o700)
        with open(f"{self.path}/{inside}/config", "xb") as file:
            file.write(one.text)
            version = version_of(os.fstat(file.fileno()))
        self.links.append((one.path, f"{namespaces.CONFIG_COPIES}/{inside}/config"))
        self.texts[self.links[-1][1]] = one
        if one.is_writable:
            self.files.append(ConfigCopy(one, name, values_of(parse(one.text, "config")), version))


def read_changes(path: str, copy: ConfigCopy) -> dict[str, tuple[str | None, ...]]:
    """What is different in a copy since the last time.

    Raises:
        GitRefused, OSError: it is no configuration of a repository any more.
    """
    top = os.open(path, OPEN_DIRECTORY)
    try:
        handle = os.open(copy.name, OPEN_DIRECTORY, dir_fd=top)
    finally:
        os.close(top)
    try:
        version = version_of(os.stat("config", dir_fd=handle, follow_symlinks=False))
        if version == copy.version:
            return {}
        settings = parse(read_regular_file("config", handle)[0], "config")
        serialize(settings)
    except NotWritable as error:
        raise GitRefused(str(error)) from error
    finally:
        os.close(handle)
    now = values_of(settings)
    if _FORMAT in copy.base and _FORMAT not in now:  # emptied, or replaced by something else
        raise GitRefused(f"{_FORMAT} is not set any more")
    changes = {key: now.get(key, ()) for key in {**copy.base, **now} if now.get(key) != copy.base.get(key)}
    copy.version, copy.base = version, now
    return changes


def read_regular_file(name: str, directory: int) -> tuple[bytes, os.stat_result]:
    """A regular file whole.

    Raises:
        OSError: it is something else, or too long.
    """
    handle = os.open(name, _READ, dir_fd=directory)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is no file", name)
        data = b""
        while piece := os.read(handle, MAX_CONFIG_BYTES + 1 - len(data)):
            data += piece
        if len(data) > MAX_CONFIG_BYTES:
            raise OSError(errno.EFBIG, "is too long", name)
        return data, found
    finally:
        os.close(handle)


def replace_file(directory: int, name: str, data: bytes) -> None:
    """Have a file with this content in the place of what has this name."""
    new = f"{name}.{token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(new, flags, 0o644, dir_fd=directory)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(new, dir_fd=directory)
        raise
