"""The processes beneath this one: found, counted and ended, however they detached themselves.

For a process that is child subreaper: whatever its descendants leave behind comes back to it. Reads /proc; standard
library only, no threads. A look at a tree that changes meanwhile may miss a part of it: what was handed over behind the
look's back. That nothing is left is therefore known in one way only, `is_alone`.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from coretools.process.children.reaper import FIRST_PAUSE_SECONDS, KILL_ROUND_SECONDS, LAST_PAUSE_SECONDS, has_ended

_FREEZE_ROUNDS = 20
"""Looks for what is not frozen yet, until what was found is killed all the same."""


def _kill_all_signalable(_tops: Callable[[], list[int]]) -> set[int]:
    """KILL all that our signals reach. Whom, shows when they are reaped: a look would be too late for some."""
    send_signal(-1, signal.SIGKILL)
    return set()


def _kill_found(tops: Callable[[], list[int]]) -> set[int]:
    """KILL what is found; what was found.

    Frozen first, group by group: what stands still can't fork behind our back, and the signal to a group reaches every
    member at once, a child that is being forked too.
    """
    frozen, groups = set[int](), set[int]()
    for _ in range(_FREEZE_ROUNDS):
        fresh = [pid for pid in living_in(tops()) if pid not in frozen]
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
    return frozen


def kill_descendants(*, spare: int | None = None, is_scoped: bool = False) -> int:
    """KILL every descendant of this process and reap it; how many there were. `spare` is killed, not reaped.

    `is_held`: our signals reach nobody else (`landlock.confine_signals`). All are then killed at once: the kernel lets
    no fork come to its end while it goes through the processes (kill(2), fork(2)).
    """
    return kill_until_gone(own_children, spare=spare, kill=_kill_all_signalable if is_scoped else _kill_found)


def kill_until_gone(
    tops: Callable[[], list[int]],
    *,
    spare: int | None = None,
    kill: Callable[[Callable[[], list[int]]], set[int]] = _kill_found,
) -> int:
    """KILL those of the children of this process that `tops` finds, and all beneath, until there are none; how many.

    Bounded, for what even KILL does not end: `is_alone` tells. `spare` is killed, but neither reaped nor counted.
    """
    ended = set[int]()
    deadline = time.monotonic() + KILL_ROUND_SECONDS
    pause = FIRST_PAUSE_SECONDS
    while True:
        ended |= kill(tops)
        ended |= reap(tops, spare=spare)
        if has_no_descendants(tops, spare=spare) or time.monotonic() > deadline:
            return len(ended - {spare})
        select.select([], [], [], pause)
        pause = min(2 * pause, LAST_PAUSE_SECONDS)


def own_children() -> list[int]:
    """All children of this process, those that wait to be reaped too."""
    return children(os.getpid())


def has_no_descendants(tops: Callable[[], list[int]] = own_children, *, spare: int | None = None) -> bool:
    """Whether nothing is beneath this process but `spare`, which has ended: a proof, unlike a look that finds nothing.

    A process hands its children on, to us in the end, at the moment of its own end (exit(3), prctl(2)), and the kernel
    adds them behind those whom we have. So a list of our own that is empty leaves no place for anybody. What has ended
    and was not reaped is in the list: it may have handed on a child since.
    """
    return (spare is None or has_ended(spare)) and not set(tops()) - {spare}


def reap(tops: Callable[[], list[int]] = own_children, *, spare: int | None = None) -> set[int]:
    """Take the ends of children that have ended, but for `spare`; whose."""
    reaped = set[int]()
    for pid in tops():
        if pid != spare:
            with suppress(ChildProcessError):
                reaped.add(os.waitpid(pid, os.WNOHANG)[0])
    return reaped - {0}


def descendants(pid: int, *, most: int = sys.maxsize) -> list[int]:
    """Living processes beneath this one that one look finds, or so many of them."""
    return living_in(children(pid), most=most)


def living_in(tops: Iterable[int], *, most: int = sys.maxsize) -> list[int]:
    """Those of the processes that live, and whatever lives beneath any of them, as one look finds them."""
    found: list[int] = []
    waiting = list(tops)
    while waiting and len(found) < most:
        one = waiting.pop()
        if not has_ended(one):
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
