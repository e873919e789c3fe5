"""End a child and everything it started. One path for deadline, cancel, close and an answer that came early.

TERM to the whole process group, a grace period, KILL, reap; bounded at every step. The caller shields it.
"""

import signal
import time

import anyio
from anyio import CapacityLimiter, to_thread

from coretools.config.settings import Limits
from coretools.process.children import reaper
from coretools.process.children.child import ChildProcess
from coretools.process.children.streams import Streams

DYING_SECONDS = 0.05
"""Given to the rest of the group to end by itself once the child has. A process closes its pipes before it leaves the
group, so that after `a | b` an `a` that has written everything may still be on its way out."""


async def terminate(
    child: ChildProcess,
    streams: Streams,
    *,
    marker: bytes | None,
    must_sweep: bool,
    limits: Limits,
    proc_limiter: CapacityLimiter,
) -> int:
    """End what is left of the child's tree and reap it; how many processes outlived the child and were ended.

    The usual case, an ended child that left nothing, costs two system calls. Descendants that left the process group
    (`setsid`) are found by `marker` and killed when that is asked for or when one holds an output; that reads all of
    /proc, in a worker thread of `looks`. Without a marker they are left to somebody else.
    """
    deadline = time.monotonic() + limits.grace_seconds
    if not child.has_exited:
        await _terminate_leader(child, streams, limits)
    stragglers = 0
    # Who holds an output has had its time, `linger_seconds`, already.
    moment = 0.0 if streams.are_open else DYING_SECONDS
    if child.reap() and not await _wait_for_group(child, time.monotonic() + moment, proc_limiter):
        stragglers = await _terminate_group(child, deadline, proc_limiter)
    streams.drain_ready()
    if marker is not None and (must_sweep or streams.are_open):
        stragglers += len(await to_thread.run_sync(reaper.kill_marked, marker, limiter=proc_limiter))
    return stragglers


async def _terminate_leader(child: ChildProcess, streams: Streams, limits: Limits) -> None:
    """TERM, grace, KILL, with the outputs drained all the while: a last word must not block in a full pipe."""
    streams.stop_listening()
    child.signal_group(signal.SIGTERM)
    with anyio.move_on_after(limits.grace_seconds):
        await streams.communicate(limits.linger_seconds)
    if not child.has_exited:
        child.signal_group(signal.SIGKILL)
        with anyio.move_on_after(reaper.KILL_SECONDS):
            await streams.communicate(limits.linger_seconds)


async def _terminate_group(child: ChildProcess, deadline: float, proc_limiter: CapacityLimiter) -> int:
    """TERM until the deadline, then KILL; how many members were there."""
    members = await to_thread.run_sync(reaper.find_processes, {child.pid}, b"", limiter=proc_limiter)
    child.signal_group(signal.SIGTERM)
    if not await _wait_for_group(child, deadline, proc_limiter):
        child.signal_group(signal.SIGKILL)
        await _wait_for_group(child, time.monotonic() + reaper.KILL_SECONDS, proc_limiter)
    return len(members)


async def _wait_for_group(child: ChildProcess, deadline: float, proc_limiter: CapacityLimiter) -> bool:
    """Wait for the last member of the group to end; False at the deadline."""
    pause = reaper.FIRST_PAUSE_SECONDS
    while child.group_exists():
        # Zombies are members until somebody reaps them, and some containers have nobody who does: look closer, but not
        # at once, because a look reads all of /proc.
        is_late = pause > 2 * reaper.FIRST_PAUSE_SECONDS and reaper.can_list_processes()
        if is_late and not await to_thread.run_sync(reaper.find_processes, {child.pid}, b"", limiter=proc_limiter):
            return True
        if time.monotonic() > deadline:
            return False
        await anyio.sleep(pause)
        pause = min(2 * pause, reaper.LAST_PAUSE_SECONDS)
    return True
