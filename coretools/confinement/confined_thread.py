"""Start short-lived programs under kernel confinement, from threads that have restricted themselves.

A thread gives up privileges, files (Landlock) and system calls (seccomp); its children inherit all of that, so no code
has to run between fork and exec. A thread cannot undo this, so it does no other work. It is kept for the next child
with the same rules: creating one takes 0.5 ms, waking one 0.06 ms (docs/adr/0008).

A child gets no parent-death signal: the kernel sends it when the *thread* that started the child ends, and a thread
that drops out of the pool ends while its children may still run.
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
from coretools.confinement.landlock import EntryGrants, Rule
from coretools.errors import Busy, CannotStart, InputOutput

POOL_SIZE = 32
"""Confined threads that are kept for later calls. Each of them sleeps."""

_NETWORK = frozenset({seccomp.UNIX, seccomp.INET, seccomp.INET6, seccomp.NETLINK})

T = TypeVar("T")

_Key = tuple[tuple[int, int, int], ...]
"""Whether it may fork, and open sockets of files; then device, inode and rights of each rule. A Landlock ruleset holds
its inodes, so an inode number cannot be reused while the confined thread is kept."""


class ConfinedThread:
    """A thread restricted to some files. Its children have at most one capability, and usually open no socket.

    The thread ends when this object is closed or no longer referenced.
    """

    def __init__(
        self,
        rules: Sequence[Rule | EntryGrants],
        *,
        forks: bool = False,
        unix_sockets: bool = False,
        network: bool = False,
    ) -> None:
        """Create the ruleset and start the thread.

        Only with `forks` can its children start processes, only with `unix_sockets` use sockets of files, and only with
        `network` those and the network.

        Raises:
            InputOutput: Landlock is unavailable, or no descriptor is left. Busy: no thread can be started now.
        """
        self._lock = threading.Lock()
        self._is_closed = True
        self._unfinished = 0
        self._work_items: SimpleQueue[_WorkItem[Any] | None] = SimpleQueue()
        self._affinity = _ProcessorAffinity()
        try:
            ruleset = landlock.ruleset(rules, tcp=network)
        except OSError as error:
            raise InputOutput(f"cannot create a Landlock ruleset now ({error.strerror}); try again later") from error
        families = _NETWORK if network else frozenset({seccomp.UNIX} if unix_sockets else ())
        try:
            _thread.start_new_thread(_run_work_items, (self._work_items, ruleset, forks, families, self._affinity))
        except RuntimeError as error:
            os.close(ruleset)
            raise Busy("the system cannot start another thread now; try again later") from error
        self._is_closed = False

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the thread after its current work. Can be called again."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._work_items.put(None)

    def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the confined thread; return what it returns or raise what it raises. Blocks until then.

        `work` must import nothing: Python caches a directory that the thread may not list as empty, for all threads. It
        must start children by vfork, as `subprocess` does.

        Raises:
            CannotStart: the kernel refused to confine the thread, or the thread was closed.
        """
        item = _WorkItem(work)
        with self._lock:
            if self._is_closed:
                raise CannotStart("the server is shutting down and starts no more programs")
            if self._unfinished == 0:  # a busy thread keeps its affinity, which the child it may be starting inherits
                self._affinity.move_to_current_processor()
            self._unfinished += 1
            self._work_items.put(item)
        try:
            return item.result()
        finally:
            with self._lock:
                self._unfinished -= 1


