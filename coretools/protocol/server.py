"""A catalog of commands as an MCP server, for both protocol eras, on the SDK's lowlevel `Server`.

The lowlevel server and a dispatch of our own: strict arguments, one copy of each result, public API only
(docs/adr/0001). Tools, resources and prompts go through one dispatch; the transport is the entry point's choice.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import SubscriptionBus
from opentelemetry import trace

from coretools import __version__
from coretools.config.settings import Asking
from coretools.errors import CoreError, InputNeeded, NotFound, RequestRefused, UnknownTool
from coretools.operations.call import LOCAL
from coretools.operations.dispatch import Dispatcher, Outcome
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Command
from coretools.protocol.call_adapter import ClientCall, principal_of
from coretools.protocol.change_notifications import Changes
from coretools.protocol.completions import Completer
from coretools.protocol.extensions import extend
from coretools.protocol.handshake import HandshakeRules, Handshakes
from coretools.protocol.listing import LIST_SECONDS, Listing, Listings, page, tools_for
from coretools.protocol.process_exit import Draining
from coretools.protocol.resources import SHOWN, NoResource, RunResources, found, no_resource
from coretools.protocol.results import as_contents, as_messages, as_result
from coretools.protocol.round_trip_questions import STATE_SECONDS, Interviews, as_questions

SERVER_NAME = "coretools"

ASKING = Asking()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """How a server introduces itself."""

    name: str = SERVER_NAME
    version: str = __version__
    instructions: str = ""


def build_server(
    catalog: LiveCatalog,
    dispatcher: Dispatcher,
    identity: Identity,
    runs: RunResources | None = None,
    *,
    extensions: Sequence[Extension] = (),
    asking: Asking = ASKING,
) -> Server[Any]:
    """A server of a catalog. Not started; serves any number of connections.

    Raises:
        BadSetting: an extension can't be attached.
    """
    beside = Beside(runs=runs, extensions=extensions, interviews=Interviews(asking))
    return build_shared(catalog, dispatcher, identity, beside)


def are_spans_exported() -> bool:
    """Whether this process has a tracer provider of OpenTelemetry by now: spans go nowhere without one."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a server has beside its commands."""

    runs: RunResources | None = None
    extensions: Sequence[Extension] = ()
    interviews: Interviews = field(default_factory=lambda: Interviews(ASKING))
    """How questions are asked; shared with extensions that ask, so that a confirmation counts once in all of them."""
    sealing_keys: Sequence[bytes] = ()
    """Shared by replicas, as the next is; by default each is this server's own."""
    bus: SubscriptionBus | None = None
    draining: Draining | None = None
    """Says when the server ends, so that clients who listen are told."""
    is_traced: bool = field(default_factory=are_spans_exported)
    """Whether each message has its span. Where nobody exports them they cost a twentieth of a call all the same."""


def build_shared(catalog: LiveCatalog, dispatcher: Dispatcher, identity: Identity, beside: Beside) -> Server[Any]:
    """As `build_server`, of what it may share with others.

    Raises:
        BadSetting: an extension can't be attached.
    """
    runs = beside.runs
    changes = Changes(catalog, dispatcher, runs, beside.bus)
    if beside.draining is not None:
        beside.draining.hear(changes.close)
    handlers = _Handlers(catalog, dispatcher, runs, interviews=beside.interviews, handshakes=changes.handshakes)
    server: Server[Any] = _Announcing(
        identity.name,
        version=identity.version,
        instructions=identity.instructions or None,
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
        on_completion=Completer(catalog, dispatcher, runs).complete,
        lifespan=changes.running,
        # Without it the SDK asks list_tools for the schema on every stateless HTTP call.
        get_tool_input_schema=handlers.headed_schema,
    )
    if not beside.is_traced:
        server.middleware.clear()  # the SDK's own, for OpenTelemetry, is all that is in it
    server.middleware.append(RequestStateBoundary(_security(beside), default_audience=identity.name))
    server.middleware.append(HandshakeRules(server))
    # Not as `on_set_logging_level`, which would warn whoever runs this that the handshake era is on its way out.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, changes.set_level)
    server.add_notification_handler("notifications/initialized", types.NotificationParams, changes.handshakes.follow)
    extend(server, beside.extensions)
    return server


def _security(beside: Beside) -> RequestStateSecurity:
    # Bound to the principal that our own gate found, by the name that everything else knows him by.
    if not beside.sealing_keys:
        beside = replace(beside, sealing_keys=(secrets.token_bytes(32),))
    return RequestStateSecurity(keys=beside.sealing_keys, ttl=STATE_SECONDS, bind_principal=principal_of)


class _Announcing(Server[Any]):
    """Says in the handshake that changes of lists are told; the SDK's servers say no unless each caller asks."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK has them, with every list announced."""
        told = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(told, experimental_capabilities, extensions)


