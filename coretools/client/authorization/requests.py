"""Requests to authorization servers: only to addresses that may be asked, bounded in size and in time.

The addresses come from servers: from a header of the server, and from documents that it leads to.
"""

import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import anyio
import httpx2

from coretools.client.common.errors import AuthenticationRequired, ProtocolViolation
from coretools.client.common.failures import origin_of
from coretools.egress.hosts import system_address
from coretools.errors import DeadlinePassed, Unreachable

MAX_ANSWER_BYTES = 1024 * 1024
ANSWER_SECONDS = 30.0

GLOBAL, PRIVATE, LINK_LOCAL, LOOPBACK = range(4)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its spelling."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return _reach(host) == LOOPBACK
    except ValueError:
        return False


class AddressRules:
    """Which addresses may be asked on behalf of one server."""

    def __init__(self, server: str, configured: Iterable[str | None]) -> None:
        """Addresses that the user configured may be anywhere."""
        self._server = httpx2.URL(server)
        self._configured = {httpx2.URL(url).host for url in configured if url}

    async def check(self, address: str) -> None:
        """Refuse an address that must not be asked.

        Raises:
            AuthenticationRequired: says why.
        """
        url = httpx2.URL(address)
        if not url.host or url.userinfo or url.scheme not in ("http", "https") or (url.port or 0) >= 2**16:
            named = repr(address.partition("?")[0][:100])
            raise AuthenticationRequired(f"leads to {named}, which is no http address without a user")
        if url.scheme == "http" and not is_loopback(url.host):
            raise AuthenticationRequired(f"leads to {origin_of(address)}, which is not encrypted")
        if url.host in self._configured or url.host == self._server.host:
            return
        theirs, ours = await _reach_of(url), await _reach_of(self._server)
        if theirs > ours or (theirs == LINK_LOCAL) != (ours == LINK_LOCAL):
            raise AuthenticationRequired(
                f"leads to {origin_of(address)}, an address in this network, and is not in it itself;"
                " set `oauth.issuer` in its entry if that is right"
            )


async def _reach_of(url: httpx2.URL) -> int:
    """Return how near a host is: the nearest of its addresses counts. An unknown name is global."""
    if is_loopback(url.host):
        return LOOPBACK
    try:
        addresses = await anyio.getaddrinfo(url.host, url.port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return GLOBAL  # the request itself fails, or a proxy knows the name
    return max((_reach(str(address[4][0])) for address in addresses), default=GLOBAL)


def _reach(host: str) -> int:
    address = system_address(host)
    if address.is_loopback or address.is_unspecified:
        return LOOPBACK
    if address.is_link_local:
        return LINK_LOCAL
    return GLOBAL if address.is_global else PRIVATE


@asynccontextmanager
async def authorization_http() -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client that has nothing of the server's: no headers, no cookies, no token."""
    # Not compressed: what a compressed answer becomes is not bounded by what is read.
    async with httpx2.AsyncClient(timeout=ANSWER_SECONDS, headers={"Accept-Encoding": "identity"}) as http:
        yield http


async def answer(http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Send a request; return the whole response. Redirects are not followed.

    Raises:
        Unreachable, DeadlinePassed: no answer came. ProtocolViolation: it is too large.
    """
    origin = origin_of(str(request.url))
    request.headers["Accept-Encoding"] = "identity"
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            response = await http.send(request, stream=True, follow_redirects=False)
            try:
                data = await _bounded(response, origin)
            finally:
                await response.aclose()
    except TimeoutError as error:
        raise DeadlinePassed(f"the authorization server at {origin} did not answer in {ANSWER_SECONDS:g} s") from error
    except httpx2.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise Unreachable(f"the authorization server at {origin} can't be reached: {reason}") from error
    if request.method == "POST" and (
        response.status_code == httpx2.codes.TOO_MANY_REQUESTS or response.is_server_error
    ):
        raise Unreachable(f"the authorization server at {origin} answers HTTP {response.status_code}")
    kept = {name: value for name, value in response.headers.items() if name in ("content-type", "location")}
    whole = httpx2.Response(response.status_code, headers=kept, content=data, request=request)
    whole.next_request = response.next_request
    return whole


async def _bounded(response: httpx2.Response, origin: str) -> bytes:
    data = bytearray()
    async for part in response.aiter_raw():
        data += part
        if len(data) > MAX_ANSWER_BYTES:
            raise ProtocolViolation(f"the authorization server at {origin} sent more than {MAX_ANSWER_BYTES} bytes")
    return bytes(data)
