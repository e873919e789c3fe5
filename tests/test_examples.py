"""The examples run unchanged, and the guide contains the first of them (docs/specs/api.md)."""

import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp import Client, MCPError

import coretools
from coretools import App, MemoryServices
from coretools.hosting.serve import ServeOptions, build, serve_streams
from examples import agent, billing, greeting, incidents, notes, programs, stock, survey, unix_socket, worker
from tests.checkout import TREE
from tests.hosting.test_serve import over_http
from tests.protocol.line_client import Over, Pipes
from tests.protocol.peer import HANDSHAKE, Peer

GUIDE = TREE / "docs" / "writing-commands.md"
ERAS = ("legacy", "auto")
SECONDS = 60

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the server's transport is POSIX only")


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


@contextmanager
def running(path: Path, cwd: Path) -> Iterator[Peer]:
    """Start an example as a desktop client does."""
    process = subprocess.Popen(
        [sys.executable, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
        cwd=cwd,
    )
    try:
        yield Peer(process)
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        process.wait()


def test_the_guide_shows_the_first_example_word_for_word() -> None:
    """api-18: a reader copies code that runs here."""
    section = GUIDE.read_text(encoding="utf-8").partition("## A server in ten lines\n")[2]
    snippet = section.partition("```python\n")[2].partition("```")[0]
    assert snippet == (TREE / "examples" / "greeting.py").read_text(encoding="utf-8")
    lines = [line for line in snippet.splitlines() if line and not line.startswith(("import", "from", '"""'))]
    assert len(lines) <= 10


def test_the_example_of_the_guide_serves_its_command(tmp_path: Path) -> None:
    """api-18, api-3: a real process over stdio, from any directory; it ends with its client."""
    with running(TREE / "examples" / "greeting.py", tmp_path) as peer:
        assert peer.ask("initialize", HANDSHAKE)["result"]["protocolVersion"] == "2025-11-25"
        peer.notify("notifications/initialized")
        (greet,) = peer.ask("tools/list")["result"]["tools"]
        assert greet["name"] == "greet"
        assert greet["annotations"]["readOnlyHint"] is True
        assert greet["inputSchema"]["required"] == ["name"]
        assert peer.call("greet", name="Ada", times=2)["content"][0]["text"] == "Hello, Ada!\nHello, Ada!"
        assert "must be a whole number" in peer.call("greet", name="Ada", times="2")["content"][0]["text"]
        assert peer.end() == 0


@pytest.mark.parametrize("mode", ERAS)
async def test_the_agent_reports_its_steps_and_asks_the_clients_model(mode: str) -> None:
    """api-18, api-17: sampling and directories if the client supports them; otherwise the defaults."""

    async def sampled(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="it is round")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def directories(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///work")])

    seen: list[str | None] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    server = build(agent.app.registry, ServeOptions(asking=agent.app.asking))
    given = {"subject": "earth", "sources": ["atlas", "globe"]}
    with anyio.fail_after(SECONDS):
        async with Client(server, mode=mode, sampling_callback=sampled, list_roots_callback=directories) as client:
            full = await client.call_tool("research", given, progress_callback=note)
        async with Client(server, mode=mode) as client:
            plain = await client.call_tool("research", given)
    assert text_of(full) == "earth: it is round (2 sources, 1 directories)"
    assert seen == ["reading atlas", "reading globe", "writing"]
    assert text_of(plain) == "earth: nothing was summed up (2 sources, 0 directories)"


@pytest.mark.parametrize("mode", ERAS)
async def test_clients_of_the_socket_share_its_count_and_nothing_else(mode: str, tmp_path: Path) -> None:
    """api-18, api-6: two clients at once, each with its own progress."""
    path = tmp_path / "socket"
    assert unix_socket.app.services is not None
    before = int(await unix_socket.app.services.values.get("counted") or 0)
    notified: dict[int, list[str | None]] = {}
    texts: list[str] = []
    both = anyio.Event()

    async def visit(steps: int) -> None:
        seen: list[str | None] = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            seen.append(message)

        async with Client(Over(await anyio.connect_unix(path)), mode=mode) as client:
            notified[steps] = seen
            if len(notified) == 2:
                both.set()
            await both.wait()
            texts.append(text_of(await client.call_tool("count", {"steps": steps}, progress_callback=note)))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as server:
            await server.start(unix_socket.serve, str(path))
            assert path.stat().st_mode & 0o077 == 0
            async with anyio.create_task_group() as clients:
                clients.start_soon(visit, 5)
                clients.start_soon(visit, 7)
            await anyio.wait_all_tasks_blocked()
            server.cancel_scope.cancel()
    counts = [(5, before + 1), (7, before + 2)], [(5, before + 2), (7, before + 1)]
    assert sorted(texts) in [[f"counted to {n}; {by} have counted" for n, by in one] for one in counts]
    assert notified[5][-1] == "at 5"
    assert notified[7][-1] == "at 7"
    assert set(notified[5]) <= {f"at {step}" for step in range(1, 6)}


def test_every_example_is_an_application_that_can_be_named_on_the_command_line() -> None:
    """api-18: `coretools serve --with examples.NAME:app`; each uses public names only."""
    names = sorted(path.stem for path in (TREE / "examples").glob("*.py") if path.stem != "__init__")
    modules = (agent, billing, greeting, incidents, notes, programs, stock, survey, unix_socket, worker)
    assert names == [module.__name__.partition(".")[2] for module in modules]
    assert all(isinstance(module.app, App) for module in modules)
    sources = [(TREE / "examples" / f"{name}.py").read_text(encoding="utf-8") for name in names]
    assert [source for source in sources if re.search(r"(from|import) coretools\.", source)] == []


Journey = Callable[[Client], Awaitable[None]]


async def take_notes(client: Client) -> None:
    """Resources, a prompt that asks, and commands that agents do not get."""
    listed = {one.name: one for one in (await client.list_tools()).tools}
    assert list(listed) == ["notes_write", "notes_find"]
    assert listed["notes_write"].title == "Write a note"
    assert listed["notes_write"].output_schema is not None
    for title, text in (("tea", "green tea"), ("soup", "hot soup")):
        written = await client.call_tool("notes_write", {"title": title, "text": text})
        assert written.structured_content == {"title": title, "text": text}
    found = await client.call_tool("notes_find", {"word": "tea"})
    assert found.structured_content == {"result": [{"title": "tea", "text": "green tea"}]}
    refused = await client.call_tool("notes_write", {"title": "No!", "text": ""})
    assert (refused.is_error, refused.structured_content) == (True, None)
    (titles,) = (await client.read_resource("notes://titles")).contents
    assert (titles.mime_type, json.loads(str(getattr(titles, "text", "")))) == ("application/json", ["soup", "tea"])
    (one,) = (await client.read_resource("notes://named/tea")).contents
    assert (one.mime_type, getattr(one, "text", "")) == ("text/markdown", "green tea")
    with pytest.raises(MCPError, match="notes://titles names all"):
        await client.read_resource("notes://named/coffee")
    (summary,) = (await client.list_prompts()).prompts
    assert [one.name for one in summary.arguments or ()] == ["word", "answers"]
    asked = await client.get_prompt("notes_summary", {"word": "soup"})
    given = await client.get_prompt("notes_summary", {"word": "soup", "answers": '{"tone": "formal"}'})
    assert [getattr(prompt.messages[0].content, "text", "") for prompt in (asked, given)] == [
        "Sum up in plain words:\nhot soup",
        "Sum up in formal words:\nhot soup",
    ]
    for kept in ("notes_burn", "notes_size"):
        with pytest.raises(MCPError, match="unknown tool"):
            await client.call_tool(kept)


async def keep_a_store(client: Client) -> None:
    """Plain return types: the SDK's client validates each result against the listed schema."""
    listed = {one.name: one for one in (await client.list_tools()).tools}
    hints = {name: one.annotations for name, one in listed.items() if one.annotations is not None}
    assert (hints["order"].open_world_hint, hints["order"].destructive_hint) == (True, True)
    assert (hints["set_count"].idempotent_hint, hints["total"].read_only_hint) == (True, True)
    nail = {"number": "A001", "name": "nail", "count": 2, "price": 0.5}
    glue = {"number": "B002", "name": "glue", "count": 0, "price": None}
    calls: list[tuple[str, dict[str, Any], Any]] = [
        ("add_article", {"article": nail}, nail),
        ("add_article", {"article": {"number": "B002", "name": "glue"}}, glue),
        ("set_count", {"number": "A001", "count": 4}, {"result": 2}),
        ("order", {"number": "A001", "speed": "fast"}, {"result": None}),
        ("is_there", {"number": "B002"}, {"result": False}),
        ("price", {"number": "A001"}, {"result": 0.5}),
        ("price", {"number": "B002"}, {"result": None}),
        ("articles", {}, {"result": [{**nail, "count": 14}, glue]}),
        ("total", {}, {"articles": 2, "value": 7.0}),
        ("by_price", {}, {"known": ["A001"], "unknown": ["B002"]}),
        ("label", {"number": "A001"}, None),
    ]
    for name, arguments, expected in calls:
        answer = await client.call_tool(name, arguments)
        assert (answer.is_error, answer.structured_content) == (False, expected)
        assert (listed[name].output_schema is None) == (expected is None)
    missing = await client.call_tool("price", {"number": "C003"})
    assert (missing.is_error, text_of(missing)) == (True, "C003: no such article; `articles` has all")


async def make_a_survey(client: Client) -> None:
    """Long-running commands: progress, and questions to a user, and without one."""
    seen: list[str | None] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    listed = {one.name: one for one in (await client.list_tools()).tools}
    assert (listed["survey"].meta or {})["coretools/longRunning"] is True
    made = await client.call_tool("survey", {}, progress_callback=note)
    assert made.structured_content == {"author": "Ada", "pages": [2, 3, 4]}
    assert seen[-1] == "page 4"
    given = {"answers": {"author": "Bob", "scope": {"first": 1, "last": 1}}}
    assert (await client.call_tool("survey", given)).structured_content == {"author": "Bob", "pages": [1]}
    wrong = await client.call_tool("survey", {"answers": {"author": "Bob", "scope": {"first": 0, "last": 1}}})
    assert "answers.scope: first" in text_of(wrong)
    hashed = await client.call_tool("fingerprint", {"text": "x", "rounds": 1})
    assert text_of(hashed) == hashlib.sha256(b"x").hexdigest()
    assert text_of(await client.call_tool("sign", {})) == "(signed) Ada"


async def answered(context: Any, params: Any) -> types.ElicitResult:
    """The user's answer."""
    asked = params.requested_schema["properties"]
    answers: dict[str, Any] = {"first": 2, "last": 4} if "first" in asked else {"answer": "Ada"}
    if "enum" in asked.get("answer", {}):
        answers = {"answer": "plain"}
    return types.ElicitResult(action="accept", content=answers)


PROGRAMS: dict[str, tuple[Any, Journey]] = {
    "notes": (notes, take_notes),
    "stock": (stock, keep_a_store),
    "survey": (survey, make_a_survey),
}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_does_the_same_over_stdio_and_over_http(program: str, tmp_path: Path) -> None:
    """api-18, api-3, api-7: as a process of its own in the handshake era, and over HTTP in the stateless one."""
    module, journey = PROGRAMS[program]
    with anyio.fail_after(SECONDS), running(TREE / "examples" / f"{program}.py", tmp_path) as peer:
        async with Client(Over(Pipes(peer.process)), mode="legacy", elicitation_callback=answered) as client:
            await journey(client)
    with anyio.fail_after(SECONDS):
        async with (
            over_http(module.app.registry) as url,
            Client(url, mode="auto", elicitation_callback=answered) as client,
        ):
            await journey(client)


async def test_an_old_revision_gets_only_its_own_fields() -> None:
    """declarations-18: no output schema, structured content or title before 2025-06-18."""
    to_server, incoming = anyio.create_memory_object_stream[str](9)
    outgoing, from_server = anyio.create_memory_object_stream[str](9)

    async def ask(method: str, params: dict[str, Any]) -> Any:
        await to_server.send(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}))
        return json.loads(await from_server.receive())["result"]

    with anyio.fail_after(SECONDS), to_server, from_server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_streams, stock.app.registry, incoming, outgoing)
            greeted = await ask("initialize", {**HANDSHAKE, "protocolVersion": "2024-11-05"})
            assert greeted["protocolVersion"] == "2024-11-05"
            await to_server.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            tools = (await ask("tools/list", {}))["tools"]
            result = await ask("tools/call", {"name": "by_price", "arguments": {}})
            to_server.close()
    assert len(tools) == 9
    assert [one for one in tools if "outputSchema" in one or "title" in one] == []
    assert "structuredContent" not in result
    assert json.loads(result["content"][0]["text"]).keys() == {"known", "unknown"}


