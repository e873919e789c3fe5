"""Change notifications in both eras, on a real server (docs/specs/notifications.md)."""

import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from anyio.lowlevel import checkpoint
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ServerEvent
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from coretools.app.assembly import Assembly, open_assembly
from coretools.config.limits import Limits
from coretools.config.settings import Settings
from coretools.errors import NotFound
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, prompt, resource, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.change_notifications import MAX_SUBSCRIPTIONS
from coretools.protocol.handshake import HandshakeConnection
from coretools.protocol.server import ServerInfo, ServerOptions, build_server
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.tools import FilesystemTools
from tests.protocol.http_peer import listening
from tests.protocol.peer import ENVELOPE, HANDSHAKE, peer

# What a client of the handshake era calls is deprecated on the SDK's client; a server still has to answer it.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
BOUND_SECONDS = 60

NextNotification = Callable[[], Awaitable[str]]
"""The next notification of a client: the name of a list, or a URI."""


async def hurried(seconds: float) -> None:
    """A clock on which every wait ends at once."""
    await anyio.lowlevel.checkpoint()


@tool(Effect.READ)
def come_and_go() -> str:
    """Come and go."""
    return ""


@resource("x://news")
def news() -> str:
    """Be read."""
    return "nothing new"


@prompt()
def plan() -> str:
    """Be asked."""
    return ""


def server_of(registry: Registry) -> Server[Any]:
    catalog = LiveCatalog(registry, Selection(profile="all"), sleep=hurried)
    return build_server(catalog, Dispatcher(threads=2), ServerInfo())


def registry_with(*functions: Any) -> Registry:
    registry = Registry()
    for function in functions:
        registry.add(function)
    return registry


def named(event: object) -> str:
    """What a notification of either era is about."""
    match event:
        case types.ResourceUpdatedNotification(params=params):
            return params.uri
        case types.ToolListChangedNotification():
            return "tools"
        case types.ResourceListChangedNotification():
            return "resources"
        case types.PromptListChangedNotification():
            return "prompts"
    uri: str = getattr(event, "uri", "")
    return uri or type(event).__name__.removesuffix("ListChanged").lower()


@asynccontextmanager
async def subscribed(target: Any, mode: str, *uris: str) -> AsyncIterator[tuple[Client, NextNotification]]:
    """A client subscribed to every list and to these resources, as its era does it."""
    send, receive = anyio.create_memory_object_stream[object](100)

    async def note(message: object) -> None:
        if mode == "legacy" and isinstance(message, types.Notification):
            send.send_nowait(message)

    async def following(events: AsyncIterator[ServerEvent]) -> None:
        async for event in events:
            send.send_nowait(event)

    async def following_one() -> str:
        with anyio.fail_after(BOUND_SECONDS):
            return named(await receive.receive())

    async with AsyncExitStack() as stack:
        stack.enter_context(receive)
        stack.enter_context(send)
        client = await stack.enter_async_context(Client(target, mode=mode, cache=None, message_handler=note))
        if mode == "legacy":
            await client.send_ping()
            for uri in uris:
                await client.subscribe_resource(uri)
            yield client, following_one
            return
        listening_to = client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=uris,
        )
        subscription = await stack.enter_async_context(listening_to)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(following, subscription)
        stack.callback(tasks.cancel_scope.cancel)
        yield client, following_one


# Lists


@ERAS
async def test_each_list_that_changes_is_notified(mode: str) -> None:
    """notifications-1: by its own notification; list and calls then have the new state."""
    registry = registry_with(plan)
    async with subscribed(server_of(registry), mode) as (client, next_notification):
        assert (await client.list_tools()).tools == []
        await client.list_prompts()
        registry.add(come_and_go)
        assert await next_notification() == "tools"
        assert [one.name for one in (await client.list_tools()).tools] == ["come_and_go"]
        registry.add(news)
        assert await next_notification() == "resources"
        registry.remove("plan")
        assert await next_notification() == "prompts"
        registry.remove("come_and_go")
        assert await next_notification() == "tools"
        with pytest.raises(MCPError, match="unknown tool"):
            await client.call_tool("come_and_go", {})


