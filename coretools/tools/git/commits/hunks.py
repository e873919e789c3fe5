"""Stage, unstage or discard some hunks or lines of files: the patch of what was chosen goes to `git apply`."""

from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import GitRefused, InvalidArguments
from coretools.tools.git.changes.stash_commits import kept
from coretools.tools.git.changes.writable import require_visible_names, require_writable_names
from coretools.tools.git.commits.hunk_choice import chosen_patch
from coretools.tools.git.repository.checkout import Checkout, display_paths, path_of
from coretools.tools.git.repository.names import refuse_hidden
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.patches import PATCH, FilePatch, Hunk, read_patch
from coretools.tools.git.repository.porcelain import as_text
from coretools.tools.git.repository.results import TextResult, answer

_DIFF = ("diff", *PATCH, "--no-renames", "--src-prefix=a/", "--dst-prefix=b/")
_APPLY = ("apply", "--whitespace=nowarn", "--no-ignore-whitespace", "-p1")


@dataclass(frozen=True, slots=True)
class HunkChange:
    """What happens to the chosen hunks."""

    done: str
    diff: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    undo: str = ""

    @property
    def reverse(self) -> bool:
        """Whether the hunks are taken back."""
        return "--reverse" in self.apply


STAGE = HunkChange("staged", apply=("--cached",), undo="git_restore what='staged'")
UNSTAGE = HunkChange("unstaged", diff=("--cached",), apply=("--cached", "--reverse"), undo="git_add")
DISCARD = HunkChange("discarded", apply=("--reverse",))


async def change_hunks(
    repository: OpenRepository, names: Sequence[str], choices: Sequence[str], change: HunkChange
) -> TextResult:
    """Stage, unstage or discard hunks of one file, or hunks of several that are named by their ids.

    Raises:
        InvalidArguments, Conflict, GitRefused: see `chosen_patch`; then nothing is changed.
    """
    refuse_hidden(repository, names)
    data = await repository.output(*_DIFF, *change.diff, "--", *names)
    files = read_patch(data)
    plan = _plan(files, choices, is_reverse=change.reverse)
    require = require_writable_names if change is DISCARD else require_visible_names
    await require(repository, [file.name for file, _, _ in plan])
    stash = await kept(repository, names=names) if change is DISCARD else ""
    patch = b"".join(part for _, part, _ in plan)
    await repository.output(*_APPLY, *change.apply, stdin=patch)
    count = sum(len(hunks) for _, _, hunks in plan)
    paths = display_paths(repository.checkout, [file.name for file, _, _ in plan])
    lines = [f"{change.done} {count} of {sum(len(file.hunks) for file in files)} hunks in {', '.join(paths)}"]
    lines += [hunk.position for _, _, hunks in plan for hunk in hunks][:20]
    lines.append(_undo(repository.checkout, plan, change, choices, stash))
    return answer(repository.checkout, lines, details={"hunks": count, "stash": stash})


def _plan(
    files: Sequence[FilePatch], choices: Sequence[str], *, is_reverse: bool
) -> list[tuple[FilePatch, bytes, list[Hunk]]]:
    """Return for each file the patch of what was chosen in it, and the hunks."""
    if not files:
        raise GitRefused("no hunks: nothing differs there; git_status shows what is changed, git_diff the hunks")
    if len(files) == 1:
        patch, hunks = chosen_patch(files[0], choices, reverse=is_reverse)
        return [(files[0], patch, hunks)]
    by_file: dict[int, list[str]] = {}
    for choice in choices:
        places = [at for at, file in enumerate(files) for hunk in file.hunks if choice.strip() == hunk.id]
        if not places:
            raise InvalidArguments(
                f"hunks, {choice[:40]!r}: {len(files)} files have changed there, so only ids of git_diff name a hunk; "
                "or name one path"
            )
        by_file.setdefault(places[0], []).append(choice)
    return [(files[at], *chosen_patch(files[at], chosen, reverse=is_reverse)) for at, chosen in by_file.items()]


def _undo(
    checkout: Checkout,
    plan: Sequence[tuple[FilePatch, bytes, list[Hunk]]],
    change: HunkChange,
    choices: Sequence[str],
    stash: str,
) -> str:
    if change is DISCARD:
        return f"Undo: git_stash action='apply' stash={stash!r}"
    paths = [as_text(path_of(checkout, file.name)) for file, _, _ in plan]
    is_whole = not any(choice.strip().startswith(("+", "-")) for choice in choices)
    ids = [hunk.id for _, _, hunks in plan for hunk in hunks]
    which = f" hunks={ids!r}" if is_whole else ", and the hunks that git_diff shows for it"
    return f"Undo: {change.undo} paths={paths!r}{which}"
