"""Commits, newest first, of a revision or of a range."""

from collections.abc import Sequence

from coretools.sandbox.roots import Roots
from coretools.tools.repository.checkout import Checkout
from coretools.tools.repository.commands import Git
from coretools.tools.repository.paths import refuse_unknown
from coretools.tools.repository.porcelain import read_records
from coretools.tools.repository.results import GitText, answer, log_lines

_LOG = (
    *("log", "--format=tformat:%h%x00%aI%x00%an%x00%D%x00%s", "-z", "--abbrev=10", "--no-show-signature"),
    *("--no-color", "--decorate=short", "--no-mailmap", "--no-notes"),
)


async def log(
    roots: Roots, git: Git, checkout: Checkout, *, revision: str, names: Sequence[str], limit: int
) -> GitText:
    """At most `limit` commits of a revision or range, of HEAD where it is empty, that touch one of the names.

    Raises:
        InvalidArguments, NotFound: see `Git.resolved`. NotFound: a name matches nothing.
    """
    commits, words = await _resolved(git, checkout, revision) if revision else (["HEAD"], "HEAD")
    completed = await git.run(checkout, *_LOG, f"--max-count={limit + 1}", words, "--", *names)
    # Which of git's errors means that there is no commit yet, it says in words only.
    if not completed.ok and not revision and not await born(git, checkout):
        return answer(checkout, ["no commits yet"], details={"commits": 0})
    records = read_records(git.whole(completed, "log"), 5)
    if not records:
        await refuse_unknown(roots, git, checkout, names, trees=commits)
    lines = log_lines(records[:limit]) or [f"no commits {'touch this path' if names else 'in this range'}"]
    if len(records) > limit:
        lines.append("[more commits; use a greater limit, or an older revision]")
    return answer(checkout, lines, details={"commits": min(len(records), limit)})


async def born(git: Git, checkout: Checkout) -> str:
    """HEAD's commit, empty before the first one."""
    completed = await git.run(checkout, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return completed.stdout.text().strip() if completed.ok else ""


async def _resolved(git: Git, checkout: Checkout, revision: str) -> tuple[list[str], str]:
    """The commits that a revision, or the range `a..b` or `a...b`, names, and the word that says so to git.

    Each side is resolved by itself, and one that is left out is HEAD: the word is made of hex and dots only.
    """
    start, dots, end = revision.partition("..." if "..." in revision else "..")
    if not dots or not (start or end):
        commits = await git.resolved(checkout, revision)
        return commits, commits[0]
    commits = await git.resolved(checkout, start or "HEAD", end or "HEAD")
    return commits, dots.join(commits)
