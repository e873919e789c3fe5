"""Commit the index, under the operator's own name."""

from coretools.errors import GitRefused, InvalidArguments
from coretools.tools.repository.checkout import Checkout
from coretools.tools.repository.commands import Git, checked
from coretools.tools.repository.paths import told
from coretools.tools.repository.porcelain import line, read_status, shown
from coretools.tools.repository.results import GitText, answer, listed

MESSAGE_BYTES = 1024 * 1024
"""Longest message that is taken."""

_LOOK = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--ignore-submodules=all")
_COMMIT = ("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--no-status", "--cleanup=whitespace", "--file=-")
_TELL = ("log", "--max-count=1", "--format=%H%x00%s%x00", "--shortstat", "--no-color", "--no-mailmap", "--no-notes")

_IDENTITY = r"^(user|author|committer)\.(name|email)$"
_ROLES = ("author", "committer")


async def commit(git: Git, checkout: Checkout, message: str) -> GitText:
    """Commit what is staged.

    Raises:
        InvalidArguments: no message. GitRefused: nothing is staged, conflicts are left, or nobody's name is known.
    """
    if not message.strip() or "\0" in message or len(message.encode("utf-8", "replace")) > MESSAGE_BYTES:
        raise InvalidArguments(f"message: must have text, no NUL, and at most {MESSAGE_BYTES} bytes")
    status = read_status(await git.output(checkout, *_LOOK))
    conflicts = told(checkout, [entry.path for entry in status.entries if entry.in_conflict])
    if conflicts:
        raise GitRefused(f"conflicts are not resolved: {listed(conflicts)}; edit the files, then git_add them")
    # A merge may take our side in everything; anything else without a change is an accident.
    if not any(entry.staged for entry in status.entries) and checkout.under_way != "merge":
        raise GitRefused("nothing is staged; git_add the paths first")
    words = await _identity(git, checkout)
    checked(await git.run(checkout, *_COMMIT, options=words, stdin=message.encode()), "commit")
    name, summary, changes = (await git.output(checkout, *_TELL)).split(b"\0", 2)
    where = status.branch or "detached HEAD"
    lines = [f"committed {shown(name)[:10]} on {line(where)}: {line(shown(summary))}", shown(changes).strip()]
    return answer(checkout, lines, details={"commit": shown(name), "branch": status.branch}, hooks=True)


async def _identity(git: Git, checkout: Checkout) -> tuple[str, ...]:
    """Options that say who commits: what git itself would take from the operator's configuration here.

    Asked in the repository and not once for all, because many people include another address by directory
    (`includeIf "gitdir:~/work/"`), and the wrong one in a commit can't be taken back.
    """
    settings = await git.settings(checkout, _IDENTITY)
    for role in _ROLES:
        for part in ("name", "email"):
            is_known = settings.get(f"user.{part}") or settings.get(f"{role}.{part}")
            if not is_known and not git.identity.get(f"GIT_{role}_{part}".upper()):
                raise GitRefused(
                    f"no {part} to commit under is known; set it with `git config --global user.{part} ...`, "
                    "or for this repository alone without --global"
                )
    return tuple(word for key, value in settings.items() for word in ("-c", f"{key}={value}"))
