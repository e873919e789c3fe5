"""Commit the index.

The author comes from the caller's token, else from the operator's settings, else from the operator's git configuration.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coretools.config.commit_author import read_author
from coretools.errors import BadSetting, GitRefused, InvalidArguments, TooLarge
from coretools.process.run import Completed
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.changes.filters import refuse_filtered
from coretools.tools.git.changes.identity import no_identity
from coretools.tools.git.changes.messages import MESSAGE_BYTES
from coretools.tools.git.changes.signing import sign_head
from coretools.tools.git.changes.writable import refuse_staged_outside
from coretools.tools.git.repository.checkout import Checkout, display_paths, is_beneath, is_outside, path_of
from coretools.tools.git.repository.names import ARGUMENT_BYTES, refuse_hidden
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import (
    GitStatus,
    as_text,
    decoded,
    encoded,
    quoted,
    read_records,
    read_status,
    single_line,
)
from coretools.tools.git.repository.results import TextResult, answer, listed, undo_by_reset

MAX_FILES = 20
"""Most files of a commit that its answer names."""

_STATUS = (
    *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=all"),
    "--no-renames",
)
_COMMIT = ("commit", "--no-verify", "--no-gpg-sign", "--no-status", "--cleanup=whitespace")
_FILES = ("diff-tree", "-r", "-z", "--name-status", "--no-commit-id", "--no-renames", "--ignore-submodules=none")
_FULL_NAME = ("-c", "core.abbrev=no")
_COMMIT_OUTPUT = re.compile(
    r"\[(?P<where>detached HEAD|\S+)(?: \(root-commit\))? "
    r"(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})\] (?P<summary>.*)\n"
)
_CHANGES = re.compile(r"^ (\d+ files? changed.*)$", re.MULTILINE)

_UNKNOWN = re.compile(r"no (?P<part>name|email) was given and auto-detection is disabled|empty ident name")


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """What is committed, and with which message and author."""

    message: str
    amend: bool
    """Replace the last commit; without a message keep its message."""
    author: str
    """Another author than the committer, as `Ada Lovelace <ada@example.com>`."""
    fixup: str
    """A revision whose message follows `fixup!`, for a later rebase with autosquash."""
    signoff: bool
    """Add `Signed-off-by` with the committer's name."""
    names: Sequence[str]
    """Commit only these tracked files, as they are in the work tree; what else is staged stays staged."""


async def commit(repository: OpenRepository, options: CommitOptions) -> TextResult:
    """Commit what is staged.

    Raises:
        InvalidArguments: no message, or no author. GitRefused: nothing is staged, conflicts remain, or no author is
            known.
    """
    checkout = repository.checkout
    _check_message(options)
    options = replace(options, message=await _message(repository, options))
    status = read_status(await repository.output(*_STATUS))
    if not options.names:
        cure = f"git_commit with paths={[checkout.folder_path]!r} leaves them out"
        await refuse_staged_outside(repository, cure)
    chosen = await _chosen(repository, status, options.names) if options.names else []
    words = [*await _words(repository, options), *(("--only", "--", *chosen) if chosen else ())]
    settings = _FULL_NAME
    completed = await repository.run(*_COMMIT, *words, options=settings, stdin=options.message.encode())
    if not completed.ok:
        _explain_failure(checkout, status, completed, is_amended=options.amend)
    created = _parse_commit(require_success(completed, "commit").stdout.text())
    if signed := await sign_head(repository, before=status.head):
        created = replace(created, commit=signed)
    lines = [f"{'committed and signed' if signed else 'committed'} {created.text}", created.changes]
    lines += await _files(repository, created)
    lines += [undo_by_reset(status.head, "soft")] if status.head else []
    rest = _not_committed(checkout, status, chosen)
    lines += [f"not committed: {listed(display_paths(checkout, rest))}"] if rest else []
    details = {"commit": created.commit, "branch": created.branch, "not_committed": len(rest)}
    return answer(checkout, filter(None, lines), details=details, hooks="commit")


