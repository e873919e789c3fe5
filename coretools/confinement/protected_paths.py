"""The paths beneath the roots that commands must not read or must not change, as the scan found them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coretools.roots.file_version import Version
from coretools.roots.hidden_inodes import Inode
from coretools.roots.root import Root


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
    settings: tuple[str, ...] = ()
    """Settings of editors and agents that commands may not change."""

    @property
    def masked(self) -> tuple[str, ...]:
        """The hidden paths."""
        return tuple(one.path for one in self.hidden)

    @property
    def identities(self) -> dict[str, tuple[int, int]]:
        """Device and inode found at each path. When the overmount is made, another file may be there."""
        identities = {one.path: (one.directory[0], one.inode[0]) for one in self.git_configs if one.inode}
        identities |= {path: (inode.device, inode.number) for path, inode in self.state}
        identities |= {one.path: (one.identity[0], one.identity[1]) for one in self.hidden}
        # The inode of a path that is too long is unknown.
        return {path: identity for path, identity in identities.items() if identity[1]}


ControlFiles = Mapping[str, tuple[int, ...]]
"""State of each file, by absolute path. The state differs after any change."""


class SubdirectoryEntry(NamedTuple):
    """A subdirectory in a listing, to be scanned too."""

    inode: int
    role: str
    """What the `read` callback takes it for."""


class ProtectedPath(NamedTuple):
    """A file or directory that commands may not change or move, or that needs a check for credentials."""

    path: str
    """Relative to the root."""
    identity: Inode
    """A replaced file needs a new overmount."""


class SettingEntry(NamedTuple):
    """A file, directory or link with the name of a setting of an editor or agent."""

    path: str
    """Relative to the root."""
    identity: Inode
    is_link: bool
    is_nested: bool
    """Whether it is one in the top above its directory: `.github/hooks`."""


@dataclass(slots=True)
class ScannedDirectory:
    """What the scan found in one directory."""

    children: dict[str, SubdirectoryEntry] = field(default_factory=dict)
    pinned: list[ProtectedPath] = field(default_factory=list)
    read_only: list[ProtectedPath] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    control: tuple[str, ...] = ()
    """Names of entries that git acts on."""
    is_git: bool = False
    """Whether it is a git directory."""
    links: list[tuple[str, str]] = field(default_factory=list)
    """Configurations that are absolute links, with their targets."""
    redirects: tuple[str, ...] = ()
    """Names of entries by which git reads or writes elsewhere."""
    credential_files: list[ProtectedPath] = field(default_factory=list)
    """Files that may hold credentials for git."""
    is_top: bool = False
    """Whether people open it: the root, or a directory with a `.git`."""
    is_linked: bool = False
    """Whether it is a linked work tree, which commands may remove."""
    settings: list[SettingEntry] = field(default_factory=list)
    """Entries that are settings of editors and agents if it is a top, or its parent is one."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing in it matters."""
        is_relevant = self.pinned or self.read_only or self.suspects or self.credential_files or self.links
        return not (is_relevant or self.control or self.is_git or self.settings or self.redirects)


@dataclass(slots=True, eq=False)
class DirectoryNode:
    """A known directory."""

    root: Root
    path: str
    """Relative to the root, `.` for the root."""
    inode: int
    """Inode from the parent's listing, which for a mount point is that of the directory beneath."""
    role: str
    kind: str
    """File system type."""
    parent: "DirectoryNode | None" = None
    children: dict[str, "DirectoryNode"] = field(default_factory=dict)
    listing: ScannedDirectory | None = None
    """None before it was read, and while it cannot be read."""
    inaccessible_reason: str = ""
    """Why it cannot be scanned; empty if it can."""
    identity: tuple[int, int] = (0, 0)
    version: Version | None = None
    is_settled: bool = False
    watch: int | None = None
    is_gone: bool = False

    def join(self, name: str) -> str:
        """Return the path of an entry."""
        return name if self.path == "." else f"{self.path}/{name}"
