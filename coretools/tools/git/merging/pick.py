"""Start a cherry-pick or revert."""

from collections.abc import Sequence

from coretools.errors import InvalidArguments
from coretools.tools.git.changes.identity import identity
from coretools.tools.git.changes.outcomes import MAX_COMMITS, outcome, ready
from coretools.tools.git.changes.writable import (
    NO_RENAMES,
    picked_names,
    reached_by_rename,
    refuse_staged_outside,
    require_writable_names,
)
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.results import TextResult


async def pick(repository: OpenRepository, *, revisions: Sequence[str], revert: bool, mainline: int) -> TextResult:
    """Apply (or revert) commits, one after the other in the order given; a range `a..b` from old to new.

    Raises:
        GitRefused: another operation is in progress, or uncommitted changes are in the way.
    """
    here = await ready(repository)
    await refuse_staged_outside(repository)
    commits = await _commits(repository, revisions, newest_first=revert)
    names = await picked_names(repository, commits)
    await require_writable_names(repository, names)
    options, strategy = await identity(repository), "ort"
    if await reached_by_rename(repository, names, commits):
        options, strategy = (*options, *NO_RENAMES), "recursive"
    words = ["revert", "--no-edit"] if revert else ["cherry-pick", "--allow-empty"]
    words += [f"--strategy={strategy}", *([f"--mainline={mainline}"] if mainline else [])]
    completed = await repository.run(*words, *commits, options=options)
    return await outcome(repository, completed, here=here, name=words[0])


async def _commits(repository: OpenRepository, revisions: Sequence[str], *, newest_first: bool) -> list[str]:
    """Return the commits of revisions and ranges, in the order in which they are applied."""
    commits: list[str] = []
    for revision in revisions:
        start, dots, end = revision.partition("..")
        if not dots or end.startswith("."):
            commits += await repository.resolved(revision)
            continue
        [first, last] = await repository.resolved(start or "HEAD", end or "HEAD")
        words = ("rev-list", *(() if newest_first else ("--reverse",)), f"{first}..{last}")
        commits += (await repository.output(*words)).decode("ascii").split()
    if not 0 < len(commits) <= MAX_COMMITS:
        raise InvalidArguments(f"revisions: name 1 to {MAX_COMMITS} commits; these are {len(commits)}")
    return commits
