"""`coretools run`: run the steps of a script, check it, or replay a recording."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.shared.dispatcher import ProgressFnT

from coretools.cli.mcp_approval import approve
from coretools.cli.mcp_line import Line, connected
from coretools.cli.mcp_output import in_line
from coretools.cli.pipeline_display import Display, rendered
from coretools.cli.terminal import print_error, print_text
from coretools.client.failures import FAULTS, explained
from coretools.config.options import settings_from, working_directory
from coretools.errors import BadSetting, CoreError, InvalidArguments
from coretools.pipelines.expressions import Expressions
from coretools.pipelines.github import append_outputs, parse_output
from coretools.pipelines.runner import Caller, StepRunner
from coretools.pipelines.script import LoadedScript, load_script
from coretools.pipelines.script_runner import Retries, ScriptRunner, variables_of
from coretools.pipelines.servers import OWN, open_pool
from coretools.pipelines.templates import as_text, queries_in
from coretools.pipelines.yaml_file import MAX_BYTES


async def run(line: Line) -> int:
    """Run a script.

    Raises:
        BadSetting: it can't be used. InvalidArguments: the line does not fit it.
    """
    if len(line.options.words) != 1:
        raise InvalidArguments("run: name one script, such as `coretools run steps.yaml`")
    loaded = load_script(_read(line.options.words[0]), line.options.words[0])
    async with Expressions() as expressions:
        return await (_check if line.options.pipeline.checks_only else _run)(line, loaded, expressions)


async def _run(line: Line, loaded: LoadedScript, expressions: Expressions) -> int:
    options = line.options.pipeline
    wanted = dict(map(parse_output, options.outputs))
    variables = variables_of(loaded, options.variables)
    display = Display(line, is_script=True)
    open_server = partial(_open_server, line)
    async with open_pool(line.startable, open_server, partial(own_server, line), line.environment) as pool:
        steps = StepRunner(pool, partial(approve, line), expressions, display)
        script = ScriptRunner(loaded, steps, expressions, display)
        with display.progress():
            await script.run(variables, line.environment, Retries(options.retries, options.retries_any))
        for name, text in pool.remarks():
            line.screen.log(name, "warning", "stdout", text)
        values = {name: as_text(await expressions.select(text)) for name, text in wanted.items()}
    append_outputs(line.environment, values)
    if options.output == "json":
        print_text(rendered("json", loaded.name, script.outcomes))
    return display.finish(loaded.name, script.outcomes)


def _open_server(line: Line, entry: Any) -> Any:
    return connected(line, [entry])


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
            kind, text = explained(error, 0)
            raise kind(f"server {OWN!r}: call {tool}: {text}") from error


@asynccontextmanager
async def own_server(line: Line) -> AsyncIterator[Caller]:
    """Yield our own tools, for the directories of `--root` or the current one."""
    # Imported late: the tools take half a second to load, and most scripts are about other servers.
    from coretools.cli.global_options import global_parser
    from coretools.cli.list_tools import in_process

    options = global_parser().parse_args([f"--root={root}" for root in line.options.roots])
    settings = settings_from(options, options.root or (), line.environment, working_directory())
    async with in_process(settings) as client:
        yield OwnServer(client)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadSetting(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
