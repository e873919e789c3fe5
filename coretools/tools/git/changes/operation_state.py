"""Examine the unfinished operation of a repository before git continues it.

git obeys the files of an operation: `exec` in a list of steps starts a command, and a strategy names a program. These
files are read here, for the server's own decision, and only what this package can have begun is continued.
"""

import re
from dataclasses import dataclass

from coretools.errors import CoreError, GitRefused
from coretools.roots import directory_access
from coretools.roots.git_config import parse
from coretools.tools.git.repository.checkout import Checkout

STATE_BYTES = 1024 * 1024
"""Largest file of an operation that is read."""

_STEPS = frozenset({"pick", "p", "fixup", "f", "squash", "s", "drop", "d", "noop", "reword", "r", "revert"})
"""Steps that start no program. `exec` does, `edit` and `break` stop for somebody else, and merges take a strategy."""

_PLAIN_STRATEGIES = frozenset({"ort", "recursive"})

_SEQUENCER_OPTIONS = frozenset(
    {"options.no-commit", "options.edit", "options.allow-empty", "options.allow-empty-message", "options.mainline"}
    | {"options.keep-redundant-commits", "options.signoff", "options.record-origin", "options.allow-ff"}
    | {"options.default-msg-cleanup", "options.strategy", "options.strategy-option"}
)

_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

_FOREIGN = frozenset({"MERGE_AUTOSTASH", "BISECT_LOG", "rebase-apply"})
"""Entries of a git directory that show an operation which this package never begins."""

_ENDS = "end it with git itself"


@dataclass(frozen=True, slots=True)
class Operation:
    """An unfinished operation that may be continued here."""

    name: str
    """`merge`, `rebase`, `cherry-pick` or `revert`."""
    has_more: bool = False
    """A sequence of several commits is under way."""
    has_commit: bool = True
    """It stopped while a commit was applied."""
    start: str = ""
    """The commit at which a rebase or sequence began, and to which an abort returns."""
    reached: str = ""
    """The last commit that the sequence itself made. If HEAD is another one, an abort must not return."""


def operation_in_progress(checkout: Checkout) -> Operation:
    """Return the unfinished operation.

    Raises:
        GitRefused: there is none, or it is not one that may be continued here.
    """
    entries = directory_access.entry_kinds(checkout.git_handle)
    if not _FOREIGN.isdisjoint(entries):
        raise GitRefused(f"a {checkout.in_progress or 'merge'} is in progress that is not continued here; {_ENDS}")
    if "rebase-merge" in entries:
        return Operation("rebase", has_more=True, start=_examined_rebase(checkout))
    if "MERGE_HEAD" in entries:
        return Operation("merge")
    is_revert = "REVERT_HEAD" in entries
    has_commit = is_revert or "CHERRY_PICK_HEAD" in entries
    if "sequencer" in entries:
        return _sequence(checkout, is_revert=is_revert, has_commit=has_commit)
    if has_commit:
        return Operation("revert" if is_revert else "cherry-pick")
    raise GitRefused("no merge, rebase, cherry-pick or revert is in progress")


def _sequence(checkout: Checkout, *, is_revert: bool, has_commit: bool) -> Operation:
    with directory_access.open_subdirectory(checkout.git_handle, "sequencer") as handle:
        steps = _steps(handle, "todo")
        options = _text(handle, "opts")
        for setting in parse(options.encode(), "sequencer/opts"):
            is_plain = not setting.key.startswith("options.strategy") or setting.value in _PLAIN_STRATEGIES
            if setting.key not in _SEQUENCER_OPTIONS or not is_plain:
                raise GitRefused(f"the operation in progress has the option {setting.key!a}, not used here; {_ENDS}")
        start, reached = (_text(handle, name).strip() for name in ("head", "abort-safety"))
    name = "revert" if is_revert or "revert" in steps else "cherry-pick"
    start, reached = (text if _OBJECT.fullmatch(text) else "" for text in (start, reached))
    return Operation(name, has_more=True, has_commit=has_commit, start=start, reached=reached)


def _examined_rebase(checkout: Checkout) -> str:
    """Return the commit at which a rebase began; refuse one whose state contains what this package never writes."""
    with directory_access.open_subdirectory(checkout.git_handle, "rebase-merge") as handle:
        entries = directory_access.entry_kinds(handle)
        odd = entries.keys() & {"autostash", "gpg_sign_opt", "strategy_opts", "update-refs", "allow_rerere_autoupdate"}
        if odd and _has_content(handle, odd):
            raise GitRefused(f"the rebase in progress has {', '.join(sorted(odd))}, not used here; {_ENDS}")
        if _text(handle, "strategy").strip() not in ("", *_PLAIN_STRATEGIES):
            raise GitRefused(f"the rebase in progress has a strategy of its own; {_ENDS}")
        if "interactive" not in entries:
            raise GitRefused(f"the rebase in progress is of a kind that is not continued here; {_ENDS}")
        if "amend" in entries or "current-fixups" in entries:
            raise GitRefused(f"a fixup stopped; {_ENDS} (git commit --amend, git rebase --continue), or abort it there")
        _steps(handle, "git-rebase-todo")
        start = _text(handle, "orig-head").strip()
    return start if _OBJECT.fullmatch(start) else ""


def _steps(handle: int, name: str) -> list[str]:
    """Return the steps of a list.

    Raises:
        GitRefused: one of them could start a program.
    """
    lines = (line.split() for line in _text(handle, name).split("\n"))
    steps = [words[0] for words in lines if words and not words[0].startswith("#")]
    unknown = sorted(set(steps) - _STEPS)
    if unknown:
        raise GitRefused(f"the steps of the operation in progress include {unknown[0][:40]!a}; {_ENDS}")
    return steps


def _has_content(handle: int, names: set[str]) -> bool:
    return any(_text(handle, name).strip() for name in names)


def _text(handle: int, name: str) -> str:
    """Return the content of a file, "" if there is none."""
    if directory_access.entry_version(handle, name) is None:
        return ""
    try:
        return directory_access.read_file(handle, name, limit_bytes=STATE_BYTES).decode("utf-8", "replace")
    except CoreError as error:
        raise GitRefused(f"the state of the operation in progress can't be read ({error}); {_ENDS}") from error
