"""Run a program to its end: the one way from coretools to a child process.

argv only, never a shell. What a child wrote is kept in bounded excerpts, whatever ends it; its exit code is a result,
not an error. What a run started ends with it, however it ends; the exceptions stand in docs/specs/process.md.
"""

import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread

from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.author import caller_variables
from coretools.config.settings import Limits
from coretools.confinement.confined_thread import ConfinedThread
from coretools.confinement.control_files import ControlFiles, changed_between
from coretools.confinement.hidden import HiddenPath
from coretools.errors import ReadOnly
from coretools.excerpt import Excerpt
from coretools.process.children import reaper
from coretools.process.children.child import HAS_PIDFD, ChildProcess
from coretools.process.children.spawn import CWD_BY_HANDLE, check_argv, spawn
from coretools.process.children.streams import (
    InputBuffer,
    OutputListener,
    OutputRecorder,
    ReadThrottle,
    Streams,
    TerminalSize,
)
from coretools.process.children.termination import ProcessGroup, terminate
from coretools.process.concurrency import AdmittedRun, ConcurrencyLimiter, shutting_down
from coretools.process.fork_server.pool import ConfinementStatus, SandboxPool
from coretools.process.fork_server.supervised_process import UNCERTAIN_END, SupervisedProcess
from coretools.process.start_command import start_command
from coretools.process.watchdog import Watchdog
from coretools.redaction.argv import redacted_command_line
from coretools.roots.read import Directory

logger = logging.getLogger(__name__)

MARKER = "CORETOOLS_RUN_ID"
"""Variable that every child gets: `SERVER-NUMBER-`. What carries it is ours to end, wherever it went. The number is
closed by a character of its own, so that no run's mark is the start of another's."""

PROC_SCAN_THREADS = 2
"""Readings of /proc at once."""

