"""Find, count and kill the descendants of this process, however they detached themselves.

For a child subreaper, which inherits the orphans of its descendants. Reads /proc; standard library only, no threads. A
scan of a tree that changes meanwhile may miss processes that were reparented behind its back. Only
`has_no_descendants` proves that nothing is left.
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
"""Scans for processes that are not frozen yet, before those found are killed."""


def _kill_all_signalable(_tops: Callable[[], list[int]]) -> set[int]:
    """Kill everything that our signals reach. Which processes those were shows when they are reaped."""
    send_signal(-1, signal.SIGKILL)
    return set()


def _kill_found(tops: Callable[[], list[int]]) -> set[int]:
    """Kill the processes that scans find; return them.

    They are frozen first, group by group: a stopped process can't fork behind our back, and a signal to a group reaches
    every member at once, including a child that is being forked.
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
    for pid in frozen:  # a process that has not created its group yet was not reached above
        send_signal(pid, signal.SIGKILL)
    return frozen


def kill_descendants(*, spare: int | None = None, is_scoped: bool = False) -> int:
    """Kill and reap every descendant; return how many there were. `spare` is killed, but not reaped.

    `is_scoped`: our signals reach descendants only (`landlock.confine_signals`). Then one kill(-1) reaches all of them:
    the kernel completes no fork while it iterates over the processes (kill(2), fork(2)).
    """
    return kill_until_gone(own_children, spare=spare, kill=_kill_all_signalable if is_scoped else _kill_found)


def kill_until_gone(
    tops: Callable[[], list[int]],
    *,
    spare: int | None = None,
    kill: Callable[[Callable[[], list[int]]], set[int]] = _kill_found,
) -> int:
    """Kill the children that `tops` finds, and their descendants, until there are none; return how many.

    Bounded, since SIGKILL does not end every process: check `has_no_descendants` afterwards. `spare` is killed, but
    neither reaped nor counted.
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
    """All children of this process, including zombies."""
    return children(os.getpid())


def has_no_descendants(tops: Callable[[], list[int]] = own_children, *, spare: int | None = None) -> bool:
    """Whether this process has no descendant but `spare`, which has exited: a proof, unlike a scan that finds nothing.

    When a process exits its children are reparented, in the end to us (exit(3), prctl(2)), and the kernel appends them
    to our list of children. So an empty list leaves no room for a descendant. A zombie is still in the list: it may
    have passed on a child since.
    """
    return (spare is None or has_ended(spare)) and not set(tops()) - {spare}


def reap(tops: Callable[[], list[int]] = own_children, *, spare: int | None = None) -> set[int]:
    """Reap the children that have exited, except `spare`; return them."""
    reaped = set[int]()
    for pid in tops():
        if pid != spare:
            with suppress(ChildProcessError):
                reaped.add(os.waitpid(pid, os.WNOHANG)[0])
    return reaped - {0}


def descendants(pid: int, *, most: int = sys.maxsize) -> list[int]:
    """Live descendants of a process that one scan finds, at most `most`."""
    return living_in(children(pid), most=most)


def living_in(tops: Iterable[int], *, most: int = sys.maxsize) -> list[int]:
    """The live ones of these processes and of their descendants that one scan finds, at most `most`."""
    living: list[int] = []
    waiting = list(tops)
    while waiting and len(living) < most:
        one = waiting.pop()
        if not has_ended(one):
            living.append(one)
        waiting += children(one)
    return living


def children(pid: int) -> list[int]:
    """Children of all threads of a process (proc(5), `task/TID/children`)."""
    pids = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                pids += [int(word) for word in file.read().split()]
    return pids


def group_of(pid: int) -> int:
    """Process group of a descendant. Its members are all descendants: the command created a session of its own.

    For a process that has just exited this is its own number, which names no group any more.
    """
    with suppress(OSError):
        group = os.getpgid(pid)
        if group > 1 and group != os.getpgrp():
            return group
    return pid


def send_signal(pid: int, number: int) -> None:
    """Signal a process, or a group by its negative number. One that is gone is no error."""
    with suppress(OSError):
        os.kill(pid, number)
