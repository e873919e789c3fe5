"""Git directories beneath the roots: file tools change nothing in one, and create nothing that git takes for one.

Hooks and settings such as `core.fsmonitor` make git start programs, and git looks for them in every git directory.
Whoever can write there, or can create such a directory, makes the user's own git run a program outside the sandbox.
The git tools are exempt. So is reading, except for the objects and for resources.

A git directory is recognised by its name, `.git` in any spelling that some file system maps to it, or by its content
(`is_git_directory` in git's setup.c): `HEAD` with `objects` and `refs`, or `HEAD` with `commondir`.
"""

import os
import re
import stat
import unicodedata
from contextlib import suppress

from coretools.cancellation import check_cancelled
from coretools.errors import DeniedPath, TooLarge
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.path_text import IGNORABLE, printable
from coretools.roots.root import ResolvedPath, join_path
from coretools.roots.root_set import Roots

MAX_DIRECTORIES = 50_000
"""Directories searched for git directories when a directory is moved."""

GIT_PARTS = ("HEAD", "commondir", "objects", "refs")
"""Entries by which git recognises a git directory with another name than `.git`."""

_DOT_GIT = re.compile(r"\.git|git~[0-9]+|gi[0-9a-f]{4}~[0-9]+")
"""`.git`, and its 8.3 names on Windows file systems."""

OBJECTS = "objects"
"""The directory with the content of all versions of all files, single and in packs."""

_TO_READ = "use the git tools (git_log, git_diff), or git in run_command"
_WAY_OUT = "use the git tools, or git in run_command"


def is_git_name(name: str) -> bool:
    """Whether some file system maps this name to `.git`."""
    return _DOT_GIT.fullmatch(_folded(name)) is not None


def is_git_part(name: str) -> bool:
    """Whether some file system maps this name to one of `GIT_PARTS`; in a directory they are created one at a time."""
    return _git_part(name) is not None


def require_outside_git(resolved: ResolvedPath) -> None:
    """Refuse a change in a git directory, or one that creates a git directory.

    Raises:
        DeniedPath: the path lies in a git directory, has the name of one, or would complete one.
    """
    _require_outside(resolved)
    part = _git_part((*resolved.missing, resolved.name)[0])
    if resolved.found is None and part is not None:
        _require_incomplete(resolved, part)


def require_servable(resolved: ResolvedPath) -> None:
    """Refuse to serve anything in a git directory as a resource: it is not content of the project.

    Raises:
        DeniedPath.
    """
    found = _git_directory_of(resolved)
    if found is not None:
        raise DeniedPath(
            f"{resolved.display_path}: {found}, and nothing of one is served: {_TO_READ}", path=resolved.display_path
        )


def may_be_git_object(relative: str) -> bool:
    """Whether a path could lead to git's objects, by its text alone; false for nearly all."""
    return OBJECTS in relative.casefold()


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
        if _folded(name) != OBJECTS:
            continue
        above = "/".join(names[:number]) or "."
        if any(map(is_git_name, names[:number])) or is_git_directory(resolved.root.fd, above):
            raise DeniedPath(
                f"{resolved.display_path}: what git stores in {printable(join_path(above, name))} is not read as a"
                f" file: {_TO_READ}",
                path=resolved.display_path,
            )


def require_no_repository(roots: Roots, resolved: ResolvedPath, *, most: int = MAX_DIRECTORIES) -> None:
    """Refuse to move a directory that is or contains a git directory: git would find it at the new path.

    Raises:
        DeniedPath. TooLarge: too many directories to search.
    """
    if not stat.S_ISDIR(resolved.require_found().st_mode):
        return
    waiting = [resolved.place.relative]
    count = 0
    while waiting:
        path = waiting.pop()
        check_cancelled()
        count += 1
        if count > most:
            raise TooLarge(
                f"{resolved.display_path}: more than {most} directories, too many to search for repositories; "
                "move it with mv in run_command"
            )
        with suppress(OSError):  # unreadable directories are skipped
            found = _repository_in(roots, resolved, path, waiting)
            if found is not None:
                raise _move_refused(resolved, found)


def _repository_in(roots: Roots, resolved: ResolvedPath, path: str, waiting: list[str]) -> str | None:
    """The git directory that this directory is or contains, or None; appends its subdirectories to `waiting`."""
    fd = roots.resolver.open(resolved.root.fd, path, DIRECTORY)
    try:
        if is_git_directory(fd, "."):
            return path
        with os.scandir(fd) as entries:
            for entry in entries:
                if is_git_name(entry.name):
                    return join_path(path, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(join_path(path, entry.name))
        return None
    finally:
        os.close(fd)


def _move_refused(resolved: ResolvedPath, found: str) -> DeniedPath:
    what = "is a git directory" if found == resolved.place.relative else f"holds the git directory {printable(found)}"
    return DeniedPath(
        f"{resolved.display_path}: {what}, and file tools move none: use mv or git in run_command",
        path=resolved.display_path,
    )


def _require_outside(resolved: ResolvedPath) -> None:
    found = _git_directory_of(resolved)
    if found is not None:
        raise DeniedPath(
            f"{resolved.display_path}: {found}, and file tools change none: {_WAY_OUT}", path=resolved.display_path
        )


def _git_directory_of(resolved: ResolvedPath) -> str | None:
    """Which git directory a path lies in, or is, as a clause; None for any other."""
    for name in resolved.place.relative.split("/"):
        if is_git_name(name):
            return f"{printable(name)} is a git directory or leads git to one"
    above = resolved.above
    while True:
        if is_git_directory(resolved.root.fd, above):
            return f"lies in a git directory ({printable(above) if above != '.' else 'the root'})"
        # Git stops searching upwards at the top of a work tree, which may lie in a bare repository.
        if entry_exists(resolved.root.fd, join_path(above, ".git")):
            return None
        if above == ".":
            is_inside = any(map(is_git_name, resolved.root.path.split("/")))
            return "its root lies in a git directory" if is_inside else None
        above = above.rpartition("/")[0] or "."


def _git_part(name: str) -> str | None:
    """The part of a git directory that a name denotes, or None."""
    folded = _folded(name)
    return next((part for part in GIT_PARTS if part.lower() == folded), None)


def _require_incomplete(resolved: ResolvedPath, part: str) -> None:
    if is_git_directory(resolved.fd, ".", more=part):
        raise DeniedPath(
            f"{resolved.display_path}: would make a git directory of the one it lies in, and file tools make none: "
            "use git init or git clone in run_command",
            path=resolved.display_path,
        )


def is_git_directory(top: int, path: str, *, more: str | None = None) -> bool:
    """Whether git recognises a directory as a git directory by its entries, with `more` counted as present."""

    def has(part: str) -> bool:
        return part == more or entry_exists(top, join_path(path, part))

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


def entry_exists(top: int, path: str) -> bool:
    """Whether an entry of that name exists beneath an open directory; links are not followed."""
    try:
        os.stat(path, dir_fd=top, follow_symlinks=False)
    except OSError:
        return False
    return True


def _folded(name: str) -> str:
    """The name without what some file system ignores: case, invisible characters, a suffix that Windows drops."""
    if not name.isascii():
        name = IGNORABLE.sub("", unicodedata.normalize("NFD", name))
    return name.casefold().partition(":")[0].rstrip(". ")
