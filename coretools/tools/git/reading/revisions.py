"""Revisions of a caller as arguments of git, in the same process that uses them.

A revision of ordinary characters is passed with `^{commit}`: it then names a commit or nothing, and is no option, range
or path. Any other one is resolved first, and its hexadecimal name is passed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coretools.process.run import Completed
from coretools.tools.git.repository.open_repository import OpenRepository, check_revision, require_success

_ORDINARY = re.compile(r"[\w@][\w./@{}~^+#=%,-]*")
"""No colon (`HEAD:file`, `:/text`), no space, and no `^` or `-` at the start. Ranges are split before."""


@dataclass(frozen=True, slots=True)
class Range:
    """A revision or a range."""

    argument: str
    """What git gets."""
    sides: Sequence[str]
    """The commits in it, as git gets them."""
    given: Sequence[str]
    """The same as the caller wrote them."""


async def commit_argument(repository: OpenRepository, revision: str) -> str:
    """Return a word for git that names the commit of a revision, or nothing.

    Raises:
        InvalidArguments: not a revision. NotFound: no such commit, as far as that is known by now.
    """
    check_revision(revision)
    if _ORDINARY.fullmatch(revision) and ".." not in revision:
        return f"{revision}^{{commit}}"
    [commit] = await repository.resolved(revision)
    return commit


async def object_argument(repository: OpenRepository, revision: str) -> str:
    """Return a word for git that names the object of a revision, of any kind, or nothing.

    Raises:
        InvalidArguments: not a revision. NotFound: no such object, as far as that is known by now.
    """
    check_revision(revision)
    if _ORDINARY.fullmatch(revision) and ".." not in revision:
        return revision
    [(name, _)] = await repository.objects(revision)
    return name


async def range_argument(repository: OpenRepository, revision: str) -> Range:
    """Return a revision or a range (`a..b`, `a...b`) for git. A missing side is HEAD.

    Raises:
        InvalidArguments, NotFound: see `commit_argument`.
    """
    start, dots, end = revision.partition("..." if "..." in revision else "..")
    given = [revision] if not dots or not (start or end) else [start or "HEAD", end or "HEAD"]
    sides = [await commit_argument(repository, side) for side in given]
    return Range(dots.join(sides), sides, given)


async def require_known(repository: OpenRepository, completed: Completed, command: str, *given: str) -> Completed:
    """Return the completed command if it succeeded.

    Raises:
        NotFound: one of the given revisions names no commit. GitRefused: it failed for another reason.
    """
    if not completed.ok:
        await repository.resolved(*given)
    return require_success(completed, command)
