"""Limits concurrent connections, in total and for one address."""

import ipaddress
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
