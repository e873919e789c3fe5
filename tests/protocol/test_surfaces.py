"""One catalog as tools, resources and prompts, with the SDK's client in both eras (docs/specs/catalog.md)."""

import base64
from datetime import date, datetime, time, timedelta
from enum import Enum
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import mcp_types as types
import pytest
from mcp import Client, MCPError
from pydantic import AnyUrl, BaseModel, Field

from coretools.operations.catalog import Selection, Surfaces
from coretools.operations.content import Audio, Content, Embedded, Image, Link, Message, Text
from coretools.operations.declare import (
    Effect,
    at,
    channels,
    details,
    metadata,
    prompt,
    raw_schema,
    resource,
    tool,
)
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.listing import LIST_TTL_SECONDS, PAGE_SIZE
from coretools.protocol.results import ERROR_KEY
from coretools.protocol.server import ServerInfo, build_server

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
PIXEL = b"\x89PNG not really"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


def client(
    registry: Registry, mode: str, *, selection: Selection | None = None, surfaces: Surfaces | None = None
) -> Client:
    catalog = LiveCatalog(registry, selection or Selection(profile="all"), surfaces)
    return Client(build_server(catalog, Dispatcher(threads=2), ServerInfo()), mode=mode, cache=None)


def text(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


class Contacts:
    """One command of each kind."""

    @tool(Effect.READ)
    @resource("contacts://{number}{?full}", mime_type="text/markdown")
    @prompt()
    @details("Numbers begin at 1.")
    @metadata({"org.example/kind": "contact"})
    @at("{number}", "show")
    def contact_show(self, number: Annotated[int, Field(ge=1, description="Which one")], full: bool = False) -> str:
        """Show a contact."""
        return f"contact {number}{' in full' if full else ''}"

    @resource("contacts://all")
    def contact_list(self) -> str:
        """List contacts."""
        return "1 2 3"

    @prompt()
    def contact_plan(self, topic: str, tone: str = "calm") -> list[Message]:
        """Plan a talk."""
        return [Message(Text(f"Plan {topic}.")), Message(Text(f"Gladly, and {tone}."), role="assistant")]

    @tool(Effect.CHANGE)
    def contact_remove(self, number: int) -> str:
        """Remove a contact."""
        return f"removed {number}"

    @tool(Effect.READ)
    @channels("command-line", "repl")
    def contact_secret(self) -> str:
        """Keep from agents."""
        return "secret"


@pytest.fixture
def contacts() -> Registry:
    registry = Registry()
    registry.add_set("contacts", Contacts(), context=("contact",))
    return registry


@ERAS
async def test_one_declaration_is_a_tool_a_resource_and_a_prompt(contacts: Registry, mode: str) -> None:
    """catalog-1, catalog-2, catalog-3: one function behind all three, with its declared metadata."""
    async with client(contacts, mode) as connected:
        tools = {one.name: one for one in (await connected.list_tools()).tools}
        [listed] = (await connected.list_resources()).resources
        [template] = (await connected.list_resource_templates()).resource_templates
        prompts = {one.name: one for one in (await connected.list_prompts()).prompts}
        called = await connected.call_tool("contact_show", {"number": 7, "full": True})
        fixed = await connected.read_resource("contacts://all")
        read = await connected.read_resource("contacts://7?full=true")
        asked = await connected.get_prompt("contact_show", {"number": "7"})
        plan = await connected.get_prompt("contact_plan", {"topic": "tea"})
    assert list(tools) == ["contact_show", "contact_remove"]
    assert "Numbers begin at 1." in (tools["contact_show"].description or "")
    assert tools["contact_show"].meta == {"org.example/kind": "contact"}
    assert (listed.uri, listed.name) == ("contacts://all", "contact_list")
    assert (template.uri_template, template.mime_type) == ("contacts://{number}{?full}", "text/markdown")
    assert template.meta == {"org.example/kind": "contact"}
    assert [(one.name, one.description, one.required) for one in prompts["contact_show"].arguments or []] == [
        ("number", "Which one", True),
        ("full", None, False),
    ]
    assert text(called) == "contact 7 in full"
    assert [one.text for one in fixed.contents if isinstance(one, types.TextResourceContents)] == ["1 2 3"]
    assert [(one.uri, one.mime_type, getattr(one, "text", "")) for one in read.contents] == [
        ("contacts://7?full=true", "text/markdown", "contact 7 in full")
    ]
    assert [(one.role, getattr(one.content, "text", "")) for one in asked.messages] == [("user", "contact 7")]
    assert [(one.role, getattr(one.content, "text", "")) for one in plan.messages] == [
        ("user", "Plan tea."),
        ("assistant", "Gladly, and calm."),
    ]


@ERAS
@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        pytest.param(lambda it: it.call_tool("contact_list", {}), "unknown tool", id="resource-as-tool"),
        pytest.param(lambda it: it.call_tool("contact_plan", {"topic": "x"}), "unknown tool", id="prompt-as-tool"),
        pytest.param(lambda it: it.call_tool("contact_secret", {}), "unknown tool", id="hidden"),
        pytest.param(lambda it: it.get_prompt("contact_remove", {}), "unknown prompt", id="tool-as-prompt"),
        pytest.param(lambda it: it.get_prompt("contact_plan", {}), "topic: is required", id="prompt-lacks-argument"),
        pytest.param(lambda it: it.get_prompt("contact_show", {"number": "x"}), "whole number", id="prompt-argument"),
        pytest.param(lambda it: it.read_resource("contacts://none/x"), "no resource", id="no-address"),
        pytest.param(lambda it: it.read_resource("contacts://x"), "must be a whole number", id="bad-variable"),
        pytest.param(lambda it: it.read_resource("contacts://7?ful=1"), "may have full, each once", id="unknown-key"),
        pytest.param(lambda it: it.read_resource("contacts://7?full=1&full=0"), "each once", id="key-twice"),
        pytest.param(lambda it: it.read_resource("coretools://contact/7/show"), "no resource", id="not-promoted"),
    ],
)
async def test_what_is_not_on_a_surface_is_an_error_of_the_request(
    contacts: Registry, mode: str, ask: Any, expected: str
) -> None:
    """catalog-2, catalog-5, catalog-8, interoperability-14: with the code of the revision, and a message that helps."""
    async with client(contacts, mode) as connected:
        with pytest.raises(MCPError, match=expected) as caught:
            await ask(connected)
    is_missing = mode == "legacy" and expected == "no resource"
    assert caught.value.error.code == (-32002 if is_missing else types.INVALID_PARAMS)
    if expected == "unknown prompt":
        assert caught.value.error.data["kind"] == "unknown-prompt"


