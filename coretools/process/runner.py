"""Run a program to its end: the one way from coretools to a child process.

argv only, never a shell. What a child wrote is kept in bounded excerpts, whatever ends it; its exit code is a result,
not an error. What a run started ends with it, however it ends; the exceptions stand in docs/specs/process.md.
"""

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread

from coretools.errors import Busy, CannotStart
from coretools.excerpt import Excerpt
from coretools.process import survivors
from coretools.process.child import HAS_PIDFD, Child
from coretools.process.guard import Guard
from coretools.process.spawn import CWD_BY_HANDLE, check_words, spawn
from coretools.process.stopping import stop
from coretools.process.streams import Listener, Streams
from coretools.sandbox.reading import Directory
from coretools.settings import Limits

MARKER = "CORETOOLS_RUN_ID"
"""Variable that every child gets: `SERVER-NUMBER-`. What carries it is ours to end, wherever it went. The number is
closed by a character of its own, so that no run's mark is the start of another's."""

LOOK_THREADS = 2
"""Readings of /proc at once."""

CLOSE_GUARD_SECONDS = 10.0
"""The guard is not waited for any longer; it goes on by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one run may differ in."""

    timeout_seconds: float | None = None
    """None: the runner's own."""
    stdin: bytes | None = None
    """None: /dev/null."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the runner's environment; wins over it."""
    inherit: bool = True
    """False: `environment` is the whole of it."""
    keep_bytes: int | None = None
    """Kept of each output. None: the runner's own."""
    on_stdout: Listener | None = None
    """Sees every piece of standard output as it comes, on the event loop. True means "enough": the tree is stopped and
    the run ends as if the child had, with `timed_out` False. Not asked any more once the tree is being stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a run ended, and what it wrote until then."""

    argv: tuple[str, ...]
    exit_code: int | None
    """None when a signal ended it."""
    signal: str | None
    """Name of the signal that ended it ("SIGKILL")."""
    stdout: Excerpt
    stderr: Excerpt
    duration_seconds: float
    """From the start to the exit of the program itself."""
    timed_out: bool
    """The deadline came before the exit."""
    peak_memory_bytes: int
    """Most memory resident at once, of the largest process that was waited for. 0: not known, because it stayed below
    the server's own peak, which the kernel hands on to every child."""
    stragglers_stopped: int
    """Processes that outlived the program and were ended by the runner."""

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself, in time, with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


