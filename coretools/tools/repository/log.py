"""Commits, newest first, of a revision or of a range."""

from collections.abc import Sequence

from coretools.errors import GitRefused
from coretools.process.runner import Completed
from coretools.sandbox.roots import Roots
from coretools.tools.repository.checkout import Checkout
from coretools.tools.repository.commands import Git
from coretools.tools.repository.paths import refuse_unknown
from coretools.tools.repository.porcelain import read_records, shown
from coretools.tools.repository.results import GitText, answer, log_lines

HEADS = "refs/heads/"
_MISLEADING = f"{HEADS}HEAD"

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
    completed = await git.run(checkout, "show-ref", "--verify", "--hash", "HEAD")
    return completed.stdout.text().strip() if completed.ok else ""


async def head(git: Git, checkout: Checkout) -> tuple[str, str]:
    """Branch that HEAD is on, empty when it is detached, and its commit, empty before the first one.

    Raises:
        GitRefused: HEAD points to nothing that git can read.
    """
    completed = await git.run(checkout, "rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
    if completed.ok:
        commit, name, *_ = *_lines(completed), ""
        if name == "HEAD":
            return "", commit
        if name.startswith(HEADS) and name != _MISLEADING:
            return name.removeprefix(HEADS), commit
    # No commit yet, or another reference is called HEAD, which git leaves out here or takes for it.
    completed = await git.run(checkout, "symbolic-ref", "--quiet", "HEAD")
    branch = _lines(completed)[0] if completed.ok else ""
    commit = await born(git, checkout)
    if not branch and not commit:
        raise GitRefused("HEAD points to nothing that git can read")
    return branch.removeprefix(HEADS), commit


def _lines(completed: Completed) -> list[str]:
    return shown(completed.stdout.head + completed.stdout.tail).removesuffix("\n").split("\n")


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
