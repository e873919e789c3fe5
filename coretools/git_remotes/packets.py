"""Packets of git's protocol (gitprotocol-common(5)): four hexadecimal digits with the length, then the content."""

from coretools.egress.peer import Closed, Peer
from coretools.errors import TooLarge, Unreachable

FLUSH = b"0000"

REQUEST_BYTES = 64 * 1024 * 1024
"""Longest request of git before its pack: what it has and wants, or the references that it moves."""

_HEADER = 4


async def read_section(git: Peer) -> bytes:
    """Return the packets up to a flush packet, inclusive; nothing at the end.

    Raises:
        TooLarge: they are longer than any request. Unreachable: not packets.
    """
    section = bytearray()
    while True:
        try:
            header = await git.receive_exactly(_HEADER)
            length = packet_length(header)
            content = await git.receive_exactly(max(0, length - _HEADER))
        except Closed:
            return b""
        section += header + content
        if length == 0:
            return bytes(section)
        if len(section) > REQUEST_BYTES:
            raise TooLarge(f"the request of git has more than {REQUEST_BYTES} bytes", limit=REQUEST_BYTES)


class PacketEnd:
    """Follows packets that arrive in pieces: whether they have ended, as every answer does, with a flush packet."""

    def __init__(self) -> None:
        self.is_empty = True
        self._header = b""
        self._left = 0
        self._is_flushed = False

    @property
    def is_complete(self) -> bool:
        """Whether the last packet was a flush packet, and nothing came after it."""
        return self._is_flushed and not self._header

    def add(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            Unreachable: not packets.
        """
        at = 0
        while at < len(piece):
            self.is_empty = False
            if self._left:
                taken = min(self._left, len(piece) - at)
                self._left -= taken
            else:
                taken = min(_HEADER - len(self._header), len(piece) - at)
                self._header += piece[at : at + taken]
                if len(self._header) == _HEADER:
                    length, self._header = packet_length(self._header), b""
                    self._is_flushed, self._left = length == 0, max(0, length - _HEADER)
            at += taken


def packet_length(header: bytes) -> int:
    """Return the length that a header states; below 4 it is a mark without content.

    Raises:
        Unreachable: not a header.
    """
    try:
        return int(header.decode("ascii"), 16)
    except ValueError as error:
        raise Unreachable("the peer does not speak git's protocol") from error


def packets_of(data: bytes) -> list[bytes]:
    """Return the contents of whole packets, without marks.

    Raises:
        Unreachable: not packets.
    """
    contents, at = [], 0
    while at < len(data):
        length = packet_length(data[at : at + _HEADER])
        if length >= _HEADER:
            contents.append(data[at + _HEADER : at + length])
        at += max(length, _HEADER)
    return contents
