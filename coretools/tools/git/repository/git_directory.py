"""Examine the structure of a git directory through handles: no link and no pointer may lead git out of the roots.

No option of git neutralises links among the entries of a git directory: a commit writes through `.git/index`,
`.git/logs/HEAD` or `.git/COMMIT_EDITMSG` wherever they lead. A git directory with such links is therefore refused.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from coretools.errors import CoreError, GitRefused, TooLarge
from coretools.roots import directory_access
from coretools.roots.read import open_directory
from coretools.roots.root import Root
from coretools.roots.root_set import Roots

POINTER_BYTES = 8 * 1024
"""Largest `.git` file, `commondir` or list of alternates accepted; each holds one path or a few."""

ALTERNATES_DEPTH = 5
"""Longest chain of alternates: git's own limit."""

MAX_STORES = 32
"""Most alternates of one repository. A store counts as often as it is named."""

MAX_REFERENCES = 200_000
"""Most entries of `refs` and `logs` that are examined before a change."""

OPERATION_DIRECTORIES = ("rebase-merge", "rebase-apply", "sequencer")
"""Directories with the state of an unfinished rebase, of `git am`, and of several cherry-picks or reverts."""

_HARMLESS_LINKS = frozenset({"hooks"})
"""Links that are allowed: hooks never run here, and teams share a directory of hooks through such a link."""


@dataclass(frozen=True, slots=True)
class GitDirectory:
    """An open directory that belongs to a repository."""

    handle: int
    path: str
    """Absolute, for git."""
    display_path: str
    root: Root
    is_entry: bool = False
    """The last name of the path is the directory itself and no link, so `..` after it is the directory before it."""


@dataclass(frozen=True, slots=True)
class _ObjectStores:
    """Object stores found by one examination; the stack closes their handles."""

    roots: Roots
    stack: ExitStack
    borrowed: list[int] = field(default_factory=list)


@contextmanager
def open_target(roots: Roots, pointer: str, target: str, start: str, *, remedy: str = "") -> Iterator[GitDirectory]:
    """Open the directory that the file `pointer` names, which must lie beneath a root; `start` resolves it."""
    try:
        directory = open_directory(roots, target if target.startswith("/") else f"{start}/{target}")
    except CoreError as error:
        raise unusable(pointer, f"names a directory that can't be used ({error}{remedy})") from error
    # Opened again: the handle of `open_directory` may not permit listing.
    with directory, directory_access.open_subdirectory(directory.fd, ".") as handle:
        yield GitDirectory(handle, directory.path, directory.display_path, directory.place.root)


def read_pointer(handle: int, name: str, display_path: str) -> str:
    """Return the single line of a pointer file."""
    try:
        data = directory_access.read_file(handle, name, limit_bytes=POINTER_BYTES)
        text = data.decode("utf-8").rstrip("\r\n")
    except (CoreError, UnicodeDecodeError) as error:
        raise unusable(f"{display_path}/{name}", f"can't be read ({error})") from error
    if not text or not text.isprintable():
        raise unusable(f"{display_path}/{name}", "contains no path")
    return text


def examine(directory: GitDirectory) -> dict[str, str]:
    """Return name and kind of every entry of a git directory. No entry may be a link, a FIFO or a device.

    Raises:
        GitRefused: one is; the message names it.
    """
    entries = directory_access.entry_kinds(directory.handle)
    _refuse_links({name: kind for name, kind in entries.items() if name not in _HARMLESS_LINKS}, directory.display_path)
    if entries.get("HEAD") != "file":
        raise unusable(directory.display_path, "has no HEAD, so it is not a git directory")
    if "info" in entries:
        _refuse_links(directory_access.special_entries(directory.handle, "info"), f"{directory.display_path}/info")
    return entries