@ERAS
async def test_promoted_commands_are_read_by_uri(contacts: Registry, mode: str) -> None:
    """catalog-5: a command with its own URI keeps it; a hidden one gets none."""

    @tool(Effect.READ)
    @at("note", "{name}")
    def note(name: str, lines: int = 1) -> str:
        """Read a note."""
        return f"{name}: {lines}"

    contacts.add(note)
    async with client(contacts, mode, surfaces=Surfaces(promote_read_only=True)) as connected:
        templates = [one.uri_template for one in (await connected.list_resource_templates()).resource_templates]
        read = await connected.read_resource("coretools://note/a%20b?lines=3")
    assert templates == ["contacts://{number}{?full}", "coretools://note/{name}{?lines}"]
    assert getattr(read.contents[0], "text", "") == "a b: 3"


@ERAS
async def test_fallbacks_are_tools_like_any_other(contacts: Registry, mode: str) -> None:
    """catalog-5: arguments are typed like those of tools; a prompt's messages come as text."""
    surfaces = Surfaces(resources_as_tools=True, prompts_as_tools=True)
    async with client(contacts, mode, surfaces=surfaces) as connected:
        names = [one.name for one in (await connected.list_tools()).tools]
        listed = await connected.call_tool("contact_list", {})
        planned = await connected.call_tool("contact_plan", {"topic": "tea"})
    assert names == ["contact_show", "contact_list", "contact_remove", "contact_plan"]
    assert text(listed) == "1 2 3"
    assert text(planned) == "Plan tea.\nGladly, and calm."


