"""Requests whose only message is the response are answered with JSON, without a stream (docs/specs/http.md)."""

import inspect
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server.streamable_http import StreamableHTTPServerTransport

from coretools.cancellation import check_cancelled
from coretools.config.operator_policy import ToolPolicy
from coretools.operations.call import Call
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, tool
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.web.sessions.session_transport import JSON_RESPONSE_METHODS, json_response_rule
from tests.process.tree import until
from tests.web.http_mcp_client import ENVELOPE, STATELESS, HttpMcpClient, messages_in
from tests.web.plans import at_work, plan_of

SECONDS = 50.0
STREAM = "text/event-stream"

began = threading.Event()
go_on = threading.Event()
ended: list[str] = []


@tool(Effect.READ)
def plain(text: str) -> str:
    """Say it."""
    return text


@tool(Effect.READ)
def slow() -> str:
    """Wait for the test, or be cancelled."""
    began.set()
    try:
        while not go_on.wait(0.01):
            check_cancelled()
    except BaseException:
        ended.append("cancelled")
        raise
    return "at last"


@tool(Effect.READ)
def reporting(call: Call) -> str:
    """Could report progress; waits for the test."""
    while not go_on.wait(0.01):
        check_cancelled()
    return call.principal


@tool(Effect.READ)
async def waiting() -> str:
    """Runs on the event loop, like commands that wait for children."""
    return "done"


def registry_of(policy: ToolPolicy | None = None) -> Registry:
    registry = Registry(policy=policy or ToolPolicy())
    for one in (plain, slow, reporting, waiting):
        registry.add(one)
    return registry


@asynccontextmanager
async def mcp_client(tmp_path: Path) -> AsyncIterator[HttpMcpClient]:
    plan = plan_of("--root", str(tmp_path), "--profile", "all", others=[registry_of()])
    async with at_work(plan) as url, httpx2.AsyncClient(timeout=SECONDS) as http:
        found = HttpMcpClient(http, url)
        await found.initialize()
        yield found


def call(name: str) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": name, "arguments": {}}}


@pytest.mark.parametrize(
    ("message", "uses_json"),
    [
        (call("plain"), True),
        (call("slow"), True),
        (call("reporting"), False),
        (call("waiting"), False),
        (call("no such tool"), False),
        ({"method": "tools/call", "params": {}}, False),
        ({"method": "tools/call"}, False),
        ({"method": "tools/list"}, True),
        ({"method": "initialize", "params": {}}, False),
        ({"method": "resources/read", "params": {"uri": "x"}}, False),
        ({"method": "prompts/get", "params": {"name": "x"}}, False),
        ({"method": "subscriptions/listen", "params": {}}, False),
        ({"method": "tasks/get", "params": {}}, False),
        ({"method": "no/such", "params": {}}, False),
    ],
)
def test_what_may_report_or_ask_may_need_a_stream(message: dict[str, Any], uses_json: bool) -> None:
    """http-2: by declaration; unknown methods may need one."""
    catalog = LiveCatalog(registry_of(), Selection(profile="all"))
    assert json_response_rule(catalog)(message) is uses_json


def test_a_tool_that_the_operator_confirms_may_need_a_stream() -> None:
    """http-2: the question must reach the client."""
    catalog = LiveCatalog(registry_of(ToolPolicy(ask=("plain",))), Selection(profile="all"))
    assert not json_response_rule(catalog)(call("plain"))
    assert json_response_rule(catalog)(call("slow"))


async def test_a_json_response_stays_json_however_long_it_takes(tmp_path: Path) -> None:
    """http-2: in both eras, also if the client accepts a stream."""
    async with mcp_client(tmp_path) as client:
        headers = client.headers()
        asks = (client.call, lambda name: client.stateless("tools/call", name, arguments={}))
        for number, ask in enumerate(asks, 8_000):
            streaming = {"jsonrpc": "2.0", "id": number, **call("reporting")}
            began.clear()
            go_on.clear()
            answers: list[httpx2.Response] = []

            async def take(ask: Any = ask, answers: list[httpx2.Response] = answers) -> None:
                answers.append(await ask("slow"))

            with anyio.fail_after(SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(take)
                    await until(began.is_set)
                    # A stream that begins later is sent when its buffer time is over: so is that of the first call.
                    async with client.http.stream("POST", client.url, json=streaming, headers=headers) as later:
                        assert later.headers["content-type"].startswith(STREAM)
                        assert answers == []
                        go_on.set()
                        await later.aread()  # else its thread may wait again when the next round clears the event
            assert answers[0].headers["content-type"] == "application/json"
            assert messages_in(answers[0])[0]["result"]["content"][0]["text"] == "at last"


async def test_a_stateless_disconnect_cancels_its_call(tmp_path: Path) -> None:
    """http-4: also with a JSON response, which the SDK alone does not cancel; in the handshake era the call goes on."""
    async with mcp_client(tmp_path) as client:
        body = {"jsonrpc": "2.0", "id": 7, **call("slow")}
        body["params"]["_meta"] = ENVELOPE
        headers = {
            **client.headers(),
            "MCP-Protocol-Version": STATELESS,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "slow",
        }
        began.clear()
        go_on.clear()
        ended.clear()
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_post, client, body, headers)
                await until(began.is_set)
                tasks.cancel_scope.cancel()
            await until(lambda: ended == ["cancelled"])
        (message,) = messages_in(await client.call("plain", text="the next one"))
        assert message["result"]["content"][0]["text"] == "the next one"


async def _post(client: HttpMcpClient, body: dict[str, Any], headers: dict[str, str]) -> None:
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        await http.post(client.url, json=body, headers=headers)


async def test_json_and_streamed_responses_of_one_session_do_not_mix(tmp_path: Path) -> None:
    """http-3: notifications of one call arrive while other calls have none."""
    async with mcp_client(tmp_path) as client:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                for number in range(30):
                    tasks.start_soon(_check, client, number)


async def _check(client: HttpMcpClient, number: int) -> None:
    if number % 2:
        (message,) = messages_in(await client.call("plain", text=str(number)))
        assert message["result"]["content"][0]["text"] == str(number)
        return
    arguments = {"command": f"sh -c 'echo {number}; sleep 1.2'"}
    params = {"name": "run_command", "arguments": arguments, "_meta": {"progressToken": number}}
    answer = await client.ask("tools/call", params)
    assert answer.headers["content-type"].startswith(STREAM)
    *notifications, result = messages_in(answer)
    assert {one["params"]["progressToken"] for one in notifications} <= {number}
    assert result["result"]["content"][0]["text"] == str(number)


def test_the_sdk_still_decides_the_form_of_a_response_where_the_transport_is_copied() -> None:
    """http-2: `SessionTransport` overrides this one method, behind the idle deadline of the session (ADR 0019)."""
    transport: Any = StreamableHTTPServerTransport
    assert "await self._handle_request(scope, receive, send)" in inspect.getsource(transport.handle_request)
    assert "self._handle_post_request(" in inspect.getsource(transport._handle_request)
    assert "if self.is_json_response_enabled:" in inspect.getsource(transport._handle_post_request)
    assert {"ping", "tools/list", "server/discover"} <= JSON_RESPONSE_METHODS
