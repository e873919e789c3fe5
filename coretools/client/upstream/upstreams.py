"""`coretools serve --upstream`: chosen tools of configured servers, offered by our own server.

A tool is offered once its declaration was approved (`coretools mcp approve`, or the operator's call policy). One whose
declaration changes is withdrawn until it is approved again. The list follows the servers, and a lost server is started
again.
"""

import logging
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import mcp_types as types

from coretools.client.approval.approvals import Approvals, ProposedCall
from coretools.client.approval.call_policy import find_policy
from coretools.client.approval.decisions import Decisions, server_digest
from coretools.client.approval.trust import Trust
from coretools.client.common.errors import NotApproved
from coretools.client.configuration.server_entries import ServerEntry, load_configuration
from coretools.client.connection.options import RECONNECT_SECONDS, ConnectionOptions, State
from coretools.client.connection.server_connection import Connection
from coretools.client.containment.containment import NO_CHOICES, Containment
from coretools.client.hub import Connections, open_hub
from coretools.client.upstream.chain import Chain, came_through, own_identity
from coretools.client.upstream.foreign_tools import CallRules, ForeignTool
from coretools.client.upstream.offered_tools import NameOrder, OfferedTools, usable
from coretools.config.limits import Limits
from coretools.errors import BadSetting, CoreError
from coretools.redaction.redactor import Redactor

SETTLE_SECONDS = 5.0
"""How long the start of our server waits for its upstreams; the tools of a slower one are added later."""

POLL_SECONDS = 2.0
"""Between two looks at the file of decisions."""

PAUSE_SECONDS = 0.2
"""Before the tools of a server are listed again: it may say that they changed as often as it likes."""

RESTART_SECONDS = 5.0
"""Between two attempts to start a server that has failed for good, when its tools are called."""

RETRY_SECONDS = 60.0
"""Between two attempts to start it if nobody calls."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpstreamRules:
    """What holds for all of the servers."""

    limits: Limits
    redactor: Redactor | None = None
    containment: Containment = NO_CHOICES


@dataclass(frozen=True, slots=True)
class UpstreamChoice:
    """A server and the tools of it that are offered; none named: all."""

    server: str
    tools: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "UpstreamChoice":
        """Parse `NAME` or `NAME:TOOL,TOOL`.

        Raises:
            BadSetting: a name is empty.
        """
        server, colon, names = text.partition(":")
        tools = tuple(name.strip() for name in names.split(",")) if colon else ()
        if not server or not all(tools):
            raise BadSetting(f"--upstream {text[:200]}: write NAME or NAME:TOOL,TOOL")
        return cls(server, tools)


class Upstreams:
    """The chosen servers, and the registry of the tools that are offered."""

    def __init__(
        self,
        choices: Sequence[UpstreamChoice],
        entries: Mapping[str, ServerEntry],
        approvals: Approvals,
        environment: Mapping[str, str],
        taken: Collection[str],
        rules: UpstreamRules,
    ) -> None:
        """`taken` are the names of our own tools."""
        self.tools = OfferedTools(taken)
        self.connections: Connections | None = None
        self._choices = {choice.server: choice for choice in choices}
        self._approvals = approvals
        self._environment = environment
        self._limits, self._redactor = rules.limits, rules.redactor
        self._rules = {name: self._call_rules(name) for name in entries}
        self._changed = {server: anyio.Event() for server in entries}
        self._order = NameOrder(entries)
        self._restarted: dict[str, float] = {}
        self._began = anyio.current_time()

    def notice(self, server: str) -> None:
        """Follow a change of a server's tools, soon."""
        self._changed[server].set()

    async def follow(self, server: str) -> None:
        """Keep the registry in step with a server and with the decisions of the user."""
        decided = self._decided()
        while True:
            with anyio.move_on_after(POLL_SECONDS):
                await self._changed[server].wait()
            await anyio.sleep(PAUSE_SECONDS)
            before, decided = decided, self._decided()
            if self._changed[server].is_set() or decided != before:
                self._changed[server] = anyio.Event()
                await self.update(server)
            await self.connection(server, pause=RETRY_SECONDS)

    async def update(self, server: str) -> None:
        """Offer what a server has now; tools of one that gives no list stay, and answer with its error."""
        await self._offer(server)
        self._order.pass_on(server)

    async def _offer(self, server: str) -> None:
        assert self.connections is not None
        connection = self.connections[server]
        try:
            if await connection.wait_settled() is not State.READY:
                if connection.error is not None:
                    logger.warning("upstream: %s", connection.error)
                return
            listed = await connection.tools()
            identity = server_digest(connection.entry, self._environment)
            chosen = [(one, self._withheld(server, identity, one)) for one in self._chosen(server, listed)]
            await self._order.wait(server)
            self.tools.offer(
                server, chosen, partial(ForeignTool, partial(self.connection, server), rules=self._rules[server])
            )
        except CoreError as error:
            logger.warning("upstream: %s", error)

    def _chosen(self, server: str, listed: Sequence[types.Tool]) -> list[types.Tool]:
        """Return the tools to offer; those that came through this server would make a loop."""
        names = self._choices[server].tools
        absent = sorted(set(names) - {one.name for one in listed})
        if absent:
            logger.warning("upstream server %r: has no tool %s", server, ", ".join(map(repr, absent)))
        chosen = [one for one in listed if one.name in names or not names]
        looped = [one.name for one in chosen if own_identity() in came_through(one)]
        if looped:
            logger.warning("upstream server %r: not offered, they come from this server: %s", server, looped[:20])
        return usable(server, [one for one in chosen if one.name not in looped])

    def _withheld(self, server: str, identity: str, tool: types.Tool) -> str:
        """Why a tool is not offered; empty if it is approved."""
        call = ProposedCall(server, identity, tool, {})
        try:
            if self._approvals.covers(call):
                return ""
            is_known = call.name in self._approvals.decisions.all()["approved_tools"].values()
        except CoreError as error:
            return str(error)
        why = "its declaration or entry changed since it was approved" if is_known else "it is not approved yet"
        return f"{why}; look at it with `coretools mcp approve {server} {tool.name}`"

    def _call_rules(self, server: str) -> CallRules:
        async def approve(connection: Connection, tool: types.Tool, arguments: Mapping[str, Any]) -> None:
            # Nobody is asked: the operator approved the tool before.
            identity = server_digest(connection.entry, self._environment)
            if not self._approvals.covers(ProposedCall(server, identity, tool, arguments)):
                why = self._withheld(server, identity, tool) or "is not approved"
                raise NotApproved(f"{server}: {tool.name}: {why}")

        slots = anyio.CapacityLimiter(self._limits.upstream_calls)
        return CallRules(approve=approve, limits=self._limits, redactor=self._redactor, slots=slots)

    async def connection(self, server: str, *, pause: float = RESTART_SECONDS) -> Connection:
        """Return the connection to a server; one that has failed for good is started again, not too often."""
        assert self.connections is not None
        connection = self.connections[server]
        is_due = anyio.current_time() - self._restarted.setdefault(server, self._began) > pause
        if connection.state in (State.FAILED, State.STOPPED) and is_due:
            self._restarted[server] = anyio.current_time()
            connection = await self.connections.restart(server)
        return connection

    def _decided(self) -> tuple[int, int]:
        """Return what changes with the file of decisions."""
        try:
            status = os.stat(self._approvals.decisions.path or "")
        except OSError:
            return (0, 0)
        return (status.st_mtime_ns, status.st_ino)


