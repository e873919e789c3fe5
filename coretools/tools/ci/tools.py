"""Build, test and restore a project with its own programs, as jobs in a directory beneath a root.

`detect` finds out from the project's files how it is built, `steps` runs that, `parse` reads test results from the
output. A job that its call does not wait for is a run like one of `run_command`.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import anyio
import anyio.to_thread
from pydantic import Field

from coretools.config.limits import Limits
from coretools.errors import Conflict, CoreError, Unsupported, WrongType
from coretools.operations.call import Call, SilentCall
from coretools.operations.declare import Aliases, Effect, tool
from coretools.process.environment import command_defaults
from coretools.process.jobs.job import Work
from coretools.process.jobs.job_table import JobTable
from coretools.process.run import Completed, RunOptions
from coretools.redaction.redactor import Redactor
from coretools.roots.read import open_directory
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.roots.undo import Undo
from coretools.tools.ci.build_system import Action, Argv, Steps
from coretools.tools.ci.detect import LOOKED_FOR, choose, detect, system_of
from coretools.tools.ci.project import ProjectView
from coretools.tools.ci.reports import Execution, ReportBuilder
from coretools.tools.ci.restore import ALL_ENTRIES, RESTORE_ENVIRONMENT, entries_of
from coretools.tools.ci.results import CiResult, StepsResult, SuiteReport
from coretools.tools.ci.steps import StepRunner
from coretools.tools.commands.job_calls import run_to_end, start_and_wait
from coretools.tools.commands.parameters import WaitSeconds, timeout
from coretools.tools.commands.prepare import StartedCommand, prepare_command, require_syntax
from coretools.tools.commands.results import RunReport
from coretools.tools.failure_explanations import NONE, Explanations
from coretools.tools.network_policy import NetworkPolicy

ENVIRONMENT = {"CI": "true"}
"""Set for builds, tests and restores, as every CI service does: no watch mode, no prompts, unchanged lock files."""

_THREADS = 4
"""Threads for detection and reports; both are short, but a report may be read from megabytes."""

_NO_CALL = SilentCall()

_ANY_NETWORK = NetworkPolicy("allow")

Timeout = Annotated[
    int | None,
    Field(ge=1, description="Seconds after which it is stopped, at most 3,600; default 600, with `wait_seconds` 3,600"),
    Aliases(milliseconds=("timeout_ms",), hints=("timeout",)),
]
Project = Annotated[
    str,
    Field(description="Directory of the project, or its project file; default the root"),
    Aliases("project_path", "directory", "cwd", "workdir", "working_directory", "path", "dir_path"),
]
ProjectCommand = Annotated[
    str,
    Field(
        description="Bash line to run in place of the detected one, for a part of the project or other "
        "options; default the detected one"
    ),
    Aliases("cmd"),
]


class _Request(NamedTuple):
    """One call of a ci tool."""

    action: Action
    project: str
    command: str
    timeout_seconds: int | None
    wait_seconds: float | None
    call: Call


class _ActionPlan(NamedTuple):
    """What to run."""

    chosen: str
    """How it was chosen, for the answer."""
    alternatives: Sequence[Steps]
    """Best first."""
    options: RunOptions
    probe: Argv = ()


@dataclass(slots=True)
class _Action:
    """A plan in its directory, and the programs that have run."""

    directory: Directory
    plan: _ActionPlan
    completed: Sequence[Completed] = ()


Report = Callable[[Execution], Awaitable[CiResult]]


class CiTools:
    """Tools that start the project's own programs."""

    def __init__(
        self,
        roots: Roots,
        runs: JobTable,
        limits: Limits,
        *,
        redactor: Redactor | None = None,
        explanations: Explanations = NONE,
        network: NetworkPolicy = _ANY_NETWORK,
    ) -> None:
        """`network` decides whether a restore runs offline."""
        self._roots = roots
        self._runs = runs
        self._limits = limits
        self._limiter = anyio.CapacityLimiter(_THREADS)
        self._steps = StepRunner(runs.runner, explanations, network)
        self._reports = ReportBuilder(roots, limits, self._limiter, redactor=redactor, explanations=explanations)

    @tool(Effect.CHANGE, open_world=True, long_running=True, profiles=("ci",), title="Build project")
    async def ci_build(
        self,
        project: Project = ".",
        command: ProjectCommand = "",
        *,
        timeout_seconds: Timeout = None,
        wait_seconds: WaitSeconds = None,
        call: Call = _NO_CALL,
    ) -> StepsResult | RunReport:
        """Build a project with its own build system.

        Returns how the build ended, with the errors of a failed one. The system is detected from the project's files
        (Makefile, package.json, Cargo.toml, pom.xml, ...) and named in the answer; `command` replaces it. The output of
        a successful build is shortened; read_run has all of it. For tests use ci_test, for missing packages ci_restore,
        for any other command run_command.
        """
        request = _Request("build", project, command, timeout_seconds, wait_seconds, call)
        return await self._act(request, self._reports.steps_result)

    @tool(Effect.CHANGE, open_world=True, long_running=True, profiles=("dev", "ci"), structured=True, title="Run tests")
    async def ci_test(
        self,
        project: Project = ".",
        command: ProjectCommand = "",
        *,
        timeout_seconds: Timeout = None,
        wait_seconds: WaitSeconds = None,
        call: Call = _NO_CALL,
    ) -> SuiteReport:
        """Run the tests of a project, or some of them, and return counts and failures.

        Returns a first line with the counts of passed, failed and skipped tests and the time; each failure follows as
        file:line: name: message. Without recognised counts the output is returned. The runner is detected from the
        project's files and named in the answer; give `command` to run some tests only: its output is read in the same
        way (pytest, unittest, Jest, Vitest, Mocha, node, go, cargo, CTest, JUnit, dotnet and others). Prefer it to
        run_command for tests. For missing packages use ci_restore. Example: {"command": "pytest -q tests/test_auth.py
        -k login"}.
        """
        request = _Request("test", project, command, timeout_seconds, wait_seconds, call)
        result = await self._act(request, self._reports.suite_report)
        return SuiteReport.unfinished(result) if isinstance(result, RunReport) else result

    @tool(Effect.CHANGE, open_world=True, long_running=True, profiles=("dev", "ci"), title="Install packages")
    async def ci_restore(
        self,
        project: Project = ".",
        command: ProjectCommand = "",
        *,
        timeout_seconds: Timeout = None,
        wait_seconds: WaitSeconds = None,
        call: Call = _NO_CALL,
    ) -> StepsResult | RunReport:
        """Install the packages that a project declares, as its lock file or manifest says.

        Returns how the installation ended, with the errors of a failed one. Uses the project's own package manager (uv,
        pip, npm, pnpm, yarn, cargo, go, Maven, ...). If it fails or is stopped, installed packages, manifests and lock
        files are put back as they were. A failed installation is an answer, not an error; a project without a known
        manifest is one. Without a network, packages come from local caches only. To add a package, give the line as
        `command`, such as "npm install left-pad". Afterwards test with ci_test.
        """
        request = _Request("restore", project, command, timeout_seconds, wait_seconds, call)
        return await self._act(request, self._reports.steps_result)

    async def _act(self, request: _Request, report: Report[CiResult]) -> CiResult | RunReport:
        """Run an action to its end, or for `wait_seconds`; then it goes on as a run."""
        directory, named = await anyio.to_thread.run_sync(self._opened, request.project, limiter=self._limiter)
        with ExitStack() as undo:
            undo.callback(directory.close)
            await anyio.to_thread.run_sync(Undo.recover, self._roots, directory, ALL_ENTRIES, limiter=self._limiter)
            action = _Action(directory, await self._plan(request, directory, named))
            undo.pop_all()
        path = directory.path
        work = self._restoring(action) if request.action == "restore" else self._working(action)
        plan = action.plan
        started = StartedCommand(plan.alternatives[0][0], directory, plan.options, work)
        if request.wait_seconds is None:
            job = await run_to_end(self._runs, started, request.call)
        else:
            job, _ = await start_and_wait(self._runs, started, request.wait_seconds, request.call)

        async def result() -> CiResult:
            if job.error is not None or not action.completed:
                raise job.error or Conflict(f"{job.id}: the server ends")
            return await report(Execution(job, path, action.completed, action.plan.chosen))

        if job.is_alive:
            job.report = result
            return await self._reports.unfinished(job)
        try:
            ended = await result()
        except CoreError:
            self._runs.forget(job)
            raise
        (self._runs.keep_finished if ended.run else self._runs.forget)(job)
        return ended

    def _working(self, action: _Action) -> Work:
        async def work(options: RunOptions) -> Completed:
            plan = action.plan
            action.completed = await self._steps.run_first(
                plan.alternatives, action.directory, options=options, probe=plan.probe
            )
            return action.completed[-1]

        return work

    def _restoring(self, action: _Action) -> Work:
        """Work that puts back what a restore changed unless it succeeds."""
        undo = Undo(self._roots, action.directory, entries_of(action.plan.alternatives))

        async def work(options: RunOptions) -> Completed:
            is_done = False
            try:
                await anyio.to_thread.run_sync(undo.begin, limiter=self._limiter)
                done = await self._working(action)(options)
                is_done = done.ok
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(undo.commit if is_done else undo.roll_back, limiter=self._limiter)
            return done

        return work

    def _opened(self, path: str) -> tuple[Directory, str]:
        """Open the directory of a project; also return the name of the project file if the caller gave one."""
        try:
            return open_directory(self._roots, path), ""
        except WrongType:
            above, slash, name = path.rpartition("/")
            if system_of(name) is None:
                raise
            return open_directory(self._roots, above or slash or "."), name

    async def _plan(self, request: _Request, directory: Directory, named: str) -> _ActionPlan:
        """Decide what to run.

        Raises:
            Unsupported: no detected build system offers this action. CommandSyntax: `command` can't be read.
        """
        if request.command:
            runner = self._runs.runner
            prepared = await prepare_command(request.command, env={}, terminal="", runner=runner)
            await require_syntax(prepared, directory, runner)
            plan = _ActionPlan("", [(tuple(prepared.argv),)], prepared.options)
        else:
            plan = await anyio.to_thread.run_sync(
                self._detected, request.action, directory, named, limiter=self._limiter
            )
        options = await self._options(plan.options, request)
        return plan._replace(options=options)

    def _detected(self, action: Action, directory: Directory, named: str) -> _ActionPlan:
        systems = detect(ProjectView(self._roots, directory.path), named)
        if not systems:
            raise Unsupported(
                f"{directory.display_path}: no build system found; looked for {LOOKED_FOR}."
                " Give the directory that has one as `project`, or give `command`"
            )
        system = choose(systems, action)
        detected = ", ".join(f"{candidate.name} ({candidate.marker})" for candidate in systems)
        if system is None:
            raise Unsupported(
                f"{directory.display_path}: found {detected}, which has no step to {action}; give `command`"
            )
        if action == "restore" and system.refused:
            raise Unsupported(f"{directory.display_path}: {system.refused}; give `command`")
        taken = f"; took {system.name}" if len(systems) > 1 else ""
        note = f"[detected {detected}{taken}; `command` overrides]"
        options = RunOptions(is_command=True, environment=command_defaults(self._runs.runner.environment))
        return _ActionPlan(note, system.alternatives(action), options, system.probe if action == "restore" else ())

    async def _options(self, options: RunOptions, request: _Request) -> RunOptions:
        limits = self._limits
        timeout(request.wait_seconds, 0, limits, name="wait_seconds")
        default = limits.build_seconds if request.wait_seconds is None else limits.run_seconds_most
        added = {**ENVIRONMENT, **(RESTORE_ENVIRONMENT if request.action == "restore" else {})}
        options = replace(
            options,
            timeout_seconds=timeout(request.timeout_seconds, default, limits),
            environment={**options.environment, **added},
            keep_bytes=limits.report_bytes,
        )
        return options if request.action == "test" else await self._steps.offline(options)
