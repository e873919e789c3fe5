"""Process trees made of real children, and waits for the files and exits of other processes."""

import os
import platform
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

import anyio

from coretools.confinement.inotify import InotifyWatches
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import Directory, RootSpec
from coretools.roots.root_set import Roots

PATIENCE_SECONDS = 60.0
"""Bound of every wait; generous, because a busy machine is no failure."""


def opened(folder: str) -> Directory:
    """A working directory for a run. It and its root stay open until the process exits."""
    return open_directory(Roots([RootSpec(folder)], deny=DenyRules(())), ".")


async def until(condition: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Evaluate a condition until it holds. Only for a state whose change causes no event that a test can wait for."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.lowlevel.checkpoint()
            os.sched_yield()


_FILE_EVENTS = 0x2 | 0x80 | 0x100 | 0x200
"""IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE."""


async def until_files(folder: Path, condition: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition on the files of a directory holds; it is evaluated after each change (inotify)."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with closing(InotifyWatches()) as watches, anyio.fail_after(seconds):
            watches.add(directory, events=_FILE_EVENTS)
            while not condition():
                await anyio.wait_readable(watches.fileno())
                watches.names()
    finally:
        os.close(directory)


async def until_exists(path: Path) -> None:
    """Wait until a file is created, or moved to its name."""
    await until_files(path.parent, path.exists)


async def until_exited(find: Callable[[], Iterable[int]]) -> None:
    """Wait for the exit of every process that `find` returns (pidfd), and call it again, until it returns none."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while pids := list(find()):
            for pid in pids:
                try:
                    handle = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                try:
                    await anyio.wait_readable(handle)
                finally:
                    os.close(handle)


def alive(*pids: int) -> Callable[[], list[int]]:
    """For `until_exited`: those of the processes that are alive."""
    return lambda: [pid for pid in pids if is_alive(pid)]


def is_alive(pid: int) -> bool:
    """Whether a thread of the process runs. A zombie has none, although /proc counts one for it (proc(5),
    num_threads)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X") or int(fields[17]) > 1


def children_of(parent: int) -> set[int]:
    """The children of a process, with those that it has not reaped."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1]) == parent:
                found.add(int(name))
    return found


def carriers(marker: str) -> list[int]:
    """Live processes whose environment contains the text."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in environment and int(name) != os.getpid():
            found.append(int(name))
    return found


TREE = """
echo $CORETOOLS_PROCESS_MARKER > marker
echo $$ >> pids
sleep 1000 & echo $! >> pids
nohup sleep 1000 > /dev/null 2>&1 & echo $! >> pids
sh -c 'trap "" TERM INT HUP; echo $$ >> pids; while :; do sleep 1000; done' &
env -i sh -c 'echo $$ >> pids; exec sleep 1000' &
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
(setsid sh -c 'echo $$ >> pids; exec sleep 1000' > /dev/null 2>&1 &)
wait
"""
"""Children of every kind that a killed parent leaves behind: in the background, ignoring HUP, ignoring TERM,
without the marker variable, in a session of its own, forked twice."""

TREE_SIZE = 7


HEADLESS = f"""
import ctypes, os, signal, threading, time
if os.fork():
    signal.pause()
os.setsid()
print(os.getpid(), flush=True)
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).syscall({93 if platform.machine() == "aarch64" else 60}, 0)
"""
"""Python with a child whose first thread has exited while another one runs, so that /proc shows it as a zombie: exit(2)
ends a thread, not its process."""


class Tree:
    """The processes that `TREE` started in a directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pids(self) -> list[int]:
        file = self._folder / "pids"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    async def until_complete(self) -> None:
        """Wait until every process of the tree runs."""
        await until_files(self._folder, self.is_complete)

    def is_complete(self) -> bool:
        return len(self.pids()) == TREE_SIZE and all(map(is_alive, self.pids()))

    def remaining(self) -> list[int]:
        """The pids that are still alive, and all processes that carry the run's marker."""
        marker = (self._folder / "marker").read_text().strip()
        assert marker
        return [pid for pid in self.pids() if is_alive(pid)] + carriers(f"CORETOOLS_PROCESS_MARKER={marker}")
