"""Deadlines and limits of one connection: uvicorn waits without limit for headers, bodies and slow readers.

The class extends the protocol class of uvicorn 0.54 and uses the names of it that `test_deadlines.py` lists.
It also serves only whole requests, one at a time: bytes behind a request are dropped until its answer is sent, and that
answer then closes the connection. If an answer is sent before the end of its request, the connection stays open when
little of the body is left; otherwise the answer says `Connection: close`.
"""

import asyncio
import logging
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from coretools.web.common.config import LimitsSection
from coretools.web.common.error_response import error_response
from coretools.web.common.headers import RESPONSE_HEADERS, closing_connection
from coretools.web.connection.connection_slots import LOOPBACK, ConnectionSlots
from coretools.web.connection.write_buffer import WriteBuffer
from coretools.web.validation.request_head import TOO_LONG, Fault, fault_in

LINGER_SECONDS = 2.0
"""Time to read and drop what still arrives after an early answer. Closing a socket with unread data resets it, and the
client may never see the answer (RFC 9112, 9.6)."""

MOST_LINE_ENDS = 1024
LEAST_GAP = 16
"""Line ends that a chunked body may have; with more, they must be `LEAST_GAP` bytes apart on average. One-byte chunks
cost a hundred times what they carry: 256 KB block the server for half a second."""

MOST_DISCARDED = 65_536
"""Bytes of an unneeded body that are read to keep its connection open. Beyond that a new connection costs less, and the
answer says `Connection: close`."""

LATE = Fault(408, "too-late", "the request did not arrive in time")
MALFORMED = Fault(400, "bad-request", "this is not a valid HTTP request")
UNKNOWN_CODING = Fault(501, "bad-request", "unsupported transfer coding; only chunked is supported")
SMALL_CHUNKS = Fault(400, "bad-request", "the chunks of the body are too small")

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\ncache-control: no-store\r\n"
    b"connection: close\r\n\r\n"
)


_logger = logging.getLogger("uvicorn.error.connections")
# A filter, not a level: uvicorn's own log configuration, if used, would set the level again.
_logger.addFilter(lambda record: record.levelno >= logging.ERROR)
"""uvicorn warns about every invalid request and every upgrade: strangers could fill the disk of the log. Faults of the
application are errors, which pass."""

_ENDLESS = sys.maxsize
_CODING_FAULT = 501


RefusalListener = Callable[[str], None]
"""Called with the kind of each refusal that does not reach the application."""


