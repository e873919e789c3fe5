"""Build, test and restore a project with its own programs, started as argv in a directory beneath a root.

`detect` finds out from the project's files how it is built; `parse` reads test results from the output. The runner
starts, bounds and stops the programs.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, NamedTuple, TypeVar

import anyio
import anyio.to_thread
from pydantic import Field

from coretools.config.settings import Limits
from coretools.errors import CannotStart, CoreError, Unsupported, WrongType
from coretools.operations.declare import Aliases, Effect, tool
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.redaction.redactor import Redactor, drop_partial_lines
from coretools.roots.directory_listing import list_directory
from coretools.roots.read import kind_at, read_bytes
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.roots.undo import Undo
from coretools.shell_words import split
from coretools.tools.ci.build_system import Action, Argv, Steps
from coretools.tools.ci.detect import LOOKED_FOR, choose, detect, system_of
from coretools.tools.ci.parse import gradle_results, parse
from coretools.tools.ci.read_native import displayed as go_displayed
from coretools.tools.ci.read_native import go_text
from coretools.tools.ci.restore import (
    ALL_ENTRIES,
    OFFLINE_ENVIRONMENT,
    RESTORE_ENVIRONMENT,
    entries_of,
    is_new_environment,
)
from coretools.tools.ci.results import Failure, StepsResult, SuiteReport
from coretools.tools.execution_result import (
    ExecutionSummary,
    open_to_start,
    plain,
    printed,
    streams,
    timeout,
    without_escapes,
)
from coretools.tools.failure_explanations import NONE, Explanations, NetworkPolicy
from coretools.truncation import Excerpt

# A project read through the roots, for detection and for resolving file names in reports.


_FILE_BYTES = 1024 * 1024
"""Largest file that detection reads; a larger package.json or Makefile is generated."""

_MOST_NAMES = 100_000
"""Names of a directory that detection reads."""

_SOURCES = ("src/test/java/", "src/test/kotlin/", "src/test/groovy/", "src/main/java/", "")
"""Source folders of Maven and Gradle. A stack trace names a file by its package only."""

_MOST_PARTS = 12
"""Leading components of a path that are removed in turn: Go puts the module before a path, which is no folder."""


class ProjectView:
    """A directory beneath a root, by its absolute path. What can't be read counts as empty."""

    def __init__(self, roots: Roots, path: str) -> None:
        self._roots = roots
        self._path = path
        self.names = self.names_in(".")

    def read(self, path: str) -> str:
        """Return the text of a file, or empty text."""
        try:
            content = read_bytes(self._roots, f"{self._path}/{path}", limit_bytes=_FILE_BYTES)
        except CoreError:
            return ""
        return content.data.decode("utf-8-sig", "replace")

    def names_in(self, path: str) -> frozenset[str]:
        """Return the names in a directory, none if it can't be listed."""
        try:
            listing = list_directory(self._roots, f"{self._path}/{path}", limit=_MOST_NAMES)
        except CoreError:
            return frozenset()
        return frozenset(entry.name for entry in listing.entries)

    def resolved(self, failure: Failure) -> Failure:
        """Return the failure with its file as the other tools accept it, or unchanged if there is no such file."""
        for candidate in self._candidates(failure.file) if failure.file else ():
            try:
                if kind_at(self._roots, candidate) == "file":
                    display_path = self._roots.display_path(self._roots.place(candidate))
                    return Failure(failure.name, display_path, failure.line, failure.message)
            except CoreError:
                continue
        return failure

    def _candidates(self, file: str) -> list[str]:
        if file.startswith("/"):
            return [file]
        parts = file.removeprefix("./").split("/")
        folders = _SOURCES if file.endswith((".java", ".kt", ".groovy", ".scala")) else ("",)
        direct = [f"{self._path}/{folder}{'/'.join(parts)}" for folder in folders]
        return direct + [f"{self._path}/{'/'.join(parts[cut:])}" for cut in range(1, min(len(parts), _MOST_PARTS))]


ENVIRONMENT = {"CI": "true"}
"""Set for builds, tests and restores, as every CI service does: no watch mode, no prompts, unchanged lock files."""

_THREADS = 4
"""Threads for detection and reports; both are short, but a report may be read from megabytes."""

Timeout = Annotated[
    int | None,
    Field(ge=1, description="Default 600"),
    Aliases(milliseconds=("timeout_ms",), hints=("timeout",)),
]
Project = Annotated[
    str,
    Field(description="Its directory"),
    Aliases("project_path", "directory", "cwd", "workdir", "working_directory", "path", "dir_path"),
]
ProjectCommand = Annotated[str, Field(description="Run this instead"), Aliases("cmd")]
Value = TypeVar("Value")


