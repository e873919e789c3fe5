"""Checks the bytes of a request header: h11 accepts some forms that proxies read differently.

If two parsers find different requests in one header, a request can be smuggled past the first. h11 joins folded lines,
accepts a bare line feed as the end of a line, and accepts repeated equal lengths; all of that is refused here.
"""

from dataclasses import dataclass

_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_ALLOWED = bytes(byte for byte in range(256) if (byte >= 0x20 and byte != 0x7F) or byte in b"\t\r\n")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request is refused: status, kind and message of the answer."""

    status: int
    kind: str
    message: str


MOST_FIELDS = 64
"""Header fields of one request."""

TOO_LONG = Fault(431, "header-too-long", "the header is too long: send fewer or shorter fields")
LINES = Fault(400, "bad-request", "a line of the header ends in something other than CR LF")
FOLDED = Fault(400, "bad-request", "a line of the header is folded; put each field on one line (RFC 9112, 5.2)")
CONTROL = Fault(400, "bad-request", "the header has control characters")
VERSION = Fault(505, "bad-request", "only versions 1.0 and 1.1 of HTTP are supported")
LENGTH = Fault(400, "bad-request", "there must be one Content-Length, a decimal number")


def fault_in(received: bytes, *, most_bytes: int) -> Fault | None:
    """Return what is wrong with a header, or with its received part; None if nothing is so far.

    `received` begins with the request line and may hold more than the header.
    """
    end = received.find(_END, 0, most_bytes + len(_END))
    head = received if end < 0 else received[: end + 2]
    if len(head) > most_bytes:
        return TOO_LONG
    if head.endswith(b"\r"):  # its line feed has not arrived yet
        head = head[:-1]
    if head.count(b"\r\n") > MOST_FIELDS + 1:
        return TOO_LONG
    first = head[: head.find(b"\r\n")]
    if end >= 0 and b" HTTP/" in first and not first.endswith((b" HTTP/1.1", b" HTTP/1.0")):
        return VERSION
    return _fault_in_lines(head) or _fault_in_length(head.lower())


def _fault_in_lines(head: bytes) -> Fault | None:
    if not head.count(b"\r\n") == head.count(b"\n") == head.count(b"\r"):
        return LINES
    if b"\r\n " in head or b"\r\n\t" in head:
        return FOLDED
    return CONTROL if head.translate(None, _ALLOWED) else None


def _fault_in_length(head: bytes) -> Fault | None:
    at = head.find(_LENGTH)
    if at < 0:
        return None
    value, end, rest = head[at + len(_LENGTH) :].partition(b"\r\n")
    if end and not value.strip(b" \t").isdigit():
        return LENGTH
    return LENGTH if _LENGTH in end + rest else None
