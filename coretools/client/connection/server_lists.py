"""The tools, resources and prompts of one server: fetched page by page, and kept until the server says they changed.

In the older era a notification reports a change, in the stateless era a subscription. A list of a server
that promises neither is fetched each time, within the time to live that the answer states (the SDK's cache).
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.subscriptions import (
    ListenNotSupportedError,
    PromptsListChanged,
    ResourcesListChanged,
    SubscriptionLost,
    ToolsListChanged,
)
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from coretools.client.approval.decisions import approved_part
from coretools.client.common.arguments import check_result
from coretools.client.common.errors import ProtocolViolation
from coretools.client.common.visible_text import readable

MAX_PAGES = 1_000
MAX_ITEMS = 50_000
"""Of one list of a server."""

LISTEN_SECONDS = (1.0, 5.0, 30.0, 60.0)
"""Pauses before a lost subscription is opened again; without one, lists are fetched each time."""

MAX_REPORTED = 20
"""Malformed items that are reported."""

_NOTIFIED: Mapping[type, str] = {
    types.ToolListChangedNotification: "tools",
    types.ResourceListChangedNotification: "resources",
    types.PromptListChangedNotification: "prompts",
    ToolsListChanged: "tools",
    ResourcesListChanged: "resources",
    PromptsListChanged: "prompts",
}
_ITEMS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "tools/list": ("tools", types.ListToolsResult),
    "resources/list": ("resources", types.ListResourcesResult),
    "resources/templates/list": ("resourceTemplates", types.ListResourceTemplatesResult),
    "prompts/list": ("prompts", types.ListPromptsResult),
}


class ServerLists:
    """The lists of one server."""

    def __init__(self, on_tools_changed: Callable[[], None] | None = None) -> None:
        """`on_tools_changed` is called when the tools may have changed."""
        self._on_tools_changed = on_tools_changed
        self.malformed: dict[str, str] = {}
        """Items that were left out, each with its reason."""
        self._output_schemas: dict[str, Any] = {}
        self._kept: dict[str, list[Any]] = {}
        self._changes: Counter[str] = Counter()
        self._subscribed: frozenset[str] = frozenset()

    async def fetch(self, client: Client, kind: str) -> list[Any]:
        """Return a list (`tools`, `resources` or `prompts`), from the server if it may have changed.

        Raises:
            ProtocolViolation: it does not end. MCPError, ValidationError: the server gives none.
        """
        capability = getattr(client.server_capabilities, kind)
        if capability is None:
            return []
        if kind in self._kept:
            return list(self._kept[kind])
        before = self._changes[kind]
        items = await _FETCH[kind](client)
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        is_told = kind in self._subscribed if is_modern else bool(capability.list_changed)
        if is_told and before == self._changes[kind]:
            self._kept[kind] = items
        return list(items)

    def changes(self, kind: str) -> int:
        """How many times the server said that a list changed."""
        return self._changes[kind]

    def forget(self) -> None:
        """Fetch every list again: there is a new session."""
        self._output_schemas.clear()
        self._kept.clear()
        self._subscribed = frozenset()
        for kind in _FETCH:
            self._changes[kind] += 1
        self._notice()

    async def on_message(self, message: Any) -> None:
        """Take a notification of the server."""
        kind = _NOTIFIED.get(type(message))
        if kind is not None:
            self._changes[kind] += 1
            self._kept.pop(kind, None)
        if kind == "tools":
            self._notice()

    def _notice(self) -> None:
        if self._on_tools_changed is not None:
            self._on_tools_changed()

    async def watch(self, client: Client) -> None:
        """Subscribe to the changes of lists, in the stateless era; returns if the server offers none."""
        offered = client.server_capabilities
        wanted = {kind for kind in _FETCH if getattr(getattr(offered, kind), "list_changed", False)}
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not wanted:
            return
        for pause in (*LISTEN_SECONDS, None):
            try:
                async with client.listen(
                    tools_list_changed="tools" in wanted,
                    resources_list_changed="resources" in wanted,
                    prompts_list_changed="prompts" in wanted,
                ) as subscription:
                    self.forget()
                    honored = subscription.honored
                    self._subscribed = frozenset(kind for kind in _FETCH if getattr(honored, f"{kind}_list_changed"))
                    async for event in subscription:
                        await self.on_message(event)
            except (MCPError, SubscriptionLost, ListenNotSupportedError, TimeoutError):
                pass  # without a subscription lists are fetched each time
            self.forget()
            await anyio.sleep(pause or 0)

    def usable(self, method: str, version: str, result: Any) -> Any:
        """Return the result of a request without the malformed items of a list, which are reported instead.

        Nothing in a tool is invisible (`readable`).
        """
        if version in MODERN_PROTOCOL_VERSIONS and isinstance(result, dict):
            result = {"resultType": "complete", **result}  # what its absence means (2026-07-28, `Result`)
        if method not in _ITEMS or not isinstance(result, dict):
            return result
        usable = self._well_formed(method, version, result)
        if method == "tools/list" and isinstance(usable.get("tools"), list):
            usable = {**usable, "tools": list(self._readable(usable["tools"]))}
            self._output_schemas |= {tool["name"]: tool.get("outputSchema") for tool in usable["tools"]}
        return usable

    def _readable(self, tools: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the tools as a person can read them; report those for which that is impossible."""
        for tool in tools:
            try:
                yield tool | readable(approved_part(tool), "")
            except ValueError as error:
                name = f"{tool['name']!r:.80}"
                if len(self.malformed) < MAX_REPORTED:
                    self.malformed[name] = f"left out the tool {name}: {error}"

    def limit_checks(self, client: Client) -> None:
        """Check results within a time limit; the SDK searches with `re`, which can't be interrupted."""

        async def check(tool: str, result: types.CallToolResult) -> None:
            if tool not in self._output_schemas:
                await client.session.list_tools()
            schema = self._output_schemas.get(tool)
            if schema is not None:
                check_result(result, schema)

        # The SDK has no option for this; the session calls the method for each result.
        vars(client.session)["validate_tool_result"] = check

    def _well_formed(self, method: str, version: str, result: dict[str, Any]) -> dict[str, Any]:
        key, model = _ITEMS[method]
        faults = dict(_faults(lambda: methods.validate_server_result(method, version, result), key))
        faults |= _faults(lambda: model.model_validate(result, by_name=False), key)
        if not faults:
            return result
        for number, reason in list(faults.items())[:MAX_REPORTED]:
            item = result[key][number]
            name = item.get("name") if isinstance(item, dict) else None
            self.malformed[f"{key}[{number}]"] = f"left out {key}[{number}] ({name!r:.80}): {reason}"
        return {**result, key: [item for number, item in enumerate(result[key]) if number not in faults]}


