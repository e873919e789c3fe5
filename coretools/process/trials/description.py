"""How an answer describes what a command on trial would change: a line for each entry, and the contents of files.

What deny globs close is not named, and no content is shown that a tool may not show.
"""

import os
import stat
from collections.abc import Generator
from contextlib import closing, suppress
from typing import NamedTuple

from coretools.confinement.trial_view import TrialView
from coretools.process.trials.differences import Budget, Difference, What, differences, statuses_beneath
from coretools.roots.file_version import kind_of
from coretools.roots.git_layout import git_part
from coretools.roots.path_text import printable
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.undo.entry_state import READ
from coretools.undo.visible_content import visible

_SPECIAL = 0o6000
"""Set-user-ID and set-group-ID."""


class Described(NamedTuple):
    """One entry that would change. Ask for its contents before the next one."""

    what: What
    display_path: str
    line: str
    """Empty for one that is counted but not named."""
    group: str
    """What those that are not named have in common."""
    is_directory: bool
    roots: Roots
    difference: Difference

    def contents(self) -> tuple[bytes, bytes] | None:
        """The content before and after; None for what is no file, or has the same content.

        Raises:
            DeniedPath: it is hidden. TooLarge. OSError.
        """
        one = self.difference
        if not stat.S_ISREG(one.above.st_mode) or not (one.what == "added" or "content" in one.details):
            return None
        place, before = RootedPath(one.root, one.path), b""
        if one.below is not None:
            with self.roots.open_parent(place) as (directory, name):
                before = visible(self.roots, place, os.open(name, READ, dir_fd=directory))
        return before, visible(self.roots, place, os.open(one.name, READ, dir_fd=one.directory))


def described(roots: Roots, view: TrialView, budget: Budget) -> Generator[Described]:
    """Describe every entry that a trial would change, a directory before what is in it. Blocks; close the iterator.

    Raises:
        TooLarge: it has more than the budget. OSError.
    """
    for layer in view.layers:
        with closing(differences(layer, budget)) as every:
            for one in every:
                place = RootedPath(one.root, one.path)
                group = _group(roots, place, one)
                line = "" if group else _line(roots, place, one)
                yield Described(one.what, roots.display_path(place), line, group, one.is_directory, roots, one)


def _group(roots: Roots, place: RootedPath, one: Difference) -> str:
    """Why an entry is counted but not named; "" if it is named."""
    if one.what == "touched":
        return "with nothing but another time"
    if roots.denied_by(place) is not None:
        return "that deny globs close"
    above = one.path.split("/")[:-1]
    return "in git directories" if any(git_part(part) is not None for part in above) else ""


def _line(roots: Roots, place: RootedPath, one: Difference) -> str:
    status = one.below if one.what == "deleted" and one.below is not None else one.above
    kind = kind_of(status.st_mode)
    parts = [f"{one.what} {roots.display_path(place)}{'/' if kind == 'directory' else ''}"]
    if kind not in ("file", "directory"):
        parts.append(f"({kind})")
    if one.what == "deleted":
        if kind == "directory":
            with suppress(OSError, RecursionError), roots.open_parent(place) as (directory, name):
                parts.append(f"(with {sum(1 for _ in statuses_beneath(directory, name))} entries)")
        return " ".join(parts)
    parts += _details(one, kind)
    if kind == "link":
        parts.append(f"to {printable(os.readlink(one.name, dir_fd=one.directory))}")
    return " ".join(parts)


def _details(one: Difference, kind: str) -> list[str]:
    """Return the details of a new or changed entry besides its path and kind: former kind, mode, size."""
    mode, found = stat.S_IMODE(one.above.st_mode), []
    if one.what == "replaced" and one.below is not None:
        found.append(f"(was a {kind_of(one.below.st_mode)})")
    if one.what != "changed" and kind == "file" and mode & 0o111:
        found.append(f"(mode {mode:o})")
    if "mode" in one.details and one.below is not None:
        found.append(f"(mode {stat.S_IMODE(one.below.st_mode):o} to {mode:o})")
    if one.details in (("attributes",), ("links",)):
        found.append(f"({one.details[0]})")
    if kind == "file" and "content" in one.details and one.below is not None and one.below.st_nlink > 1:
        found.append("(under this name only; its other hard links keep the content)")
    if kind == "file" and mode & _SPECIAL:
        found.append("(set-user-ID and set-group-ID are not kept)")
    return found
