"""What commands keep for the session of their caller (docs/specs/application.md)."""

import gc
import socket
import subprocess
import sys
import weakref
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
import uvicorn
from mcp import Client, StdioServerParameters

from coretools import App, SessionState, TooLarge
from coretools.operations.session_state import MOST_BYTES, MOST_VALUES
from tests.checkout import TREE

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")

PROGRAM = '''
import sys
from coretools import App, Effect, SessionState

app = App("shop")

@app.tool(Effect.ADD)
def add(item: str, state: SessionState) -> list[str]:
    """Put an item into the cart."""
    cart = [*(state.get("cart", list[str]) or []), item]
    state.set("cart", cart)
    return cart

@app.tool(Effect.READ)
async def look(state: SessionState | None) -> str:
    """Look into the cart."""
    return "no session" if state is None else repr(state.get("cart", list[str]))

if __name__ == "__main__":
    sys.exit(app.stdio() if sys.argv[1:] == ["serve"] else app.cli())
'''
NONE = "stateless requests, tasks and single command lines have none; its author can take SessionState | None"


def shop() -> App:
    given: dict[str, Any] = {"__name__": "shop"}
    exec(compile(PROGRAM, "shop.py", "exec"), given)
    app: App = given["app"]
    return app


async def texts(client: Client) -> list[str]:
    """What a client sees that adds two items and looks."""
    results = [await client.call_tool("add", {"item": one}) for one in ("tea", "jam")]
    results.append(await client.call_tool("look", {}))
    return [getattr(one.content[0], "text", "") for one in results]


SEEN = ['["tea"]', '["tea", "jam"]', "['tea', 'jam']"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_connection_in_memory_or_on_stdio_is_a_session(era: Era, tmp_path: Path) -> None:
    """application-33: in both eras, and each begins with nothing."""
    app = shop()
    for _ in range(2):
        async with app.test_client(era) as client:
            (tool, _) = (await client.list_tools()).tools
            assert list(tool.input_schema["properties"]) == ["item"]
            assert await texts(client) == SEEN
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM)
    server = StdioServerParameters(command=sys.executable, args=[str(file), "serve"], env={"PYTHONPATH": str(TREE)})
    with anyio.fail_after(60):
        async with Client(server, mode=era) as client:
            assert await texts(client) == SEEN


async def test_over_http_a_session_has_its_own_state_and_a_stateless_request_has_none() -> None:
    """application-33"""
    with socket.socket() as listener, anyio.fail_after(60):
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(shop().http(), log_level="error"))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.serve(sockets=[listener]))
            async with Client(url, mode="legacy") as one, Client(url, mode="legacy") as other, Client(url) as stateless:
                assert await texts(one) == SEEN
                assert await texts(other) == SEEN
                first, _, looked = await texts(stateless)
                assert (NONE in first, looked) == (True, "no session")
            server.should_exit = True


def test_a_repl_is_a_session_and_a_line_has_none(tmp_path: Path) -> None:
    """application-33"""
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, file, *words],
            input="add tea\nlook\n",
            capture_output=True,
            text=True,
            timeout=60,
            env={"PYTHONPATH": str(TREE), "HOME": str(tmp_path)},
        )

    assert "['tea']" in run("repl").stdout
    line = run("add", "tea")
    assert (line.returncode, NONE in line.stderr) == (69, True)
    assert run("look").stdout == "no session\n"


@dataclass
class Visit:
    day: date
    pages: list[int]


def test_values_are_typed_copies_and_bounded() -> None:
    """application-33"""
    state = SessionState()
    visit = Visit(date(2026, 11, 1), [1, 2])
    state.set("visit", visit)
    visit.pages.append(3)
    assert state.get("visit", Visit) == Visit(date(2026, 11, 1), [1, 2])
    assert (state.get("other", Visit), state.delete("visit"), state.delete("visit")) == (None, True, False)
    with pytest.raises(TooLarge, match=f"at most 1,000 values and {MOST_BYTES:,} bytes"):
        state.set("large", "x" * MOST_BYTES)
    for number in range(MOST_VALUES):
        state.set(str(number), None)
    with pytest.raises(TooLarge, match="with this one 1,001 and"):
        state.set("more", None)
    state.set("0", 1)
    assert state.get("0", int) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_the_state_is_dropped_with_its_session(era: Era) -> None:
    """application-33"""
    app, kept = App("a"), list[weakref.ref[SessionState]]()

    @app.resource("a://state")
    async def keep(state: SessionState | None = None) -> str:
        """What is kept. Async: an idle worker thread may still hold the arguments of its last call."""
        assert state is not None
        kept.append(weakref.ref(state))
        return "kept"

    async with app.test_client(era) as client:
        await client.read_resource("a://state")
        assert kept[0]() is not None
    del client
    gc.collect()
    assert kept[0]() is None
