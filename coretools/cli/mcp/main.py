"""Run one line of `coretools mcp`. Loads the SDK; `options` parses the line without it."""

import logging
import os

import anyio

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.approvals import approvals, approve
from coretools.cli.mcp.background import refresh, restart, start, stop
from coretools.cli.mcp.call import call
from coretools.cli.mcp.content import complete, list_prompts, list_resources, prompt, read
from coretools.cli.mcp.line import Line
from coretools.cli.mcp.listing import doctor, list_servers, list_tools, ping
from coretools.cli.mcp.login import login, logout
from coretools.cli.mcp.logs import logs
from coretools.cli.mcp.options import McpOptions
from coretools.cli.mcp.output import as_json, in_line
from coretools.cli.mcp.trust import trust
from coretools.config.logs import configure_logging
from coretools.errors import CoreError
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal


async def _run_script(line: Line) -> int:
    from coretools.cli.mcp.run import run  # imported late: scripts, YAML and recordings take 50 ms

    return await run(line)


_ACTIONS = {
    "list": list_servers,
    "tools": list_tools,
    "call": call,
    "resources": list_resources,
    "read": read,
    "prompts": list_prompts,
    "prompt": prompt,
    "complete": complete,
    "start": start,
    "stop": stop,
    "restart": restart,
    "refresh": refresh,
    "logs": logs,
    "ping": ping,
    "trust": trust,
    "approve": approve,
    "approvals": approvals,
    "login": login,
    "logout": logout,
    "doctor": doctor,
    "run": _run_script,
}


def mcp(options: McpOptions) -> int:
    """Run the line; return the exit code.

    Raises:
        BadSetting: the configuration file that it names can't be used.
    """
    configure_logging("error", os.environ)
    # What the SDK logs as an error is a traceback; the failure of the call says the same in one sentence.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    return anyio.run(_run, options)


async def _run(options: McpOptions) -> int:
    line = Line.of(options, dict(os.environ))
    for problem in line.configuration.problems:
        print_error(in_line(problem))
    process_exit = ProcessExit()
    exit_code = 0
    failure: CoreError | None = None
    async with cancel_on_signal(process_exit):
        try:
            exit_code = await _ACTIONS[options.action](line)
        except CoreError as error:
            failure = error
    process_exit.cancel_deadline()
    if failure is None or process_exit.exit_code:
        return process_exit.exit_code or exit_code
    if options.as_json:
        print_text(as_json({"ok": False, "error": {"kind": failure.kind, "message": str(failure)}}))
    print_error(in_line(str(failure)))
    return failure.exit_code
