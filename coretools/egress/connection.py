"""One connection of a client to the proxy: CONNECT, a plain http request, or SOCKS5 by RFC 1928."""

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address

import anyio

from coretools.egress import client_hello, http_messages
from coretools.egress.blocked_connections import Reason, Refusal, Refused
from coretools.egress.client_hello import NotTls
from coretools.egress.connector import Connector
from coretools.egress.hosts import Address, InvalidHost, host
from coretools.egress.http_messages import BadRequest, ProxyRequest
from coretools.egress.peer import Closed, Peer, Relay

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_STATUS: dict[Reason, int] = {"malformed": 400, "unresolved": 502, "unreachable": 504, "busy": 503}
"""403 for the rest."""

_SOCKS_VERSION, _NO_AUTHENTICATION, _NO_METHOD = 5, 0, 0xFF
_CONNECT, _IPV4, _NAME, _IPV6 = 1, 1, 3, 4
_SUCCEEDED, _NOT_ALLOWED, _UNREACHABLE, _BAD_COMMAND, _BAD_ADDRESS = 0, 2, 4, 7, 8
"""Replies of RFC 1928, 6."""

_SOCKS_REPLY: dict[Reason, int] = {"unresolved": _UNREACHABLE, "unreachable": _UNREACHABLE}
"""`_NOT_ALLOWED` for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may take. Times in seconds."""

    request_seconds: float = 20.0
    """Deadline of the whole request of a client, and of its TLS greeting."""
    idle_seconds: float = 300.0
    """Without a byte in either direction."""
    half_closed_seconds: float = 60.0
    """The same, when one side has ended."""
    total_seconds: float = 4 * 3600.0
    drain_seconds: float = 2.0
    """After the last answer, for a client that is still sending."""
    tls_ports: frozenset[int] = frozenset({443})
    """Ports on which a tunnel carries TLS for the host that it was opened for, and nothing else."""


