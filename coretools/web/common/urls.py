"""URLs and hosts by their text alone; nothing is resolved here."""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from coretools.egress.hosts import system_address
from coretools.errors import BadSetting

ENDPOINT = "/mcp"
"""The path of the MCP endpoint."""

DEFAULT_PORTS = {"http": 80, "https": 443}

LOOPBACK_NAME = "localhost"

HOST = re.compile(
    r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}|\*))?"
)
"""A value of the Host header, or `NAME:*` for any port. There is no other wildcard: anybody may own a matching name."""

_WRITTEN = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
"""Characters of a URL (RFC 3986, 2). Not a backslash: some parsers read it as a slash."""


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` (RFC 6761, 6.3) or a loopback address."""
    host = host.removeprefix("[").removesuffix("]")
    if host.lower() == LOOPBACK_NAME:
        return True
    try:
        return system_address(host).is_loopback
    except ValueError:
        return False


def parsed_url(url: str, *, is_plain_allowed: bool = False) -> SplitResult:
    """Split an `https` URL, or an `http` URL of this machine.

    Raises:
        BadSetting: it is no such URL, or it has a user or a fragment.
    """
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0  # `port` raises if it is not a number
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


def is_host(text: str) -> bool:
    """Whether a text is a value of the Host header, or one for any port (`NAME:*`)."""
    match = HOST.fullmatch(text)
    if match is None:
        return False
    host, port = match["host"], match["port"]
    is_port = port in (None, "*") or 0 < int(port) <= 65535  # the largest there is
    return is_port and (not host.startswith("[") or is_address(host[1:-1]))


def is_origin(text: str) -> bool:
    """Whether a text is an origin as browsers send it (RFC 6454, 6.2): scheme, host, and a non-default port."""
    scheme, _, rest = text.partition("://")
    match = HOST.fullmatch(rest)
    if scheme not in DEFAULT_PORTS or match is None or not is_host(rest) or rest != rest.lower():
        return False
    return match["port"] not in ("*", str(DEFAULT_PORTS[scheme]))


def is_address(text: str) -> bool:
    """Whether a text is an address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
