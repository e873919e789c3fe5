"""Limits concurrent connections, in total and for one address."""

import ipaddress
import logging
import resource
from collections import Counter
from collections.abc import Sequence

from coretools.egress.hosts import subscriber, system_address
from coretools.errors import BadSetting

SHARE = 4
"""One address gets a quarter of the slots: it takes four hostile addresses to keep everybody out, and a team behind one
address can still work."""

LOOPBACK = ("127.0.0.0/8", "::1/128")
"""No share limits these: a local user has other ways to harm this machine, and a local proxy serves many clients."""


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ConnectionSlots:
    """Counts connections against a capacity and a share for each address."""

    def __init__(self, capacity: int, *, shared: Sequence[str] = LOOPBACK) -> None:
        """`shared` are addresses and networks that stand for many clients: no share limits them.

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
        """Current connections."""
        return self._taken

    def acquire(self, address: str | None) -> str | None:
        """Take a slot for an address (None: a Unix socket). Return the key for `release`, or None if none is free."""
        key = self._key(address)
        if self._taken >= self._capacity or (key and self._by_address[key] >= self._share):
            return None
        self._taken += 1
        if key:
            self._by_address[key] += 1
        return key

    def release(self, key: str) -> None:
        """Give the slot of a closed connection back."""
        self._taken -= 1
        if key:
            self._by_address[key] -= 1
            if not self._by_address[key]:
                del self._by_address[key]

    def _key(self, address: str | None) -> str:
        """Return what the share of an address is counted by; empty if no share limits it."""
        if address is None:
            return ""
        host = system_address(address)
        return "" if any(host in network for network in self._shared) else subscriber(host)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise BadSetting(f"{text[:200]}: neither an address nor a network") from error


# Every connection needs a file descriptor, and so do calls.

RESERVE = 1024
"""Descriptors kept for roots, files, pipes of children and Redis; half of all if there are less than twice as many."""

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
