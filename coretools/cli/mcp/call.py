"""`coretools mcp call`: check the arguments, ask for approval, call, check and print the result."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any

import mcp_types as types

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.approval import approve
from coretools.cli.mcp.line import Line, connected
from coretools.cli.mcp.output import in_line, result_json, result_text
from coretools.cli.mcp.pipeline_display import Display
from coretools.client.common.arguments import parse_arguments, parse_object
from coretools.client.common.bounded_file import read_bounded
from coretools.client.common.errors import ToolFailed
from coretools.client.configuration.launch import launch_of
from coretools.errors import BadSetting, CoreError, InvalidArguments, NotFound
from coretools.pipelines.expressions import Expressions
from coretools.pipelines.outcome import Outcome, Step, result_document
from coretools.pipelines.runner import StepRunner
from coretools.pipelines.servers import OpenOwn, ServerPool, open_pool
from coretools.pipelines.templates import as_text
from coretools.redaction.redactor import Redactor, secret_values


async def call(line: Line) -> int:
    """Call a tool.

    Raises:
        CoreError: there is no result, and the form of the output has no place for an error.
    """
    options = line.options.pipeline
    check_outputs(line)
    display = Display(line)
    async with Expressions() as expressions, server_pool(line) as pool:
        runner = StepRunner(pool, partial(approve, line), expressions, display)
        with display.progress():
            outcome = await runner.run(_step(line))
        for name, text in pool.remarks():
            line.screen.log(name, "warning", "stdout", text)
        if outcome.result is not None and outcome.error is None:
            await set_outputs(line, expressions, result_document(outcome.result))
    if options.record is not None:
        from coretools.pipelines.recording import (
            recording_of,
            write_recording,  # imported late, as above
        )

        write_recording(recording_of(outcome.step.title, [outcome], redactor_of(line), options.ignored), options.record)
    code = _print(line, outcome)
    return display.finish(outcome.step.title, [outcome]) or code


def check_outputs(line: Line) -> None:
    """Refuse `--set-output` where there is no step to set an output of, before anything is called.

    Raises:
        BadSetting: this is no step of GitHub Actions.
    """
    if line.options.pipeline.outputs:
        from coretools.pipelines.github import output_file  # imported late: most lines set none

        output_file(line.environment)


async def set_outputs(line: Line, expressions: Expressions, document: Any = None) -> None:
    """Set the outputs of a step of GitHub Actions; None for the document that the expressions have."""
    if not line.options.pipeline.outputs:
        return
    from coretools.pipelines.github import append_outputs  # imported late: most lines set none

    if document is not None:
        await expressions.put((), document)
    values = {name: as_text(await expressions.select(text)) for name, text in line.options.pipeline.outputs}
    append_outputs(line.environment, values)


def server_pool(line: Line, open_own: OpenOwn | None = None) -> AbstractAsyncContextManager[ServerPool]:
    """Return the servers of a line, each connected when it is first used."""
    return open_pool(line.startable, lambda entry: connected(line, [entry]), open_own, line.environment)


def redactor_of(line: Line) -> Redactor:
    """Return what removes the credentials of this process and of all servers of a line."""
    values = secret_values(line.environment)
    for entry in line.configuration.effective:
        with suppress(CoreError):  # one that can't be started has told nobody its credentials
            values += launch_of(entry, line.environment, line.options.inputs).secrets
    return Redactor(values)


def _step(line: Line) -> Step:
    options = line.options.pipeline
    server, tool, *words = line.options.words

    if words and options.arguments is not None:
        raise InvalidArguments(f"--args: has all arguments; leave out {words[0][:80]!r}")

    def make_arguments(declared: types.Tool) -> Mapping[str, Any]:
        if options.arguments is not None:
            return parse_object(options.arguments, _read_file)
        return parse_arguments(words, declared.input_schema, _read_file)

    return Step(
        id="call",
        server=server,
        tool=tool,
        retries=options.retries,
        retries_any=options.retries_any,
        assertions=options.assertions,
        expects_error=options.expects_error,
        make_arguments=make_arguments,
    )


def _print(line: Line, outcome: Outcome) -> int:
    """Print a result as text or JSON, and why it is not as wanted; the other forms are reports.

    Raises:
        CoreError: there is no result.
    """
    output, result, error = line.options.pipeline.output, outcome.result, outcome.error
    if result is None:
        if error is not None and output in ("text", "json"):
            raise error
        print_error(in_line(str(error)))
        return 0
    # What the tool itself reported is in its result.
    failed = None if isinstance(error, ToolFailed) else error
    if failed is not None:
        print_error(in_line(str(failed)))
    if output == "json":
        shown = None if failed is None else {"kind": failed.kind, "message": str(failed)}
        return print_text(result_json(outcome.step.server, outcome.step.tool, result, shown))
    text = result_text(result) if output == "text" else ""
    return print_text(text) if text else 0


def _read_file(path: str) -> str:
    try:
        return read_bounded("/dev/stdin" if path == "-" else path, is_pipe_allowed=True).decode()
    except BadSetting as error:
        raise NotFound(str(error)) from error
    except UnicodeDecodeError as error:
        raise InvalidArguments(f"{path}: not UTF-8 text") from error
