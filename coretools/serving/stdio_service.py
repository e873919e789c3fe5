"""One server on one pair of standard streams, from its first line to its clean end."""

import logging
from collections.abc import Mapping

from coretools.serving.assembly import Assembly, assembled
from coretools.serving.ending import Ending, until_signalled
from coretools.serving.server import build_server
from coretools.serving.stdio import standard_streams_claimed, stdio_streams
from coretools.settings import Settings

logger = logging.getLogger(__name__)


async def serve_stdio(settings: Settings, environment: Mapping[str, str]) -> int:
    """Serve on fd 0 and fd 1 until the client closes its end or a signal comes; every child is gone then.

    Returns:
        The exit code of the process.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    ending = Ending()
    with standard_streams_claimed() as wire:
        async with assembled(settings, environment) as assembly:
            server = build_server(assembly.dispatcher, assembly.instructions)
            _announce(assembly, settings)
            async with (
                until_signalled(ending),
                stdio_streams(wire, settings.limits.line_bytes, ending.begin) as streams,
            ):
                await server.run(*streams, server.create_initialization_options())
            ending.begin()
    return ending.exit_code


def _announce(assembly: Assembly, settings: Settings) -> None:
    roots = ", ".join(f"{root.path} ({'rw' if root.writable else 'ro'})" for root in assembly.roots)
    missing = ", ".join(name for name, there in assembly.runner.protections.items() if not there) or "none"
    logger.info(
        "serving %s; profile %s%s; paths by %s; commands and git run unconfined by the kernel; missing protections: %s",
        roots,
        settings.profile,
        ", read-only" if settings.read_only else "",
        assembly.roots.resolver,
        missing,
    )
