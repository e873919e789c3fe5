"""A `coretools-http` process from its start to its end (docs/specs/http.md)."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.checkout import TREE
from tests.process.tree import until
from tests.protocol.peer import marker, wait_until_none, wait_until_some
from tests.starting import warm
from tests.web.certificates import write_certificate
from tests.web.http_mcp_client import ACCEPT, ENVELOPE, STATELESS, HttpMcpClient, messages_in
from tests.web.http_server_peer import ANONYMOUS, http_server
from tests.web.plans import at_work, plan_of

SECONDS = 30.0


def ran(*words: str | Path, cwd: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The server, run to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORETOOLS_")}
    return warm.run(
        # -P: without the directory in which Python looks for modules first; an installed program has none.
        [sys.executable, "-P", "-m", "coretools.servers.http_server", *map(str, words)],
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(TREE), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    found.mkdir()
    (found / "a.txt").write_text("in the project\n")
    return found


def test_the_check_reports_what_would_be_served_and_does_not_listen(root: Path) -> None:
    """http-16: with the exit code of the start that it checks."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = ran("--check", "--root", f"{root}:ro", "--port", port, "--profile", "read", cwd=root)
    assert done.returncode == 0, done.stderr
    assert f"127.0.0.1:{port}/mcp, for this machine only" in done.stdout
    assert f"role default: {root}:ro; profile read" in done.stdout


def test_the_check_opens_the_certificate_too(root: Path, tmp_path: Path) -> None:
    """http-16, http-24: a start would fail because of it; an unreadable registry or role hides no other fault."""
    for name in ("crt", "key"):
        (tmp_path / name).write_text("no certificate\n")
    given = {
        "CORETOOLS_HTTP_SERVER__TLS_CERTIFICATE": str(tmp_path / "crt"),
        "CORETOOLS_HTTP_SERVER__TLS_KEY": str(tmp_path / "key"),
    }
    bad = ("--with", "no_such_module:registry", "--policy", "no_such_policy")
    done = ran("--check", "--root", root, *bad, cwd=root, environment=given)
    assert done.returncode == 78
    assert all(one in done.stderr for one in ("no_such_module", "no_such_policy")), done.stderr
    assert f"server.tls_certificate {tmp_path / 'crt'} and its key: one of them is not PEM" in done.stderr


def test_a_start_with_a_certificate_that_clients_refuse_warns(root: Path, tmp_path: Path) -> None:
    """http-27: it goes on, because SIGHUP loads a renewed one."""
    made = write_certificate(tmp_path, days=0)
    given = {
        **ANONYMOUS,
        "CORETOOLS_HTTP_SERVER__TLS_CERTIFICATE": str(made.path),
        "CORETOOLS_HTTP_SERVER__TLS_KEY": str(made.key),
    }
    with http_server(tmp_path, "--root", root, environment=given) as server:
        warned = [line["message"] for line in server.lines if line["level"] == "warning"]
    assert any(f"{made.path}: expired on" in message for message in warned), warned


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--check", "--host", "0.0.0.0"), ["auth.tokens", "server.hosts", "tls_certificate"]),
        (("--root", "/no/such/place", "--port", "0"), ["/no/such/place"]),
        (("--host", "192.0.2.7", "--port", "1"), ["192.0.2.7"]),
        (("--with", "no_such_module:registry", "--port", "0"), ["no_such_module"]),
    ],
)
def test_an_invalid_configuration_ends_the_start(root: Path, words: tuple[str, ...], expected: list[str]) -> None:
    """http-15, http-16, http-19: with 78 and one sentence with all faults; the server never listened."""
    done = ran(*words, cwd=root)
    assert done.returncode == 78
    assert all(one in done.stderr for one in expected), done.stderr
    assert "Traceback" not in done.stderr
    assert "listening on" not in done.stderr


