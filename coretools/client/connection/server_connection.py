"""The connection to one server: its state, its tools, calls of them, and errors that name it."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.jsonrpc import JSONRPCMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from coretools.client.common.failures import FAULTS, explained, first_leaf
from coretools.client.configuration.launch import BackgroundLaunch, Launch, LocalLaunch
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.deadlines import Deadlines
from coretools.client.connection.negotiation import CLIENT_INFO, Era
from coretools.client.connection.options import CALL_SECONDS, CONNECT_SECONDS, STEADY_SECONDS, ConnectionOptions, State
from coretools.client.connection.remote_transport import RemoteTransport
from coretools.client.connection.server_lists import ServerLists
from coretools.client.connection.server_log import ServerLog
from coretools.client.connection.server_requests import Callbacks, set_log_level
from coretools.client.connection.shared_streams import AttachedClient, SharedStreams
from coretools.client.connection.stdio import ChildTracker
from coretools.client.connection.transports import BackgroundTransport, LocalTransport
from coretools.errors import BadSetting, CannotStart, CoreError, DeadlinePassed, UnknownTool, Unreachable
from coretools.redaction.redactor import Redactor


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
        self._transport: LocalTransport | RemoteTransport | BackgroundTransport | None = None
        self._shared: SharedStreams | None = None
        notice = options.on_tools_changed
        self._lists = ServerLists(None if notice is None else partial(notice, entry.name))
        self._log: ServerLog | None = None
        self._was_ready = False
        self._redactor = Redactor()
        self._deadlines = Deadlines()
        self._callbacks = Callbacks()
        self._settled = anyio.Event()
        self._ended = anyio.Event()
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
        """Wait until the server is ready or has failed, or a further attempt to connect has."""
        await self._settled.wait()
        return self.state

    async def wait_ended(self) -> None:
        """Wait until the connection has ended, and the program of a local server."""
        await self._ended.wait()

    def stop(self) -> None:
        """End the connection, and the program of a local server."""
        self._life.cancel()

    def remarks(self) -> list[str]:
        """Return remarks: lines of a local server that are not messages, and malformed items of its lists."""
        remarks = [*(self._transport.remarks() if self._transport else ()), *self._lists.malformed.values()]
        return [self._redactor.text(text) for text in remarks]

    async def run(self) -> None:
        """Connect, and keep the connection until it is lost for good or `stop` ends it; raises nothing."""
        with self._life:
            await self._keep()
        if self.state is not State.FAILED:
            self.state = State.STOPPED
        self._end_session(f"server {self.name!r} was stopped")
        self._settled.set()
        self._ended.set()

    async def _keep(self) -> None:
        """Connect, and again after each pause if a connection that was ready is lost."""
        pauses: list[float] | None = None  # None until the server was ready for the first time
        while True:
            begun = anyio.current_time()
            failure = await self._lose_session()
            self._note_loss()
            if self._was_ready and (pauses is None or anyio.current_time() - begun > STEADY_SECONDS):
                pauses = list(self._options.reconnect_seconds)
            is_final = not pauses or isinstance(failure, BadSetting | CannotStart)
            self.error = await self._translated(failure, "connect")
            self._end_session(str(self.error))
            if is_final or not pauses:
                self.state = State.FAILED
                return
            if not self._was_ready:  # whoever waits for the attempt gets its error
                self._settled.set()
                self._settled = anyio.Event()
            await anyio.sleep(pauses.pop(0))

    async def _lose_session(self) -> BaseException:
        """Run one session; return why it ended."""
        self._was_ready = False
        failure: BaseException = anyio.EndOfStream()
        try:
            await self._session()
        except* FAULTS as group:
            failure = first_leaf(group)
        return failure

    def _note_loss(self) -> None:
        """Leave the state `ready` at once: what is asked from now on waits for another session, or for the reason."""
        self._client = None
        self.state = State.CONNECTING
        if self._settled.is_set():
            self._settled = anyio.Event()

    def attach(self, deliver: Callable[[JSONRPCMessage], None]) -> tuple[AttachedClient, str, dict[str, Any]]:
        """Let a further client use the server: return it, with the revision and the server's answer to the handshake.

        Raises:
            Unreachable: there is no connection.
        """
        client = self._ready_client()
        answer = client.session.initialize_result or client.session.discover_result
        shared = self._shared
        if answer is None or shared is None:
            raise Unreachable(f"server {self.name!r} is {self.state}")
        handshake = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        return shared.attach(deliver, handshake), client.protocol_version, handshake

    def _end_session(self, reason: str) -> None:
        self._client = None
        if self._shared is not None:
            self._shared.end(reason)
            self._shared = None

    async def tools(self) -> list[types.Tool]:
        """Return the tools that the configuration lets us use.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: no list came.
        """
        return [tool for tool in await self._listed("tools") if self._offers(tool.name)]

    async def resources(self) -> list[types.Resource | types.ResourceTemplate]:
        """Return the resources, and then the templates of resources.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: no list came.
        """
        return await self._listed("resources")

    async def prompts(self) -> list[types.Prompt]:
        """Return the prompts.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: no list came.
        """
        return await self._listed("prompts")

    @property
    def tool_changes(self) -> int:
        """Changes when the tools may have changed since they were listed."""
        return self._lists.changes("tools")

    async def read(self, uri: str) -> types.ReadResourceResult:
        """Read a resource.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: it was refused, or no answer came.
        """
        client = await self._wait_ready()
        async with self._request(f"read {uri}", self._call_seconds):
            return await client.read_resource(uri)

    async def prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """Return the messages of a prompt.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: it was refused, or no answer came.
        """
        client = await self._wait_ready()
        async with self._request(f"prompt {name}", self._call_seconds):
            return await client.get_prompt(name, arguments)

    async def complete(
        self, reference: types.PromptReference | types.ResourceTemplateReference, argument: str, value: str
    ) -> types.Completion:
        """Return how the server would complete the value of an argument.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: it was refused, or no answer came.
        """
        client = await self._wait_ready()
        async with self._request("complete", self._call_seconds):
            return (await client.complete(reference, {"name": argument, "value": value})).completion

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT | None = None
    ) -> types.CallToolResult:
        """Call a tool. If the caller is cancelled or the time is up, the server is told.

        Raises:
            Unreachable: the connection was lost. DeadlinePassed: no answer in time. SchemaMismatch: the result does
                not fit the tool's schema. ProtocolViolation: the server refused the request. UnknownTool: the
                configuration excludes the tool.
        """
        client = await self._wait_ready()
        if not self._offers(tool):
            raise UnknownTool(f"server {self.name!r}: {self.entry.place.path} excludes the tool {tool!r}")
        async with self._request(f"call {tool}", self._call_seconds):
            return await client.call_tool(tool, arguments, progress_callback=on_progress)

    async def ping(self) -> None:
        """Check that the server answers: by `ping`, or in the stateless era, which has none, by `server/discover`.

        Raises:
            Unreachable, DeadlinePassed, ProtocolViolation: none came.
        """
        client = await self._wait_ready()
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

    async def _wait_ready(self) -> Client:
        """Return the client; while there is no connection, wait for the attempt to connect."""
        if self.state is State.CONNECTING:
            with anyio.move_on_after(self._connect_seconds):
                await self._settled.wait()
        return self._ready_client()

    def _ready_client(self) -> Client:
        if self._client is None:
            raise self.error or Unreachable(f"server {self.name!r} is {self.state}")
        return self._client

    async def _session(self) -> None:
        """Open the server and keep the session until the server is gone."""
        launch = self._launch()
        if self._options.prepare_launch is not None:
            launch = self._options.prepare_launch(self.entry, launch)
        if isinstance(launch, LocalLaunch):
            launch = self._options.containment.applied(self.entry, launch)
        self._redactor = Redactor(launch.secrets)
        if self._options.logs is not None and not isinstance(launch, BackgroundLaunch):  # it is logged there
            self._log = self._options.logs.open(self.entry, self._redactor)
        self._transport = transport = self._transport_for(launch)
        with anyio.move_on_after(self._connect_seconds) as connecting:
            async with transport.opened(self._new_client) as client, anyio.create_task_group() as tasks:
                await set_log_level(client, self._callbacks)
                connecting.deadline = math.inf
                self._lists.forget()
                self._lists.limit_checks(client)
                self._client = client
                self._was_ready = True
                self.state = State.READY
                self.error = None
                self._settled.set()
                if self._options.watches_lists:
                    tasks.start_soon(self._lists.watch, client)
                for wait in (transport.wait_lost, self._wait_silent):
                    tasks.start_soon(self._end_after, wait, tasks.cancel_scope)
        if connecting.cancelled_caught:
            raise DeadlinePassed(f"did not answer within {self._connect_seconds:g} s")
        raise anyio.EndOfStream

    async def _end_after(self, wait: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        await wait()
        self._note_loss()
        scope.cancel()

    async def _wait_silent(self) -> None:
        if self._shared is not None:
            await self._shared.lost.wait()

    def _transport_for(self, launch: Launch) -> LocalTransport | RemoteTransport | BackgroundTransport:
        if isinstance(launch, BackgroundLaunch):
            return BackgroundTransport(launch)
        if isinstance(launch, LocalLaunch):
            return LocalTransport(launch, self._tracker, self._log.errors if self._log else None)
        authorize = self._options.authorization
        auth = None if authorize is None else authorize(self.entry, launch)
        return RemoteTransport(launch, self._options.retry_seconds, auth)

    def _new_client(self, streams: AbstractAsyncContextManager[Any], era: Era) -> Client:
        requests = self._options.server_requests
        given = Callbacks() if requests is None else requests.callbacks(self.name)
        asked = self._callbacks = given.within(self._deadlines.paused)
        return Client(
            self._sharing(streams),
            mode=era.mode,
            prior_discover=era.discovered,
            client_info=CLIENT_INFO,
            elicitation_callback=asked.elicitation,
            sampling_callback=asked.sampling,
            sampling_capabilities=asked.sampling_capabilities,
            list_roots_callback=asked.roots,
            logging_callback=asked.log if self._log is None else self._log.recorded(asked.log),
            log_level=asked.log_level if self._log is None else asked.log_level or "info",
            message_handler=self._lists.on_message,
            extensions=self._options.extensions,
        )

    @asynccontextmanager
    async def _sharing(self, streams: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Put between a transport and the session what serves attached clients too."""
        async with streams as (reading, writing):
            self._shared = shared = SharedStreams(
                reading, writing, lambda method, result: self._lists.usable(method, self.protocol_version, result)
            )
            yield shared.reading, shared.writing

    async def _listed(self, kind: str) -> list[Any]:
        client = await self._wait_ready()
        async with self._request(f"{kind}/list", self._connect_seconds):
            return await self._lists.fetch(client, kind)

    @property
    def _has_lost_session(self) -> bool:
        """In the older era HTTP 404 says that the server no longer knows the session, and a new one must begin."""
        is_old = self.protocol_version not in MODERN_PROTOCOL_VERSIONS
        return is_old and isinstance(self._transport, RemoteTransport) and self._transport.status == 404

    @asynccontextmanager
    async def _request(self, doing: str, seconds: float) -> AsyncIterator[None]:
        """Limit the time of a request, and name the server in its errors."""
        failure: BaseException | None = None
        shared = self._shared
        try:
            with self._deadlines.limit(seconds):
                yield
        except* TimeoutError:
            failure = DeadlinePassed(f"{doing}: no answer within {seconds:g} s")
        except* FAULTS as group:
            failure = first_leaf(group)
        if isinstance(failure, MCPError) and self._has_lost_session and shared is not None:
            shared.lost.set()
            failure = Unreachable(f"no longer knows the session: {failure.message}")
        if failure is not None:
            if shared is not None and shared is self._shared and shared.lost.is_set():
                self._note_loss()
            raise await self._translated(failure, doing) from failure

    async def _translated(self, error: BaseException, doing: str) -> CoreError:
        """Return the error of a server as one that names it."""
        if self._transport is None:
            kind, text = explained(error)
        else:
            kind, text = await self._transport.explained(error, is_ready=self._was_ready)
        server = f"server {self.name!r}: "
        prefix = server if doing == "connect" else f"{server}{doing}: "
        # The background process and the containment name the server themselves.
        return kind(self._redactor.text(prefix + text.removeprefix(server).removeprefix(f"{doing}: ")))
