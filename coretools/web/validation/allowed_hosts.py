"""The accepted hosts and origins of requests."""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from coretools.errors import BadSetting
from coretools.web.common.urls import DEFAULT_PORTS, HOST, is_host, is_origin

_HOST = re.compile(rb"(?P<name>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")

_LONGEST = 512


class AllowedHosts:
    """The accepted values of the Host header (RFC 9110, 7.2), compared without regard to case."""

    def __init__(self, entries: Sequence[str]) -> None:
        """`entries` are exact values; `NAME:*` accepts any port.

        Raises:
            BadSetting: an entry is not a host.
        """
        self._exact: set[bytes] = set()
        self._any_port: set[bytes] = set()
        for entry in entries:
            match = HOST.fullmatch(entry.lower())
            if match is None or not is_host(entry):
                raise BadSetting(f"server.hosts: {entry[:200]}: no host, such as 10.0.0.1:8765 or NAME:*")
            if match["port"] == "*":
                self._any_port.add(match["host"].encode("ascii"))
            else:
                self._exact.add(entry.lower().encode("ascii"))

    def have(self, value: bytes) -> bool:
        """Whether a Host value names this server."""
        value = value.lower()
        if value in self._exact:
            return True
        match = _HOST.fullmatch(value) if len(value) <= _LONGEST else None
        return match is not None and match["port"] is not None and match["name"] in self._any_port


class AllowedOrigins:
    """The accepted values of the Origin header (RFC 6454): the configured ones and the server's own."""

    def __init__(self, entries: Sequence[str], *, public_url: str = "") -> None:
        """`entries` are exact values, such as `https://console.example.com`.

        Raises:
            BadSetting: an entry is not an origin.
        """
        for entry in entries:
            if not is_origin(entry):
                raise BadSetting(f"server.origins: {entry[:200]}: no origin, such as https://console.example.com")
        self._listed = frozenset(_normal(entry) for entry in entries)
        self._own = _normal(public_url) if public_url else None

    def allow(self, origin: bytes, *, scheme: str, host: bytes) -> bool:
        """Whether a page of an origin may call the server under an accepted host."""
        if len(origin) > _LONGEST:
            return False
        value = origin.lower()
        here = f"{scheme}://".encode("ascii") + host.lower()
        return value in self._listed or value == self._own or value == here

    def is_foreign(self, origin: bytes | None) -> bool:
        """Whether the origin is a configured one, whose browser needs the CORS headers to read the answer."""
        return origin is not None and origin.lower() in self._listed


def _normal(url: str) -> bytes:
    """Return the origin of a URL as browsers write it."""
    try:
        parts = urlsplit(url.lower())
        port = parts.port
    except ValueError as error:
        raise BadSetting(f"{url[:200]}: no URL") from error
    host = parts.netloc.rpartition("@")[2]
    if port is not None and port == DEFAULT_PORTS.get(parts.scheme):
        host = host.rpartition(":")[0]
    return f"{parts.scheme}://{host}".encode("ascii", "backslashreplace")
