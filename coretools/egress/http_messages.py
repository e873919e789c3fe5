"""Requests to a proxy in HTTP/1.1, parsed strictly and written anew. Pure.

Written anew, because what was judged has to be what the server reads (RFC 9112, 11.2, request smuggling). A connection
carries one request: whatever a client sends after it reaches nobody.
"""

import re
from dataclasses import dataclass

from coretools.egress.hosts import Address, InvalidHost, authority, host, port_number, shown

MAX_HEAD = 32 * 1024
"""Longest head of a request, in bytes."""
MAX_RESPONSE_HEAD = 256 * 1024
"""Longest head of a response, in bytes."""
MAX_FIELDS = 200

END = b"\r\n\r\n"

_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) ([!-~]+) HTTP/1\.[01]")
_FIELD_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Also a CR or an LF that does not end a line together with the other."""
_URL = re.compile(r"http://([^/?#@\\%]+?)(/[^#]*|\?[^#]*)?", re.ASCII)
_HOST_AND_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]+)(?::(.*))?", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,15}")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")

_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"http2-settings"),
        *(b"proxy-authorization", b"proxy-authenticate", b"host", b"expect", b"content-length"),
    }
)
"""Fields that are not passed on (RFC 9110, 7.6.1), or are written anew. Without Expect the client sends its body after
a second."""


class BadRequest(ValueError):
    """A request is malformed, or of a kind that the proxy does not serve."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """What a client asks for."""

    target: str | Address
    port: int
    head: bytes = b""
    """The head for the server; empty for a tunnel."""
    body_bytes: int = 0

    @property
    def is_tunnel(self) -> bool:
        """Whether bytes are to be passed on as they are (CONNECT)."""
        return not self.head


def parse_request(head: bytes) -> ProxyRequest:
    """Parse the head of a request, which ends in `END`.

    Raises:
        BadRequest: says what is wrong.
    """
    line, *lines = head.removesuffix(END).split(b"\r\n")
    match = _LINE.fullmatch(line)
    if match is None:
        raise BadRequest("not a request line of HTTP/1.1")
    method, target = match[1], match[2].decode("ascii")
    fields = _fields(lines)
    try:
        if method == b"CONNECT":
            return ProxyRequest(*authority(target))
        return _forwarded(method, target, fields)
    except InvalidHost as error:
        raise BadRequest(str(error)) from error


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(lines) > MAX_FIELDS:
        raise BadRequest("too many header fields")
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _FIELD_NAME.fullmatch(name) or _CONTROL.search(value):
            raise BadRequest("not a header field")  # also a folded line, and a blank before the colon
        fields.append((name, value.strip(b" \t")))
    return fields


def _forwarded(method: bytes, target: str, fields: list[tuple[bytes, bytes]]) -> ProxyRequest:
    url = _URL.fullmatch(target)
    place = url and _HOST_AND_PORT.fullmatch(url[1])
    if url is None or place is None:
        raise BadRequest("neither CONNECT nor an absolute http:// URL")
    name, port = host(place[1]), port_number(place[2]) if place[2] is not None else 80
    length = _body_length(fields)
    path = url[2] or "/"
    path = path if path.startswith("/") else f"/{path}"
    where = shown(name) if port == 80 else f"{shown(name)}:{port}"
    lines = [method + f" {path} HTTP/1.1".encode(), f"Host: {where}".encode(), *_passed_on(fields)]
    lines += [b"Content-Length: %d" % length] if length is not None else []
    return ProxyRequest(name, port, b"\r\n".join([*lines, b"Connection: close", b"", b""]), length or 0)


def _passed_on(fields: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the fields for the server: without those of this connection, or that the client calls so."""
    options = [value for key, value in fields if key.lower() == b"connection"]
    dropped = _HOP_BY_HOP.union(one.strip().lower() for value in options for one in value.split(b","))
    return [key + b": " + value for key, value in fields if key.lower() not in dropped]


def _body_length(fields: list[tuple[bytes, bytes]]) -> int | None:
    # RFC 9112, 3.2: two Host fields are an error; of one and the URL, the URL wins.
    if sum(key.lower() == b"host" for key, _ in fields) > 1:
        raise BadRequest("more than one Host")
    if any(key.lower() == b"transfer-encoding" for key, _ in fields):
        raise BadRequest("a body without Content-Length; use https")
    lengths = [value for key, value in fields if key.lower() == b"content-length"]
    if not lengths:
        return None
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise BadRequest("no clear Content-Length")
    return int(lengths[0])


def rewrite_response(head: bytes) -> tuple[bytes, bool]:
    """Return the head of a response with `Connection: close`, and whether another head follows (1xx).

    Raises:
        BadRequest: the server does not speak HTTP/1.1.
    """
    line, *lines = head.removesuffix(END).split(b"\r\n")
    match = _STATUS.fullmatch(line)
    if match is None or match[1] == b"101":
        raise BadRequest("the server's answer is not one of HTTP/1.1")
    if match[1].startswith(b"1"):
        return head, True
    dropped = (b"connection", b"keep-alive", b"proxy-connection")
    kept = [field for field in lines if field.partition(b":")[0].strip().lower() not in dropped]
    return b"\r\n".join([line, *kept, b"Connection: close", b"", b""]), False


def error_response(status: int, sentence: str) -> bytes:
    """Return a response of the proxy itself. Clients show the reason phrase, so it has the whole sentence."""
    phrase = "".join(letter if " " <= letter <= "~" else "?" for letter in sentence)
    text = f"coretools: {phrase}\n"
    return (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
        f"Connection: close\r\nProxy-Connection: close\r\n\r\n{text}"
    ).encode("ascii")
