"""Complete the arguments of prompts and resource templates for a client."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext

from coretools.errors import UnknownPrompt, UnknownTool
from coretools.operations.command import Command
from coretools.operations.completion import MAX_VALUES
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.uri_template import template_variables
from coretools.protocol.call_adapter import principal_of
from coretools.protocol.resource_addresses import MAX_SHOWN_URI, no_resource

if TYPE_CHECKING:  # a program of an author runs no commands, and need not load what does
    from coretools.protocol.resources import RunResources

MAX_RETURNED = 100
"""Values in one response, a limit of the protocol."""


class CompletionHandler:
    """Completes arguments for a client."""

    def __init__(self, catalog: LiveCatalog, dispatcher: Dispatcher, runs: "RunResources | None") -> None:
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._runs = runs

    async def complete(
        self, context: ServerRequestContext[Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Return the first values and their total number.

        Raises:
            MCPError: no such prompt or template, or no such argument of it.
        """
        name, typed = params.argument.name, params.argument.value
        given = (params.context.arguments if params.context else None) or {}
        if isinstance(params.ref, types.PromptReference):
            command = self._prompt(params.ref.name)
            values = await self._values(command, name, typed, given, known=command.arguments.names)
        elif self._runs is not None and params.ref.uri == self._runs.template.uri_template:
            _require(name, template_variables(params.ref.uri))
            values = self._runs.completed(name, typed, principal_of(context))
        else:
            uri = params.ref.uri
            command = self._template(uri)
            values = await self._values(command, name, typed, given, known=template_variables(uri))
        return _shown(values)

    async def _values(
        self, command: Command, name: str, typed: str, given: Mapping[str, str], *, known: tuple[str, ...]
    ) -> list[str]:
        _require(name, known)
        return await self._dispatcher.complete(command, name, typed, given)

    def _prompt(self, name: str) -> Command:
        try:
            return self._catalog.require_registered(self._catalog.current.prompt(name))
        except (UnknownPrompt, UnknownTool) as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error

    def _template(self, uri: str) -> Command:
        resource = self._catalog.current.resources.get(uri)
        if resource is None or not self._catalog.registry.contains(resource.command):
            raise no_resource(uri)
        return resource.command


def _require(name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        message = f"no argument {name[:MAX_SHOWN_URI]!r}; there are {', '.join(known) or 'none'}"
        raise MCPError(code=types.INVALID_PARAMS, message=message)


def _shown(values: list[str]) -> types.CompleteResult:
    returned = values[:MAX_RETURNED]
    # No more than MAX_VALUES values were collected, so the total is unknown.
    total = len(values) if len(values) < MAX_VALUES else None
    completion = types.Completion(values=returned, total=total, has_more=len(returned) < len(values))
    return types.CompleteResult(completion=completion)
