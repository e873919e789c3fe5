"""Pages for results, from the client's side (docs/specs/apps.md). What they draw: tests/clients."""

import base64
import hashlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClientExtension, advertise
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
from mcp.server.extension import Extension, MethodBinding

from coretools.app.assembly import open_assembly
from coretools.config.settings import Asking, Settings
from coretools.errors import BadSetting
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, resource, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.extensions import WrappingExtension
from coretools.protocol.mcp_apps import BUILT_IN_VIEWS, IDENTIFIER, MIME_TYPE, View, Views
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerInfo, ServerOptions, build_server

ERAS = ("legacy", "auto")
DECLARED = {"mimeTypes": [MIME_TYPE]}
PAGES = {"git_diff": "ui://coretools/diff", "ci_test": "ui://coretools/tests"}


class Drawn:
    @tool(Effect.READ)
    def draw(self) -> str:
        """Say what can be drawn."""
        return "a circle"

    @tool(Effect.READ)
    def say(self) -> str:
        """Say something."""
        return "hello"

    @resource("note://one")
    def note(self) -> str:
        """Something to read."""
        return "noted"


OWN = View(tool="draw", uri="ui://mine/drawing", description="A drawing", page=lambda: "<!doctype html><p>mine</p>")


def client(
    mode: str, settings: Mapping[str, Any] | None, extensions: tuple[Extension, ...] = (Views([OWN]),)
) -> Client:
    registry = Registry()
    registry.add_set("drawn", Drawn())
    catalog = LiveCatalog(registry, Selection(profile="all"))
    server = build_server(catalog, Dispatcher(threads=2), ServerInfo(), ServerOptions(extensions=extensions))
    declared: list[ClientExtension] = [] if settings is None else [advertise(IDENTIFIER, dict(settings))]
    return Client(server, mode=mode, extensions=declared)


@asynccontextmanager
async def workstation(root: Path, mode: str, settings: Mapping[str, Any] | None) -> AsyncIterator[Client]:
    async with open_assembly(Settings(roots=(str(root),)), dict(os.environ)) as assembly:
        extensions = assembly.extensions(QuestionFactory(Asking()))
        server = build_server(
            assembly.catalog, assembly.dispatcher, assembly.identity, ServerOptions(extensions=extensions)
        )
        declared: list[ClientExtension] = [] if settings is None else [advertise(IDENTIFIER, dict(settings))]
        async with Client(server, mode=mode, extensions=declared) as connected:
            yield connected


def test_the_names_are_those_of_the_sdk() -> None:
    """apps-1: we define them ourselves only because the SDK's module imports another server."""
    assert (IDENTIFIER, MIME_TYPE) == (EXTENSION_ID, APP_MIME_TYPE)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_shows_pages_gets_their_addresses(tmp_path: Path, mode: str) -> None:
    """apps-1, apps-2: for git_diff and ci_test, in both eras; the pages are listed and can be read."""
    async with workstation(tmp_path, mode, DECLARED) as connected:
        listed = await connected.list_tools()
        resources = await connected.list_resources()
        pages = {uri: (await connected.read_resource(uri)).contents for uri in PAGES.values()}
    linked = {one.name: one.meta["ui"] for one in listed.tools if one.meta and "ui" in one.meta}
    assert linked == {name: {"resourceUri": uri} for name, uri in PAGES.items()}
    assert {one.uri: one.mime_type for one in resources.resources} == dict.fromkeys(PAGES.values(), MIME_TYPE)
    for uri, [page] in pages.items():
        assert isinstance(page, types.TextResourceContents)
        assert (page.uri, page.mime_type, page.meta) == (uri, MIME_TYPE, {"ui": {"prefersBorder": True}})
        assert page.text.startswith("<!doctype html>")


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("settings", [None, {}, {"mimeTypes": ["text/html"]}, {"mimeTypes": MIME_TYPE}])
async def test_every_other_client_sees_no_difference(mode: str, settings: Mapping[str, Any] | None) -> None:
    """apps-1, apps-2: the capability is missing, or names another kind of page."""
    async with client(mode, settings) as connected, client(mode, None, ()) as plain:
        for one, other in (
            (await connected.list_tools(), await plain.list_tools()),
            (await connected.list_resources(), await plain.list_resources()),
        ):
            assert one.model_dump(exclude={"meta"}) == other.model_dump(exclude={"meta"})
        assert (await connected.list_tools()).tools[0].meta is None


async def test_the_list_for_one_client_is_not_cached_for_others() -> None:
    """apps-1: a cache between them may not serve one client's list to another."""
    async with client("auto", DECLARED) as connected:
        assert (await connected.list_tools()).cache_scope == "private"
        assert (await connected.list_resources()).cache_scope == "private"