class ProxyConnection:
    """Serves one client. `run` closes its socket."""

    def __init__(
        self,
        client: socket.socket,
        connector: Connector,
        limits: ConnectionLimits,
        report: Callable[[Refusal], None],
    ) -> None:
        """`report` gets what is refused, before the client does."""
        self._client = Peer(client)
        self._connector = connector
        self._limits = limits
        self._report = report
        self._is_socks = False
        self._socks_reply = b""
        """The answer to a malformed SOCKS request."""

    async def run(self) -> None:
        """Serve the client."""
        try:
            with anyio.move_on_after(self._limits.total_seconds), suppress(OSError, TimeoutError):
                await self._serve()  # an error: the client is gone, or too slow
        finally:
            self._client.close()

    async def _serve(self) -> None:
        try:
            with anyio.fail_after(self._limits.request_seconds):
                request = await self._request()
            await self._forward(request)
        except Refused as refused:
            self._report(refused.refusal)
            await self._answer(refused.refusal)

    async def _answer(self, refusal: Refusal) -> None:
        """Tell the client why, unless its tunnel is open already: nothing of ours could be read in there."""
        if refusal.reason == "other name":
            return
        if self._is_socks:
            reply = self._socks_reply or _socks_reply(_SOCKS_REPLY.get(refusal.reason, _NOT_ALLOWED))
        else:
            reply = http_messages.error_response(_STATUS.get(refusal.reason, 403), refusal.sentence)
        with anyio.move_on_after(self._limits.drain_seconds):
            await self._client.send(reply)
            await self._client.drain(self._limits.drain_seconds)

    async def _request(self) -> ProxyRequest:
        first = await self._client.receive_exactly(1)
        self._is_socks = first[0] == _SOCKS_VERSION
        try:
            return await (self._socks_request() if self._is_socks else self._http_request(first))
        except Closed as error:
            if error.is_too_long:
                raise Refused("malformed", detail="its head is too long") from error
            raise

    async def _http_request(self, first: bytes) -> ProxyRequest:
        if not first.isupper():  # SOCKS 4, TLS to the proxy itself: the rest need not be awaited
            raise Refused("malformed", detail="neither HTTP nor SOCKS 5")
        head = first + await self._client.receive_until(http_messages.END, http_messages.MAX_HEAD)
        try:
            return http_messages.parse_request(head)
        except BadRequest as error:
            raise Refused("malformed", detail=str(error)) from error

    async def _socks_request(self) -> ProxyRequest:
        methods = await self._client.receive_exactly((await self._client.receive_exactly(1))[0])
        if _NO_AUTHENTICATION not in methods:
            self._socks_reply = bytes((_SOCKS_VERSION, _NO_METHOD))
            raise Refused("malformed", detail="SOCKS with a password")
        await self._client.send(bytes((_SOCKS_VERSION, _NO_AUTHENTICATION)))
        version, command, _, kind = await self._client.receive_exactly(4)
        if version != _SOCKS_VERSION or command != _CONNECT:
            self._socks_reply = _socks_reply(_BAD_COMMAND)
            raise Refused("malformed", detail="a SOCKS request other than CONNECT")
        target = await self._socks_target(kind)
        port = int.from_bytes(await self._client.receive_exactly(2), "big")
        if port == 0:
            raise Refused("malformed", detail="port 0")
        return ProxyRequest(target, port)

    async def _socks_target(self, kind: int) -> str | Address:
        if kind == _IPV4:
            return IPv4Address(await self._client.receive_exactly(4))
        if kind == _IPV6:
            return IPv6Address(await self._client.receive_exactly(16))
        if kind != _NAME:
            self._socks_reply = _socks_reply(_BAD_ADDRESS)
            raise Refused("malformed", detail="a SOCKS address of an unknown kind")
        name = await self._client.receive_exactly((await self._client.receive_exactly(1))[0])
        try:
            return host(name.decode("ascii"))
        except (InvalidHost, UnicodeDecodeError) as error:
            detail = str(error) if isinstance(error, InvalidHost) else "not a host name"
            raise Refused("malformed", detail=detail) from error

    async def _forward(self, request: ProxyRequest) -> None:
        server = Peer(await self._connector.open(request.target, request.port))
        try:
            if request.is_tunnel:
                await self._tunnel(request, server)
            else:
                await self._exchange(request, server)
        finally:
            server.close()

    async def _tunnel(self, request: ProxyRequest, server: Peer) -> None:
        await self._client.send(_socks_reply(_SUCCEEDED) if self._is_socks else ESTABLISHED)
        if request.port in self._limits.tls_ports and isinstance(request.target, str):
            await server.send(await self._greeting(request))
        await self._relay(server).run()

    async def _greeting(self, request: ProxyRequest) -> bytes:
        """Read the TLS greeting, which may come in several records, and require that it names the host.

        Without this a tunnel to one customer of a content network would lead to all others at the same addresses.

        Raises:
            Refused: no TLS, no name, or another one.
        """
        sent, message = bytearray(), bytearray()
        try:
            with anyio.fail_after(self._limits.request_seconds):
                for _ in range(client_hello.MAX_RECORDS):
                    header = await self._client.receive_exactly(client_hello.RECORD_HEADER)
                    record = await self._client.receive_exactly(client_hello.record_length(header))
                    sent += header + record
                    message += record
                    if not client_hello.missing_bytes(message):
                        break
            named = client_hello.server_name(bytes(message))
        except (NotTls, InvalidHost) as error:
            raise Refused("other name", request.target, request.port) from error
        if named != request.target:
            raise Refused("other name", request.target, request.port)
        return bytes(sent)

    async def _exchange(self, request: ProxyRequest, server: Peer) -> None:
        """Pass on one request, its body and the response. What the client sends after them reaches nobody."""
        await server.send(request.head)
        is_answered = await self._relay(server).exchange(request.body_bytes, partial(self._response_head, server))
        if not is_answered:
            raise Refused("unreachable", request.target, request.port)
        await self._client.drain(self._limits.drain_seconds)

    async def _response_head(self, server: Peer) -> bytes | None:
        """Return the head of the response, rewritten, after any of interim responses; None if it has none."""
        heads = b""
        try:
            is_interim = True
            while is_interim and len(heads) < http_messages.MAX_RESPONSE_HEAD:
                head = await server.receive_until(http_messages.END, http_messages.MAX_RESPONSE_HEAD)
                head, is_interim = http_messages.rewrite_response(head)
                heads += head
        except (OSError, BadRequest):
            return None
        return None if is_interim else heads

    def _relay(self, server: Peer) -> Relay:
        limits = self._limits
        return Relay(
            self._client, server, idle_seconds=limits.idle_seconds, half_closed_seconds=limits.half_closed_seconds
        )


def _socks_reply(code: int) -> bytes:
    return bytes((_SOCKS_VERSION, code, 0, _IPV4)) + bytes(6)
