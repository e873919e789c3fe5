"""Stage files and commit the index.

The author comes from the caller's token, else from the operator's settings, else from the operator's git configuration.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coretools.config.commit_author import read_author
from coretools.errors import BadSetting, GitRefused, InvalidArguments, NotFound
from coretools.roots.read import kind_at
from coretools.roots.root_set import Roots
from coretools.tools.git.changes.signing import sign_head
from coretools.tools.git.reading.history import head
from coretools.tools.git.repository.checkout import (
    Checkout,
    display_paths,
    hidden_reason,
    is_beneath,
    path_of,
    prefix,
    refuse_hidden,
)
from coretools.tools.git.repository.commands import Git, require_success
from coretools.tools.git.repository.porcelain import (
    StatusEntry,
    as_text,
    quoted,
    read_records,
    read_status,
    single_line,
)
from coretools.tools.git.repository.results import TextResult, answer, hidden_line, listed

MESSAGE_BYTES = 1024 * 1024
"""Longest message accepted."""

_STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--ignore-submodules=all")
_COMMIT = ("commit", "--no-verify", "--no-gpg-sign", "--no-status", "--cleanup=whitespace")
_FULL_NAME = ("-c", "core.abbrev=no")
_COMMIT_OUTPUT = re.compile(
    r"\[(?P<where>detached HEAD|\S+)(?P<first> \(root-commit\))? "
    r"(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})\] (?P<summary>.*)\n"
)
_CHANGES = re.compile(r"^ (\d+ files? changed.*)$", re.MULTILINE)

_IDENTITY = r"^(user|author|committer)\.(name|email)$"
_ROLES = ("author", "committer")
_PARTS = ("name", "email")


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """How a commit is made."""

    message: str
    amend: bool = False
    """Replace the last commit; without a message keep its message."""
    author: str = ""
    """Another author than the committer, as `Ada Lovelace <ada@example.com>`."""
    fixup: str = ""
    """A revision whose message follows `fixup!`, for a later rebase with autosquash."""


async def commit(git: Git, checkout: Checkout, options: CommitOptions) -> TextResult:
    """Commit what is staged.

    Raises:
        InvalidArguments: no message, or no author. GitRefused: nothing is staged, conflicts remain, or no author is
            known.
    """
    _check_message(options)
    options = replace(options, message=await _message(git, checkout, options))
    words = await _words(git, checkout, options)
    before = (await git.resolved(checkout, "HEAD"))[0] if options.amend else ""
    head_before = await _head_before(git, checkout, before)
    settings = (*_FULL_NAME, *await identity(git, checkout))
    completed = await git.run(checkout, *_COMMIT, *words, options=settings, stdin=options.message.encode())
    if not completed.ok and not options.amend:
        await _explain_failure(git, checkout)
    made = _parse_commit(require_success(completed, "commit").stdout.text())
    if signed := await sign_head(git, checkout, before=head_before):
        made = replace(made, commit=signed)
    undo = "" if made.is_first else f"Undo: git reset --soft {before or f'{made.commit[:10]}~1'}"
    lines = [f"{'committed and signed' if signed else 'committed'} {made.text}", made.changes, undo]
    details = {"commit": made.commit, "branch": made.branch}
    return answer(checkout, filter(None, lines), details=details, hooks=True)


async def _words(git: Git, checkout: Checkout, options: CommitOptions) -> list[str]:
    """Return the options of `git commit` for message and author."""
    has_message = bool(options.message.strip())
    words = ["--file=-"] if has_message else []
    if options.amend:
        words += ["--amend", *([] if has_message else ["--no-edit"])]
    if options.fixup:
        words.append(f"--fixup={(await git.resolved(checkout, options.fixup))[0]}")
    if options.author:
        try:
            words.append(f"--author={read_author(options.author, 'by')}")
        except BadSetting as error:
            raise InvalidArguments(str(error)) from error
    return words


async def _head_before(git: Git, checkout: Checkout, amended: str) -> str:
    """Return the commit that HEAD names before a signed one, or "" before the first."""
    return amended or ((await head(git, checkout))[1] if checkout.grants.signing else "")


async def _message(git: Git, checkout: Checkout, options: CommitOptions) -> str:
    """Return the message with the operator's trailer; that of the last commit if it is amended and keeps it."""
    message = options.message
    if git.setup.trailer and options.amend and not message.strip():
        message = as_text(await git.output(checkout, "log", "--max-count=1", "--format=%B", "HEAD"))
    return git.setup.with_trailer(message)