class _ActionPlan(NamedTuple):
    """What to run."""

    chosen: str
    """How it was chosen, for the answer."""
    alternatives: Sequence[Steps]
    """Best first."""
    probe: Argv = ()


class CiTools:
    """Tools that start the project's own programs."""

    def __init__(
        self,
        roots: Roots,
        runner: Runner,
        limits: Limits,
        *,
        redactor: Redactor | None = None,
        explanations: Explanations = NONE,
        network: NetworkPolicy | None = None,
    ) -> None:
        """`network` decides whether a restore runs offline."""
        self._roots = roots
        self._network = network
        self._explanations = explanations
        self._redactor = redactor
        self._runner = runner
        self._limits = limits
        self._limiter = anyio.CapacityLimiter(_THREADS)

    @tool(Effect.CHANGE, open_world=True, long_running=True, profiles=("dev", "ci"), title="Build")
    async def ci_build(
        self, project: Project = ".", command: ProjectCommand = "", *, timeout_seconds: Timeout = None
    ) -> StepsResult:
        """Build a project by its own system. Tests: ci_test."""
        async with self._project(project) as (directory, named):
            plan = await self._plan("build", directory, named, command=command)
            options = await self._offline(self._options(timeout_seconds))
            runs = await self._run_first(plan.alternatives, directory, options=options)
        return await self._in_thread(partial(self._steps_result, runs, plan.chosen))

    @tool(Effect.CHANGE, open_world=True, long_running=True, profiles=("dev", "ci"), structured=True, title="Test")
    async def ci_test(
        self, project: Project = ".", command: ProjectCommand = "", *, timeout_seconds: Timeout = None
    ) -> SuiteReport:
        """Run a project's tests, list failures. Packages: ci_restore."""
        async with self._project(project) as (directory, named):
            plan = await self._plan("test", directory, named, command=command)
            runs = await self._run_first(plan.alternatives, directory, options=self._options(timeout_seconds))
        return await self._in_thread(partial(self._report, directory.path, runs, chosen=plan.chosen))

    @tool(Effect.CHANGE, open_world=True, long_running=True, profiles=("dev", "ci"), title="Restore")
    async def ci_restore(
        self, project: Project = ".", command: ProjectCommand = "", *, timeout_seconds: Timeout = None
    ) -> StepsResult:
        """Install packages for ci_test; undone if it fails."""
        async with self._project(project) as (directory, named):
            plan = await self._plan("restore", directory, named, command=command)
            options = self._options(timeout_seconds)
            options = replace(options, environment={**options.environment, **RESTORE_ENVIRONMENT})
            undo = Undo(self._roots, directory, entries_of(plan.alternatives))
            is_done = False
            try:
                await self._in_thread(undo.begin)
                options = await self._offline(options)
                runs = await self._run_first(plan.alternatives, directory, options=options, probe=plan.probe)
                is_done = runs[-1].ok
            finally:
                with anyio.CancelScope(shield=True):
                    await self._in_thread(undo.commit if is_done else undo.roll_back)
        return await self._in_thread(partial(self._steps_result, runs, plan.chosen))

    async def _offline(self, options: RunOptions) -> RunOptions:
        """Return the options, with variables that make the tools work offline if the network is denied."""
        await self._runner.prepare()
        return (
            replace(options, environment={**options.environment, **OFFLINE_ENVIRONMENT})
            if self._is_offline
            else options
        )

    @property
    def _is_offline(self) -> bool:
        return self._network is not None and self._network.is_denied(self._runner.tier)

    @asynccontextmanager
    async def _project(self, path: str) -> AsyncIterator[tuple[Directory, str]]:
        """Open the directory of a project; also return the name of the project file if the caller gave one.

        Raises:
            Conflict: a restore of the project is in progress.
        """
        directory, named = await self._in_thread(partial(self._opened, path))
        with directory:
            await self._in_thread(partial(Undo.recover, self._roots, directory, ALL_ENTRIES))
            yield directory, named

    def _opened(self, path: str) -> tuple[Directory, str]:
        try:
            return open_to_start(self._roots, path), ""
        except WrongType:
            above, slash, name = path.rpartition("/")
            if system_of(name) is None:
                raise
            return open_to_start(self._roots, above or slash or "."), name

    async def _plan(self, action: Action, directory: Directory, named: str, *, command: str) -> _ActionPlan:
        """Decide what to run.

        Raises:
            Unsupported: no detected build system offers this action.
        """
        if command:
            return _ActionPlan("", [(tuple(split(command)),)])
        return await self._in_thread(partial(self._detected, action, directory, named))

    def _detected(self, action: Action, directory: Directory, named: str) -> _ActionPlan:
        systems = detect(ProjectView(self._roots, directory.path), named)
        if not systems:
            raise Unsupported(
                f"{directory.display_path}: no build system found; looked for {LOOKED_FOR}."
                " Give the directory that has one as `project`, or give `command`"
            )
        system = choose(systems, action)
        found = ", ".join(f"{one.name} ({one.marker})" for one in systems)
        if system is None:
            raise Unsupported(f"{directory.display_path}: found {found}, which has no step to {action}; give `command`")
        if action == "restore" and system.refused:
            raise Unsupported(f"{directory.display_path}: {system.refused}; give `command`")
        taken = f"; took {system.name}" if len(systems) > 1 else ""
        note = f"[detected {found}{taken}; `command` overrides]"
        return _ActionPlan(note, system.alternatives(action), system.probe if action == "restore" else ())

    def _options(self, timeout_seconds: int | None) -> RunOptions:
        seconds = timeout(timeout_seconds, self._limits.build_seconds, self._limits)
        return RunOptions(
            is_command=True,
            timeout_seconds=seconds,
            environment=ENVIRONMENT,
            keep_bytes=self._limits.report_bytes,
        )

    async def _run_first(
        self, alternatives: Sequence[Steps], directory: Directory, *, options: RunOptions, probe: Argv = ()
    ) -> Sequence[Completed]:
        """Run the first alternative whose program can be started.

        Raises:
            CannotStart: none can be started; the reason is that of the last.
        """
        for steps in alternatives:
            try:
                is_probed = probe and self._is_offline and is_new_environment(steps[0])
                refused = await self._probe_failure(probe, directory, options) if is_probed else []
                return refused or await self._run_all(steps, directory, options=options)
            except CannotStart as error:
                failure = error
        raise failure

    async def _probe_failure(self, probe: Argv, directory: Directory, options: RunOptions) -> Sequence[Completed]:
        """Run a probe, and return its run if it failed because the network is denied; else nothing."""
        run = await self._runner.run(probe, cwd=directory, options=options)
        output = f"{run.stdout.text()}\n{run.stderr.text()}"
        notes = self._explanations.of(argv=run.argv, tier=run.tier, failed=not run.ok, output=output)
        return [run] if notes and not run.ok else []

    async def _run_all(self, steps: Steps, directory: Directory, *, options: RunOptions) -> Sequence[Completed]:
        """Run the steps until one fails. They share one deadline."""
        runs: list[Completed] = []
        deadline = anyio.current_time() + (options.timeout_seconds or 0)
        for argv in steps:
            # Never zero: a step without time left then ends as timed out, like one that reaches the deadline.
            remaining = max(0.01, deadline - anyio.current_time())
            mine = replace(options, timeout_seconds=remaining)
            runs.append(await self._runner.run(argv, cwd=directory, options=mine))
            if not runs[-1].ok:
                break
        return runs

    def _report(self, path: str, runs: Sequence[Completed], *, chosen: str) -> SuiteReport:
        """Build the report of the last step. Runs in a worker thread."""
        stdout, stderr = (self._kept(excerpt) for excerpt in (runs[-1].stdout, runs[-1].stderr))
        events = go_text(stdout)
        printed, stderr = self._redacted(events), self._redacted(stderr)
        view = ProjectView(self._roots, path)
        report = parse(f"{printed}\n{stderr}")
        if report is None and runs[-1].ok and _is_gradle(runs[-1]):
            report = gradle_results(view)
        if report is not None:
            report = replace(report, failures=tuple(view.resolved(failure) for failure in report.failures))
        output = streams(plain(printed if events is stdout else go_displayed(printed)), plain(stderr))
        return SuiteReport.of(ExecutionSummary.of(runs, output, self._explanations), report, chosen=chosen)

    def _steps_result(self, runs: Sequence[Completed], chosen: str) -> StepsResult:
        """Runs in a worker thread."""
        printed_by = (streams(printed(run.stdout, self._redactor), printed(run.stderr, self._redactor)) for run in runs)
        output = "\n".join(filter(None, printed_by))
        return StepsResult(summary=ExecutionSummary.of(runs, output, self._explanations), chosen=chosen)

    def _kept(self, excerpt: Excerpt) -> str:
        return excerpt.text() if self._redactor is None else without_escapes(drop_partial_lines(excerpt).text())

    def _redacted(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.text(text)

    async def _in_thread(self, work: Callable[[], Value]) -> Value:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def _is_gradle(run: Completed) -> bool:
    """Whether Gradle or its wrapper was run."""
    return any(word.rpartition("/")[2] in ("gradle", "gradlew") for word in run.argv[:2])
