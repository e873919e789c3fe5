"""An application as its users and clients meet it (docs/specs/application.md)."""

import ast
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import Field
from starlette.applications import Starlette
from starlette.routing import Mount
from typing_extensions import Doc

import coretools
from coretools import App, BadSetting, Channel, Effect, HttpOptions, Principal, Services
from coretools.protocol.tasks.extension import IDENTIFIER
from examples import incidents
from tests.checkout import TREE

ERAS: tuple[Literal["auto", "legacy"], ...] = ("legacy", "auto")
PROGRAM = TREE / "examples" / "incidents.py"


def run(*words: str, given: str = "", home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(TREE), **({"HOME": str(home)} if home else {})}
    return subprocess.run(
        [sys.executable, PROGRAM, *words], input=given, capture_output=True, text=True, timeout=60, env=environment
    )


class Store:
    def __init__(self) -> None:
        self.is_open = True


def application(seen: list[str]) -> App:
    @asynccontextmanager
    async def store() -> AsyncIterator[Store]:
        seen.append("open")
        one = Store()
        yield one
        one.is_open = False
        seen.append("closed")

    app = App("deployctl", version="2.5", lifespan=store)

    @app.tool(Effect.READ)
    def look(store: Store, who: Principal, how: Channel) -> str:
        """Look at the store."""
        return f"{store.is_open} {who} {how}"

    return app


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


@pytest.mark.parametrize(
    ("words", "given", "exit_code", "shown"),
    [
        (("--help",), "", 0, "usage: incidents COMMAND"),
        ((), "", 0, "usage: incidents COMMAND"),
        (("--version",), "", 0, "incidents 1.4"),
        (("find", "--help"), "", 0, "usage: incidents find"),
        (("find",), "", 0, "Disk full"),
        (("find", "--severity", "huge"), "", 64, "incidents: find: severity"),
        (("nothing",), "", 64, "incidents: no command 'nothing'"),
        (("--nothing",), "", 64, "incidents: --nothing: no such option"),
        (("open_incident", "ab"), "", 64, "incidents: "),
        (("incident", "7"), "", 66, "incidents: 7: no such incident"),
        (("completion", "bash"), "", 0, "complete -o nosort -F _incidents incidents"),
        (("completion", "nosh"), "", 64, "incidents: completion: choose one of bash"),
        (("__complete", "--", "fi"), "", 0, "find"),
        (("repl",), "help\nfind\nexit\n", 0, "Disk full"),
        (("repl",), "find --severity huge\n", 64, "incidents: find: severity"),
        (("repl",), "/mcp\n", 64, "incidents: no command '/mcp'"),
    ],
)
def test_a_command_line_of_its_own_has_no_word_of_ours(
    words: tuple[str, ...], given: str, exit_code: int, shown: str, tmp_path: Path
) -> None:
    """application-5"""
    done = run(*words, given=given, home=tmp_path)
    text = done.stdout + done.stderr
    assert done.returncode == exit_code, text
    assert shown in text
    assert not re.search("coretools", text, re.IGNORECASE), text
    assert "mcp" not in text.replace("/mcp", ""), text


def test_the_repl_keeps_what_the_lifespan_opened() -> None:
    """application-3"""
    done = run("repl", given="open_incident 'Cable cut'\nfind\n")
    assert done.stdout.count("Cable cut") == 2


@pytest.mark.parametrize("era", ERAS)
async def test_clients_see_what_the_application_says_of_itself(era: Literal["auto", "legacy"]) -> None:
    """application-2"""
    icons = (coretools.Icon(src="https://icons.example/a.png", mime_type="image/png", sizes=("48x48",)),)
    app = App("a", version="3", title="An app", website="https://a.example", icons=icons, instructions="Be brief.")
    async with app.test_client(era) as client:
        info = client.server_info
        assert (info.name, info.version, info.title, info.website_url) == ("a", "3", "An app", "https://a.example")
        assert info.icons is not None
        assert info.icons[0].sizes == ["48x48"]
        assert client.instructions == "Be brief."


@pytest.mark.parametrize("era", ERAS)
async def test_commands_take_what_the_lifespan_yields_by_type(era: Literal["auto", "legacy"]) -> None:
    """application-3, application-4, application-10"""
    seen: list[str] = []
    app = application(seen)
    async with app.test_client(era) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.input_schema.get("properties", {}) == {}
        assert text_of(await client.call_tool("look", {})) == "True local mcp"
        assert seen == ["open"]
    assert seen == ["open", "closed"]
    async with app.test_client(era) as client:
        assert text_of(await client.call_tool("look", {})) == "True local mcp"


