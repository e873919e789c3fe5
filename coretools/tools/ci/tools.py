"""Build, test and restore: programs of the project, started as argv in a directory beneath a root.

How a project is built is detected from its files (`detect`), what its tests came to is read from their output
(`parse`). Starting, stopping and bounding is the runner's.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, TypeVar

import anyio
import anyio.to_thread
from pydantic import Field

from coretools.command import split
from coretools.declare import Effect, tool
from coretools.errors import CannotStart, Unsupported
from coretools.excerpt import Excerpt
from coretools.process.runner import Completed, Order, Runner
from coretools.redact import Redactor, whole_lines
from coretools.sandbox.reading import Directory
from coretools.sandbox.roots import Roots
from coretools.settings import Limits
from coretools.tools.ci.detect import LOOKED_FOR, choose, detect
from coretools.tools.ci.gradle_results import gradle_results
from coretools.tools.ci.output import plain, printed, streams, without_escapes
from coretools.tools.ci.parse import parse
from coretools.tools.ci.project import Action, Steps
from coretools.tools.ci.read_go import go_text
from coretools.tools.ci.read_go import shown as go_shown
from coretools.tools.ci.results import Ended, StepsResult, SuiteReport
from coretools.tools.ci.view import ProjectView
from coretools.tools.commands.starting import open_to_start, timeout
from coretools.tools.explanations import NONE, Explanations

ENVIRONMENT = {"CI": "true"}
"""For builds, tests and restores, as every CI service sets it: no watch mode, no prompts, lock files left alone."""

_THREADS = 4
"""Detections and reports at once; both are short, but a report may be made from megabytes."""

Timeout = Annotated[int | None, Field(ge=1)]
Value = TypeVar("Value")


class Ci:
    """Tools that start the project's own programs."""

    def __init__(
        self,
        roots: Roots,
        runner: Runner,
        limits: Limits,
        *,
        redactor: Redactor | None = None,
        explanations: Explanations = NONE,
    ) -> None:
        self._roots = roots
        self._explanations = explanations
        self._redactor = redactor
        self._runner = runner
        self._limits = limits
        self._limiter = anyio.CapacityLimiter(_THREADS)

    @tool(Effect.CHANGE, open_world=True, long_running=True)
    async def ci_build(self, project: str = ".", command: str = "", *, timeout_seconds: Timeout = None) -> StepsResult:
        """Build a project by its own build system, or by `command`."""
        return await self._steps("build", project, command=command, timeout_seconds=timeout_seconds)

    @tool(Effect.CHANGE, open_world=True, long_running=True, structured=True)
    async def ci_test(self, project: str = ".", command: str = "", *, timeout_seconds: Timeout = None) -> SuiteReport:
        """Run a project's tests, or `command`: counts, failures with file and line."""
        with await self._open(project) as directory:
            chosen, alternatives = await self._plan("test", directory, command=command)
            runs = await self._run_first(alternatives, directory, order=self._order(timeout_seconds))
        return await self._in_thread(partial(self._report, directory.path, runs, chosen=chosen))

    @tool(Effect.CHANGE, open_world=True, long_running=True)
    async def ci_restore(
        self, project: str = ".", command: str = "", *, timeout_seconds: Timeout = None
    ) -> StepsResult:
        """Install a project's dependencies, by its lock file or by `command`."""
        return await self._steps("restore", project, command=command, timeout_seconds=timeout_seconds)

    async def _steps(self, action: Action, project: str, *, command: str, timeout_seconds: int | None) -> StepsResult:
        with await self._open(project) as directory:
            chosen, alternatives = await self._plan(action, directory, command=command)
            runs = await self._run_first(alternatives, directory, order=self._order(timeout_seconds))
        return await self._in_thread(partial(self._steps_result, runs, chosen))

    async def _plan(self, action: Action, directory: Directory, *, command: str) -> tuple[str, Sequence[Steps]]:
        """How the command was chosen, in words, and what to run, best first.

        Raises:
            Unsupported: nothing was detected that can do this.
        """
        if command:
            return "", [(tuple(split(command)),)]
        return await self._in_thread(partial(self._detected, action, directory))

    def _detected(self, action: Action, directory: Directory) -> tuple[str, Sequence[Steps]]:
        systems = detect(ProjectView(self._roots, directory.path))
        if not systems:
            raise Unsupported(
                f"{directory.shown}: no build system found; looked for {LOOKED_FOR}."
                " Name the directory that holds one as `project`, or give `command`"
            )
        system = choose(systems, action)
        found = ", ".join(f"{one.name} ({one.because})" for one in systems)
        if system is None:
            raise Unsupported(f"{directory.shown}: found {found}, which names no way to {action}; give `command`")
        taken = f"; took {system.name}" if len(systems) > 1 else ""
        return f"[detected {found}{taken}; `command` overrides]", system.alternatives(action)

    async def _open(self, path: str) -> Directory:
        return await self._in_thread(partial(open_to_start, self._roots, path))

    def _order(self, timeout_seconds: int | None) -> Order:
        seconds = timeout(timeout_seconds, self._limits.build_seconds, self._limits)
        return Order(
            is_command=True,
            timeout_seconds=seconds,
            environment=ENVIRONMENT,
            keep_bytes=self._limits.report_bytes,
        )

    async def _run_first(
        self, alternatives: Sequence[Steps], directory: Directory, *, order: Order
    ) -> Sequence[Completed]:
        """Run the first alternative whose program can be started.

        Raises:
            CannotStart: none of them can; says why of the last.
        """
        for steps in alternatives[:-1]:
            try:
                return await self._run_all(steps, directory, order=order)
            except CannotStart:
                continue
        return await self._run_all(alternatives[-1], directory, order=order)

    async def _run_all(self, steps: Steps, directory: Directory, *, order: Order) -> Sequence[Completed]:
        """Run each step until one fails. The deadline is one for all of them."""
        runs: list[Completed] = []
        deadline = anyio.current_time() + (order.timeout_seconds or 0)
        for argv in steps:
            # At least a moment: a step with nothing left ends as timed out, like one that ran into the deadline.
            remaining = max(0.01, deadline - anyio.current_time())
            mine = replace(order, timeout_seconds=remaining)
            runs.append(await self._runner.run(argv, cwd=directory, order=mine))
            if not runs[-1].ok:
                break
        return runs

    def _report(self, path: str, runs: Sequence[Completed], *, chosen: str) -> SuiteReport:
        """What the last step came to. Runs in a worker thread."""
        stdout, stderr = (self._kept(excerpt) for excerpt in (runs[-1].stdout, runs[-1].stderr))
        events = go_text(stdout)
        said, stderr = self._redacted(events), self._redacted(stderr)
        view = ProjectView(self._roots, path)
        report = parse(f"{said}\n{stderr}")
        if report is None and runs[-1].ok and _is_gradle(runs[-1]):
            report = gradle_results(view)
        if report is not None:
            report = replace(report, failures=tuple(view.located(failure) for failure in report.failures))
        output = streams(plain(said if events is stdout else go_shown(said)), plain(stderr))
        return SuiteReport.of(Ended.of(runs, output, self._explanations), report, chosen=chosen)

    def _steps_result(self, runs: Sequence[Completed], chosen: str) -> StepsResult:
        """Runs in a worker thread."""
        printed_by = (streams(printed(run.stdout, self._redactor), printed(run.stderr, self._redactor)) for run in runs)
        output = "\n".join(filter(None, printed_by))
        return StepsResult(ended=Ended.of(runs, output, self._explanations), chosen=chosen)

    def _kept(self, excerpt: Excerpt) -> str:
        return excerpt.text() if self._redactor is None else without_escapes(whole_lines(excerpt).text())

    def _redacted(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.text(text)

    async def _in_thread(self, work: Callable[[], Value]) -> Value:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def _is_gradle(run: Completed) -> bool:
    """Whether Gradle, or its wrapper, was run."""
    return any(word.rpartition("/")[2] in ("gradle", "gradlew") for word in run.argv[:2])
