"""Git directories beneath the roots: file tools change nothing in one, and create nothing that git takes for one.

Hooks and settings such as `core.fsmonitor` make git start programs, and git looks for them in every git directory.
Whoever can write there, or can create such a directory, makes the user's own git run a program outside the sandbox.
The git tools are exempt. So is reading, except for the objects and for resources.
"""

import os
import posixpath
import stat
from contextlib import ExitStack, suppress
from typing import NamedTuple

from coretools.cancellation import check_cancelled
from coretools.errors import Conflict, DeniedPath, GitRefused, TooLarge
from coretools.roots.directory_access import DIRECTORY, translate_errors
from coretools.roots.git_layout import (
    OBJECTS,
    folded,
    git_directory_of,
    git_part,
    is_git_directory,
    is_git_name,
    may_be_git_object,
)
from coretools.roots.open_beneath import HANDLE
from coretools.roots.path_text import printable
from coretools.roots.root import ResolvedPath, RootedPath, identity_of, join_path
from coretools.roots.root_set import Roots

MAX_DIRECTORIES = 50_000
"""Directories searched for git directories when a directory is moved or deleted."""

_TO_READ = "use the git tools (git_log, git_diff), or git in run_command"
_WAY_OUT = "use the git tools, or git in run_command"


def require_outside_git(resolved: ResolvedPath) -> None:
    """Refuse a change in a git directory, or one that creates a git directory.

    Raises:
        DeniedPath: the path lies in a git directory, has the name of one, or would complete one.
    """
    clause = git_directory_of(resolved.place, resolved.above)
    if clause is not None:
        raise DeniedPath(
            f"{resolved.display_path}: {clause}, and file tools change none: {_WAY_OUT}", path=resolved.display_path
        )
    part = git_part((*resolved.missing, resolved.name)[0])
    if resolved.found is None and part is not None and is_git_directory(resolved.fd, ".", more=part):
        raise DeniedPath(
            f"{resolved.display_path}: would make a git directory of the one it lies in, and file tools make none: "
            "use git init or git clone in run_command",
            path=resolved.display_path,
        )


def require_servable(resolved: ResolvedPath) -> None:
    """Refuse to serve anything in a git directory as a resource: it is not content of the project.

    Raises:
        DeniedPath.
    """
    clause = git_directory_of(resolved.place, resolved.above)
    if clause is not None:
        raise DeniedPath(
            f"{resolved.display_path}: {clause}, and nothing of one is served: {_TO_READ}", path=resolved.display_path
        )


def require_not_git_object(resolved: ResolvedPath) -> None:
    """Refuse the objects of a git directory: they hold every version of every file, also of hidden ones.

    Raises:
        DeniedPath.
    """
    relative = resolved.place.relative
    if not may_be_git_object(relative):
        return
    names = relative.split("/")
    for number, name in enumerate(names):
        if folded(name) != OBJECTS:
            continue
        above = "/".join(names[:number]) or "."
        if any(map(is_git_name, names[:number])) or is_git_directory(resolved.root.fd, above):
            raise DeniedPath(
                f"{resolved.display_path}: what git stores in {printable(join_path(above, name))} is not read as a"
                f" file: {_TO_READ}",
                path=resolved.display_path,
            )


def require_no_repository(resolved: ResolvedPath) -> None:
    """Refuse to move a directory that is or contains a git directory: git would find it at the new path.

    Raises:
        DeniedPath. TooLarge: too many directories to search.
    """
    repository = _find_repository(resolved, remedy="move it with mv in run_command")
    if repository is not None:
        is_itself = repository == resolved.place.relative
        what = "is a git directory" if is_itself else f"holds the git directory {printable(repository)}"
        raise DeniedPath(
            f"{resolved.display_path}: {what}, and file tools move none: use mv or git in run_command",
            path=resolved.display_path,
        )


def require_no_lost_repository(roots: Roots, resolved: ResolvedPath) -> None:
    """Refuse to delete a directory that is or contains a repository: its history may be nowhere else.

    Raises:
        GitRefused. TooLarge: too many directories to search.
    """
    remedy = "to delete it with all repositories in it, call again with with_repositories=true"
    repository = _find_repository(resolved, remedy=remedy)
    if repository is None:
        return
    place = resolved.place.relative
    what = "is a git directory"
    if repository != place:
        above = posixpath.dirname(repository) or "."
        where = roots.display_path(RootedPath(resolved.root, above))
        what = "is a git repository" if above == place else f"contains the git repository {where}"
    raise GitRefused(
        f"{resolved.display_path}: {what}, and with it uncommitted work, stashes and commits that were never pushed"
        f" would be lost; git_status and git_log show them; {remedy}",
        path=resolved.display_path,
    )


class _Level(NamedTuple):
    """A directory that is being searched."""

    path: str
    """Relative to the root."""
    identity: tuple[int, int]
    waiting: list[str]
    """Names of subdirectories that are not searched yet."""


def _find_repository(resolved: ResolvedPath, *, remedy: str) -> str | None:
    """A git directory that this directory is or contains, relative to the root; None if there is none.

    Raises:
        TooLarge: it has too many directories; `remedy` is what works then. Conflict: a directory was moved.
    """
    if not stat.S_ISDIR(resolved.require_found().st_mode):
        return None
    top, name = posixpath.split(resolved.place.relative)
    # From the handle of the parent, and back by `..`: at most two descriptors, and no longer paths, at any depth.
    here = os.dup(resolved.fd)
    levels = [_Level(top or ".", identity_of(os.fstat(here)), [name])]
    count = 0
    try:
        while True:
            check_cancelled()
            level = levels[-1]
            if level.waiting:
                count += 1
                if count > MAX_DIRECTORIES:
                    raise TooLarge(
                        f"{resolved.display_path}: more than {MAX_DIRECTORIES} directories, too many to search for"
                        f" repositories; {remedy}"
                    )
                repository, here = _search(levels, here, level.waiting.pop())
                if repository is not None:
                    return repository
            elif len(levels) == 1:
                return None
            else:
                levels.pop()
                here = _leave(here, levels[-1], resolved.display_path)
    finally:
        os.close(here)


def _search(levels: list[_Level], here: int, name: str) -> tuple[str | None, int]:
    """Search a subdirectory of `here`; return the git directory that it is or contains, and where to continue.

    That is in the subdirectory, as a new level, if it has subdirectories. What cannot be read is skipped.
    """
    path = join_path(levels[-1].path, name)
    with ExitStack() as opened, suppress(OSError):
        below = os.open(name, DIRECTORY, dir_fd=here)
        opened.callback(os.close, below)
        if is_git_directory(below, "."):
            return path, here
        waiting = []
        with os.scandir(below) as entries:
            for entry in entries:
                if is_git_name(entry.name):
                    return join_path(path, entry.name), here
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.name)
        if waiting:
            os.stat("..", dir_fd=below)  # refused where nothing in it can be opened either
            levels.append(_Level(path, identity_of(os.fstat(below)), waiting))
            opened.pop_all()
            os.close(here)
            return None, below
    return None, here


def _leave(here: int, level: _Level, display_path: str) -> int:
    """Go back to the directory of a level; close the one that is left."""
    with translate_errors(display_path):
        above = os.open("..", HANDLE, dir_fd=here)
        if identity_of(os.fstat(above)) != level.identity:
            os.close(above)
            raise Conflict(f"{display_path}: something in it was moved concurrently; call again", path=display_path)
    os.close(here)
    return above
