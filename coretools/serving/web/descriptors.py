"""How many connections the system lets a process have: each is a descriptor, and commands need some too."""

import logging
import resource

RESERVE = 1024
"""For roots, files that are read, pipes of children, the engine. With less than twice as many in all, half is kept."""

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
