"""What a server says of itself when it starts, and has ready before the first command."""

import logging

from coretools.call import LOCAL
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


async def prepare(assembly: Assembly) -> None:
    """Find the tier and have a command waiting while the client still introduces itself; say what was found."""
    if assembly.graph.offer(LOCAL).find("run_command") is None:
        return
    holding = await assembly.runner.prepare()
    level = logging.INFO if holding.tier == "full" else logging.WARNING
    missing = "".join(f"; not {tier}: {why}" for tier, why in holding.missing.items())
    logger.log(level, "commands are held in tier %s%s", holding.tier, missing)
    logger.info("network: %s", assembly.network.state(holding.tier))
    for why in holding.polled:
        logger.warning("directories are polled for changes before each command: %s", why)
    if not holding.is_permitted:
        logger.warning("no command is run in tier %s (--allow-unconfined, --require-tier)", holding.tier)
