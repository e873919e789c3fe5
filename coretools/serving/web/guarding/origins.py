"""By which names a server is called, and whose pages may call it: exact lists, whatever address it listens on."""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from coretools.errors import BadSetting

ALLOWED_HEADERS = (
    "authorization",
    "content-type",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
    "mcp-method",
    "mcp-name",
)
"""What a page may send; and `mcp-param-` with the name of an argument."""

_HOST = re.compile(rb"(?P<name>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_ENTRY = re.compile(r"(?P<name>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}|\*))?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s@*,]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LONGEST = 512


class Hosts:
    """The values that a Host header may have (RFC 9110, 7.2). Names are the same in capitals."""

    def __init__(self, entries: Sequence[str]) -> None:
        """Exact values; `NAME:*` is the name with any port, in digits.

        Raises:
            BadSetting: an entry is no name.
        """
        self._exact: set[bytes] = set()
        self._any_port: set[bytes] = set()
        for entry in entries:
            found = _ENTRY.fullmatch(entry.lower())
            if found is None:
                raise BadSetting(f"server.hosts: {entry[:200]}: neither NAME, NAME:PORT nor NAME:*")
            if found["port"] == "*":
                self._any_port.add(found["name"].encode("ascii"))
            else:
                self._exact.add(entry.lower().encode("ascii"))

    def have(self, value: bytes) -> bool:
        """Whether a request is for this server."""
        value = value.lower()
        if value in self._exact:
            return True
        found = _HOST.fullmatch(value) if len(value) <= _LONGEST else None
        return found is not None and found["port"] is not None and found["name"] in self._any_port


class Origins:
    """The values that an Origin header may have (RFC 6454): those of the list, and the server's own."""

    def __init__(self, entries: Sequence[str], *, public_url: str = "") -> None:
        """Exact values, such as `https://console.example.com`.

        Raises:
            BadSetting: an entry is no origin.
        """
        for entry in entries:
            if not _ORIGIN.fullmatch(entry.lower()):
                raise BadSetting(f"server.origins: {entry[:200]}: no origin, such as https://console.example.com")
        self._listed = frozenset(_normal(entry) for entry in entries)
        self._own = _normal(public_url) if public_url else None

    def allow(self, origin: bytes, *, scheme: str, host: bytes) -> bool:
        """Whether a page of an origin may call a server under a name that is one of its own."""
        if len(origin) > _LONGEST:
            return False
        value = origin.lower()
        here = f"{scheme}://".encode("ascii") + host.lower()
        return value in self._listed or value == self._own or value == here

    def is_foreign(self, origin: bytes | None) -> bool:
        """Whether it is one of the list, so that its browser must be told that it may read the answer."""
        return origin is not None and origin.lower() in self._listed


def _normal(url: str) -> bytes:
    """The origin of a URL as browsers write it."""
    try:
        parts = urlsplit(url.lower())
        port = parts.port
    except ValueError as error:
        raise BadSetting(f"{url[:200]}: no URL") from error
    host = parts.netloc.rpartition("@")[2]
    if port is not None and port == _DEFAULT_PORTS.get(parts.scheme):
        host = host.rpartition(":")[0]
    return f"{parts.scheme}://{host}".encode("ascii", "backslashreplace")
