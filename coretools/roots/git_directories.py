"""Git directories beneath the roots: file tools change nothing in one, and make nothing that git takes for one.

Hooks and settings such as `core.fsmonitor` make git start programs, and git finds them in whatever it takes for a git
directory. Who can write there, or can make such a directory, has the user's own git run a program outside the sandbox.
The git tools are exempt. Reading is too, except for the objects and for resources.

A git directory is recognised by its name, `.git` in any spelling that some file system takes for it, or by its content
(setup.c of git, `is_git_directory`): `HEAD` with `objects` and `refs`, or `HEAD` with `commondir`.
"""

import os
import re
import stat
import unicodedata
from contextlib import suppress

from coretools.cancellation import check_cancelled
from coretools.errors import DeniedPath, TooLarge
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.path_text import printable
from coretools.roots.resolve import ResolvedPath
from coretools.roots.root_set import Roots, join_path

MOST_DIRECTORIES = 50_000
"""Looked through for git directories when a directory is moved."""

GIT_PARTS = ("HEAD", "commondir", "objects", "refs")
"""Entries by which git knows a git directory that has another name than `.git`."""

_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that file systems which ignore case may ignore too (Default_Ignorable_Code_Point; HFS+ has some)."""

_DOT_GIT = re.compile(r"\.git|git~[0-9]+|gi[0-9a-f]{4}~[0-9]+")
"""`.git`, and the short names that Windows file systems give it."""

OBJECTS = "objects"
"""The directory with the content of all versions of all files, single and in packs."""

_TO_READ = "use the git tools (git_log, git_diff), or git in run_command"
_WAY_OUT = "use the git tools, or git in run_command"


def is_git_name(name: str) -> bool:
    """Whether some file system takes this name for `.git`."""
    return _DOT_GIT.fullmatch(_folded(name)) is not None


def is_git_part(name: str) -> bool:
    """Whether some file system takes this name for one of `GIT_PARTS`; they are created one at a time per directory."""
    return _git_part(name) is not None


def require_outside_git(resolved: ResolvedPath) -> None:
    """Refuse a change that is made in a git directory, or makes one.

    Raises:
        DeniedPath: the path lies in a git directory, has the name of one, or would complete one.
    """
    _require_outside(resolved)
    part = _git_part((*resolved.missing, resolved.name)[0])
    if resolved.found is None and part is not None:
        _require_incomplete(resolved, part)


def require_servable(resolved: ResolvedPath) -> None:
    """Refuse what lies in a git directory, for those who read by address: it is no content of the project.

    Raises:
        DeniedPath.
    """
    found = _git_directory_of(resolved)
    if found is not None:
        raise DeniedPath(f"{resolved.shown}: {found}, and nothing of one is served: {_TO_READ}", path=resolved.shown)


def may_be_git_object(relative: str) -> bool:
    """Whether a path could lead to what a git directory stores, by its text alone; of nearly all it can't."""
    return OBJECTS in relative.casefold()


def require_not_git_object(resolved: ResolvedPath) -> None:
    """Refuse the objects of a git directory: every version of every file, also of one that is hidden.

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
                f"{resolved.shown}: what git stores in {printable(join_path(above, name))} is not read as a file:"
                f" {_TO_READ}",
                path=resolved.shown,
            )


def require_no_repository(roots: Roots, resolved: ResolvedPath, *, most: int = MOST_DIRECTORIES) -> None:
    """Refuse a directory that is a git directory, or holds one: at another place git would find it there.

    Raises:
        DeniedPath. TooLarge: too many directories to look through.
    """
    if not stat.S_ISDIR(resolved.require_found().st_mode):
        return
    waiting = [resolved.place.relative]
    looked = 0
    while waiting:
        path = waiting.pop()
        check_cancelled()
        looked += 1
        if looked > most:
            raise TooLarge(
                f"{resolved.shown}: more than {most} directories, too many to look for repositories in; "
                "move it with mv in run_command"
            )
        with suppress(OSError):  # what can't be read is passed over
            found = _repository_in(roots, resolved, path, waiting)
            if found is not None:
                raise _move_refused(resolved, found)


def _repository_in(roots: Roots, resolved: ResolvedPath, path: str, waiting: list[str]) -> str | None:
    """The git directory that this directory is or has an entry for; notes the directories in it."""
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
        f"{resolved.shown}: {what}, and file tools move none: use mv or git in run_command", path=resolved.shown
    )


def _require_outside(resolved: ResolvedPath) -> None:
    found = _git_directory_of(resolved)
    if found is not None:
        raise DeniedPath(f"{resolved.shown}: {found}, and file tools change none: {_WAY_OUT}", path=resolved.shown)


def _git_directory_of(resolved: ResolvedPath) -> str | None:
    """Which git directory a path lies in, or is, as a clause; None for any other."""
    for name in resolved.place.relative.split("/"):
        if is_git_name(name):
            return f"{printable(name)} is a git directory or leads git to one"
    above = resolved.above
    while True:
        if is_git_directory(resolved.root.fd, above):
            return f"lies in a git directory ({printable(above) if above != '.' else 'the root'})"
        # Where a work tree begins git looks no further up: one may lie in a bare repository.
        if entry_exists(resolved.root.fd, join_path(above, ".git")):
            return None
        if above == ".":
            is_inside = any(map(is_git_name, resolved.root.path.split("/")))
            return "its root lies in a git directory" if is_inside else None
        above = above.rpartition("/")[0] or "."


def _git_part(name: str) -> str | None:
    """The part of a git directory that a name is."""
    folded = _folded(name)
    return next((part for part in GIT_PARTS if part.lower() == folded), None)


def _require_incomplete(resolved: ResolvedPath, part: str) -> None:
    if is_git_directory(resolved.fd, ".", more=part):
        raise DeniedPath(
            f"{resolved.shown}: would make a git directory of the one it lies in, and file tools make none: "
            "use git init or git clone in run_command",
            path=resolved.shown,
        )


def is_git_directory(top: int, path: str, *, more: str | None = None) -> bool:
    """Whether git takes a directory for a git directory by what lies in it, `more` counted with it."""

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
    """The name without what some file system ignores: case, invisible characters, an ending of Windows."""
    if not name.isascii():
        name = _IGNORED.sub("", unicodedata.normalize("NFD", name))
    return name.casefold().partition(":")[0].rstrip(". ")
