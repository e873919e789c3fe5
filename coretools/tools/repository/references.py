"""HEAD, read in-process by GitPython, which starts no child for it.

Blocking: for a worker thread. Only for a checkout whose references were looked at: GitPython opens them by path. What
it can't read (the reftable format, names that are no UTF-8) raises `Unreadable`, and git is asked instead.
"""

import re
from dataclasses import dataclass
from typing import Any

from coretools.process import gitpython
from coretools.tools.repository.checkout import Checkout

HEADS = "refs/heads/"

_REFTABLE_HEAD = "refs/heads/.invalid"
"""What HEAD holds where references are kept as reftable (gitrepository-layout(5))."""


class Unreadable(Exception):
    """GitPython can't read these references."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where HEAD points."""

    branch: str
    """Empty when HEAD is detached."""
    commit: str
    """Hex; empty before the first commit."""


@dataclass(frozen=True, slots=True)
class _Place:
    """All that GitPython's references ask of a repository.

    Its own `Repo` would also read the configuration, with what that includes, and the server's GIT_* variables.
    """

    git_dir: str
    common_dir: str
    re_hexsha_only: re.Pattern[str] = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


def head(checkout: Checkout) -> Head:
    """Where HEAD points.

    Raises:
        Unreadable.
    """
    if checkout.policy.is_reftable:
        raise Unreadable("references are kept as reftable")
    git = gitpython.load()
    try:
        return _read(git.HEAD(_Place(checkout.git_path, checkout.common_path)))
    # AssertionError: a file without text (GitPython 3.2.1, SymbolicReference._get_ref_info_helper).
    except (ValueError, TypeError, OSError, AssertionError) as error:
        raise Unreadable(str(error)) from error


def _read(found: Any) -> Head:
    if found.is_detached:
        return Head("", found.dereference_recursive(found.repo, found.path))
    path: str = found.reference.path
    if path == _REFTABLE_HEAD or not path.startswith(HEADS):
        raise Unreadable(f"HEAD points to {path}")
    try:
        commit: str = found.dereference_recursive(found.repo, path)
    except ValueError:  # nothing there yet: no commit was made on this branch
        commit = ""
    return Head(path.removeprefix(HEADS), commit)
