"""Find the commit that brought a change by halving the commits between a good and a bad one.

git's own bisect starts other git processes. Here the same files and references are written (git-bisect(1)), so a bisect
can be continued or ended in a terminal too, and git computes the next commit.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from coretools.errors import CoreError, GitRefused, InvalidArguments
from coretools.roots import directory_access
from coretools.tools.git.changes.outcomes import ready
from coretools.tools.git.changes.position import born
from coretools.tools.git.changes.writable import changed_names, require_writable_names
from coretools.tools.git.reading.references import HEADS, has_reference
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.open_repository import OpenRepository, OpenShared, check_revision, require_success
from coretools.tools.git.repository.porcelain import as_text, encoded, single_line
from coretools.tools.git.repository.results import TextResult, answer

MAX_STEPS = 60
"""Most commits that one driven bisect tries; halving a million takes 20."""

STATE_BYTES = 64 * 1024
"""Largest file of a bisect that is read."""

_SPACE = "refs/bisect/"
_FILES = ("BISECT_EXPECTED_REV", "BISECT_ANCESTORS_OK", "BISECT_LOG", "BISECT_RUN", "BISECT_NAMES", "BISECT_TERMS")
_START, _LOG = "BISECT_START", "BISECT_LOG"
_TERMS = b"bad\ngood\n"
_VARIABLE = re.compile(r"^(bisect_\w+)='?([0-9a-f]*)'?$", re.MULTILINE)

_SKIP_CODE = 125
"""Exit code of a command that can't tell (git-bisect(1), "Bisect run")."""


@dataclass(frozen=True, slots=True)
class _Marks:
    """The commits that are marked."""

    bad: str = ""
    good: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def with_mark(self, word: str, commit: str) -> "_Marks":
        """The marks with one more."""
        match word:
            case "good":
                return replace(self, good=[*self.good, commit])
            case "skip":
                return replace(self, skipped=[*self.skipped, commit])
            case _:
                return replace(self, bad=commit)


async def start(repository: OpenRepository, shared: OpenShared, *, bad: str, good: Sequence[str]) -> TextResult:
    """Begin a bisect, and go to the commit in the middle.

    Raises:
        InvalidArguments: no good commit, or one that is no ancestor of the bad one. GitRefused: see `ready`.
    """
    if not good:
        raise InvalidArguments("good: name at least one commit without the change")
    here = await ready(repository)
    worst, *best = await repository.resolved(bad or "HEAD", *good)
    for name, commit in zip(good, best, strict=True):
        if not (await repository.run("merge-base", "--is-ancestor", commit, worst)).ok or commit == worst:
            raise InvalidArguments(f"good {name!r}: is no ancestor of the bad commit, so nothing can be halved")
    step = await _next(repository, _Marks(worst, best))
    try:
        for name, text in (
            (_START, f"{here.branch or here.commit}\n"),
            ("BISECT_TERMS", _TERMS.decode()),
            ("BISECT_NAMES", "\n"),
            (_LOG, f"git bisect start '{worst}' {' '.join(repr(one) for one in best)}\n"),
        ):
            directory_access.replace_file(repository.checkout.git_handle, name, encoded(text))
        await _mark(repository, [("bad", worst), *(("good", one) for one in best)])
        return await _go(repository, step)
    except CoreError:
        await _forget(shared)  # nothing was checked out
        raise


async def mark(repository: OpenRepository, *, word: str, revision: str) -> TextResult:
    """Mark a commit (HEAD by default) as good or bad, or skip it, and go to the next.

    Raises:
        GitRefused: no bisect is in progress, or it has terms of its own.
    """
    _require_started(repository.checkout)
    [commit] = await repository.resolved(revision or "HEAD")
    step = await _next(repository, (await _marks(repository)).with_mark(word, commit))
    log = directory_access.read_file(repository.checkout.git_handle, _LOG, limit_bytes=STATE_BYTES)
    directory_access.replace_file(repository.checkout.git_handle, _LOG, log + f"git bisect {word} {commit}\n".encode())
    await _mark(repository, [(word, commit)])
    return await _go(repository, step)


