"""The connection to one server: its state, its tools, calls of them, and errors that name it."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from coretools.client.configuration import ServerEntry
from coretools.client.errors import ProtocolViolation
from coretools.client.failures import FAULTS, explained, first_leaf, origin_of
from coretools.client.launch import Launch, LocalLaunch, RemoteLaunch
from coretools.client.negotiation import CLIENT_INFO, LEGACY, MODERN, Era, probe
from coretools.client.stdio import ChildTracker, LocalServer, start_local
from coretools.errors import CoreError, DeadlinePassed, UnknownTool, Unreachable
from coretools.redaction.redactor import Redactor

CONNECT_SECONDS = 30.0
"""Until a server must have answered; the configuration or an option may say otherwise."""

CALL_SECONDS = 300.0
"""For one call."""

RETRY_SECONDS = (0.5, 1.0)
"""Pauses before further attempts to reach a remote server."""

MAX_PAGES = 1_000
MAX_ITEMS = 50_000
"""Of one list of a server."""


class State(StrEnum):
    """Of a connection."""

    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """What holds for all connections; None leaves it to the configuration, or the usual limit."""

    connect_seconds: float | None = None
    call_seconds: float | None = None
    retry_seconds: tuple[float, ...] = RETRY_SECONDS


@dataclass(slots=True)
class _Exchange:
    """What was seen of a remote server."""

    status: int = 0
    """Of the last response."""

    async def see(self, response: httpx2.Response) -> None:
        self.status = response.status_code


class Connection:
    """One server from its start to its end. `run` is a task of the hub; the other methods wait for it."""

    def __init__(
        self, entry: ServerEntry, launch: Callable[[], Launch], tracker: ChildTracker, options: ConnectionOptions
    ) -> None:
        self.entry = entry
        self.name = entry.name
        self.state = State.CONNECTING
        self.error: CoreError | None = None
        """Why it failed."""
        self._launch = launch
        self._tracker = tracker
        self._options = options
        self._client: Client | None = None
        self._local: LocalServer | None = None
        self._exchange = _Exchange()
        self._address = ""
        self._redactor = Redactor()
        self._settled = anyio.Event()
        # Shielded: a cancelled call still needs the connection to notify the server; `stop` follows.
        self._life = anyio.CancelScope(shield=True)

    @property
    def protocol_version(self) -> str:
        """Negotiated revision; empty while there is no connection."""
        return "" if self._client is None else self._client.protocol_version

    @property
    def server_info(self) -> types.Implementation | None:
        """What the server says of itself."""
        return None if self._client is None else self._client.server_info

    async def wait_settled(self) -> State:
        """Wait until the server is ready or has failed."""
        await self._settled.wait()
        return self.state

    def stop(self) -> None:
        """End the connection, and the program of a local server."""
        self._life.cancel()

    def remarks(self) -> list[str]:
        """Say what a local server wrote to standard output beside its messages."""
        return [self._redactor.text(text) for text in self._local.junk()] if self._local else []

    async def run(self) -> None:
        """Connect, and keep the connection until it is lost or `stop` ends it. Raises no error of the server."""
        failure: BaseException | None = None
        try:
            with self._life:
                await self._run()
        except* FAULTS as group:
            failure = first_leaf(group)
        self._client = None
        self.state = State.STOPPED
        if failure is not None:
            self.error = await self._translated(failure, "connect")
            self.state = State.FAILED
        self._settled.set()

    async def tools(self) -> list[types.Tool]:
        """Return the tools that the configuration lets us use.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: no list came.
        """
        client = self._ready_client()
        if client.server_capabilities.tools is None:
            return []
        async with self._request("tools/list", self._connect_seconds):
            listed = await _all_pages(lambda cursor: client.list_tools(cursor=cursor), "tools")
        found = {tool.name: tool for tool in reversed(listed)}  # of two with a name the first counts
        return [tool for tool in listed if found.pop(tool.name, None) is tool and self._offers(tool.name)]

    async def resources(self) -> list[types.Resource | types.ResourceTemplate]:
        """Return the resources, and then the templates of resources.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: no list came.
        """
        client = self._ready_client()
        if client.server_capabilities.resources is None:
            return []
        async with self._request("resources/list", self._connect_seconds):
            listed = await _all_pages(lambda cursor: client.list_resources(cursor=cursor), "resources")
            try:
                return listed + await _all_pages(
                    lambda cursor: client.list_resource_templates(cursor=cursor), "resource_templates"
                )
            except MCPError as error:
                if error.code != types.METHOD_NOT_FOUND:
                    raise
                return listed

    async def read(self, uri: str) -> types.ReadResourceResult:
        """Read a resource.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: it was refused, or no answer came.
        """
        client = self._ready_client()
        async with self._request(f"read {uri}", self._call_seconds):
            return await client.read_resource(uri)

    async def prompts(self) -> list[types.Prompt]:
        """Return the prompts.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: no list came.
        """
        client = self._ready_client()
        if client.server_capabilities.prompts is None:
            return []
        async with self._request("prompts/list", self._connect_seconds):
            return await _all_pages(lambda cursor: client.list_prompts(cursor=cursor), "prompts")

    async def prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """Return the messages of a prompt.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: it was refused, or no answer came.
        """
        client = self._ready_client()
        async with self._request(f"prompt {name}", self._call_seconds):
            return await client.get_prompt(name, arguments)

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT | None = None
    ) -> types.CallToolResult:
        """Call a tool. If the caller is cancelled or the time is up, the server is told.

        Raises:
            Unreachable: the connection was lost. DeadlinePassed: no answer in time. SchemaMismatch: the result does
                not fit the tool's schema. ProtocolViolation: the server refused the request. UnknownTool: the
                configuration excludes the tool.
        """
        client = self._ready_client()
        if not self._offers(tool):
            raise UnknownTool(f"server {self.name!r}: {self.entry.place.path} excludes the tool {tool!r}")
        async with self._request(f"call {tool}", self._call_seconds):
            return await client.call_tool(tool, arguments, progress_callback=on_progress)

    async def ping(self) -> None:
        """Ask for a sign of life: `ping`, or in the stateless era, which has none, `server/discover`.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: none came.
        """
        client = self._ready_client()
        async with self._request("ping", self._connect_seconds):
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                await client.session.send_discover(client.protocol_version)
            else:
                await client.session.send_ping()

    @property
    def _connect_seconds(self) -> float:
        settings = self.entry.settings
        return self._options.connect_seconds or (settings and settings.connect_seconds) or CONNECT_SECONDS

    @property
    def _call_seconds(self) -> float:
        settings = self.entry.settings
        return self._options.call_seconds or (settings and settings.call_seconds) or CALL_SECONDS

    def _offers(self, tool: str) -> bool:
        return self.entry.settings is None or self.entry.settings.offers(tool)

    def _ready_client(self) -> Client:
        if self._client is None:
            raise self.error or Unreachable(f"server {self.name!r} is {self.state}")
        return self._client

    async def _run(self) -> None:
        launch = self._launch()
        if isinstance(launch, RemoteLaunch):
            self._address = origin_of(launch.url)
        self._redactor = Redactor(launch.secrets)
        if isinstance(launch, LocalLaunch):
            era: Era | None = None
            for _ in range(2):
                era = await self._run_local(launch, era)
                if era is None:
                    return
            raise Unreachable("it exits during protocol negotiation")
        await self._run_remote(launch)

    async def _run_local(self, launch: LocalLaunch, era: Era | None) -> Era | None:
        """Run the program once; return the era in which to start it again, or None."""
        again: Era | None = None
        with self._connecting() as deadline:
            async with start_local(launch, self._tracker) as server:
                self._local = server
                try:
                    chosen = era or await probe(server.streams)
                except anyio.EndOfStream:
                    if server.fault:
                        raise
                    return LEGACY  # some servers of the older era end on any request before `initialize`
                try:
                    await self._serve(nullcontext(server.streams), chosen, deadline)
                except* MCPError as group:
                    error = first_leaf(group)
                    is_modern = isinstance(error, MCPError) and error.code == types.UNSUPPORTED_PROTOCOL_VERSION
                    if not (chosen.is_guess and is_modern):
                        raise
                    again = MODERN
        return again

    async def _run_remote(self, launch: RemoteLaunch) -> None:
        with self._connecting() as deadline:
            for pause in (*self._options.retry_seconds, None):
                self._exchange.status = 0
                try:
                    await self._try_remote(launch, deadline)
                except* (httpx2.TransportError, MCPError):
                    if pause is None or self.state is State.READY or self._exchange.status not in (0, 429, 502, 503):
                        raise
                else:
                    return
                await anyio.sleep(pause or 0)

    async def _try_remote(self, launch: RemoteLaunch, deadline: anyio.CancelScope) -> None:
        *others, last = launch.transports
        for transport in others:
            try:
                await self._open_remote(launch, transport, deadline)
            except* (httpx2.HTTPStatusError, MCPError):
                if self.state is State.READY or self._exchange.status not in (400, 404, 405, 406, 415):
                    raise
            else:
                return
        await self._open_remote(launch, last, deadline)

    async def _open_remote(self, launch: RemoteLaunch, transport: str, deadline: anyio.CancelScope) -> None:
        def new_client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            client = create_mcp_http_client(headers, timeout, auth)
            client.event_hooks = {"response": [self._exchange.see]}
            return client

        if transport == "sse":
            streams = sse_client(launch.url, headers=dict(launch.headers), httpx_client_factory=new_client)
            await self._serve(streams, Era("legacy"), deadline)
            return
        async with new_client(headers=dict(launch.headers)) as http:
            await self._serve(streamable_http_client(launch.url, http_client=http), Era("auto"), deadline)

    async def _serve(self, streams: AbstractAsyncContextManager[Any], era: Era, deadline: anyio.CancelScope) -> None:
        """Begin the session and keep it until the server is gone."""
        client = Client(streams, mode=era.mode, prior_discover=era.discovered, client_info=CLIENT_INFO)
        async with client:
            deadline.deadline = math.inf
            self._client = client
            self.state = State.READY
            self._settled.set()
            if self._local is None:
                await anyio.sleep_forever()
            else:
                await self._local.exited.wait()
        raise anyio.EndOfStream

    @contextmanager
    def _connecting(self) -> Iterator[anyio.CancelScope]:
        """Limit the time until the connection is there; the body lifts the limit."""
        with anyio.move_on_after(self._connect_seconds) as scope:
            yield scope
        if scope.cancelled_caught:
            raise DeadlinePassed(f"did not answer within {self._connect_seconds:g} s")

    @asynccontextmanager
    async def _request(self, doing: str, seconds: float) -> AsyncIterator[None]:
        """Limit the time of a request, and name the server in its errors."""
        failure: BaseException | None = None
        try:
            with anyio.fail_after(seconds):
                yield
        except* TimeoutError:
            failure = DeadlinePassed(f"{doing}: no answer within {seconds:g} s")
        except* FAULTS as group:
            failure = first_leaf(group)
        if failure is not None:
            raise await self._translated(failure, doing) from failure

    async def _translated(self, error: BaseException, doing: str) -> CoreError:
        """Return the error of a server as one that names it."""
        kind, text = explained(error, self._exchange.status)
        if isinstance(error, httpx2.TransportError):
            text = f"can't be reached at {self._address}: {text}"
        if kind is Unreachable and self._local is not None and not isinstance(error, CoreError | OSError):
            text = await self._local.describe_end()
        elif self._local is not None and self.state is not State.READY:
            text = "; ".join([text, *self._local.junk(), *self._local.last_words()])
        prefix = f"server {self.name!r}: " if doing in ("connect", "") else f"server {self.name!r}: {doing}: "
        return kind(self._redactor.text(prefix + text.removeprefix(f"{doing}: ")))


async def _all_pages(fetch: Callable[[str | None], Awaitable[Any]], items: str) -> list[Any]:
    """Return what all pages of a list hold.

    Raises:
        ProtocolViolation: it does not end.
    """
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await fetch(cursor)
        found += getattr(page, items)
        if page.next_cursor is None:
            return found
        if page.next_cursor == cursor or len(found) > MAX_ITEMS:
            break
        cursor = page.next_cursor
    raise ProtocolViolation(f"its list of {items} does not end ({len(found)} so far)")