CLOSE_SECONDS = 10.0
"""The guard is not waited for any longer; it goes on by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What one run may differ in."""

    is_command: bool = False
    """A program of the project's or the caller's: judged by the operator's policy, and held by a supervisor."""
    is_confirmed: bool = False
    """A person said yes to this argv; counts where the policy says `ask`."""
    timeout_seconds: float | None = None
    """None: the runner's own."""
    stdin: bytes | None = None
    """None: /dev/null."""
    input: InputBuffer | None = None
    """Standard input that is given while the program runs; wins over `stdin`."""
    terminal: TerminalSize | None = None
    """A terminal in place of the three pipes; only where `Runner.has_terminals`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the runner's environment; wins over it."""
    inherit: bool = True
    """False: `environment` is the whole of it."""
    keep_bytes: int | None = None
    """Kept of each output. None: the runner's own."""
    confined_thread: ConfinedThread | None = None
    """What the kernel holds the child to; entered by the thread that starts it. None: nothing."""
    on_stdout: OutputListener | None = None
    """Sees every piece of standard output as it comes, on the event loop. True means "enough": the tree is stopped and
    the run ends as if the child had, with `timed_out` False. Not asked any more once the tree is being stopped."""
    recorder: OutputRecorder | None = None
    """Sees every piece of both outputs, to the last."""
    halt: anyio.Event | None = None
    """Set: the tree is stopped as when a listener has enough."""

    @property
    def feed(self) -> InputBuffer | None:
        """Where standard input comes from; None for /dev/null."""
        return self.input or (InputBuffer.of(self.stdin) if self.stdin is not None else None)


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
    tier: str | None = None
    """Tier of confinement that a command ran in; None for what is no command, or where there is no keeper."""
    stopped_for: str = ""
    """Why its supervisor ended a command; empty when it did not."""
    made: tuple[str, ...] = ()
    """What git, an editor or an agent acts on and that came to be, or changed, while a command ran."""
    remarks: tuple[str, ...] = ()
    """What became of a command's changes to git's configuration, where that is not what it meant; in sentences."""

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself, in time, with exit code 0."""
        return self.exit_code == 0 and not self.timed_out and not self.stopped_for


class Runner:
    """Starts children and sees to their end. `close` must be called: it ends the guard process too."""

    def __init__(
        self,
        limits: Limits,
        environment: Mapping[str, str],
        *,
        sandbox_pool: SandboxPool | None = None,
        programs: ProgramPolicy | None = None,
    ) -> None:
        """Without a keeper commands are started like everything else; without a policy all of them are allowed."""
        self._limits = limits
        self._sandbox_pool = sandbox_pool
        self._programs = programs
        self._environment = dict(environment)
        prefix = f"{secrets.token_hex(8)}-"
        self._watchdog = Watchdog(
            f"{MARKER}={prefix}",
            slots=limits.processes,
            grace_seconds=limits.grace_seconds,
            scratch="" if sandbox_pool is None else sandbox_pool.scratch,
        )
        self._proc_limiter = CapacityLimiter(PROC_SCAN_THREADS)
        self._throttle = ReadThrottle()
        self._concurrency = ConcurrencyLimiter(prefix, max_runs=limits.processes)

    @property
    def programs(self) -> ProgramPolicy | None:
        """The operator's policy for commands, by which each is judged again when it is started."""
        return self._programs

    def hidden(self) -> tuple[HiddenPath, ...]:
        """What the newest view hides from commands."""
        return () if self._sandbox_pool is None else self._sandbox_pool.hidden

    @property
    def environment(self) -> Mapping[str, str]:
        """What children inherit; for who builds the whole environment of a child and needs a PATH for it."""
        return dict(self._environment)

    @property
    def running(self) -> int:
        """Runs that have not ended, those that wait for their start included."""
        return len(self._concurrency)

    @property
    def tier(self) -> str | None:
        """Tier of confinement that commands run in; None before it is known, and where there is no keeper."""
        return None if self._sandbox_pool is None else self._sandbox_pool.tier

    @property
    def has_terminals(self) -> bool:
        """Whether a run may have a terminal here."""
        return self._sandbox_pool is not None and self._sandbox_pool.has_fork_server

    @property
    def protections(self) -> dict[str, bool]:
        """What keeps children from outliving their call, by name, and whether it is in force here."""
        return {
            "process-group": True,
            "guard": self._watchdog.is_possible,
            "marker-sweep": reaper.can_list_processes(),
            "pidfd": HAS_PIDFD,
            "cwd-by-handle": CWD_BY_HANDLE,
        }

    async def run(self, argv: Sequence[str], *, cwd: Directory, options: RunOptions = RunOptions()) -> Completed:
        """Run a program in `cwd` until it ends, is stopped at its deadline, or the caller is cancelled.

        A deadline is a result: `timed_out`, with what was written until then. After a cancellation the whole tree is
        ended first, shielded and bounded by the limits `grace_seconds` and `linger_seconds`.

        Raises:
            CannotStart: not found, not executable, ..., or the runner is closed. InvalidArguments: a NUL in a word.
            Busy: as many children as allowed run already. DeniedCommand: a command that the operator's policy does not
            allow. Unconfined: commands must not run in the tier in force.
        """
        argv = tuple(argv)
        self._check(argv, options)
        with self._concurrency.acquire(argv) as run:
            run.control_files = await self._control_files(options)
            return await self._wait_for_exit(run, await self._start(run, argv, cwd, options), argv, options)

    def _check(self, argv: tuple[str, ...], options: RunOptions) -> None:
        check_argv(argv, options.environment)
        if options.is_command and self._programs is not None:
            self._programs.require(argv, is_confirmed=options.is_confirmed)
        level = logging.INFO if options.is_command else logging.DEBUG
        if logger.isEnabledFor(level):
            logger.log(level, "run: %s", redacted_command_line(argv))

    async def prepare(self) -> ConfinementStatus:
        """Find out how commands are held here, and have one waiting, so that the first call need not."""
        if self._sandbox_pool is None:
            return ConfinementStatus("none", {"landlock": "commands have no keeper"}, is_permitted=True, is_whole=True)
        if self._sandbox_pool.has_fork_server:
            self._watchdog.ensure_running()
        return await self._sandbox_pool.prepare()

    async def close(self) -> None:
        """End every child: TERM, grace, KILL; then the guard. Bounded; a run that is waited for ends as stopped."""
        if self._concurrency.is_closed:
            return
        with CancelScope(shield=True):
            await self._concurrency.cancel_all(self._limits.grace_seconds + 2 * reaper.KILL_SECONDS)
            with anyio.move_on_after(CLOSE_SECONDS):
                await to_thread.run_sync(self._close_processes, limiter=CapacityLimiter(1), abandon_on_cancel=True)

    def _close_processes(self) -> None:
        if self._sandbox_pool is not None:
            self._sandbox_pool.close()
        self._watchdog.close()

    async def _start(
        self, run: AdmittedRun, argv: tuple[str, ...], cwd: Directory, options: RunOptions
    ) -> ChildProcess | SupervisedProcess:
        if not options.is_command:
            return self._spawn(run, argv, cwd, options)
        if self._sandbox_pool is not None and self._sandbox_pool.tier is None:
            await self.prepare()
        if self.tier in (None, "none") and not cwd.place.root.writable:
            raise ReadOnly(f"{cwd.shown}: the root is read-only, and a program started there could write to it")
        if self._sandbox_pool is not None and self._sandbox_pool.has_fork_server:
            return await self._start_command(self._sandbox_pool, run, argv, cwd, options)
        if self._sandbox_pool is not None:
            self._sandbox_pool.require()
        return self._spawn(run, argv, cwd, options)

    async def _start_command(
        self, sandbox_pool: SandboxPool, run: AdmittedRun, argv: tuple[str, ...], cwd: Directory, options: RunOptions
    ) -> SupervisedProcess:
        child = None
        self._watchdog.ensure_running()
        with run.scope:
            child = await start_command(
                sandbox_pool,
                argv,
                cwd=cwd,
                environment=partial(self._command_environment, run, options),
                fed=options.feed is not None,
                size=options.terminal,
            )
        if child is None:  # the runner was closed meanwhile
            raise shutting_down(argv)
        return child

    def _spawn(self, run: AdmittedRun, argv: tuple[str, ...], cwd: Directory, options: RunOptions) -> ChildProcess:
        # Not in a thread: vfork holds the interpreter's lock until the child has reached exec, so the loop stands still
        # either way, and two switches between threads are a tenth of a run of `true`. Nothing can be cancelled between
        # the start and the first wait for the child.
        inherited = {**self._environment, **caller_variables()} if options.inherit else {}
        environment = {**inherited, **options.environment, MARKER: run.marker}
        self._watchdog.ensure_running()
        start = partial(spawn, argv, cwd=cwd, environment=environment, fed=options.feed is not None)
        child = start() if options.confined_thread is None else options.confined_thread.run(start)
        run.watchdog_slot = self._watchdog.register(child.pid)
        return child

    async def _control_files(self, options: RunOptions) -> ControlFiles:
        return await self._sandbox_pool.control_files() if self._sandbox_pool is not None and options.is_command else {}

    def _command_environment(self, run: AdmittedRun, options: RunOptions) -> dict[str, str]:
        confinement_variables = {} if self._sandbox_pool is None else self._sandbox_pool.variables()
        return {
            **self._environment,
            **caller_variables(),
            **confinement_variables,
            **options.environment,
            MARKER: run.marker,
        }

    async def _wait_for_exit(
        self, run: AdmittedRun, child: ChildProcess | SupervisedProcess, argv: tuple[str, ...], options: RunOptions
    ) -> Completed:
        limits = self._limits
        timeout = limits.run_seconds if options.timeout_seconds is None else options.timeout_seconds
        keep_bytes = limits.output_bytes if options.keep_bytes is None else options.keep_bytes
        streams = Streams(child, options, keep_bytes=keep_bytes, throttle=self._throttle)
        stragglers, timed_out, must_sweep = 0, False, True
        run.scope.deadline = anyio.current_time() + timeout
        try:
            with run.scope:
                await streams.communicate(limits.linger_seconds)
            timed_out = run.scope.cancelled_caught and not run.is_closing and not child.reap()
            # What left the process group is looked for when a run was broken off. After an ordinary end the look would
            # cost more than most runs.
            must_sweep = timed_out or (options.halt is not None and options.halt.is_set())
        finally:
            stragglers = await self._terminate(run, child, streams, must_sweep=must_sweep)
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
            tier=self._sandbox_pool.tier if self._sandbox_pool is not None and options.is_command else None,
            stopped_for=child.stopped_for,
            made=() if run.is_closing else changed_between(run.control_files, await self._control_files(options)),
            remarks=run.remarks,
        )

    async def _terminate(
        self, run: AdmittedRun, child: ChildProcess | SupervisedProcess, streams: Streams, *, must_sweep: bool
    ) -> int:
        if isinstance(child, SupervisedProcess):
            return await self._terminate_command(run, child, streams)
        tree = ProcessGroup(
            child,
            streams,
            # At shutdown the watchdog looks for marked processes once for all runs.
            marker=None if run.is_closing else f"{MARKER}={run.marker}".encode(),
            must_sweep=must_sweep,
            proc_limiter=self._proc_limiter,
        )
        stragglers = 0
        try:
            with CancelScope(shield=True):
                stragglers = await terminate(tree, streams, self._limits)
        finally:
            if child.reap():
                child.close()
                self._watchdog.unregister(run.watchdog_slot)
            else:  # in the kernel for good, or asyncio's own cancel came through the shield
                threading.Thread(target=self._kill_in_background, args=(run, child), daemon=True).start()
        return stragglers

    async def _terminate_command(self, run: AdmittedRun, child: SupervisedProcess, streams: Streams) -> int:
        stragglers = 0
        try:
            with CancelScope(shield=True):
                stragglers = await terminate(child, streams, self._limits)
                if self._sandbox_pool is not None:
                    run.remarks = (
                        *child.replaced_covers(),
                        *await self._sandbox_pool.command_ended(is_certain=child.stopped_for != UNCERTAIN_END),
                    )
        finally:
            # Whatever came through the shield: without our ends the supervisor ends what is left.
            child.close()
            if self._sandbox_pool is not None:
                self._sandbox_pool.refill()
        return stragglers

    def _kill_in_background(self, run: AdmittedRun, child: ChildProcess) -> None:
        """End a child that no task waits for any more. Blocks as long as that takes."""
        child.kill()
        self._watchdog.unregister(run.watchdog_slot)
