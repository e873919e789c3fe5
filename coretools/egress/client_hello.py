"""The server name in the first message of a TLS client (RFC 8446, 4.1.2; RFC 6066, 3). Pure."""

import struct

from coretools.egress.hosts import InvalidHost, host_name

MAX_BYTES = 32 * 1024
"""Longest ClientHello. Those with post-quantum keys take about 1,800 bytes."""

MAX_RECORDS = 64
"""Most records that it may come in."""

RECORD_HEADER = 5
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_MAX_RECORD = 1 << 14


class NotTls(ValueError):
    """The bytes are not a TLS ClientHello as clients send it."""


def record_length(header: bytes) -> int:
    """Return the length of a handshake record after its header.

    Raises:
        NotTls: another kind of record, empty or too long.
    """
    kind, major, _, length = struct.unpack(">BBBH", header)
    if kind != _HANDSHAKE or major != 3 or not 0 < length <= _MAX_RECORD:
        raise NotTls("no TLS handshake")
    return int(length)


def missing_bytes(message: bytes | bytearray) -> int:
    """Return how many bytes of the handshake message are still to come, at least; 0 if it is whole.

    Raises:
        NotTls: another message, a longer one than `MAX_BYTES`, or one that more bytes follow in the same record.
    """
    if message[:1] not in (b"", bytes((_CLIENT_HELLO,))):
        raise NotTls("no ClientHello")
    if len(message) < 4:
        return 4 - len(message)
    length = 4 + int.from_bytes(message[1:4], "big")
    if length > MAX_BYTES or len(message) > length:
        raise NotTls("no ClientHello of a usual length")
    return length - len(message)


def server_name(message: bytes) -> str | None:
    """Return the normalized server name of a whole ClientHello; None without one.

    Raises:
        NotTls: broken, or with more than one name.
        InvalidHost: the name is not in the accepted spelling.
    """
    reader = _Reader(message[4:])
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session id
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression methods
    extensions = _Reader(reader.vector(2)) if reader.rest else reader
    if reader.rest:
        raise NotTls("bytes after the extensions")
    names: list[str] = []
    while extensions.rest:
        kind = int.from_bytes(extensions.take(2), "big")
        body = extensions.vector(2)
        if kind == _SERVER_NAME:
            names.append(_name(body))
    if len(names) > 1:
        raise NotTls("more than one server name")
    return names[0] if names else None


def _name(body: bytes) -> str:
    outer = _Reader(body)
    names = _Reader(outer.vector(2))
    kind, name = names.take(1), names.vector(2)
    if outer.rest or names.rest or kind != bytes((_HOST_NAME,)):
        raise NotTls("more than one server name")
    try:
        return host_name(name.decode("ascii"))
    except UnicodeDecodeError as error:
        raise InvalidHost("not a host name") from error


class _Reader:
    """Takes bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def rest(self) -> int:
        """Bytes that are left."""
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if self.rest < count:
            raise NotTls("a broken ClientHello")
        self._at += count
        return self._data[self._at - count : self._at]

    def vector(self, width: int) -> bytes:
        """Take a field that its length precedes."""
        return self.take(int.from_bytes(self.take(width), "big"))
