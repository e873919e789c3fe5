"""Recognise git directories, and the files in them that may hold credentials.

A git directory is recognised by its name, `.git` in any spelling that some file system maps to it, or by its content
(`is_git_directory` in git's setup.c): `HEAD` with `objects` and `refs`, or `HEAD` with `commondir`.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from coretools.roots.path_text import IGNORABLE, printable
from coretools.roots.root import RootedPath, join_path

GIT_PARTS = ("HEAD", "commondir", "objects", "refs")
"""Entries by which git recognises a git directory with another name than `.git`."""

_DOT_GIT = re.compile(r"\.git|git~[0-9]+|gi[0-9a-f]{4}~[0-9]+")
"""`.git`, and its 8.3 names on Windows file systems."""

OBJECTS = "objects"
"""The directory with the content of all versions of all files, single and in packs."""


_OBJECT_PART = re.compile(r"[0-9a-f]{2}|pack|info")
"""What lies in it."""

_NAME_PARTS = ("config", "credential")
REMOTES = ("remotes", "branches")
"""Directories of a git directory with remotes in git's oldest formats."""
_FETCHED = "fetch_head"
_REFLOGS = "logs"
"""`git pull URL` writes the URL into them. git itself appends to both."""

Exists = Callable[[int, str], bool]
"""Whether an entry exists beneath an open directory."""


def entry_exists(top: int, path: str) -> bool:
    """Whether an entry of that name exists beneath an open directory; links are not followed."""
    try:
        os.stat(path, dir_fd=top, follow_symlinks=False)
    except OSError:
        return False
    return True


@lru_cache(8192)
def is_git_name(name: str) -> bool:
    """Whether some file system maps this name to `.git`."""
    return _DOT_GIT.fullmatch(folded(name)) is not None


def is_configuration_name(name: str) -> bool:
    """Whether a file of this name in a git directory is its configuration, a copy of one, or stored credentials."""
    lower = name.lower()
    return any(part in lower for part in _NAME_PARTS)


def is_in_git_directory(place: RootedPath, *, exists: Exists = entry_exists) -> bool:
    """Whether a file that may hold credentials lies in a git directory.

    In a `.git` every file may, except git's objects. A directory that is one by its content alone is looked for
    only where the rest of the path has a meaning for git, since that takes system calls.
    """
    names = place.relative.split("/")
    at = max((number for number, one in enumerate(names) if is_git_name(one)), default=-1)
    if at >= 0 or place.root.only_git or any(map(is_git_name, place.root.path.split("/"))):
        return not _is_object([folded(one) for one in names[at + 1 :]])
    return any(is_git_directory(place.root.fd, path, exists=exists) for path in _possible_git_directories(names))


def may_be_git_object(relative: str) -> bool:
    """Whether a path could lead to git's objects, by its text alone; false for nearly all."""
    return OBJECTS in relative.casefold()


def _is_object(names: Sequence[str]) -> bool:
    """Whether a path in a `.git` is one of an object, of the repository or of a submodule's in it."""
    return any(
        one == OBJECTS and _OBJECT_PART.fullmatch(following) and (number == 0 or names[0] == "modules")
        for number, (one, following) in enumerate(pairwise(names))
    )


def _possible_git_directories(names: Sequence[str]) -> Iterator[str]:
    """Directories in a path which, if they are git directories, make the file one in which credentials occur."""
    *above, name = (one.lower() for one in names)
    if is_configuration_name(name) or name == _FETCHED:
        yield "/".join(names[:-1]) or "."
    for number, one in enumerate(above):
        if one == _REFLOGS or one in REMOTES:
            yield "/".join(names[:number]) or "."


def git_directory_of(place: RootedPath, above: str) -> str | None:
    """Which git directory a path lies in, or is, as a clause; None for any other. `above`: its last existing parent."""
    for name in place.relative.split("/"):
        if is_git_name(name):
            return f"{printable(name)} is a git directory or leads git to one"
    top = place.root.fd
    while True:
        if is_git_directory(top, above):
            return f"lies in a git directory ({printable(above) if above != '.' else 'the root'})"
        # Git stops searching upwards at the top of a work tree, which may lie in a bare repository.
        if entry_exists(top, join_path(above, ".git")):
            return None
        if above == ".":
            is_inside = any(map(is_git_name, place.root.path.split("/")))
            return "its root lies in a git directory" if is_inside else None
        above = above.rpartition("/")[0] or "."


def git_part(name: str) -> str | None:
    """The one of `GIT_PARTS` to which some file system maps a name, or None."""
    wanted = folded(name)
    return next((part for part in GIT_PARTS if part.lower() == wanted), None)


def is_git_directory(top: int, path: str, *, more: str | None = None, exists: Exists = entry_exists) -> bool:
    """Whether git recognises a directory as a git directory by its entries, with `more` counted as present."""

    def has(part: str) -> bool:
        return part == more or exists(top, join_path(path, part))

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


def folded(name: str) -> str:
    """The name without what some file system ignores: case, invisible characters, a suffix that Windows drops."""
    if not name.isascii():
        name = IGNORABLE.sub("", unicodedata.normalize("NFD", name))
    return name.casefold().partition(":")[0].rstrip(". ")
