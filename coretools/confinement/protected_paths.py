"""The paths beneath the roots that commands must not read or must not change, as the scan found them."""

from collections.abc import Mapping
from typing import NamedTuple

from coretools.roots.hidden_files import Inode


class Suspect(NamedTuple):
    """An entry beneath a root that may have to be hidden."""

    path: str
    """Relative to the root."""
    kind: str
    """Why it is suspect, in terms of the classifier. A renamed file keeps the kind that it was hidden for."""


class HiddenPath(NamedTuple):
    """A path that commands must not read."""

    path: str
    """Absolute."""
    reason: str
    identity: tuple[int, ...]
    """Result of `inode_of`, since a recreated file needs a new overmount even with the old inode number; then size and
    modification time of a file, which its placeholder has too."""


GIT_CONFIG_NAMES = ("config", "config.worktree")


class MaskedGitConfig(NamedTuple):
    """The configuration of a repository with the text that commands see."""

    path: str
    """Absolute path of the file."""
    directory: tuple[int, int]
    """Device and inode of the git directory."""
    is_writable: bool
    """Whether commands may change it."""
    text: bytes
    inode: tuple[int, ...] = ()
    """Inode of the file. A replaced file needs a new overmount."""
    generation: int = 0
    """Number of copies that commands have damaged; each time they get a new one."""


class Masks(NamedTuple):
    """The protected paths beneath the roots: absolute, sorted."""

    pinned: tuple[str, ...]
    """Git directories: their content may change, but they cannot be moved."""
    read_only: tuple[str, ...]
    """Paths that commands may not change."""
    hidden: tuple[HiddenPath, ...]
    """Paths that commands may not read, with the reasons."""
    state: tuple[tuple[str, Inode], ...]
    """Inodes of the pinned and read-only paths. A replaced file needs a new overmount."""
    is_complete: bool
    """False when there were too many directories to search them all."""
    credential_files: tuple[str, ...] = ()
    """Files that may hold credentials for git."""
    git_configs: tuple[MaskedGitConfig, ...] = ()
    """Configurations of which commands see a copy."""

    @property
    def masked(self) -> tuple[str, ...]:
        """The hidden paths."""
        return tuple(one.path for one in self.hidden)

    @property
    def identities(self) -> dict[str, tuple[int, int]]:
        """Device and inode found at each path. When the overmount is made, another file may be there."""
        found = {one.path: (one.directory[0], one.inode[0]) for one in self.git_configs if one.inode}
        found |= {path: (inode.device, inode.number) for path, inode in self.state}
        found |= {one.path: (one.identity[0], one.identity[1]) for one in self.hidden}
        # The inode of a path that is too long is unknown.
        return {path: identity for path, identity in found.items() if identity[1]}


ControlFiles = Mapping[str, tuple[int, ...]]
"""State of each file, by absolute path. The state differs after any change."""