async def reset(repository: OpenRepository, shared: OpenShared) -> TextResult:
    """End the bisect, and go back to where it began.

    Raises:
        GitRefused: none is in progress, or git can't go back.
    """
    _require_started(repository.checkout)
    marks = await _marks(repository)
    where = as_text(directory_access.read_file(repository.checkout.git_handle, _START, limit_bytes=STATE_BYTES)).strip()
    check_revision(where)
    is_branch = await has_reference(repository, f"{HEADS}{where}")
    here = await born(repository)
    [target] = await repository.resolved(f"{HEADS}{where}" if is_branch else where)
    await require_writable_names(repository, await changed_names(repository, here.commit, target))
    words = ["--no-guess", where] if is_branch else ["--detach", target]
    completed = await repository.run("switch", "--quiet", "--no-progress", "--no-overwrite-ignore", *words)
    require_success(completed, "switch")
    await _forget(shared)
    undo = f"Undo: git_bisect action='start' bad={marks.bad!r} good={marks.good!r}"
    lines = [single_line(f"bisect ended; back on {where}"), undo]
    return answer(repository.checkout, lines, details={"commit": target})


async def log(repository: OpenRepository) -> TextResult:
    """Show which commits were called good and bad, or skipped."""
    _require_started(repository.checkout)
    marks = await _marks(repository)
    lines = [f"bad {marks.bad}", *(f"good {one}" for one in marks.good), *(f"skip {one}" for one in marks.skipped)]
    return answer(repository.checkout, lines, details={"bad": marks.bad, "good": marks.good, "skipped": marks.skipped})


async def drive(
    run: Callable[[], Awaitable[int | None]], marked: Callable[[str], Awaitable[TextResult]]
) -> tuple[TextResult, list[str]]:
    """Run a command on each commit, and mark it by the exit code, until the first bad commit is found.

    0 is good, 125 can't tell, up to 127 is bad. `run` returns the exit code, or None if there is none.

    Raises:
        GitRefused: another code, or too many steps; the bisect stays where it is.
    """
    lines: list[str] = []
    for _ in range(MAX_STEPS):
        code = await run()
        if code is None or code > 127 or code < 0:
            raise GitRefused(
                f"the command ended {'without an exit code' if code is None else f'with exit code {code}'}, which says "
                "neither good (0) nor bad (1 to 124); the bisect stays here: git_bisect action='good', 'bad' or 'skip'"
            )
        word = "good" if code == 0 else "skip" if code == _SKIP_CODE else "bad"
        result = await marked(word)
        lines.append(f"{word} (exit code {code})")
        if not result.details.get("left"):
            return result, lines
    raise GitRefused(f"no first bad commit after {MAX_STEPS} steps; git_bisect action='log' shows them")


async def _mark(repository: OpenRepository, marks: Sequence[tuple[str, str]]) -> None:
    lines = [f"update {_SPACE}{word}{'' if word == 'bad' else f'-{commit}'} {commit}\n" for word, commit in marks]
    await repository.output("update-ref", "--stdin", stdin="".join(lines).encode())


async def _marks(repository: OpenRepository) -> _Marks:
    output = await repository.output("for-each-ref", "--format=%(refname) %(objectname)", _SPACE)
    marks: dict[str, list[str]] = {"bad": [], "good": [], "skip": []}
    for line in as_text(output).splitlines():
        name, _, commit = line.rpartition(" ")
        marks.setdefault(name.removeprefix(_SPACE).partition("-")[0], []).append(commit)
    return _Marks("".join(marks["bad"][:1]), marks["good"], marks["skip"])


@dataclass(frozen=True, slots=True)
class _Step:
    """The commit to test next; the bad one if no other is left."""

    marks: _Marks
    commit: str
    left: int


