"""Differences and the log, without the content of hidden files.

git's exclusion patterns can't express the deny rules, and literal pathspecs, which keep a caller's text from being a
pattern, disable them anyway. So git prints the changed names before the patch. If one of them is hidden, the patch is
requested again with the other names. The present content of a file decides for both sides: committed content of a file
that is not hidden now is available to everybody in git.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coretools.errors import GitRefused, NotFound, TooLarge
from coretools.process.run import Completed
from coretools.roots.read import kind_at
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import cut_line, cut_lines, fitting
from coretools.tools.git.repository.checkout import Checkout, hidden_reason, is_beneath, path_of, prefix, refuse_hidden
from coretools.tools.git.repository.commands import Git, require_success
from coretools.tools.git.repository.porcelain import as_text, quoted, read_names, read_raw, read_records
from coretools.tools.git.repository.results import TextResult, answer, hidden_line, log_lines
from coretools.truncation import Excerpt

ARGUMENT_BYTES = 1024 * 1024
"""Most bytes of names on one command line; Linux accepts 2 MiB of arguments and environment together (execve(2))."""

_SAFE = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color", "--no-relative")
_PATCH = ("--patch", "--submodule=short", "--find-renames")
_SUMMARY = ("--numstat", "-z", "--no-renames")


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """How a difference is shown."""

    is_summary: bool
    most_bytes: int


async def diff(
    roots: Roots, git: Git, checkout: Checkout, *, what: Sequence[str], names: Sequence[str], shape: DiffOptions
) -> TextResult:
    """Return the patch (head and tail of a long one), or a summary by file.

    `what` contains only `--cached` and resolved revisions. `names` limit the difference; none of them may be hidden.

    Raises:
        DeniedPath: a name is hidden. TooLarge: more names than one command line can hold.
    """
    refuse_hidden(roots, checkout, names)
    if shape.is_summary:
        changed, patch = await _names_and_summary(git, checkout, what, names, most_bytes=shape.most_bytes)
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
        remarks.append(_way_to_the_rest(changed))
    body = cut_lines(patch.text().rstrip("\n"))
    details = {"files": len(changed), "dropped_bytes": patch.dropped_bytes}
    return answer(checkout, [body, *remarks] if body else remarks, details=details)


def _way_to_the_rest(changed: Sequence[bytes]) -> str:
    if len(changed) == 1:
        return "[for the rest use run_command with git diff, then read_run]"
    return "[for the rest name paths, or use stat to list the files]"


async def _names_and_patch(
    git: Git, checkout: Checkout, what: Sequence[str], names: Sequence[str], *, most_bytes: int
) -> tuple[list[bytes], Excerpt | None]:
    """Return the changed names, and the patch if it came with them: it is short and has no conflicts."""
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
    git: Git, checkout: Checkout, what: Sequence[str], names: Sequence[str], *, most_bytes: int
) -> tuple[list[bytes], Excerpt | None]:
    """Return the changed names and a summary: the files that fit, and the totals."""
    output = await git.output(checkout, "diff", *_SAFE, *_SUMMARY, *what, "--", *names)
    changed = sorted({record.split(b"\t", 2)[2] for record in read_names(output)})
    *lines, totals = _summary(checkout, output)
    shown = fitting(map(cut_line, lines), most_bytes)
    shown += [f"[{len(lines) - len(shown)} more files; name paths]"] if len(shown) < len(lines) else []
    return changed, Excerpt("\n".join([*shown, totals]).encode("utf-8", "replace"), b"", 0)


def _prefixes(checkout: Checkout) -> tuple[str, str]:
    """Return options that make git print paths as all other tools do."""
    before = prefix(checkout)
    letters = ("", "") if before.startswith("/") else ("a/", "b/")
    return f"--src-prefix={letters[0]}{before}", f"--dst-prefix={letters[1]}{before}"


def _summary(checkout: Checkout, output: bytes) -> list[str]:
    """Return one line per changed file with its added and removed lines, and the totals."""
    lines, added, removed = [], 0, 0
    for record in read_names(output):
        more, less, name = record.split(b"\t", 2)
        is_binary = more == b"-"
        added, removed = (added, removed) if is_binary else (added + int(more), removed + int(less))
        change = "binary" if is_binary else f"+{int(more)} -{int(less)}"
        lines.append(f"{quoted(path_of(checkout, name))} | {change}")
    return [*lines, f"{len(lines)} files changed, +{added} -{removed} lines"]


def _denied(roots: Roots, checkout: Checkout, changed: Sequence[bytes]) -> dict[bytes, str]:
    """Return hidden names, and names that include hidden ones (`a` also matches all of `a/`), with the reasons."""
    reasons = {name: reason for name in changed if (reason := hidden_reason(roots, checkout, name))}
    above = {name[:at]: name for name in reasons for at in range(len(name)) if name[at : at + 1] == b"/"}
    return {name: reasons.get(name) or reasons[above[name]] for name in changed if name in reasons or name in above}


def _remaining(changed: Sequence[bytes], denied: Mapping[bytes, str]) -> list[str]:
    if sum(len(name) + 1 for name in changed) > ARGUMENT_BYTES:
        raise TooLarge(f"{len(changed)} changed files, some of them hidden; name paths", files=len(changed))
    return [name.decode("utf-8", "surrogateescape") for name in changed if name not in denied]


# The log.


HEADS = "refs/heads/"
_BRANCH_CALLED_HEAD = f"{HEADS}HEAD"

_LOG = (
    *("log", "--format=tformat:%h%x00%aI%x00%an%x00%D%x00%s", "-z", "--abbrev=10", "--no-show-signature"),
    *("--no-color", "--decorate=short", "--no-mailmap", "--no-notes"),
)


async def log(
    roots: Roots, git: Git, checkout: Checkout, *, revision: str, names: Sequence[str], limit: int
) -> TextResult:
    """Return at most `limit` commits of a revision or range (HEAD if empty) that touch one of the names.

    Raises:
        InvalidArguments, NotFound: see `Git.resolved`. NotFound: a name matches nothing.
    """
    commits, words = await _resolved(git, checkout, revision) if revision else (["HEAD"], "HEAD")
    completed = await git.run(checkout, *_LOG, f"--max-count={limit + 1}", words, "--", *names)
    # Only the text of git's error says that there is no commit yet, so that is checked separately.
    if not completed.ok and not revision and not await head_commit(git, checkout):
        return answer(checkout, ["no commits yet"], details={"commits": 0})
    records = read_records(git.complete_output(completed, "log"), 5)
    if not records:
        await refuse_unknown(roots, git, checkout, names, trees=commits)
    commits_shown = fitting(map(cut_line, log_lines(records[:limit])), git.answer_bytes)
    lines = commits_shown or [f"no commits {'touch this path' if names else 'in this range'}"]
    if len(records) > len(commits_shown):
        lines = [*lines, "[more commits; use a larger limit or an older revision]"]
    return answer(checkout, lines, details={"commits": len(commits_shown)})


async def head_commit(git: Git, checkout: Checkout) -> str:
    """Return HEAD's commit, or "" on an unborn branch."""
    completed = await git.run(checkout, "show-ref", "--verify", "--hash", "HEAD")
    return completed.stdout.text().strip() if completed.ok else ""


