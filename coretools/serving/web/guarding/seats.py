"""How many connections there are at once: so many in all, and of one address no more than its share of them."""

import ipaddress
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


class Seats:
    """Places for connections. Each that is taken is given back."""

    def __init__(self, places: int, *, many: Sequence[str] = LOOPBACK) -> None:
        """`many` are addresses and networks that stand for many clients: they have no share, only the whole.

        Raises:
            BadSetting: one of them is neither an address nor a network.
        """
        self._places = places
        self._share = max(places // SHARE, 1)
        self._many = tuple(_network(one) for one in many)
        self._taken = 0
        self._by_address: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Connections now."""
        return self._taken

    def take(self, address: str | None) -> str | None:
        """A place for a connection from an address (none: a socket of this machine). What to give back, or None."""
        key = self._key(address)
        if self._taken >= self._places or (key and self._by_address[key] >= self._share):
            return None
        self._taken += 1
        if key:
            self._by_address[key] += 1
        return key

    def give(self, key: str) -> None:
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
        if any(host in network for network in self._many):
            return ""
        if isinstance(host, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((host, _PREFIX_V6), strict=False))
        return str(host)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise BadSetting(f"{text[:200]}: neither an address nor a network") from error
