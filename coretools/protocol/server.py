"""Serve a catalog of commands over MCP, in both protocol eras, on the SDK's lowlevel `Server`.

Tools, resources and prompts go through one dispatcher, which checks arguments strictly and copies each result once.
Only the SDK's public API is used (docs/adr/0001). The entry point chooses the transport.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerMiddleware, ServerRequestContext
from mcp.server.extension import Extension
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import SubscriptionBus
from opentelemetry import trace

from coretools.config.settings import Asking
from coretools.errors import CoreError, InputNeeded, NotFound, RequestError, UnknownPrompt, UnknownTool
from coretools.operations.catalog import Catalog
from coretools.operations.command import Command
from coretools.operations.dispatch import Dispatcher, Outcome
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.server_info import ServerInfo
from coretools.protocol.call_adapter import ClientCall, principal_of
from coretools.protocol.change_notifications import ChangeNotifications
from coretools.protocol.completion_handler import CompletionHandler
from coretools.protocol.draining import Draining
from coretools.protocol.extensions import attach_extensions
from coretools.protocol.handshake import Discovery, HandshakeConnections, HandshakeRules
from coretools.protocol.listing import LIST_TTL_SECONDS, CatalogListing, as_icons, page, tools_for
from coretools.protocol.resource_addresses import MAX_SHOWN_URI, NoResource, find_resource, no_resource
from coretools.protocol.results import as_contents, as_messages, as_result
from coretools.protocol.round_trip_questions import STATE_TTL_SECONDS, QuestionFactory, as_input_required

if TYPE_CHECKING:  # a program of an author runs no commands, and need not load what does
    from coretools.protocol.resources import RunResources

HINTING_SET = "git"
"""The tool set whose answers name further calls of other tools."""

_HINTS = ("Undo", "Then", "[")
"""How lines begin that name further calls. In an error any line may."""


def are_spans_exported() -> bool:
    """Whether an OpenTelemetry tracer provider is installed in this process; without one, spans are discarded."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Optional parts of a server, in addition to its commands."""

    runs: "RunResources | None" = None
    extensions: Sequence[Extension] = ()
    questions: QuestionFactory = field(default_factory=lambda: QuestionFactory(Asking()))
    """Creates the questions of each call. Extensions that ask share it, so that a confirmation counts only once."""
    request_state_keys: Sequence[bytes] = ()
    """Keys that seal `requestState`. Replicas share them; empty: a random key of this server."""
    bus: SubscriptionBus | None = None
    """Carries change notifications. Replicas share it; None: one in this server's memory."""
    draining: Draining | None = None
    """Reports when the server begins to shut down, so that open `subscriptions/listen` requests are answered."""
    middleware: Sequence[ServerMiddleware[Any]] = ()
    """Wraps the handling of each message."""
    has_one_client: bool = False
    """Whether it serves one connection only, which is then a session in the stateless era too."""
    is_traced: bool = field(default_factory=are_spans_exported)
    """Whether each message gets a span. A span costs 5 % of a call even when no exporter is installed."""