async def _next(repository: OpenRepository, marks: _Marks) -> _Step:
    """Return where the bisect goes with these marks, if git may go there.

    Raises:
        GitRefused: nothing is left. DeniedPath: see `require_writable_names`.
    """
    words = (marks.bad, "--not", *marks.good)
    output = as_text(await repository.output("rev-list", "--bisect-vars", *words))
    values = dict(_VARIABLE.findall(output))
    commit, left = values.get("bisect_rev", ""), int(values.get("bisect_nr") or 0)
    if not commit:
        raise GitRefused("nothing is left between the good and the bad commits; git_bisect action='reset' ends it")
    if marks.skipped and commit != marks.bad:
        commit = await _not_skipped(repository, words, marks)
    if commit != marks.bad:
        here = await born(repository)
        await require_writable_names(repository, await changed_names(repository, here.commit, commit))
    return _Step(marks, commit, left)


async def _go(repository: OpenRepository, step: _Step) -> TextResult:
    """Go to the commit of a step, or say which is the first bad one."""
    commit, left = step.commit, step.left
    if commit == step.marks.bad:
        return await _result(repository, step.marks)
    lines = [
        f"bisecting: {left} commits left after this; now at {await _summary(repository, commit)}",
        "Then: git_bisect action='good', 'bad' or 'skip'; git_bisect_run does it with a command",
        "Undo: git_bisect action='reset'",
    ]
    directory_access.replace_file(repository.checkout.git_handle, "BISECT_EXPECTED_REV", f"{commit}\n".encode())
    # Last, so that nothing is checked out where this fails.
    moved = await repository.run("checkout", "--quiet", "--no-progress", "--no-overwrite-ignore", "--detach", commit)
    require_success(moved, "checkout")
    return answer(repository.checkout, lines, details={"commit": commit, "left": left + 1})


async def _not_skipped(repository: OpenRepository, words: Sequence[str], marks: _Marks) -> str:
    """Return the best commit that was not skipped; the bad one if there is no other."""
    output = as_text(await repository.output("rev-list", "--bisect-all", *words))
    for line in output.splitlines():
        commit = line.partition(" ")[0]
        if commit not in (*marks.skipped, marks.bad):
            return commit
    return marks.bad


async def _result(repository: OpenRepository, marks: _Marks) -> TextResult:
    words = (marks.bad, "--not", *marks.good)
    among = [one for one in marks.skipped if one in as_text(await repository.output("rev-list", *words)).split()]
    text = await _summary(repository, marks.bad)
    lines = [f"the first bad commit is {text}" if not among else f"the first bad commit is {text}, or a skipped one:"]
    lines += among
    lines.append("Undo: git_bisect action='reset', which also ends it. What it did: git_show")
    return answer(repository.checkout, lines, details={"first_bad": marks.bad, "skipped": among, "left": 0})


async def _summary(repository: OpenRepository, commit: str) -> str:
    words = ("log", "--max-count=1", "--format=%h %as %an: %s", "--abbrev=10", "--no-mailmap", "--no-show-signature")
    return single_line(as_text(await repository.output(*words, commit)).strip("\n"))


def _require_started(checkout: Checkout) -> None:
    """Refuse where no bisect is in progress, or one with other words than good and bad.

    Raises:
        GitRefused: says which.
    """
    entries = directory_access.entry_kinds(checkout.git_handle)
    if _LOG not in entries or _START not in entries:
        raise GitRefused("no bisect is in progress; git_bisect action='start' bad=... good=[...] begins one")
    if "BISECT_TERMS" in entries:
        terms = directory_access.read_file(checkout.git_handle, "BISECT_TERMS", limit_bytes=STATE_BYTES)
        if terms.split() != _TERMS.split():
            raise GitRefused("the bisect in progress has terms of its own; go on with git itself")


async def _forget(shared: OpenShared) -> None:
    """Delete the references and files of the bisect."""
    async with shared() as repository:
        output = as_text(await repository.output("for-each-ref", "--format=%(refname)", _SPACE))
        stdin = "".join(f"delete {name}\n" for name in output.splitlines())
        await repository.output("update-ref", "--stdin", stdin=stdin.encode())
        for name in (*_FILES, _START):
            directory_access.remove_file(repository.checkout.git_handle, name)
