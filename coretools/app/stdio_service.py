"""Serve the built-in tools on stdio, from start to orderly exit."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mcp.server.lowlevel import Server

from coretools.app.assembly import Assembly, log_start, open_assembly, prepare, require_tier
from coretools.app.upstreams import loop_guard, with_upstreams
from coretools.config.agent_reach import files_of_installation, require_out_of_reach
from coretools.config.settings import Settings
from coretools.operations.registry import Registry
from coretools.protocol.process_exit import ProcessExit
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerOptions, build_server
from coretools.protocol.stdio.transport import claim_standard_streams, run_on_stdio


async def serve_stdio(settings: Settings, environment: Mapping[str, str], registries: Sequence[Registry] = ()) -> int:
    """Serve on fd 0 and fd 1 until the client closes its end or a signal arrives; every child process is gone then.

    `registries` are served in addition to the built-in tools.

    Returns:
        The exit code of the process.

    Raises:
        BadSetting: a root or another setting can't be used, or tools or commands could change the server's own modules.
        Unconfined: commands can't be confined as the operator requires.
    """
    require_out_of_reach(files_of_installation(), [settings])
    process_exit = ProcessExit()
    with claim_standard_streams() as descriptors:
        async with (
            with_upstreams(settings, environment, registries) as registries,
            open_assembly(settings, environment, registries) as assembly,
        ):
            questions = QuestionFactory(settings.asking)
            options = ServerOptions(
                runs=assembly.resources,
                extensions=assembly.extensions(questions),
                questions=questions,
                middleware=loop_guard(settings),
                has_one_client=True,
            )
            server = build_server(assembly.catalog, assembly.dispatcher, assembly.identity, options)
            log_start(assembly)
            if settings.policy.confinement.require is not None:
                await require_tier(assembly)
            work = (partial(_prepare, assembly, server),)
            await run_on_stdio(
                server, descriptors, line_bytes=settings.limits.line_bytes, process_exit=process_exit, background=work
            )
    return process_exit.exit_code


async def _prepare(assembly: Assembly, server: Server[Any]) -> None:
    """Prepare for the first command; the instructions then name the tier."""
    await prepare(assembly)
    server.instructions = assembly.instructions