def _check_message(options: CommitOptions) -> None:
    """Refuse what can't be a message, and a message too many or too few.

    Raises:
        InvalidArguments: says which.
    """
    has_message = bool(options.message.strip())
    if options.fixup and (has_message or options.amend):
        raise InvalidArguments("fixup: takes the message of that commit; leave out message and amend")
    is_good = "\0" not in options.message and len(options.message.encode("utf-8", "replace")) <= MESSAGE_BYTES
    if not is_good or not (has_message or options.amend or options.fixup):
        raise InvalidArguments(f"message: must have text, no NUL, and at most {MESSAGE_BYTES} bytes")


async def _explain_failure(git: Git, checkout: Checkout) -> None:
    """Raise an error that says what to do if conflicts or an empty index prevented the commit.

    Raises:
        GitRefused: nothing is staged, or conflicts remain.
    """
    entries = read_status(await git.output(checkout, *_STATUS)).entries
    conflicts = display_paths(checkout, [entry.path for entry in entries if entry.in_conflict])
    if conflicts:
        raise GitRefused(f"conflicts are not resolved: {listed(conflicts)}; edit the files, then git_add them")
    # A merge may keep our side everywhere; any other commit without a change is a mistake.
    if not any(entry.staged for entry in entries) and checkout.in_progress != "merge":
        raise GitRefused("nothing is staged; git_add the paths first")


@dataclass(frozen=True, slots=True)
class _CreatedCommit:
    """A created commit, as git printed it."""

    branch: str
    """Empty when HEAD is detached."""
    commit: str
    summary: str
    changes: str
    is_first: bool

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
    found = _COMMIT_OUTPUT.match(output)
    if found is None:
        raise GitRefused("git commit: created a commit, but its output is in an unknown format; see git_log")
    changes = _CHANGES.search(output, found.end())
    branch = "" if found["where"] == "detached HEAD" else found["where"]
    return _CreatedCommit(
        branch, found["commit"], found["summary"], changes[1] if changes else "", bool(found["first"])
    )


async def identity(git: Git, checkout: Checkout) -> tuple[str, ...]:
    """Return options with the identity that git would take from its configuration here, if the environment has none.

    It is read for each repository: many people include another address by directory (`includeIf "gitdir:~/work/"`), and
    the wrong address in a commit can't be undone.
    """
    roles = [role for role in _ROLES if not _has_identity(git, role)]
    if not roles:
        return ()  # git prefers the environment to any configuration
    settings = await git.settings(checkout, _IDENTITY)
    for role in roles:
        for part in _PARTS:
            is_known = settings.get(f"user.{part}") or settings.get(f"{role}.{part}")
            if not is_known and not git.identity.get(f"GIT_{role}_{part}".upper()):
                raise GitRefused(
                    f"no {part} to commit under is known; the operator names one with `--author 'NAME <ADDRESS>'` "
                    "(CORETOOLS_AUTHOR) for the server, with `[roles.NAME] author` for a role, with `coretools token "
                    f"create --author` for a token, or with `git config --global user.{part} ...`"
                )
    return tuple(word for key, value in settings.items() for word in ("-c", f"{key}={value}"))


def _has_identity(git: Git, role: str) -> bool:
    """Whether the environment has name and address for this role."""
    return all(git.identity.get(f"GIT_{role}_{part}".upper()) for part in _PARTS)


# Staging: list the changed paths, remove those that must not be staged, and stage the rest by exact name.


_CHANGED = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames")

_FILTERS = r"^filter\..*\.(clean|process)$"

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


