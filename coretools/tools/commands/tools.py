"""Commands of the caller: run one to its end, or keep it running and come back to it.

What a run is and how it ends is in `coretools.process.jobs.job_table`; here is what a call may do with one.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from coretools.config.limits import Limits
from coretools.errors import Busy, Conflict, InvalidArguments, Unsupported
from coretools.operations.call import Call, SilentCall
from coretools.operations.declare import Effect, asks, tool
from coretools.process.children.streams import INPUT_BUFFER_BYTES
from coretools.process.jobs.job import Job
from coretools.process.jobs.job_table import JobTable
from coretools.process.jobs.terminal_screen import MAX_REDRAWN_BYTES, TerminalScreen
from coretools.questions.confirmation import CONFIRM
from coretools.redaction.redactor import Redactor
from coretools.roots.read import open_directory
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes
from coretools.tools.commands import parameters
from coretools.tools.commands.host_questions import HOSTS, ask_about_hosts
from coretools.tools.commands.job_calls import run_to_end, start_and_wait
from coretools.tools.commands.output_matcher import OutputMatcher, skip_shown
from coretools.tools.commands.prepare import (
    END_OF_TRANSMISSION,
    StartedCommand,
    approved,
    feed_of,
    prepare_command,
    require_syntax,
)
from coretools.tools.commands.progress import ProgressReporter
from coretools.tools.commands.results import (
    CommandResult,
    RunList,
    RunReport,
    examined_text,
    left_over_note,
    line_of,
    notes_of,
)
from coretools.tools.commands.run_output import (
    OutputPart,
    finished_output,
    from_offset,
    last_lines,
    line_range,
    matching_lines,
    new_output,
    of_screen,
    screen_changes,
)
from coretools.tools.commands.trial_tools import run_on_trial
from coretools.tools.commands.wait import PortWatch, WaitConditions, wait
from coretools.tools.execution_result import ExecutionSummary
from coretools.tools.failure_explanations import NONE, Explanations
from coretools.tools.filesystem.seek_window import Cursor
from coretools.tools.output_text import plain

if TYPE_CHECKING:
    from coretools.egress.approvals import HostApprovals

_THREADS = 4
"""Threads for matching patterns and drawing screens."""


REPLY_QUIET_SECONDS = 0.5
"""Silence after which a program is taken to have replied to its input and to wait for more."""

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
        trial: parameters.OnTrial = False,
        call: Call = _NO_CALL,
    ) -> CommandResult | RunReport:
        """Run any command in the project: a bash line, or a program with its arguments.

        Returns what it printed, standard error after a line [stderr]. A line such as [exit code 3] comes first, unless
        the code is 0. Each call has its own shell: `cd` and variables do not carry over, so use `directory` and `env`.
        Everything that the command started ends with it, `nohup server &` too: start a server, watcher or long build
        with `wait_seconds`, which leaves it as a run for wait_run, read_run, write_run and stop_run. A long output is
        cut to 20,000 bytes: its start, its end and lines that look like failures are shown, and read_run has the rest.
        Commands reach the roots and the system's programs, and the network only if the operator allows it; what was
        refused is explained. What it changed in files can be taken back by undo, with the id in the result. For files,
        search, git and tests prefer the tools for them, whose answers are shorter. Examples: {"command":
        "make -j4 2>&1 | tail"}; {"command": "npm start", "wait_seconds": 0}.
        """
        wants_run = wait_seconds is not None
        if trial and wants_run:
            raise InvalidArguments(
                "trial with wait_seconds: a trial ends with its call, since it does not see what changes in the roots"
                " meanwhile; leave one of them out"
            )
        default = self._limits.run_seconds_most if wants_run else self._limits.run_seconds
        waited = parameters.timeout(wait_seconds, 0, self._limits, name="wait_seconds")
        prepared = await prepare_command(command, env=env or {}, terminal=terminal, runner=self._runs.runner)
        options = replace(
            prepared.options,
            timeout_seconds=parameters.timeout(timeout_seconds, default, self._limits),
            input=feed_of(stdin, is_open=wants_run, is_terminal=prepared.options.terminal is not None),
        )
        runner = self._runs.runner
        if not prepared.is_readable:
            with await self._opened(directory) as checked:
                await require_syntax(prepared, checked, runner)
        is_confirmed = await approved(prepared.argv, options, runner=runner, place=directory, stdin=stdin, call=call)
        if self._approvals is not None:
            await ask_about_hosts(self._approvals, prepared.argv, call, line=options.line)
        opened = await self._opened(directory)
        started = StartedCommand(prepared.argv, opened, replace(options, is_confirmed=is_confirmed))
        if wants_run:
            return await self._start_job(started, waited, call)
        if trial:
            return await run_on_trial(runner.trials, started, self._run_to_end, self._roots, self._limits, call)
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
        since: parameters.MatchedFrom = None,
        call: Call = _NO_CALL,
    ) -> RunReport:
        """Wait until a run ends, or until something else happens first, and return the output that is new.

        Ends with the first of: the run ended; a new line matches `pattern`; the run listens on `port`; it printed
        nothing for `quiet_seconds`; `seconds` are over. Returns a first line with the id, the state and which of these
        it was, such as [run-86d70446 running, 1.5 s, quiet for 0.5 s]; the output follows. On a terminal these are the
        rows of the screen that changed. An unknown run is an error. To look without waiting use read_run; to give input
        and wait for the reply, write_run. Example: {"run": "run-86d70446", "port": 3000, "seconds": 60}.
        """
        job = self._runs.get(run, call.principal)
        parameters.timeout(seconds, 0, self._limits, name="seconds")
        matcher = OutputMatcher(pattern, job, self._limiter, since=since) if pattern else None
        watch = None if port is None else PortWatch(job, port, self._limiter)
        until = WaitConditions(seconds=seconds, quiet_seconds=quiet_seconds, matcher=matcher, port=watch)
        return await self._wait(job, until, call)

    @tool(Effect.READ, profiles=("dev",), title="Read output of run")
    async def read_run(
        self,
        run: parameters.RunId,
        *,
        offset: parameters.FirstLine = None,
        limit: parameters.LineCount = None,
        tail: parameters.TailLines = None,
        pattern: parameters.SoughtText = "",
        context: parameters.ContextLines = 0,
        call: Call = _NO_CALL,
    ) -> RunReport:
        """Read output of a run at once, without waiting: what is new, or the part that is asked for.

        Returns a first line with the id and state, such as [run-86d70446 exit code 0, 2.1 s]; the output follows. With
        `run` alone it is the output that no answer has shown yet: of a long one its start, its end and, if the run
        failed, the lines that look like failures; of a run on a terminal, the whole screen. Otherwise one of: lines
        from `offset` on, the last lines (`tail`), or the lines that match `pattern`. Output stays after the end of the
        run, up to 64 MiB, for 30 minutes after its last use. An unknown run is an error. To wait for more use wait_run.
        """
        job = self._runs.get(run, call.principal)
        parts = {"lines": offset or limit, "tail": tail, "pattern": pattern or None}
        given = [name for name, value in parts.items() if value is not None]
        if len(given) > 1:
            raise InvalidArguments(f"{' and '.join(given)} together: give lines (offset, limit), tail or pattern")
        most = content_bytes(self._limits)
        if pattern:
            part = await matching_lines(job, pattern, context, most, self._limiter)
        elif offset is not None or limit is not None:
            part = _lines_from(job, offset or 1, limit, most)
        elif tail is not None:
            part = last_lines(job, tail, most)
        else:
            part = await self._unreported(job, has_whole_screen=True)
        return self._report(job, excerpt=part)

    @tool(Effect.CHANGE, open_world=True, title="Give input to run")
    async def write_run(
        self,
        run: parameters.RunId,
        text: parameters.InputText,
        *,
        end: parameters.EndOfInput = False,
        seconds: parameters.AnswerLimit = 5,
        pattern: parameters.AwaitedText = "",
        quiet_seconds: parameters.AnswerSilence = None,
        call: Call = _NO_CALL,
    ) -> RunReport:
        r"""Give input to a running program, wait for what it prints in reply, and return that.

        Works for a run that run_command started with `stdin` ("" will do) or `terminal`, and `wait_seconds`. Ends with
        the first of: a line behind the input matches `pattern` (on a terminal its echo does too); something came and
        then nothing for half a second; the run ended; `seconds` are over. Returns a line with the state, then the
        output since the last answer, on a terminal the rows of the screen that changed. A line needs its newline. A run
        that has ended, or has no input, is an error. To end a run use stop_run; to wait without input, wait_run.
        Example: {"run": "run-86d70446", "text": "yes\n"}.
        """
        job = self._runs.get(run, call.principal)
        parameters.timeout(seconds, 0, self._limits, name="seconds")
        # Neither what was printed before the input nor the silence before the reply ends the wait.
        before = job.output.end
        matcher = OutputMatcher(pattern, job, self._limiter, since=before) if pattern else None
        if quiet_seconds is None and matcher is None:
            quiet_seconds = REPLY_QUIET_SECONDS
        given = _give_input(job, text, end=end)
        job.match_from(before)
        until = WaitConditions(seconds=seconds, quiet_seconds=quiet_seconds, quiet_from=before + 1, matcher=matcher)
        return await self._wait(job, until, call, given=given)

    @tool(Effect.CHANGE, idempotent=True, title="Stop run")
    async def stop_run(self, run: parameters.RunId, *, call: Call = _NO_CALL) -> RunReport:
        """End a run with every process that it started.

        Returns how it ended, and its last new output. SIGTERM first, SIGKILL after two seconds. An unknown run is an
        error. Of a run that has ended it returns the same again. To let a program end by itself, give it Ctrl-C or the
        end of its input with write_run; to read its output later use read_run.
        """
        job = self._runs.get(run, call.principal)
        job.stop("stop_run was called")
        await job.ended.wait()
        return self._report(job, excerpt=await self._unreported(job))

    @tool(Effect.READ, profiles=("all",), title="List runs")
    async def list_runs(self, *, call: Call = _NO_CALL) -> RunList:
        """List your runs, oldest first.

        Returns one line for each: id, state, seconds, bytes of output and command line. Ended runs are listed as long
        as their output is kept. Use an id with read_run, wait_run or stop_run.
        """
        return RunList(lines=[line_of(job) for job in self._runs.of(call.principal)])

    async def _wait(self, job: Job, until: WaitConditions, call: Call, *, given: str = "") -> RunReport:
        """Wait for a run and report what ended the wait; `given` says what input it got before."""
        outcome = await wait(job, until, ProgressReporter(job, call, total=until.seconds))
        self._runs.mark_used(job)
        event = ", ".join(part for part in (given, until.event(outcome)) if part)
        excerpt = await self._unreported(job)
        return self._report(job, event=event, excerpt=excerpt, kind=outcome, can_match_again=bool(given))

    async def _opened(self, directory: str) -> Directory:
        opening = partial(open_directory, self._roots, directory)
        return await anyio.to_thread.run_sync(opening, limiter=self._limiter)

    async def _start_job(self, started: StartedCommand, waited: float, call: Call) -> CommandResult | RunReport:
        """Start a run and wait for its end for a while."""
        job, outcome = await start_and_wait(self._runs, started, waited, call)
        if outcome == "exit":
            return self._result(job, await self._unreported(job))
        event = "still running: wait_run, read_run, stop_run"
        # Without a wait no output is shown, so that all of it is new to a wait_run that follows.
        excerpt = await self._unreported(job) if waited else OutputPart("")
        return self._report(job, event=event, excerpt=excerpt, kind=outcome)

    async def _run_to_end(self, started: StartedCommand, call: Call, most: int = 0) -> CommandResult:
        """`most` bytes of output are shown, by default as many as fit."""
        job = await run_to_end(self._runs, started, call)
        return self._result(
            job,
            await self._screen(job, job.screen, is_whole=True)
            if job.screen is not None
            else await finished_output(job, most or content_bytes(self._limits), self._limiter, self._redactor),
        )

    def _result(self, job: Job, excerpt: OutputPart) -> CommandResult:
        """Build the result of a command that has ended. The run is kept only if its output was cut.

        Raises:
            CoreError: why there is no result.
        """
        done = job.completed
        if job.error is not None or done is None:
            raise job.error or Conflict(f"{job.id}: the server ends")
        examined = examined_text(job) if excerpt.is_cut else excerpt.text
        summary = ExecutionSummary.of([done], excerpt.text, self._explanations, examined=examined)
        left_over = left_over_note(job)
        if not excerpt.is_cut:
            self._runs.forget(job)
            return CommandResult(summary=summary, left_over=left_over)
        self._runs.keep_finished(job)
        return CommandResult(summary=summary, run=job.id, note=excerpt.note, left_over=left_over)

    def _report(
        self, job: Job, *, excerpt: OutputPart, event: str = "", kind: str = "", can_match_again: bool = False
    ) -> RunReport:
        """Build the report on a run: its output, and explanations of its failure.

        A later `wait_run` matches only what was not shown, but may match the reply to an input.
        """
        if not can_match_again:
            skip_shown(job, excerpt.stop)
        return RunReport.of(job, event=event, excerpt=excerpt, kind=kind, notes=notes_of(job, self._explanations))

    async def _unreported(self, job: Job, *, has_whole_screen: bool = False) -> OutputPart:
        if job.report is not None and job.completed is not None:
            return OutputPart((await job.report()).text(), stop=job.output.end)
        if job.screen is not None:
            return await self._screen(job, job.screen, is_whole=has_whole_screen)
        return await new_output(job, content_bytes(self._limits), self._limiter)

    async def _screen(self, job: Job, screen: TerminalScreen, *, is_whole: bool) -> OutputPart:
        """Draw the screen of a run's terminal; return all of it, or what changed since the last answer."""
        end = job.output.end
        data = job.output.read(end - MAX_REDRAWN_BYTES, MAX_REDRAWN_BYTES)
        text = await anyio.to_thread.run_sync(screen.draw, data, end, limiter=self._limiter)
        shown, screen.shown = screen.shown, plain(text).split("\n")
        if is_whole or shown is None:
            return of_screen(job, screen.shown, end)
        return screen_changes(job, shown, screen.shown, end)


