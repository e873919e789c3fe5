"""Run a program until it exits: the only way by which coretools starts child processes.

A run takes an argv, never a shell line. Its output is kept in bounded excerpts, however the run ends; an exit code is a
result, not an error. Every process that a run started ends with it; docs/specs/process.md lists the exceptions.
"""

import logging
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread

from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.call_context import caller_variables
from coretools.config.limits import Limits
from coretools.confinement.command_confinement import ConfinementStatus
from coretools.confinement.command_path import tool_path, trusted_program
from coretools.confinement.control_files import changed_between
from coretools.confinement.protected_paths import HiddenPath
from coretools.confinement.toolchains import FoundToolchain
from coretools.errors import CoreError, ReadOnly
from coretools.process.children import reaper
from coretools.process.children.spawn import (
    CWD_BY_HANDLE,
    HAS_PIDFD,
    ChildProcess,
    InheritedFiles,
    check_argv,
    limit_memory,
    spawn,
)
from coretools.process.children.streams import ReadThrottle, Streams
from coretools.process.children.termination import ProcessGroup, terminate
from coretools.process.concurrency import AdmittedRun, ConcurrencyLimiter, shutting_down
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.fork_server.start import start_sandboxed
from coretools.process.fork_server.supervised_process import UNCERTAIN_END, StandardStreams, SupervisedProcess
from coretools.process.no_sandbox import NoSandbox
from coretools.process.policy_check import require
from coretools.process.run import Completed, RunOptions
from coretools.process.trials.trial_table import TrialTable
from coretools.process.watchdog import Watchdog
from coretools.reach import NO_REACH, Reach
from coretools.redaction.argv import redacted_command_line
from coretools.redaction.redactor import Redactor
from coretools.roots.root import Directory, Root

logger = logging.getLogger(__name__)

MARKER = "CORETOOLS_PROCESS_MARKER"
"""Environment variable of every child, with the value `SERVER-NUMBER-`. A process that has it belongs to the run,
whatever group or session it moved to. The trailing `-` keeps one run's value from being a prefix of another's."""

PROC_SCAN_THREADS = 2
"""Concurrent scans of /proc."""

CLOSE_SECONDS = 10.0
"""Longest wait for the fork server at shutdown, and for the watchdog; they finish by themselves."""


ObserveCommand = Callable[[], AbstractAsyncContextManager[Callable[[], Awaitable[Sequence[str]]]]]
"""Is entered while a command runs, and yields what returns further sentences for its result."""

RecordCommand = Callable[[str, str], tuple[int, Sequence[str]]]
"""Takes the record of a command, by its name in the spool, into the journal for undo, with the command line. Returns
the id of the change and sentences for the result. Without a name: all records that were left. Blocks."""


