"""`--upstream`: tools of other servers through ours (docs/specs/upstream.md)."""

import base64
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from coretools.app.assembly import open_assembly
from coretools.app.upstreams import loop_guard, own_names
from coretools.cli.main import main
from coretools.client.upstream.chain import META, VARIABLE
from coretools.client.upstream.foreign_tools import CallRules, ForeignTool, command_function
from coretools.client.upstream.offered_tools import NameOrder, usable
from coretools.client.upstream.upstreams import UpstreamRules, open_upstreams
from coretools.config.limits import Limits
from coretools.config.settings import Settings
from coretools.errors import CoreError
from coretools.hosting.serve import ServeOptions, build, http_app
from coretools.operations.content import Text
from coretools.operations.registry import Registry
from tests.checkout import TREE
from tests.client.peers import EventLog, hub, misbehaving, wait_gone
from tests.client.remote import served
from tests.protocol.peer import Peer, connected, processes_with
from tests.starting import warm
from tests.variables import NO_LOGIN_SHELL
from tests.variables import variables as changed
from tests.web.http_server_peer import http_server

CLI = [sys.executable, "-P", "-m", "coretools.cli.main"]
SECRET = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


def entry(events: str = os.devnull) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(TREE / "tests" / "app" / "upstream_server.py"), events]}


def ours(*words: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [*CLI[1:], "serve", *words], "env": {"PYTHONPATH": str(TREE)}}


def variables(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "CORETOOLS_"))}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(TREE), **NO_LOGIN_SHELL}


def configured(home: Path, servers: dict[str, Any]) -> None:
    path = home / ".config" / "coretools" / "mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"servers": servers}))


