"""Stage files: list the changed paths, remove those that must not be staged, and stage the rest by exact name."""

from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import NotFound
from coretools.roots.read import kind_at
from coretools.roots.replace import is_temporary
from coretools.tools.git.changes.filters import refuse_filtered, required_filters
from coretools.tools.git.repository.checkout import Checkout, display_paths, is_beneath, path_of, shown_path
from coretools.tools.git.repository.names import hidden_reason, refuse_hidden
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import FROM_STDIN, StatusEntry, quoted, read_status, terminated
from coretools.tools.git.repository.results import TextResult, answer, hidden_line, listed, paths_argument

_CHANGED = ("status", "--porcelain=v2", "-z", "--ignore-submodules=all", "--no-renames")

MAX_LISTED_LINES = 50
"""Staged names listed in an answer; the rest is counted."""


@dataclass(frozen=True, slots=True)
class _StagingPlan:
    """Changed paths, by how they are treated."""

    staged: list[StatusEntry]
    denied: dict[bytes, str]
    """Hidden files with the reasons. Staged, they would be readable for everybody through git."""
    nested: list[bytes]
    """Nested repositories. Staged, each would be a reference to a commit that nobody else has."""


@dataclass(frozen=True, slots=True)
class StagingOptions:
    """What is staged of the changed paths."""

    tracked_only: bool = False
    intent: bool = False
    """Only note new files, so that `git_diff` shows them; their content is not staged."""


async def add(
    repository: OpenRepository, names: Sequence[str], options: StagingOptions = StagingOptions()
) -> TextResult:
    """Stage everything that is changed at or beneath the names.

    Raises:
        DeniedPath: an explicit name is hidden. NotFound: a name matches nothing. GitRefused: a file would be stored
            wrongly, since the filter that should convert it is not run.
    """
    refuse_hidden(repository, names)
    untracked = "no" if options.tracked_only else "all"
    words = (*_CHANGED, f"--untracked-files={untracked}", "--", *names)
    entries = read_status(await repository.output(*words)).entries
    _require_something(repository, names, entries)
    if options.intent:
        entries = tuple(entry for entry in entries if entry.letters == "??")
    plan = _staging_plan(repository, entries)
    if plan.staged:
        await (_note if options.intent else _stage)(repository, plan.staged)
    details = {"staged": len(plan.staged), "left_out": len(plan.denied) + len(plan.nested)}
    return answer(repository.checkout, _lines(repository.checkout, plan, options), details=details)


async def _note(repository: OpenRepository, entries: Sequence[StatusEntry]) -> None:
    """Add new files to the index without their content, which git does not read here."""
    names = [entry.path for entry in entries]
    await refuse_filtered(repository, names)
    await repository.output("add", "--intent-to-add", *FROM_STDIN, stdin=terminated(names))


async def _stage(repository: OpenRepository, entries: Sequence[StatusEntry]) -> None:
    """Stage the content of files, or that they are deleted. `git add` would stage everything beneath a name too.

    Raises:
        GitRefused: git failed; one reason is a file that a filter should convert, and the error names all of them.
    """
    words = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
    stdin = terminated(entry.path for entry in entries)
    completed = await repository.run(*words, options=required_filters(repository), stdin=stdin)
    if not completed.ok:
        await refuse_filtered(repository, [entry.path for entry in entries if entry.letters[1] != "D"])
    require_success(completed, "update-index")


def _staging_plan(repository: OpenRepository, entries: Sequence[StatusEntry]) -> _StagingPlan:
    plan = _StagingPlan([], {}, [])
    for entry in entries:
        if not entry.unstaged or is_temporary(entry.path):
            continue
        reason = hidden_reason(repository, entry.path)
        if reason:
            plan.denied[entry.path] = reason
        elif entry.path.endswith(b"/"):  # how git lists another repository in the work tree
            plan.nested.append(entry.path)
        else:
            plan.staged.append(entry)
    return plan


def _lines(checkout: Checkout, plan: _StagingPlan, options: StagingOptions) -> list[str]:
    staged = plan.staged
    done = "noted without content" if options.intent else "staged"
    lines = [f"{done} {len(staged)}" if staged else "nothing to stage: unchanged, ignored or staged already"]
    lines += [f"{_letter(entry)} {quoted(path_of(checkout, entry.path))}" for entry in staged[:MAX_LISTED_LINES]]
    if len(staged) > MAX_LISTED_LINES:
        lines.append(f"[{len(staged) - MAX_LISTED_LINES} more]")
    if staged:
        names = [entry.path for entry in staged]
        lines.append(f"Undo: git_restore what='staged' {paths_argument(checkout, names)}")
    if plan.denied:
        lines.append(hidden_line(checkout, "left out", plan.denied))
    if plan.nested:
        lines.append(f"[left out, repositories of their own: {listed(display_paths(checkout, plan.nested))}]")
    return lines


def _require_something(repository: OpenRepository, names: Sequence[str], entries: Sequence[StatusEntry]) -> None:
    """Refuse a name that exists neither in the work tree nor in git's list."""
    checkout = repository.checkout
    for name in names:
        if name == "." or any(is_beneath(entry.path, name) for entry in entries):
            continue
        if kind_at(repository.roots, f"{checkout.directory.path}/{name}") is None:
            raise NotFound(f"{shown_path(checkout, name)}: no such path; name paths as git_status shows them")


def _letter(entry: StatusEntry) -> str:
    if entry.in_conflict:
        return "resolved"
    return "A" if entry.letters == "??" else entry.letters[1]
