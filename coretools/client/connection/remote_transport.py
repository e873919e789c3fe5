"""A remote server: reached over HTTP by either transport, tried again, its credentials added, its answers bounded."""

import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from coretools.client.common.failures import UNAVAILABLE, explained, origin_of
from coretools.client.configuration.launch import RemoteLaunch
from coretools.client.connection.negotiation import HTTP_SECONDS, Era, NewClient, begun, probe_http
from coretools.client.connection.stdio import MAX_LINE_BYTES
from coretools.errors import CoreError, Unreachable
from coretools.redaction.redactor import Redactor

RETRY_SECONDS = (0.5, 1.0)
"""Pauses before further attempts to reach a remote server."""

HTTP_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""That of the SDK's own clients. A server may keep a stream open and send nothing."""

MAX_ERROR_BYTES = 16 * 1024
"""Longest body of an error status in which the server's message is looked for."""

MAX_MESSAGE = 300
"""Characters of it that are shown."""

_OTHER_TRANSPORT = (400, 404, 405, 406, 415)
"""HTTP statuses by which a server may say that it does not speak a transport."""


class RemoteCredentials(httpx2.Auth):
    """Adds credentials to each request to a remote server, and may send requests of its own to get them."""

    @property
    def failure(self) -> CoreError | None:
        """Why there are none that the server accepts."""
        return None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message may contain."""
        return ()

    @property
    def idle_seconds(self) -> float:
        """Seconds since requests waited for credentials; 0 while they wait."""
        return math.inf


class RemoteTransport:
    """An address, reached over HTTP."""

    def __init__(self, launch: RemoteLaunch, retry_seconds: tuple[float, ...], auth: RemoteCredentials | None) -> None:
        self._launch = launch
        self._retry_seconds = retry_seconds
        self._auth = auth
        self._exchange = _Exchange()

    @property
    def status(self) -> int:
        """Status of the last response; 0 if there was none."""
        return self._exchange.status

    @asynccontextmanager
    async def opened(self, new_client: NewClient) -> AsyncIterator[Client]:
        """Reach the server, again after a pause if it can't be reached or is overloaded.

        Raises:
            httpx2.HTTPError, MCPError: it can't be used.
        """
        for pause in (*self._retry_seconds, None):
            self._exchange.status = 0
            async with AsyncExitStack() as stack:
                client: Client | None = None
                try:
                    client = await self._try(stack, new_client)
                except* (httpx2.TransportError, MCPError):
                    if pause is None or self.status not in (0, *UNAVAILABLE):
                        raise
                if client is not None:
                    yield client
                    return
            await anyio.sleep(pause or 0)

    async def wait_lost(self) -> None:
        """Wait for ever: a lost connection is an error of the streams."""
        await anyio.sleep_forever()

    def remarks(self) -> list[str]:
        """Return nothing: there is no output beside the messages."""
        return []

    async def explained(self, error: BaseException, *, is_ready: bool) -> tuple[type[CoreError], str]:
        """Return the kind of an error and its sentence, without tokens; why the credentials were refused, if known."""
        kind, text = explained(error, self.status, self._exchange.message, is_ready=is_ready)
        if isinstance(error, httpx2.TransportError):
            text = f"can't be reached at {origin_of(self._launch.url)}: {text}"
        if self._auth is None:
            return kind, text
        refusal = self._auth.failure if self.status in (401, 403) else None
        if refusal is not None and not isinstance(error, CoreError):
            kind, text = type(refusal), str(refusal)
        return kind, Redactor(self._auth.secrets).text(text)

    async def _try(self, stack: AsyncExitStack, new_client: NewClient) -> Client:
        """Try each transport that the entry allows. If the server speaks neither, its first refusal counts."""
        first, *others = self._launch.transports
        try:
            return await self._enter(stack, new_client, first)
        except* (httpx2.HTTPStatusError, MCPError) as group:
            if not others or self.status not in _OTHER_TRANSPORT:
                raise
            refusal, status, message = group, self.status, self._exchange.message
        try:
            return await self._enter(stack, new_client, others[0])
        except* (httpx2.HTTPStatusError, httpx2.TransportError):
            if self.status not in (*_OTHER_TRANSPORT, 200):  # 200: a page that is no stream of events
                raise
            self._exchange.status, self._exchange.message = status, message
            raise refusal from None

    async def _enter(self, stack: AsyncExitStack, new_client: NewClient, transport: str) -> Client:
        self._exchange.is_sse = transport == "sse"
        async with AsyncExitStack() as attempt:
            if self._exchange.is_sse:
                headers = dict(self._launch.headers)
                streams = sse_client(
                    self._launch.url, headers=headers, auth=self._auth, httpx_client_factory=self._new_http_client
                )
                client = await attempt.enter_async_context(new_client(streams, Era("legacy")))
            else:
                http = self._new_http_client(headers=dict(self._launch.headers), auth=self._auth)
                await attempt.enter_async_context(http)
                client = await self._enter_http(attempt, new_client, http)
            stack.push_async_exit(attempt.pop_all())
            return client

    async def _enter_http(self, stack: AsyncExitStack, new_client: NewClient, http: httpx2.AsyncClient) -> Client:
        """Ask for the era and begin the session; the SDK alone waits ten seconds for a server that does not answer."""
        patience: float | None = HTTP_SECONDS
        for _ in range(2):
            async with AsyncExitStack() as attempt:
                streams = streamable_http_client(self._launch.url, http_client=http, max_sse_event_size=MAX_LINE_BYTES)
                pair = await attempt.enter_async_context(streams)
                era = await probe_http(pair, patience, self._idle_seconds)
                refused = self.status if self.status in (401, 403) else 0
                try:
                    client = await begun(attempt, new_client, nullcontext(pair), era)
                except* MCPError:
                    # It speaks no older revision; what it wants is credentials.
                    self._exchange.status = refused or self.status
                    raise
                if client is not None:
                    stack.push_async_exit(attempt.pop_all())
                    return client
            patience = None
        raise Unreachable("it speaks no revision of the protocol that is known here")

    def _idle_seconds(self) -> float:
        return math.inf if self._auth is None else self._auth.idle_seconds

    def _new_http_client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        # Without compression the limit holds for what is read into memory.
        return httpx2.AsyncClient(
            headers={**(headers or {}), "Accept-Encoding": "identity"},
            timeout=timeout or HTTP_TIMEOUT,
            auth=auth,
            event_hooks={"response": [self._exchange.see]},
        )


@dataclass(slots=True)
class _Exchange:
    """The last response of a remote server."""

    status: int = 0
    """Status of the last response to a message."""
    message: str = ""
    """What the server says in it, if it is an error."""
    is_sse: bool = False
    """Whether a GET opens the connection; otherwise it opens a further stream, which a server need not offer."""

    async def see(self, response: httpx2.Response) -> None:
        """Take a response before its body is read, and limit the body."""
        is_counted = self.is_sse or response.request.method != "GET"
        if is_counted:
            self.status, self.message = response.status_code, ""
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the answer is compressed, which was not asked for")
        if not is_stream:  # the SDK limits each event of a stream
            response.stream = _Bounded(response.stream)
        if is_counted and response.is_error:
            self.message = await _message(response)


async def _message(response: httpx2.Response) -> str:
    """Return the message in the body of an error: that of JSON-RPC, or the first line of plain text."""
    length = response.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > MAX_ERROR_BYTES:
        return ""
    try:
        await response.aread()
    except httpx2.TransportError:
        return ""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "application/json":
        with suppress(ValueError):
            return types.JSONRPCError.model_validate_json(response.content).error.message[:MAX_MESSAGE]
    return response.text.strip().partition("\n")[0][:MAX_MESSAGE] if kind == "text/plain" else ""


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, up to a limit."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_LINE_BYTES:
                raise httpx2.StreamError(f"it is larger than {MAX_LINE_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()