def test_a_port_in_use_ends_the_start(root: Path) -> None:
    """http-19: the server that listens there goes on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ran("--port", str(port), cwd=root)
        assert (done.returncode, f"port {port}" in done.stderr) == (78, True)
        with socket.create_connection(("127.0.0.1", port)):
            taken.accept()[0].close()


async def test_a_running_call_is_answered_before_the_end(tmp_path: Path, root: Path) -> None:
    """http-18: the exit code names the signal."""
    with http_server(tmp_path, "--root", root) as server:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            mcp_client = HttpMcpClient(http, server.url)
            await mcp_client.initialize()
            answers: list[httpx2.Response] = []

            async def call() -> None:
                answers.append(
                    await mcp_client.call("run_command", command="sh -c 'echo > up; sleep 1.5; echo finished'")
                )

            with anyio.fail_after(SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call)
                    await until((root / "up").exists)
                    server.process.send_signal(signal.SIGTERM)
            (message,) = messages_in(answers[0])
            assert message["result"]["content"][0]["text"] == "finished"
        assert server.process.wait(SECONDS) == 128 + signal.SIGTERM
        assert [line["message"] for line in server.lines if line["level"] == "error"] == []


async def test_a_server_that_ends_is_not_ready_first_and_serves_on(tmp_path: Path, root: Path) -> None:
    """http-29: until the lame duck time is over; a second signal ends it at once."""
    long = {**ANONYMOUS, "CORETOOLS_HTTP_SERVER__LAME_DUCK_SECONDS": "300"}
    with http_server(tmp_path, "--root", root, environment=long) as server:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            ready = server.url.replace("/mcp", "/readyz")
            assert (await http.get(ready)).status_code == 200
            server.process.send_signal(signal.SIGTERM)
            with anyio.fail_after(SECONDS):
                while (answer := await http.get(ready)).status_code == 200:
                    pass
            assert answer.json()["failing"] == ["draining"]
            mcp_client = HttpMcpClient(http, server.url)
            assert (await mcp_client.initialize()).status_code == 200
            answer = await mcp_client.call("read_file", path="a.txt")
            assert (answer.status_code, "in the project" in answer.text) == (200, True)
        assert server.end() == 128 + signal.SIGTERM


async def test_a_local_client_is_never_rate_limited(tmp_path: Path, root: Path) -> None:
    """validation-33: eight concurrent calls, and more in all than the burst of a token holder."""
    with http_server(tmp_path, "--root", root) as server:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            mcp_client = HttpMcpClient(http, server.url)
            await mcp_client.initialize()
            statuses: list[int] = []

            async def script() -> None:
                statuses.extend([(await mcp_client.call("read_file", path="a.txt")).status_code for _ in range(30)])

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(script)
    assert statuses == [200] * 240


STUBBORN = "sh -c 'trap \"\" TERM; setsid sleep {0} & nohup sleep {0} & sleep {0}; wait'"


@pytest.mark.parametrize("how", ["TERM", "INT", "twice", "KILL"])
async def test_no_child_is_left(tmp_path: Path, root: Path, how: str) -> None:
    """http-18: of a call that does not end in time, however the server ends."""
    seconds = marker()
    short = {**ANONYMOUS, "CORETOOLS_HTTP_SERVER__DRAIN_SECONDS": "0.5", "CORETOOLS_LIMITS": "grace_seconds=0.3"}
    with http_server(tmp_path, "--root", root, environment=short) as server:
        threading.Thread(target=_call_and_lose, args=(server.url, STUBBORN.format(seconds)), daemon=True).start()
        wait_until_some(f"sleep {seconds}", 3)
        first = signal.SIGKILL if how == "KILL" else signal.SIGINT if how == "INT" else signal.SIGTERM
        server.process.send_signal(first)
        if how == "twice":
            server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(SECONDS)
        assert code == (-first if how == "KILL" else 128 + first)
    assert wait_until_none(f"sleep {seconds}") == []


def _call_and_lose(url: str, command: str) -> None:
    async def call() -> None:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            mcp_client = HttpMcpClient(http, url)
            await mcp_client.initialize()
            try:
                await mcp_client.call("run_command", command=command)
            except httpx2.TransportError:
                return

    anyio.run(call)


REGISTRY = '''
from coretools.operations.declare import Effect, tool
from coretools.operations.registry import Registry

@tool(Effect.READ)
def shout(text: str) -> str:
    """Shout."""
    return text.upper()

registry = Registry()
registry.add(shout)
'''


async def test_other_registries_are_served_beside_our_tools_in_every_role(tmp_path: Path, root: Path) -> None:
    """http-17, http-11: commands of one role do not reach the roots of another."""
    module, config = tmp_path / "tools.py", tmp_path / "http.toml"
    module.write_text(REGISTRY)
    config.write_text(
        f"auth.anonymous = 'user'\n[roles.default]\nroots = ['{root}:ro']\nprofile = 'all'\n[log]\nformat = 'json'\n"
    )
    with http_server(tmp_path, "--config", config, "--with", f"{module}:registry") as server:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            mcp_client = HttpMcpClient(http, server.url)
            await mcp_client.initialize()
            (text,) = messages_in(await mcp_client.call("shout", text="who calls"))
            assert text["result"]["content"][0]["text"] == "WHO CALLS"
            (read,) = messages_in(await mcp_client.call("read_file", path="a.txt"))
            assert read["result"]["content"][0]["text"] == "in the project\n"
            answer = await mcp_client.stateless("server/discover")
            assert answer.status_code == 200
        assert server.end() == 128 + signal.SIGTERM


async def test_a_call_that_does_not_end_in_time_gets_a_response(tmp_path: Path, root: Path) -> None:
    """http-18: 503 instead of a closed connection, and no traceback in the log."""
    short = {**ANONYMOUS, "CORETOOLS_HTTP_SERVER__DRAIN_SECONDS": "0.5"}
    with http_server(tmp_path, "--root", root, environment=short) as server:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            mcp_client = HttpMcpClient(http, server.url)
            answers: list[httpx2.Response] = []

            async def call() -> None:
                arguments = {"command": "sh -c 'echo > up; sleep 1000'"}
                answers.append(await mcp_client.stateless("tools/call", "run_command", arguments=arguments))

            with anyio.fail_after(SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call)
                    await until((root / "up").exists)
                    server.process.send_signal(signal.SIGTERM)
            assert (answers[0].status_code, answers[0].json()["error"]["data"]["kind"]) == (503, "ending")
            assert answers[0].headers["x-content-type-options"] == "nosniff"
        assert server.process.wait(SECONDS) == 128 + signal.SIGTERM
        assert "Traceback" not in server.log.read_text()


ENDLESS = """
import itertools

