"""Limits the wrong tokens from one address within a minute, to slow down guessing.

Only wrong tokens are counted and delayed (ADR 0021): a valid one is verified first. A token counts once.
The number of addresses, and of tokens for each, is bounded.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 2_048
"""Addresses remembered; beyond it the one with the oldest failure is forgotten."""

NETWORK_BITS = 64
"""IPv6 addresses are grouped by this prefix: every subscriber has that many of them (RFC 4291, 2.5.4)."""


class FailureLimiter:
    """Counts the wrong tokens of the last minute, by address."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._seen: OrderedDict[str, dict[int, float]] = OrderedDict()

    def record(self, address: str, token: str) -> float:
        """Count a wrong token without keeping it; return the seconds that its address must wait."""
        group = address_group(address)
        seen = self._within(group)
        if len(seen) >= self._per_minute:
            return min(seen.values()) + WINDOW_SECONDS - self._clock()
        # Hashes of strings differ in each process and are unpredictable (PYTHONHASHSEED).
        seen.setdefault(hash(token), self._clock())
        self._seen[group] = seen
        self._seen.move_to_end(group)
        while len(self._seen) > MOST_ADDRESSES:
            self._seen.popitem(last=False)
        return 0.0

    def _within(self, group: str) -> dict[int, float]:
        begin = self._clock() - WINDOW_SECONDS
        return {digest: at for digest, at in self._seen.get(group, {}).items() if at > begin}


def address_group(address: str) -> str:
    """Return the group that an address is counted in: an IPv4 address, an IPv6 network, or the text itself."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))
