"""The examples run as they stand, and the README shows the first of them (docs/specs/api.md)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from coretools.registry import Registry
from coretools.serving.serve import build
from examples import agent, greeting, unix_socket
from tests.serving.line_client import Over
from tests.serving.peer import HANDSHAKE, TREE, Peer

ERAS = ("legacy", "auto")
SECONDS = 30

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the server's transport is POSIX only")


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


@contextmanager
def running(path: Path, cwd: Path) -> Iterator[Peer]:
    """An example as a desktop client starts it."""
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


def test_the_readme_shows_the_first_example_word_for_word() -> None:
    """api-18: what a reader copies is what runs here."""
    section = (TREE / "README.md").read_text(encoding="utf-8").partition("## Serve your own commands\n")[2]
    shown = section.partition("```python\n")[2].partition("```")[0]
    assert shown == (TREE / "examples" / "greeting.py").read_text(encoding="utf-8")
    lines = [line for line in shown.splitlines() if line and not line.startswith(("import", "from", '"""'))]
    assert len(lines) <= 10


def test_the_example_of_the_readme_serves_its_command(tmp_path: Path) -> None:
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
async def test_the_agent_tells_its_steps_and_asks_the_clients_model(mode: str) -> None:
    """api-18, api-17: sampling and directories where the client offers them; the defaults where it does not."""

    async def sampled(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="it is round")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def directories(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///work")])

    seen: list[str | None] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    server = build(agent.registry, agent.OPTIONS)
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
    """api-18, api-6: two at once, each with its own progress."""
    path = tmp_path / "socket"
    told: dict[int, list[str | None]] = {}
    said: list[str] = []
    both = anyio.Event()

    async def visit(steps: int) -> None:
        seen: list[str | None] = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            seen.append(message)

        async with Client(Over(await anyio.connect_unix(path)), mode=mode) as client:
            told[steps] = seen
            if len(told) == 2:
                both.set()
            await both.wait()
            said.append(text_of(await client.call_tool("count", {"steps": steps}, progress_callback=note)))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as server:
            await server.start(unix_socket.serve, str(path))
            assert path.stat().st_mode & 0o077 == 0
            async with anyio.create_task_group() as clients:
                clients.start_soon(visit, 5)
                clients.start_soon(visit, 7)
            await anyio.wait_all_tasks_blocked()
            server.cancel_scope.cancel()
    assert sorted(said) in (
        ["counted to 5; 1 have counted", "counted to 7; 2 have counted"],
        ["counted to 5; 2 have counted", "counted to 7; 1 have counted"],
    )
    assert told[5][-1] == "at 5"
    assert told[7][-1] == "at 7"
    assert set(told[5]) <= {f"at {step}" for step in range(1, 6)}


def test_every_example_is_a_registry_that_can_be_named_on_the_command_line() -> None:
    """api-18: `coretools serve --with examples.NAME:registry`."""
    names = sorted(path.stem for path in (TREE / "examples").glob("*.py") if path.stem != "__init__")
    assert names == ["agent", "greeting", "unix_socket"]
    assert all(isinstance(module.registry, Registry) for module in (agent, greeting, unix_socket))
