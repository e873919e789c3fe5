"""Every feature of the protocol, in both eras, on each transport, for clients that can be asked and that can't be."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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

SECONDS = 20
ERAS = ("legacy", "auto")
TRANSPORTS = ("memory", "stdio", "http")


class Heard:
    """What came without being asked for."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._news = anyio.Event()

    def note(self, item: Any) -> None:
        self._items.append(item)
        self._news.set()

    async def first(self, kind: type) -> Any:
        """The first of a kind that came, awaited."""
        with anyio.fail_after(SECONDS):
            while not (found := [item for item in self._items if isinstance(item, kind)]):
                await self._news.wait()
                self._news = anyio.Event()
        return found[0]


@dataclass
class Seat:
    """A connected client, and what it hears."""

    era: str
    has_person: bool
    """Whether it can be asked: elicitation, roots."""
    has_model: bool
    """Whether its model can be: sampling."""
    heard: Heard = field(default_factory=Heard)
    client: Client = field(init=False)

    async def call(self, name: str, **arguments: Any) -> types.CallToolResult:
        with anyio.fail_after(SECONDS):
            return await self.client.call_tool(name, arguments)

    async def text(self, name: str, **arguments: Any) -> str:
        """The text of a call that works."""
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
    """A model of one thought."""
    return types.CreateMessageResult(
        role="assistant", model="one", content=types.TextContent(type="text", text="A cat is a cat.")
    )


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///work"))])


@asynccontextmanager
async def reached(transport: str) -> AsyncIterator[Server[Any] | Over | str]:
    """The features behind a transport."""
    if transport == "stdio":
        words = [sys.executable, "-m", "tests.protocol.featured"]
        yield Over(Pipes(warm.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TREE)))
    elif transport == "http":
        async with listening(http_app(registry(), options=OPTIONS)) as url:
            yield url
    else:
        yield build(registry(), OPTIONS)


@asynccontextmanager
async def seated(target: Server[Any] | Over | str, seat: Seat) -> AsyncIterator[None]:
    """A client, connected."""

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        seat.heard.note(params)

    async def hear(message: types.ServerNotification | Exception) -> None:
        seat.heard.note(message)

    seat.client = Client(
        target,
        mode=seat.era,
        elicitation_callback=answer if seat.has_person else None,
        sampling_callback=think if seat.has_model else None,
        list_roots_callback=roots if seat.has_person else None,
        logging_callback=log,
        log_level="info",
        message_handler=hear,
    )
    async with seat.client:
        yield


async def tools(seat: Seat) -> None:
    assert {"say", "measure"} <= {tool.name for tool in (await seat.client.list_tools()).tools}
    assert await seat.text("say", text="hello") == "hello"
    refused = await seat.call("say", text="hello", volume=3)
    assert refused.is_error
    assert (refused.meta or {})[ERROR_KEY] == "invalid-arguments"


async def structured_results(seat: Seat) -> None:
    result = await seat.call("measure", text="hello")
    assert result.structured_content == {"length": 5}
    assert await seat.text("measure", text="hello") == "5 long"


async def resources(seat: Seat) -> None:
    listed = {one.uri for one in (await seat.client.list_resources()).resources}
    assert listed == {"featured://fixed", "featured://state"}
    (template,) = (await seat.client.list_resource_templates()).resource_templates
    assert template.uri_template == "featured://guests/{name}"
    for uri, text in (("featured://fixed", "fixed"), ("featured://guests/Ada", "guest Ada")):
        (contents,) = (await seat.client.read_resource(uri)).contents
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.uri, contents.text) == (uri, text)
    with pytest.raises(MCPError):
        await seat.client.read_resource("featured://nothing")


async def prompts(seat: Seat) -> None:
    result = await seat.client.get_prompt("greet", {"name": "Ada", "manner": "short"})
    assert [message.content for message in result.messages] == [types.TextContent(type="text", text="Greet Ada, short")]


async def progress(seat: Seat) -> None:
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    with anyio.fail_after(SECONDS):
        await seat.client.call_tool("advance", {}, progress_callback=note)
    assert seen[-1] == STEPS
    assert seen == sorted(set(seen))


async def logs(seat: Seat) -> None:
    await seat.call("tell")
    logged = await seat.heard.first(types.LoggingMessageNotificationParams)
    assert (logged.level, logged.data) == ("warning", "told")


ASKED = (
    ("ask_text", "text", "word", "word"),
    ("ask_choice", "choice", "green", "green"),
    ("ask_yes", "yes", True, "True"),
    ("ask_form", "person", {"name": "Ada", "age": 36}, "Ada is 36"),
    ("ask_model", "thought", "A cat is a cat.", "A cat is a cat."),
    ("ask_roots", "roots", ["file:///work"], "file:///work"),
)
"""Tool, key of its question, answer, what it says then."""


