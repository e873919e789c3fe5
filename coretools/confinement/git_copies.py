"""Copies of git configurations for the namespaces of commands: credentials removed, and changes read back.

Commands can change a copy in any way, so reading it back trusts nothing: regular files only, no links, limited length,
and nothing is written to a directory that commands could write to.
"""

import os
from dataclasses import dataclass
from secrets import token_hex

from coretools.confinement import namespaces
from coretools.confinement.protected_paths import MaskedGitConfig, Masks
from coretools.errors import GitRefused
from coretools.regular_file import read_regular
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.file_version import Version, version_of
from coretools.roots.git_config import NotWritable, Values, parse, serialize, values_of
from coretools.roots.root import identity_of

MAX_CONFIG_BYTES = 256 * 1024
"""Longest configuration that is copied; a longer one is hidden. Ordinary ones have a few hundred bytes."""

_FIXED = "fixed"
"""Subdirectory of the copies that commands may not change."""
_FORMAT = "core.repositoryformatversion"
"""Key that the configuration of every repository has."""


@dataclass(slots=True)
class ConfigCopy:
    """A copy, as it was when it was last read back."""

    repository: MaskedGitConfig
    name: str
    """Name of its directory."""
    base: Values
    version: Version


class ConfigCopies:
    """The copies for one set of namespaces."""

    def __init__(self, path: str, masks: Masks) -> None:
        """Write them to a new directory.

        Raises:
            OSError: they cannot be written.
        """
        self.path = path
        self.files: list[ConfigCopy] = []
        self.links: list[tuple[str, str]] = []
        self.originals: dict[str, MaskedGitConfig] = {}
        """The original of each copy, by the target of the link to it."""
        for directory in (path, f"{path}/{_FIXED}"):
            os.mkdir(directory, 0o700)
        self._identities = {one: identity_of(os.lstat(one)) for one in (path, f"{path}/{_FIXED}")}
        for one in masks.git_configs:
            self._add(one)

    def added_to(self, plan: namespaces.NamespacePlan) -> namespaces.NamespacePlan:
        """Return the namespace plan extended by these copies."""
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

    def is_changed(self, copy: ConfigCopy) -> bool:
        """Whether a copy was changed or removed since it was last read back."""
        try:
            status = os.stat(f"{self.path}/{copy.name}/config", follow_symlinks=False)
        except OSError:
            return True
        return version_of(status) != copy.version

    def _add(self, one: MaskedGitConfig) -> None:
        name = token_hex(8)  # unguessable, so that a copied link is dangling later
        inside = name if one.is_writable else f"{_FIXED}/{name}"
        os.mkdir(f"{self.path}/{inside}", 0o700)
        with open(f"{self.path}/{inside}/config", "xb") as file:
            file.write(one.text)
            file.flush()
            version = version_of(os.fstat(file.fileno()))
        self.links.append((one.path, f"{namespaces.CONFIG_COPIES}/{inside}/config"))
        self.originals[self.links[-1][1]] = one
        if one.is_writable:
            self.files.append(ConfigCopy(one, name, values_of(parse(one.text, "config")), version))


def read_changes(path: str, copy: ConfigCopy) -> dict[str, tuple[str | None, ...]]:
    """Return the keys that changed in a copy since the last call, with their new values.

    Raises:
        GitRefused, OSError: the copy is no longer the configuration of a repository.
    """
    top = os.open(path, DIRECTORY)
    try:
        handle = os.open(copy.name, DIRECTORY, dir_fd=top)
    finally:
        os.close(top)
    try:
        version = version_of(os.stat("config", dir_fd=handle, follow_symlinks=False))
        if version == copy.version:
            return {}
        settings = parse(read_regular("config", MAX_CONFIG_BYTES, directory=handle)[0], "config")
        serialize(settings)
    except NotWritable as error:
        raise GitRefused(str(error)) from error
    finally:
        os.close(handle)
    now = values_of(settings)
    if _FORMAT in copy.base and _FORMAT not in now:  # emptied or replaced
        raise GitRefused(f"{_FORMAT} is not set any more")
    changes = {key: now.get(key, ()) for key in {**copy.base, **now} if now.get(key) != copy.base.get(key)}
    copy.version, copy.base = version, now
    return changes