def build_server(
    catalog: LiveCatalog, dispatcher: Dispatcher, info: ServerInfo, options: ServerOptions | None = None
) -> Server[Any]:
    """Build the server of a catalog. It is not started, and serves any number of connections.

    Raises:
        BadSetting: an extension can't be attached.
    """
    options = options or ServerOptions()
    runs = options.runs
    changes = ChangeNotifications(catalog, dispatcher, runs, options.bus, has_one_client=options.has_one_client)
    if options.draining is not None:
        options.draining.add_listener(changes.close)
    handlers = _Handlers(catalog, dispatcher, runs, questions=options.questions, handshakes=changes.handshakes)
    server: Server[Any] = _ListChangedServer(
        info.name,
        version=info.version,
        title=info.title or None,
        website_url=info.website or None,
        icons=as_icons(info.icons),
        instructions=info.instructions or None,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_subscribe_resource=changes.subscribe,
        on_unsubscribe_resource=changes.unsubscribe,
        on_subscriptions_listen=changes.listen,
        on_completion=CompletionHandler(catalog, dispatcher, runs).complete,
        lifespan=changes.running,
        # Without this, the SDK calls list_tools for the schema on every stateless HTTP call.
        get_tool_input_schema=handlers.header_schema,
    )
    if not options.is_traced:
        server.middleware.clear()  # holds only the SDK's OpenTelemetry middleware
    keys = options.request_state_keys or (secrets.token_bytes(32),)
    # Bound to the authenticated principal, under the name used everywhere else.
    sealing = RequestStateSecurity(keys=keys, ttl=STATE_TTL_SECONDS, bind_principal=principal_of)
    server.middleware.append(RequestStateBoundary(sealing, default_audience=info.name))
    discovery = Discovery(server)
    server.middleware.append(HandshakeRules(discovery))
    server.middleware.extend(options.middleware)
    server.add_request_handler("server/discover", types.RequestParams, discovery.answer)
    # Not `on_set_logging_level`: the SDK logs a deprecation warning for it.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, changes.set_level)
    server.add_notification_handler(
        "notifications/initialized", types.NotificationParams, changes.handshakes.send_changes
    )
    attach_extensions(server, options.extensions)
    return server


class _ListChangedServer(Server[Any]):
    """A server that declares `listChanged` for every list; the SDK's declares it only when each caller asks."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the SDK's options with `listChanged` set for tools, resources and prompts."""
        changed = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(changed, experimental_capabilities, extensions)


