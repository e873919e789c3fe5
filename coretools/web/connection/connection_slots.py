"""How many connections there are at once: so many in all, and of one address no more than its share of them."""

import ipaddress
import logging
import resource
from collections import Counter
from collections.abc import Sequence

from coretools.errors import BadSetting

SHARE = 4
"""One address gets a quarter: it takes four that mean harm to keep everybody out, and one team behind one address can
still work."""

LOOPBACK = ("127.0.0.0/8", "::1/128")
"""Without a share: whoever is on this machine can harm it otherwise, and a proxy on it stands for many clients."""

_PREFIX_V6 = 64  # one subscriber's network; the addresses in it cost him nothing (RFC 6177)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ConnectionSlots:
    """Places for connections. Each that is taken is given back."""

    def __init__(self, capacity: int, *, shared: Sequence[str] = LOOPBACK) -> None:
        """`shared` are addresses and networks that stand for many clients: they have no share, only the whole.

        Raises:
            BadSetting: one of them is neither an address nor a network.
        """
        self._capacity = capacity
        self._share = max(capacity // SHARE, 1)
        self._shared = tuple(_network(one) for one in shared)
        self._taken = 0
        self._by_address: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Connections now."""
        return self._taken

    def acquire(self, address: str | None) -> str | None:
        """A place for a connection from an address (none: a socket of this machine). What to give back, or None."""
        key = self._key(address)
        if self._taken >= self._capacity or (key and self._by_address[key] >= self._share):
            return None
        self._taken += 1
        if key:
            self._by_address[key] += 1
        return key

    def release(self, key: str) -> None:
        """The connection is gone."""
        self._taken -= 1
        if key:
            self._by_address[key] -= 1
            if not self._by_address[key]:
                del self._by_address[key]

    def _key(self, address: str | None) -> str:
        """By what an address has a share; empty where it has none."""
        if address is None:
            return ""
        host = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
            host = host.ipv4_mapped
        if any(host in network for network in self._shared):
            return ""
        if isinstance(host, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((host, _PREFIX_V6), strict=False))
        return str(host)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise BadSetting(f"{text[:200]}: neither an address nor a network") from error


# How many connections the system lets a process have: each is a descriptor, and commands need some too.


RESERVE = 1024
"""For roots, files that are read, pipes of children, the engine. With less than twice as many in all, half is kept."""

TAKEN = 128
"""Connections that the event loop takes at once, before it asks any whether there is a place for it. The next ones come
before those without a place are closed: four times as many descriptors may be used by then."""

TURNS = 4

logger = logging.getLogger(__name__)


def usable_slots(connections: int) -> int:
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


def accept_backlog(places: int) -> int:
    """So many connections that with all places taken they leave half of the other descriptors for calls.

    Where none is left asyncio logs a traceback for each connection that it would have taken, and takes none for a
    second: strangers that only connect would fill the log, and keep everybody out.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return TAKEN
    return max(1, min(TAKEN, (soft - places) // (2 * TURNS)))
