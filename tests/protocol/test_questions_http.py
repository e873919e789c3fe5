"""Questions over Streamable HTTP, on real sockets, with and without a stream for them (docs/specs/questions.md)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import Server

from coretools.config.settings import Asking
from coretools.operations.call import Call, require_confirmation
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, asks, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.results import ERROR_KEY
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerInfo, ServerOptions, build_server
from coretools.questions.kinds import AskChoice, AskConfirmation, AskRoots, AskText
from tests.protocol.http_peer import listening

ERAS = ("legacy", "auto")


class Asker:
    def __init__(self) -> None:
        self.done: list[str] = []

    @tool(Effect.CHANGE)
    @asks("sure")
    async def drop(self, name: str, call: Call) -> str:
        """Drop it."""
        await require_confirmation(call, AskConfirmation(key="sure", message=f"Drop {name}?", is_prefillable=True))
        self.done.append(name)
        return "dropped"

    @tool(Effect.READ)
    @asks("colour", "where", "text")
    async def paint(self, call: Call) -> str:
        """Ask in three ways at once."""
        colour, where, text = await call.ask_all(
            AskChoice(key="colour", message="Which?", choices=("red", "green")),
            AskRoots(key="where"),
            AskText(key="text", message="What?", default="none"),
        )
        return f"{colour} {where[0]} {text}"


def server_of(asker: Asker, asking: Asking | None = None) -> Server[Any]:
    registry = Registry()
    registry.add_set("sample", asker)
    catalog = LiveCatalog(registry, Selection(profile="all"))
    return build_server(
        catalog, Dispatcher(threads=2), ServerInfo(), ServerOptions(questions=QuestionFactory(asking or Asking()))
    )


@asynccontextmanager
async def served(asker: Asker, **options: bool) -> AsyncIterator[str]:
    with anyio.fail_after(60):
        async with listening(server_of(asker).streamable_http_app(**options)) as url:
            yield url


async def someone(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    answer = params.requested_schema["properties"]["answer"]
    value = {"boolean": True, "string": "green"}[answer["type"]]
    return types.ElicitResult(action="accept", content={"answer": value})


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///work"})])


def kind(result: Any) -> str | None:
    return (result.meta or {}).get(ERROR_KEY)


@pytest.mark.parametrize("era", ERAS)
async def test_questions_use_the_stream_of_their_call(era: str) -> None:
    """questions-10, questions-12: forms and roots, without a separate stream for the server's requests."""
    asker = Asker()
    async with (
        served(asker) as url,
        Client(url, mode=era, elicitation_callback=someone, list_roots_callback=roots) as client,
    ):
        assert (await client.call_tool("drop", {"name": "x"})).content[0].text == "dropped"
        painted = await client.call_tool("paint", {})
        assert painted.content[0].text == "green file:///work green"
    assert asker.done == ["x"]


@pytest.mark.parametrize("options", [{"json_response": True}, {"stateless_http": True}], ids=["json", "stateless"])
async def test_without_a_stream_nobody_is_asked(options: dict[str, bool]) -> None:
    """questions-10: a client with forms, on a connection that cannot carry them, learns what to send."""
    asker = Asker()
    async with served(asker, **options) as url, Client(url, mode="legacy", elicitation_callback=someone) as client:
        result = await client.call_tool("drop", {"name": "x"})
        assert (kind(result), asker.done) == ("answer-needed", [])
        assert "dropped" in (await client.call_tool("drop", {"name": "x", "answers": {"sure": True}})).content[0].text
    async with served(asker, **options) as url, Client(url, mode="auto", elicitation_callback=someone) as client:
        assert kind(await client.call_tool("drop", {"name": "y"})) is None
    assert asker.done == ["x", "y"]


async def test_one_confirmation_sent_many_times_has_one_effect() -> None:
    """questions-15: the first one counts; the others are refused."""
    asker, kinds = Asker(), []
    async with served(asker) as url, Client(url, mode="auto", elicitation_callback=someone) as client:
        asked = await client.session.call_tool("drop", {"name": "x"}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        assert "Drop" not in json.dumps(asked.request_state)

        async def confirm() -> None:
            yes: Any = {"sure": types.ElicitResult(action="accept", content={"answer": True})}
            result = await client.session.call_tool(
                "drop", {"name": "x"}, input_responses=yes, request_state=asked.request_state
            )
            kinds.append(kind(result))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(confirm)
    assert sorted(kinds, key=str) == [None, *["conflict"] * 7]
    assert asker.done == ["x"]


async def test_another_server_does_not_accept_the_state() -> None:
    """questions-15: nor does the same one after a restart."""
    first, second = Asker(), Asker()
    async with served(first) as one, served(second) as two:
        async with Client(one, mode="auto", elicitation_callback=someone) as client:
            asked = await client.session.call_tool("drop", {"name": "x"}, allow_input_required=True)
        async with Client(two, mode="auto", elicitation_callback=someone) as client:
            yes: Any = {"sure": types.ElicitResult(action="accept", content={"answer": True})}
            with pytest.raises(Exception, match="Invalid or expired requestState"):
                await client.session.call_tool(
                    "drop", {"name": "x"}, input_responses=yes, request_state=asked.request_state
                )
    assert first.done == second.done == []