async def test_a_lifespan_can_share_several_values() -> None:
    """application-3"""

    @asynccontextmanager
    async def both() -> AsyncIterator[tuple[Store, Path]]:
        async with anyio.create_task_group():  # a task group in a lifespan ends with it
            yield Store(), Path("/there")

    app = App("a", lifespan=both)

    @app.tool(Effect.READ)
    def look(path: Path, store: Store) -> str:
        """Look."""
        return f"{path} {store.is_open}"

    async with app.test_client() as client:
        assert text_of(await client.call_tool("look", {})) == "/there True"


async def test_a_wrong_lifespan_ends_the_start_in_one_line() -> None:
    """application-6"""

    @asynccontextmanager
    async def failing() -> AsyncIterator[Store]:
        raise RuntimeError("the database is down")
        yield Store()

    @asynccontextmanager
    async def untyped():  # type: ignore[no-untyped-def]  # noqa: ANN202  # what is tested
        yield Store()

    @asynccontextmanager
    async def twice() -> AsyncIterator[tuple[Store, Store]]:
        yield Store(), Store()

    @asynccontextmanager
    async def cancelled() -> AsyncGenerator[Store]:
        raise asyncio.CancelledError
        yield Store()

    for lifespan, reason in (
        (failing, "the database is down"),
        (untyped, "states what it yields"),
        (twice, "its own"),
        (cancelled, "something it waits for was cancelled"),
    ):
        with pytest.raises(BadSetting, match=reason) as caught:
            async with App("a", lifespan=lifespan).test_client():
                pass
        assert "\n" not in str(caught.value)


async def test_a_lifespan_that_hangs_ends_the_start() -> None:
    """application-6"""
    from coretools.operations.application import Application
    from coretools.operations.server_info import ServerInfo

    @asynccontextmanager
    async def hanging() -> AsyncIterator[Store]:
        await anyio.sleep_forever()
        yield Store()

    with pytest.raises(BadSetting, match=r"did not start within 0\.01 s"):
        async with Application(ServerInfo(), lifespan=hanging, start_seconds=0.01).running():
            pass


async def test_services_of_the_application_are_those_of_its_commands() -> None:
    """application-4"""
    services = coretools.MemoryServices()
    app = App("a", services=services)

    @app.tool(Effect.ADD)
    async def keep(services: Services) -> str:
        """Keep a value."""
        await services.values.set("key", b"kept")
        return "done"

    async with app.test_client() as client:
        await client.call_tool("keep", {})
    assert await services.values.get("key") == b"kept"


@pytest.mark.parametrize("era", ERAS)
async def test_it_is_served_over_http_alone_and_mounted_in_another_application(
    era: Literal["auto", "legacy"],
) -> None:
    """application-7"""
    seen: list[str] = []
    app = application(seen)
    mcp = app.http()
    outer = Starlette(routes=[Mount("/tools", mcp)], lifespan=mcp.router.lifespan_context)
    for asgi, path in ((app.http(), "/mcp"), (outer, "/tools/mcp")):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(asgi, log_level="error"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda server=server, listener=listener: server.serve(sockets=[listener]))
                url = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
                async with Client(url, mode=era) as client:
                    assert text_of(await client.call_tool("look", {})) == "True local mcp"
                server.should_exit = True
    assert seen == ["open", "closed"] * 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_verifier_of_the_author_admits_and_names_callers(era: Literal["auto", "legacy"]) -> None:
    """application-18"""

    async def verify(token: str) -> str | None:
        if token == "broken":
            raise RuntimeError("the directory is down")
        return {"t1": "ada", "t2": "bob"}.get(token)

    app = application([])
    options = HttpOptions(verify=verify, burst=40, requests_per_second=0.01)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app.http(options), log_level="critical"))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.serve(sockets=[listener]))
            for token, name in (("t1", "ada"), ("t2", "bob")):
                http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})
                async with http, Client(streamable_http_client(url, http_client=http), mode=era) as client:
                    assert text_of(await client.call_tool("look", {})) == f"True {name} mcp"
            async with httpx2.AsyncClient() as http:
                assert (await http.post(url, json={})).status_code == 401
                wrong = {"Authorization": "Bearer t3"}
                assert (await http.post(url, json={}, headers=wrong)).status_code == 401
                broken = {"Authorization": "Bearer broken"}
                assert (await http.post(url, json={}, headers=broken)).status_code == 500
                theirs = {"Authorization": "Bearer t1"}
                statuses = [(await http.post(url, json={}, headers=theirs)).status_code for _ in range(41)]
                assert statuses[-1] == 429  # only of this caller
                others = {"Authorization": "Bearer t2"}
                assert (await http.post(url, json={}, headers=others)).status_code != 429
            server.should_exit = True


async def test_a_long_running_command_is_a_task() -> None:
    """application-8"""
    async with incidents.app.test_client("auto") as client:
        assert IDENTIFIER in (client.server_capabilities.extensions or {})