class ConfinedThreadPool:
    """Creates confined threads and keeps those that later calls can reuse. `close` ends them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: OrderedDict[_Key, ConfinedThread] = OrderedDict()
        self._is_possible: bool | None = None

    @property
    def is_possible(self) -> bool:
        """Whether the kernel can confine threads here. Tried once (0.5 ms).

        Raises:
            InputOutput, Busy: it cannot be tried now.
        """
        if self._is_possible is None:
            self._is_possible = landlock.abi() >= landlock.ABI_REQUIRED and _can_confine()
        return self._is_possible

    def get(
        self,
        rules: Sequence[Rule],
        *,
        system: tuple[Rule, ...] = (),
        forks: bool = False,
        unix_sockets: bool = False,
    ) -> ConfinedThread:
        """Return the thread for these rules and those of the program in `system`. Its handles may be closed afterwards.

        Only with `forks` can its children start processes, and only with `unix_sockets` use sockets of files.

        Raises:
            InputOutput: Landlock is unavailable, or no descriptor is left. Busy: no thread can be started now.
        """
        key = ((int(forks), int(unix_sockets), 0), *_rules_key(system), *_rules_key(rules))
        with self._lock:
            thread = self._threads.get(key)
            if thread is None:
                thread = self._threads[key] = ConfinedThread((*system, *rules), forks=forks, unix_sockets=unix_sockets)
                if len(self._threads) > POOL_SIZE:
                    self._threads.popitem(last=False)
            else:
                self._threads.move_to_end(key)
            return thread

    def close(self) -> None:
        """End all pooled threads. They start nothing afterwards."""
        with self._lock:
            while self._threads:
                self._threads.popitem()[1].close()


class _ProcessorAffinity:
    """Wakes a sleeping thread on the processor of the thread that then waits for it.

    That processor is idle and its caches are warm. The kernel alone would wake it on another one, where starting a
    child takes 0.2 ms longer (docs/adr/0008). Once awake, the thread and its children may run anywhere again.
    """

    def __init__(self) -> None:
        self._thread_id: int | None = None

    def begin(self) -> None:
        """Register the calling thread, if it may choose its processors."""
        if _set_affinity(_allowed_processors()):
            self._thread_id = _thread.get_native_id()

    def move_to_current_processor(self) -> None:
        """Move the sleeping thread here. Called by the thread that is going to wait."""
        if self._thread_id is not None:
            with suppress(OSError):
                os.sched_setaffinity(self._thread_id, (syscalls.current_processor(),))


class _WorkItem(Generic[T]):
    """A piece of work, between the thread that wants it and the one that does it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._processors = _allowed_processors()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Keep every exception for the thread that waits."""
        self._error = error
        self._done.release()
        return True

    def do(self, refusal: CannotStart | None) -> None:
        """Do the work, or fail with `refusal` when the thread could not be confined."""
        _set_affinity(self._processors)
        with self:
            if refusal is not None:
                raise refusal
            self._result.append(self._work())

    def result(self) -> T:
        """Return or raise the outcome. Blocks until there is one."""
        self._done.acquire()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback references this frame
        return self._result[0]


def _run_work_items(
    work_items: "SimpleQueue[_WorkItem[Any] | None]",
    ruleset: int,
    forks: bool,
    families: frozenset[int],
    affinity: _ProcessorAffinity,
) -> None:
    """Confine the calling thread for good, then do the work. References no `ConfinedThread`, which could never end."""
    refusal = _confine_current_thread(ruleset, forks=forks, families=families)
    affinity.begin()
    while (item := work_items.get()) is not None:
        item.do(refusal)
        del item  # and its result


def _confine_current_thread(ruleset: int, *, forks: bool, families: frozenset[int]) -> CannotStart | None:
    """Apply the ruleset and a filter that refuses sockets of other families and, unless `forks`, forks.

    Return the error on failure.
    """
    try:
        # A server that runs as root works in repositories of other users; the ruleset says what it may touch there.
        syscalls.drop_privileges(keep=syscalls.CAP_DAC_OVERRIDE)
        landlock.restrict_thread(ruleset)
        seccomp.install(seccomp.command_filter(families, forks=forks))
    except OSError as error:
        return CannotStart(f"the kernel refused to confine a thread: {error.strerror}")
    finally:
        os.close(ruleset)
    return None


def _allowed_processors() -> frozenset[int]:
    """Return the processors that the calling thread may run on; empty when the system does not tell."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return frozenset()


def _set_affinity(processors: frozenset[int]) -> bool:
    """Let the calling thread run on these processors; return whether that worked."""
    try:
        os.sched_setaffinity(0, processors)
    except (AttributeError, OSError, ValueError):
        return False
    return True


def _can_confine() -> bool:
    try:
        return ConfinedThread(()).run(lambda: True)
    except CannotStart:  # and nothing else: a temporary shortage must not disable confinement for good
        return False


def _rules_key(rules: Sequence[Rule]) -> _Key:
    key = []
    for where, rights in rules:
        try:
            status = os.stat(where)
        except OSError:  # does not exist, so the ruleset leaves it out
            continue
        key.append((status.st_dev, status.st_ino, rights))
    return tuple(key)
