"""Find entries of git directories by which git reads or writes elsewhere: links, `commondir` and `config.worktree`.

git opens many of its files for writing in place, through a link: `COMMIT_EDITMSG`, `FETCH_HEAD`, everything in `logs`.
So no name is listed: any link counts where git itself keeps files.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from coretools.confinement.protected_paths import DirectoryNode

_OWN = frozenset(
    ("info", "lfs", "logs", "modules", "objects", "refs", "rr-cache", "rebase-apply", "rebase-merge", "sequencer")
)
"""Directories of a git directory in which git keeps files. Others belong to other programs: work trees of
`git subrepo`, for example, which may contain any link. `hooks` is only read, and its entries are control files."""
_WORKTREES = "worktrees"
_NAMED_ANYWAY = frozenset({"config", "hooks"})
"""Links of these names are control files, and a repository is of no use without the former."""
COMMON_DIRECTORY = "commondir"
CONFIGURATION = "config.worktree"
_GIT = ".git"


class Redirect(NamedTuple):
    """An entry of a git directory that leads git elsewhere."""

    top: str
    """Absolute path of the outermost git directory that contains it."""
    target: str | None
    """Where a link leads; None for a file."""


Redirects = Mapping[str, Redirect]
"""Redirects by absolute path."""


def redirecting_names(node: DirectoryNode, entries: Iterable[os.DirEntry[str]]) -> tuple[str, ...]:
    """Return the names of a git directory's entries, or of a directory in one, by which git may be led elsewhere."""
    names = _names_in_git(node)
    if not _is_used_by_git(names):
        return ()
    is_linked_tree = len(names) > 1 and names[-2] == _WORKTREES
    is_log = "logs" in names
    return tuple(
        entry.name
        for entry in entries
        # git reads a link `HEAD` only if it names a reference, and replaces it.
        if (entry.is_symlink() and entry.name not in _NAMED_ANYWAY and (is_log or entry.name != "HEAD"))
        or (entry.name == COMMON_DIRECTORY and not is_linked_tree)
        or entry.name == CONFIGURATION
    )


def redirects_in(nodes: Iterable[DirectoryNode]) -> dict[str, Redirect]:
    """Return all redirects in writable git directories."""
    redirects: dict[str, Redirect] = {}
    for node in nodes:
        if node.listing is None or not node.listing.redirects or not node.root.writable:
            continue
        names = _names_in_git(node)
        here = os.path.normpath(f"{node.root.path}/{node.path}")
        top = here.removesuffix("/" + "/".join(names)) if names else here
        for name in node.listing.redirects:
            with suppress(OSError):
                path = f"{here}/{name}"
                is_link = stat.S_ISLNK(os.stat(path, follow_symlinks=False).st_mode)
                redirects[path] = Redirect(top, os.readlink(path) if is_link else None)
    return redirects


def inaccessible_directories(nodes: Iterable[DirectoryNode]) -> list[str]:
    """Return the directories that git uses and that cannot be listed: it may still open files in them by name."""
    return [
        f"{node.root.path}/{node.path}"
        for node in nodes
        if node.inaccessible_reason and node.role and node.root.writable and _is_used_by_git(_names_in_git(node))
    ]


def _names_in_git(node: DirectoryNode) -> list[str]:
    """Return the path of a directory in its outermost git directory, as names."""
    names = [] if node.path == "." else node.path.split("/")
    return names[names.index(_GIT) + 1 :] if _GIT in names else names


def _is_used_by_git(names: list[str]) -> bool:
    """Whether git itself keeps files in this directory of a git directory."""
    while names[:1] == [_WORKTREES]:  # one for each linked work tree, with the same entries
        names = names[2:]
    return not names or (names[0] in _OWN and (names[0] != "modules" or "hooks" not in names))
