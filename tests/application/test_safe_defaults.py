"""What an author need not think of: defaults that are safe (docs/specs/application.md)."""

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import MCPError
from pydantic import AnyUrl, BaseModel, ConfigDict, TypeAdapter

from coretools import AnswerNeeded, App, AskConfirmation, BadSetting, Call, Effect, SilentCall, asks

ERAS: tuple[Literal["auto", "legacy"], ...] = ("legacy", "auto")


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


class Closed(BaseModel):
    a: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    a: int = 0


class Connection:
    def __repr__(self) -> str:
        return "Connection(password=hunter2)"


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_cannot_confirm_for_a_person(era: Literal["auto", "legacy"]) -> None:
    """application-11"""
    deployed: list[str] = []
    app = App("deployctl")
    sure = AskConfirmation(key="sure", message="Deploy?")
    trusted = AskConfirmation(key="sure", message="Deploy?", is_prefillable=True)

    @app.tool(Effect.CHANGE)
    @asks(sure)
    async def deploy(call: Call) -> bool:
        """Deploy, once a person says so."""
        if await call.ask(sure):
            deployed.append("deploy")
        return True

    @app.tool(Effect.CHANGE)
    @asks(trusted)
    async def redeploy(call: Call) -> bool:
        """Deploy, once anybody says so."""
        if await call.ask(trusted):
            deployed.append("redeploy")
        return True

    @app.tool(Effect.CHANGE)
    @asks("sure")
    async def restart(service: str, call: Call) -> bool:
        """Restart, once a person says so; the question is made in the call."""
        if await call.ask(AskConfirmation(key="sure", message=f"Restart {service}?")):
            deployed.append("restart")
        return True

    async with app.test_client(era) as client:
        first, second, third = (await client.list_tools()).tools
        assert "answers" not in {*first.input_schema.get("properties", {}), *third.input_schema["properties"]}
        assert "answers" in second.input_schema["properties"]
        for name, arguments in (("deploy", {}), ("restart", {"service": "web"})):
            try:
                refused = text_of(await client.call_tool(name, {**arguments, "answers": {"sure": True}}))
            except MCPError as error:  # at 2026-07-28: the client can't ask its user
                refused = str(error)
            assert "a prefilled yes does not count" in refused
        assert deployed == []
        await client.call_tool("redeploy", {"answers": {"sure": True}})
        assert deployed == ["redeploy"]


async def test_a_model_refuses_unknown_fields_or_its_schema_says_that_it_is_open() -> None:
    """application-12"""
    app = App("a")

    @app.tool(Effect.READ)
    def closed(x: Closed, more: list[Closed] | None = None) -> int:
        """Take closed models."""
        return x.a + len(more or [])

    @app.tool(Effect.READ)
    def opened(x: Open, y: Closed) -> int:
        """Take an open model."""
        return x.a + y.a

    async with app.test_client() as client:
        for arguments in ({"x": {"typo": 2}}, {"x": {}, "more": [{"typo": 2}]}):
            result = await client.call_tool("closed", arguments)
            assert result.is_error
            assert "typo" in text_of(result)
        assert not (await client.call_tool("opened", {"x": {"typo": 2}, "y": {}})).is_error
        second = next(tool for tool in (await client.list_tools()).tools if tool.name == "opened")
        assert [one["additionalProperties"] for one in second.input_schema["properties"].values()] == [True, True]


async def test_what_is_no_json_is_an_error_and_never_its_repr() -> None:
    """application-13"""
    app = App("a")

    @app.tool(Effect.READ)
    def leak() -> dict[str, Any]:
        """Return an object that is no JSON."""
        return {"c": Connection()}

    async with app.test_client() as client:
        result = await client.call_tool("leak", {})
        assert result.is_error
        assert "hunter2" not in result.model_dump_json()


@pytest.mark.parametrize("hint", [types.CallToolResult, types.TextContent, list[types.TextContent], types.Tool | None])
async def test_types_of_the_protocol_are_refused_by_name(hint: Any) -> None:
    """application-14"""
    app = App("a")

    def answer() -> Any:
        """Answer."""

    answer.__annotations__["return"] = hint
    app.tool(Effect.READ)(answer)
    with pytest.raises(BadSetting, match=r"(CallToolResult|TextContent|Tool) is a type of the protocol"):
        async with app.test_client():
            pass


@pytest.mark.parametrize("era", ERAS)
async def test_bytes_have_a_valid_uri(era: Literal["auto", "legacy"]) -> None:
    """application-15"""
    app = App("a")

    @app.tool(Effect.READ)
    def data() -> bytes:
        """Return bytes."""
        return b"\x00\x01"

    async with app.test_client(era) as client:
        (block,) = (await client.call_tool("data", {})).content
        assert isinstance(block, types.EmbeddedResource)
        TypeAdapter(AnyUrl).validate_python(str(block.resource.uri))


def require_admin(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        raise PermissionError

    return checked


WRAPPED = App("wrapped")


@require_admin
@WRAPPED.tool(Effect.CHANGE)
def drop() -> str:
    """Drop everything."""
    return "dropped"


async def test_a_wrapper_above_the_registration_is_refused() -> None:
    """application-16"""
    with pytest.raises(BadSetting, match=r"drop: a decorator stands above @tool or @add"):
        async with WRAPPED.test_client():
            pass


async def test_blocking_code_in_an_async_command_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """application-17"""
    app = App("a")

    @app.tool(Effect.READ)
    async def block() -> str:
        """Block the event loop."""
        time.sleep(0.3)  # noqa: ASYNC251  # what is tested
        return "done"

    with caplog.at_level(logging.WARNING, "coretools"):
        async with app.test_client() as client:
            assert text_of(await client.call_tool("block", {})) == "done"
    assert [one.getMessage().partition(":")[0] for one in caplog.records if "blocked" in one.message] == ["block"]


async def test_a_command_alone_is_called_with_a_silent_call() -> None:
    """application-32: its answers are those of the test, also to a confirmation."""
    sure = AskConfirmation(key="sure", message="Deploy?")

    @asks(sure)
    async def deploy(call: Call) -> bool:
        await call.progress(1)
        return await call.ask(sure)

    assert [await deploy(SilentCall(answers={"sure": answer})) for answer in ("yes", "no")] == [True, False]
    with pytest.raises(AnswerNeeded, match="nobody can be asked"):
        await deploy(SilentCall())
