"""The requests of one connection that have no answer yet: told apart by their ids, answered when the connection ends.

The SDK takes the text "73" for the number 73, runs a second request of an id beside the first, and at the end of a
connection answers what is open with "Connection closed" (mcp 2.3.0). Between its dispatcher and a transport all three
are put right: an id is one request at a time, only that very id cancels it, and every request is answered once.
"""

import logging
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import AsyncResource
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage

from coretools.protocol.message_reader import MessageReader

logger = logging.getLogger(__name__)

FINISH_SECONDS = 0.5
"""Given to open requests at the end of input: what is piped into a server gets its answers."""

ANSWER_SECONDS = 1.0
"""How long the last answers may wait for a client that does not read."""

LISTEN = "subscriptions/listen"
CANCELLED = "notifications/cancelled"


class OpenRequests:
    """What is open on one connection."""

    def __init__(
        self, server_info: Mapping[str, Any] | None = None, *, finish_seconds: float | None = FINISH_SECONDS
    ) -> None:
        """`server_info` stands in the results that this gives.

        At the end of input requests have `finish_seconds` to come to their own end, and are answered then; None:
        whoever ends the connection has said so to its client.
        """
        self.finish_seconds = finish_seconds
        self._server_info = dict(server_info or {})
        self._open: dict[types.RequestId, types.JSONRPCRequest] = {}
        self._writer: WriteStream[SessionMessage] | None = None
        self._settled = anyio.Event()
        self.is_over = False

    def around(
        self, reader: ReadStream[SessionMessage | Exception], writer: WriteStream[SessionMessage]
    ) -> "tuple[RequestReader, ResponseWriter]":
        """The two ends for the SDK's dispatcher."""
        self._writer = writer
        return RequestReader(self, reader, writer), ResponseWriter(self, writer)

    def begin(self, request: types.JSONRPCRequest) -> bool:
        """Count a request; False where one of its id is open. `73` and `"73"` are one id, as they are to the SDK."""
        key = coerce_request_id(request.id)
        if key in self._open:
            return False
        self._open[key] = request
        return True

    def cancel(self, request_id: object) -> bool:
        """Whether this cancels a request; nothing is sent for it from then on."""
        if isinstance(request_id, bool) or not isinstance(request_id, str | int):
            return False
        found = self._open.get(coerce_request_id(request_id))
        if found is None or type(found.id) is not type(request_id) or found.id != request_id:
            return False
        self._close(found.id)
        return True

    def answer(self, request_id: types.RequestId | None) -> bool:
        """Whether an answer may go out: once for each request. One without an id is of a message that was none."""
        if request_id is None:
            return True
        return self._close(request_id)

    async def finish(self, seconds: float = 0.0) -> None:
        """Answer what is open: a stream of notifications with its result, everything else with an error.

        Requests may come to their own end for `seconds` before that. Nothing is sent afterwards.
        """
        with anyio.move_on_after(seconds):
            while any(request.method != LISTEN for request in self._open.values()):
                self._settled = anyio.Event()
                await self._settled.wait()
        self.is_over = True
        with anyio.move_on_after(ANSWER_SECONDS, shield=True):
            for request in tuple(self._open.values()):
                if self._writer is not None and self._close(request.id):
                    await _sent(self._writer, self._last(request))

    def _close(self, request_id: types.RequestId) -> bool:
        is_open = self._open.pop(coerce_request_id(request_id), None) is not None
        self._settled.set()
        return is_open

    def _last(self, request: types.JSONRPCRequest) -> types.JSONRPCResponse | types.JSONRPCError:
        if request.method != LISTEN:
            said = "the server ends; this request was stopped"
            error = types.ErrorData(code=types.INTERNAL_ERROR, message=said, data={"kind": "server-ends"})
            return types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: request.id}
        if self._server_info:
            meta[types.SERVER_INFO_META_KEY] = self._server_info
        result = types.SubscriptionsListenResult(_meta=meta)
        return types.JSONRPCResponse(
            jsonrpc="2.0", id=request.id, result=result.model_dump(by_alias=True, mode="json", exclude_none=True)
        )


class RequestReader(MessageReader):
    """Messages of the client, without those that mean no request or another one than they say."""

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
        """Of the sender of the last message, where the stream knows it."""
        return getattr(self._reader, "last_context", None)

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            try:
                item = await self._reader.__anext__()
            except StopAsyncIteration:
                if self._requests.finish_seconds is not None:
                    await self._requests.finish(self._requests.finish_seconds)
                raise
            if isinstance(item, Exception) or await self._is_served(item.message):
                return item

    async def aclose(self) -> None:
        """Read no more."""
        await self._reader.aclose()

    async def _is_served(self, message: types.JSONRPCMessage) -> bool:
        if isinstance(message, types.JSONRPCRequest):
            if self._requests.begin(message):
                return True
            said = "a request with this id is being answered; each needs one of its own"
            error = types.ErrorData(code=types.INVALID_REQUEST, message=said, data={"kind": "id-in-use"})
            await _sent(self._writer, types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
            return False
        if isinstance(message, types.JSONRPCNotification) and message.method == CANCELLED:
            return self._requests.cancel((message.params or {}).get("requestId"))
        return True


class ResponseWriter(AsyncResource):
    """Messages to the client, each request answered once."""

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
        """Write no more."""
        await self._writer.aclose()


async def _sent(writer: WriteStream[SessionMessage], message: types.JSONRPCMessage) -> None:
    try:
        await writer.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        logger.debug("the client no longer reads")
