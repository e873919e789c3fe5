"""The streams of one server, used by its connection and by further clients that are attached to it.

Each request of an attached client gets an id of its own, and so does its progress token; the answer goes back under
the id that the client chose. The connection's own messages pass unchanged.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types.jsonrpc import JSONRPCMessage

from coretools.client.common.failures import LOST, marked

FIRST_ID = 2**30
"""First id of the requests of attached clients; those of the connection itself count from 0."""

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@dataclass(frozen=True, slots=True)
class _Forwarded:
    """A request of an attached client that the server has not answered."""

    client: "AttachedClient"
    id: types.RequestId
    token: Any
    """Its progress token; None if it wants no progress."""


class SharedStreams:
    """Routes what the server sends to the connection or to an attached client."""

    def __init__(self, reading: Any, writing: Any, filtered: Callable[[str, Any], Any]) -> None:
        """`filtered` gets the method and the result of each answer to the connection, and returns what is usable."""
        self.reading = OwnReading(self, reading)
        self.writing = OwnWriting(self, writing)
        self.lost = anyio.Event()
        """The server sends nothing more."""
        self.ended = anyio.Event()
        """The session has ended, and `reason` says why."""
        self.reason = ""
        self._to_server = writing
        self._filtered = filtered
        self._methods: dict[types.RequestId, str] = {}
        self._ids = count(FIRST_ID)
        self._forwarded: dict[types.RequestId, _Forwarded] = {}
        self._asked: dict[types.RequestId, AttachedClient] = {}
        self._clients: list[AttachedClient] = []

    def attach(self, deliver: Callable[[JSONRPCMessage], None], handshake: Mapping[str, Any]) -> "AttachedClient":
        """Add a client, to which `deliver` takes messages without waiting; `handshake` answers its `initialize`."""
        client = AttachedClient(self, deliver, handshake)
        self._clients.append(client)
        return client

    def end(self, reason: str) -> None:
        """Let the clients know that the session has ended."""
        self.reason = reason
        self.ended.set()

    def note_sent(self, message: JSONRPCMessage) -> None:
        """Remember the method of a request of the connection itself."""
        if isinstance(message, types.JSONRPCRequest):
            self._methods[message.id] = message.method

    def routed(self, item: SessionMessage) -> SessionMessage | None:
        """Return a message if it is for the connection; hand it to attached clients if it is for them."""
        message = item.message
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            return self._answer(item, message)
        if isinstance(message, types.JSONRPCRequest):
            return self._question(item, message)
        return self._notification(item, message)

    def _answer(
        self, item: SessionMessage, message: types.JSONRPCResponse | types.JSONRPCError
    ) -> SessionMessage | None:
        forwarded = self._forwarded.pop(_key(message.id), None)
        if forwarded is not None:
            forwarded.client.deliver(message.model_copy(update={"id": forwarded.id}))
            return None
        method = self._methods.pop(_key(message.id), "")
        if isinstance(message, types.JSONRPCError):
            message.error = marked(message.error)
        elif method:
            message.result = self._filtered(method, message.result)
        return item

    def _question(self, item: SessionMessage, message: types.JSONRPCRequest) -> SessionMessage | None:
        """A question can't name the call that it belongs to: only if one client has a call, it is for that client."""
        busy = {id(one.client): one.client for one in self._forwarded.values()}
        if message.method == "ping" or len(busy) != 1:
            return item
        (client,) = busy.values()
        self._asked[message.id] = client
        client.deliver(message)
        return None

    def _notification(self, item: SessionMessage, message: types.JSONRPCNotification) -> SessionMessage | None:
        params = message.params or {}
        meta = params.get("_meta")
        subscription = meta.get(_SUBSCRIPTION) if isinstance(meta, dict) else None
        if message.method == "notifications/progress":
            return self._about(item, message, "progressToken", params.get("progressToken"))
        if message.method == "notifications/cancelled":
            named = params.get("requestId")
            asked = self._asked.pop(named, None) if isinstance(named, int | str) else None
            if asked is not None:
                asked.deliver(message)
                return None
            return self._about(item, message, "requestId", params.get("requestId"))
        forwarded = self._forwarded.get(_key(subscription))
        if forwarded is not None:
            named = {**params, "_meta": {**(meta or {}), _SUBSCRIPTION: forwarded.id}}
            forwarded.client.deliver(message.model_copy(update={"params": named}))
            return None
        for client in self._clients:
            client.deliver(message)
        return item

    def _about(
        self, item: SessionMessage, message: types.JSONRPCNotification, key: str, value: Any
    ) -> SessionMessage | None:
        """Hand a notification about one request to the client that made it."""
        forwarded = self._forwarded.get(_key(value))
        if forwarded is None:
            return item
        named = forwarded.token if key == "progressToken" else forwarded.id
        forwarded.client.deliver(message.model_copy(update={"params": {**(message.params or {}), key: named}}))
        return None

    async def send(self, message: JSONRPCMessage, headers: dict[str, str] | None) -> None:
        """Send a message of an attached client; nothing happens if the server is gone."""
        metadata = ClientMessageMetadata(headers=headers) if headers else None
        try:
            await self._to_server.send(SessionMessage(message, metadata))
        except LOST:
            self.lost.set()

    async def forward(self, client: "AttachedClient", message: types.JSONRPCRequest, headers: Any) -> None:
        """Send a request of an attached client under a new id."""
        number = next(self._ids)
        params = dict(message.params or {})
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if isinstance(meta, dict) and token is not None:
            params["_meta"] = {**meta, "progressToken": number}
        self._forwarded[number] = _Forwarded(client, message.id, token)
        changed: dict[str, Any] = {"id": number} | ({"params": params} if params else {})
        await self.send(message.model_copy(update=changed), headers)

    async def cancel(self, client: "AttachedClient", chosen: Any, params: Mapping[str, Any]) -> None:
        """Cancel the request on the server to which the client gave the id `chosen`."""
        for number, one in list(self._forwarded.items()):
            if one.client is client and one.id == chosen:
                del self._forwarded[number]
                named = {**params, "requestId": number}
                await self.send(
                    types.JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=named), None
                )

    async def reply(self, client: "AttachedClient", message: types.JSONRPCResponse | types.JSONRPCError) -> None:
        """Send a client's answer to a question that was handed to it; any other is dropped."""
        if message.id is not None and self._asked.get(message.id) is client:
            del self._asked[message.id]
            await self.send(message, None)

    async def detach(self, client: "AttachedClient") -> None:
        """Cancel what a client has not got an answer to, and refuse what it has not answered."""
        self._clients.remove(client)
        for one in [one for one in self._forwarded.values() if one.client is client]:
            await self.cancel(client, one.id, {"reason": "the client is gone"})
        for number in [number for number, asked in self._asked.items() if asked is client]:
            gone = types.ErrorData(code=types.INTERNAL_ERROR, message="the client is gone")
            await self.reply(client, types.JSONRPCError(jsonrpc="2.0", id=number, error=gone))


