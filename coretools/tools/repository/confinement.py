"""What git may touch in one checkout, as rules for the kernel: said by the handles that were looked at, not by paths.

The second wall behind `structure` and `policy`. What these missed, or what changed after the look, leads git to a file
that is not in the rules, and to a program that it may not start.

Landlock only ever allows, and what holds for a directory holds for all beneath. So the git directory itself, where git
makes its lock files, can be written by a change as a whole: `config` and `hooks` in it too (docs/adr/0010).
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress

from coretools.confinement.landlock import (
    MAKE_DIRECTORY,
    MAKE_FILE,
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
from coretools.sandbox import inside
from coretools.sandbox.reading import open_directory
from coretools.sandbox.roots import Roots
from coretools.tools.repository.structure import GitDirectory

ANYWHERE: tuple[Rule, ...] = (("/", READ),)
"""For the calls that ask what configuration says, the operator's own included. They act on none of it."""

_FILES = WRITE_FILE | TRUNCATE | MAKE_FILE | REMOVE_FILE
_TREE = _FILES | MAKE_DIRECTORY | REMOVE_DIRECTORY | REFER

_TREES = ("objects", "refs", "logs", "reftable")
"""Directories of a git directory in which a commit makes what it needs."""


def to_read(roots: Roots, handles: Iterable[int], included: Iterable[tuple[str, str]], stack: ExitStack) -> list[Rule]:
    """Rules for reading beneath these handles, and the files that the configuration includes from elsewhere."""
    rules: list[Rule] = [(handle, READ) for handle in handles]
    for path, name in included:
        with suppress(NotFound):
            directory = stack.enter_context(open_directory(roots, path))
            rules.append((stack.enter_context(inside.pinned(directory.fd, name)), READ_FILE))
    return rules


def to_change(
    own: GitDirectory, entries: Mapping[str, str], common: GitDirectory, shared: Mapping[str, str], stack: ExitStack
) -> list[Rule]:
    """Rules for what git_add and git_commit write: never the work tree, and of the common directory its trees only."""
    rules: list[Rule] = [(own.handle, _on_top(entries, has_logs="logs" in entries))]
    rules += _on_trees(own, entries, stack)
    if common is not own:
        rules += _on_trees(common, shared, stack)
        if "logs" not in shared:
            rules.append((common.handle, _on_top(shared, has_logs=False)))
    return rules


def outside(files: Iterable[str]) -> list[Rule]:
    """Rules for configuration outside the roots that was found to be harmless."""
    return [(file, READ_FILE) for file in files]


def _on_top(entries: Mapping[str, str], *, has_logs: bool) -> int:
    """What a change needs of the git directory itself: lock files, and a directory where one has to come or go."""
    rights = _FILES
    rights |= 0 if has_logs else MAKE_DIRECTORY
    rights |= REMOVE_DIRECTORY if "sequencer" in entries else 0
    return rights


def _on_trees(directory: GitDirectory, entries: Mapping[str, str], stack: ExitStack) -> list[Rule]:
    names = [name for name in _TREES if entries.get(name) == "directory"]
    return [(stack.enter_context(inside.opened(directory.handle, name)), _TREE) for name in names]