async def add(roots: Roots, git: Git, checkout: Checkout, names: Sequence[str]) -> TextResult:
    """Stage everything that is changed at or beneath the names.

    Raises:
        DeniedPath: an explicit name is hidden. NotFound: a name matches nothing. GitRefused: a file would be stored
            wrongly, since the filter that should convert it is not run.
    """
    refuse_hidden(roots, checkout, names)
    entries = read_status(await git.output(checkout, *_CHANGED, "--", *names)).entries
    _require_something(roots, checkout, names, entries)
    found = _staging_plan(roots, checkout, entries)
    if found.staged:
        await refuse_filtered(git, checkout, [entry.path for entry in found.staged])
        stdin = b"".join(entry.path + b"\0" for entry in found.staged)
        # Not `git add`: it would stage everything beneath a name too.
        await git.output(checkout, "update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=stdin)
    details = {"staged": len(found.staged), "left_out": len(found.denied) + len(found.nested)}
    return answer(checkout, _lines(checkout, found), details=details)


def _staging_plan(roots: Roots, checkout: Checkout, entries: Sequence[StatusEntry]) -> _StagingPlan:
    found = _StagingPlan([], {}, [])
    for entry in entries:
        if not entry.unstaged:
            continue
        reason = hidden_reason(roots, checkout, entry.path)
        if reason:
            found.denied[entry.path] = reason
        elif entry.path.endswith(b"/"):  # how git lists another repository in the work tree
            found.nested.append(entry.path)
        else:
            found.staged.append(entry)
    return found


def _lines(checkout: Checkout, found: _StagingPlan) -> list[str]:
    staged = found.staged
    lines = [f"staged {len(staged)}" if staged else "nothing to stage: unchanged, ignored or staged already"]
    lines += [f"{_letter(entry)} {quoted(path_of(checkout, entry.path))}" for entry in staged[:MAX_LISTED_LINES]]
    if len(staged) > MAX_LISTED_LINES:
        lines.append(f"[{len(staged) - MAX_LISTED_LINES} more]")
    if found.denied:
        lines.append(hidden_line(checkout, "left out", found.denied))
    if found.nested:
        lines.append(f"[left out, repositories of their own: {listed(display_paths(checkout, found.nested))}]")
    return lines


def _require_something(roots: Roots, checkout: Checkout, names: Sequence[str], entries: Sequence[StatusEntry]) -> None:
    """Refuse a name that exists neither in the work tree nor in git's list."""
    for name in names:
        if name == "." or any(is_beneath(entry.path, name) for entry in entries):
            continue
        if kind_at(roots, f"{checkout.directory.path}/{name}") is None:
            raise NotFound(f"{prefix(checkout)}{name}: no such path; name paths as git_status shows them")


async def refuse_filtered(git: Git, checkout: Checkout, names: Sequence[bytes]) -> None:
    """Refuse files that a filter should convert: without git-lfs the file itself would be stored, not a pointer."""
    stdin = b"".join(name + b"\0" for name in names)
    output = await git.output(checkout, "check-attr", "-z", "--stdin", "filter", stdin=stdin)
    wanted = {
        bytes(name): value.decode("utf-8", "replace")
        for name, _, value in read_records(output, 3)
        if value not in (b"unspecified", b"unset", b"set")
    }
    if not wanted:
        return
    known = {key.removeprefix("filter.").rpartition(".")[0] for key in await git.settings(checkout, _FILTERS)}
    known |= git.user_git.filters.keys()
    known -= checkout.grants.filters
    filtered = [name for name, driver in wanted.items() if driver in known]
    if filtered:
        drivers = ", ".join(sorted({wanted[name] for name in filtered}))
        files = listed(display_paths(checkout, filtered))
        raise GitRefused(
            f"{files}: need the filter {drivers}, and filters are not run here; "
            "nothing was changed; use git itself for these files"
        )


def _letter(entry: StatusEntry) -> str:
    if entry.in_conflict:
        return "resolved"
    return "A" if entry.letters == "??" else entry.letters[1]
