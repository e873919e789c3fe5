"""The protocol's lists of commands: tools with annotations, resources, templates and prompts, in pages.

A list is built on first request and kept as long as its catalog is in force, so it adds nothing to start-up time.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar

import mcp_types as types
from mcp import MCPError

from coretools.operations.arguments import ANSWERS
from coretools.operations.catalog import Catalog, Resource
from coretools.operations.command import Command
from coretools.operations.json_schema import declares_header
from coretools.operations.server_info import Icon
from coretools.protocol.results import STRUCTURED_SINCE

Item = TypeVar("Item")

PAGE_SIZE = 200
"""Items per page. Large, because clients that ignore `nextCursor` would miss everything after the first page."""

LIST_TTL_SECONDS = 60
"""How long a client of the stateless era may cache a list; changes are notified earlier."""

LONG_RUNNING_KEY = "coretools/longRunning"
TAGS_KEY = "coretools/tags"


class CatalogListing:
    """The lists of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tools: list[types.Tool] | None = None
        self._header_schemas: dict[str, dict[str, Any] | None] = {}

    @property
    def tools(self) -> list[types.Tool]:
        """Every tool."""
        if self._tools is None:
            self._tools = [as_tool(command) for command in self._catalog]
        return self._tools

    def header_schema(self, name: str) -> dict[str, Any] | None:
        """Return the input schema of a tool with parameters that a header repeats; None for any other tool.

        Otherwise the SDK searches the whole schema with each call, which takes 2.5 % of the call.
        """
        if name not in self._header_schemas:
            command = self._catalog.find(name)
            if command is None:
                return None
            schema = command.arguments.schema()
            self._header_schemas[name] = schema if declares_header(schema) else None
        return self._header_schemas[name]

    @property
    def resources(self) -> list[types.Resource]:
        """Every resource with a fixed URI."""
        return [_as_resource(one) for one in self._catalog.resources.values() if not one.is_template]

    @property
    def templates(self) -> list[types.ResourceTemplate]:
        """Every resource template."""
        return [_as_template(one) for one in self._catalog.resources.values() if one.is_template]

    @property
    def prompts(self) -> list[types.Prompt]:
        """Every prompt."""
        return [_as_prompt(name, command) for name, command in self._catalog.prompts.items()]


def tools_for(tools: list[types.Tool], revision: str) -> list[types.Tool]:
    """Return the tools in the form of a protocol revision: the first two have neither titles nor output schemas."""
    if revision >= STRUCTURED_SINCE:
        return tools
    return [tool.model_copy(update={"title": None, "output_schema": None}) for tool in tools]


def page(items: Sequence[Item], cursor: str | None) -> tuple[list[Item], str | None]:
    """Return the items from a cursor on, and the cursor of the next page.

    A cursor holds the position and a hash of the names in the list. After a change of the list it is refused, so that
    no item is skipped silently.

    Raises:
        MCPError: the cursor was not issued, or not for this list.
    """
    # Most lists fit on one page and need no hash.
    if len(items) <= PAGE_SIZE and cursor is None:
        return list(items), None
    stamp = _stamp(items)
    start = 0 if cursor is None else _start(cursor, stamp)
    end = start + PAGE_SIZE
    return list(items[start:end]), _cursor(end, stamp) if end < len(items) else None


def _stamp(items: Sequence[object]) -> str:
    names = "\n".join(map(_name_of, items))
    return hashlib.sha256(names.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _name_of(item: object) -> str:
    match item:
        case types.Resource(uri=uri):
            return uri
        case types.ResourceTemplate(uri_template=uri):
            return uri
        case types.Tool(name=name) | types.Prompt(name=name):
            return name
    return str(item)


def _cursor(start: int, stamp: str) -> str:
    return base64.urlsafe_b64encode(f"{start}.{stamp}".encode()).decode("ascii")


def _start(cursor: str, stamp: str) -> int:
    try:
        text = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode("ascii")
        start, _, given = text.partition(".")
        if given == stamp and start.isdecimal():
            return int(start)
    except (binascii.Error, ValueError):
        pass
    raise MCPError(
        code=types.INVALID_PARAMS, message="the list has changed since this cursor was issued; list again without one"
    )


def as_tool(command: Command) -> types.Tool:
    """Return a command as a tool of the catalog, with all four annotations explicit."""
    declared = command.declaration
    meta = {**_meta(command), **({LONG_RUNNING_KEY: True} if declared.long_running else {})}
    return types.Tool(
        name=command.name,
        title=declared.title or None,
        description=command.description,
        input_schema=command.arguments.schema(),
        output_schema=command.output_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=declared.read_only,
            destructive_hint=declared.destructive,
            # Without meaning where nothing is changed.
            idempotent_hint=None if declared.read_only else declared.idempotent,
            open_world_hint=declared.open_world,
        ),
        icons=as_icons(declared.icons),
        _meta=meta or None,
    )


def _as_resource(resource: Resource) -> types.Resource:
    command = resource.command
    return types.Resource(uri=resource.uri, name=command.name, mime_type=command.mime_type, **_described(command))


def _as_template(resource: Resource) -> types.ResourceTemplate:
    command = resource.command
    return types.ResourceTemplate(
        uri_template=resource.uri, name=command.name, mime_type=command.mime_type, **_described(command)
    )


def _described(command: Command) -> dict[str, Any]:
    declared = command.declaration
    return {
        "title": declared.title or None,
        "description": command.description,
        "icons": as_icons(declared.icons),
        "_meta": _meta(command) or None,
    }


def as_icons(icons: Sequence[Icon]) -> list[types.Icon] | None:
    """Return icons as the protocol has them; None if there are none."""
    return [
        types.Icon(src=one.src, mime_type=one.mime_type or None, sizes=list(one.sizes) or None) for one in icons
    ] or None


def _meta(command: Command) -> dict[str, Any]:
    tags = command.declaration.tags
    return {**command.declaration.metadata, **({TAGS_KEY: list(tags)} if tags else {})}


def _as_prompt(name: str, command: Command) -> types.Prompt:
    arguments = command.arguments
    schema = arguments.schema()
    listed = [
        types.PromptArgument(
            name=argument,
            description=shape.get("description"),
            required=argument in schema.get("required", ()),
        )
        for argument, shape in schema.get("properties", {}).items()
        if not (argument == ANSWERS and arguments.answers)
    ]
    if arguments.answers:  # a prompt argument is always text
        shapes = json.dumps(arguments.answers)
        description = f"Answers given beforehand to what it may ask: a JSON object, as text, of {shapes}"
        listed.append(types.PromptArgument(name=ANSWERS, description=description, required=False))
    return types.Prompt(name=name, arguments=listed, **_described(command))
