"""`/mcp` in the REPL: the servers of others, their state, and their tools beside our own commands.

The servers run in a task of their own, from the first use to the end of the REPL. What they write while a line is typed
appears above the prompt.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import TaskGroup, TaskStatus

from coretools.app.assembly import Assembly, output_redactor
from coretools.app.upstreams import containment_of
from coretools.cli.common.candidates import Candidate
from coretools.cli.common.terminal import print_text
from coretools.cli.line_words import MCP
from coretools.cli.mcp.approval import approve
from coretools.cli.mcp.line import Line
from coretools.cli.mcp.options import parse_line
from coretools.cli.mcp.output import in_line, table
from coretools.cli.mcp.requests import requests_of
from coretools.client.approval.approvals import ProposedCall
from coretools.client.approval.decisions import server_digest
from coretools.client.configuration.server_entries import ServerEntry, load_configuration
from coretools.client.connection.options import RECONNECT_SECONDS, ConnectionOptions, State
from coretools.client.connection.server_connection import Connection
from coretools.client.hub import Connections, open_hub
from coretools.client.upstream.foreign_tools import CallRules, ForeignTool
from coretools.client.upstream.offered_tools import NameOrder, OfferedTools, usable
from coretools.client.upstream.upstreams import PAUSE_SECONDS, SETTLE_SECONDS
from coretools.config.options import working_directory
from coretools.config.settings import Settings
from coretools.errors import CoreError, InvalidArguments
from coretools.operations.completion import with_prefix
from coretools.operations.registry import merge_registries

ACTIONS = ("start", "stop", "restart", "refresh", "tools")

USAGE = "write /mcp, /mcp start|stop|restart SERVER, /mcp refresh [SERVER] or /mcp tools [SERVER]"

FOR_ALL = ("refresh", "tools")
"""Actions that need no server."""

MAX_LISTED = 60
"""Tools that `/mcp` lists below the servers."""


class ReplServers:
    """The servers of others."""

    def __init__(self, line: Line, tasks: TaskGroup, assembly: Assembly, settings: Settings) -> None:
        self.line = line
        self.screen = line.screen
        self._tasks = tasks
        self._limits = settings.limits
        self._redactor = output_redactor(settings, line.environment)
        registry = assembly.catalog.registry
        self.tools = OfferedTools([command.name for command in registry])
        merge_registries(registry, [self.tools.registry], assembly.exit_stack)
        self._connections: Connections | None = None
        self._opening = anyio.Lock()
        self._over = anyio.Event()
        self._noticed: set[str] = set()
        self._order = NameOrder(())

    async def open(self) -> Connections:
        """Connect to the servers, at the first call; they are not settled yet."""
        async with self._opening:
            if self._connections is None:
                self._connections = await self._tasks.start(self._host)
        return self._connections

    async def settle(self, is_found: Callable[[], bool]) -> None:
        """Wait until a tool is found, or every server is ready or has failed; a person waits for a short time only."""
        connections = await self.open()
        starting = [name for name, connection in connections.items() if connection.state is State.CONNECTING]
        if starting:
            self.screen.say(f"waiting for {', '.join(map(repr, starting))} to start")
        can_ask = self.line.terminal.can_ask
        with anyio.move_on_after(SETTLE_SECONDS if can_ask else None):
            async with anyio.create_task_group() as tasks:

                async def follow(name: str) -> None:
                    await self._follow(name)
                    if is_found():
                        tasks.cancel_scope.cancel()

                for name in connections:
                    tasks.start_soon(follow, name)

    def close(self) -> None:
        """End the servers."""
        self._over.set()

    async def run(self, words: Sequence[str]) -> int:
        """Run a line that begins with /mcp.

        Raises:
            InvalidArguments: an unknown action or server. BadSetting, NotTrusted: the entry can't be used.
        """
        connections = await self.open()
        if not words:
            return await self._print(connections)
        action, *names = words
        if action not in ACTIONS or len(names) > 1 or not (names or action in FOR_ALL):
            raise InvalidArguments(USAGE)
        name = names[0] if names else ""
        if action == "tools":
            return print_text(self._listed_tools([self.line.entry(name).name] if name else list(connections)))
        if action == "stop":
            await self._stop(connections, name)
            return 0
        if action == "refresh":
            names = await self._refresh(connections, name)
        else:
            connection = connections.get(name)
            if action == "restart" or connection is None or connection.state is not State.READY:
                await connections.start(self.line.startable(name))
        async with anyio.create_task_group() as tasks:
            for one in names:
                tasks.start_soon(self._announce, one)
        return next(filter(None, map(self._exit_code, names)), 0)

    async def _stop(self, connections: Connections, name: str) -> None:
        self.line.entry(name)
        await connections.stop(name)
        self.tools.offer(name, (), self._tool(name))
        self._say_state(name)

    def complete(self, before: Sequence[str], current: str) -> list[Candidate]:
        """Return the completions of a word of /mcp."""
        if not before:
            return (
                [Candidate(MCP, "servers of others: state, tools, start, stop, restart, refresh")]
                if (current and MCP.startswith(current))
                else []
            )
        if before[0] != MCP:
            return []
        names = [entry.name for entry in self.line.configuration.effective]
        choices: Sequence[str] = ACTIONS if len(before) == 1 else names if len(before) == 2 else ()
        return [Candidate(one) for one in with_prefix(current, choices)]

    async def _host(self, *, task_status: TaskStatus[Connections]) -> None:
        line = self.line
        with requests_of(line.options, line.environment, line.screen) as requests:
            options = ConnectionOptions(
                reconnect_seconds=RECONNECT_SECONDS,
                watches_lists=True,
                server_requests=requests,
                on_tools_changed=self._notice,
                containment=line.containment,
            )
            async with open_hub((), line.environment, inputs=line.options.inputs, options=options) as connections:
                startable = [entry for entry in line.configuration.effective if line.trust.why_not(entry) is None]
                self._order = NameOrder(entry.name for entry in startable)
                for entry in startable:
                    await connections.start(entry)
                task_status.started(connections)
                for name in connections:
                    self._tasks.start_soon(self._announce, name)
                await self._over.wait()

    def _notice(self, name: str) -> None:
        if name not in self._noticed:
            self._noticed.add(name)
            self._tasks.start_soon(self._follow_soon, name)

    async def _follow_soon(self, name: str) -> None:
        await anyio.sleep(PAUSE_SECONDS)
        self._noticed.discard(name)
        await self._follow(name)

    async def _announce(self, name: str) -> None:
        await self._follow(name)
        self._say_state(name)

    async def _follow(self, name: str) -> None:
        """Offer the tools that a server has now."""
        await self._offer(name)
        self._order.pass_on(name)

    async def _offer(self, name: str) -> None:
        connection = self._started(name)
        if connection is None or await connection.wait_settled() is not State.READY:
            return
        try:
            listed = usable(name, await connection.tools())
            await self._order.wait(name)
            self.tools.offer(name, [(one, "") for one in listed], self._tool(name))
        except CoreError as error:
            self._say(str(error))

    def _tool(self, name: str) -> Any:
        rules = CallRules(
            approve=self._approve,
            limits=self._limits,
            redactor=self._redactor,
            slots=anyio.CapacityLimiter(self._limits.upstream_calls),
            progress=self.screen.progress,
        )
        return partial(ForeignTool, partial(self._connection, name), rules=rules)

    async def _approve(self, connection: Connection, tool: types.Tool, arguments: Mapping[str, Any]) -> None:
        identity = server_digest(connection.entry, self.line.environment)
        call = ProposedCall(connection.name, identity, tool, arguments)
        await approve(self.line, call, connection, remedy=f"run `coretools mcp approve {connection.name} {tool.name}`")

    async def _connection(self, name: str) -> Connection:
        return (await self.open())[name]

    async def _refresh(self, connections: Connections, name: str) -> list[str]:
        """Read the configuration again, and follow what it says of one server, or of all; return those to report."""
        line = self.line
        line.configuration = load_configuration(working_directory(), line.environment, file=line.options.config)
        effective = line.configuration.effective
        entries: list[ServerEntry] = [entry for entry in effective if line.trust.why_not(entry) is None]
        if name:
            entries = [connection.entry for one, connection in connections.items() if one != name]
            if line.configuration.find(name) is not None or name not in connections:
                entries.append(line.startable(name))
        changes = await connections.refresh(entries)
        for one, change in changes.items():
            if change == "stopped":
                self.tools.offer(one, (), self._tool(one))
        changed = [one for one, change in changes.items() if change != "kept"]
        if not name and not changed:
            self.screen.say("no server's entry has changed")
        return [name] if name else changed

    def _started(self, name: str) -> Connection | None:
        return None if self._connections is None else self._connections.get(name)

    def _exit_code(self, name: str) -> int:
        connection = self._started(name)
        return connection.error.exit_code if connection is not None and connection.error else 0

    def _say_state(self, name: str) -> None:
        connection = self._started(name)
        if connection is None:
            self._say(f"server {name!r} is no longer configured")
        elif connection.state is State.READY:
            self._say(f"server {name!r} is ready: {self.tools.count(name)} tools")
        else:
            self._say(str(connection.error or f"server {name!r} is {connection.state}"))

    def _say(self, text: str) -> None:
        """Print what became of a server; nothing when the REPL has ended, which ends every one."""
        if not self._over.is_set():
            self.screen.say(text)

    async def _print(self, connections: Connections) -> int:
        """Print the servers with their state, and the tools with their names here."""
        rows = [self._row(entry, connections.get(entry.name)) for entry in self.line.configuration.effective]
        parts = [table([("SERVER", "STATE", "KIND", "TOOLS"), *(row[:4] for row in rows)], self.line.width)]
        # Whole, because they end with what to do.
        reasons = [in_line(f"{row[0]}: {row[4]}") for row in rows if row[4]]
        tools = self._listed_tools(list(connections), MAX_LISTED)
        return print_text("\n\n".join(filter(None, [*parts, "\n".join(reasons), tools])))

    def _listed_tools(self, servers: Sequence[str], most: int | None = None) -> str:
        """Return the tools of servers with their names here; empty if there are none."""
        tools = [(name, one, own) for one in servers for name, own in self.tools.names(one).items()]
        if not tools:
            return ""
        listed = table([("TOOL", "SERVER", "NAME THERE"), *tools[:most]], self.line.width)
        hidden = len(tools) - len(tools[:most])
        return (
            f"{listed}\n[{hidden} more; `/mcp tools` lists all, `/mcp tools SERVER` those of one]" if hidden else listed
        )

    def _row(self, entry: ServerEntry, connection: Connection | None) -> tuple[str, ...]:
        error = self.line.trust.why_not(entry) if connection is None else connection.error
        state = "not started" if connection is None else str(connection.state)
        kind = entry.settings.transport if entry.settings else ""
        count = str(self.tools.count(entry.name)) if state == State.READY else ""
        return entry.name, state, kind, count, str(error or "").removeprefix(f"server {entry.name!r}: ")


@asynccontextmanager
async def open_repl_servers(
    assembly: Assembly, settings: Settings, environment: Mapping[str, str]
) -> AsyncIterator[ReplServers]:
    """Yield the servers of the configuration, not connected yet; at the end every one is gone.

    Raises:
        BadSetting: the call policy can't be used. InvalidArguments: a server that an option confines is not configured.
    """
    options = parse_line(["list"])
    assert options is not None
    line = Line.of(options, environment)
    line.containment = containment_of(settings, environment, (settings,))
    line.require_servers()
    line.trust = replace(line.trust, option="")
    async with anyio.create_task_group() as tasks:
        servers = ReplServers(line, tasks, assembly, settings)
        try:
            yield servers
        finally:
            servers.close()
