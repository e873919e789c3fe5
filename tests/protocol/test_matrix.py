"""Every feature of the protocol, in both eras, on each transport, for clients with and without capabilities."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from pydantic import FileUrl

from coretools.hosting.serve import build, http_app
from coretools.protocol.results import ERROR_KEY
from tests.checkout import TREE
from tests.protocol.featured import MANY, OPTIONS, STEPS, registry
from tests.protocol.http_peer import listening
from tests.protocol.line_client import Over, Pipes
from tests.protocol.unasked import unasked
from tests.starting import warm

SECONDS = 60
ERAS = ("legacy", "auto")
TRANSPORTS = ("memory", "stdio", "http")


class Notifications:
    """The notifications that a client received."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._news = anyio.Event()

    def note(self, item: Any) -> None:
        self._items.append(item)
        self._news.set()

    async def first(self, kind: type) -> Any:
        """Wait for the first one of a kind."""
        with anyio.fail_after(SECONDS):
            while not (found := [item for item in self._items if isinstance(item, kind)]):
                await self._news.wait()
                self._news = anyio.Event()
        return found[0]


@dataclass
class ConnectedClient:
    """A connected client, and its notifications."""

    era: str
    has_person: bool
    """Whether it has elicitation and roots."""
    has_model: bool
    """Whether it has sampling."""
    received: Notifications = field(default_factory=Notifications)
    client: Client = field(init=False)

    async def call(self, name: str, **arguments: Any) -> types.CallToolResult:
        with anyio.fail_after(SECONDS):
            return await self.client.call_tool(name, arguments)

    async def text(self, name: str, **arguments: Any) -> str:
        """The text of a call that succeeds."""
        result = await self.call(name, **arguments)
        assert not result.is_error, result
        (block,) = result.content
        assert isinstance(block, types.TextContent)
        return block.text


async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """A person who fills in every form."""
    assert isinstance(params, types.ElicitRequestFormParams)
    shapes = params.requested_schema["properties"]
    if "answer" not in shapes:
        return types.ElicitResult(action="accept", content={"name": "Ada", "age": 36})
    if shapes["answer"]["type"] == "boolean":
        return types.ElicitResult(action="accept", content={"answer": True})
    return types.ElicitResult(action="accept", content={"answer": shapes["answer"].get("enum", ["word"])[-1]})


async def think(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """A model that always answers the same."""
    return types.CreateMessageResult(
        role="assistant", model="one", content=types.TextContent(type="text", text="A cat is a cat.")
    )


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///work"))])


@asynccontextmanager
async def reached(transport: str) -> AsyncIterator[Server[Any] | Over | str]:
    """The features, served over a transport."""
    if transport == "stdio":
        words = [sys.executable, "-m", "tests.protocol.featured"]
        yield Over(Pipes(warm.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TREE)))
    elif transport == "http":
        async with listening(http_app(registry(), options=OPTIONS)) as url:
            yield url
    else:
        yield build(registry(), OPTIONS)


@asynccontextmanager
async def connect(target: Server[Any] | Over | str, connected: ConnectedClient) -> AsyncIterator[None]:
    """Connect a client."""

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        connected.received.note(params)

    async def hear(message: types.ServerNotification | Exception) -> None:
        connected.received.note(message)

    connected.client = Client(
        target,
        mode=connected.era,
        elicitation_callback=answer if connected.has_person else None,
        sampling_callback=think if connected.has_model else None,
        list_roots_callback=roots if connected.has_person else None,
        logging_callback=log,
        log_level="info",
        message_handler=hear,
    )
    async with connected.client:
        yield


async def tools(connected: ConnectedClient) -> None:
    assert {"say", "measure"} <= {tool.name for tool in (await connected.client.list_tools()).tools}
    assert await connected.text("say", text="hello") == "hello"
    refused = await connected.call("say", text="hello", volume=3)
    assert refused.is_error
    assert (refused.meta or {})[ERROR_KEY] == "invalid-arguments"


async def structured_results(connected: ConnectedClient) -> None:
    result = await connected.call("measure", text="hello")
    assert result.structured_content == {"length": 5}
    assert await connected.text("measure", text="hello") == "5 long"


async def resources(connected: ConnectedClient) -> None:
    listed = {one.uri for one in (await connected.client.list_resources()).resources}
    assert listed == {"featured://fixed", "featured://state"}
    (template,) = (await connected.client.list_resource_templates()).resource_templates
    assert template.uri_template == "featured://guests/{name}"
    for uri, text in (("featured://fixed", "fixed"), ("featured://guests/Ada", "guest Ada")):
        (contents,) = (await connected.client.read_resource(uri)).contents
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.uri, contents.text) == (uri, text)
    with pytest.raises(MCPError):
        await connected.client.read_resource("featured://nothing")


async def prompts(connected: ConnectedClient) -> None:
    result = await connected.client.get_prompt("greet", {"name": "Ada", "manner": "short"})
    assert [message.content for message in result.messages] == [types.TextContent(type="text", text="Greet Ada, short")]


async def progress(connected: ConnectedClient) -> None:
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    with anyio.fail_after(SECONDS):
        await connected.client.call_tool("advance", {}, progress_callback=note)
    assert seen[-1] == STEPS
    assert seen == sorted(set(seen))


async def logs(connected: ConnectedClient) -> None:
    await connected.call("tell")
    logged = await connected.received.first(types.LoggingMessageNotificationParams)
    assert (logged.level, logged.data) == ("warning", "logged")


