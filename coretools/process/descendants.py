"""The processes beneath this one: found, counted and ended, however they detached themselves.

For a process that is child subreaper: whatever its descendants leave behind comes back to it. Reads /proc; standard
library only, no threads.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

_END_SECONDS = 1.0
"""Given to freezing and killing a tree; it takes a few milliseconds unless the tree multiplies meanwhile."""
_FREEZE_LOOKS = 20
"""Looks for what is not frozen yet, until what was found is killed all the same."""
_PAUSE_SECONDS = 0.001


def end_descendants(*, spare: int | None = None) -> int:
    """KILL every descendant of this process and reap it; how many there were. `spare` is killed, not reaped."""
    mine = os.getpid()
    return end(lambda: descendants(mine), spare=spare)


def end(living: Callable[[], list[int]], *, spare: int | None = None) -> int:
    """KILL what `living` finds, until it finds nothing; how many there were, `spare` not counted.

    Frozen first, group by group: what stands still can't fork behind our back, and the signal to a group reaches every
    member at once, a child that is being forked too. Bounded, for what even KILL does not end.
    """
    ended = set[int]()
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        frozen, groups = set[int](), set[int]()
        for _ in range(_FREEZE_LOOKS):
            fresh = [pid for pid in living() if pid not in frozen]
            if not fresh:
                break
            for group in {group_of(pid) for pid in fresh} - groups:
                send_signal(-group, signal.SIGSTOP)
                groups.add(group)
            frozen.update(fresh)
        for group in groups:
            send_signal(-group, signal.SIGKILL)
        for pid in frozen:  # one that has not begun a group yet was reached by none
            send_signal(pid, signal.SIGKILL)
        ended |= frozen
        reap(spare=spare)
        if not frozen - {spare}:
            break
        select.select([], [], [], _PAUSE_SECONDS)
    return len(ended - {spare})


def reap(*, spare: int | None = None) -> None:
    """Take the ends of all children that have ended, but for `spare`."""
    for pid in children(os.getpid()):
        if pid != spare:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def descendants(pid: int, *, most: int = sys.maxsize) -> list[int]:
    """Every living process beneath this one, or so many of them."""
    found: list[int] = []
    waiting = children(pid)
    while waiting and len(found) < most:
        one = waiting.pop()
        if not is_dead(one):
            found.append(one)
        waiting += children(one)
    return found


def children(pid: int) -> list[int]:
    """Children of a process, of all its threads (proc(5), `task/TID/children`)."""
    found = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += [int(word) for word in file.read().split()]
    return found


def is_dead(pid: int) -> bool:
    """Whether a process has ended: gone, or waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X", b"")
    except OSError:
        return True


def group_of(pid: int) -> int:
    """Process group of a descendant. All of its members are descendants: the command began a session of its own.

    One that has just ended stands for itself: its number, as that of a group, means nothing any more.
    """
    with suppress(OSError):
        group = os.getpgid(pid)
        if group > 1 and group != os.getpgrp():
            return group
    return pid


def send_signal(pid: int, number: int) -> None:
    """Signal a process, or a group by its negative number; one that is gone is no error."""
    with suppress(OSError):
        os.kill(pid, number)
