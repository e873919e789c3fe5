"""What stands beneath the roots that a command must not read, or must not change: found anew before every command.

Denied paths are laid over in the view; the control files of a repository, and the settings of editors and agents, are
made unchangeable in it. Both are by path, so they have to be known. A look costs one stat for each directory: listings
are remembered, and read again when the directory has changed. Decides nothing about tools; `sandbox.deny` does.
"""

import os
import re
import stat
from dataclasses import dataclass, field
from typing import NamedTuple

from coretools.confinement.hidden import ByName, Classifier, Hidden, HiddenFiles, Suspect, inode_of
from coretools.sandbox.roots import Root, Roots

CONTROL = frozenset({".vscode", ".idea", ".cursor", ".claude", ".codex", ".gemini", ".mcp.json", ".devcontainer"})
"""Settings at the top of a root that an editor or an agent acts on when it opens it."""

REPOSITORY = ("config", "config.worktree", "hooks")
"""Entries of a git directory that decide what git runs."""

LEADING = (".git", *(f".git/{name}" for name in (*REPOSITORY, "commondir")))
"""What leads git to code, in the repository that a root is: told of when a command made it."""

_POINTER_BYTES = 8192
_WORKTREE = re.compile(rb"gitdir: [^\n]*/worktrees/[^/\n]+\n?\Z")
"""What the `.git` file of a linked worktree says; that of a submodule leads to `modules/NAME`."""

MOST_DIRECTORIES = 50_000
"""Looked into; what lies beyond is closed to commands whole, which is then said by name."""


class Masks(NamedTuple):
    """Absolute paths, sorted."""

    pinned: tuple[str, ...]
    """Git directories: their content changes, they themselves stay."""
    fixed: tuple[str, ...]
    """Not to be changed."""
    hidden: tuple[Hidden, ...]
    """Not to be read, with the reason."""
    state: tuple[tuple[int, ...], ...]
    """Device, inode and birth time of what is pinned and fixed: a file that was replaced is laid over again."""
    is_whole: bool
    """False when there were too many directories to look into all of them."""

    @property
    def masked(self) -> tuple[str, ...]:
        """Paths of what is hidden."""
        return tuple(one.path for one in self.hidden)


@dataclass(slots=True)
class _Listing:
    """What was found in one directory, and when."""

    stamp: tuple[int, int, int]
    directories: list[str]
    suspects: list[Suspect]
    repositories: list[str]


@dataclass(slots=True)
class _Found:
    pinned: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    suspects: list[tuple[Root, Suspect]] = field(default_factory=list)
    closed: list[Hidden] = field(default_factory=list)
    """Directories that can't be looked into."""
    directories: int = 0


class MaskFinder:
    """Looks through the roots and remembers what it saw. Blocks: a first look at 50,000 files takes 0.1 s."""

    def __init__(self, roots: Roots, classifier: Classifier | None = None) -> None:
        """Without a classifier files are hidden by name, as the deny globs of the roots say."""
        self._roots = roots
        self._hidden = HiddenFiles(classifier or ByName(roots.deny))
        self._listings: dict[tuple[str, str], _Listing] = {}
        self.directories = 0
        """How many the last look took in: what it will cost again."""

    def look(self) -> Masks:
        """What is to be laid over now."""
        found = _Found()
        seen: dict[tuple[str, str], _Listing] = {}
        for root in self._roots:
            self._look_through(root, found, seen)
        self._listings = seen
        self.directories = found.directories
        pinned, fixed = (tuple(sorted(set(paths))) for paths in (found.pinned, found.fixed))
        hidden = tuple(sorted({*self._hidden.hidden(found.suspects), *found.closed}))
        state = tuple(_identity(path) for path in (*pinned, *fixed))
        return Masks(pinned, fixed, hidden, state, found.directories < MOST_DIRECTORIES)

    def control_files(self) -> frozenset[str]:
        """The settings of editors and agents that are there now, by path. Cheap: a stat for each of the names."""
        return frozenset(
            f"{root.path}/{name}"
            for root in self._roots
            if root.writable
            for name in (*CONTROL, *LEADING)
            if _kind(root.fd, name)
        )

    def _look_through(self, root: Root, found: _Found, seen: dict[tuple[str, str], _Listing]) -> None:
        found.fixed += [f"{root.path}/{name}" for name in sorted(CONTROL) if _exists(root.fd, name)]
        waiting = ["."]
        while waiting and found.directories < MOST_DIRECTORIES:
            here = waiting.pop()
            try:
                listing = self._listing(root, here)
            except OSError:  # closed to us, or too deep: commands may open it again, so it is closed to them whole
                found.closed += [] if here == "." else [_closed(root, here, "can't be searched for secrets")]
                continue
            if listing is None:
                continue
            seen[root.path, here] = listing
            found.directories += 1
            found.suspects += [(root, suspect) for suspect in listing.suspects]
            for path in listing.repositories:
                _note_repository(root, path, found)
            waiting += listing.directories
        # What is too much to be looked through is closed whole.
        found.closed += [_closed(root, path, "too many directories to search") for path in waiting]

    def _listing(self, root: Root, here: str) -> _Listing | None:
        try:
            status = os.stat(here, dir_fd=root.fd, follow_symlinks=False)
            stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            known = self._listings.get((root.path, here))
            return known if known is not None and known.stamp == stamp else _listed(root, here, stamp, self._hidden)
        except (FileNotFoundError, NotADirectoryError):  # gone meanwhile
            return None


