"""Let one change of a work tree run at a time, among all coretools servers of the machine (docs/adr/0050).

A change takes several git processes, and git locks the index and HEAD only for each of them. The lock is on the open
git directory of the work tree itself: it leaves nothing there, and ends with the handle, also by `kill -9`.
"""

from collections.abc import Awaitable, Callable

from anyio import current_time, sleep, to_thread

from coretools.errors import Busy
from coretools.process.file_users import lock_holder
from coretools.roots import directory_access
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.git_directory import GitDirectory
from coretools.tools.git.repository.porcelain import single_line

WAIT_SECONDS = 10.0
"""Longest wait for other changes of the same work tree. Most take less than a second; a hook may take minutes."""

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5
"""Between the attempts to get the lock, growing: each opens the repository again."""


class WorkTreeLocked(Busy):
    """Another change of the work tree is running."""

    def __init__(self, display_path: str, identity: tuple[int, int]) -> None:
        super().__init__(f"{display_path}: another change of this work tree is running")
        self.display_path = display_path
        self.identity = identity
        """Device and inode of the git directory."""

    def explained(self) -> Busy:
        """Return the error for a caller, with the process that runs the change. Looks through /proc."""
        holder = lock_holder(self.identity)
        by = f"process {holder.pid} ({single_line(holder.name)})" if holder else "another coretools server"
        return Busy(
            f"{self.display_path}: another change of this work tree has not ended within {WAIT_SECONDS:g} s; {by} runs"
            " it; nothing was changed in the work tree; try again when that has ended"
        )


def lock_work_tree(own: GitDirectory, display_path: str) -> None:
    """Lock a work tree, until the handle of its git directory is closed.

    Raises:
        WorkTreeLocked: another change of it is running, in this server or another one.
    """
    if directory_access.lock(own.handle):
        return
    version = directory_access.entry_version(own.handle, ".")
    raise WorkTreeLocked(display_path, version.identity if version else (0, 0))


async def open_when_unlocked(open_checkout: Callable[[], Awaitable[Checkout]]) -> Checkout:
    """Open a checkout for a change, as soon as no other change of its work tree runs.

    Each attempt examines the repository anew: the other change may have left it in another state.

    Raises:
        Busy: another one has not ended in time.
    """
    deadline = current_time() + WAIT_SECONDS
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await open_checkout()
        except WorkTreeLocked as error:
            if current_time() >= deadline:
                raise await to_thread.run_sync(error.explained) from error
            await sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
