"""How many connections the file descriptors of the process allow: every connection needs one, and so do calls."""

import logging
import resource

RESERVE = 1024
"""Descriptors kept for roots, files, pipes of children and Redis; half of all if there are fewer than twice as many."""

TAKEN = 128
"""Connections that the event loop accepts at once, before any is checked for a slot. More are accepted before those
without a slot are closed: four times as many descriptors may be in use by then."""

TURNS = 4

logger = logging.getLogger(__name__)


def usable_slots(connections: int) -> int:
    """Return how many of the connections there are descriptors for, after raising the soft limit as far as useful.

    Otherwise strangers that only connect could use up the descriptors that calls need: 1,024 is a usual soft limit.
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


def accept_backlog(places: int) -> int:
    """Return how many connections to accept at once, so that half of the spare descriptors stay free for calls.

    Without a descriptor asyncio logs a traceback for each connection that it can't accept, and accepts none for a
    second: strangers that only connect would fill the log and keep everybody out.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return TAKEN
    return max(1, min(TAKEN, (soft - places) // (2 * TURNS)))
