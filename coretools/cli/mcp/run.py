"""`coretools run`: run the steps of a script, check it, or replay a recording."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.shared.dispatcher import ProgressFnT

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.approval import approve
from coretools.cli.mcp.call import check_outputs, redactor_of, server_pool, set_outputs
from coretools.cli.mcp.line import Line
from coretools.cli.mcp.output import in_line
from coretools.cli.mcp.pipeline_display import Display, rendered
from coretools.client.common.bounded_file import read_bounded
from coretools.client.common.failures import FAULTS, explained
from coretools.config.options import settings_from, working_directory
from coretools.errors import CoreError, InvalidArguments
from coretools.pipelines.expressions import Expressions
from coretools.pipelines.outcome import Outcome
from coretools.pipelines.recording import Recording, read_recording, recording_of, write_recording
from coretools.pipelines.replay import Comparison, RecordedServers, approve_recorded, steps_of
from coretools.pipelines.runner import Caller, Servers, StepRunner
from coretools.pipelines.script import LoadedScript, load_script
from coretools.pipelines.script_runner import Retries, ScriptRunner, variables_of
from coretools.pipelines.servers import OWN, ServerPool
from coretools.pipelines.templates import queries_in
from coretools.pipelines.yaml_file import MAX_BYTES
from coretools.redaction.redactor import Redactor


async def run(line: Line) -> int:
    """Run a script, or replay a recording.

    Raises:
        BadSetting: it can't be used. InvalidArguments: the line does not fit it.
    """
    options, words = line.options.pipeline, line.options.words
    recording = read_recording(options.replay) if options.replay else None
    if not words and (recording is None or options.offline):
        raise InvalidArguments("run: name a script, such as `coretools run steps.yaml`, or --replay FILE")
    if recording is None and options.offline:
        raise InvalidArguments("run: --offline needs --replay FILE")
    check_outputs(line)
    loaded = load_script(read_bounded(words[0], MAX_BYTES), words[0]) if words else None
    async with Expressions() as expressions:
        if loaded is not None and options.checks_only:
            return await _check(line, loaded, expressions)
        return await _Run(line, loaded, recording, expressions).run()


class _Run:
    """One run of a script, of a recording, or of a script beside its recording."""

    def __init__(
        self, line: Line, loaded: LoadedScript | None, recording: Recording | None, expressions: Expressions
    ) -> None:
        self._line = line
        self._loaded = loaded
        self._recording = recording
        self._expressions = expressions
        self._display = Display(line, is_script=True)
        is_kept = recording is not None or line.options.pipeline.record is not None
        self._redactor = redactor_of(line) if is_kept else Redactor()
        self._comparison: Comparison | None = None
        ignored = line.options.pipeline.ignored
        if recording is not None:
            self._comparison = Comparison(recording, expressions, self._redactor, ignored)
        self.name = loaded.name if loaded is not None else recording.name if recording is not None else ""

    async def run(self) -> int:
        """Run all steps, print and write what the line wants; return the exit code."""
        options = self._line.options.pipeline
        async with self._servers() as servers:
            approve_call = approve_recorded if options.offline else partial(approve, self._line)
            verify = None if self._comparison is None else self._comparison.verify
            steps = StepRunner(servers, approve_call, self._expressions, self._display, verify)
            with self._display.progress():
                outcomes = await self._outcomes(steps)
            for name, text in servers.remarks() if isinstance(servers, ServerPool) else ():
                self._line.screen.log(name, "warning", "stdout", text)
        await set_outputs(self._line, self._expressions)
        if options.record is not None:
            write_recording(recording_of(self.name, outcomes, self._redactor, options.ignored), options.record)
        if options.output == "json":
            print_text(rendered("json", self.name, outcomes))
        return self._display.finish(self.name, outcomes)

    @asynccontextmanager
    async def _servers(self) -> AsyncIterator[Servers]:
        line = self._line
        if line.options.pipeline.offline and self._recording is not None:
            yield RecordedServers(self._recording, self._redactor)
            return
        async with server_pool(line, partial(own_server, line)) as pool:
            yield pool

    async def _outcomes(self, steps: StepRunner) -> list[Outcome]:
        if self._loaded is not None:
            options = self._line.options.pipeline
            script = ScriptRunner(self._loaded, steps, self._expressions, self._display)
            variables = variables_of(self._loaded, options.variables)
            await script.run(variables, self._line.environment, Retries(options.retries, options.retries_any))
            outcomes = script.outcomes
        else:
            assert self._recording is not None
            outcomes = [await steps.run(step) for step in steps_of(self._recording)]
        missing = self._comparison.missing() if self._comparison is not None else []
        for outcome in missing:
            await self._display.on_end(outcome)
        return [*outcomes, *missing]


async def _check(line: Line, loaded: LoadedScript, expressions: Expressions) -> int:
    """Check expressions, variables and servers; start and call nothing."""
    variables_of(loaded, line.options.pipeline.variables)
    problems: list[CoreError] = []
    for index, step in enumerate(loaded.script.steps):
        where = f"{loaded.file}:{loaded.line_of(index)}: step {loaded.step_id(index)!r}"
        try:
            if step.server != OWN:
                line.startable(step.server)
            for text in step.predicates:
                if not queries_in(text):  # else its form depends on values
                    await expressions.compile(text, is_predicate=True)
            for query in step.queries:
                await expressions.compile(query, is_predicate=False)
        except CoreError as error:
            problems.append(error)
            print_error(in_line(f"{where}: {error}"))
    if not problems:
        line.screen.say(f"{loaded.file}: {len(loaded.script.steps)} steps, nothing to object to; nothing was called")
    return problems[0].exit_code if problems else 0


class OwnServer:
    """Our own tools in this process, as a `Caller`."""

    def __init__(self, client: Client) -> None:
        self.name = OWN
        self.identity = OWN
        self._client = client

    async def tools(self) -> list[types.Tool]:
        """Return all tools."""
        return (await self._client.list_tools()).tools

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT | None = None
    ) -> types.CallToolResult:
        """Call a tool.

        Raises:
            CoreError: the call was refused.
        """
        try:
            return await self._client.call_tool(tool, arguments, progress_callback=on_progress)
        except FAULTS as error:
            kind, text = explained(error)
            raise kind(f"server {OWN!r}: call {tool}: {text}") from error


@asynccontextmanager
async def own_server(line: Line) -> AsyncIterator[Caller]:
    """Yield our own tools, for the directories of `--root` or the current one."""
    # Imported late: the tools take half a second to load, and most scripts are about other servers.
    from coretools.cli.common.global_options import global_parser
    from coretools.cli.common.list_tools import in_process

    options = global_parser().parse_args([f"--root={root}" for root in line.options.roots])
    settings = settings_from(options, options.root or (), line.environment, working_directory())
    async with in_process(settings) as client:
        yield OwnServer(client)
