"""Examine the unfinished operation of a repository before git continues it.

git obeys the files of an operation: `exec` in a list of steps starts a command, and a strategy names a program. These
files are read here, for the server's own decision, and only what needs no other program is continued.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coretools.errors import CoreError, GitRefused
from coretools.roots import directory_access
from coretools.roots.git_config import parse
from coretools.tools.git.repository.checkout import Checkout

STATE_BYTES = 1024 * 1024
"""Largest file of an operation that is read."""

_STEPS = frozenset({"pick", "p", "fixup", "f", "drop", "d", "edit", "e", "break", "b", "noop", "revert"})
"""Steps that start no program. `exec` does, and merges take a strategy."""

_WITHOUT_COMMIT = frozenset({"drop", "d", "break", "b", "noop"})
"""Steps that apply none."""

_EDITOR_STEPS = frozenset({"reword", "r", "squash", "s"})
"""Steps for which git starts an editor, in a list that was made in a terminal."""

_PLAIN_STRATEGIES = frozenset({"ort", "recursive"})

_SEQUENCER_OPTIONS = frozenset(
    {"options.no-commit", "options.edit", "options.allow-empty", "options.allow-empty-message", "options.mainline"}
    | {"options.keep-redundant-commits", "options.signoff", "options.record-origin", "options.allow-ff"}
    | {"options.default-msg-cleanup", "options.strategy", "options.strategy-option"}
)

_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

_FOREIGN = frozenset({"MERGE_AUTOSTASH", "rebase-apply"})
"""Entries of a git directory that show an operation which this package never begins."""

_ENDS = (
    "end it with git itself: git rebase --quit, git merge --quit or git cherry-pick --quit keep the files as they are"
)


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
    branch: str = ""
    """The branch that a rebase moves."""
    again: str = ""
    """Arguments with which the operation begins again."""
    stopped_at: str = ""
    """`edit` or `fixup` if a rebase stopped at such a step."""
    amended: str = ""
    """The commit that the step amends."""
    message: bytes | None = None
    """The message that a commit gets from the fixups so far."""
    is_clean_message: bool = True
    """It has no comments of git."""
    needs_editor: bool = False
    """A later step would start an editor."""
    remaining: tuple[str, ...] = ()
    """The commits of the steps that are left, and of the one at which it stopped, as the list names them."""

    @property
    def message_words(self) -> list[str]:
        """Options of `git commit` for the message of fixups."""
        if self.message is None:
            return ["--no-edit"]
        return ["--file=-", *(() if self.is_clean_message else ("--cleanup=strip",))]

    @property
    def is_skipped_by_git(self) -> bool:
        """Whether git itself can leave out the commit; it would edit the message of several fixups."""
        return self.name == "rebase" and self.stopped_at != "fixup"

    def is_committed_unchanged(self, *, has_message: bool) -> bool:
        """Whether it makes a commit where nothing is staged."""
        return self.name == "merge" or self.stopped_at == "fixup" or (self.stopped_at == "edit" and has_message)

    def require_no_editor(self) -> None:
        """Refuse to go on with steps that would start an editor.

        Raises:
            GitRefused: there are some.
        """
        if self.needs_editor:
            raise GitRefused(
                f"the steps of the rebase in progress open an editor (reword, squash); {_ENDS}, or abort it and "
                "git_rebase with steps"
            )


def operation_in_progress(checkout: Checkout) -> Operation:
    """Return the unfinished operation.

    Raises:
        GitRefused: there is none, or it is not one that may be continued here.
    """
    entries = directory_access.entry_kinds(checkout.git_handle)
    _refuse_foreign(checkout, entries)
    if "rebase-merge" in entries:
        return _rebase(checkout)
    if "MERGE_HEAD" in entries:
        return Operation("merge", again=_again("revision", _text(checkout.git_handle, "MERGE_HEAD")))
    is_revert = "REVERT_HEAD" in entries
    has_commit = is_revert or "CHERRY_PICK_HEAD" in entries
    if "sequencer" in entries:
        return _sequence(checkout, is_revert=is_revert, has_commit=has_commit)
    if has_commit:
        name = "REVERT_HEAD" if is_revert else "CHERRY_PICK_HEAD"
        again = _again("revisions", _text(checkout.git_handle, name))
        return Operation("revert" if is_revert else "cherry-pick", again=again)
    raise GitRefused("no merge, rebase, cherry-pick or revert is in progress")


def _refuse_foreign(checkout: Checkout, entries: Mapping[str, str]) -> None:
    """Refuse an operation that `git_continue` never continues.

    Raises:
        GitRefused: names it.
    """
    if checkout.in_progress == "bisect":
        raise GitRefused("a bisect is in progress; git_bisect goes on with it, and action='reset' ends it")
    if not _FOREIGN.isdisjoint(entries):
        raise GitRefused(f"a {checkout.in_progress or 'merge'} is in progress that is not continued here; {_ENDS}")


def _sequence(checkout: Checkout, *, is_revert: bool, has_commit: bool) -> Operation:
    with directory_access.open_subdirectory(checkout.git_handle, "sequencer") as handle:
        steps = _steps(handle, "todo")
        options = _text(handle, "opts")
        for setting in parse(options.encode(), "sequencer/opts"):
            is_plain = not setting.key.startswith("options.strategy") or setting.value in _PLAIN_STRATEGIES
            if setting.key not in _SEQUENCER_OPTIONS or not is_plain:
                raise GitRefused(f"the operation in progress has the option {setting.key!a}, not used here; {_ENDS}")
        start, reached = (_text(handle, name).strip() for name in ("head", "abort-safety"))
    name = "revert" if is_revert or "revert" in steps.verbs else "cherry-pick"
    start, reached = (text if _OBJECT.fullmatch(text) else "" for text in (start, reached))
    return Operation(name, has_more=True, has_commit=has_commit, start=start, reached=reached, remaining=steps.commits)


def _again(argument: str, text: str) -> str:
    """Return an argument of the call that begins an operation again."""
    value = text.strip()
    shown = f"[{value!r}]" if argument == "revisions" else repr(value)
    return f" {argument}={shown}" if _OBJECT.fullmatch(value) else ""


def _rebase(checkout: Checkout) -> Operation:
    """Return the rebase in progress; refuse one whose state contains what would start a program."""
    with directory_access.open_subdirectory(checkout.git_handle, "rebase-merge") as handle:
        entries = directory_access.entry_kinds(handle)
        _require_harmless(handle, entries)
        steps = _steps(handle, "git-rebase-todo")
        start, onto, amended = (_object(handle, name) for name in ("orig-head", "onto", "amend"))
        branch = _text(handle, "head-name").strip().removeprefix("refs/heads/")
        has_fixups = bool(_text(handle, "current-fixups").strip())
        is_fixup = bool(amended) and has_fixups and "stopped-sha" in entries
        name = "message-fixup" if "message-fixup" in entries else "message-squash"
        message = _bytes(handle, name) if is_fixup else b""
    return Operation(
        "rebase",
        has_more=True,
        start=start,
        branch="" if branch == "detached HEAD" else branch,
        again=_again("upstream", onto),
        stopped_at="" if not amended else "fixup" if is_fixup else "edit",
        amended=amended,
        message=message or None,
        is_clean_message=name == "message-fixup",
        needs_editor=not _EDITOR_STEPS.isdisjoint(steps.verbs),
        remaining=steps.commits,
    )


def _require_harmless(handle: int, entries: Mapping[str, str]) -> None:
    """Refuse a rebase whose state has options that would start a program, or does not say where an abort leads.

    Raises:
        GitRefused: names them.
    """
    odd = entries.keys() & {"autostash", "gpg_sign_opt", "strategy_opts", "update-refs", "allow_rerere_autoupdate"}
    if any(_text(handle, name).strip() for name in odd):
        raise GitRefused(f"the rebase in progress has {', '.join(sorted(odd))}, not used here; {_ENDS}")
    if _text(handle, "strategy").strip() not in ("", *_PLAIN_STRATEGIES):
        raise GitRefused(f"the rebase in progress has a strategy of its own; {_ENDS}")
    if not _object(handle, "orig-head"):  # git would take any revision
        raise GitRefused(f"the rebase in progress does not say where it began; {_ENDS}")
    if "interactive" not in entries:
        raise GitRefused(f"the rebase in progress is of a kind that is not continued here; {_ENDS}")


def _object(handle: int, name: str) -> str:
    text = _text(handle, name).strip()
    return text if _OBJECT.fullmatch(text) else ""


class _Steps(NamedTuple):
    """A list of steps."""

    verbs: frozenset[str]
    commits: tuple[str, ...]
    """What they apply, as it stands there."""


def _steps(handle: int, name: str) -> _Steps:
    """Return the steps of a list.

    Raises:
        GitRefused: one of them could start a program.
    """
    lines = [line.split() for line in _text(handle, name).split("\n")]
    lines = [words for words in lines if words and not words[0].startswith("#")]
    # `fixup -c` edits the message.
    verbs = frozenset("reword" if words[1:2] == ["-c"] else words[0] for words in lines)
    unknown = sorted(verbs - _STEPS - _EDITOR_STEPS)
    if unknown:
        raise GitRefused(f"the steps of the operation in progress include {unknown[0][:40]!a}; {_ENDS}")
    return _Steps(verbs, tuple(filter(None, map(_commit_of, lines))))


def _commit_of(words: list[str]) -> str:
    """Return the commit that a line applies; "" for one that drops a commit or has none."""
    named = [word for word in words[1:3] if word not in ("-C", "-c")]
    return named[0] if named and words[0] not in _WITHOUT_COMMIT else ""


def _text(handle: int, name: str) -> str:
    """Return the content of a file, "" if there is none."""
    return _bytes(handle, name).decode("utf-8", "replace")


def _bytes(handle: int, name: str) -> bytes:
    if directory_access.entry_version(handle, name) is None:
        return b""
    try:
        return directory_access.read_file(handle, name, limit_bytes=STATE_BYTES)
    except CoreError as error:
        raise GitRefused(f"the state of the operation in progress can't be read ({error}); {_ENDS}") from error