def examine_shared(roots: Roots, directory: GitDirectory, entries: dict[str, str], stack: ExitStack) -> list[int]:
    """Examine what all work trees of a repository share: the object store and its alternates.

    Returns:
        Handles of the alternates; the stack closes them.
    """
    for name in ("objects", "refs"):
        if entries.get(name) != "directory":
            raise unusable(f"{directory.display_path}/{name}", "is missing, so this is not a git directory")
    objects = GitDirectory(
        directory.handle, f"{directory.path}/objects", f"{directory.display_path}/objects", directory.root
    )
    stores = _ObjectStores(roots, stack)
    _examine_objects(stores, objects, "objects", ALTERNATES_DEPTH)
    return stores.borrowed


def examine_changeable(directory: GitDirectory, entries: dict[str, str]) -> None:
    """Examine what a change writes: references, reflogs, and the state of an unfinished operation.

    git would write through a link among them.
    """
    count = 0
    for name in ("refs", "logs", *OPERATION_DIRECTORIES):
        if entries.get(name) == "directory":
            for _ in _examined_tree(directory.handle, name, directory.display_path):
                count += 1
                if count > MAX_REFERENCES:
                    raise TooLarge(
                        f"{directory.display_path}: more than {MAX_REFERENCES} loose references; run `git pack-refs`"
                    )


def unusable(display_path: str, what: str) -> GitRefused:
    """Return the error for a repository in which git is not run."""
    return GitRefused(f"{display_path} {what}; git is not run in this repository", found=display_path)


def _examine_objects(stores: _ObjectStores, objects: GitDirectory, name: str, depth: int) -> None:
    """Examine the store `name` of a handle. Each component of a path is found to be no link before the path is used."""
    handle = objects.handle
    _refuse_links(directory_access.special_entries(handle, name), objects.display_path)
    _refuse_links(directory_access.special_entries(handle, f"{name}/pack"), f"{objects.display_path}/pack")
    _refuse_links(directory_access.special_entries(handle, f"{name}/info"), f"{objects.display_path}/info")
    if directory_access.entry_version(handle, f"{name}/info/alternates") is not None:
        _examine_alternates(stores, objects, f"{name}/info/alternates", depth)


def _examine_alternates(stores: _ObjectStores, objects: GitDirectory, name: str, depth: int) -> None:
    pointer = f"{objects.display_path}/info/alternates"
    if depth == 0:
        raise unusable(pointer, "is one of a chain of alternates that is too long")
    try:
        lines = directory_access.read_file(objects.handle, name, limit_bytes=POINTER_BYTES).decode("utf-8").split("\n")
    except (CoreError, UnicodeDecodeError) as error:
        raise unusable(pointer, f"can't be read ({error})") from error
    for line in lines:
        if not line or line.startswith("#"):
            continue
        # Only paths that all versions of git resolve alike: older ones remove `..` textually, newer ones follow links.
        if not line.startswith("/") or {".", ".."} & set(line.split("/")) or not line.isprintable():
            raise unusable(pointer, "names an object store by a path that is not absolute or contains '..'")
        if len(stores.borrowed) == MAX_STORES:
            raise unusable(pointer, f"names more than {MAX_STORES} alternates")
        borrowed = stores.stack.enter_context(open_target(stores.roots, pointer, line, objects.path))
        stores.borrowed.append(borrowed.handle)
        _examine_objects(stores, borrowed, ".", depth - 1)


def _examined_tree(parent: int, name: str, display_path: str) -> Iterator[str]:
    with directory_access.open_subdirectory(parent, name) as handle:
        entries = directory_access.entry_kinds(handle)
        _refuse_links(entries, f"{display_path}/{name}")
        for entry, kind in entries.items():
            yield entry
            if kind == "directory":
                yield from _examined_tree(handle, entry, f"{display_path}/{name}")


def _refuse_links(entries: Mapping[str, str] | None, display_path: str) -> None:
    # git's file system monitor leaves a socket there; nothing opens it as a file.
    for name, kind in (entries or {}).items():
        if kind not in ("file", "directory", "socket"):
            raise unusable(
                f"{display_path}/{name}", "is a link" if kind == "link" else "is neither a file nor a directory"
            )