class _Run:
    """One run from its admission to its end: what its task and `close` have to agree on."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        """Value of `MARKER` in the environment of its children."""
        self.scope = CancelScope()
        self.is_closing = False
        self.slot: int | None = None


class Runner:
    """Starts children and sees to their end. `close` must be called: it ends the guard process too."""

    def __init__(self, limits: Limits, environment: Mapping[str, str]) -> None:
        self._limits = limits
        self._environment = dict(environment)
        self._id = secrets.token_hex(8)
        self._guard = Guard(f"{MARKER}={self._id}-", slots=limits.processes, grace_seconds=limits.grace_seconds)
        self._looks = CapacityLimiter(LOOK_THREADS)
        self._numbers = count(1)
        self._runs: set[_Run] = set()
        self._idle: anyio.Event | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """What children inherit; for who builds the whole environment of a child and needs a PATH for it."""
        return dict(self._environment)

    @property
    def running(self) -> int:
        """Runs that have not ended, those that wait for their start included."""
        return len(self._runs)

    @property
    def protections(self) -> dict[str, bool]:
        """What keeps children from outliving their call, by name, and whether it is in force here."""
        return {
            "process-group": True,
            "guard": self._guard.is_possible,
            "marker-sweep": survivors.can_look(),
            "pidfd": HAS_PIDFD,
            "cwd-by-handle": CWD_BY_HANDLE,
        }

    async def run(self, argv: Sequence[str], *, cwd: Directory, order: Order = Order()) -> Completed:
        """Run a program in `cwd` until it ends, is stopped at its deadline, or the caller is cancelled.

        A deadline is a result: `timed_out`, with what was written until then. After a cancellation the whole tree is
        ended first, shielded and bounded by the limits `grace_seconds` and `linger_seconds`.

        Raises:
            CannotStart: not found, not executable, ..., or the runner is closed. InvalidArguments: a NUL in a word.
            Busy: as many children as allowed run already.
        """
        argv = tuple(argv)
        check_words(argv, order.environment)
        if self._idle is not None:
            raise _ending(argv)
        if len(self._runs) >= self._limits.processes:
            raise Busy(f"{len(self._runs)} commands run already, the most at once; try again when one has ended")
        run = _Run(f"{self._id}-{next(self._numbers)}-")
        self._runs.add(run)
        try:
            child = self._start(run, argv, cwd, order)
            return await self._follow(run, child, argv, order)
        finally:
            self._runs.remove(run)
            if self._idle is not None and not self._runs:
                self._idle.set()

    async def close(self) -> None:
        """End every child: TERM, grace, KILL; then the guard. Bounded; a run that is waited for ends as stopped."""
        if self._idle is not None:
            return
        self._idle = anyio.Event()
        with CancelScope(shield=True):
            for run in self._runs:
                run.is_closing = True
                run.scope.cancel()
            if self._runs:
                with anyio.move_on_after(self._limits.grace_seconds + 2 * survivors.KILL_SECONDS):
                    await self._idle.wait()
            with anyio.move_on_after(CLOSE_GUARD_SECONDS):
                await to_thread.run_sync(self._guard.close, limiter=CapacityLimiter(1), abandon_on_cancel=True)

    def _start(self, run: _Run, argv: tuple[str, ...], cwd: Directory, order: Order) -> Child:
        # Not in a thread: vfork holds the interpreter's lock until the child has reached exec, so the loop stands still
        # either way, and two switches between threads are a tenth of a run of `true`. Nothing can be cancelled between
        # the start and the first wait for the child.
        environment = {**self._environment, **order.environment} if order.inherit else dict(order.environment)
        environment[MARKER] = run.mark
        self._guard.ensure()
        child = spawn(argv, cwd=cwd, environment=environment, fed=order.stdin is not None)
        run.slot = self._guard.enter(child.pid)
        return child

    async def _follow(self, run: _Run, child: Child, argv: tuple[str, ...], order: Order) -> Completed:
        limits = self._limits
        timeout = limits.run_seconds if order.timeout_seconds is None else order.timeout_seconds
        keep_bytes = limits.output_bytes if order.keep_bytes is None else order.keep_bytes
        streams = Streams(child, stdin=order.stdin, keep_bytes=keep_bytes, on_stdout=order.on_stdout)
        stragglers, timed_out, must_sweep = 0, False, True
        run.scope.deadline = anyio.current_time() + timeout
        try:
            with run.scope:
                await streams.attend(limits.linger_seconds)
            timed_out = run.scope.cancelled_caught and not run.is_closing and not child.reap()
            # What left the process group is looked for when a run was broken off. After an ordinary end the look would
            # cost more than most runs.
            must_sweep = timed_out
        finally:
            stragglers = await self._end(run, child, streams, must_sweep=must_sweep)
        return Completed(
            argv=argv,
            exit_code=child.exit_code,
            signal=child.signal_name,
            stdout=streams.stdout.excerpt(),
            stderr=streams.stderr.excerpt(),
            duration_seconds=child.duration_seconds,
            timed_out=timed_out,
            peak_memory_bytes=child.peak_memory_bytes,
            stragglers_stopped=stragglers,
        )

    async def _end(self, run: _Run, child: Child, streams: Streams, *, must_sweep: bool) -> int:
        # While closing, the guard looks once for all runs, so none looks for itself.
        marker = None if run.is_closing else f"{MARKER}={run.mark}".encode()
        stragglers = 0
        try:
            with CancelScope(shield=True):
                stragglers = await stop(
                    child, streams, marker=marker, must_sweep=must_sweep, limits=self._limits, looks=self._looks
                )
        finally:
            if child.reap():
                child.close()
                self._guard.leave(run.slot)
            else:  # in the kernel for good, or asyncio's own cancel came through the shield
                threading.Thread(target=self._end_unseen, args=(run, child), daemon=True).start()
        return stragglers

    def _end_unseen(self, run: _Run, child: Child) -> None:
        """End a child that no task waits for any more. Blocks as long as that takes."""
        child.end_now()
        self._guard.leave(run.slot)


def _ending(argv: Sequence[str]) -> CannotStart:
    return CannotStart(f"{argv[0]}: the server is ending and starts nothing any more")