def typed(home: Path, *words: str) -> int:
    """Run `coretools mcp` in this process; return its exit code."""
    of_others = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME"))
    with changed(HOME=str(home), **of_others), chdir(home), pytest.raises(SystemExit) as ended:
        main(["mcp", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def approve(home: Path, *words: str) -> None:
    assert typed(home, "approve", *words, "--yes") == 0


@contextmanager
def server(home: Path, *words: str, program: str = "coretools.cli.main") -> Iterator[Peer]:
    process = warm.Popen(
        [sys.executable, "-m", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables(home),
        cwd=home,
    )
    with connected(process) as peer:
        peer.start_session()
        yield peer


def tools_of(peer: Peer) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in peer.ask("tools/list")["result"]["tools"]}


def wait_for_change(peer: Peer) -> None:
    while peer.receive().get("method") != "notifications/tools/list_changed":
        pass


def test_approved_tools_are_offered_beside_our_own(tmp_path: Path) -> None:
    """upstream-1, upstream-2, upstream-3, upstream-6: under their names, or prefixed; hints are not passed on."""
    configured(tmp_path, {"up": entry()})
    approve(tmp_path, "up")
    (tmp_path / "root").mkdir()
    with server(tmp_path, str(tmp_path / "root"), "--upstream", "up", program="coretools.servers.workstation") as peer:
        tools = tools_of(peer)
        assert {"echo", "getIssue", "up__read_file", "read_file", "run_command"} <= tools.keys()
        assert "bad_schema" not in tools
        (odd,) = [name for name in tools if name.startswith("up__two_words_")]
        assert tools["echo"]["description"] == "Returns its text."
        assert tools["echo"]["inputSchema"]["required"] == ["text"]
        assert tools["getIssue"]["annotations"]["readOnlyHint"] is False
        for name in ("echo", odd, "up__read_file", "getIssue"):
            assert json.loads(peer.call(name, text="x")["content"][0]["text"]) == {"text": "x"}
        refused = peer.call("echo", txt="x")
        assert refused["isError"]
        assert "'text' is a required property" in refused["content"][0]["text"]
        refused = peer.call("slow_pattern", text="a" * 40 + "b")
        assert "a regular expression of its schema can't be used" in refused["content"][0]["text"]
        assert peer.end() == 0
    with server(
        tmp_path, str(tmp_path / "root"), "--upstream", "up", "--read-only", program="coretools.servers.workstation"
    ) as peer:
        assert "echo" not in tools_of(peer)


def test_chosen_tools_alone_their_limits_and_their_results(tmp_path: Path) -> None:
    """upstream-1, upstream-4, upstream-5: content of every kind, cut and redacted; errors, progress, cancellation."""
    events = EventLog(tmp_path)
    configured(tmp_path, {"up": entry(events.path)})
    approve(tmp_path, "up")
    events.wait_for("started")
    words = ("--upstream", "up:result,hang,progress,absent", "--redact-output", "--limit", "answer_bytes=1000")
    with server(tmp_path, "serve", *words, "--limit", "upstream_seconds=0.5", "--limit", "upstream_calls=1") as peer:
        assert tools_of(peer).keys() == {"result", "hang", "progress"}

        def result(**given: Any) -> dict[str, Any]:
            return peer.call("result", result=given)

        image = {"type": "image", "data": base64.b64encode(b"png").decode(), "mimeType": "image/png"}
        found = result(content=[{"type": "text", "text": f"token {SECRET}"}, image], structuredContent={"n": [SECRET]})
        assert found["content"][1] == image
        assert "[redacted:" in found["content"][0]["text"]
        assert SECRET not in json.dumps(found)
        assert found["structuredContent"]["n"][0].startswith("[redacted:")
        found = result(content=[{"type": "text", "text": "é" * 900}, {"type": "text", "text": "more"}])
        assert found["content"][0]["text"].endswith("[... 800 bytes left out; the limit is answer_bytes]")
        assert len(json.dumps(found)) < 9_000
        found = result(content=[], structuredContent={"n": "x" * 2000})
        assert "structuredContent" not in found
        assert "the structured result was left out" in found["content"][0]["text"]
        found = result(content=[{"type": "text", "text": "no such issue"}], isError=True)
        assert (found["isError"], found["content"][0]["text"]) == (True, "no such issue")
        assert found["_meta"]["coretools/error"] == "tool-failed"
        assert "sent an answer that the protocol does not allow" in result(content=5)["content"][0]["text"]
        number = peer.send("tools/call", {"name": "progress", "arguments": {}, "_meta": {"progressToken": 7}})
        seen = [peer.receive(), peer.receive()]
        assert seen[0]["params"] == {"progressToken": 7, "progress": 1, "total": 2, "message": "half"}
        assert seen[1]["id"] == number
        first, second = (peer.send("tools/call", {"name": "hang", "arguments": {}}) for _ in range(2))
        for request in (first, second):
            text = peer.answer(request)["result"]["content"][0]["text"]
            assert text == "server 'up': call hang: no answer within 0.5 s (upstream_seconds)"
        events.wait_for("cancelled")
    events.close()


def test_a_tool_is_offered_as_it_was_approved(tmp_path: Path) -> None:
    """upstream-3: a change withdraws it, and the answer says why; an approval offers it again, while we serve."""
    configured(tmp_path, {"up": entry()})
    assert typed(tmp_path, "approve", "up") == 77
    approve(tmp_path, "up", "echo", "change")
    with server(tmp_path, "serve", "--upstream", "up") as peer:
        assert tools_of(peer).keys() == {"echo", "change"}
        missing = peer.ask("tools/call", {"name": "result", "arguments": {}})["error"]["message"]
        assert missing.startswith("result is not offered here: it is not approved yet; look at it with `coretools mcp")
        peer.call("change", description="Also deletes your files.")
        wait_for_change(peer)
        assert tools_of(peer).keys() == {"change"}
        changed = peer.ask("tools/call", {"name": "echo", "arguments": {"text": "x"}})["error"]["message"]
        assert "echo is not offered here: its declaration or entry changed since it was approved" in changed
        assert typed(tmp_path, "approvals", "revoke", "up: change") == 0
        wait_for_change(peer)
        assert tools_of(peer).keys() == set()
        approve(tmp_path, "up", "change", "echo")
        wait_for_change(peer)
        assert {"change", "echo"} & tools_of(peer).keys()


def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    """upstream-7, upstream-3: its tools stay and say what happened, with the variables that were approved."""
    events = EventLog(tmp_path)
    (tmp_path / "variables").write_text("A=1\n")
    configured(tmp_path, {"up": entry(events.path) | {"envFile": str(tmp_path / "variables")}})
    approve(tmp_path, "up")
    events.wait_for("started")
    with server(tmp_path, "serve", "--upstream", "up") as peer:
        events.wait_for("started")
        dead = peer.call("die")
        assert dead["isError"]
        assert (
            "server 'up': call die: it ended with exit code 3; its last words on standard error: about to die"
            in (dead["content"][0]["text"])
        )
        assert dead["_meta"]["coretools/error"] == "unreachable"
        assert "echo" in tools_of(peer)
        pid = int(events.wait_for("started"))
        assert json.loads(peer.call("echo", text="x")["content"][0]["text"]) == {"text": "x"}
        (tmp_path / "variables").write_text("A=2\n")  # the next start has them
        changed = peer.call("echo", text="x")["content"][0]["text"]
        assert "its declaration or entry changed since it was approved" in changed
        assert peer.end() == 0
    events.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_hangs_delays_no_other(tmp_path: Path) -> None:
    """upstream-6, upstream-7, client-10: one named after it is offered all the same."""
    hanging = misbehaving("mute") | {"startup_timeout_sec": 600}
    configured(tmp_path, {"hanging": hanging, "up": entry()})
    approve(tmp_path, "up", "echo")
    with server(tmp_path, "serve", "--upstream", "hanging", "--upstream", "up") as peer:
        while "echo" not in tools_of(peer):
            wait_for_change(peer)


async def test_names_go_to_servers_in_their_order() -> None:
    """upstream-6: whichever is ready first; one that is too slow loses its turn."""
    named = []

    async def name(order: NameOrder, server: str, started: anyio.Event) -> None:
        await started.wait()
        await order.wait(server)
        named.append(server)
        order.pass_on(server)

    for seconds, expected in ((math.inf, ["a", "b", "c", "later"]), (0, ["c", "later", "b", "a"])):
        order, named = NameOrder("abc", seconds), []
        started = {server: anyio.Event() for server in ("a", "b", "c", "later")}
        async with anyio.create_task_group() as tasks:
            for server, event in started.items():
                tasks.start_soon(name, order, server, event)
            for server in ("c", "later", "b", "a"):
                started[server].set()
                await anyio.wait_all_tasks_blocked()
        assert named == expected


def test_the_http_server_offers_them_to_every_role(tmp_path: Path) -> None:
    """upstream-1, upstream-5: with the access log; the other server ends with ours."""
    events = EventLog(tmp_path)
    configured(tmp_path, {"up": entry(events.path)})
    approve(tmp_path, "up", "echo")
    events.wait_for("started")
    (tmp_path / "root").mkdir()
    # It is started in the checkout, which contains the program of the other server.
    words = ("--root", tmp_path / "root", "--upstream", "up", "--unconfined", "up")
    with http_server(tmp_path, *words, environment={**variables(tmp_path), "PYTHONPATH": str(TREE)}) as at:
        pid = int(events.wait_for("started"))

        async def use() -> str:
            async with hub(tmp_path, {"web": {"type": "http", "url": at.url}}) as connections:
                await connections["web"].wait_settled()
                assert "echo" in [tool.name for tool in await connections["web"].tools()]
                result = await connections["web"].call("echo", {"text": "x"})
                return result.content[0].text  # type: ignore[union-attr]

        assert json.loads(anyio.run(use)) == {"text": "x"}
        logged = [line for line in at.lines if line["logger"] == "coretools.calls"]
    assert [line["tool"] for line in logged] == ["echo"]
    assert wait_gone(pid)
    events.close()


def test_a_loop_of_local_servers_ends(tmp_path: Path) -> None:
    """upstream-8: `a` is started, and starts `b`, which does not start `a` again."""
    configured(tmp_path, {"a": ours("--upstream", "b"), "b": ours("--upstream", "a")})
    with server(tmp_path, "serve", "--upstream", "a") as peer:
        assert tools_of(peer) == {}
        assert peer.end() == 0
        assert peer.process.stderr is not None
        assert processes_with(str(tmp_path)) == []


async def test_a_loop_through_the_network_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """upstream-8: a server that lists its own tools is told so; the tools of others that came from it are left out."""
    settings = Settings(roots=(), upstream=("web",))
    served_here = build(Registry(), ServeOptions(middleware=loop_guard(settings)))
    with changed(HOME=str(tmp_path), XDG_CONFIG_HOME=None, XDG_STATE_HOME=None):
        async with served(http_app(served_here)) as address:
            configured(tmp_path, {"web": {"type": "http", "url": f"{address}/mcp"}})
            async with open_upstreams(
                ["web"], variables(tmp_path), str(tmp_path), (), UpstreamRules(Limits())
            ) as upstreams:
                assert list(upstreams.tools.registry) == []
    assert "this server is its own upstream, directly or through others" in caplog.text


async def test_a_choice_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    """upstream-1, upstream-2, upstream-8"""
    configured(tmp_path, {"up": entry(), "off": {**entry(), "disabled": True}})
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry()}}))
    environment = variables(tmp_path)
    for texts, code, message in (
        (["none"], 78, "--upstream none: no such server is configured; there are: theirs, up, off"),
        (["up", "up:echo"], 78, "--upstream up: is named twice"),
        (["up:"], 78, "write NAME or NAME:TOOL,TOOL"),
        (["off"], 78, "server 'off': is disabled in"),
        (["theirs"], 77, "belongs to the project and is not trusted yet"),
        (["up"], 78, "--upstream up: this server comes after 8 that use each other"),
    ):
        given = environment | ({VARIABLE: ",".join(map(str, range(16)))} if "after 8" in message else {})
        with pytest.raises(CoreError) as refused:
            async with open_upstreams(texts, given, str(project), (), UpstreamRules(Limits())):
                pass
        assert message in str(refused.value)
        assert refused.value.exit_code == code


