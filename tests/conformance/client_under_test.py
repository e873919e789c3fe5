"""Our client in the suite's scenarios: a socket on which `client_driver.py` hands them over, and a user's steps."""

import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
from anyio.abc import SocketStream
from pydantic import FileUrl

from coretools.cli.common.terminal import TerminalCapabilities
from coretools.cli.mcp.requests import Requests
from coretools.cli.mcp.screen import Screen
from coretools.client.authorization.credentials import ServerAuthorization
from coretools.client.common.errors import ProtocolViolation
from coretools.client.common.failures import first_leaf
from coretools.client.configuration.launch import RemoteLaunch
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.server_connection import Connection
from coretools.client.connection.stdio import ChildTracker
from coretools.client.questions.sampling import SamplingCommand
from coretools.errors import CoreError
from tests.client.authorization import browse
from tests.client.peers import environment, hub

DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The client id metadata document that the suite expects."""

HAS_SCHEMA, ECHOES_SCHEMA = "json_schema_2020_12_tool", "json_schema_echo"

ARGUMENTS: Mapping[str, dict[str, Any]] = {"add_numbers": {"a": 5, "b": 3}}


Outcome = Callable[[Mapping[str, Any]], Awaitable[tuple[int, str]]]
"""Runs a scenario; returns the exit code and the message of our command line."""


@asynccontextmanager
async def client_under_test(scenarios: int, outcome: Outcome) -> AsyncIterator[str]:
    """Serve so many scenarios; yields the address of the socket."""

    # The suite starts the processes of all scenarios at once, and answers nothing in time meanwhile. Begun only after
    # that, and four at a time, they meet the deadlines of our client on a busy machine too.
    waiting = 0
    are_all_there = anyio.Event()
    places = anyio.CapacityLimiter(4)

    async def serve(stream: SocketStream) -> None:
        async with stream:
            received = bytearray()
            while not received.endswith(b"\n"):
                received += await stream.receive()
            scenario = json.loads(received)
            nonlocal waiting
            waiting += 1
            if waiting == scenarios:
                are_all_there.set()
            await are_all_there.wait()
            async with places:
                code, text = await outcome(scenario)
            with suppress(anyio.BrokenResourceError):  # the suite had no more patience
                await stream.send(json.dumps({"code": code, "text": text}).encode())

    with tempfile.TemporaryDirectory() as folder:  # a short name: that of a socket has 107 bytes at most
        address = f"{folder}/client"
        async with await anyio.create_unix_listener(address) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            yield address
            tasks.cancel_scope.cancel()


async def outcome_by_library(scenario: Mapping[str, Any]) -> tuple[int, str]:
    """Use what the command line uses, in this process."""
    failure: BaseException | None = None
    with tempfile.TemporaryDirectory() as home:
        try:
            await run(Path(home), scenario)
        except* CoreError as group:
            failure = first_leaf(group)
    return (failure.exit_code, str(failure)) if isinstance(failure, CoreError) else (0, "")


async def run(home: Path, scenario: Mapping[str, Any]) -> None:
    """Log in if the server wants it, list the tools, and call them."""
    entry = {"type": "http", "url": scenario["url"], "oauth": await oauth(scenario)}
    requests = Requests(
        screen=Screen(TerminalCapabilities.of({})),
        accepts_defaults=True,
        roots=[types.Root(uri=FileUrl("file:///project"))],
        sampling=SamplingCommand(argv=("false",), environment={}, tracker=ChildTracker.create()),
    )
    async with anyio.create_task_group() as tasks:

        async def show(address: str) -> None:
            tasks.start_soon(browse, address)

        def authorize(entry: ServerEntry, launch: RemoteLaunch) -> ServerAuthorization:
            assert launch.oauth is not None
            person = None if launch.oauth.grant == "client_credentials" else show
            return ServerAuthorization(entry.name, launch.url, launch.oauth, environment(home), person)

        async with hub(home, {"a": entry}, authorization=authorize, server_requests=requests) as connections:
            await connections["a"].wait_settled()
            await use(connections["a"], scenario["context"])


async def use(connection: Connection, context: Mapping[str, Any]) -> None:
    """List what there is, call every tool, read every resource, and get every prompt."""
    tools = {tool.name: tool for tool in await connection.tools()}
    calls = context.get("toolCalls") or [{"name": name, "arguments": ARGUMENTS.get(name, {})} for name in tools]
    for call in calls:
        if call["name"] == ECHOES_SCHEMA:
            call["arguments"] = {"schema": tools[HAS_SCHEMA].input_schema}
        if call["name"] in tools:
            with suppress(ProtocolViolation):  # some tools are only listed, or answer wrongly
                await connection.call(call["name"], call["arguments"])
    for resource in await connection.resources():
        if isinstance(resource, types.Resource):
            await connection.read(resource.uri)
    for prompt in await connection.prompts():
        await connection.prompt(prompt.name, {})


async def oauth(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a user would write for the scenario."""
    context = scenario["context"]
    keys = {"clientId": "client_id", "clientSecret": "client_secret", "privateKey": "private_key_pem"}
    found = {key: context[name] for key, name in keys.items() if name in context}
    if scenario["name"].startswith("auth/client-credentials"):
        found |= {"grant": "client_credentials", "issuer": await issuer(scenario["url"])}
    if scenario["name"] == "auth/basic-cimd":
        found["clientId"] = DOCUMENT
    return found


async def issuer(url: str) -> str:
    """The authorization server, which the operator of a pipeline knows."""
    where = httpx2.URL(url)
    async with httpx2.AsyncClient(verify=False) as http:
        found = await http.get(where.copy_with(path=f"/.well-known/oauth-protected-resource{where.path}"))
    servers: list[str] = found.json()["authorization_servers"]
    return servers[0]
