"""How a server is opened: a program is started, or an address reached, tried again, and its era negotiated."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
import mcp_types as types
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from coretools.client.common.failures import UNAVAILABLE, first_leaf, origin_of
from coretools.client.configuration.launch import BackgroundLaunch, LocalLaunch, RemoteLaunch
from coretools.client.connection.background_socket import as_line
from coretools.client.connection.background_stream import lines, message_line
from coretools.client.connection.negotiation import (
    HTTP_SECONDS,
    LEGACY,
    MODERN,
    SILENCE_SECONDS,
    Era,
    probe,
    probe_http,
)
from coretools.client.connection.stdio import MAX_LINE_BYTES, ChildTracker, LocalServer, start_local
from coretools.errors import CoreError, Unreachable

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

NewClient = Callable[[AbstractAsyncContextManager[Any], Era], Client]
"""Makes the SDK's client for streams; entering it does the handshake."""


class LocalTransport:
    """A program, started and ended with the connection."""

    def __init__(
        self, launch: LocalLaunch, tracker: ChildTracker, on_errors: Callable[[bytes], None] | None = None
    ) -> None:
        """`on_errors` gets what the program writes to standard error."""
        self.status = 0
        """Of the last response: there is none without HTTP."""
        self._server: LocalServer | None = None
        self._launch = launch
        self._tracker = tracker
        self._on_errors = on_errors

    @asynccontextmanager
    async def opened(self, new_client: NewClient) -> AsyncIterator[Client]:
        """Start the program and do the handshake; a program that did not understand the first request starts again.

        Raises:
            Unreachable: it ends before it is ready. CoreError, MCPError: see `start_local` and the handshake.
        """
        era: Era | None = None
        for _ in range(2):
            async with AsyncExitStack() as stack:
                opened = await self._try(stack, new_client, era)
                if isinstance(opened, Client):
                    yield opened
                    return
                era = opened
        raise Unreachable("it exits during protocol negotiation")

    async def wait_lost(self) -> None:
        """Wait for the end of the program."""
        if self._server is not None:
            await self._server.exited.wait()

    def remarks(self) -> list[str]:
        """Say what the program wrote to standard output beside its messages."""
        return self._server.junk() if self._server else []

    async def described(self, error: BaseException, kind: type[CoreError], text: str, *, is_ready: bool) -> str:
        """Return `text`, which explains an error, with what is known of the program."""
        if self._server is None:
            return text
        confinement = [self._launch.confinement] if self._launch.confinement and not is_ready else []
        if kind is Unreachable and not isinstance(error, CoreError | OSError):
            return "; ".join([await self._server.describe_end(), *confinement])
        if is_ready:
            return text
        return "; ".join([text, *self._server.junk(), *self._server.last_words(), *confinement])

    async def _try(self, stack: AsyncExitStack, new_client: NewClient, era: Era | None) -> Client | Era:
        """Start the program once; return the client, or the era in which to start it again."""
        self._server = server = await stack.enter_async_context(
            start_local(self._launch, self._tracker, self._on_errors)
        )
        try:
            chosen = LEGACY if era is LEGACY else await probe(server.streams, None if era else SILENCE_SECONDS)
        except anyio.EndOfStream:
            if server.fault or not server.has_read_input():
                raise  # nothing that was sent can be the reason
            return LEGACY  # some servers of the older era end on any request before `initialize`
        return await _begun(stack, new_client, nullcontext(server.streams), chosen) or MODERN


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
        """Of the last response; 0 if there was none."""
        return self._exchange.status

    @property
    def message(self) -> str:
        """What the server says in the last response, if that is an error; empty if nothing."""
        return self._exchange.message

    @property
    def refusal(self) -> CoreError | None:
        """Why the server refused the last request for its credentials, if that is known."""
        return self._auth.failure if self._auth is not None and self.status in (401, 403) else None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message may contain, beside those of the entry."""
        return self._auth.secrets if self._auth is not None else ()

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

    def described(self, error: BaseException, text: str) -> str:
        """Return `text`, which explains an error, with the address that can't be reached."""
        if isinstance(error, httpx2.TransportError):
            return f"can't be reached at {origin_of(self._launch.url)}: {text}"
        return text

    async def _try(self, stack: AsyncExitStack, new_client: NewClient) -> Client:
        """Try each transport that the entry allows. If the server speaks neither, its first refusal counts."""
        first, *others = self._launch.transports
        try:
            return await self._enter(stack, new_client, first)
        except* (httpx2.HTTPStatusError, MCPError) as group:
            if not others or self.status not in _OTHER_TRANSPORT:
                raise
            refusal, status, message = group, self.status, self.message
        try:
            return await self._enter(stack, new_client, others[0])
        except* httpx2.HTTPStatusError:
            if self.status not in _OTHER_TRANSPORT:
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
                    client = await _begun(attempt, new_client, nullcontext(pair), era)
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