@ERAS
async def test_the_server_declares_its_notifications(mode: str) -> None:
    """notifications-2: in the handshake and in `server/discover`."""
    async with Client(server_of(registry_with(news)), mode=mode) as client:
        output = client.server_capabilities
    assert output.tools is not None
    assert output.tools.list_changed
    assert output.prompts is not None
    assert output.prompts.list_changed
    assert output.resources is not None
    assert output.resources.list_changed
    assert output.resources.subscribe
    assert output.logging is not None
    assert output.completions is not None


@ERAS
async def test_every_connection_is_notified(mode: str) -> None:
    """notifications-1: also after the first of them has ended."""
    registry = registry_with(plan)
    server = server_of(registry)
    async with subscribed(server, mode) as (_, next_of_second):
        async with subscribed(server, mode) as (first, next_of_first):
            await first.list_tools()
            registry.add(come_and_go)
            assert [await next_of_first(), await next_of_second()] == ["tools", "tools"]
        registry.remove("come_and_go")
        assert await next_of_second() == "tools"


@ERAS
async def test_one_that_unsubscribes_does_not_unsubscribe_others(mode: str) -> None:
    """notifications-5, notifications-6: a resource with two subscribers is watched until the second has left."""
    shelf, registry = Shelf(), Registry()
    registry.add_set("shelf", shelf)
    server = server_of(registry)
    async with subscribed(server, mode, "shelf://a") as (_, next_notification):
        async with subscribed(server, mode, "shelf://a") as (_, next_of_other):
            shelf.versions["a"] = 2
            assert [await next_notification(), await next_of_other()] == ["shelf://a"] * 2
        shelf.versions["a"] = 3
        assert await next_notification() == "shelf://a"


@ERAS
async def test_changes_before_the_connection_are_listed(mode: str) -> None:
    """notifications-1: a server that had no clients for a while lists the current commands."""
    registry = registry_with(plan)
    server = server_of(registry)
    async with Client(server, mode=mode, cache=None) as client:
        assert (await client.list_tools()).tools == []
    registry.add(come_and_go)
    async with subscribed(server, mode) as (client, _):
        with anyio.fail_after(BOUND_SECONDS):
            while not (listed := (await client.list_tools()).tools):
                await anyio.lowlevel.checkpoint()
    assert [one.name for one in listed] == ["come_and_go"]


@ERAS
async def test_clients_over_http_are_notified(mode: str) -> None:
    """notifications-1: on the session's stream in the handshake era, on the request's stream in the other."""
    registry = registry_with(news)
    before = kept()
    app = server_of(registry).streamable_http_app()
    async with listening(app) as url:
        async with subscribed(url, mode, "x://news") as (client, next_notification):
            await client.list_tools()
            with anyio.fail_after(BOUND_SECONDS):
                while True:
                    # The SDK's client opens its session's stream at any time, and what is sent before is lost.
                    registry.announce("x://news")
                    with anyio.move_on_after(0.2):
                        assert await next_notification() == "x://news"
                        break
            registry.add(come_and_go)
            while (one := await next_notification()) == "x://news":
                pass
            assert one == "tools"
        with anyio.fail_after(BOUND_SECONDS):
            while kept() > before:
                await checkpoint()


# Sessions of the handshake era


