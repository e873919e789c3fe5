"""Third-party clients against a running `coretools-http`, with bearer tokens (docs/specs/interoperability.md)."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.checkout import TREE
from tests.clients.calls import CALLS, REFUSED, Call
from tests.clients.conftest import NODE_FOLDER
from tests.clients.http_service import PRINCIPAL, Service, service
from tests.clients.test_python_sdk import text_of

SECONDS = 100
ERAS = [("legacy", "2025-11-25"), ("auto", "2026-07-28")]
REFUSED_EXIT_CODE = 5
"""Exit code of the Inspector for a tool error."""

WATCHED = Call("gated", "hold", {"name": "open", "aloud": True}, "open is over")
"""Reports progress; it was let go before."""

SENT_AWAY = Call("gated", "go_away", {"name": "open"}, "open came back")
"""In revision 2025-11-25 its client has to resume for the response."""

LATE = Call("commands", "run_command", {"command": "sh -c 'sleep 0.7; echo late'"}, "late")
"""Longer than the half second in which a response may become JSON."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("http")
    tokens = folder / "tokens.json"
    words = ("-m", "coretools.cli.main", "token", "create", "--name", PRINCIPAL, "--file", str(tokens))
    made = subprocess.run([sys.executable, *words], cwd=TREE, capture_output=True, text=True, check=True)
    with service(folder, made.stdout.strip(), tokens) as one:
        yield one


@pytest.fixture
def served(opened: Service) -> Service:
    """A server of an unchanged clone."""
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=opened.clone, check=True)
    return opened


@asynccontextmanager
async def python_client(served: Service, mode: str, **options: Any) -> AsyncIterator[Client]:
    async with create_mcp_http_client(headers=served.headers) as http:
        transport = streamable_http_client(served.url, http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


async def say(client: Client, tool: str, **arguments: object) -> str:
    return text_of(await client.call_tool(tool, arguments))


async def until_state(client: Client, name: str, state: str) -> None:
    with anyio.fail_after(SECONDS):
        while await say(client, "state", name=name) != state:
            await anyio.lowlevel.checkpoint()


# The Python SDK


@pytest.mark.parametrize(("mode", "version"), ERAS)
async def test_the_python_client_calls_each_set(served: Service, mode: str, version: str) -> None:
    """interoperability-12: in both eras, as the principal of its token."""
    async with python_client(served, mode) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        results = [await client.call_tool(call.name, call.arguments) for call in (*CALLS, REFUSED)]
        assert client.protocol_version == version
    assert {call.name for call in CALLS} <= listed
    for call, result in zip(CALLS, results, strict=False):
        assert not result.is_error, text_of(result)
        assert call.expected in text_of(result)
    assert results[-1].is_error
    assert REFUSED.expected in text_of(results[-1])
    assert served.callers == {PRINCIPAL}


@pytest.mark.parametrize(("mode", "version"), ERAS)
async def test_the_python_client_gets_progress_while_it_waits(served: Service, mode: str, version: str) -> None:
    """interoperability-12: before the response, which is sent only when the call is let go."""
    heard = anyio.Event()
    answers: list[str] = []
    name = f"progress {version}"

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        assert (progress, total, message) == (1, 2, f"{name} is waiting")
        heard.set()

    async with python_client(served, mode) as client, anyio.create_task_group() as tasks:

        async def hold() -> None:
            arguments = {"name": name, "aloud": True}
            answers.append(text_of(await client.call_tool("hold", arguments, progress_callback=progressed)))

        tasks.start_soon(hold)
        with anyio.fail_after(SECONDS):
            await heard.wait()
        assert answers == []
        await say(client, "let_go", name=name)
    assert answers == [f"{name} is over"]


@pytest.mark.parametrize(("mode", "version"), ERAS)
async def test_the_python_client_cancels(served: Service, mode: str, version: str) -> None:
    """interoperability-12: with each era's own means, and the call is cancelled on the server."""
    name = f"cancel {version}"
    async with python_client(served, mode) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "hold", {"name": name})
            await until_state(client, name, "waiting")
            tasks.cancel_scope.cancel()
        await until_state(client, name, "cancelled")