class TimedProtocol(H11Protocol):
    """Serves one connection. `protocol_of` creates the subclass of a server, with its limits."""

    limits: ClassVar[LimitsSection]
    slots: ClassVar[ConnectionSlots]
    tls: ClassVar[ssl.SSLContext | None] = None
    counting: ClassVar[Sequence[RefusalListener]] = ()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = h11.Connection(h11.SERVER, self.limits.header_bytes)
        self.ws_protocol_class = None
        self._served = self.app
        self.app = self._serve
        self.logger = _logger
        # uvicorn declares an int and passes it to `call_later`, which takes a float.
        self.timeout_keep_alive = self.limits.keep_alive_seconds  # type: ignore[assignment]
        self._slot: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._phase: tuple[object, RequestResponseCycle | None] | None = None
        self._outgoing: WriteBuffer | None = None
        self._dropped = 0
        self._line_ends = 0
        self._wire_bytes = 0
        self._is_lingering = False
        self._unread = 0
        """Bytes of the body that have not arrived yet."""
        self._is_discarding = False
        """Whether they belong to a request that is answered already."""
        self._handshake: asyncio.Task[None] | None = None
        self._tcp: asyncio.Transport | None = None
        """The TCP transport below TLS."""
        self._early = b""

    @classmethod
    def use(cls, limits: LimitsSection, tls: ssl.SSLContext | None) -> None:
        """Use these limits, except the number of connections, and this certificate for later connections."""
        cls.limits = limits.model_copy(update={"connections": cls.limits.connections})
        cls.tls = tls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a slot, or answer that there is none."""
        peer = transport.get_extra_info("peername")
        self._slot = self.slots.acquire(peer[0] if isinstance(peer, tuple) else None)
        if self._slot is not None and self.tls is not None:
            self._handshake = self.loop.create_task(self._secure(transport, self.tls))
        elif self._slot is not None:
            self._begin(transport)
        else:
            self._count("too-many-connections")
            if self.tls is None:
                transport.write(_FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the slot and all resources."""
        if self._slot is not None:
            self.slots.release(self._slot)
            self._slot = None
            self._disarm()
            if self._outgoing is not None:
                self._outgoing.lost()
                super().connection_lost(exc)
        # Break reference cycles: otherwise everything here would wait for the garbage collector.
        self.app = self._served
        self._tcp = self._handshake = None
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Pass to uvicorn only what belongs to the current request."""
        if self._outgoing is None:  # data that came with the TLS handshake, before its end is reported
            self._early += data
            return
        if self._is_discarding and not self._is_lingering:
            data = self._discard(data)
        if data:
            self._take(data)

    def _take(self, data: bytes) -> None:
        state = self.conn.their_state
        if self._is_lingering or state not in (h11.IDLE, h11.SEND_BODY):
            self._drop(len(data))
            return
        received = self.conn.trailing_data[0] + data if state is h11.IDLE else data
        fault = self._fault_in_head(received, data) if state is h11.IDLE else self._fault_in_body(data)
        if fault is not None:
            self._refuse(fault)
            return
        super().data_received(data)
        self._count_body(state, received)
        behind = len(self.conn.trailing_data[0])
        if behind and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._drop(behind)
            # h11 buffers no more of it; keep reading, to notice when the client disconnects.
            self.flow.resume_reading()
        self._watch()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's text says less
        """Answer a request that h11 could not parse. Called while its error is handled."""
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 0
        if hint == TOO_LONG.status:
            self._refuse(TOO_LONG)
        else:
            self._refuse(UNKNOWN_CODING if hint == _CODING_FAULT else MALFORMED)

    def on_response_complete(self) -> None:
        """Drop the rest of a request whose answer is sent already."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._is_discarding = True
            self._unset_keepalive_if_required()  # until then the deadline of the body applies

    def shutdown(self) -> None:
        """Close this connection, because the server ends."""
        if self._is_lingering or self._is_discarding:
            self._abort()
            return
        super().shutdown()
        if self._tcp is not None and self.transport.is_closing() and not self.transport.get_write_buffer_size():
            # asyncio would wait for the client's close_notify, and a pool of idle connections answers only when it uses
            # one: each would delay the end. RFC 8446, 6.1 does not require it.
            self._tcp.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. The last answer of a connection says `Connection: close` (RFC 9112, 9.6)."""
        await self._served(scope, receive, closing_connection(send, self._ends_with_answer))

    def _ends_with_answer(self) -> bool:
        if not self.cycle.keep_alive:
            return True
        if self.conn.their_state is not h11.SEND_BODY:
            return False
        # A client that waits for `100 Continue` may send the body or not (RFC 9110, 10.1.1).
        return self.cycle.waiting_for_100_continue or self._unread > MOST_DISCARDED

    def _count_body(self, state: object, received: bytes) -> None:
        """Count the bytes of the body in `received`; `state` is that of the client before them."""
        if self.conn.their_state is not h11.SEND_BODY:
            return
        if state is h11.IDLE:
            lengths = [int(value) for name, value in self.headers if name == b"content-length"]
            self._unread = lengths[0] if lengths and not self._is_chunked() else _ENDLESS
            received = received.partition(b"\r\n\r\n")[2]
        self._unread -= len(received)

    def _discard(self, data: bytes) -> bytes:
        """Drop the rest of the body of an answered request; return the bytes behind it."""
        body, behind = data[: self._unread], data[self._unread :]
        self._unread -= len(body)
        super().data_received(body)
        if self.conn.their_state is h11.IDLE:
            self._is_discarding = False
            self._phase = None
            self._disarm()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        return behind

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Start TLS. uvicorn would leave it to asyncio: a minute for each handshake, and no slot."""
        seconds = self.limits.header_seconds
        try:
            secured = await self.loop.start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds
            )
        except OSError as error:  # TLS error, lost connection or timeout
            error.__traceback__ = None  # breaks a cycle: asyncio's frame refers to the error and the connection
            self.connection_lost(None)
            return
        if self._slot is None or secured is None:
            return  # disconnected at the end of its handshake
        self._tcp = transport
        self._begin(secured)
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def _begin(self, transport: asyncio.Transport) -> None:
        self._outgoing = WriteBuffer(transport, self.limits.write_seconds, self._close)
        super().connection_made(self._outgoing)
        self._watch()

    def _fault_in_head(self, received: bytes, data: bytes) -> Fault | None:
        most = self.limits.header_bytes
        fault = fault_in(received, most_bytes=most)
        if fault is None and len(received) > most and b"\ntransfer-encoding" in received[:most].lower():
            return SMALL_CHUNKS if self._is_dense(data) else None
        return fault

    def _fault_in_body(self, data: bytes) -> Fault | None:
        return SMALL_CHUNKS if self._is_chunked() and self._is_dense(data) else None

    def _is_chunked(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.headers)

    def _is_dense(self, data: bytes) -> bool:
        self._line_ends += data.count(b"\n")
        self._wire_bytes += len(data)
        return self._line_ends > MOST_LINE_ENDS and self._line_ends * LEAST_GAP > self._wire_bytes

    def _watch(self) -> None:
        """Set the deadline for what the client must send now."""
        phase = (self.conn.their_state, self.cycle)
        if self._is_lingering or phase == self._phase:
            return
        self._phase = phase
        self._disarm()
        self._line_ends = self._wire_bytes = 0
        if phase[0] is h11.IDLE:
            self._timer = self.loop.call_later(self.limits.header_seconds, self._head_is_late)
        elif phase[0] is h11.SEND_BODY:
            self._timer = self.loop.call_later(self.limits.body_seconds, self._refuse, LATE)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(LATE)
        else:  # nothing was received: close without an answer
            self._abort()

    def _refuse(self, fault: Fault) -> None:
        """Answer without the application, and close. An application that has the request is told of a disconnect."""
        self._count(fault.kind)
        cycle = self.cycle
        is_begun = cycle is not None and not cycle.response_complete
        if is_begun:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._abort()
            return
        answer = error_response(fault.status, fault.message, kind=fault.kind, headers=_HEADERS)
        head = h11.Response(status_code=fault.status, headers=answer.raw_headers, reason=b"")
        self.transport.write(self.conn.send(head))
        if not (is_begun and self.scope["method"] == "HEAD"):
            self.transport.write(self.conn.send(h11.Data(data=bytes(answer.body))))
        self.transport.write(self.conn.send(h11.EndOfMessage()))
        self._dropped += 1
        self.transport.close()

    def _count(self, kind: str) -> None:
        for count in self.counting:
            count(kind)

    def _drop(self, count: int) -> None:
        """Count dropped bytes; too many end the connection."""
        self._dropped += count
        if self._is_lingering:
            most = self.limits.body_bytes
        else:
            most = self.limits.header_bytes
            self.cycle.keep_alive = False
        if self._dropped > most:
            self._abort()

    def _close(self) -> None:
        """Close; if the client is still sending, read and drop for a moment first."""
        if self._outgoing is None or self._is_lingering:
            return
        if not self._dropped and self.conn.their_state not in (h11.SEND_BODY, h11.ERROR):
            self._outgoing.really_close()
            return
        self._is_lingering = True
        self._unset_keepalive_if_required()
        self._disarm()
        self._timer = self.loop.call_later(LINGER_SECONDS, self._lingered)
        self._outgoing.half_close()

    def _lingered(self) -> None:
        if self._outgoing is not None and self._outgoing.get_write_buffer_size():
            self._outgoing.really_close()  # a slow reader: the write deadline applies
        else:
            self._abort()

    def _abort(self) -> None:
        if self._outgoing is not None:
            self._outgoing.abort()


_HEADERS = {"Connection": "close", **RESPONSE_HEADERS}
"""Of refusals that no middleware sees."""


def protocol_of(
    limits: LimitsSection,
    *,
    proxies: Sequence[str] = (),
    shared: Sequence[str] = LOOPBACK,
    tls: ssl.SSLContext | None = None,
    refused: RefusalListener | None = None,
) -> type[TimedProtocol]:
    """Create the protocol class of one server, for `uvicorn.Config(http=...)`. It counts the server's connections.

    Addresses in `proxies` and `shared` stand for many clients, so no share limits them. `tls` applies to every
    connection; uvicorn itself gets no certificate. `refused` is called for refusals that the application does not see.

    Raises:
        BadSetting: one of them is neither an address nor a network.
    """
    slots = ConnectionSlots(limits.connections, shared=(*shared, *proxies))
    attributes = {"limits": limits, "slots": slots, "tls": tls, "counting": () if refused is None else (refused,)}
    return type("TimedProtocol", (TimedProtocol,), attributes)
