"""Commands as the protocol lists them: tools with their hints, resources, templates and prompts; in pages.

A list is built when it is first asked for and kept as long as its catalog: a start pays nothing for it.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import mcp_types as types
from mcp import MCPError
from mcp.shared.inbound import X_MCP_HEADER_KEY

from coretools.operations.arguments import ANSWERS
from coretools.operations.catalog import Catalog, Resource
from coretools.operations.registry import Command
from coretools.protocol.results import STRUCTURED_SINCE

Item = TypeVar("Item")

PAGE = 200
"""Items in a page. Clients that do not ask for a next page would miss what is on it, and few servers have so many."""

LIST_SECONDS = 60
"""How long a client of the stateless era may keep a list without asking again; changes are announced before."""

LONG_RUNNING_KEY = "coretools/longRunning"


class Listing:
    """The lists of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tools: list[types.Tool] | None = None
        self._headed: dict[str, dict[str, Any] | None] = {}

    @property
    def tools(self) -> list[types.Tool]:
        """Every tool."""
        if self._tools is None:
            self._tools = [as_tool(command, shows_output=self._catalog.shows_outputs) for command in self._catalog]
        return self._tools

    def headed_schema(self, name: str) -> dict[str, Any] | None:
        """What a tool takes that has parameters which a header repeats; None for every other.

        The SDK looks through a whole schema with each call, to find that there is none: a fortieth of the call.
        """
        if name not in self._headed:
            command = self._catalog.find(name)
            if command is None:
                return None
            schema = command.arguments.schema()
            self._headed[name] = schema if _names_header(schema) else None
        return self._headed[name]

    @property
    def resources(self) -> list[types.Resource]:
        """Every resource with a fixed address."""
        return [_as_resource(one) for one in self._catalog.resources.values() if not one.is_template]

    @property
    def templates(self) -> list[types.ResourceTemplate]:
        """Every template."""
        return [_as_template(one) for one in self._catalog.resources.values() if one.is_template]

    @property
    def prompts(self) -> list[types.Prompt]:
        """Every prompt."""
        return [_as_prompt(name, command) for name, command in self._catalog.prompts.items()]


class Listings:
    """The listing of each catalog, as long as that is the one in force."""

    def __init__(self, catalog_for: Callable[[str], Catalog]) -> None:
        self._catalog_for = catalog_for
        self._known: dict[int, tuple[Catalog, Listing]] = {}

    def of(self, principal: str) -> Listing:
        """What the principal is listed."""
        catalog = self._catalog_for(principal)
        known = self._known.get(id(catalog))
        if known is None:
            if len(self._known) > MOST_LISTINGS:
                self._known.clear()
            known = self._known[id(catalog)] = (catalog, Listing(catalog))
        return known[1]


def _names_header(schema: object) -> bool:
    """Whether a header is named anywhere; a parameter of that name is one more that the SDK looks at."""
    if isinstance(schema, dict):
        return X_MCP_HEADER_KEY in schema or any(_names_header(inner) for inner in schema.values())
    return isinstance(schema, list) and any(_names_header(inner) for inner in schema)


MOST_LISTINGS = 64
"""Kept at once; catalogs that were replaced are forgotten with the rest."""


def tools_for(tools: list[types.Tool], revision: str) -> list[types.Tool]:
    """The tools as a revision of the protocol has them: the first two know neither titles nor output schemas."""
    if revision >= STRUCTURED_SINCE:
        return tools
    return [tool.model_copy(update={"title": None, "output_schema": None}) for tool in tools]


def page(items: Sequence[Item], cursor: str | None) -> tuple[list[Item], str | None]:
    """The items from a cursor on, and the cursor of the next page.

    A cursor says where it was cut and of which items, by their names: it is refused when the list is another by now,
    rather than that items be skipped in silence.

    Raises:
        MCPError: a cursor that was not given out, or not for this list.
    """
    if len(items) <= PAGE and cursor is None:
        return list(items), None
    stamp = _stamp(items)
    start = 0 if cursor is None else _start(cursor, stamp)
    end = start + PAGE
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
    raise MCPError(code=types.INVALID_PARAMS, message="the cursor is not of this list as it is now; start without one")


def as_tool(command: Command, *, shows_output: bool) -> types.Tool:
    """A command as the protocol lists it, with the four hints always explicit."""
    declared = command.declaration
    meta = {**declared.metadata, **({LONG_RUNNING_KEY: True} if declared.long_running else {})}
    return types.Tool(
        name=command.name,
        title=declared.title or None,
        description=command.description,
        input_schema=command.arguments.schema(),
        output_schema=command.output_schema if shows_output else None,
        annotations=types.ToolAnnotations(
            read_only_hint=declared.read_only,
            destructive_hint=declared.destructive,
            idempotent_hint=declared.idempotent,
            open_world_hint=declared.open_world,
        ),
        _meta=meta or None,
    )


def _as_resource(resource: Resource) -> types.Resource:
    command = resource.command
    return types.Resource(
        uri=resource.uri,
        name=command.name,
        title=command.declaration.title or None,
        description=command.description,
        mime_type=command.mime_type,
        _meta=dict(command.declaration.metadata) or None,
    )


def _as_template(resource: Resource) -> types.ResourceTemplate:
    command = resource.command
    return types.ResourceTemplate(
        uri_template=resource.uri,
        name=command.name,
        title=command.declaration.title or None,
        description=command.description,
        mime_type=command.mime_type,
        _meta=dict(command.declaration.metadata) or None,
    )


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
    if arguments.answers:  # text, as every argument of a prompt
        shapes = json.dumps(arguments.answers)
        said = f"Answers given beforehand to what it may ask: a JSON object, as text, of {shapes}"
        listed.append(types.PromptArgument(name=ANSWERS, description=said, required=False))
    return types.Prompt(
        name=name,
        title=command.declaration.title or None,
        description=command.description,
        arguments=listed,
        _meta=dict(command.declaration.metadata) or None,
    )