@asynccontextmanager
async def raw_session(server: Server[Any], *, initialized: int = 1) -> AsyncIterator[Any]:
    """A handshake session whose client reads nothing after the handshake; yields a function that sends a line."""
    connected = create_client_server_memory_streams()
    async with connected as ((read, write), streams), anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, *streams, server.create_initialization_options())
        number = 0

        async def send(method: str, params: dict[str, Any] | None = None, *, is_request: bool = True) -> None:
            nonlocal number
            number += 1
            kind = types.JSONRPCRequest if is_request else types.JSONRPCNotification
            rest = {"id": number} if is_request else {}
            await write.send(SessionMessage(kind(jsonrpc="2.0", method=method, params=params or {}, **rest)))

        async def ask(method: str, params: dict[str, Any] | None = None) -> Any:
            await send(method, params)
            while True:
                message = (await read.receive()).message
                if getattr(message, "id", None) == number:
                    return message

        await ask("initialize", HANDSHAKE)
        for _ in range(initialized):
            await send("notifications/initialized", is_request=False)
        yield ask
        await write.aclose()
        with anyio.move_on_after(10):
            async for _ in read:
                pass


def kept() -> int:
    gc.collect()
    return sum(isinstance(one, HandshakeConnection) for one in gc.get_objects())


async def test_a_session_that_does_not_read_blocks_nobody() -> None:
    """notifications-3: its queue does not grow with the changes."""
    registry = registry_with(news)
    server = server_of(registry)
    async with raw_session(server) as ask:
        await ask("resources/subscribe", {"uri": "x://news"})
        async with subscribed(server, "legacy") as (_, next_notification):
            for _ in range(50):
                registry.add(come_and_go)
                assert await next_notification() == "tools"
                registry.announce("x://news")
                registry.remove("come_and_go")
                assert await next_notification() == "tools"


async def test_nothing_is_kept_of_an_ended_session() -> None:
    """notifications-4: however it ended, and however often it sent `notifications/initialized`."""
    before = kept()
    registry = registry_with(news)
    server = server_of(registry)
    async with raw_session(server, initialized=5) as ask:
        await ask("resources/subscribe", {"uri": "x://news"})
        assert kept() == before + 1
        assert (await ask("initialize", HANDSHAKE)).error.code == types.INVALID_REQUEST
        assert kept() == before + 1
    assert kept() == before


async def test_an_uninitialized_session_gets_no_notifications_and_cannot_subscribe() -> None:
    """notifications-4: its client has not declared that it is ready for notifications."""
    async with raw_session(server_of(registry_with(news)), initialized=0) as ask:
        answer = await ask("resources/subscribe", {"uri": "x://news"})
    assert "notifications/initialized" in answer.error.message


# Resources


@ERAS
async def test_an_announced_change_is_notified_to_subscribers(mode: str) -> None:
    """notifications-5: to nobody else, and once for each announcement that was accepted."""
    registry = registry_with(news, resource("x://other")(named_function("other")))
    async with subscribed(server_of(registry), mode, "x://news") as (client, next_notification):
        registry.announce("x://other")
        registry.announce("x://news")
        assert await next_notification() == "x://news"
        if mode == "legacy":
            await client.unsubscribe_resource("x://news")
            await client.unsubscribe_resource("x://never")
            registry.announce("x://news")
        registry.add(come_and_go)
        assert await next_notification() == "tools"


def named_function(name: str) -> Any:
    def function() -> str:
        """Be read."""
        return name

    function.__name__ = function.__qualname__ = name
    return function


class Shelf:
    """Resources that report their version."""

    def __init__(self) -> None:
        self.versions: dict[str, int | Exception] = {"a": 1, "b": 1, "broken": RuntimeError("inside")}
        self.looked = 0

    @resource("shelf://{name}", version="version")
    def book(self, name: str) -> str:
        """Read."""
        return name

    def version(self, name: str) -> int:
        self.looked += 1
        found = self.versions.get(name, NotFound("no such book"))
        if isinstance(found, Exception):
            raise found
        return found


