"""How a process tree is terminated: one policy for deadlines, cancellation, shutdown and early answers.

TERM to the whole tree, a grace period, KILL, and the last resort of the backend; every step is bounded by a constant of
`reaper`. There are two backends: `ProcessGroup` here, for programs that the server starts itself, and
`SupervisedProcess`, for commands of the fork server. The caller shields the policy from cancellation.
"""

import signal
import time
from typing import Protocol

import anyio
from anyio import CapacityLimiter, to_thread

from coretools.config.limits import Limits
from coretools.process.children import reaper
from coretools.process.children.spawn import ChildProcess
from coretools.process.children.streams import Streams


class ProcessTree(Protocol):
    """A program and everything it started, as far as a backend can see and signal it."""

    @property
    def has_exited(self) -> bool:
        """Whether the program itself has exited."""
        ...

    async def signal(self, number: int) -> None:
        """Send SIGTERM or SIGKILL to every process of the tree."""
        ...

    async def wait_empty(self, seconds: float) -> bool:
        """Wait until no process of the tree is left; False after `seconds`."""
        ...

    async def force(self) -> None:
        """Do what is left to do for a tree that outlasts SIGKILL. Bounded."""
        ...

    async def finish(self) -> int:
        """End the bookkeeping; return how many processes outlived the program and were stopped."""
        ...


async def terminate(tree: ProcessTree, streams: Streams, limits: Limits) -> int:
    """Stop what is left of a tree; return how many processes outlived the program and were stopped.

    The usual case, a program that has exited and left nothing, costs no signal and no wait.
    """
    deadline = time.monotonic() + limits.grace_seconds
    if not tree.has_exited:
        # The outputs are drained all the while: a last message must not block in a full pipe.
        streams.stop_listening()
        await tree.signal(signal.SIGTERM)
        with anyio.move_on_after(limits.grace_seconds):
            await streams.communicate(limits.linger_seconds)
    if tree.has_exited:
        # A process that holds an output open has had its time, `linger_seconds`, already.
        seconds = 0.0 if streams.are_open else reaper.DYING_SECONDS
        is_empty = await tree.wait_empty(seconds)
        if not is_empty:
            await tree.signal(signal.SIGTERM)
            is_empty = await tree.wait_empty(deadline - time.monotonic())
    else:
        is_empty = False
    if not is_empty:
        await tree.signal(signal.SIGKILL)
        if not await tree.wait_empty(reaper.KILL_SECONDS):
            await tree.force()
    streams.drain_ready()
    stopped = await tree.finish()
    streams.drain_ready()
    return stopped


class ProcessGroup:
    """Backend for a child that leads a process group.

    Descendants that left the group (`setsid`) are found by the marker in their environment, which reads all of /proc in
    a worker thread. Without a marker they are left to somebody else.
    """

    def __init__(
        self,
        child: ChildProcess,
        streams: Streams,
        *,
        marker: bytes | None,
        must_sweep: bool,
        proc_limiter: CapacityLimiter,
    ) -> None:
        """`must_sweep`: look for descendants outside the group even if no output is open."""
        self._child = child
        self._streams = streams
        self._marker = marker
        self._must_sweep = must_sweep
        self._proc_limiter = proc_limiter
        self._stopped = 0

    @property
    def has_exited(self) -> bool:
        """Whether the child itself has exited."""
        return self._child.has_exited

    async def signal(self, number: int) -> None:
        """Signal the group; members that are left when the child has exited are counted."""
        if self.has_exited and number == signal.SIGTERM:
            self._stopped = len(await self._members())
        self._child.signal_group(number)

    async def wait_empty(self, seconds: float) -> bool:
        """Wait for the exit of the child and of the last member of its group; False after `seconds`."""
        deadline = time.monotonic() + seconds
        if not self._child.reap():
            with anyio.move_on_after(max(0.0, seconds)):
                await self._child.wait()
            if not self._child.reap():
                return False
        pause = reaper.FIRST_PAUSE_SECONDS
        while self._child.group_exists():
            # Zombies are members until somebody reaps them, and some containers have nobody who does. Listing /proc
            # tells them apart, but costs too much for the first tries.
            is_late = pause > 2 * reaper.FIRST_PAUSE_SECONDS and reaper.can_list_processes()
            if is_late and not await self._members():
                return True
            if time.monotonic() > deadline:
                return False
            await anyio.sleep(pause)
            pause = min(2 * pause, reaper.LAST_PAUSE_SECONDS)
        return True

    async def force(self) -> None:
        """Nothing is stronger than SIGKILL here: what outlasts it is stuck in the kernel."""

    async def finish(self) -> int:
        """Kill descendants outside the group if one may exist; return how many processes were stopped in all."""
        if self._marker is not None and (self._must_sweep or self._streams.are_open):
            marked = await to_thread.run_sync(reaper.kill_marked, self._marker, limiter=self._proc_limiter)
            self._stopped += len(marked)
        return self._stopped

    async def _members(self) -> set[int]:
        return await to_thread.run_sync(reaper.find_processes, {self._child.pid}, b"", limiter=self._proc_limiter)
