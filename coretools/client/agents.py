"""The tools of all configured servers for a program with a model: list them, call them, ask before each call.

    async with Hub.from_config(approve=ask) as hub:
        tools = [tool.for_openai() for tool in await hub.tools()]
        result = await hub.call("github__get_issue", {"number": 1})

A tool is named `server__tool` here, in the characters that the APIs of models accept.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import mcp_types as types

from coretools.client.approval.approvals import Approvals, ProposedCall
from coretools.client.approval.call_policy import find_policy
from coretools.client.approval.decisions import Decisions, server_digest
from coretools.client.approval.trust import Trust
from coretools.client.common.arguments import check_arguments
from coretools.client.common.errors import NotApproved, SchemaMismatch
from coretools.client.common.tool_names import qualified_name
from coretools.client.configuration.server_entries import ServerEntry, load_configuration
from coretools.client.connection.options import RECONNECT_SECONDS, ConnectionOptions, State
from coretools.client.connection.server_connection import Connection
from coretools.client.hub import Change, Connections, open_hub
from coretools.errors import CoreError, InvalidArguments, UnknownTool


@dataclass(frozen=True, slots=True)
class HubTool:
    """A tool of a server, with a name that is unique among all."""

    name: str
    server: str
    declaration: types.Tool

    def for_openai(self) -> dict[str, Any]:
        """Return the definition that chat completion APIs in the form of OpenAI's take."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.declaration.description or "",
                "parameters": self.declaration.input_schema,
            },
        }

    def for_anthropic(self) -> dict[str, Any]:
        """Return the definition that the API of Anthropic takes."""
        return {
            "name": self.name,
            "description": self.declaration.description or "",
            "input_schema": self.declaration.input_schema,
        }


Approve = Callable[[HubTool, Mapping[str, Any]], Awaitable[bool]]
"""Asks whether a tool may be called with these arguments."""


class Hub:
    """The servers of a configuration, connected."""

    def __init__(
        self,
        connections: Connections,
        read: Callable[[], tuple[list[ServerEntry], dict[str, CoreError]]],
        approvals: Approvals,
        environment: Mapping[str, str],
        approve: Approve | None,
    ) -> None:
        """Use `from_config`."""
        self.failures: dict[str, CoreError] = {}
        """Servers that can't be used, each with its reason; complete after `tools`."""
        self._connections = connections
        self._read = read
        self._listed_changes: dict[str, int] = {}
        self._approvals = approvals
        self._environment = environment
        self._approve = approve
        self._tools: dict[str, HubTool] = {}

    @classmethod
    @asynccontextmanager
    async def from_config(
        cls,
        file: str | None = None,
        *,
        approve: Approve | None = None,
        policy: str | None = None,
        trusts_project: bool = False,
        inputs: Mapping[str, str] | None = None,
        options: ConnectionOptions | None = None,
    ) -> AsyncIterator["Hub"]:
        """Connect to the servers of a file, or of the usual ones; at the end no process of them is left.

        `policy` names a policy file; without it the user's is read, if there is one. Without `approve`, only tools can
        be called that it allows, or that were approved for good (`coretools mcp call`).

        Servers that files of the project name, or whose entry names it, are confined unless `options` says otherwise
        (`containment`).

        Raises:
            BadSetting: the file or the policy can't be used.
        """
        environment = dict(os.environ)
        call_policy = find_policy(policy, os.getcwd(), environment, trusts_project=trusts_project)
        decisions = Decisions(environment)
        trust = Trust(decisions, environment, everything=trusts_project)
        read = partial(_startable, os.getcwd(), environment, file, trust)
        entries, failures = read()
        options = options or ConnectionOptions(reconnect_seconds=RECONNECT_SECONDS, watches_lists=True)
        async with open_hub(entries, environment, inputs=inputs, options=options) as connections:
            hub = cls(connections, read, Approvals(decisions, call_policy), environment, approve)
            hub.failures = failures
            yield hub

    def states(self) -> dict[str, State]:
        """Return the state of each server that may be started."""
        return {name: connection.state for name, connection in self._connections.items()}

    async def start(self, server: str) -> State:
        """Start a server that was stopped or has failed, with the entry that it had; return its state.

        Raises:
            InvalidArguments: there is none.
        """
        if self._connection(server).state in (State.READY, State.CONNECTING):
            return await self._connection(server).wait_settled()
        return await self.restart(server)

    async def stop(self, server: str) -> None:
        """Stop a server; its tools are no longer offered.

        Raises:
            InvalidArguments: there is none.
        """
        self._connection(server)
        await self._connections.stop(server)

    async def restart(self, server: str) -> State:
        """Stop a server and start it again; return its state.

        Raises:
            InvalidArguments: there is none.
        """
        self._connection(server)
        self.failures.pop(server, None)
        return await (await self._connections.restart(server)).wait_settled()

    async def refresh(self) -> dict[str, Change]:
        """Read the configuration again: start new servers, restart changed ones, stop those that it no longer has.

        Raises:
            BadSetting: the file can't be used; nothing has changed.
        """
        entries, failures = self._read()
        changes = await self._connections.refresh(entries)
        self.failures = failures
        await self.tools()
        return changes

    async def tools(self) -> list[HubTool]:
        """Return the tools of all servers that answer."""
        tools: dict[str, HubTool] = {}
        for server, connection in self._connections.items():
            if await connection.wait_settled() is State.STOPPED:
                continue
            self._listed_changes[server] = connection.tool_changes
            try:
                listed = await connection.tools()
            except CoreError as error:
                self.failures[server] = error
                continue
            self.failures.pop(server, None)
            for tool in listed:
                name = qualified_name(server, tool.name, tools)
                tools[name] = HubTool(name, server, tool)
        self._tools = tools
        return list(tools.values())

    async def call(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Call a tool by the name that `tools` gave it.

        Raises:
            UnknownTool: there is none. SchemaMismatch: the arguments do not fit. NotApproved: nobody approved the call.
            RefusedByPolicy: the policy refuses it. And what `Connection.call` raises.
        """
        if not self._tools or self._have_tools_changed():
            await self.tools()
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownTool(f"no server has a tool {name!r}")
        connection = self._connections[tool.server]
        try:
            check_arguments(arguments, tool.declaration.input_schema)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"server {tool.server!r}: tool {tool.declaration.name!r}: {error}") from error
        proposed = ProposedCall(
            tool.server, server_digest(connection.entry, self._environment), tool.declaration, arguments
        )
        if not self._approvals.covers(proposed) and not (self._approve and await self._approve(tool, arguments)):
            raise NotApproved(f"{name!r} was not approved")
        return await connection.call(tool.declaration.name, arguments)

    def _have_tools_changed(self) -> bool:
        return any(
            self._listed_changes.get(server) != connection.tool_changes
            for server, connection in self._connections.items()
        )

    def _connection(self, server: str) -> Connection:
        if server not in self._connections:
            raise InvalidArguments(f"no server {server!r} runs; there are: {', '.join(self._connections) or 'none'}")
        return self._connections[server]


def _startable(
    directory: str, environment: Mapping[str, str], file: str | None, trust: Trust
) -> tuple[list[ServerEntry], dict[str, CoreError]]:
    """Return the entries that may be started, and why the others may not."""
    effective = load_configuration(directory, environment, file=file).effective
    reasons = {entry.name: trust.why_not(entry) for entry in effective}
    failures = {name: error for name, error in reasons.items() if error is not None}
    return [entry for entry in effective if entry.name not in failures], failures