@ERAS
async def test_an_explicit_prompt_takes_precedence(contacts: Registry, mode: str) -> None:
    """catalog-6: it replaces the prompt; the tool and the resource are unchanged."""

    @prompt()
    def contact_show() -> str:
        """Show, explicitly."""
        return "explicitly"

    contacts.add(contact_show, overrides=True)
    async with client(contacts, mode) as connected:
        asked = await connected.get_prompt("contact_show", {})
        called = await connected.call_tool("contact_show", {"number": 1})
    assert getattr(asked.messages[0].content, "text", "") == "explicitly"
    assert text(called) == "contact 1"


@ERAS
async def test_a_selection_filters_every_list_and_calls(contacts: Registry, mode: str) -> None:
    """catalog-7: read-only and patterns of names, on all surfaces."""
    selection = Selection(profile="all", read_only=True, without=("contact_show",))
    async with client(contacts, mode, selection=selection) as connected:
        assert [one.name for one in (await connected.list_tools()).tools] == []
        assert (await connected.list_resource_templates()).resource_templates == []
        assert [one.name for one in (await connected.list_prompts()).prompts] == ["contact_plan"]
        with pytest.raises(MCPError, match="read-only"):
            await connected.call_tool("contact_remove", {"number": 1})
        with pytest.raises(MCPError, match="left it out"):
            await connected.call_tool("contact_show", {"number": 1})
        with pytest.raises(MCPError, match="no resource"):
            await connected.read_resource("contacts://7")


@ERAS
async def test_a_removed_command_cannot_be_used_at_all(contacts: Registry, mode: str) -> None:
    """catalog-9: before the lists are replaced."""
    async with client(contacts, mode) as connected:
        assert len((await connected.list_tools()).tools) == 2
        contacts.remove("contact", "{number}", "show")
        for ask in (
            connected.call_tool("contact_show", {"number": 1}),
            connected.get_prompt("contact_show", {"number": "1"}),
            connected.read_resource("contacts://7"),
        ):
            with pytest.raises(MCPError, match="no longer available"):
                await ask


# Types


class Typed:
    @tool(Effect.READ)
    def show_types(
        self,
        identifier: UUID,
        day: date,
        moment: datetime,
        hour: time,
        span: timedelta,
        address: AnyUrl,
        path: Path,
        colour: Colour,
        size: Literal["small", "large"],
        points: list[Point],
        names: dict[str, int] | None = None,
    ) -> str:
        """Show what came."""
        kinds = (identifier, day, moment, hour, span, address, path, colour, points[0])
        return " ".join(type(one).__name__ for one in kinds) + f" {size} {names}"


GIVEN = {
    "identifier": "6d9c3f1e-5a46-4a6e-9a5f-0a8f6d6a5b11",
    "day": "2026-11-22",
    "moment": "2026-11-22T10:00:00Z",
    "hour": "10:00:00",
    "span": "PT5M",
    "address": "https://example.org/x",
    "path": "a/b",
    "colour": "red",
    "size": "small",
    "points": [{"x": 1}],
    "names": {"a": 1},
}
FORMATS = {
    "identifier": "uuid",
    "day": "date",
    "moment": "date-time",
    "hour": "time",
    "span": "duration",
    "address": "uri",
    "path": "path",
}


def typed_registry() -> Registry:
    registry = Registry()
    registry.add_set("typed", Typed())
    return registry


@ERAS
async def test_types_that_json_writes_as_text_have_their_format_in_the_schema(mode: str) -> None:
    """catalog-12: and arrive as Python objects of their type."""
    async with client(typed_registry(), mode) as connected:
        [listed] = (await connected.list_tools()).tools
        result = await connected.call_tool("show_types", GIVEN)
    properties = listed.input_schema["properties"]
    assert {name: properties[name].get("format") for name in FORMATS} == FORMATS
    assert properties["colour"]["enum"] == ["red", "blue"]
    assert properties["size"]["enum"] == ["small", "large"]
    assert properties["points"]["items"]["properties"]["x"] == {"type": "integer"}
    assert text(result) == "UUID date datetime time timedelta AnyUrl PosixPath Colour Point small {'a': 1}"