CAPABILITIES = {"ask_model": "sampling", "ask_roots": "roots"}
"""What a client declares for a tool's question, where that is not elicitation."""


async def questions(seat: Seat) -> None:
    for tool, key, given, expected in ASKED:
        assert await seat.text(tool, answers={key: given}) == expected
        if seat.has_model if tool == "ask_model" else seat.has_person:
            assert await seat.text(tool) == expected
        elif seat.has_model and tool == "ask_text":  # where there is no person, a model may say a word, and never yes
            assert await seat.text(tool) == "A cat is a cat."
        elif not seat.has_model or tool in ("ask_yes", "ask_roots"):
            await unasked(seat.era, seat.call(tool), CAPABILITIES.get(tool, "elicitation"))


async def completion(seat: Seat) -> None:
    greet = types.PromptReference(type="ref/prompt", name="greet")
    guests = types.ResourceTemplateReference(type="ref/resource", uri="featured://guests/{name}")
    for reference, argument, typed, values in (
        (greet, "manner", "f", ["formal"]),
        (greet, "name", "a", ["Ada", "Alan"]),
        (guests, "name", "G", ["Grace"]),
    ):
        found = await seat.client.complete(reference, {"name": argument, "value": typed})
        assert found.completion.values == values


async def list_changes(seat: Seat) -> None:
    if seat.era == "legacy":
        await seat.call("toggle")
        await seat.heard.first(types.ToolListChangedNotification)
    else:
        with anyio.fail_after(SECONDS):
            async with seat.client.listen(tools_list_changed=True) as changes:
                await seat.call("toggle")
                await anext(aiter(changes))
    listed = await seat.client.list_tools(cache_mode="bypass")
    assert "added" in {tool.name for tool in listed.tools}
    assert await seat.text("added") == "here"


async def subscriptions(seat: Seat) -> None:
    uri = "featured://state"
    if seat.era == "legacy":
        await seat.client.subscribe_resource(uri)
        await seat.call("change", to="after")
        assert (await seat.heard.first(types.ResourceUpdatedNotification)).params.uri == uri
        await seat.client.unsubscribe_resource(uri)
    else:
        with anyio.fail_after(SECONDS):
            async with seat.client.listen(resource_subscriptions=[uri]) as changes:
                await seat.call("change", to="after")
                assert (await anext(aiter(changes))).uri == uri  # type: ignore[union-attr]  # an update
    (contents,) = (await seat.client.read_resource(uri, cache_mode="bypass")).contents
    assert isinstance(contents, types.TextResourceContents)
    assert contents.text == "after"


async def pagination(seat: Seat) -> None:
    first = await seat.client.list_prompts()
    second = await seat.client.list_prompts(cursor=first.next_cursor)
    assert len({prompt.name for prompt in (*first.prompts, *second.prompts)}) == MANY + 1
    assert first.next_cursor
    assert second.next_cursor is None
    with pytest.raises(MCPError):
        await seat.client.list_prompts(cursor="MjAw")


async def cache_hints(seat: Seat) -> None:
    listed = await seat.client.list_tools(cache_mode="bypass")
    read = await seat.client.read_resource("featured://fixed", cache_mode="bypass")
    hints = (listed.ttl_ms, listed.cache_scope, read.ttl_ms)
    assert hints == ((0, "private", 0) if seat.era == "legacy" else (60_000, "public", 0))


async def cancellation(seat: Seat) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(seat.client.call_tool, "hang", {})
        assert await seat.text("hanging") == "hangs"
        tasks.cancel_scope.cancel()
    assert await seat.text("cancelled") == "cancelled"


Feature = Callable[[Seat], Awaitable[None]]

FEATURES: tuple[Feature, ...] = (
    *(tools, structured_results, resources, prompts, progress, logs, questions, completion),
    *(list_changes, subscriptions, pagination, cache_hints, cancellation),
)


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed as of 2026-07-28")  # so the SDK says before too
@pytest.mark.parametrize("has_model", [True, False], ids=["sampling", "no-sampling"])
@pytest.mark.parametrize("has_person", [True, False], ids=["elicitation", "no-elicitation"])
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("era", ERAS)
async def test_every_feature_works(
    era: str, transport: str, has_person: bool, has_model: bool, subtests: pytest.Subtests
) -> None:
    """interoperability-9: the same on each transport, in each era, and for clients that can't be asked."""
    seat = Seat(era, has_person, has_model)
    async with reached(transport) as target, seated(target, seat):
        for feature in FEATURES:
            with subtests.test(feature=feature.__name__):
                await feature(seat)