ASKED = (
    ("ask_text", "text", "word", "word"),
    ("ask_choice", "choice", "green", "green"),
    ("ask_yes", "yes", True, "True"),
    ("ask_form", "person", {"name": "Ada", "age": 36}, "Ada is 36"),
    ("ask_model", "thought", "A cat is a cat.", "A cat is a cat."),
    ("ask_roots", "roots", ["file:///work"], "file:///work"),
)
"""Tool, key of its question, answer, expected result."""


CAPABILITIES = {"ask_model": "sampling", "ask_roots": "roots"}
"""What a client declares for a tool's question, if that is not elicitation."""


async def questions(connected: ConnectedClient) -> None:
    for tool, key, given, expected in ASKED:
        assert await connected.text(tool, answers={key: given}) == expected
        if connected.has_model if tool == "ask_model" else connected.has_person:
            assert await connected.text(tool) == expected
        elif connected.has_model and tool == "ask_text":  # a model may write text, and never confirm
            assert await connected.text(tool) == "A cat is a cat."
        elif not connected.has_model or tool in ("ask_yes", "ask_roots"):
            await unasked(connected.era, connected.call(tool), CAPABILITIES.get(tool, "elicitation"))


async def completion(connected: ConnectedClient) -> None:
    greet = types.PromptReference(type="ref/prompt", name="greet")
    guests = types.ResourceTemplateReference(type="ref/resource", uri="featured://guests/{name}")
    for reference, argument, typed, values in (
        (greet, "manner", "f", ["formal"]),
        (greet, "name", "a", ["Ada", "Alan"]),
        (guests, "name", "G", ["Grace"]),
    ):
        found = await connected.client.complete(reference, {"name": argument, "value": typed})
        assert found.completion.values == values


async def list_changes(connected: ConnectedClient) -> None:
    if connected.era == "legacy":
        await connected.call("toggle")
        await connected.received.first(types.ToolListChangedNotification)
    else:
        with anyio.fail_after(SECONDS):
            async with connected.client.listen(tools_list_changed=True) as changes:
                await connected.call("toggle")
                await anext(aiter(changes))
    listed = await connected.client.list_tools(cache_mode="bypass")
    assert "added" in {tool.name for tool in listed.tools}
    assert await connected.text("added") == "here"


async def subscriptions(connected: ConnectedClient) -> None:
    uri = "featured://state"
    if connected.era == "legacy":
        await connected.client.subscribe_resource(uri)
        await connected.call("change", to="after")
        assert (await connected.received.first(types.ResourceUpdatedNotification)).params.uri == uri
        await connected.client.unsubscribe_resource(uri)
    else:
        with anyio.fail_after(SECONDS):
            async with connected.client.listen(resource_subscriptions=[uri]) as changes:
                await connected.call("change", to="after")
                assert (await anext(aiter(changes))).uri == uri  # type: ignore[union-attr]  # an update
    (contents,) = (await connected.client.read_resource(uri, cache_mode="bypass")).contents
    assert isinstance(contents, types.TextResourceContents)
    assert contents.text == "after"


async def pagination(connected: ConnectedClient) -> None:
    first = await connected.client.list_prompts()
    second = await connected.client.list_prompts(cursor=first.next_cursor)
    assert len({prompt.name for prompt in (*first.prompts, *second.prompts)}) == MANY + 1
    assert first.next_cursor
    assert second.next_cursor is None
    with pytest.raises(MCPError):
        await connected.client.list_prompts(cursor="MjAw")


async def cache_hints(connected: ConnectedClient) -> None:
    listed = await connected.client.list_tools(cache_mode="bypass")
    read = await connected.client.read_resource("featured://fixed", cache_mode="bypass")
    hints = (listed.ttl_ms, listed.cache_scope, read.ttl_ms)
    assert hints == ((0, "private", 0) if connected.era == "legacy" else (60_000, "public", 0))


async def cancellation(connected: ConnectedClient) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connected.client.call_tool, "hang", {})
        assert await connected.text("hanging") == "hangs"
        tasks.cancel_scope.cancel()
    assert await connected.text("cancelled") == "cancelled"


Feature = Callable[[ConnectedClient], Awaitable[None]]

FEATURES: tuple[Feature, ...] = (
    *(tools, structured_results, resources, prompts, progress, logs, questions, completion),
    *(list_changes, subscriptions, pagination, cache_hints, cancellation),
)


CLIENTS = [
    (transport, has_person, has_model)
    for transport, has_person, has_model in product(TRANSPORTS, (True, False), (True, False))
    if transport == "memory" or has_person == has_model
]
"""What a client lacks is judged above the transport: those that have one of the two are tried on one transport."""


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed as of 2026-07-28")  # so the SDK reports before too
@pytest.mark.parametrize(("transport", "has_person", "has_model"), CLIENTS)
@pytest.mark.parametrize("era", ERAS)
async def test_every_feature_works(
    era: str, transport: str, has_person: bool, has_model: bool, subtests: pytest.Subtests
) -> None:
    """interoperability-9: the same on each transport, in each era, and for clients without capabilities."""
    connected = ConnectedClient(era, has_person, has_model)
    async with reached(transport) as target, connect(target, connected):
        for feature in FEATURES:
            with subtests.test(feature=feature.__name__):
                await feature(connected)