async def test_the_worker_sends_what_was_queued_once() -> None:
    """api-18: an item that comes again is not sent again; one that can't be read is a dead letter."""
    services = MemoryServices()
    await worker.send("ada@example.com", "Hello", services)
    letter = await services.queues.get("letters")
    await services.queues.put("letters", letter.data)
    assert await services.queues.release(letter)
    await services.queues.put("letters", b"no letter")
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.work, services)
            while await worker.failed(services) == 0:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert worker.SENT == ["Hello"]
    assert (await services.totals()).waiting == 0


def test_the_code_of_the_guide_is_part_of_the_examples() -> None:
    """api-26: every piece of Python in it is part of an example, word for word."""
    guide = GUIDE.read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in sorted((TREE / "examples").glob("*.py"))]
    snippet = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(snippet) >= 8
    assert [piece for piece in snippet if not any(piece.strip() in source for source in sources)] == []


def test_every_program_of_the_cookbook_runs() -> None:
    """application-28"""
    programs = re.findall(r"```python\n(.*?)```", (GUIDE.parent / "cookbook.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) >= 10
    for number, program in enumerate(programs):
        module = module_of(f"cookbook_{number}", program)
        for app in (one for one in vars(module).values() if isinstance(one, App)):
            app.registry.validate()


def module_of(name: str, program: str) -> ModuleType:
    """A module of this source, as if it were imported."""
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses and annotations look it up
    try:
        exec(compile(program, f"{name}.py", "exec"), vars(module))  # the text of our own page
    finally:
        del sys.modules[name]
    return module


def test_the_guide_lists_the_module_of_every_name() -> None:
    """api-26: and each of them exists."""
    guide = GUIDE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(coretools[\w.]*)` \| (.*) \|$", guide, re.MULTILINE)
    named = {(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert len(named) >= 30
    assert named == {("coretools", name) for name in coretools.PUBLIC_NAMES}
    assert [one for one in sorted(named) if not hasattr(importlib.import_module(one[0]), one[1])] == []
