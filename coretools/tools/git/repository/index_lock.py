"""The lock of the index: waiting for it, how old it is, which process holds it, and what to do.

git creates `index.lock` before it changes the index, and refuses to while there is one: it never waits. A git that was
killed leaves it behind.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from anyio import sleep, to_thread

from coretools.process.file_users import FileUser, file_users
from coretools.process.run import Completed
from coretools.roots import directory_access
from coretools.roots.file_version import Version
from coretools.shell_words import join
from coretools.tools.git.repository.checkout import Checkout, prefix
from coretools.tools.git.repository.porcelain import encoded, quoted, single_line

NAME = "index.lock"

OLD_SECONDS = 5.0
"""Age from which a lock that no process here holds counts as left behind, and is not waited for."""

PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.35)
"""Between the attempts to get the lock: 1 s in all. An editor's status or a person's `git add` holds it for less."""

LOCKING_COMMANDS = frozenset(
    {
        *("add", "apply", "checkout", "commit", "merge", "merge-recursive", "read-tree", "reset", "restore", "rm"),
        *("switch", "update-index", "write-tree"),
    }
)
"""git commands that lock the index before they change anything. Others (rebase, cherry-pick, stash apply) lock it
several times, and may have done half of their work when they don't get it."""

_REFUSED = f"{NAME}': File exists"
"""What git says when another process has the lock."""


@dataclass(frozen=True, slots=True)
class IndexLock:
    """An existing lock."""

    path: str
    age_seconds: float
    users: tuple[FileUser, ...]

    def __str__(self) -> str:
        shown = quoted(encoded(self.path))
        age = f"{max(0, round(self.age_seconds))} s old"
        if self.users:
            user = next((user for user in self.users if user.has_it_open), self.users[0])
            doing = "holds it" if user.has_it_open else "runs in this repository"
            # A process chooses its name, and a repository that of its directory.
            return f"{shown}: {age}, process {user.pid} ({single_line(user.name)}) {doing}; wait until it has ended"
        if self.age_seconds < OLD_SECONDS:
            return f"{shown}: {age}, another git has just taken it; try again"
        nobody = "no process of this machine that can be seen holds it"
        remove = (
            f"if no other machine uses this repository, run_command {single_line(join(['rm', self.path]))} removes it"
        )
        return f"{shown}: {age}, {nobody}; a git that was stopped left it; {remove}"


def is_refused(completed: Completed) -> bool:
    """Whether git failed because another process has the lock."""
    return not completed.ok and _REFUSED in completed.stderr.text()


async def run_when_unlocked(run: Callable[[], Awaitable[Completed]], checkout: Checkout) -> Completed:
    """Run one of LOCKING_COMMANDS, and again for as long as another git has the lock, but not one left behind."""
    completed = await run()
    for seconds in PAUSES_SECONDS:
        if not is_refused(completed):
            break
        lock = directory_access.entry_version(checkout.git_handle, NAME)
        if lock is not None and _age_seconds(lock) >= OLD_SECONDS:
            break
        await sleep(seconds)
        completed = await run()
    return completed


async def index_lock(checkout: Checkout) -> IndexLock | None:
    """Return the lock of the index of a work tree; None if it is not locked. Looks through /proc if it is."""
    lock = directory_access.entry_version(checkout.git_handle, NAME)
    if lock is None:
        return None
    look = partial(file_users, lock.identity, program="git", directory=checkout.directory.path)
    users = await to_thread.run_sync(look)
    return IndexLock(_path(checkout), _age_seconds(lock), tuple(users))


def _age_seconds(lock: Version) -> float:
    return time.time() - lock.modified_ns / 1e9


def _path(checkout: Checkout) -> str:
    if checkout.git_path == f"{checkout.directory.path}/.git":
        return f"{prefix(checkout)}.git/{NAME}"
    return f"{checkout.git_path}/{NAME}"
