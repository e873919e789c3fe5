"""Applications and servers within an application (docs/specs/mounting.md)."""

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
import uvicorn
from mcp import Client, MCPError

from coretools import AgentContext, App, BadSetting, Effect, NotFound, Services, agent_tool
from tests.application import other_server

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("legacy", "auto")
PROGRAM = [sys.executable, str(Path(other_server.__file__))]
SECONDS = 30


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


async def answer(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    assert set(params.requested_schema["properties"]) == {"name", "age"}
    return types.ElicitResult(action="accept", content={"name": "Ada", "age": 36})


@asynccontextmanager
async def connected(app: App, era: Era) -> AsyncIterator[Client]:
    """As `App.test_client`, with a person who answers."""
    from coretools.hosting.serve import ServeOptions, running_server

    with anyio.fail_after(SECONDS):
        async with (
            running_server(app.registry, ServeOptions(info=app._info)) as server,
            Client(server, mode=era, elicitation_callback=answer, cache=None) as client,
        ):
            yield client


@dataclass
class Shelf:
    name: str


def inner(seen: list[str]) -> App:
    @asynccontextmanager
    async def shelf() -> AsyncIterator[Shelf]:
        seen.append("open")
        yield Shelf("books")
        seen.append("closed")

    app = App("inner", title="What is inside", instructions="Look twice.", lifespan=shelf)

    @app.context("shelf", summary="the shelf").tool(Effect.READ)
    async def look(shelf: Shelf, services: Services) -> str:
        """Look at the shelf."""
        await services.values.set("looked", b"yes")
        return shelf.name

    @app.resource("inner://shelf")
    def contents() -> str:
        """What is on it."""
        return "a book"

    @app.prompt()
    def tidy(how: str) -> str:
        """Tidy up."""
        return f"Tidy up {how}."

    return app


@pytest.mark.parametrize("era", ERAS)
async def test_an_application_is_mounted_with_all_that_it_has(era: Era) -> None:
    """mounting-1, mounting-2"""
    seen: list[str] = []
    within, middle, outer = inner(seen), App("middle"), App("outer", instructions="Begin here.")
    middle.mount("deep", within)
    outer.mount("mid", middle)
    async with connected(outer, era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["mid_deep_shelf_look"]
        assert text_of(await client.call_tool("mid_deep_shelf_look", {})) == "books"
        assert [one.uri for one in (await client.list_resources()).resources] == ["inner://shelf"]
        assert [one.name for one in (await client.list_prompts()).prompts] == ["mid_deep_tidy"]
        prompted: Any = (await client.get_prompt("mid_deep_tidy", {"how": "well"})).messages[0].content
        assert prompted.text == "Tidy up well."
        assert client.instructions == "Begin here.\n\nTools that begin with mid_deep_: Look twice."

        @within.tool(Effect.READ)
        def later() -> str:
            """Come later."""
            return "late"

        await until(client, "mid_deep_later")
        within.remove("later")
        await until(client, "mid_deep_later", is_there=False)
    assert seen == ["open", "closed"]


async def until(client: Client, name: str, *, is_there: bool = True) -> None:
    """Wait for the list to have, or not to have, a tool."""
    while (name in {tool.name for tool in (await client.list_tools()).tools}) != is_there:
        await anyio.wait_all_tasks_blocked()


def test_what_can_not_be_mounted_is_refused_at_once() -> None:
    """mounting-3"""
    one, two = App("one"), App("two")
    one.mount("two", two)
    for outer, name, other, reason in (
        (two, "one", one, "can't be mounted in itself"),
        (one, "one", one, "can't be mounted in itself"),
        (one, "Not a word", App("x"), "not valid in a route"),
    ):
        with pytest.raises(BadSetting, match=reason):
            outer.mount(name, other)
    one.mount("in", inner([]))
    with pytest.raises(BadSetting, match="two commands are named in_shelf_look"):
        one.mount("in", inner([]))


@asynccontextmanager
async def target(how: str) -> AsyncIterator[Any]:
    """The other server: in memory, as a program, or over HTTP."""
    if how == "memory":
        yield other_server.server
    elif how == "stdio":
        yield PROGRAM
    else:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            http = uvicorn.Server(uvicorn.Config(other_server.server.streamable_http_app(), log_level="error"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: http.serve(sockets=[listener]))
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
                http.should_exit = True


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", ["memory", "stdio", "http"])
async def test_a_server_is_passed_on_with_all_that_it_has(how: str, era: Era) -> None:
    """mounting-4, mounting-5"""
    reported: list[Any] = []

    async def report(*progress: Any) -> None:
        reported.append(progress)

    async with target(how) as other:
        app = App("outer")
        app.mount("o", other, mode="legacy" if era == "auto" else "auto")  # the other era than that of the client
        async with connected(app, era) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            own = tools["o_add"]
            assert own.annotations is not None
            assert own.output_schema is not None
            assert (own.title, own.description) == ("Add", "Add two numbers.")
            assert (own.annotations.read_only_hint, own.annotations.open_world_hint) == (True, False)
            assert own.output_schema["properties"]["value"]["type"] == "integer"
            assert own.input_schema["required"] == ["a", "b"]
            added = await client.call_tool("o_add", {"a": 1, "b": 2}, progress_callback=report)
            assert added.structured_content == {"value": 3}
            assert reported == [(1.0, 2.0, "half")]
            failed = await client.call_tool("o_fail", {})
            assert failed.is_error
            assert "out of paper" in text_of(failed) or "fail" in text_of(failed)
            wrong = await client.call_tool("o_add", {"a": "x", "b": 2})
            assert "o_add: a" in text_of(wrong)
            assert text_of(await client.call_tool("o_welcome", {})) == "welcome Ada"
            (fixed,) = (await client.list_resources()).resources
            assert (fixed.uri, fixed.mime_type, fixed.title) == ("other://fixed", "text/markdown", "fixed")
            for uri, text in (("other://fixed", "# fixed"), ("other://of/tea%20time", "of tea time")):
                read: Any = (await client.read_resource(uri)).contents[0]
                assert (read.uri, read.text) == (uri, text)
            (prompt,) = (await client.list_prompts()).prompts
            assert prompt.name == "o_add_up"
            assert [(one.name, one.required) for one in prompt.arguments or ()] == [("numbers", True)]
            asked: Any = (await client.get_prompt("o_add_up", {"numbers": "1, 2"})).messages[0].content
            assert asked.text == "Add 1, 2."
            assert client.instructions == "Tools that begin with o_: Be kind."


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_in_the_middle_of_a_call_runs_nothing_twice(era: Era) -> None:
    """mounting-5: also where the call of the client ends with the question and is repeated with the answer."""
    other_server.begun.clear()
    app = App("outer")
    app.mount("o", other_server.server, mode="legacy")
    async with connected(app, era) as client:
        assert text_of(await client.call_tool("o_meet", {})) == "accept name='Ada' age=36 begun 1"
    async with app.test_client(era) as client, anyio.create_task_group():
        with anyio.fail_after(SECONDS):  # nobody can be asked: the call ends, and with it the server's
            try:
                refused = await client.call_tool("o_meet", {})
                assert refused.is_error
            except MCPError as error:
                assert error.code == -32021  # noqa: PT017 - one of both


@pytest.mark.parametrize("era", ERAS)
async def test_lists_that_change_are_followed(era: Era) -> None:
    """mounting-6"""
    app = App("outer")
    app.mount("o", PROGRAM, mode="legacy")
    async with connected(app, era) as client:
        await client.call_tool("o_learn", {})
        await until(client, "o_learned")
        assert text_of(await client.call_tool("o_learned", {})) == "learned"


async def test_a_server_that_ends_is_connected_again(caplog: pytest.LogCaptureFixture) -> None:
    """mounting-7"""
    app = App("outer")
    app.mount("o", PROGRAM)
    async with connected(app, "legacy") as client:
        ended = await client.call_tool("o_die", {})
        assert ended.meta is not None
        assert ended.meta["coretools/error"] == "unreachable"
        while (again := await client.call_tool("o_add", {"a": 1, "b": 2})).is_error:
            assert (again.meta or {})["coretools/error"] == "unreachable"
        assert again.structured_content == {"value": 3}
    assert "connection lost" in caplog.text


def test_an_application_with_a_server_can_be_started_again() -> None:
    """mounting-7: also in another event loop, and without the commands of the last time."""
    app = App("outer")
    app.mount("o", other_server.server)

    async def names() -> set[str]:
        async with app.test_client() as client:
            await client.call_tool("o_add", {"a": 1, "b": 2})
            return {tool.name for tool in (await client.list_tools()).tools}

    first = anyio.run(names)
    assert [*app.registry] == []
    assert "o_add" in anyio.run(names) == first


@pytest.mark.parametrize("other", [["/no/such/program"], [sys.executable, "-c", "1"], "http://127.0.0.1:9/mcp"])
async def test_a_server_that_can_not_be_connected_ends_the_start_in_one_line(other: Any) -> None:
    """mounting-7"""
    app = App("outer")
    app.mount("o", other)
    with anyio.fail_after(SECONDS), pytest.raises(BadSetting, match="mount o: the server can't be connected") as caught:
        async with app.test_client():
            pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("era", ERAS)
async def test_steps_of_an_agent_are_reported_with_what_they_took(era: Era) -> None:
    """mounting-8"""

    @dataclass(frozen=True)
    class Topic:
        subject: str

    async def research(topic: Topic, context: AgentContext) -> str:
        """Research a subject."""
        async with context.doing("plan", topic.subject):
            async with context.doing("model", "draft") as step:
                step.tokens = 120
            for error in (NotFound("no such book"), ValueError("secret")):
                try:
                    async with context.doing("tool", "search"):
                        raise error
                except (NotFound, ValueError):
                    continue
        return "; ".join(f"{one.depth} {one.kind} {one.tokens} {one.error}" for one in context.trace)

    seen: list[str | None] = []

    async def report(_done: float, _total: float | None, message: str | None) -> None:
        seen.append(message)

    app = App("agents")
    app.add(agent_tool(research, Effect.READ))
    async with app.test_client(era) as client:
        result = await client.call_tool("research", {"subject": "tea"}, progress_callback=report)
    assert text_of(result) == "0 plan 0 ; 1 model 120 ; 1 tool 0 no such book; 1 tool 0 ValueError"
    begun = [one for one in seen if one and "(" not in one]
    assert begun == ["plan tea", "  model draft", "  tool search", "  tool search"]
    assert any(one and one.startswith("  model draft (") and "120 tokens" in one for one in seen)
    assert "secret" not in str(seen)
    steps = (result.meta or {})["coretools/facts"]["steps"]
    assert [(one["name"], one["tokens"]) for one in steps] == [("tea", 0), ("draft", 120), ("search", 0), ("search", 0)]
    assert all(one.keys() == {"kind", "name", "depth", "seconds", "tokens", "error"} for one in steps)