class AttachedClient:
    """A client besides the connection itself."""

    def __init__(
        self, shared: SharedStreams, deliver: Callable[[JSONRPCMessage], None], handshake: Mapping[str, Any]
    ) -> None:
        self.deliver = deliver
        """Takes a message to the client."""
        self._shared = shared
        self._handshake = handshake

    async def receive(self, message: JSONRPCMessage, headers: dict[str, str] | None) -> None:
        """Take a message of the client."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            await self._shared.reply(self, message)
        elif isinstance(message, types.JSONRPCRequest):
            if message.method == "initialize":
                self.deliver(types.JSONRPCResponse(jsonrpc="2.0", id=message.id, result=dict(self._handshake)))
            else:
                await self._shared.forward(self, message, headers)
        elif message.method == "notifications/cancelled":
            params = message.params or {}
            await self._shared.cancel(self, params.get("requestId"), params)
        elif message.method != "notifications/initialized":
            await self._shared.send(message, headers)

    async def wait_ended(self) -> str:
        """Wait for the end of the session; return its reason."""
        await self._shared.ended.wait()
        return self._shared.reason

    async def detach(self) -> None:
        """End the use of the server."""
        with anyio.CancelScope(shield=True):
            await self._shared.detach(self)


class _OwnStream:
    """A stream of the connection itself."""

    def __init__(self, shared: SharedStreams, stream: Any) -> None:
        self._shared = shared
        self._stream = stream

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class OwnReading(_OwnStream):
    """The stream from which the connection itself reads."""

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, for the SDK."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message for the connection."""
        while True:
            try:
                item = await self._stream.receive()
            except LOST:
                self._shared.lost.set()
                raise
            if isinstance(item, Exception):
                return item
            if (own := self._shared.routed(item)) is not None:
                return own

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class OwnWriting(_OwnStream):
    """The stream to which the connection itself writes."""

    async def send(self, item: SessionMessage) -> None:
        """Send a message of the connection."""
        self._shared.note_sent(item.message)
        await self._stream.send(item)


def _key(value: Any) -> types.RequestId:
    """Return an id as a key: some servers answer 7 with "7". An unusable one finds nothing."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)
    return value if isinstance(value, int | str) else ""
