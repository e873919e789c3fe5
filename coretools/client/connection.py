"""The connection to one server: its state, its tools, calls of them, and errors that name it."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from coretools.client.configuration import ServerEntry
from coretools.client.deadlines import Deadlines
from coretools.client.errors import ProtocolViolation
from coretools.client.failures import FAULTS, explained, first_leaf
from coretools.client.launch import Launch, LocalLaunch, RemoteLaunch
from coretools.client.negotiation import CLIENT_INFO, Era
from coretools.client.server_requests import Callbacks, ServerRequests
from coretools.client.stdio import ChildTracker
from coretools.client.transports import RETRY_SECONDS, LocalTransport, RemoteCredentials, RemoteTransport
from coretools.errors import CoreError, DeadlinePassed, UnknownTool, Unreachable
from coretools.redaction.redactor import Redactor

CONNECT_SECONDS = 30.0
"""Until a server must have answered; the configuration or an option may say otherwise."""

CALL_SECONDS = 300.0
"""For one call."""

MAX_PAGES = 1_000
MAX_ITEMS = 50_000
"""Of one list of a server."""


class State(StrEnum):
    """Of a connection."""

    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


Authorize = Callable[[ServerEntry, RemoteLaunch], RemoteCredentials | None]
"""Gives the credentials for a remote server, beside the headers of its entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """What holds for all connections; None leaves it to the configuration, or the usual limit."""

    connect_seconds: float | None = None
    call_seconds: float | None = None
    retry_seconds: tuple[float, ...] = RETRY_SECONDS
    server_requests: ServerRequests | None = None
    """Answers what servers ask for; None refuses."""
    authorization: Authorize | None = None
    """None takes those that are stored or configured."""


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
        self._transport: LocalTransport | RemoteTransport | None = None
        self._redactor = Redactor()
        self._deadlines = Deadlines()
        self._callbacks = Callbacks()
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
        return [self._redactor.text(text) for text in self._transport.remarks()] if self._transport else []

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
        """Open the server and keep the session until the server is gone."""
        launch = self._launch()
        self._redactor = Redactor(launch.secrets)
        self._transport = transport = self._transport_for(launch)
        with self._connecting() as deadline:
            async with transport.opened(self._new_client) as client:
                await self._set_log_level(client)
                deadline.deadline = math.inf
                self._client = client
                self.state = State.READY
                self._settled.set()
                await transport.wait_lost()
        raise anyio.EndOfStream

    def _transport_for(self, launch: Launch) -> LocalTransport | RemoteTransport:
        if isinstance(launch, LocalLaunch):
            return LocalTransport(launch, self._tracker)
        authorize = self._options.authorization
        auth = None if authorize is None else authorize(self.entry, launch)
        return RemoteTransport(launch, self._options.retry_seconds, auth)

    def _new_client(self, streams: AbstractAsyncContextManager[Any], era: Era) -> Client:
        requests = self._options.server_requests
        given = Callbacks() if requests is None else requests.callbacks(self.name)
        asked = self._callbacks = given.within(self._deadlines.paused)
        return Client(
            streams,
            mode=era.mode,
            prior_discover=era.discovered,
            client_info=CLIENT_INFO,
            elicitation_callback=asked.elicitation,
            sampling_callback=asked.sampling,
            sampling_capabilities=asked.sampling_capabilities,
            list_roots_callback=asked.roots,
            logging_callback=asked.log,
            log_level=asked.log_level,
        )

    async def _set_log_level(self, client: Client) -> None:
        """Ask a server of the older era for its log messages; the stateless era asks with each request."""
        level = self._callbacks.log_level
        if level is None or client.server_capabilities.logging is None:
            return
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
            with suppress(MCPError):  # a server that refuses still works
                await client.session.send_request(request, types.EmptyResult)

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
            with self._deadlines.limit(seconds):
                yield
        except* TimeoutError:
            failure = DeadlinePassed(f"{doing}: no answer within {seconds:g} s")
        except* FAULTS as group:
            failure = first_leaf(group)
        if failure is not None:
            raise await self._translated(failure, doing) from failure

    async def _translated(self, error: BaseException, doing: str) -> CoreError:
        """Return the error of a server as one that names it."""
        kind, text = explained(error, self._transport.status if self._transport else 0)
        if isinstance(self._transport, LocalTransport):
            text = await self._transport.described(error, kind, text, is_ready=self.state is State.READY)
        elif self._transport is not None:
            refusal = self._transport.refusal
            if refusal is not None and not isinstance(error, CoreError):
                kind, text = type(refusal), str(refusal)
            text = Redactor(self._transport.secrets).text(self._transport.described(error, text))
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