def _listed(root: Root, here: str, stamp: tuple[int, int, int], hidden: HiddenFiles) -> _Listing:
    listing = _Listing(stamp, [], [], [])
    handle = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root.fd)
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                path = entry.name if here == "." else f"{here}/{entry.name}"
                if entry.name == ".git":
                    listing.repositories.append(path)
                elif (kind := hidden.suspicion(root, path, entry)) is not None:
                    listing.suspects.append(Suspect(path, kind))
                elif entry.is_dir(follow_symlinks=False):
                    listing.directories.append(path)
    finally:
        os.close(handle)
    return listing


def _closed(root: Root, path: str, reason: str) -> Hidden:
    return Hidden(f"{root.path}/{path}", reason, _identity(f"{root.path}/{path}"))


def _note_repository(root: Root, path: str, found: _Found) -> None:
    """A `.git`: a directory that stays with its parts fixed, or a file that leads to one."""
    kind = _kind(root.fd, path)
    if kind == stat.S_IFREG and not _is_in_worktree(root.fd, path):
        found.fixed.append(f"{root.path}/{path}")
    if kind != stat.S_IFDIR:
        return
    found.pinned.append(f"{root.path}/{path}")
    for directory in (path, *_inner_repositories(root.fd, path)):
        parts = [f"{directory}/{name}" for name in REPOSITORY]
        found.fixed += [f"{root.path}/{part}" for part in parts if _kind(root.fd, part) in (stat.S_IFREG, stat.S_IFDIR)]


def _is_in_worktree(top: int, path: str) -> bool:
    """Whether a `.git` file below the top of the root is that of a linked worktree (gitrepository-layout(5)).

    Such a tree has to be removable: `git worktree remove` deletes the file.
    """
    if path == ".git":
        return False
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=top)
    except OSError:
        return False
    try:
        return _WORKTREE.match(os.read(handle, _POINTER_BYTES)) is not None
    except OSError:
        return False
    finally:
        os.close(handle)


def _inner_repositories(top: int, path: str) -> list[str]:
    """Git directories of submodules and worktrees, which lie in the one of their repository."""
    found, waiting = [], [f"{path}/modules", f"{path}/worktrees"]
    while waiting:
        here = waiting.pop()
        try:
            handle = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        except OSError:
            continue
        try:
            with os.scandir(handle) as entries:
                names = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
        finally:
            os.close(handle)
        is_repository = _exists(top, f"{here}/HEAD")
        if is_repository:
            found.append(here)
        inner = names & {"modules"} if is_repository else names
        waiting += [f"{here}/{name}" for name in inner]
    return found


def _kind(top: int, path: str) -> int:
    try:
        return stat.S_IFMT(os.stat(path, dir_fd=top, follow_symlinks=False).st_mode)
    except OSError:
        return 0


def _exists(top: int, name: str) -> bool:
    return _kind(top, name) in (stat.S_IFREG, stat.S_IFDIR)


def _identity(path: str) -> tuple[int, ...]:
    return inode_of(path) or (0, 0, 0)
