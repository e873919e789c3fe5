"""URLs and hosts by their text alone; nothing is resolved here."""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from coretools.errors import BadSetting

DEFAULT_PORTS = {"http": 80, "https": 443}

LOOPBACK_NAME = "localhost"

_WRITTEN = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
"""Characters of a URL (RFC 3986, 2). Not a backslash: some parsers read it as a slash."""


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` (RFC 6761, 6.3) or a loopback address."""
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
    """Split an `https` URL, or an `http` URL of this machine.

    Raises:
        BadSetting: it is no such URL, or it has a user or a fragment.
    """
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0  # `port` raises for one that is none
    except ValueError:
        is_whole = False
    if not is_whole or not _WRITTEN.fullmatch(url):
        raise BadSetting(f"{url[:200]}: no https URL")
    if "@" in parts.netloc or "#" in url:
        raise BadSetting(f"{url[:200]}: a URL here has no user and no fragment")
    is_safe = is_plain_allowed or parts.scheme == "https" or is_loopback(str(parts.hostname))
    if not is_safe:
        raise BadSetting(f"{url[:200]}: https is needed beyond loopback")
    return parts