@ERAS
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("identifier", "not-one"),
        ("identifier", 5),
        ("day", "22.11.2026"),
        ("day", 20000),
        ("moment", "yesterday"),
        ("hour", "25:00"),
        ("span", "soon"),
        ("address", "no address"),
        ("colour", "green"),
        ("colour", "RED"),
        ("size", "medium"),
        ("points", [{"x": "1"}]),
        ("names", {"a": "1"}),
    ],
)
async def test_an_invalid_format_is_refused_by_name(mode: str, argument: str, value: Any) -> None:
    """catalog-12: strictly: no number is a date, no text a number."""
    async with client(typed_registry(), mode) as connected:
        result = await connected.call_tool("show_types", {**GIVEN, argument: value})
    assert result.is_error
    assert (result.meta or {})[ERROR_KEY] == "invalid-arguments"
    assert text(result).startswith(f"show_types: {argument}")


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"name": {"type": "string", "pattern": "^[a-z]+$"}},
    "properties": {"name": {"$ref": "#/$defs/name"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["name"],
    "additionalProperties": False,
}


@ERAS
async def test_a_given_schema_is_published_unchanged_and_validated(mode: str) -> None:
    """catalog-13: `$defs` and `$ref` too; nothing is fetched for it."""

    @tool(Effect.READ)
    @raw_schema(SCHEMA)
    def greet(given: dict[str, Any]) -> str:
        """Greet."""
        return f"hello {given['name']}"

    registry = Registry()
    registry.add(greet)
    async with client(registry, mode) as connected:
        [listed] = (await connected.list_tools()).tools
        good = await connected.call_tool("greet", {"name": "ann"})
        bad = [
            await connected.call_tool("greet", given)
            for given in ({}, {"name": "Ann"}, {"name": "ann", "count": 0}, {"name": "ann", "other": 1})
        ]
    assert listed.input_schema == SCHEMA
    assert text(good) == "hello ann"
    assert [(one.meta or {})[ERROR_KEY] for one in bad] == ["invalid-arguments"] * 4


# Content

EVERYTHING: list[Content] = [
    Text("words"),
    Image(PIXEL, "image/png"),
    Audio(b"beep", "audio/wav"),
    Embedded("x://text", "inside"),
    Embedded("x://bytes", b"\0\1", "application/octet-stream"),
    Link("x://far", "far", "Far away", "text/html"),
]


def mixed_registry() -> Registry:
    registry = Registry()

    @tool(Effect.READ)
    @prompt()
    def mixed() -> list[Content]:
        """Show all kinds."""
        return EVERYTHING

    @tool(Effect.READ)
    @resource("x://picture", mime_type="image/png")
    def picture() -> Image:
        """Show a picture."""
        return Image(PIXEL, "image/png")

    @resource("x://raw", mime_type="application/zip")
    def raw() -> bytes:
        """Give bytes."""
        return b"PK"

    for function in (mixed, picture, raw):
        registry.add(function)
    return registry


@ERAS
async def test_content_may_be_more_than_text(mode: str) -> None:
    """catalog-14: each kind is its own block, in a tool's result and in a prompt's messages."""
    async with client(mixed_registry(), mode) as connected:
        called = await connected.call_tool("mixed", {})
        asked = await connected.get_prompt("mixed", {})
        pictured = await connected.call_tool("picture", {})
        read = [await connected.read_resource(uri) for uri in ("x://picture", "x://raw")]
    kinds = ["text", "image", "audio", "resource", "resource", "resource_link"]
    assert [block.type for block in called.content] == kinds
    assert [message.content.type for message in asked.messages] == kinds
    image = called.content[1]
    assert isinstance(image, types.ImageContent)
    assert base64.b64decode(image.data) == PIXEL
    assert [block.type for block in pictured.content] == ["image"]
    blobs = [(one.contents[0].mime_type, base64.b64decode(getattr(one.contents[0], "blob", ""))) for one in read]
    assert blobs == [("image/png", PIXEL), ("application/zip", b"PK")]


# Pages and cache hints


def named(name: str, *decorators: Any) -> Any:
    def function() -> str:
        """Be one of many."""
        return name

    function.__name__ = function.__qualname__ = name
    for decorator in decorators:
        function = decorator(function)
    return function


def many(count: int) -> Registry:
    registry = Registry()
    for number in range(count):
        name = f"one_{number:03}"
        registry.add(named(name, tool(Effect.READ), prompt(), resource(f"x://{number:03}")))

        @resource(f"x://{number:03}/{{name}}")
        @at(f"page_{number:03}")
        def page(name: str) -> str:
            """Be one of many."""
            return name

        registry.add(page)
    return registry


LISTS = [
    pytest.param("list_tools", "tools", id="tools"),
    pytest.param("list_resources", "resources", id="resources"),
    pytest.param("list_prompts", "prompts", id="prompts"),
    pytest.param("list_resource_templates", "resource_templates", id="templates"),
]


@ERAS
@pytest.mark.parametrize("count", [PAGE_SIZE, 2 * PAGE_SIZE + 5])
async def test_every_list_comes_in_pages_with_every_item_once(mode: str, count: int) -> None:
    """catalog-11: in order; the last page has no cursor."""
    async with client(many(count), mode) as connected:
        for method, field in (one.values for one in LISTS):
            names: list[str] = []
            sizes: list[int] = []
            cursor = None
            while True:
                found = await getattr(connected, method)(cursor=cursor)
                names += [one.name for one in getattr(found, field)]
                sizes.append(len(getattr(found, field)))
                cursor = found.next_cursor
                if cursor is None:
                    break
            prefix = "page" if field == "resource_templates" else "one"
            assert names == [f"{prefix}_{number:03}" for number in range(count)], method
            rest = [count % PAGE_SIZE] if count % PAGE_SIZE else []
            assert sizes == [PAGE_SIZE] * (count // PAGE_SIZE) + rest, method


@ERAS
@pytest.mark.parametrize(("method", "field"), LISTS)
@pytest.mark.parametrize("cursor", ["", "x", "MTA=", "\u00e4", "200." + "0" * 16])
async def test_an_unknown_cursor_is_refused(mode: str, method: str, field: str, cursor: str) -> None:
    """catalog-11: with -32602, also if everything fits on one page."""
    async with client(many(3), mode) as connected:
        with pytest.raises(MCPError, match="cursor") as caught:
            await getattr(connected, method)(cursor=cursor)
    assert caught.value.error.code == types.INVALID_PARAMS


@ERAS
async def test_a_cursor_of_another_list_is_refused(mode: str) -> None:
    """catalog-11: for every pair of lists, but for lists of the same names, as tools and prompts are here."""
    methods = [one.values[0] for one in LISTS]
    async with client(many(PAGE_SIZE + 1), mode) as connected:
        cursors = {method: (await getattr(connected, method)()).next_cursor for method in methods}
        assert len(set(cursors.values())) >= 3
        for given, asked in permutations(methods, 2):
            if cursors[given] == cursors[asked]:
                continue
            with pytest.raises(MCPError, match="cursor"):
                await getattr(connected, asked)(cursor=cursors[given])


@pytest.mark.parametrize(("same", "scope"), [(True, "public"), (False, "private")])
async def test_lists_and_reads_have_cache_hints(same: bool, scope: str) -> None:
    """catalog-15: on the revision that has them; public only if all principals see the same; reads are never cached."""
    catalog = LiveCatalog(many(3), Selection(profile="all"), is_same_for_all=same)
    server = build_server(catalog, Dispatcher(threads=2), ServerInfo())
    async with Client(server, mode="auto", cache=None) as connected:
        lists = [await getattr(connected, each.values[0])() for each in LISTS]
        read = await connected.read_resource("x://000")
    assert [(one.ttl_ms, one.cache_scope) for one in lists] == [(LIST_TTL_SECONDS * 1000, scope)] * 4
    assert (read.ttl_ms, read.cache_scope) == (0, "private")


async def test_the_handshake_era_has_no_cache_hints_on_the_wire() -> None:
    """catalog-15: its revisions do not have them."""
    async with client(many(3), "legacy") as connected:
        listed = await connected.list_tools()
        read = await connected.read_resource("x://000")
    assert "ttl_ms" not in listed.model_fields_set
    assert "ttl_ms" not in read.model_fields_set
