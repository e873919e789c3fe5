"""One server on one pair of standard streams, from its first line to its clean end."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from coretools.call import LOCAL
from coretools.registry import Registry
from coretools.serving.assembly import Assembly, assembled
from coretools.serving.ending import Ending
from coretools.serving.server import build_server
from coretools.serving.stdio import standard_streams_claimed
from coretools.serving.wire import run_on_wire
from coretools.settings import Settings

logger = logging.getLogger(__name__)


async def serve_stdio(settings: Settings, environment: Mapping[str, str], others: Sequence[Registry] = ()) -> int:
    """Serve on fd 0 and fd 1 until the client closes its end or a signal comes; every child is gone then.

    `others` are registries of other people, served beside our tools.

    Returns:
        The exit code of the process.

    Raises:
        BadSetting: a root or another setting can't be used.
        Unconfined: commands can't be held as the operator requires.
    """
    ending = Ending()
    with standard_streams_claimed() as wire:
        async with assembled(settings, environment, others) as assembly:
            server = build_server(
                assembly.graph,
                assembly.dispatcher,
                assembly.identity,
                assembly.resources,
                extensions=assembly.extensions(settings.asking),
                asking=settings.asking,
            )
            _announce(assembly, settings)
            if settings.policy.confinement.require is not None:
                await _prepare(assembly)
                assembly.keeper.require()
            beside = (partial(_prepare, assembly),)
            await run_on_wire(server, wire, line_bytes=settings.limits.line_bytes, ending=ending, beside=beside)
    return ending.exit_code


def _announce(assembly: Assembly, settings: Settings) -> None:
    roots = ", ".join(f"{root.path} ({'rw' if root.writable else 'ro'})" for root in assembly.roots)
    protections = {**assembly.runner.protections, "git-confinement": assembly.domains.is_possible}
    missing = ", ".join(name for name, there in protections.items() if not there) or "none"
    logger.info(
        "serving %s; profile %s%s; paths by %s; missing protections: %s",
        roots,
        settings.profile,
        ", read-only" if settings.read_only else "",
        assembly.roots.resolver,
        missing,
    )


async def _prepare(assembly: Assembly) -> None:
    """Find the tier and have a command waiting while the client still introduces itself; say what was found."""
    if assembly.graph.offer(LOCAL).find("run_command") is None:
        return
    holding = await assembly.runner.prepare()
    level = logging.INFO if holding.tier == "full" else logging.WARNING
    missing = "".join(f"; not {tier}: {why}" for tier, why in holding.missing.items())
    logger.log(level, "commands are held in tier %s%s", holding.tier, missing)
    if not holding.is_permitted:
        logger.warning("no command is run in tier %s (--allow-unconfined, --require-tier)", holding.tier)
