"""Commit the index, as the caller's token says, else the operator's settings, else his git configuration."""

import re
from dataclasses import dataclass

from coretools.errors import GitRefused, InvalidArguments
from coretools.tools.repository.checkout import Checkout
from coretools.tools.repository.commands import Git, checked
from coretools.tools.repository.paths import told
from coretools.tools.repository.porcelain import line, read_status
from coretools.tools.repository.results import GitText, answer, listed

MESSAGE_BYTES = 1024 * 1024
"""Longest message that is taken."""

_LOOK = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--ignore-submodules=all")
_COMMIT = ("commit", "--no-verify", "--no-gpg-sign", "--no-status", "--cleanup=whitespace", "--file=-")
_FULL_NAME = ("-c", "core.abbrev=no")
_SAID = re.compile(
    r"\[(?P<where>detached HEAD|\S+)(?: \(root-commit\))? (?P<commit>[0-9a-f]{40}|[0-9a-f]{64})\] (?P<summary>.*)\n"
)
_CHANGES = re.compile(r"^ (\d+ files? changed.*)$", re.MULTILINE)

_IDENTITY = r"^(user|author|committer)\.(name|email)$"
_ROLES = ("author", "committer")
_PARTS = ("name", "email")


async def commit(git: Git, checkout: Checkout, message: str) -> GitText:
    """Commit what is staged.

    Raises:
        InvalidArguments: no message. GitRefused: nothing is staged, conflicts are left, or nobody's name is known.
    """
    if not message.strip() or "\0" in message or len(message.encode("utf-8", "replace")) > MESSAGE_BYTES:
        raise InvalidArguments(f"message: must have text, no NUL, and at most {MESSAGE_BYTES} bytes")
    words = (*_FULL_NAME, *await _identity(git, checkout))
    completed = await git.run(checkout, *_COMMIT, options=words, stdin=message.encode())
    if not completed.ok:
        await _refuse(git, checkout)
    made = _made(checked(completed, "commit").stdout.text())
    where = line(made.branch) if made.branch else "detached HEAD"
    lines = [f"committed {made.commit[:10]} on {where}: {line(made.summary)}", made.changes]
    details = {"commit": made.commit, "branch": made.branch}
    return answer(checkout, lines, details=details, hooks=True)


async def _refuse(git: Git, checkout: Checkout) -> None:
    """Say what to do, where that is the reason why there is no commit.

    Raises:
        GitRefused: nothing is staged, or conflicts are left.
    """
    entries = read_status(await git.output(checkout, *_LOOK)).entries
    conflicts = told(checkout, [entry.path for entry in entries if entry.in_conflict])
    if conflicts:
        raise GitRefused(f"conflicts are not resolved: {listed(conflicts)}; edit the files, then git_add them")
    # A merge may take our side in everything; anything else without a change is an accident.
    if not any(entry.staged for entry in entries) and checkout.under_way != "merge":
        raise GitRefused("nothing is staged; git_add the paths first")


@dataclass(frozen=True, slots=True)
class _Made:
    """A commit, as git tells it."""

    branch: str
    """Empty when HEAD is detached."""
    commit: str
    summary: str
    changes: str


def _made(said: str) -> _Made:
    """What git says of a commit that it made.

    Raises:
        GitRefused: in words that are not known.
    """
    found = _SAID.match(said)
    if found is None:
        raise GitRefused("git commit: made a commit, and says so in words that are not known; see git_log")
    changes = _CHANGES.search(said, found.end())
    branch = "" if found["where"] == "detached HEAD" else found["where"]
    return _Made(branch, found["commit"], found["summary"], changes[1] if changes else "")


async def _identity(git: Git, checkout: Checkout) -> tuple[str, ...]:
    """Options that say who commits, where the settings don't: what git itself would take from the configuration here.

    Asked in the repository and not once for all, because many people include another address by directory
    (`includeIf "gitdir:~/work/"`), and the wrong one in a commit can't be taken back.
    """
    roles = [role for role in _ROLES if not _is_named(git, role)]
    if not roles:
        return ()  # git takes the environment's before any configuration
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


def _is_named(git: Git, role: str) -> bool:
    """Whether the environment says who that is."""
    return all(git.identity.get(f"GIT_{role}_{part}".upper()) for part in _PARTS)