class _Handlers:
    """The requests of the protocol that lead to commands."""

    def __init__(
        self,
        catalog: LiveCatalog,
        dispatcher: Dispatcher,
        runs: RunResources | None,
        *,
        interviews: Interviews,
        handshakes: Handshakes,
    ) -> None:
        self._catalog = catalog
        self._handshakes = handshakes
        self._scope: Literal["public", "private"] = "public" if catalog.is_same_for_all else "private"
        self._dispatcher = dispatcher
        self._runs = runs
        self._interviews = interviews
        self.listings = Listings(catalog.for_principal)

    async def list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        listed = tools_for(self._listing(context).tools, context.protocol_version)
        tools, following = page(listed, params.cursor if params else None)
        return types.ListToolsResult(
            tools=tools, next_cursor=following, ttl_ms=LIST_SECONDS * 1000, cache_scope=self._scope
        )

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        call = self._call(context, params)
        try:
            command = self._catalog.command(call.principal, params.name)
        except UnknownTool as error:
            # The protocol has this one as an error of the request, not of the tool (server/tools, "Error Handling").
            raise _refused(error) from error
        outcome = await self._dispatched(command, params.arguments or {}, call)
        if isinstance(outcome.error, InputNeeded):
            return as_questions(outcome.error)
        if isinstance(outcome.error, RequestRefused):
            raise _refused(outcome.error)
        return as_result(outcome, context.protocol_version)

    async def list_resources(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        principal = principal_of(context)
        runs = self._runs.listed(principal) if self._runs else []
        resources, following = page([*self._listing(context).resources, *runs], params.cursor if params else None)
        # Runs change with every call, so nobody keeps a list that has them.
        return types.ListResourcesResult(
            resources=resources,
            next_cursor=following,
            ttl_ms=0 if self._runs else LIST_SECONDS * 1000,
            cache_scope="private" if self._runs else self._scope,
        )

    async def list_templates(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        own = [self._runs.template] if self._runs else []
        templates, following = page([*self._listing(context).templates, *own], params.cursor if params else None)
        return types.ListResourceTemplatesResult(
            resource_templates=templates,
            next_cursor=following,
            ttl_ms=LIST_SECONDS * 1000,
            cache_scope=self._scope,
        )

    async def read_resource(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        call = self._call(context, params)
        if self._runs and self._runs.is_one(params.uri):
            return self._runs.read(params.uri, call.principal)
        at = found(self._catalog.for_principal(call.principal).resources.values(), params.uri)
        if at is None:
            raise no_resource(params.uri)
        command, written = at
        outcome = await self._run(command, command.arguments.from_text(written), call, uri=params.uri)
        if isinstance(outcome.error, InputNeeded):
            return as_questions(outcome.error)
        contents = as_contents(outcome, params.uri, command.mime_type)
        return types.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope="private")

    async def list_prompts(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        prompts, following = page(self._listing(context).prompts, params.cursor if params else None)
        return types.ListPromptsResult(
            prompts=prompts, next_cursor=following, ttl_ms=LIST_SECONDS * 1000, cache_scope=self._scope
        )

    async def get_prompt(
        self, context: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        call = self._call(context, params)
        try:
            command = self._catalog.require_registered(self._catalog.for_principal(call.principal).prompt(params.name))
        except UnknownTool as error:
            raise _refused(error) from error
        outcome = await self._run(command, command.arguments.from_text(params.arguments or {}), call)
        if isinstance(outcome.error, InputNeeded):
            return as_questions(outcome.error)
        return types.GetPromptResult(description=command.summary, messages=as_messages(outcome))

    def headed_schema(self, name: str) -> dict[str, Any] | None:
        """By what a request's headers are checked; asked before the caller is known."""
        return self.listings.of(LOCAL).headed_schema(name)

    def _call(self, context: ServerRequestContext[Any], params: types.InputResponseRequestParams) -> ClientCall:
        least = self._handshakes.level_of(context)
        return ClientCall(context, interview=self._interviews.of(context, params), least=least)

    def _listing(self, context: ServerRequestContext[Any]) -> Listing:
        return self.listings.of(principal_of(context))

    async def _run(self, command: Command, arguments: dict[str, Any], call: ClientCall, *, uri: str = "") -> Outcome:
        """Run what is no tool: its failure is the request's, unless it is a question."""
        outcome = await self._dispatched(self._present(command), arguments, call)
        if outcome.error is not None and not isinstance(outcome.error, InputNeeded):
            raise _refused(outcome.error, uri)
        return outcome

    async def _dispatched(self, command: Command, arguments: Mapping[str, Any], call: ClientCall) -> Outcome:
        try:
            return await self._dispatcher.dispatch(command, arguments, call)
        finally:
            await call.end()

    def _present(self, command: Command) -> Command:
        try:
            return self._catalog.require_registered(command)
        except UnknownTool as error:
            raise _refused(error) from error


def _refused(error: CoreError, uri: str = "") -> MCPError:
    """An error of the request: the command's own code where it has one. `uri` is what was to be read."""
    if isinstance(error, RequestRefused):
        return MCPError(code=error.code, message=str(error), data=error.data)
    if uri and isinstance(error, NotFound):
        return NoResource(uri, str(error), kind=error.kind)
    code = types.INTERNAL_ERROR if error.kind == "internal" else types.INVALID_PARAMS
    return MCPError(code=code, message=str(error), data={"kind": error.kind, **({"uri": uri[:SHOWN]} if uri else {})})
