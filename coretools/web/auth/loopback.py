"""Which hosts are this machine itself, by their name or address alone. Nothing is resolved here."""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from coretools.errors import BadSetting

LOOPBACK_NAME = "localhost"

_WRITTEN = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
"""What a URL is written in (RFC 3986, 2). A backslash is a slash to some readers and part of a name to others."""


def is_loopback(host: str) -> bool:
    """Whether a host can't be reached from another machine: `localhost` (RFC 6761, 6.3) or an address of loopback."""
    host = host.removeprefix("[").removesuffix("]")
    if host.lower() == LOOPBACK_NAME:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def parsed_url(url: str, *, is_plain_allowed: bool = False) -> SplitResult:
    """The parts of an `https` URL, or an `http` one of this machine.

    Raises:
        BadSetting: it is none, or it names a user or a fragment.
    """
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0  # `port` raises for one that is none
    except ValueError:
        is_whole = False
    if not is_whole or not _WRITTEN.fullmatch(url):
        raise BadSetting(f"{url[:200]}: no https URL")
    if "@" in parts.netloc or "#" in url:
        raise BadSetting(f"{url[:200]}: a user or a fragment can't stand in this URL")
    is_safe = is_plain_allowed or parts.scheme == "https" or is_loopback(str(parts.hostname))
    if not is_safe:
        raise BadSetting(f"{url[:200]}: https is needed beyond loopback")
    return parts