@ERAS
async def test_a_resource_with_a_version_is_watched_while_somebody_is_subscribed(mode: str) -> None:
    """notifications-6: removal and return are changes too; without a subscriber nothing is checked."""
    shelf, registry = Shelf(), Registry()
    registry.add_set("shelf", shelf)
    async with subscribed(server_of(registry), mode, "shelf://a", "shelf://b") as (_, next_notification):
        shelf.versions["b"] = 2
        assert await next_notification() == "shelf://b"
        del shelf.versions["a"]
        assert await next_notification() == "shelf://a"
        shelf.versions["a"] = 1
        assert await next_notification() == "shelf://a"
    await anyio.wait_all_tasks_blocked()
    looked = shelf.looked
    await anyio.wait_all_tasks_blocked()
    assert shelf.looked == looked


@pytest.mark.parametrize("uri", ["shelf://none", "shelf://broken", "x://nothing", "coretools://runs/run-1/output"])
async def test_what_cannot_be_read_cannot_be_subscribed_to(uri: str) -> None:
    """notifications-5: an error in the handshake era, missing from the acknowledgement in the other."""
    registry = Registry()
    registry.add_set("shelf", Shelf())
    server = server_of(registry)
    async with Client(server, mode="legacy") as client:
        with pytest.raises(MCPError, match="no resource") as caught:
            await client.subscribe_resource(uri)
        assert caught.value.error.code == -32002
    async with (
        Client(server, mode="auto") as client,
        client.listen(resource_subscriptions=[uri, "shelf://a"]) as subscription,
    ):
        assert subscription.honored.resource_subscriptions == ["shelf://a"]


async def test_subscriptions_of_a_session_are_bounded() -> None:
    """notifications-7: 64; repeating one does not count; in each era."""
    registry = Registry()
    shelf = Shelf()
    shelf.versions |= {f"n{number}": 1 for number in range(MAX_SUBSCRIPTIONS + 1)}
    registry.add_set("shelf", shelf)
    server = server_of(registry)
    uris = [f"shelf://n{number}" for number in range(MAX_SUBSCRIPTIONS + 1)]
    async with Client(server, mode="legacy") as client:
        for uri in (*uris[:-1], *uris[:3]):
            await client.subscribe_resource(uri)
        with pytest.raises(MCPError, match="at most 64"):
            await client.subscribe_resource(uris[-1])
        await client.unsubscribe_resource(uris[0])
        await client.subscribe_resource(uris[-1])
    async with Client(server, mode="auto") as client:
        with pytest.raises(MCPError, match="at most 64"):
            async with client.listen(resource_subscriptions=uris):
                pass


# Files and runs


@pytest.fixture
def files(tmp_path: Path) -> Registry:
    (tmp_path / "notes.txt").write_text("one")
    (tmp_path / ".env").write_text("SECRET=1")
    (tmp_path / "raw.bin").write_bytes(b"\0\1\2")
    registry = Registry()
    roots = Roots([RootSpec(str(tmp_path), writable=True)], deny=DenyRules([".env"]))
    for function in FilesystemTools(roots, Limits()).in_order():
        registry.add(function, "filesystem")
    return registry


@ERAS
async def test_a_file_is_a_resource_that_can_be_watched(files: Registry, tmp_path: Path, mode: str) -> None:
    """notifications-8: through the root: content, a change in place, a replacement, its deletion."""
    uri = "coretools://files/notes.txt"
    async with subscribed(server_of(files), mode, uri) as (client, next_notification):
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "coretools://files/{+path}"
        assert (await client.list_resources()).resources == []
        assert (await client.read_resource(uri)).contents[0].text == "one"  # type: ignore[union-attr]  # text
        (tmp_path / "notes.txt").write_text("two and more")
        assert await next_notification() == uri
        (tmp_path / "other").write_text("two and more")
        os.replace(tmp_path / "other", tmp_path / "notes.txt")
        assert await next_notification() == uri
        (tmp_path / "notes.txt").unlink()
        assert await next_notification() == uri
        raw = (await client.read_resource("coretools://files/raw.bin")).contents[0]
        assert isinstance(raw, types.BlobResourceContents)
        assert raw.mime_type == "application/octet-stream"


