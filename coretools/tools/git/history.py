"""Differences, without the content of what is hidden.

git's own exclusion patterns can't say our rules, and literal path names, which keep a caller's text from being a
pattern, switch them off anyway. So git prints the names before the patch, and the patch is asked for again, name by
name, when one of them is hidden. What a file holds now decides, for each side: committed content of a file that is not
hidden now is in git for everybody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coretools.errors import GitRefused, TooLarge
from coretools.excerpt import Excerpt
from coretools.process.runner import Completed
from coretools.roots.root_set import Roots
from coretools.tools.git.checkout import Checkout
from coretools.tools.git.commands import Git, require_success
from coretools.tools.git.paths import hidden_reason, path_of, prefix, refuse_hidden, refuse_unknown
from coretools.tools.git.porcelain import as_text, quoted, read_names, read_raw, read_records
from coretools.tools.git.results import TextResult, answer, hidden_line, log_lines

ARGUMENT_BYTES = 1024 * 1024
"""Most bytes of names on one command line; Linux takes 2 MiB of words and environment together (execve(2))."""

_SAFE = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color", "--no-relative")
_PATCH = ("--patch", "--submodule=short", "--find-renames")
_SUMMARY = ("--numstat", "-z", "--no-renames")


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """How a difference is told."""

    is_summary: bool
    most_bytes: int


async def diff(
    roots: Roots, git: Git, checkout: Checkout, *, what: Sequence[str], names: Sequence[str], shape: DiffOptions
) -> TextResult:
    """The patch, its head and tail where it is long, or a summary by file.

    `what` holds `--cached` and resolved revisions only; `names` limit it, and none of them may be hidden.

    Raises:
        DeniedPath: a name is. TooLarge: more names than one command takes.
    """
    refuse_hidden(roots, checkout, names)
    if shape.is_summary:
        changed, patch = await _names_and_summary(git, checkout, what, names)
    else:
        changed, patch = await _names_and_patch(git, checkout, what, names, most_bytes=shape.most_bytes)
    if not changed:
        trees = [word for word in what if not word.startswith("-")]
        await refuse_unknown(roots, git, checkout, names, trees=trees)
        return answer(checkout, ["no differences"], details={"files": 0, "dropped_bytes": 0})
    remarks = []
    denied = {} if shape.is_summary else _denied(roots, checkout, changed)
    if denied:
        remarks.append(hidden_line(checkout, "not shown", denied))
        names = _remaining(changed, denied)
        patch = None if names else Excerpt(b"", b"", 0)
    if patch is None:
        patch = await _patch(git, checkout, *what, "--", *names, most_bytes=shape.most_bytes)
    if patch.dropped_bytes:
        remarks.append("[for the rest name paths, or ask for stat to see which files there are]")
    body = patch.text().rstrip("\n")
    details = {"files": len(changed), "dropped_bytes": patch.dropped_bytes}
    return answer(checkout, [body, *remarks] if body else remarks, details=details)


async def _names_and_patch(
    git: Git, checkout: Checkout, what: Sequence[str], names: Sequence[str], *, most_bytes: int
) -> tuple[list[bytes], Excerpt | None]:
    """The names of what is changed, and the patch where it came with them: short, and without conflicts."""
    both = await _patch(git, checkout, "--raw", "-z", *what, "--", *names, most_bytes=most_bytes)
    found = None if both.dropped_bytes else read_raw(both.head + both.tail)
    if found is not None:
        return sorted(set(found[0])), Excerpt(found[1], b"", 0)
    words = ("diff", *_SAFE, "--no-renames", "--name-only", "-z", *what, "--", *names)
    return sorted(set(read_names(await git.output(checkout, *words)))), None


async def _patch(git: Git, checkout: Checkout, *words: str, most_bytes: int) -> Excerpt:
    shape = (*_SAFE, *_PATCH, *_prefixes(checkout))
    return require_success(await git.run(checkout, "diff", *shape, *words, keep_bytes=most_bytes), "diff").stdout


async def _names_and_summary(
    git: Git, checkout: Checkout, what: Sequence[str], names: Sequence[str]
) -> tuple[list[bytes], Excerpt | None]:
    """The names of what is changed, and a summary of it."""
    output = await git.output(checkout, "diff", *_SAFE, *_SUMMARY, *what, "--", *names)
    changed = sorted({record.split(b"\t", 2)[2] for record in read_names(output)})
    return changed, Excerpt("\n".join(_summary(checkout, output)).encode(), b"", 0)


def _prefixes(checkout: Checkout) -> tuple[str, str]:
    """Options that make git name files as every other tool does."""
    before = prefix(checkout)
    letters = ("", "") if before.startswith("/") else ("a/", "b/")
    return f"--src-prefix={letters[0]}{before}", f"--dst-prefix={letters[1]}{before}"


def _summary(checkout: Checkout, output: bytes) -> list[str]:
    """Each changed file with its lines added and removed, and the sums."""
    lines, added, removed = [], 0, 0
    for record in read_names(output):
        more, less, name = record.split(b"\t", 2)
        is_binary = more == b"-"
        added, removed = (added, removed) if is_binary else (added + int(more), removed + int(less))
        change = "binary" if is_binary else f"+{int(more)} -{int(less)}"
        lines.append(f"{quoted(path_of(checkout, name))} | {change}")
    return [*lines, f"{len(lines)} files changed, +{added} -{removed} lines"]


def _denied(roots: Roots, checkout: Checkout, changed: Sequence[bytes]) -> dict[bytes, str]:
    """Hidden names, and names that stand for hidden ones: `a` as a path also means all of `a/`. With the reasons."""
    reasons = {name: reason for name in changed if (reason := hidden_reason(roots, checkout, name))}
    above = {name[:at]: name for name in reasons for at in range(len(name)) if name[at : at + 1] == b"/"}
    return {name: reasons.get(name) or reasons[above[name]] for name in changed if name in reasons or name in above}


def _remaining(changed: Sequence[bytes], denied: Mapping[bytes, str]) -> list[str]:
    if sum(len(name) + 1 for name in changed) > ARGUMENT_BYTES:
        raise TooLarge(f"{len(changed)} changed files, hidden ones among them; name some paths", files=len(changed))
    return [name.decode("utf-8", "surrogateescape") for name in changed if name not in denied]


# Commits, newest first, of a revision or of a range.


HEADS = "refs/heads/"
_BRANCH_CALLED_HEAD = f"{HEADS}HEAD"

_LOG = (
    *("log", "--format=tformat:%h%x00%aI%x00%an%x00%D%x00%s", "-z", "--abbrev=10", "--no-show-signature"),
    *("--no-color", "--decorate=short", "--no-mailmap", "--no-notes"),
)


async def log(
    roots: Roots, git: Git, checkout: Checkout, *, revision: str, names: Sequence[str], limit: int
) -> TextResult:
    """At most `limit` commits of a revision or range, of HEAD where it is empty, that touch one of the names.

    Raises:
        InvalidArguments, NotFound: see `Git.resolved`. NotFound: a name matches nothing.
    """
    commits, words = await _resolved(git, checkout, revision) if revision else (["HEAD"], "HEAD")
    completed = await git.run(checkout, *_LOG, f"--max-count={limit + 1}", words, "--", *names)
    # Which of git's errors means that there is no commit yet, it says in words only.
    if not completed.ok and not revision and not await head_commit(git, checkout):
        return answer(checkout, ["no commits yet"], details={"commits": 0})
    records = read_records(git.complete_output(completed, "log"), 5)
    if not records:
        await refuse_unknown(roots, git, checkout, names, trees=commits)
    lines = log_lines(records[:limit]) or [f"no commits {'touch this path' if names else 'in this range'}"]
    if len(records) > limit:
        lines.append("[more commits; use a greater limit, or an older revision]")
    return answer(checkout, lines, details={"commits": min(len(records), limit)})


async def head_commit(git: Git, checkout: Checkout) -> str:
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
        if name.startswith(HEADS) and name != _BRANCH_CALLED_HEAD:
            return name.removeprefix(HEADS), commit
    # No commit yet, or another reference is called HEAD, which git leaves out here or takes for it.
    completed = await git.run(checkout, "symbolic-ref", "--quiet", "HEAD")
    branch = _lines(completed)[0] if completed.ok else ""
    commit = await head_commit(git, checkout)
    if not branch and not commit:
        raise GitRefused("HEAD points to nothing that git can read")
    return branch.removeprefix(HEADS), commit


def _lines(completed: Completed) -> list[str]:
    return as_text(completed.stdout.head + completed.stdout.tail).removesuffix("\n").split("\n")


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