import anyio

from coretools.questions.kinds import AskText
from coretools.operations.call import Call
from coretools.operations.declare import Effect, asks
from coretools.operations.registry import Registry

registry = Registry()

@registry.tool(Effect.READ)
async def tell(call: Call) -> str:
    \"\"\"Tell for ever.\"\"\"
    for number in itertools.count(1):
        await call.progress(number, None, "more")
        await anyio.lowlevel.checkpoint()

@registry.tool(Effect.READ)
@asks("colour")
async def paint(call: Call) -> str:
    \"\"\"Ask for a colour.\"\"\"
    return await call.ask(AskText(key="colour", message="Which?"))
"""

STILL_OPEN = ("did not stop", "gave up", "without completing response", "Traceback")


async def test_streams_that_do_not_end_in_time_get_a_response(tmp_path: Path, root: Path) -> None:
    """http-18: in both eras, also with an unanswered question: each request gets an error.

    None of them delays the shutdown to its deadline.
    """
    module = tmp_path / "endless.py"
    module.write_text(ENDLESS)
    short = {**ANONYMOUS, "CORETOOLS_HTTP_SERVER__DRAIN_SECONDS": "0.5"}
    words = ("--root", root, "--profile", "all", "--with", f"{module}:registry")
    ended: list[str] = []
    with http_server(tmp_path, *words, environment=short) as server:
        async with httpx2.AsyncClient(timeout=SECONDS) as http, anyio.create_task_group() as tasks:
            mcp_client = HttpMcpClient(http, server.url)
            await mcp_client.initialize({"elicitation": {"form": {}}})

            async def stream(name: str, headers: dict[str, str], meta: dict[str, Any], *, task_status: Any) -> None:
                params = {"name": name, "arguments": {}, "_meta": {**meta, "progressToken": name}}
                body = {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}
                async with http.stream("POST", mcp_client.url, json=body, headers=headers) as answer:
                    assert answer.headers["content-type"].startswith("text/event-stream"), await answer.aread()
                    task_status.started()
                    lines = [line async for line in answer.aiter_lines() if line]  # an incomplete response raises
                last = json.loads(lines[-1].removeprefix("data: "))
                assert (last["id"], last["error"]["data"]["kind"]) == (name, "ending")
                ended.append(name)

            stateless = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "tools/call", "Mcp-Name": "tell"}
            with anyio.fail_after(SECONDS):
                await tasks.start(partial(stream, "tell", mcp_client.headers(), {}))
                await tasks.start(partial(stream, "paint", mcp_client.headers(), {}))
                await tasks.start(partial(stream, "tell", {**ACCEPT, **stateless}, ENVELOPE))
                server.process.send_signal(signal.SIGTERM)
        assert sorted(ended) == ["paint", "tell", "tell"]
        assert server.process.wait(SECONDS) == 128 + signal.SIGTERM
        log = server.log.read_text()
        assert [text for text in STILL_OPEN if text in log] == [], log


async def test_the_tier_and_the_network_are_logged_once_for_each_role(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """confinement-1: with the role's name, also if the operator requires a tier; nothing if no commands are offered."""
    caplog.set_level(logging.INFO, "coretools")
    config = root.with_name("http.toml")
    kinds = {"default": "network = 'deny'", "build": "profile = 'ci'", "review": "profile = 'read'"}
    config.write_text(
        "auth.anonymous = 'user'\n"
        + "".join(f"[roles.{name}]\nroots = ['{root}']\n{key}\n" for name, key in kinds.items())
    )
    plan = plan_of("--config", str(config), "--require-tier", "none")

    def reports() -> list[str]:
        return [text for text in caplog.messages if "commands are confined in tier" in text or "network: " in text]

    async with at_work(plan):
        await until(lambda: len(reports()) >= 4)
    begins = [" ".join(text.split()[:2]) for text in reports()]
    assert sorted(begins) == ["build: commands", "build: network:", "default: commands", "default: network:"]
