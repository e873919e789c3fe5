"""How many wrong tokens came from an address within a minute, so that one who tries them out must wait.

Only wrong tokens are counted and only they are made to wait (ADR 0021): a good one is verified first. A token counts
once, however often it comes. What is kept is bounded, in addresses and for each of them.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 2_048
"""Of more, the one that failed longest ago is forgotten."""

NETWORK_BITS = 64
"""Of IPv6: everybody has as many addresses of his own (RFC 4291, 2.5.4)."""


class FailureLimiter:
    """The wrong tokens of the last minute."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._seen: OrderedDict[str, dict[int, float]] = OrderedDict()

    def noted(self, address: str, token: str) -> float:
        """Count a wrong token, which is not kept. How long its address must wait; 0.0 when it need not."""
        group = address_group(address)
        seen = self._within(group)
        if len(seen) >= self._per_minute:
            return min(seen.values()) + WINDOW_SECONDS - self._clock()
        # Hashes of text differ in each process and can't be foreseen (PYTHONHASHSEED).
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
    """Which addresses are counted together: one of IPv4, a network of IPv6. What is no address stands for itself."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))
