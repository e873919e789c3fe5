"""How a server on this machine is opened: its program is started, or it runs in the background already."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from coretools.client.common.failures import explained
from coretools.client.configuration.launch import BackgroundLaunch, LocalLaunch
from coretools.client.connection.background_socket import as_line
from coretools.client.connection.background_stream import lines, message_line
from coretools.client.connection.negotiation import (
    LEGACY,
    MODERN,
    SILENCE_SECONDS,
    Era,
    NewClient,
    begun,
    probe,
)
from coretools.client.connection.stdio import ChildTracker, LocalServer, start_local
from coretools.errors import CoreError, Unreachable


class LocalTransport:
    """A program, started and ended with the connection."""

    def __init__(
        self, launch: LocalLaunch, tracker: ChildTracker, on_errors: Callable[[bytes], None] | None = None
    ) -> None:
        """`on_errors` gets what the program writes to standard error."""
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
        """Return a remark about lines on standard output that are not messages."""
        return self._server.junk() if self._server else []

    async def explained(self, error: BaseException, *, is_ready: bool) -> tuple[type[CoreError], str]:
        """Return the kind of an error and its sentence, with what is known of the program."""
        kind, text = explained(error, is_ready=is_ready)
        if self._server is None:
            return kind, text
        confinement = [self._launch.confinement] if self._launch.confinement and not is_ready else []
        if kind is Unreachable and not isinstance(error, CoreError | OSError):
            return kind, "; ".join([await self._server.describe_end(), *confinement])
        if is_ready:
            return kind, text
        return kind, "; ".join([text, *self._server.junk(), *self._server.last_words(), *confinement])

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
        return await begun(stack, new_client, nullcontext(server.streams), chosen) or MODERN


class BackgroundTransport:
    """A server that runs in the background: its messages come over a socket, its handshake was done before."""

    def __init__(self, launch: BackgroundLaunch) -> None:
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

    async def explained(self, error: BaseException, *, is_ready: bool) -> tuple[type[CoreError], str]:
        """Return the kind of an error and its sentence, or why the server is lost."""
        kind, text = explained(error, is_ready=is_ready)
        return kind, (self._reason or "the background process has ended") if kind is Unreachable else text

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