async def _begun(
    stack: AsyncExitStack, new_client: NewClient, streams: AbstractAsyncContextManager[Any], era: Era
) -> Client | None:
    """Do the handshake; return None if the era was guessed and the server says that it is of the stateless one."""
    try:
        return await stack.enter_async_context(new_client(streams, era))
    except* MCPError as group:
        error = first_leaf(group)
        # The latter: `initialize` has none of the headers that a request of the stateless era needs.
        is_modern = isinstance(error, MCPError) and error.code in (
            types.UNSUPPORTED_PROTOCOL_VERSION,
            types.HEADER_MISMATCH,
        )
        if not (era.is_guess and is_modern):
            raise
    return None


@dataclass(slots=True)
class _Exchange:
    """What was seen of a remote server."""

    status: int = 0
    """Of the last response to a message."""
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
    await response.aread()
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


class BackgroundTransport:
    """A server that runs in the background: its messages come over a socket, its handshake was done before."""

    def __init__(self, launch: BackgroundLaunch) -> None:
        self.status = 0
        """Of the last response: there is none without HTTP."""
        self._socket = launch.connection
        self._lost = anyio.Event()
        self._reason = ""

    @asynccontextmanager
    async def opened(self, new_client: NewClient) -> AsyncIterator[Client]:
        """Begin with the answer to the handshake that the background process has kept.

        Raises:
            EndOfStream: the background process has ended, or the server is lost.
        """
        self._socket.setblocking(False)
        async with await SocketStream.from_socket(self._socket) as stream, AsyncExitStack() as stack:
            await stream.send(as_line({"do": "begin"}))
            incoming = lines(BufferedByteReceiveStream(stream))
            nothing: dict[str, Any] = {}
            begun = await anext(incoming, nothing)
            if "handshake" not in begun:
                self._reason = str(begun.get("lost", ""))
                raise anyio.EndOfStream
            to_client, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            writing, to_server = anyio.create_memory_object_stream[SessionMessage](0)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(self._read, incoming, to_client)
            tasks.start_soon(self._write, to_server, stream)
            era = LEGACY
            if begun["version"] in MODERN_PROTOCOL_VERSIONS:
                era = Era(begun["version"], types.DiscoverResult.model_validate(begun["handshake"]))
            async with new_client(nullcontext((reading, writing)), era) as client:
                yield client
            tasks.cancel_scope.cancel()

    async def wait_lost(self) -> None:
        """Wait for the end of the server, or of the background process."""
        await self._lost.wait()

    def remarks(self) -> list[str]:
        """Return nothing: `coretools mcp list` has the remarks about a server in the background."""
        return []

    def described(self, kind: type[CoreError], text: str) -> str:
        """Return `text`, which explains an error, or why the server is lost."""
        return (self._reason or "the background process has ended") if kind is Unreachable else text

    async def _read(self, incoming: AsyncIterator[dict[str, Any]], to_client: Any) -> None:
        async with to_client:
            async for line in incoming:
                if "lost" in line:
                    self._reason = str(line["lost"])
                    break
                message = types.jsonrpc_message_adapter.validate_python(line["message"], by_name=False)
                await to_client.send(SessionMessage(message))
        self._lost.set()

    async def _write(self, to_server: Any, stream: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with to_server:
                async for item in to_server:
                    headers = item.metadata.headers if isinstance(item.metadata, ClientMessageMetadata) else None
                    await stream.send(message_line(item.message, headers))