@pytest.mark.parametrize(("mode", "version"), ERAS)
async def test_the_python_client_is_asked(served: Service, mode: str, version: str) -> None:
    """interoperability-12: during its call, or by a result that requires another call."""
    asked: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"colour": "green"})

    async with python_client(served, mode, elicitation_callback=answer) as client:
        assert await say(client, "paint") == "painted green"
        assert client.protocol_version == version
    assert asked == ["Which?"]


@pytest.mark.parametrize(("mode", "version"), ERAS)
async def test_the_python_client_completes_and_reads_the_output_of_a_run(
    served: Service, mode: str, version: str
) -> None:
    """interoperability-12: resources and completion; a run belongs to the principal, whatever the connection."""
    async with python_client(served, mode) as client:
        begun = await say(client, "run_command", command=f"sh -c 'echo {version}; exec sleep 60'", wait_seconds=0)
        templates = (await client.list_resource_templates()).resource_templates
        [template] = [one for one in templates if "{run}" in one.uri_template]
        reference = types.ResourceTemplateReference(type="ref/resource", uri=template.uri_template)
        found = await client.complete(reference, {"name": "run", "value": ""})
        run = found.completion.values[0]
        assert run in begun
        await client.call_tool("wait_run", {"run": run, "pattern": version})
        await client.call_tool("stop_run", {"run": run})
    async with python_client(served, mode) as another:
        uri = template.uri_template.replace("{run}", run).partition("{")[0]
        [content] = (await another.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.text.startswith(version)


async def test_lists_are_private_if_there_are_tokens(served: Service) -> None:
    """http-13: a shared cache may not serve them to another principal."""
    async with python_client(served, "auto") as client:
        tools, templates = await client.list_tools(), await client.list_resource_templates()
    assert [tools.cache_scope, templates.cache_scope] == ["private", "private"]


async def test_nobody_has_access_without_a_token(served: Service) -> None:
    """interoperability-12: the response says what is missing, and no call is made."""
    before = served.server.calls.count(("git_status", "ok"))
    refused = pytest.RaisesGroup(pytest.RaisesExc(MCPError, match="bearer token"), flatten_subgroups=True)
    for mode, _ in ERAS:
        with refused:
            async with Client(served.url, mode=mode) as client:
                await client.call_tool("git_status", {})
    assert served.server.calls.count(("git_status", "ok")) == before


@pytest.mark.parametrize(("mode", "version"), ERAS)
async def test_the_python_client_resumes_a_closed_stream(served: Service, mode: str, version: str) -> None:
    """interoperability-12: by itself, with the event id it received; without one the call is answered as usual."""
    async with python_client(served, mode) as client:
        with anyio.fail_after(SECONDS):
            await say(client, "let_go", name="open")
            for call in (SENT_AWAY, LATE):
                assert call.expected in await say(client, call.name, **call.arguments)
        assert client.protocol_version == version


# The TypeScript SDK


@pytest.mark.parametrize(
    ("client", "era"), [("sdk", "legacy"), ("client-legacy", "legacy"), ("client-modern", "modern")]
)
async def test_a_typescript_client_calls_each_set(node: Path, served: Service, client: str, era: str) -> None:
    """interoperability-12: 1.x in its one era, 2.x in both, with progress."""
    async with python_client(served, "auto") as other:
        await say(other, "let_go", name="open")
    made = (*CALLS, SENT_AWAY, LATE)
    calls = [*(call.plain() for call in (*made, REFUSED)), {**WATCHED.plain(), "is_watched": True}]
    plan = {"url": served.url, "headers": served.headers, "calls": calls}
    output = json.loads(ran(node, served, NODE_FOLDER / "drive.js", client, json.dumps(plan)).stdout)
    assert output["era"] == era
    assert {call.name for call in CALLS} <= {tool["name"] for tool in output["tools"]}
    *results, refusal, watched = output["results"]
    for call, result in zip(made, results, strict=True):
        assert not result.get("isError"), result
        assert call.expected in result["content"][0]["text"]
    assert refusal["isError"]
    assert REFUSED.expected in refusal["content"][0]["text"]
    assert watched["content"][0]["text"] == WATCHED.expected
    assert output["progress"] == ["open is waiting"]


def ran(
    node: Path, served: Service, program: Path, *words: str | Path, exit_code: int = 0
) -> subprocess.CompletedProcess[str]:
    """A Node program; its files lie beside the clone."""
    run = subprocess.run(
        [node, program, *words],
        cwd=served.clone.parent,
        env={**os.environ, "HOME": str(served.clone.parent), "CORETOOLS_TOKEN": served.token},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == exit_code, run.stderr
    return run


# The Inspector


def inspected(node: Path, served: Service, era: str, *words: str, exit_code: int = 0) -> Any:
    """One run of `inspector --cli`: the result of the request."""
    inspector = NODE_FOLDER / "node_modules" / ".bin" / "inspector"
    header = f"Authorization: Bearer {served.token}"
    line = ("--cli", served.url, "--transport", "http", "--header", header, "--protocol-era", era, "--format", "json")
    run = ran(node, served, inspector, *line, *words, exit_code=exit_code)
    return json.loads(run.stdout)["result"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_lists_and_calls(node: Path, served: Service, era: str) -> None:
    """interoperability-12: the tools, one of them, and a refusal."""
    before = len(served.eras)
    listed = inspected(node, served, era, "--strict", "--method", "tools/list")
    assert {call.name for call in CALLS} <= {tool["name"] for tool in listed["tools"]}
    result = inspected(node, served, era, *tool_call(CALLS[0]))
    assert CALLS[0].expected in result["content"][0]["text"]
    refusal = inspected(node, served, era, *tool_call(REFUSED), exit_code=REFUSED_EXIT_CODE)
    assert REFUSED.expected in refusal["content"][0]["text"]
    assert set(served.eras[before:]) == {"handshake" if era == "legacy" else "stateless"}


def tool_call(call: Call) -> list[str]:
    return ["--method", "tools/call", "--tool-name", call.name, "--tool-args-json", json.dumps(call.arguments)]


# mcporter


@pytest.fixture
def configuration(served: Service) -> Path:
    """As a user of mcporter writes it: the token comes from a variable."""
    server = {"url": served.url, "headers": {"Authorization": "Bearer ${CORETOOLS_TOKEN}"}}
    path = served.clone.parent / "mcporter.json"
    path.write_text(json.dumps({"mcpServers": {"coretools": server}, "imports": []}))
    return path


def mcporter(node: Path, served: Service, configuration: Path, *words: str, exit_code: int = 0) -> Any:
    program = NODE_FOLDER / "node_modules" / ".bin" / "mcporter"
    run = ran(node, served, program, "--config", configuration, *words, exit_code=exit_code)
    return json.loads(run.stdout)


def test_mcporter_lists_and_calls(node: Path, served: Service, configuration: Path) -> None:
    """interoperability-12: in the handshake era, the only one it supports; it shows a refusal as an error."""
    before = len(served.eras)
    listed = mcporter(node, served, configuration, "list", "coretools", "--json")
    assert listed["status"] == "ok"
    assert {call.name for call in CALLS} <= {tool["name"] for tool in listed["tools"]}
    for call, exit_code in ((CALLS[0], 0), (REFUSED, 1)):
        words = ("call", f"coretools.{call.name}", "--args", json.dumps(call.arguments), "--output", "json")
        result = mcporter(node, served, configuration, *words, exit_code=exit_code)
        assert result["isError"] is (call is REFUSED)
        assert call.expected in result["content"][0]["text"]
    assert set(served.eras[before:]) == {"handshake"}
