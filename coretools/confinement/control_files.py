"""Find the files beneath the roots that git acts on: git directories, pointers to them, settings, hooks, rebases.

Commands may create all of them (`git init`, `git clone`), so their state is compared before and after each command, and
the result reports differences. `directory_scan` knows which directories changed, this module which of their entries
matter. A git directory is what git takes for one (setup.c, `is_git_directory`): it has `HEAD` with `objects` and
`refs`, or with `commondir`.
"""

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress

from coretools.confinement.protected_paths import ControlFiles, DirectoryNode, ScannedDirectory
from coretools.regular_file import read_regular
from coretools.roots.file_version import version_of
from coretools.roots.git_layout import REMOTES
from coretools.roots.hidden_inodes import inode_of
from coretools.roots.root import identity_of

_LISTED_DIRECTORIES = ("hooks", *REMOTES)
"""Directories in which every entry matters: programs, and remotes in git's oldest formats."""
SETTINGS = ("config", "config.worktree", "commondir", *_LISTED_DIRECTORIES)
"""Entries of a git directory that determine what git runs."""

_UNFINISHED = {"rebase-merge": "git-rebase-todo", "sequencer": "todo"}
"""Todo lists, by the directory that holds them. `git rebase --continue` runs their `exec` lines."""
_EXEC = re.compile(rb"^[ \t\r]*(?:exec|x)[\s\0]", re.MULTILINE)
_MAX_LIST_BYTES = 1024 * 1024
"""Bytes of a todo list that are read. A longer one is assumed to start programs."""

_GIT_DIRECTORY_ENTRIES = frozenset({"HEAD", "objects", "refs", *SETTINGS})
_GIT = ".git"
_SAMPLE_SUFFIX = ".sample"


class ControlFileCollector:
    """Collects the entries of one directory that matter."""

    def __init__(self, path: str, *, is_git: bool = False) -> None:
        """`is_git`: it is known to be a git directory or to become one."""
        self._is_git = is_git
        self._is_listed = path.rpartition("/")[2] in _LISTED_DIRECTORIES
        self._unfinished = _UNFINISHED.get(path.rpartition("/")[2])
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        """Add the name of an entry."""
        if name in _GIT_DIRECTORY_ENTRIES or self._is_listed or name == self._unfinished or name.lower() == _GIT:
            self._names.add(name)

    def store(self, listing: ScannedDirectory) -> None:
        """Store in the listing what matters."""
        names = self._names
        is_layout = "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= names)
        listing.is_git = self._is_git or is_layout
        own = SETTINGS if listing.is_git else ()
        listing.control = tuple(
            name
            for name in names
            if name.lower() == _GIT
            or name in own
            or name == self._unfinished
            or (self._is_listed and not name.endswith(_SAMPLE_SUFFIX))
        )


def control_files(nodes: Iterable[DirectoryNode]) -> dict[str, tuple[int, ...]]:
    """Return the current state of the control files. Costs a stat for each; a repository has about five."""
    listed = [(node, node.listing) for node in nodes if node.listing is not None and node.root.writable]
    git = _git_directories(listed)
    states: dict[str, tuple[int, ...]] = {}
    for node, listing in listed:
        here = f"{node.root.path}/{node.path}".removesuffix("/.")
        if listing.is_git:
            states[here] = tuple(inode_of(here) or ())
        for name in listing.control:
            if _is_control_file(here, name, is_git=listing.is_git, is_in_git=os.path.dirname(here) in git):
                record_state(f"{here}/{name}", states)
    return states


def old_remotes(nodes: Iterable[DirectoryNode]) -> list[str]:
    """Return the files with remotes in git's oldest formats."""
    listed = [(node, node.listing) for node in nodes if node.listing is not None]
    git = _git_directories(listed)
    return [
        f"{node.root.path}/{node.join(name)}"
        for node, listing in listed
        if os.path.basename(node.path) in REMOTES and os.path.dirname(f"{node.root.path}/{node.path}") in git
        for name in listing.control
    ]


def _git_directories(listed: Iterable[tuple[DirectoryNode, ScannedDirectory]]) -> set[str]:
    return {f"{node.root.path}/{node.path}".removesuffix("/.") for node, listing in listed if listing.is_git}


def _is_control_file(directory: str, name: str, *, is_git: bool, is_in_git: bool) -> bool:
    """Whether an entry is a control file. `is_git` and `is_in_git` describe its directory."""
    if name.lower() == _GIT or (is_git and name in SETTINGS):
        return True
    base = os.path.basename(directory)
    if base in _UNFINISHED:
        return is_in_git and _starts_programs(f"{directory}/{name}")
    return is_in_git or base not in _LISTED_DIRECTORIES


def changed_between(before: ControlFiles, after: ControlFiles) -> tuple[str, ...]:
    """Return the paths that are new, replaced or changed; of a new git directory only the directory."""
    changed: dict[str, None] = {}
    for path in sorted(path for path, state in after.items() if before.get(path) != state):
        if not any(above in changed for above in _parents(path)):
            changed[path] = None
    return tuple(changed)


def _parents(path: str) -> Iterable[str]:
    while len(path) > 1:
        path = os.path.dirname(path)
        yield path


def _starts_programs(path: str) -> bool:
    """Whether a todo list has an `exec` line, or cannot be read."""
    try:
        data, _ = read_regular(path, _MAX_LIST_BYTES)
    except OSError:
        return True
    return _EXEC.search(data) is not None


def record_state(path: str, states: dict[str, tuple[int, ...]]) -> None:
    """Add the state of a path to `found`, if it exists."""
    with suppress(OSError):
        status = os.stat(path, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if os.path.basename(path) not in _LISTED_DIRECTORIES:
                states[path] = tuple(inode_of(path) or ())
            return
        states[path] = file_state(status)
        if stat.S_ISLNK(status.st_mode):  # the state of a link includes that of its target
            states[path] += file_state(os.stat(path))


def file_state(status: os.stat_result) -> tuple[int, ...]:
    """Return values that differ after any change of the file."""
    if stat.S_ISDIR(status.st_mode):
        return identity_of(status)
    return version_of(status)
