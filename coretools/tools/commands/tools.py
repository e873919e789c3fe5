"""Commands of the caller: run one to its end, or keep it running and come back to it.

What a run is and how it ends is in `coretools.process.jobs.job_table`; here is what a call may do with one.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from coretools.config.settings import Limits
from coretools.errors import Busy, Conflict, InvalidArguments, Unsupported
from coretools.operations.call import Call, SilentCall
from coretools.operations.declare import Effect, asks, tool
from coretools.process.children.streams import INPUT_BUFFER_BYTES
from coretools.process.jobs.job import Job
from coretools.process.jobs.job_table import JobTable
from coretools.process.jobs.terminal_screen import MAX_REDRAWN_BYTES
from coretools.questions.kinds import CONFIRM
from coretools.redaction.redactor import Redactor
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes
from coretools.tools.commands import parameters
from coretools.tools.commands.host_questions import HOSTS, ask_about_hosts
from coretools.tools.commands.job_calls import run_to_end, start_and_wait
from coretools.tools.commands.prepare import (
    END_OF_TRANSMISSION,
    StartedCommand,
    approved,
    feed_of,
    prepare_command,
    require_syntax,
)
from coretools.tools.commands.results import CommandResult, RunList, RunReport, examined_text, line_of, notes_of
from coretools.tools.commands.run_output import (
    OutputPart,
    finished_output,
    from_offset,
    last_lines,
    line_range,
    matching_lines,
    new_output,
    of_screen,
)
from coretools.tools.commands.wait import OutputMatcher, PortWatch, ProgressReporter, WaitConditions, wait
from coretools.tools.execution_result import ExecutionSummary, open_to_start, plain, timeout
from coretools.tools.failure_explanations import NONE, Explanations

if TYPE_CHECKING:
    from coretools.egress.approvals import HostApprovals

_THREADS = 4
"""Threads for matching patterns and drawing screens."""


_NO_CALL = SilentCall()


class CommandTools:
    """Tools that run commands of the caller."""

    def __init__(
        self,
        roots: Roots,
        runs: JobTable,
        limits: Limits,
        *,
        redactor: Redactor | None = None,
        approvals: "HostApprovals | None" = None,
        explanations: Explanations = NONE,
    ) -> None:
        """`approvals` has what a person decided about hosts; None where there is no list of hosts."""
        self._approvals = approvals
        self._explanations = explanations
        self._roots = roots
        self._redactor = redactor
        self._runs = runs
        self._limits = limits
        self._limiter = anyio.CapacityLimiter(_THREADS)

    @tool(Effect.CHANGE, open_world=True, long_running=True, title="Run command")
    @asks(CONFIRM, HOSTS, is_listed=False)
    async def run_command(
        self,
        command: parameters.CommandLine,
        directory: parameters.WorkingDirectory = ".",
        *,
        timeout_seconds: parameters.CommandTimeout = None,
        stdin: parameters.StandardInput = None,
        env: parameters.Variables = None,
        wait_seconds: parameters.WaitSeconds = None,
        terminal: parameters.TerminalText = "",
        call: Call = _NO_CALL,
    ) -> CommandResult | RunReport:
        """Run any bash line; nothing of its shell is kept. Prefer the file, git and ci tools."""
        wants_run = wait_seconds is not None
        default = self._limits.run_seconds_most if wants_run else self._limits.run_seconds
        waited = timeout(wait_seconds, 0, self._limits, name="wait_seconds")
        prepared = await prepare_command(command, env=env or {}, terminal=terminal, runner=self._runs.runner)
        options = replace(
            prepared.options,
            timeout_seconds=timeout(timeout_seconds, default, self._limits),
            input=feed_of(stdin, is_open=wants_run, is_terminal=prepared.options.terminal is not None),
        )
        runner = self._runs.runner
        if not prepared.is_readable:
            with await self._opened(directory) as checked:
                await require_syntax(prepared, checked, runner)
        is_confirmed = await approved(prepared.argv, options, runner=runner, place=directory, stdin=stdin, call=call)
        await ask_about_hosts(self._approvals, prepared.argv, call, line=options.line)
        opened = await self._opened(directory)
        started = StartedCommand(prepared.argv, opened, replace(options, is_confirmed=is_confirmed))
        if wants_run:
            return await self._start_job(started, waited, call)
        return await self._run_to_end(started, call)

    @tool(Effect.READ, profiles=("dev",), title="Wait for run")
    async def wait_run(
        self,
        run: parameters.RunId,
        *,
        seconds: parameters.WaitLimit = 30,
        pattern: parameters.AwaitedText = "",
        port: parameters.AwaitedPort = None,
        quiet_seconds: parameters.QuietSeconds = None,
        call: Call = _NO_CALL,
    ) -> RunReport:
        """Wait until a run ends; show what is new. Now: read_run."""
        found = self._runs.get(run, call.principal)
        timeout(seconds, 0, self._limits, name="seconds")
        matcher = OutputMatcher(pattern, found, self._limiter) if pattern else None
        watch = None if port is None else PortWatch(found, port, self._limiter)
        until = WaitConditions(seconds=seconds, quiet_seconds=quiet_seconds, matcher=matcher, port=watch)
        came = await wait(found, until, ProgressReporter(found, call, total=seconds))
        self._runs.mark_used(found)
        events = {
            "exit": "",
            "pattern": f"matched: {matcher.line if matcher else ''}",
            "port": f"listens on port {port}",
            "quiet": f"quiet for {quiet_seconds or 0:g} s",
            "time": f"nothing of it within {seconds:g} s"
            if pattern or port or quiet_seconds
            else f"{seconds:g} s are over",
        }
        return self._report(found, event=events[came], excerpt=await self._news(found), kind=came)

    @tool(Effect.READ, profiles=("dev",), title="Read run")
    async def read_run(
        self,
        run: parameters.RunId,
        *,
        start_line: parameters.FirstLine = None,
        end_line: parameters.LastLine = None,
        tail: parameters.TailLines = None,
        pattern: parameters.SoughtText = "",
        context: parameters.ContextLines = 0,
        offset: parameters.ByteOffset = None,
        call: Call = _NO_CALL,
    ) -> RunReport:
        """Show a run's new output, or one part. To wait: wait_run."""
        found = self._runs.get(run, call.principal)
        _require_one(lines=start_line or end_line, tail=tail, pattern=pattern or None, offset=offset)
        most = content_bytes(self._limits)
        if pattern:
            part = await matching_lines(found, pattern, context, most, self._limiter)
        elif start_line is not None or end_line is not None:
            part = line_range(found, start_line or 1, end_line, most)
        elif tail is not None:
            part = last_lines(found, tail, most)
        elif offset is not None:
            part = from_offset(found, offset, most)
        else:
            part = await self._news(found)
        return self._report(found, excerpt=part)

    @tool(Effect.CHANGE, open_world=True, title="Write to run")
    async def write_run(
        self,
        run: parameters.RunId,
        text: parameters.InputText,
        *,
        end: parameters.EndOfInput = False,
        call: Call = _NO_CALL,
    ) -> RunReport:
        """Give input to a run (only with stdin or terminal). End it: stop_run."""
        found = self._runs.get(run, call.principal)
        feed = found.feed
        data = text.encode("utf-8", "surrogatepass")
        if not found.is_alive:
            raise Conflict(f"{found.id}: has ended; read_run shows what it printed")
        if feed is None:
            raise Unsupported(f'{found.id}: was started without input; give run_command stdin ("" will do) or terminal')
        if not feed.is_open:
            raise Conflict(f"{found.id}: its input is closed")
        if len(data) > feed.room:
            raise Busy(
                f"{found.id}: {INPUT_BUFFER_BYTES - feed.room} bytes wait to be read by it;"
                f" {INPUT_BUFFER_BYTES} is the most"
            )
        # A later `wait_run` must not match what was printed before this input.
        found.match_offset = found.output.end
        is_terminal = found.terminal is not None
        feed.write(data + (END_OF_TRANSMISSION if end and is_terminal else b""))
        if end and not is_terminal:
            feed.end()
        return RunReport.of(found, event=f"{len(data)} bytes given" + (", end of input" if end else ""))

    @tool(Effect.CHANGE, idempotent=True, title="Stop run")
    async def stop_run(self, run: parameters.RunId, *, call: Call = _NO_CALL) -> RunReport:
        """End a run and all it started. Ids: list_runs."""
        found = self._runs.get(run, call.principal)
        found.stop("stop_run was called")
        await found.ended.wait()
        return self._report(found, excerpt=await self._news(found))

    @tool(Effect.READ, profiles=("dev",), title="List runs")
    async def list_runs(self, *, call: Call = _NO_CALL) -> RunList:
        """List your runs, for read_run."""
        return RunList(lines=[line_of(run) for run in self._runs.of(call.principal)])

    async def _opened(self, directory: str) -> Directory:
        opening = partial(open_to_start, self._roots, directory)
        return await anyio.to_thread.run_sync(opening, limiter=self._limiter)

    async def _start_job(self, started: StartedCommand, waited: float, call: Call) -> CommandResult | RunReport:
        """Start a run and wait for its end for a while."""
        run, came = await start_and_wait(self._runs, started, waited, call)
        if came == "exit":
            return self._result(run, await self._news(run))
        event = "still running: wait_run, read_run, stop_run"
        return self._report(run, event=event, excerpt=await self._news(run), kind=came)

    async def _run_to_end(self, started: StartedCommand, call: Call) -> CommandResult:
        run = await run_to_end(self._runs, started, call)
        return self._result(
            run,
            await self._screen(run)
            if run.screen is not None
            else await finished_output(run, content_bytes(self._limits), self._limiter, self._redactor),
        )

    def _result(self, run: Job, excerpt: OutputPart) -> CommandResult:
        """Build the result of a command that has ended. The run is kept only if its output was cut.

        Raises:
            CoreError: why there is no result.
        """
        done = run.completed
        if run.error is not None or done is None:
            raise run.error or Conflict(f"{run.id}: the server ends")
        examined = examined_text(run) if excerpt.is_cut else excerpt.text
        summary = ExecutionSummary.of([done], excerpt.text, self._explanations, examined=examined)
        if not excerpt.is_cut:
            self._runs.forget(run)
            return CommandResult(summary=summary)
        self._runs.keep_finished(run)
        return CommandResult(summary=summary, run=run.id, note=excerpt.note)

    def _report(self, run: Job, *, excerpt: OutputPart, event: str = "", kind: str = "") -> RunReport:
        """Build the report on a run: its output, and explanations of its failure."""
        return RunReport.of(run, event=event, excerpt=excerpt, kind=kind, notes=notes_of(run, self._explanations))

    async def _news(self, run: Job) -> OutputPart:
        if run.report is not None and run.completed is not None:
            return OutputPart((await run.report()).text(), stop=run.output.end)
        if run.screen is not None:
            return await self._screen(run)
        return await new_output(run, content_bytes(self._limits), self._limiter)

    async def _screen(self, run: Job) -> OutputPart:
        """Draw the screen of a run's terminal."""
        if run.screen is None:
            return OutputPart("")
        end = run.output.end
        data = run.output.read(end - MAX_REDRAWN_BYTES, MAX_REDRAWN_BYTES)
        text = await anyio.to_thread.run_sync(run.screen.draw, data, end, limiter=self._limiter)
        return of_screen(run, plain(text), end)


def _require_one(**ways: object) -> None:
    """Refuse a request for several parts of an output.

    Raises:
        InvalidArguments: more than one is given.
    """
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InvalidArguments(
            f"{' and '.join(given)} together: give lines (start_line, end_line), tail, pattern or offset"
        )