async def head(git: Git, checkout: Checkout) -> tuple[str, str]:
    """Return the branch of HEAD ("" if detached) and its commit ("" on an unborn branch).

    Raises:
        GitRefused: git can't read what HEAD points to.
    """
    completed = await git.run(checkout, "rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
    if completed.ok:
        commit, name, *_ = *_lines(completed), ""
        if name == "HEAD":
            return "", commit
        if name.startswith(HEADS) and name != _BRANCH_CALLED_HEAD:
            return name.removeprefix(HEADS), commit
    # The branch is unborn, or another reference is called HEAD, which git omits here or mistakes for it.
    completed = await git.run(checkout, "symbolic-ref", "--quiet", "HEAD")
    branch = _lines(completed)[0] if completed.ok else ""
    commit = await head_commit(git, checkout)
    if not branch and not commit:
        raise GitRefused("HEAD points to nothing that git can read; check out a branch or a commit")
    return branch.removeprefix(HEADS), commit


def _lines(completed: Completed) -> list[str]:
    return as_text(completed.stdout.head + completed.stdout.tail).removesuffix("\n").split("\n")


async def _resolved(git: Git, checkout: Checkout, revision: str) -> tuple[list[str], str]:
    """Resolve a revision or a range (`a..b`, `a...b`); return the commits and the argument for git.

    Each side is resolved separately, and a missing side is HEAD. The argument consists of hexadecimal digits and dots.
    """
    start, dots, end = revision.partition("..." if "..." in revision else "..")
    if not dots or not (start or end):
        commits = await git.resolved(checkout, revision)
        return commits, commits[0]
    commits = await git.resolved(checkout, start or "HEAD", end or "HEAD")
    return commits, dots.join(commits)


async def refuse_unknown(
    roots: Roots, git: Git, checkout: Checkout, names: Sequence[str], *, trees: Sequence[str] = ()
) -> None:
    """Refuse names that match nothing in the work tree, the index and the commits.

    Raises:
        NotFound: one matches nothing.
    """
    missing = [name for name in names if name != "." and kind_at(roots, f"{checkout.directory.path}/{name}") is None]
    if not missing:
        return
    known = read_names(await git.output(checkout, "ls-files", "-z", "--", *missing))
    for tree in trees:
        known += read_names(await git.output(checkout, "ls-tree", "-z", "--name-only", tree, "--", *missing))
    for name in missing:
        if not any(is_beneath(found, name) for found in known):
            path = f"{prefix(checkout)}{name}"
            raise NotFound(f"{path}: matches nothing in the work tree or in git", path=path)