@pytest.mark.parametrize("mode", ERAS)
async def test_any_client_can_read_a_page(mode: str) -> None:
    """apps-2: a host may read it on another connection; other resources are unchanged."""
    async with client(mode, None) as connected:
        [page] = (await connected.read_resource(OWN.uri)).contents
        assert isinstance(page, types.TextResourceContents)
        assert page.text == "<!doctype html><p>mine</p>"
        [note] = (await connected.read_resource("note://one")).contents
        assert isinstance(note, types.TextResourceContents)
        assert note.text == "noted"
        with pytest.raises(MCPError):
            await connected.read_resource("ui://mine/other")


@pytest.mark.parametrize("settings", [None, DECLARED])
async def test_results_are_the_same_with_and_without_a_page(settings: Mapping[str, Any] | None) -> None:
    """apps-8: text for every reader, whatever the client shows."""
    async with client("auto", settings) as connected:
        result = await connected.call_tool("draw", {})
    assert result.content[0].text == "a circle"  # type: ignore[union-attr]  # a text block


async def test_the_extension_is_advertised_to_the_stateless_era() -> None:
    """apps-1: the handshake has no field for it; hosts go by the tools there."""
    async with client("auto", None) as connected:
        capabilities = connected.server_capabilities
        assert capabilities is not None
        assert (capabilities.extensions or {})[IDENTIFIER] == {}


class Found(HTMLParser):
    """What a page loads, and its own script and style."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = ""
        self.inside: dict[str, str] = {}
        self.addresses: list[str] = []
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._open = tag
        self.policy += (given.get("content") or "") if given.get("http-equiv") == "Content-Security-Policy" else ""
        self.addresses += [f"{tag} {name}" for name in given if name in ("src", "href", "srcset", "action", "data")]

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style"):
            self.inside[self._open] = self.inside.get(self._open, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


@pytest.mark.parametrize("view", BUILT_IN_VIEWS, ids=lambda view: view.tool)
def test_a_page_reaches_nothing(view: View) -> None:
    """apps-3: its policy allows its own script and style, by hash, and no address."""
    found = Found()
    found.feed(view.page())
    hashes = {
        f"{name}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for name, text in found.inside.items()
    }
    parts = {part.strip() for part in found.policy.split(";")}
    assert parts == {"default-src 'none'", "base-uri 'none'", "form-action 'none'", *hashes}
    assert len(hashes) == 2
    assert found.addresses == []


FILES = [one.name for one in (files("coretools.protocol") / "html").iterdir() if not one.name.startswith("console")]
"""The files of views; the console has its own server, and its own tests."""


@pytest.mark.parametrize("name", FILES)
def test_no_page_turns_text_into_markup_or_fetches(name: str) -> None:
    """apps-3, apps-4: no call in them could."""
    text = (files("coretools.protocol") / "html" / name).read_text("utf-8")
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b|"
        r"new Function|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(|@import|url\(|https?://"
    )
    assert re.findall(forbidden, text) == []


@pytest.mark.parametrize(
    "views",
    [
        [View(tool="draw", uri="https://example.org/page", description="", page=str)],
        [OWN, View(tool="draw", uri="ui://mine/second", description="", page=str)],
    ],
    ids=["another scheme", "two pages of one tool"],
)
def test_invalid_views_are_refused_at_start(views: list[View]) -> None:
    """apps-9: by name."""
    with pytest.raises(BadSetting, match="views"):
        Views(views)


async def _nothing(*_: object) -> dict[str, Any]:
    return {}


class Taken(Extension):
    identifier = "org.example/taken"

    def __init__(self, method: str) -> None:
        self._method = method

    def methods(self) -> list[MethodBinding]:
        return [MethodBinding(self._method, types.RequestParams, _nothing, frozenset({"2026-07-28"}))]


class Bringing(Extension):
    identifier = "org.example/bringing"

    def tools(self) -> list[Any]:
        return ["a tool"]


class Idle(WrappingExtension):
    identifier = "org.example/idle"


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ((Views([OWN]), Views([OWN])), "already attached"),
        ((Taken("org.example/x"), Idle(), Idle()), "already attached"),
        ((Bringing(),), "add them to the registry"),
    ],
)
def test_an_extension_that_cannot_be_attached_is_refused_at_start(
    extensions: tuple[Extension, ...], expected: str
) -> None:
    """apps-9: one that exists already, and one with a name that the registry has."""
    with pytest.raises(BadSetting, match=expected):
        client("auto", None, extensions)


async def test_an_extension_of_an_author_is_served_in_the_revisions_it_names() -> None:
    """apps-9: its settings are advertised; in other revisions its method is unknown."""
    request = types.Request[Any, str](method="org.example/x", params={})
    async with client("auto", None, (Taken("org.example/x"),)) as connected:
        await connected.session.send_request(request, types.EmptyResult)
        assert connected.server_capabilities is not None
        assert "org.example/taken" in (connected.server_capabilities.extensions or {})
    async with client("legacy", None, (Taken("org.example/x"),)) as connected:
        with pytest.raises(MCPError) as refused:
            await connected.session.send_request(request, types.EmptyResult)
    assert refused.value.code == types.METHOD_NOT_FOUND