async def test_what_is_offered_and_answered_is_limited() -> None:
    """upstream-5, upstream-6, upstream-8: tools of a server, servers in a chain, a description, binary content."""

    def declared(name: str, **more: Any) -> types.Tool:
        return types.Tool.model_validate({"name": name, "inputSchema": {"type": "object"}, **more})

    assert len(usable("up", [declared(f"tool{number}") for number in range(501)])) == 500
    chains = [declared(f"through{count}", _meta={META: ["0" * 16] * count}) for count in (7, 8, 100)]
    assert [one.name for one in usable("up", chains)] == ["through7"]

    async def unused(*_: Any) -> Any:
        raise AssertionError

    rules = CallRules(approve=unused, limits=Limits(), slots=anyio.CapacityLimiter(1))
    one = ForeignTool(unused, declared("long", description="x" * 9_000), rules)
    assert command_function("long", "up", one).__doc__ == "x" * 8_192
    images = [
        types.ImageContent(type="image", data=base64.b64encode(bytes(mib * 2**20)).decode(), mime_type="image/png")
        for mib in (5, 3, 1)
    ]
    shown = one._limited(types.CallToolResult(content=list(images))).blocks
    assert [type(block).__name__ for block in shown] == ["Image", "Image", "Text"]
    assert shown[2] == Text("[left out: more than 8388608 bytes of content]")


def test_without_the_option_the_client_is_not_loaded() -> None:
    """upstream-9"""
    program = (
        "import sys, coretools.app.stdio_service, coretools.web.service\n"
        "sys.exit(', '.join(name for name in sys.modules if name.startswith('coretools.client')) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=TREE, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


async def test_the_names_of_our_tools_are_known_before_they_are_built(tmp_path: Path) -> None:
    """upstream-6"""
    settings = Settings(roots=(str(tmp_path),), profile="all")
    async with open_assembly(settings, {}) as assembly:
        assert {command.name for command in assembly.catalog.registry} - own_names() == set()