class Runner:
    """Starts child processes and terminates them. `close` must be called: it also ends the watchdog process."""

    def __init__(
        self,
        limits: Limits,
        environment: Mapping[str, str],
        *,
        sandbox_pool: SandboxPool | None = None,
        programs: ProgramPolicy | None = None,
        before_commands: "Callable[[Runner], Awaitable[None]] | None" = None,
        reach: Reach = NO_REACH,
    ) -> None:
        """No pool: commands are plain children. No policy: all are allowed. `before_commands`: `prepare` awaits it.

        `reach`: what tools and commands can change. No program there is started outside the sandbox.
        """
        self._before_commands = before_commands
        self.reach = reach
        self.observe_command: ObserveCommand | None = None
        self.trials: TrialTable | None = None
        """Commands on trial; None where there are none. Their owner closes them, after the runner."""
        self.record_command: RecordCommand | None = None
        self._has_said_unrecorded = False
        self._path = environment.get("PATH") or os.defpath
        self.tool_path = tool_path(self._path, reach)
        """PATH of programs that are no commands."""
        self._limits = limits
        self._sandbox = sandbox_pool or NoSandbox()
        self._programs = programs
        self._environment = dict(environment)
        prefix = f"{secrets.token_hex(8)}-"
        self._watchdog = Watchdog(
            f"{MARKER}={prefix}",
            slots=limits.processes,
            grace_seconds=limits.grace_seconds,
            scratch=self.scratch,
        )
        self._proc_limiter = CapacityLimiter(PROC_SCAN_THREADS)
        self._throttle = ReadThrottle()
        self._concurrency = ConcurrencyLimiter(prefix, max_runs=limits.processes)

    @property
    def programs(self) -> ProgramPolicy | None:
        """The operator's command policy. The runner applies it again to every command that it starts."""
        return self._programs

    def hidden(self) -> tuple[HiddenPath, ...]:
        """Files that the current view hides from commands."""
        return self._sandbox.hidden

    def toolchains(self) -> tuple[FoundToolchain, ...]:
        """Toolchains of the user that commands can read; none before the first command."""
        return self._sandbox.toolchains

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment that children inherit, for callers that build a complete environment and need its PATH."""
        return dict(self._environment)

    @property
    def scratch(self) -> str:
        """Directory of this server, removed even if it is killed; made by the first command. Empty without a pool."""
        return self._sandbox.scratch

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._concurrency.is_closed

    @property
    def command_path(self) -> str:
        """PATH of commands; until the tier is known it may lack directories of the user's login shell."""
        return self._sandbox.variables().get("PATH") or self._environment.get("PATH") or os.defpath

    @property
    def running(self) -> int:
        """Number of runs that have not ended, including those that wait for their start."""
        return len(self._concurrency)

    @property
    def tier(self) -> str | None:
        """Confinement tier of commands; None before it is known, and without a sandbox pool."""
        return self._sandbox.tier

    @property
    def has_terminals(self) -> bool:
        """Whether a run may have a pseudoterminal here."""
        return self._sandbox.has_fork_server

    @property
    def protections(self) -> dict[str, bool]:
        """Mechanisms that keep children from outliving their call, by name, and whether each is available here."""
        return {
            "process-group": True,
            "watchdog": self._watchdog.is_possible,
            "marker-sweep": reaper.can_list_processes(),
            "pidfd": HAS_PIDFD,
            "cwd-by-handle": CWD_BY_HANDLE,
        }

    async def run(self, argv: Sequence[str], *, cwd: Directory, options: RunOptions = RunOptions()) -> Completed:
        """Run a program in `cwd` until it ends, is stopped at its deadline, or the caller is cancelled.

        A deadline is a result: `timed_out`, with everything written until then. A cancellation terminates the whole
        tree before it goes on, shielded and bounded by the limits `grace_seconds` and `linger_seconds`.

        Raises:
            CannotStart: not found, not executable, ..., or the runner is closed.
            InvalidArguments: an argument contains a NUL.
            Busy: the limit of concurrent runs is reached.
            DeniedCommand: the operator's policy does not allow this command.
            Unconfined: commands must not run in the tier that is available here.
        """
        argv = tuple(argv)
        await self._check(argv, options)
        if self.observe_command is None or not options.is_command or self.tier == "landlock":
            return await self._run(argv, cwd, options)  # in tier landlock git in commands only reads
        # Outside the place that the command has among the processes: the observer starts git.
        async with self.observe_command() as further_remarks:
            completed = await self._run(argv, cwd, options)
            further = () if self.is_closed else await further_remarks()
        return replace(completed, remarks=(*completed.remarks, *further))

    async def _run(self, argv: tuple[str, ...], cwd: Directory, options: RunOptions) -> Completed:
        with self._concurrency.acquire(argv) as run:
            if options.is_command:
                run.line = options.line
                run.control_files = await self._sandbox.control_files()
            return await self._wait_for_exit(run, await self._start(run, argv, cwd, options), argv, options)

    async def _check(self, argv: tuple[str, ...], options: RunOptions) -> None:
        check_argv(argv, options.environment)
        if options.is_command and not options.is_granted and self._programs is not None:
            await require(self._programs, argv, options, environment=self._environment)
        level = logging.INFO if options.is_command else logging.DEBUG
        if logger.isEnabledFor(level):
            logger.log(level, "run: %s", redacted_command_line(argv))

    def program(self, name: str, *, directory: str = "/") -> str | None:
        """Return the file to start for a program outside the sandbox: the first on PATH that no agent can change.

        None if there is none of this name. A relative path is one in `directory`.

        Raises:
            CannotStart: agents can change it wherever it is found; names the first.
        """
        return trusted_program(name, self._path, self.reach, directory=directory)

    async def prepare(self) -> ConfinementStatus:
        """Determine the confinement tier and prefork processes, so that the first call need not."""
        if self._sandbox.has_fork_server:
            self._watchdog.ensure_running()
        if self._before_commands is not None:
            await self._before_commands(self)
        return await self._sandbox.prepare()

    async def close(self) -> None:
        """Stop every run (TERM, grace, KILL), then the fork server and the watchdog. Bounded; callers get a result."""
        if self.is_closed:
            return
        with CancelScope(shield=True):
            await self._concurrency.cancel_all(self._limits.grace_seconds + 2 * reaper.KILL_SECONDS)
            try:
                with anyio.move_on_after(CLOSE_SECONDS):
                    await self._sandbox.close()
            finally:
                with anyio.move_on_after(CLOSE_SECONDS):
                    await to_thread.run_sync(self._watchdog.close, limiter=CapacityLimiter(1), abandon_on_cancel=True)

    async def _start(
        self, run: AdmittedRun, argv: tuple[str, ...], cwd: Directory, options: RunOptions
    ) -> ChildProcess | SupervisedProcess:
        if not options.is_command:
            return self._spawn(run, argv, cwd, options)
        if self.tier is None:
            await self.prepare()
        if self.tier in (None, "none") and not cwd.place.root.writable:
            raise ReadOnly(f"{cwd.display_path}: the root is read-only, and a program started there could write to it")
        if isinstance(self._sandbox, SandboxPool) and self._sandbox.has_fork_server:
            return await self._start_command(self._sandbox, run, argv, cwd, options)
        self._sandbox.require()
        return self._spawn(run, argv, cwd, options)

    async def _start_command(
        self, sandbox_pool: SandboxPool, run: AdmittedRun, argv: tuple[str, ...], cwd: Directory, options: RunOptions
    ) -> SupervisedProcess:
        child = None
        self._watchdog.ensure_running()
        with run.scope:
            child = await start_sandboxed(
                sandbox_pool,
                argv,
                cwd=cwd,
                environment=partial(self._command_environment, run, options, cwd.place.root),
                standard=StandardStreams(options.feed is not None, options.terminal, options.files),
                trial=options.trial,
            )
        if child is None:  # the runner is closing
            raise shutting_down(argv)
        return child

    def _spawn(self, run: AdmittedRun, argv: tuple[str, ...], cwd: Directory, options: RunOptions) -> ChildProcess:
        # Not in a worker thread: vfork holds the interpreter lock until the child reaches exec, so the event loop is
        # blocked either way, and two thread switches cost a tenth of a run of `true`. No cancellation can arrive
        # between the start and the first wait for the child.
        inherited = {**self._environment, **caller_variables()} if options.inherit else {}
        if options.inherit and not options.is_command:
            inherited["PATH"] = self.tool_path
        environment = {**inherited, **options.environment, MARKER: run.marker}
        if not options.is_command:
            argv = (self.program(argv[0], directory=cwd.path) or argv[0], *argv[1:])
        self._watchdog.ensure_running()
        inherited_files = InheritedFiles(options.connection, options.passed)
        fed = options.feed is not None
        start = partial(spawn, argv, cwd=cwd, environment=environment, fed=fed, inherited=inherited_files)
        child = start() if options.confined_thread is None else options.confined_thread.run(start)
        run.watchdog_slot = self._watchdog.register(child.pid)
        if options.memory_bytes is not None:
            limit_memory(child.pid, options.memory_bytes)
        return child

    def _command_environment(self, run: AdmittedRun, options: RunOptions, root: Root) -> dict[str, str]:
        inherited = {**self._environment, **caller_variables(), **self._sandbox.variables(root)}
        return {**inherited, **options.environment, MARKER: run.marker}

    async def _wait_for_exit(
        self, run: AdmittedRun, child: ChildProcess | SupervisedProcess, argv: tuple[str, ...], options: RunOptions
    ) -> Completed:
        limits = self._limits
        timeout = limits.run_seconds if options.timeout_seconds is None else options.timeout_seconds
        keep_bytes = limits.output_bytes if options.keep_bytes is None else options.keep_bytes
        streams = Streams(child, options, keep_bytes=keep_bytes, throttle=self._throttle)
        if options.recorder is not None:
            options.recorder.begin(argv)
        stragglers, timed_out, must_sweep = 0, False, True
        run.scope.deadline = anyio.current_time() + timeout
        try:
            with run.scope:
                await streams.communicate(limits.linger_seconds)
            timed_out = run.scope.cancelled_caught and not run.is_closing and not child.reap()
            # Processes that left the group are searched for after a broken-off run only: after an ordinary exit the
            # scan of /proc would cost more than most runs.
            must_sweep = timed_out or options.must_sweep
        finally:
            stragglers = await self._terminate(run, child, streams, must_sweep=must_sweep)
        return Completed(
            argv=argv,
            line=options.line,
            exit_code=child.exit_code,
            signal=child.signal_name,
            stdout=streams.stdout.excerpt(),
            stderr=streams.stderr.excerpt(),
            duration_seconds=child.duration_seconds,
            timed_out=timed_out,
            peak_memory_bytes=child.peak_memory_bytes,
            stragglers_stopped=stragglers,
            tier=self.tier if options.is_command else None,
            stopped_for=child.stopped_for,
            changed_control_files=()
            if run.is_closing or not options.is_command
            else changed_between(run.control_files, await self._sandbox.control_files()),
            remarks=run.remarks,
            change=run.change,
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
            else:  # stuck in the kernel, or a cancellation of asyncio came through the shield
                threading.Thread(target=self._kill_in_background, args=(run, child), daemon=True).start()
        return stragglers

    async def _terminate_command(self, run: AdmittedRun, child: SupervisedProcess, streams: Streams) -> int:
        assert isinstance(self._sandbox, SandboxPool)  # which started the child
        stragglers = 0
        try:
            with CancelScope(shield=True):
                stragglers = await terminate(child, streams, self._limits)
                run.remarks = (
                    *child.replaced_covers(),
                    *child.refused_connections(),
                    *await self._sandbox.command_ended(is_certain=child.stopped_for != UNCERTAIN_END),
                    *await self._record(run, child),
                )
        finally:
            # Even after a cancellation through the shield: when our sockets close, the supervisor kills what is left.
            child.close()
            self._sandbox.refill()
        return stragglers

    @property
    def unrecorded(self) -> str:
        """Why changes of commands are not recorded, though they should be; empty if they are, or it is not known."""
        return self._sandbox.unrecorded

    async def _record(self, run: AdmittedRun, child: SupervisedProcess) -> Sequence[str]:
        """Take what the command changed into the journal; return sentences for the result."""
        if self.record_command is None:
            return ()
        if (reason := self.unrecorded) and not self._has_said_unrecorded:
            self._has_said_unrecorded = True
            return (f"undo can't take back what commands change: {reason}",)
        if not child.spool and not child.is_orphaned:
            return ()
        line = Redactor().text(run.line) if run.line else redacted_command_line(child.argv)
        try:
            run.change, sentences = await to_thread.run_sync(self.record_command, child.spool, line)
        except (CoreError, OSError, ValueError) as error:
            return (f"undo can't take back what it changed: {error}",)
        return sentences

    def _kill_in_background(self, run: AdmittedRun, child: ChildProcess) -> None:
        """Kill a child that no task waits for any more. Blocks until it has exited."""
        child.kill()
        self._watchdog.unregister(run.watchdog_slot)
