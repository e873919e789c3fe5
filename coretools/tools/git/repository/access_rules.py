"""Landlock rules for one checkout: what git may access, given as the examined handles and not as paths.

They are the second line of defence behind `git_directory` and `policy`. If those missed something, or something changed
after the check, git reaches a file that the rules do not allow, or a program that it may not execute.

Landlock rules only grant access, and a rule for a directory covers everything beneath it. git creates its lock files
in the git directory itself, so a change can write all of that directory, `config` and `hooks` included
(docs/adr/0008).
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress

from coretools.confinement.landlock import (
    MAKE_DIRECTORY,
    MAKE_FILE,
    MAKE_LINK,
    READ,
    READ_FILE,
    REFER,
    REMOVE_DIRECTORY,
    REMOVE_FILE,
    TRUNCATE,
    WRITE_FILE,
    Rule,
)
from coretools.errors import NotFound
from coretools.roots import directory_access
from coretools.roots.linked_repository import WORKTREES
from coretools.roots.read import open_directory
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.git_directory import GitDirectory

FILES = WRITE_FILE | TRUNCATE | MAKE_FILE | REMOVE_FILE
TREE = FILES | MAKE_DIRECTORY | REMOVE_DIRECTORY | REFER
WORK_TREE = TREE | MAKE_LINK
_SUBTREES = ("objects", "refs", "logs", "reftable")
"""Directories of a git directory in which a commit creates files."""


def read_rules(
    roots: Roots, handles: Iterable[int], included: Iterable[tuple[str, str]], stack: ExitStack
) -> list[Rule]:
    """Return rules for reading beneath these handles, and the files that the configuration includes from elsewhere."""
    rules: list[Rule] = [(handle, READ) for handle in handles]
    for path, name in included:
        with suppress(NotFound):
            directory = stack.enter_context(open_directory(roots, path))
            rules.append((stack.enter_context(directory_access.open_handle(directory.fd, name)), READ_FILE))
    return rules


def write_rules(
    own: GitDirectory, entries: Mapping[str, str], common: GitDirectory, shared: Mapping[str, str], stack: ExitStack
) -> list[Rule]:
    """Return rules for what git_add and git_commit write.

    The work tree is never writable. In the common directory only the trees are.
    """
    rules: list[Rule] = [(own.handle, _directory_rights(entries, has_logs="logs" in entries))]
    rules += _tree_rules(own, entries, stack)
    if common is not own:
        rules += _tree_rules(common, shared, stack)
        if "logs" not in shared:
            rules.append((common.handle, _directory_rights(shared, has_logs=False)))
    return rules


def shared_rules(own: GitDirectory, common: GitDirectory, shared: Mapping[str, str], stack: ExitStack) -> list[Rule]:
    """Return rules for changing the configuration, deleting references (`packed-refs`), and entries of work trees.

    In a linked work tree only for calls that write no message to a file, as a commit or merge does, and no file of the
    work tree: a link could lead that into the configuration or the hooks. In the main one each change has them.
    """
    if common is own:
        return []
    rules: list[Rule] = [(common.handle, FILES)]
    if shared.get(WORKTREES) == "directory":
        rules.append((stack.enter_context(directory_access.open_subdirectory(common.handle, WORKTREES)), TREE))
    return rules


def file_rules(files: Iterable[str]) -> list[Rule]:
    """Return rules for configuration files outside the roots that were found to be harmless."""
    return [(file, READ_FILE) for file in files]


def _directory_rights(entries: Mapping[str, str], *, has_logs: bool) -> int:
    """Return the rights that a change needs on the git directory itself: for lock files and missing directories."""
    rights = FILES
    rights |= 0 if has_logs else MAKE_DIRECTORY
    rights |= REMOVE_DIRECTORY if "sequencer" in entries else 0
    return rights


def _tree_rules(directory: GitDirectory, entries: Mapping[str, str], stack: ExitStack) -> list[Rule]:
    names = [name for name in _SUBTREES if entries.get(name) == "directory"]
    return [(stack.enter_context(directory_access.open_subdirectory(directory.handle, name)), TREE) for name in names]