class _Handlers:
    """Handlers of the protocol requests that run or list commands."""

    def __init__(
        self,
        catalog: LiveCatalog,
        dispatcher: Dispatcher,
        runs: "RunResources | None",
        *,
        questions: QuestionFactory,
        handshakes: HandshakeConnections,
    ) -> None:
        self._catalog = catalog
        self._handshakes = handshakes
        self._scope: Literal["public", "private"] = "public" if catalog.is_same_for_all else "private"
        self._dispatcher = dispatcher
        self._runs = runs
        self._questions = questions
        self._listing_of = lru_cache(1)(CatalogListing)

    async def list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        listed = tools_for(self._listing().tools, context.protocol_version)
        tools, next_cursor = page(listed, params.cursor if params else None)
        return types.ListToolsResult(
            tools=tools, next_cursor=next_cursor, ttl_ms=LIST_TTL_SECONDS * 1000, cache_scope=self._scope
        )

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        call = self._call(context, params)
        try:
            command = self._catalog.command(params.name)
        except UnknownTool as error:
            # A protocol error, not a tool error (server/tools, "Error Handling").
            raise _request_error(error) from error
        outcome = await self._dispatch(command, params.arguments or {}, call)
        if isinstance(outcome.error, InputNeeded):
            return as_input_required(outcome.error)
        if isinstance(outcome.error, RequestError):
            raise _request_error(outcome.error)
        if command.tool_set == HINTING_SET:
            outcome = _with_note(outcome, self._catalog.current)
        return as_result(outcome, context.protocol_version)

    async def list_resources(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        principal = principal_of(context)
        runs = self._runs.listed(principal) if self._runs else []
        resources, next_cursor = page([*self._listing().resources, *runs], params.cursor if params else None)
        # The list of runs changes with every call, so it must not be cached.
        return types.ListResourcesResult(
            resources=resources,
            next_cursor=next_cursor,
            ttl_ms=0 if self._runs else LIST_TTL_SECONDS * 1000,
            cache_scope="private" if self._runs else self._scope,
        )

    async def list_templates(
        self, _: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        own = [self._runs.template] if self._runs else []
        templates, next_cursor = page([*self._listing().templates, *own], params.cursor if params else None)
        return types.ListResourceTemplatesResult(
            resource_templates=templates,
            next_cursor=next_cursor,
            ttl_ms=LIST_TTL_SECONDS * 1000,
            cache_scope=self._scope,
        )

    async def read_resource(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        call = self._call(context, params)
        if self._runs and self._runs.is_one(params.uri):
            return self._runs.read(params.uri, call.principal)
        resource = find_resource(self._catalog.current.resources.values(), params.uri)
        if resource is None:
            raise no_resource(params.uri)
        command, values = resource
        outcome = await self._dispatch_or_raise(command, command.arguments.from_text(values), call, uri=params.uri)
        if isinstance(outcome.error, InputNeeded):
            return as_input_required(outcome.error)
        contents = as_contents(outcome, params.uri, command.mime_type)
        return types.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope="private")

    async def list_prompts(
        self, _: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        prompts, next_cursor = page(self._listing().prompts, params.cursor if params else None)
        return types.ListPromptsResult(
            prompts=prompts, next_cursor=next_cursor, ttl_ms=LIST_TTL_SECONDS * 1000, cache_scope=self._scope
        )

    async def get_prompt(
        self, context: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        call = self._call(context, params)
        try:
            command = self._catalog.current.prompt(params.name)
        except UnknownPrompt as error:
            raise _request_error(error) from error
        outcome = await self._dispatch_or_raise(command, command.arguments.from_text(params.arguments or {}), call)
        if isinstance(outcome.error, InputNeeded):
            return as_input_required(outcome.error)
        return types.GetPromptResult(description=command.summary, messages=as_messages(outcome))

    def header_schema(self, name: str) -> dict[str, Any] | None:
        """Return the schema that the headers of a request are checked against."""
        return self._listing().header_schema(name)

    def _call(self, context: ServerRequestContext[Any], params: types.InputResponseRequestParams) -> ClientCall:
        questions = cache(partial(self._questions.of, context, params))
        if params.request_state is not None:
            questions()  # a state that is not one of this server is refused, even by a command that asks nothing
        handshakes = self._handshakes
        return ClientCall(
            context, questions, min_level=handshakes.level_of(context), state=handshakes.state_of(context)
        )

    def _listing(self) -> CatalogListing:
        """Return the lists of the catalog in force, created once for it."""
        return self._listing_of(self._catalog.current)

    async def _dispatch_or_raise(
        self, command: Command, arguments: dict[str, Any], call: ClientCall, *, uri: str = ""
    ) -> Outcome:
        """Run a command that is not a tool; an error becomes a protocol error, unless it is a question."""
        try:
            self._catalog.require_registered(command)
        except UnknownTool as error:
            raise _request_error(error) from error
        outcome = await self._dispatch(command, arguments, call)
        if outcome.error is not None and not isinstance(outcome.error, InputNeeded):
            raise _request_error(outcome.error, uri)
        return outcome

    async def _dispatch(self, command: Command, arguments: Mapping[str, Any], call: ClientCall) -> Outcome:
        try:
            return await self._dispatcher.dispatch(command, arguments, call)
        finally:
            await call.end()


def _with_note(outcome: Outcome, catalog: Catalog) -> Outcome:
    """Return an outcome with a note on tools that it tells to call and this caller does not have."""
    lines = outcome.text.split("\n")
    hints = lines if outcome.error is not None else [line for line in lines if line.startswith(_HINTS)]
    missing = catalog.not_offered("\n".join(hints))
    if not missing:
        return outcome
    way = "; git in run_command may do instead" if catalog.find("run_command") else ""
    return replace(outcome, text=f"{outcome.text}\n[not offered here: {missing}{way}]")


def _request_error(error: CoreError, uri: str = "") -> MCPError:
    """Return the protocol error for a command's error, with its own code if it has one. `uri` was to be read."""
    if isinstance(error, RequestError):
        return MCPError(code=error.code, message=str(error), data=error.data)
    if uri and isinstance(error, NotFound):
        return NoResource(uri, str(error), kind=error.kind)
    code = types.INTERNAL_ERROR if error.kind == "internal" else types.INVALID_PARAMS
    return MCPError(
        code=code, message=str(error), data={"kind": error.kind, **({"uri": uri[:MAX_SHOWN_URI]} if uri else {})}
    )
