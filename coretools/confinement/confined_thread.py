"""Short children of a known shape, held by the kernel: each is started by a thread that has restricted itself.

What a thread gives up (privileges, files by Landlock, system calls by seccomp) its children have given up too, and
nothing has to run between fork and exec. There is no way back, so such a thread does nothing else. It is kept for the
next child of the same rules: to make it takes 0.5 ms, to wake it 0.06 ms (docs/adr/0010).

No parent-death signal here: it fires when the *thread* that started the child ends, as that of a forgotten domain does.
"""

import _thread
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

from coretools.confinement import landlock, seccomp, syscalls
from coretools.confinement.landlock import Rule
from coretools.errors import Busy, CannotStart, InputOutput

POOL_SIZE = 32
"""Domains that are kept for a next call, each with one thread that sleeps."""

T = TypeVar("T")

_Key = tuple[tuple[int, int, int], ...]
"""Device, inode and rights, for each rule. The rules in force hold their inodes, so a number can't come to mean another
file as long as its domain is kept."""


class ConfinedThread:
    """Files that children may touch; no socket, no privilege but one (`_entered`), no child of their own.

    Ends when nobody holds it.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Make the rules and the thread that is held to them.

        Raises:
            InputOutput: no Landlock here, or no descriptor left. Busy: no room for another thread.
        """
        self._lock = threading.Lock()
        self._is_closed = True
        self._open_jobs = 0
        self._jobs: SimpleQueue[_WorkItem[Any] | None] = SimpleQueue()
        self._thread = _ProcessorAffinity()
        try:
            ruleset = landlock.ruleset(rules, tcp=False)
        except OSError as error:
            raise InputOutput(f"no rules for a child can be made now ({error.strerror}); try again later") from error
        try:
            _thread.start_new_thread(_run_work_items, (self._jobs, ruleset, self._thread))
        except RuntimeError as error:
            os.close(ruleset)
            raise Busy("the system has no room for another thread now; try again later") from error
        self._is_closed = False

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, once it has done what it was given; again is harmless."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._jobs.put(None)

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, done inside the domain. Blocks until then.

        `work` must import nothing: a folder of modules that it may not list is remembered as empty by every thread. A
        child must be started by vfork, as `subprocess` does.

        Raises:
            CannotStart: the kernel does not let the thread in, or the domain is closed.
        """
        job = _WorkItem(work)
        with self._lock:
            if self._is_closed:
                raise CannotStart("the server is ending and starts nothing any more")
            if self._open_jobs == 0:  # one that works keeps its processors, for the child that it may just start
                self._thread.wake_here()
            self._open_jobs += 1
            self._jobs.put(job)
        try:
            return job.result()
        finally:
            with self._lock:
                self._open_jobs -= 1


class ConfinedThreadPool:
    """Makes domains, and keeps those that the same rules will ask for again. `close` ends their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, ConfinedThread] = OrderedDict()
        self._is_possible: bool | None = None

    @property
    def is_possible(self) -> bool:
        """Whether the kernel holds children to domains here. Found out by entering one, once (0.5 ms).

        Raises:
            InputOutput, Busy: it can't be found out now.
        """
        if self._is_possible is None:
            self._is_possible = landlock.abi() >= landlock.ABI_REQUIRED and _can_confine()
        return self._is_possible

    def of(self, rules: Sequence[Rule], *, system: tuple[Rule, ...] = ()) -> ConfinedThread:
        """The domain with these rules, and those of the system for a program, itself first. Handles may be closed then.

        Raises:
            InputOutput: no Landlock here, or no descriptor left. Busy: no room for another thread.
        """
        key = (*_rules_key(system), *_rules_key(rules))
        with self._lock:
            domain = self._known.get(key)
            if domain is None:
                domain = self._known[key] = ConfinedThread((*system, *rules))
                if len(self._known) > POOL_SIZE:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(key)
            return domain

    def close(self) -> None:
        """End every domain that is kept; nothing can be started in one of them afterwards."""
        with self._lock:
            while self._known:
                self._known.popitem()[1].close()


class _ProcessorAffinity:
    """Has a thread that sleeps wake on the processor of the one that then waits for it.

    That processor is free and its caches are warm; left to the kernel the thread wakes on another one, where a start of
    a child takes 0.2 ms longer (docs/adr/0010). Once awake it may run anywhere again, as may its children.
    """

    def __init__(self) -> None:
        self._number: int | None = None

    def begin(self) -> None:
        """Called by the thread itself: whose it is, unless it is not let choose its processors."""
        if _set_affinity(_allowed_processors()):
            self._number = _thread.get_native_id()

    def wake_here(self) -> None:
        """Called by the thread that is going to wait."""
        if self._number is not None:
            with suppress(OSError):
                os.sched_setaffinity(self._number, (syscalls.current_processor(),))


class _WorkItem(Generic[T]):
    """One piece of work, between the thread that wants it done and the one that does it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._processors = _allowed_processors()
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Whatever went wrong belongs to the thread that waits."""
        self._error = error
        self._done.release()
        return True

    def do(self, refusal: CannotStart | None) -> None:
        """Do the work, unless the thread is not where it has to be done."""
        _set_affinity(self._processors)
        with self:
            if refusal is not None:
                raise refusal
            self._made.append(self._work())

    def result(self) -> T:
        """What was made or raised; blocks until then."""
        self._done.acquire()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback holds this frame
        return self._made[0]


def _run_work_items(jobs: "SimpleQueue[_WorkItem[Any] | None]", ruleset: int, thread: _ProcessorAffinity) -> None:
    """Enter the domain for good, then do what is asked. Knows nothing of the `Domain`, which could never end then."""
    refusal = _confine_current_thread(ruleset)
    thread.begin()
    while (job := jobs.get()) is not None:
        job.do(refusal)
        del job  # and what was made with it


def _confine_current_thread(ruleset: int) -> CannotStart | None:
    """Hold this thread to the rules, and to a filter without sockets and forks; why not, where that fails."""
    try:
        # A server that is root works in repositories of other users; what it may touch there the rules say.
        syscalls.drop_privileges(keep=syscalls.CAP_DAC_OVERRIDE)
        landlock.restrict_thread(ruleset)
        seccomp.install(seccomp.command_filter(frozenset(), forks=False))
    except OSError as error:
        return CannotStart(f"the kernel does not hold a thread to its rules here: {error.strerror}")
    finally:
        os.close(ruleset)
    return None


def _allowed_processors() -> frozenset[int]:
    """Those that the calling thread may run on; none where that is not told."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return frozenset()


def _set_affinity(processors: frozenset[int]) -> bool:
    """Let the calling thread run on these; whether that worked."""
    try:
        os.sched_setaffinity(0, processors)
    except (AttributeError, OSError, ValueError):
        return False
    return True


def _can_confine() -> bool:
    try:
        return ConfinedThread(()).run(lambda: True)
    except CannotStart:  # and nothing else: what is short for the moment must not open the doors for good
        return False


def _rules_key(rules: Sequence[Rule]) -> _Key:
    found = []
    for where, rights in rules:
        try:
            status = os.stat(where)
        except OSError:  # not there, and so left out of the rules
            continue
        found.append((status.st_dev, status.st_ino, rights))
    return tuple(found)
