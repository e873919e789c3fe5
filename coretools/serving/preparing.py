"""What a server says of itself when it starts, and has ready before the first command."""

import logging

from coretools.call import LOCAL
from coretools.process.keeper import Holding
from coretools.serving.assembly import Assembly
from coretools.settings import Settings

logger = logging.getLogger(__name__)


def announce(assembly: Assembly, settings: Settings, name: str = "") -> None:
    """Say what is served, and which protections are missing. `name` is the role, where there are several."""
    roots = ", ".join(f"{root.path} ({'rw' if root.writable else 'ro'})" for root in assembly.roots)
    protections = {**assembly.runner.protections, "git-confinement": assembly.domains.is_possible}
    missing = ", ".join(name for name, there in protections.items() if not there) or "none"
    logger.info(
        "serving %s%s; profile %s%s; paths by %s; missing protections, those of commands apart: %s",
        f"{name}: " if name else "",
        roots,
        settings.profile,
        ", read-only" if settings.read_only else "",
        assembly.roots.resolver,
        missing,
    )


async def require(assembly: Assembly) -> None:
    """Refuse to serve where commands can't be held as the operator requires.

    Raises:
        Unconfined: they can't.
    """
    await _found(assembly)
    assembly.keeper.require()


async def prepare(assembly: Assembly, name: str = "") -> None:
    """Find the tier and have a command waiting while the client still introduces itself; say what was found.

    `name` is the role, where there are several.
    """
    holding = await _found(assembly)
    if holding is None:
        return
    role = f"{name}: " if name else ""
    level = logging.INFO if holding.tier == "full" else logging.WARNING
    missing = "".join(f"; not {tier}: {why}" for tier, why in holding.missing.items())
    logger.log(level, "%scommands are held in tier %s%s", role, holding.tier, missing)
    logger.info("%snetwork: %s", role, assembly.network.state(holding.tier))
    for why in holding.polled:
        logger.warning("%sdirectories are polled for changes before each command: %s", role, why)
    if not holding.is_permitted:
        logger.warning("%sno command is run in tier %s (--allow-unconfined, --require-tier)", role, holding.tier)


async def _found(assembly: Assembly) -> Holding | None:
    """How commands are held, where some are offered."""
    if assembly.graph.offer(LOCAL).find("run_command") is None:
        return None
    return await assembly.runner.prepare()