def _faults(validate: Callable[[], Any], key: str) -> dict[int, str]:
    """Return the numbers of the items that are malformed, each with the reason."""
    try:
        validate()
    except ValidationError as error:
        faults: dict[int, str] = {}
        for fault in error.errors():
            where = [part for part in fault["loc"] if part != key]
            if key in fault["loc"] and where and isinstance(where[0], int):
                faults.setdefault(where[0], f"{'.'.join(map(str, where[1:]))}: {fault['msg']}")
        return faults
    except KeyError:  # this revision of the protocol has no such list
        pass
    return {}


async def _all_pages(fetch: Callable[[str | None], Awaitable[Any]], items: str) -> list[Any]:
    """Return what all pages of a list hold.

    Raises:
        ProtocolViolation: it does not end.
    """
    listed: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await fetch(cursor)
        listed += getattr(page, items)
        if page.next_cursor is None:
            return listed
        if page.next_cursor == cursor or len(listed) > MAX_ITEMS:
            break
        cursor = page.next_cursor
    raise ProtocolViolation(f"its list of {items} does not end ({len(listed)} so far)")


async def _tools(client: Client) -> list[types.Tool]:
    listed: list[types.Tool] = await _all_pages(lambda cursor: client.list_tools(cursor=cursor), "tools")
    by_name = {tool.name: tool for tool in reversed(listed)}  # of two with a name the first counts
    return [tool for tool in listed if by_name.pop(tool.name, None) is tool]


async def _resources(client: Client) -> list[types.Resource | types.ResourceTemplate]:
    """Return the resources, and then their templates."""
    listed = await _all_pages(lambda cursor: client.list_resources(cursor=cursor), "resources")
    try:
        templates = await _all_pages(lambda cursor: client.list_resource_templates(cursor=cursor), "resource_templates")
    except MCPError as error:
        if error.code != types.METHOD_NOT_FOUND:
            raise
        return listed
    return listed + templates


async def _prompts(client: Client) -> list[types.Prompt]:
    return await _all_pages(lambda cursor: client.list_prompts(cursor=cursor), "prompts")


_FETCH: Mapping[str, Callable[[Client], Awaitable[list[Any]]]] = {
    "tools": _tools,
    "resources": _resources,
    "prompts": _prompts,
}