@asynccontextmanager
async def open_upstreams(
    texts: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    taken: Collection[str],
    rules: UpstreamRules,
) -> AsyncIterator[Upstreams]:
    """Connect to the servers that `texts` choose (`--upstream`) and keep a registry of their tools.

    Raises:
        BadSetting: a server is not configured, can't be used, or leads back to this one.
        NotTrusted: a file of the project names it, and nobody has approved that.
    """
    choices = [UpstreamChoice.parse(text) for text in texts]
    decisions, chain = Decisions(environment), Chain.of(environment)
    entries = _entries(choices, environment, directory, Trust(decisions, environment, option=""))
    digests = {name: server_digest(entry, environment) for name, entry in entries.items()}
    for name, digest in digests.items():
        chain.require_new(name, digest)
    approvals = Approvals(decisions, find_policy(None, directory, environment))
    upstreams = Upstreams(choices, entries, approvals, environment, taken, rules)
    options = ConnectionOptions(
        reconnect_seconds=RECONNECT_SECONDS,
        watches_lists=True,
        prepare_launch=lambda entry, launch: chain.launched(launch, digests[entry.name]),
        containment=rules.containment,
        extensions=(chain.extension(),),
        on_tools_changed=upstreams.notice,
    )
    async with open_hub(entries.values(), environment, options=options) as connections:
        upstreams.connections = connections
        with anyio.move_on_after(SETTLE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for name in entries:
                    tasks.start_soon(upstreams.update, name)
        async with anyio.create_task_group() as tasks:
            for name in entries:
                upstreams.notice(name)
                tasks.start_soon(upstreams.follow, name)
            yield upstreams
            tasks.cancel_scope.cancel()


def _entries(
    choices: Sequence[UpstreamChoice], environment: Mapping[str, str], directory: str, trust: Trust
) -> dict[str, ServerEntry]:
    configuration = load_configuration(directory, environment)
    entries: dict[str, ServerEntry] = {}
    for choice in choices:
        entry = configuration.find(choice.server)
        if entry is None:
            names = ", ".join(one.name for one in configuration.effective[:20])
            raise BadSetting(f"--upstream {choice.server}: no such server is configured; there are: {names or 'none'}")
        if choice.server in entries:
            raise BadSetting(f"--upstream {choice.server}: is named twice; write NAME:TOOL,TOOL")
        if error := trust.why_not(entry):
            raise error
        entries[choice.server] = entry
    return entries
