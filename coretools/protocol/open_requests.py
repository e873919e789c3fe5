"""Track the open requests of one connection: unique ids, exact cancellation, one response each.

The SDK treats the id "73" like 73, runs a second request with an id that is in use, and at the end of a connection
answers open requests with "Connection closed" (mcp 2.3.0). This layer between its dispatcher and a transport corrects
all three: an id is in use by one request at a time, only exactly that id cancels it, and each request is answered once.
"""

import logging
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import anyio
import mcp_types as types
from anyio.abc import AsyncResource
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage


class MessageReader(AsyncResource):
    """Yields messages to `async for` and to `receive`. Subclasses supply them."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> SessionMessage | Exception:
        """Return the next message; `StopAsyncIteration` once the client has closed its end."""

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message.

        Raises:
            EndOfStream: the client has closed its end.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


logger = logging.getLogger(__name__)

DRAIN_SECONDS = 0.5
"""Time for open requests to finish at the end of input, so that requests piped into a server are answered."""

LAST_ANSWER_SECONDS = 1.0
"""How long the last responses may wait for a client that does not read."""

LISTEN = "subscriptions/listen"
CANCELLED = "notifications/cancelled"


class OpenRequests:
    """The open requests of one connection."""

    def __init__(
        self, server_info: Mapping[str, Any] | None = None, *, finish_seconds: float | None = DRAIN_SECONDS
    ) -> None:
        """`server_info` is included in results that this class sends.

        At the end of input, requests have `finish_seconds` to finish before they are answered with an error. None:
        the transport handles the end itself.
        """
        self.finish_seconds = finish_seconds
        self._server_info = dict(server_info or {})
        self._open: dict[types.RequestId, types.JSONRPCRequest] = {}
        self._writer: WriteStream[SessionMessage] | None = None
        self._settled = anyio.Event()
        self.is_over = False

    def wrap(
        self, reader: ReadStream[SessionMessage | Exception], writer: WriteStream[SessionMessage]
    ) -> "tuple[RequestReader, ResponseWriter]":
        """Return the two ends for the SDK's dispatcher."""
        self._writer = writer
        return RequestReader(self, reader, writer), ResponseWriter(self, writer)

    @property
    def ids(self) -> tuple[types.RequestId, ...]:
        """The ids of the open requests, as their client sent them."""
        return tuple(request.id for request in self._open.values())

    def begin(self, request: types.JSONRPCRequest) -> bool:
        """Register a request; False if its id is in use. `73` and `"73"` are the same id, as in the SDK."""
        key = coerce_request_id(request.id)
        if key in self._open:
            return False
        self._open[key] = request
        return True

    def cancel(self, request_id: object) -> bool:
        """Cancel a request, which is then never answered; False if no open request has exactly this id."""
        # bool is an int in Python: `true` would cancel request 1.
        if isinstance(request_id, bool) or not isinstance(request_id, str | int):
            return False
        request = self._open.get(coerce_request_id(request_id))
        # The table takes 73 and "73" for one id, as the SDK does; a cancellation has to name the id as it was sent.
        if request is None or type(request.id) is not type(request_id) or request.id != request_id:
            return False
        self._remove(request.id)
        return True

    def answer(self, request_id: types.RequestId | None) -> bool:
        """Whether a response may be sent: one for each request. A response to an invalid message has no id."""
        if request_id is None:
            return True
        return self._remove(request_id)

    async def finish(self, seconds: float = 0.0) -> None:
        """Answer all open requests: `subscriptions/listen` with its result, everything else with an error.

        Requests may finish by themselves for `seconds` before that. Nothing is sent afterwards.
        """
        with anyio.move_on_after(seconds):
            while any(request.method != LISTEN for request in self._open.values()):
                # A new event for each wait, since one that is set stays set.
                self._settled = anyio.Event()
                await self._settled.wait()
        # From here on `ResponseWriter` drops what requests still answer; the responses below do not pass through it.
        self.is_over = True
        with anyio.move_on_after(LAST_ANSWER_SECONDS, shield=True):
            for request in tuple(self._open.values()):
                if self._writer is not None and self._remove(request.id):
                    await _send(self._writer, self._final_response(request))

    def _remove(self, request_id: types.RequestId) -> bool:
        is_open = self._open.pop(coerce_request_id(request_id), None) is not None
        self._settled.set()
        return is_open

    def _final_response(self, request: types.JSONRPCRequest) -> types.JSONRPCResponse | types.JSONRPCError:
        if request.method != LISTEN:
            message_text = "the server is shutting down; this request was cancelled"
            error = types.ErrorData(code=types.INTERNAL_ERROR, message=message_text, data={"kind": "server-ends"})
            return types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: request.id}
        if self._server_info:
            meta[types.SERVER_INFO_META_KEY] = self._server_info
        result = types.SubscriptionsListenResult(_meta=meta)
        return types.JSONRPCResponse(
            jsonrpc="2.0", id=request.id, result=result.model_dump(by_alias=True, mode="json", exclude_none=True)
        )


class RequestReader(MessageReader):
    """Reads the client's messages, without those that reuse an id or cancel a request that is not open."""

    def __init__(
        self,
        requests: OpenRequests,
        reader: ReadStream[SessionMessage | Exception],
        writer: WriteStream[SessionMessage],
    ) -> None:
        self._requests = requests
        self._reader = reader
        self._writer = writer

    @property
    def last_context(self) -> Any:
        """Context of the last message's sender, if the stream has one."""
        return getattr(self._reader, "last_context", None)

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            try:
                item = await self._reader.__anext__()
            except StopAsyncIteration:
                if self._requests.finish_seconds is not None:
                    await self._requests.finish(self._requests.finish_seconds)
                raise
            if isinstance(item, Exception) or await self._accept(item.message):
                return item

    async def aclose(self) -> None:
        """Stop reading."""
        await self._reader.aclose()

    async def _accept(self, message: types.JSONRPCMessage) -> bool:
        if isinstance(message, types.JSONRPCRequest):
            if self._requests.begin(message):
                return True
            message_text = "a request with this id is still open; use a new id for each request"
            error = types.ErrorData(code=types.INVALID_REQUEST, message=message_text, data={"kind": "id-in-use"})
            await _send(self._writer, types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
            return False
        if isinstance(message, types.JSONRPCNotification) and message.method == CANCELLED:
            return self._requests.cancel((message.params or {}).get("requestId"))
        return True


class ResponseWriter(AsyncResource):
    """Writes messages to the client; each request is answered once."""

    def __init__(self, requests: OpenRequests, writer: WriteStream[SessionMessage]) -> None:
        self._requests = requests
        self._writer = writer

    async def send(self, item: SessionMessage) -> None:
        """Write one message."""
        message = item.message
        if self._requests.is_over:
            return
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and not self._requests.answer(message.id):
            return
        await self._writer.send(item)

    async def aclose(self) -> None:
        """Stop writing."""
        await self._writer.aclose()


async def _send(writer: WriteStream[SessionMessage], message: types.JSONRPCMessage) -> None:
    try:
        await writer.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        logger.debug("the client no longer reads")