@pytest.mark.parametrize(
    "path", ["../outside", "..%2Foutside", "%2Fetc%2Fpasswd", "/etc/passwd", ".env", "missing", "."]
)
async def test_a_file_that_a_tool_would_refuse_is_no_resource(files: Registry, tmp_path: Path, path: str) -> None:
    """notifications-8, interoperability-14: nothing outside the root, nothing hidden; neither read nor watched."""
    (tmp_path.parent / "outside").write_text("secret")
    async with Client(server_of(files), mode="legacy") as client:
        with pytest.raises(MCPError) as read:
            await client.read_resource(f"coretools://files/{path}")
        with pytest.raises(MCPError):
            await client.subscribe_resource(f"coretools://files/{path}")
    assert read.value.error.code == (-32002 if path == "missing" else types.INVALID_PARAMS)


@asynccontextmanager
async def workstation(root: Path) -> AsyncIterator[tuple[Assembly, Server[Any]]]:
    async with open_assembly(Settings(roots=(str(root),)), dict(os.environ)) as assembly:
        assembly.catalog.sleep = hurried
        yield (
            assembly,
            build_server(
                assembly.catalog, assembly.dispatcher, assembly.identity, ServerOptions(runs=assembly.resources)
            ),
        )


def fact(result: types.CallToolResult, name: str) -> Any:
    assert not result.is_error, result.content
    return (result.meta or {})["coretools/facts"][name]


@ERAS
async def test_the_output_of_a_run_is_notified(tmp_path: Path, mode: str) -> None:
    """notifications-9: new output, and the end; an ended run causes no more notifications."""
    async with workstation(tmp_path) as (_, server), Client(server, mode=mode) as starter:
        run = fact(await starter.call_tool("run_command", {"command": "cat", "stdin": "", "wait_seconds": 0}), "run")
        uri = f"coretools://runs/{run}/output"
        async with subscribed(server, mode, uri) as (client, next_notification):
            await client.call_tool("write_run", {"run": run, "text": "hello\n"})
            assert await next_notification() == uri
            assert "hello" in (await client.read_resource(uri)).contents[0].text  # type: ignore[union-attr]
            await client.call_tool("stop_run", {"run": run})
            assert await next_notification() == uri


async def test_the_run_of_another_principal_is_no_resource(tmp_path: Path) -> None:
    """notifications-9: it cannot be read or subscribed to, and causes no notification."""
    async with workstation(tmp_path) as (assembly, server), Client(server, mode="legacy") as client:
        run = fact(await client.call_tool("run_command", {"command": "cat", "stdin": "", "wait_seconds": 0}), "run")
        assembly.runs.get(run, "local").principal = "another"
        with pytest.raises(MCPError, match="no such run"):
            await client.subscribe_resource(f"coretools://runs/{run}/output")


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_workstation_server_notifies_of_a_file(tmp_path: Path, era: str) -> None:
    """notifications-2, notifications-8: on the wire of a real process, from the first line to the notification."""
    uri = "coretools://files/notes.txt"
    (tmp_path / "notes.txt").write_text("one")
    with peer(tmp_path) as client:
        if era == "handshake":
            output = client.ask("initialize", HANDSHAKE)["result"]["capabilities"]
            assert output["tools"]["listChanged"]
            assert output["resources"] == {"subscribe": True, "listChanged": True}
            client.notify("notifications/initialized")
            assert client.ask("resources/subscribe", {"uri": uri})["result"] == {}
        else:
            wanted = {"resourceSubscriptions": [uri, "coretools://files/none"], "toolsListChanged": True}
            client.send("subscriptions/listen", {"_meta": ENVELOPE, "notifications": wanted})
            acknowledged = client.receive()["params"]["notifications"]
            assert acknowledged == {"resourceSubscriptions": [uri], "toolsListChanged": True}
        (tmp_path / "notes.txt").write_text("two and more")
        message = client.receive()
        assert (message["method"], message["params"]["uri"]) == ("notifications/resources/updated", uri)
        assert client.end() == 0
