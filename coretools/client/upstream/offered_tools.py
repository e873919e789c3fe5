"""The registry of other servers' tools: each under a name of its own, in step with what the servers declare."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

import anyio
import mcp_types as types

from coretools.client.common.tool_names import qualified_name
from coretools.client.upstream.chain import MAX_SERVERS, META, came_through, own_identity
from coretools.client.upstream.foreign_tools import ForeignTool, command_function
from coretools.errors import BadSetting
from coretools.operations.command import FOREIGN_NAME
from coretools.operations.declare import metadata
from coretools.operations.json_schema import check_input_schema
from coretools.operations.registry import Registry

MAX_TOOLS = 500
"""Tools offered of one server."""

logger = logging.getLogger(__name__)


NAMING_SECONDS = 4.0
"""How long a server waits to name its tools while one before it starts; less than ours waits for all of them."""


class NameOrder:
    """Lets servers name their tools in a fixed order, whichever is ready first; one that is too slow loses its turn."""

    def __init__(self, servers: Iterable[str], seconds: float = NAMING_SECONDS) -> None:
        self._named = {server: anyio.Event() for server in servers}
        self._until = anyio.current_time() + seconds

    async def wait(self, server: str) -> None:
        """Wait for the servers before this one."""
        with anyio.CancelScope(deadline=self._until):
            for earlier, named in self._named.items():
                if earlier == server:
                    return
                await named.wait()

    def pass_on(self, server: str) -> None:
        """Note that a server has named its tools, or has none to name."""
        if server in self._named:
            self._named[server].set()


class OfferedTools:
    """Tools of other servers as commands of one registry."""

    def __init__(self, taken: Collection[str]) -> None:
        """`taken` are the names of our own tools, which those of others never get."""
        self.registry = Registry()
        self._names: dict[tuple[str, str], str] = {}
        self._taken = set(taken)
        self._offered: dict[str, dict[str, Any]] = {}

    def names(self, server: str) -> dict[str, str]:
        """Return the name of each registered tool of a server, with the name that the server gives it."""
        return {name: declared["name"] for name, (declared, _) in self._offered.get(server, {}).items()}

    def count(self, server: str) -> int:
        """How many tools of a server are registered."""
        return len(self._offered.get(server, ()))

    def offer(
        self, server: str, tools: Iterable[tuple[types.Tool, str]], make: Callable[[types.Tool], ForeignTool]
    ) -> None:
        """Replace the tools of a server, each with the reason why it is withheld; unchanged ones stay.

        One notification for what is new, and one for each tool that is gone or has changed.
        """
        before, now = self._offered.get(server, {}), {}
        added = Registry()
        for one, withheld in tools:
            name = self._name(server, one.name)
            now[name] = (one.model_dump(mode="json", by_alias=True, exclude_none=True), withheld)
            if before.get(name) == now[name]:
                continue
            if name in before:
                self.registry.remove(name)
            _log_state(server, one.name, withheld, is_new=name not in before)
            function = command_function(name, server, make(one), withheld=withheld)
            added.add(metadata({META: [*came_through(one), own_identity()]})(function), server)
        for name in before.keys() - now.keys():
            self.registry.remove(name)
        self._offered[server] = now
        if list(added):
            self.registry.merge(added)

    def _name(self, server: str, tool: str) -> str:
        """Return the name of a tool, its own where that is free, which it keeps as long as this process runs."""
        key = (server, tool)
        if key not in self._names:
            is_free = FOREIGN_NAME.fullmatch(tool) and tool not in self._taken
            self._names[key] = tool if is_free else qualified_name(server, tool, self._taken)
            self._taken.add(self._names[key])
        return self._names[key]


def usable(server: str, tools: Iterable[types.Tool]) -> list[types.Tool]:
    """Return the tools that can be offered; others, and those above the limit, are logged."""
    offered = []
    for one in tools:
        try:
            check_input_schema(f"tool {one.name!r}", one.input_schema)
        except BadSetting as error:
            logger.warning("server %r: not offered: %s", server, error)
            continue
        if len(came_through(one)) >= MAX_SERVERS:
            logger.warning("server %r: not offered: %r came through %d servers already", server, one.name, MAX_SERVERS)
            continue
        offered.append(one)
    if len(offered) > MAX_TOOLS:
        logger.warning("server %r: has %d tools; %d are offered", server, len(offered), MAX_TOOLS)
    return offered[:MAX_TOOLS]


def _log_state(server: str, tool: str, withheld: str, *, is_new: bool) -> None:
    if withheld:
        logger.warning("server %r: tool %r is not offered: %s", server, tool, withheld)
    elif not is_new:
        logger.info("server %r: tool %r is offered as declared now", server, tool)