async def _files(repository: OpenRepository, created: "_CreatedCommit") -> list[str]:
    """Return a line for each file in the commit: it has all that was staged, also by somebody else."""
    completed = await repository.run(*_FILES, f"{created.commit}^", created.commit)
    if not completed.ok:  # the first commit has no parent
        completed = await repository.run(*_FILES, "--root", created.commit)
    output = completed.stdout
    changes = read_records(output.head if output.dropped_bytes else output.head + output.tail, 2)[:MAX_FILES]
    every = (cut_line(f"{as_text(letter)} {quoted(path_of(repository.checkout, name))}") for letter, name in changes)
    lines = fitting(every, repository.git.answer_bytes // 2)
    rest = int(created.changes.partition(" ")[0] or 0) - len(lines)
    return [*lines, *([f"[and {rest} more files: git_show stat=true]"] if rest > 0 else [])]


async def _chosen(repository: OpenRepository, status: GitStatus, names: Sequence[str]) -> list[str]:
    """Return the tracked files at or beneath the names that have changed.

    Raises:
        DeniedPath: one is hidden. GitRefused: nothing has changed there, one is in conflict, or a filter should
            convert it.
    """
    refuse_hidden(repository, names)
    changed = [one.path for one in status.entries if one.letters != "??"]
    chosen = [path for path in changed if "." in names or any(is_beneath(path, name) for name in names)]
    refuse_hidden(repository, [decoded(path) for path in chosen])
    if conflicts := [one.path for one in status.entries if one.in_conflict and one.path in chosen]:
        cure = "git_continue resolves them, or edit and git_add them"
        raise GitRefused(f"conflicts are not resolved: {listed(display_paths(repository.checkout, conflicts))}; {cure}")
    if not chosen:
        raise GitRefused("nothing that git tracks has changed at these paths; git_add new files first")
    if sum(len(path) + 1 for path in chosen) > ARGUMENT_BYTES:
        raise TooLarge(f"{len(chosen)} changed files; git_add them instead of naming paths", files=len(chosen))
    await refuse_filtered(repository, chosen)
    return [decoded(path) for path in chosen]


def _not_committed(checkout: Checkout, status: GitStatus, chosen: Sequence[str]) -> list[bytes]:
    """Return the paths that still differ from the new commit."""
    done = {encoded(name) for name in chosen}
    return [
        one.path
        for one in status.entries
        if one.path not in done and (one.unstaged or (chosen and one.staged)) and not is_outside(checkout, one.path)
    ]


async def _words(repository: OpenRepository, options: CommitOptions) -> list[str]:
    """Return the options of `git commit` for message and author."""
    has_message = bool(options.message.strip())
    words = ["--file=-"] if has_message else []
    if options.amend:
        words += ["--amend", *([] if has_message else ["--no-edit"])]
    if options.signoff:
        words.append("--signoff")
    if options.fixup:
        words.append(f"--fixup={(await repository.resolved(options.fixup))[0]}")
    if options.author:
        try:
            words.append(f"--author={read_author(options.author, 'by')}")
        except BadSetting as error:
            raise InvalidArguments(str(error)) from error
    return words


async def _message(repository: OpenRepository, options: CommitOptions) -> str:
    """Return the message with the operator's trailer; that of the last commit if it is amended and keeps it."""
    message = options.message
    if repository.git.setup.trailer and options.amend and not message.strip():
        message = as_text(await repository.output("log", "--max-count=1", "--format=%B", "HEAD"))
    return repository.git.setup.with_trailer(message)


def _check_message(options: CommitOptions) -> None:
    """Refuse an invalid message, no message, and one beside `fixup`.

    Raises:
        InvalidArguments: says which.
    """
    has_message = bool(options.message.strip())
    if options.fixup and (has_message or options.amend):
        raise InvalidArguments("fixup: takes the message of that commit; leave out message and amend")
    is_good = "\0" not in options.message and len(options.message.encode("utf-8", "replace")) <= MESSAGE_BYTES
    if not is_good or not (has_message or options.amend or options.fixup):
        raise InvalidArguments(f"message: must have text, no NUL, and at most {MESSAGE_BYTES} bytes")


def _explain_failure(checkout: Checkout, status: GitStatus, completed: Completed, *, is_amended: bool) -> None:
    """Raise an error that says what to do if no author is known, conflicts remain, or nothing is staged.

    Raises:
        GitRefused: says which.
    """
    unknown = _UNKNOWN.search(completed.stderr.text())
    if unknown is not None:
        raise no_identity(unknown["part"] or "name")
    conflicts = display_paths(checkout, [entry.path for entry in status.entries if entry.in_conflict])
    if conflicts:
        raise GitRefused(f"conflicts are not resolved: {listed(conflicts)}; edit the files, then git_add them")
    # A merge may keep our side everywhere; any other commit without a change is a mistake.
    was_empty = not any(entry.staged for entry in status.entries)
    is_empty = was_empty or not completed.stderr.text().strip()  # git lists what is changed, as it does in a status
    if is_empty and not is_amended and checkout.in_progress != "merge":
        meanwhile = "" if was_empty else " any more: somebody else committed or unstaged it"
        raise GitRefused(f"nothing is staged{meanwhile}; git_add the paths first")


@dataclass(frozen=True, slots=True)
class _CreatedCommit:
    """A created commit, as git printed it."""

    branch: str
    """Empty when HEAD is detached."""
    commit: str
    summary: str
    changes: str

    @property
    def text(self) -> str:
        """Its name, branch and summary."""
        where = single_line(self.branch) if self.branch else "detached HEAD"
        return f"{self.commit[:10]} on {where}: {single_line(self.summary)}"


def _parse_commit(output: str) -> _CreatedCommit:
    """Parse git's output about the commit that it created.

    Raises:
        GitRefused: the format is unknown.
    """
    match = _COMMIT_OUTPUT.match(output)
    if match is None:
        raise GitRefused("git commit: created a commit, but its output is in an unknown format; see git_log")
    changes = _CHANGES.search(output, match.end())
    branch = "" if match["where"] == "detached HEAD" else match["where"]
    return _CreatedCommit(branch, match["commit"], match["summary"], changes[1] if changes else "")
