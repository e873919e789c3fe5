"""What the tests of processes stand on: trees of real children and a count of who survived."""

import os
import platform
from collections.abc import Callable
from pathlib import Path

import anyio

from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import Directory, open_directory
from coretools.roots.root_set import Roots, RootSpec

PATIENCE_SECONDS = 20.0
"""Bound of every wait for a condition; generous, because a busy machine is no failure."""


def opened(folder: str) -> Directory:
    """A working directory for a run. It and its root stay open to the end of the process."""
    return open_directory(Roots([RootSpec(folder)], deny=DenyRules(())), ".")


async def until(condition: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that other processes bring about."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  # other processes set no event of ours
            await anyio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Whether a thread of the process runs; a zombie has none, and shows one all the same (proc(5), num_threads)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X") or int(fields[17]) > 1


def carriers(marker: str) -> list[int]:
    """Processes alive whose environment holds the text."""
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
echo $CORETOOLS_RUN_ID > marker
echo $$ >> pids
sleep 1000 & echo $! >> pids
nohup sleep 1000 > /dev/null 2>&1 & echo $! >> pids
sh -c 'trap "" TERM INT HUP; echo $$ >> pids; while :; do sleep 1000; done' &
env -i sh -c 'echo $$ >> pids; exec sleep 1000' &
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
(setsid sh -c 'echo $$ >> pids; exec sleep 1000' > /dev/null 2>&1 &)
wait
"""
"""A child of every kind that a killed parent leaves behind: in the background, deaf to HUP, deaf to TERM, without its
environment, in a session of its own, forked twice."""

TREE_SIZE = 7


HEADLESS = f"""
import ctypes, os, threading, time
if os.fork():
    time.sleep(1000)
os.setsid()
print(os.getpid(), flush=True)
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).syscall({93 if platform.machine() == "aarch64" else 60}, 0)
"""
"""Python whose child is a process without its first thread, which /proc shows as a zombie, while another one goes on:
exit(2) ends a thread and not its process."""


class Tree:
    """The processes that `TREE` started in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pids(self) -> list[int]:
        file = self._folder / "pids"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def is_complete(self) -> bool:
        return len(self.pids()) == TREE_SIZE and all(map(is_alive, self.pids()))

    def remaining(self) -> list[int]:
        """Those that are still alive, and whatever else carries the run's marker."""
        marker = (self._folder / "marker").read_text().strip()
        assert marker
        return [pid for pid in self.pids() if is_alive(pid)] + carriers(f"CORETOOLS_RUN_ID={marker}")
