"""The lock of the index: how old it is, which process holds it, and what to do.

git creates `index.lock` before it changes the index, and refuses to while there is one. A git that was killed leaves
it behind.
"""

import time
from dataclasses import dataclass
from functools import partial

from anyio import to_thread

from coretools.process.file_users import FileUser, file_users
from coretools.roots import directory_access
from coretools.shell_words import join
from coretools.tools.git.repository.checkout import Checkout, prefix
from coretools.tools.git.repository.porcelain import quoted, single_line

NAME = "index.lock"

OLD_SECONDS = 5.0
"""Age from which a lock that no process here holds counts as left behind."""


@dataclass(frozen=True, slots=True)
class IndexLock:
    """An existing lock."""

    path: str
    age_seconds: float
    users: tuple[FileUser, ...]

    def __str__(self) -> str:
        shown = quoted(self.path.encode("utf-8", "surrogateescape"))
        age = f"{max(0, round(self.age_seconds))} s old"
        if self.users:
            user = next((user for user in self.users if user.has_it_open), self.users[0])
            doing = "holds it" if user.has_it_open else "runs in this repository"
            # A process chooses its name, and a repository that of its directory.
            return f"{shown}: {age}, process {user.pid} ({single_line(user.name)}) {doing}; wait until it has ended"
        nobody = "no process of this machine that can be seen holds it"
        if self.age_seconds < OLD_SECONDS:
            return f"{shown}: {age}, {nobody}; try again"
        remove = (
            f"if no other machine uses this repository, run_command {single_line(join(['rm', self.path]))} removes it"
        )
        return f"{shown}: {age}, {nobody}; a git that was stopped left it; {remove}"


async def index_lock(checkout: Checkout) -> IndexLock | None:
    """Return the lock of the index of a work tree; None if it is not locked. Looks through /proc if it is."""
    found = directory_access.entry_version(checkout.git_handle, NAME)
    if found is None:
        return None
    look = partial(file_users, found.identity, program="git", directory=checkout.directory.path)
    users = await to_thread.run_sync(look)
    age = time.time() - found.modified_ns / 1e9
    return IndexLock(_path(checkout), age, tuple(users))


def _path(checkout: Checkout) -> str:
    if checkout.git_path == f"{checkout.directory.path}/.git":
        return f"{prefix(checkout)}.git/{NAME}"
    return f"{checkout.git_path}/{NAME}"
