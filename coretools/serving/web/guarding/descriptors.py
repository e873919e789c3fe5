"""How many connections the system lets a process have: each is a descriptor, and commands need some too."""

import logging
import resource

RESERVE = 1024
"""For roots, files that are read, pipes of children, the engine. With less than twice as many in all, half is kept."""

TAKEN = 128
"""Connections that the event loop takes at once, before it asks any whether there is a place for it. The next ones come
before those without a place are closed: four times as many descriptors may be used by then."""

TURNS = 4

logger = logging.getLogger(__name__)


def places_for(connections: int) -> int:
    """So many of the connections as there are descriptors for; the soft limit is raised as far as that helps.

    Without it strangers that only connect would leave none for the calls of others: 1,024 is a usual soft limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return connections
    places = min(connections, max(soft - RESERVE, soft // 2))
    if places < connections:
        logger.warning("limits.connections: %d, not %d: the process may have %d descriptors", places, connections, soft)
    return places


def taken_at_once(places: int) -> int:
    """So many connections that with all places taken they leave half of the other descriptors for calls.

    Where none is left asyncio logs a traceback for each connection that it would have taken, and takes none for a
    second: strangers that only connect would fill the log, and keep everybody out.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return TAKEN
    return max(1, min(TAKEN, (soft - places) // (2 * TURNS)))