def _give_input(job: Job, text: str, *, end: bool) -> str:
    """Write to the input of a run and close it if `end`; return what was done.

    Raises:
        Conflict: the run or its input has ended. Unsupported: it has no input. Busy: too much input waits.
    """
    feed = job.feed
    data = text.encode("utf-8", "surrogatepass")
    if not job.is_alive:
        raise Conflict(f"{job.id}: has ended; read_run shows what it printed")
    if feed is None:
        raise Unsupported(f'{job.id}: was started without input; give run_command stdin ("" will do) or terminal')
    if not feed.is_open:
        raise Conflict(f"{job.id}: its input is closed")
    if len(data) > feed.room:
        raise Busy(
            f"{job.id}: {INPUT_BUFFER_BYTES - feed.room} bytes wait to be read by it; {INPUT_BUFFER_BYTES} is the most"
        )
    is_terminal = job.terminal is not None
    feed.write(data + (END_OF_TRANSMISSION if end and is_terminal else b""))
    if end and not is_terminal:
        feed.end()
    return f"{len(data)} bytes given" + (", end of input" if end else "")


def _lines_from(job: Job, offset: int | str, limit: int | None, most: int) -> OutputPart:
    """Return lines from a number on, or the output from a byte on that an answer named.

    Raises:
        InvalidArguments: no such offset; a byte together with a number of lines.
    """
    if isinstance(offset, str) and not offset.isdecimal():
        if limit is not None:
            raise InvalidArguments("limit counts whole lines: give it with the number of a line, not with LINE@BYTE")
        return from_offset(job, Cursor.parse(offset).position, most, with_line=True)
    return line_range(job, max(1, int(offset)), limit, most)
