"""Another MCP server within an application: its tools, resources and prompts are commands of a registry.

The author chose the server, so its hints are passed on as its own, and nobody approves its tools. It is connected
while the lifespan of its application runs, and again when a connection is lost.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import mcp_types as types
from anyio.abc import TaskStatus
from mcp import Client, MCPError, StdioServerParameters, UriTemplate
from mcp.client import Transport
from mcp.server import MCPServer, Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from coretools.client.common.errors import ToolFailed
from coretools.client.common.failures import FAULTS, first_leaf
from coretools.client.upstream.foreign_tools import content_of, embedded
from coretools.client.upstream.passed_requests import Request, Requests
from coretools.errors import BadSetting, CoreError, Unreachable
from coretools.operations.application import Application
from coretools.operations.call import Call
from coretools.operations.content import Blocks, Message, Text
from coretools.operations.declare import Effect, foreign, prompt, resource, tool
from coretools.operations.json_schema import check_input_schema
from coretools.operations.registry import Registry
from coretools.operations.server_info import ServerInfo
from coretools.operations.uri_template import template_variables

Target = Server[Any] | MCPServer | Transport | StdioServerParameters | str
T = TypeVar("T")
Function = Callable[..., Any]

RESTART_SECONDS = 2.0
"""Pause before a lost connection is opened again, and how long a call waits for that."""

MAX_PAGES = 100
"""Pages of one list that are read."""

_NO_ARGUMENTS = {"type": "object", "properties": {}}
_CHANGES = (
    types.ToolListChangedNotification,
    types.ResourceListChangedNotification,
    types.PromptListChangedNotification,
)

logger = logging.getLogger(__name__)


class MountedServer:
    """A server, and the registry of its commands, which is empty while the server is not connected."""

    def __init__(self, name: str, target: Target | Sequence[str], mode: Literal["auto", "legacy"] = "auto") -> None:
        if isinstance(target, Sequence) and not isinstance(target, str):
            # In the home, as configured servers: in a root agents could plant what the program loads (upstream-14).
            target = StdioServerParameters(command=target[0], args=[*target[1:]], cwd=Path.home())
        self._name = name
        self._target: Target = target
        self._mode = mode
        self._client: Client | None = None
        self._is_connected = anyio.Event()
        self._changed = anyio.Event()
        self._requests = Requests(name, self._connection, self._lose)
        self._offered: dict[tuple[str, ...], str] = {}
        self._application = Application(ServerInfo(name=name), lifespan=self.running, adds_commands=True)
        self.registry = Registry(application=self._application)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep a connection, and the commands in step with the server.

        Raises:
            BadSetting: it can't be connected.
        """
        # New each time: an event belongs to one event loop.
        self._client, self._is_connected, self._changed = None, anyio.Event(), anyio.Event()
        self._requests = Requests(self._name, self._connection, self._lose)
        failure: CoreError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                try:
                    self._requests.tasks = tasks
                    await tasks.start(self._keep_connected)
                    yield
                except CoreError as error:  # raised below, where it does not become a group
                    failure = error
                tasks.cancel_scope.cancel()
        finally:
            self._offer({})
        if failure is not None:
            raise failure

    async def _keep_connected(self, *, task_status: TaskStatus[None]) -> None:
        is_first = True
        while True:
            failure: BaseException = anyio.EndOfStream()
            try:
                async with self._new_client() as client:
                    self._client = client
                    await self._list(client)
                    if is_first:
                        task_status.started()
                    is_first = False
                    self._is_connected.set()
                    await self._follow(client)
            except* FAULTS as group:
                failure = first_leaf(group)
            self._client, self._is_connected = None, anyio.Event()
            if is_first:
                raise BadSetting(f"mount {self._name}: the server can't be connected: {failure}") from failure
            logger.warning("mounted server %s: connection lost: %s", self._name, failure)
            await anyio.sleep(RESTART_SECONDS)

    def _new_client(self) -> Client:
        return Client(
            self._target,
            mode=self._mode,
            elicitation_callback=self._requests.asked,
            message_handler=self._notified,
            cache=None,
        )

    async def _connection(self) -> Client:
        """Return the connection, once there is one again.

        Raises:
            Unreachable: there is none.
        """
        with anyio.move_on_after(RESTART_SECONDS):
            await self._is_connected.wait()
        if self._client is None:
            raise Unreachable(f"the server {self._name!r} is not connected; try again later")
        return self._client

    def _lose(self) -> None:
        """Connect again, since a request found no connection."""
        self._is_connected = anyio.Event()
        self._changed.set()

    async def _follow(self, client: Client) -> None:
        """List again after each change; until the connection is lost."""
        async with anyio.create_task_group() as tasks:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(self._listen, client)
            while self._is_connected.is_set():
                await self._changed.wait()
                self._changed = anyio.Event()
                if self._is_connected.is_set():
                    await self._list(client)
            tasks.cancel_scope.cancel()

    async def _listen(self, client: Client) -> None:
        capabilities = client.server_capabilities
        try:
            async with client.listen(
                tools_list_changed=capabilities.tools is not None,
                prompts_list_changed=capabilities.prompts is not None,
                resources_list_changed=capabilities.resources is not None,
            ) as events:
                async for _ in events:
                    self._changed.set()
        except (MCPError, RuntimeError) as error:  # a server need not notify
            logger.debug("mounted server %s: does not notify of changes: %s", self._name, error)

    async def _notified(self, message: object) -> None:
        if isinstance(message, _CHANGES):
            self._changed.set()

    async def _list(self, client: Client) -> None:
        """Register what the server has now."""
        has = client.server_capabilities
        commands: dict[tuple[str, ...], tuple[str, Function]] = {}
        for one in await _all(client.list_tools, "tools") if has.tools else []:
            self._add(commands, (), one.name, one, self._tool)
        for prompted in await _all(client.list_prompts, "prompts") if has.prompts else []:
            self._add(commands, ("prompt",), prompted.name, prompted, self._prompt)
        for named in await _all(client.list_resources, "resources") if has.resources else []:
            self._add(commands, ("resource",), named.name, named, self._resource)
        for shaped in await _all(client.list_resource_templates, "resource_templates") if has.resources else []:
            self._add(commands, ("resource",), shaped.name, shaped, self._template)
        self._application.info = replace(self._application.info, instructions=client.instructions or "")
        self._offer(commands)

    def _add(
        self,
        commands: dict[tuple[str, ...], tuple[str, Function]],
        kind: tuple[str, ...],
        name: str,
        declared: Any,
        make: Callable[[Any], Function],
    ) -> None:
        """Make a command of what the server declares; what can't be one is logged."""
        word = re.sub(r"[^a-zA-Z0-9_.-]+", "_", name).strip("_.-")[:48] or "_"
        while (*kind, word) in commands:
            word += "_"
        try:
            function = make(declared)
        except BadSetting as error:
            logger.warning("mounted server %s: %r is left out: %s", self._name, name, error)
            return
        function.__name__ = function.__qualname__ = word
        function.__module__ = f"server {self._name!r}"
        function.__doc__ = (declared.description or "").strip() or f"{name!r} of the server {self._name!r}."
        commands[*kind, word] = (declared.model_dump_json(by_alias=True), function)

    def _offer(self, commands: dict[tuple[str, ...], tuple[str, Function]]) -> None:
        """Register these commands in place of those before; what did not change stays."""
        now = {key: text for key, (text, _) in commands.items()}
        for key in [key for key, text in self._offered.items() if now.get(key) != text]:
            del self._offered[key]
            is_prompt = key[:-1] == ("prompt",)
            self.registry.remove(*(key[1:] if is_prompt else key), overrides=is_prompt)
        added = Registry(application=self._application)
        for key in [key for key in now if key not in self._offered]:
            is_prompt = key[:-1] == ("prompt",)  # a server may have a tool and a prompt of one name
            added.add(commands[key][1], self._name, context=() if is_prompt else key[:-1], overrides=is_prompt)
        self._offered = now
        if list(added):
            self.registry.merge(added)

    def _tool(self, declared: types.Tool) -> Function:
        check_input_schema(f"tool {declared.name!r}", declared.input_schema)
        hints = declared.annotations or types.ToolAnnotations()
        is_harmless = hints.destructive_hint is False
        effect = Effect.READ if hints.read_only_hint else Effect.ADD if is_harmless else Effect.CHANGE

        async def called(arguments: dict[str, Any], call: Call) -> Blocks:
            async def send(client: Client, request: Request) -> types.CallToolResult:
                return await client.call_tool(declared.name, arguments, progress_callback=request.report)

            result = await self._requests.send(call, send, "tool", declared.name, arguments)
            blocks = tuple(map(content_of, result.content))
            if result.is_error:
                raise ToolFailed("\n".join(block.text for block in blocks if isinstance(block, Text)) or "failed")
            structured = result.structured_content
            return Blocks(blocks, structured if isinstance(structured, dict) else None)

        as_tool = tool(
            effect,
            title=declared.title or hints.title or "",
            idempotent=bool(hints.read_only_hint or hints.idempotent_hint),
            open_world=hints.open_world_hint is not False,
            long_running=True,
        )
        return as_tool(foreign(declared.input_schema, output_schema=declared.output_schema)(called))

    def _prompt(self, declared: types.Prompt) -> Function:
        arguments = declared.arguments or []
        shapes = {one.name: {"type": "string", "description": one.description or ""} for one in arguments}
        schema = {"type": "object", "properties": shapes, "required": [one.name for one in arguments if one.required]}

        async def got(arguments: dict[str, Any], call: Call) -> list[Message]:
            async def send(client: Client, _: Request) -> types.GetPromptResult:
                return await client.get_prompt(declared.name, arguments)

            result = await self._requests.send(call, send, "prompt", declared.name, arguments)
            return [Message(content_of(one.content), one.role) for one in result.messages]

        return prompt(title=declared.title or "")(foreign(schema)(got))

    def _resource(self, declared: types.Resource) -> Function:
        async def read(arguments: dict[str, Any], call: Call) -> Blocks:
            del arguments  # it has none
            return await self._read(declared.uri, call)

        as_resource = resource(declared.uri, title=declared.title or declared.name, mime_type=declared.mime_type or "")
        return as_resource(foreign(_NO_ARGUMENTS)(read))

    def _template(self, declared: types.ResourceTemplate) -> Function:
        template = UriTemplate.parse(declared.uri_template)
        shapes = {name: {"type": ["string", "array"]} for name in template_variables(declared.uri_template)}

        async def read(arguments: dict[str, Any], call: Call) -> Blocks:
            return await self._read(template.expand(arguments), call)

        title, media_type = declared.title or declared.name, declared.mime_type or ""
        as_resource = resource(declared.uri_template, title=title, mime_type=media_type)
        return as_resource(foreign({"type": "object", "properties": shapes})(read))

    async def _read(self, uri: str, call: Call) -> Blocks:
        async def send(client: Client, _: Request) -> types.ReadResourceResult:
            return await client.read_resource(uri)

        result = await self._requests.send(call, send, "resource", uri, {})
        return Blocks(tuple(map(embedded, result.contents)))


async def _all(ask: Callable[..., Awaitable[Any]], items: str) -> list[Any]:
    """All pages of a list."""
    found: list[Any] = []
    cursor = None
    for _ in range(MAX_PAGES):
        listed = await ask(cursor=cursor)
        found += getattr(listed, items)
        cursor = listed.next_cursor
        if cursor is None:
            break
    return found