def test_other_entry_points_take_the_application(tmp_path: Path) -> None:
    """application-9"""
    done = subprocess.run(
        [sys.executable, "-m", "coretools.cli.main", "--root", tmp_path, "--with", f"{PROGRAM}:app", "incident", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=TREE,
    )
    assert "Disk full" in done.stdout, done.stderr


def test_the_public_names_are_loaded_when_used_and_each_is_documented() -> None:
    """application-1, application-27"""
    page = (TREE / "docs" / "specs" / "application.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page[page.index("## Public names") :].partition("\n## ")[0]))
    assert listed == set(coretools.PUBLIC_NAMES)
    for name, module in coretools.PUBLIC_NAMES.items():
        assert getattr(coretools, name).__doc__ or name == "Channel", name  # a `Literal` has no docstring
        assert module.startswith("coretools.")
    reference = (TREE / "docs" / "reference" / "authors.md").read_text(encoding="utf-8")
    raised = {
        name for text in re.findall("^Raises: (.*)$", reference, re.MULTILINE) for name in re.findall(r"\w+", text)
    }
    assert {"AnswerNeeded", "WrongType"} <= raised & vars(coretools.errors).keys() <= coretools.PUBLIC_NAMES.keys()
    assert not re.search(r"^## .*\n+(?=## |\Z)", reference, re.MULTILINE), "a name without a text"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = coretools.Nothing  # type: ignore[attr-defined]
    stub = ast.parse((TREE / "coretools" / "__init__.pyi").read_text(encoding="utf-8"))
    typed = {(one.module, alias.asname) for one in stub.body if isinstance(one, ast.ImportFrom) for alias in one.names}
    assert typed == {(module, name) for name, module in coretools.PUBLIC_NAMES.items()}


def test_importing_the_package_loads_nothing_else() -> None:
    """application-1"""
    code = "import sys, coretools; print([m for m in sys.modules if m.startswith('coretools')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=TREE)
    assert done.stdout == "['coretools']\n", done.stderr


def test_declaring_and_running_a_command_line_loads_no_protocol(tmp_path: Path) -> None:
    """application-1"""
    file = tmp_path / "own.py"
    file.write_text(
        "import sys\nfrom coretools import App, Effect\napp = App('own')\n"
        "@app.tool(Effect.READ)\ndef say() -> str:\n    'Say.'\n    return 'said'\n"
        "app.cli(['say'])\nprint([m for m in ('mcp', 'starlette', 'uvicorn') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60, cwd=TREE)
    assert done.stdout == "said\n[]\n", done.stderr


def test_a_server_that_runs_no_commands_loads_no_confinement(tmp_path: Path) -> None:
    """application-1"""
    file = tmp_path / "own.py"
    file.write_text(
        "import sys\nfrom coretools import App, Effect\napp = App('own')\n"
        "@app.tool(Effect.READ)\ndef loaded() -> str:\n    'Name packages.'\n"
        "    return ' '.join(sorted({'.'.join(m.split('.')[:2]) for m in sys.modules if m.startswith('coretools.')}))\n"
        "app.stdio()\n"
    )
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "loaded"}},
    ]
    given = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([sys.executable, file], input=given, capture_output=True, text=True, timeout=60, cwd=TREE)
    text = json.loads(done.stdout.splitlines()[1])["result"]["content"][0]["text"]
    assert "coretools.protocol" in text.split()
    heavy = {"process", "confinement", "command_policy", "roots", "undo", "tools", "web", "cli"}
    assert not heavy & {name.removeprefix("coretools.") for name in text.split()}


async def test_a_tool_has_the_name_that_it_is_given_and_parameters_their_texts() -> None:
    """application-19"""
    app = App("a")

    @app.context("web").tool(Effect.READ, name="list")
    def find(
        first: Annotated[int, "The first one"],
        last: Annotated[int, Doc("The last one")],
        step: Annotated[int, "not this", Field(ge=2, description="The step")] = 2,
    ) -> list[int]:
        """List numbers."""
        return list(range(first, last, step))

    async with app.test_client() as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "web_list"
        shapes = tool.input_schema["properties"]
        assert [one["description"] for one in shapes.values()] == ["The first one", "The last one", "The step"]
        assert shapes["step"]["minimum"] == 2
        result = await client.call_tool("web_list", {"first": 1, "last": 6})
        assert result.structured_content == {"result": [1, 3, 5]}


async def test_a_parameter_may_have_the_name_of_a_method_of_models() -> None:
    """application-19: without a warning of pydantic, which is an error in these tests."""
    app = App("a")

    @app.tool(Effect.READ)
    def look(json: int, schema: int = 1, validate: bool = False) -> int:
        """Look."""
        return json + schema

    async with app.test_client() as client:
        assert text_of(await client.call_tool("look", {"json": 2})) == "3"


@pytest.mark.parametrize("name", ["", "two words", "a/b", "x" * 65])
def test_a_name_that_is_no_program_is_refused(name: str) -> None:
    """application-2"""
    with pytest.raises(BadSetting, match="a name has letters"):
        App(name)
