"""The whole server as its operator sees it: how observability is wired (docs/specs/observability.md)."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from coretools.protocol.draining import Draining
from coretools.web.auth.hashed_tokens import create_token
from tests.web.plans import at_work, plan_of


def figures(text: str) -> dict[str, float]:
    """Samples of the text for Prometheus."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "host-only" / "project"
    found.mkdir(parents=True)
    (found / "a.txt").write_text("alpha\n")
    return found


def move_away(root: Path) -> None:
    root.rename(root.with_name("gone"))


def base(url: str) -> str:
    return url.removesuffix("/mcp")


@pytest.mark.parametrize(("mode", "era", "sessions"), [("legacy", "handshake", 1), ("auto", "stateless", 0)])
async def test_calls_of_real_clients_are_counted(root: Path, mode: str, era: str, sessions: int) -> None:
    """observability-1: by tool and era, with the session that is open meanwhile."""
    async with (
        at_work(plan_of("--root", str(root))) as url,
        httpx2.AsyncClient(base_url=base(url)) as operator,
        Client(url, mode=mode) as client,
    ):
        await client.call_tool("read_file", {"path": "a.txt"})
        await client.call_tool("read_file", {"path": "missing.txt"})
        found = figures((await operator.get("/metrics")).text)
    label = 'role="default",tool="read_file"'
    assert found[f'coretools_calls_total{{outcome="ok",{label}}}'] == 1
    assert found[f'coretools_calls_total{{outcome="not-found",{label}}}'] == 1
    assert found['coretools_calls_in_flight{role="default"}'] == 0
    assert found['coretools_sessions_open{role="default"}'] == sessions
    assert found[f'coretools_http_requests_total{{era="{era}",method="POST",status="200"}}'] >= 2


async def test_refusals_of_validation_and_authentication_are_counted(root: Path, tmp_path: Path) -> None:
    """observability-1: by the kind in the response."""
    tokens = str(tmp_path / "tokens.json")
    create_token(tokens, name="alice", role="default")
    flags = {"auth.tokens": tokens}
    async with at_work(plan_of("--root", str(root), flags=flags)) as url, httpx2.AsyncClient() as client:
        kinds = []
        for headers in ({"Host": "evil.example"}, {"Authorization": "Bearer wrong"}):
            answer = await client.post(url, json={}, headers=headers)
            kinds.append(answer.json()["error"]["data"]["kind"])
        found = figures((await client.get(f"{base(url)}/metrics")).text)
    assert len(set(kinds)) == 2
    for kind in kinds:
        assert found[f'coretools_refusals_total{{reason="{kind}"}}'] == 1


async def test_prometheus_scrapes_by_address_and_wrong_tokens_are_delayed(root: Path, tmp_path: Path) -> None:
    """observability-5: with a token any Host is accepted there only; wrong tokens are counted as at `/mcp`."""
    tokens = str(tmp_path / "metrics.json")
    _, token = create_token(tokens, name="prometheus", role="default")
    flags = {"auth.tokens": tokens, "metrics.tokens": tokens, "limits.failures_per_minute": 2}
    host = {"Host": "10.1.2.3:8765"}

    async with (
        at_work(plan_of("--root", str(root), flags=flags)) as url,
        httpx2.AsyncClient(base_url=base(url), headers=host) as client,
    ):

        async def asked(path: str, given: str) -> tuple[int, str]:
            answer = await client.get(path, headers={"Authorization": f"Bearer {given}"})
            return answer.status_code, "" if answer.status_code == 200 else answer.json()["error"]["data"]["kind"]

        assert await asked("/metrics", token) == (200, "")
        assert {await asked(path, token) for path in ("/mcp", "/console", "/healthz")} == {(421, "unknown-host")}
        wrong = [await asked("/metrics", f"wrong-{number}") for number in range(3)]
        assert wrong == [(401, "invalid-token")] * 2 + [(429, "too-many-failures")]
        assert await asked("/metrics", token) == (200, "")


async def test_without_tokens_there_is_no_console(root: Path) -> None:
    """console-1: its paths answer 404 to every method."""
    async with at_work(plan_of("--root", str(root))) as url, httpx2.AsyncClient(base_url=base(url)) as client:
        for path in ("/console", "/console/state", "/console/events", "/console/console.js"):
            assert (await client.get(path)).status_code == 404
        assert (await client.post("/console/login", data={"token": "x"})).status_code == 404


async def test_the_console_has_tokens_of_its_own_and_shows_the_server(root: Path, tmp_path: Path) -> None:
    """console-1: tokens for the tools do not open it. console-5: a real session, and roots without their path."""
    for_tools, for_console = str(tmp_path / "tools.json"), str(tmp_path / "console.json")
    _, tool_token = create_token(for_tools, name="alice", role="default")
    _, token = create_token(for_console, name="operator", role="default")
    flags = {"auth.tokens": for_tools, "console.tokens": for_console}
    async with (
        at_work(plan_of("--root", str(root), flags=flags)) as url,
        httpx2.AsyncClient(base_url=base(url)) as client,
    ):

        async def asked(value: str) -> httpx2.Response:
            return await client.get("/console/state", headers={"Authorization": f"Bearer {value}"})

        await opened(client, url, tool_token)
        assert (await asked(tool_token)).status_code == 401
        state = (await asked(token)).json()
        login = await client.post("/console/login", data={"token": token}, headers={"Origin": base(url)})
        wrong_way = await client.post(url, json={}, headers={"Authorization": f"Bearer {token}"})
    assert wrong_way.status_code == 401
    assert login.status_code == 303
    [session] = state["sessions"]["shown"]
    assert (session["principal"], session["role"]) == ("alice", "default")
    [tenant] = state["tenants"]
    assert tenant["roots"] == [{"name": "project", "is_writable": True}]
    assert "host-only" not in json.dumps(state)


async def opened(client: httpx2.AsyncClient, url: str, token: str) -> None:
    """A session of the handshake era."""
    information: dict[str, Any] = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": information}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"}
    assert (await client.post(url, json=body, headers=headers)).status_code == 200


async def test_roots_of_one_name_are_distinguished(root: Path, tmp_path: Path) -> None:
    """console-5: by a number, and not by their path."""
    other = tmp_path / "another-place" / "project"
    other.mkdir(parents=True)
    tokens = str(tmp_path / "console.json")
    _, token = create_token(tokens, name="operator", role="default")
    plan = plan_of(
        "--root", f"{root}:ro", "--root", str(other), flags={"auth.anonymous": "user", "console.tokens": tokens}
    )
    async with at_work(plan) as url, httpx2.AsyncClient(base_url=base(url)) as client:
        answer = await client.get("/console/state", headers={"Authorization": f"Bearer {token}"})
    [tenant] = answer.json()["tenants"]
    assert tenant["roots"] == [
        {"name": "project", "is_writable": False},
        {"name": "project (2)", "is_writable": True},
    ]
    assert "another-place" not in answer.text


async def test_readiness_follows_the_roots_and_the_end(root: Path) -> None:
    """observability-6: a missing root, named by one word; the drain; and no path of the host."""
    draining = Draining()
    plan = plan_of("--root", str(root))
    async with at_work(plan, draining) as url, httpx2.AsyncClient(base_url=base(url)) as client:
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        draining.begin()
        assert (await client.get("/readyz")).json()["failing"] == ["draining"]
        assert (await client.get("/healthz")).status_code == 200
    async with at_work(plan) as url, httpx2.AsyncClient(base_url=base(url)) as client:
        move_away(root)
        answer = await client.get("/readyz")
    assert answer.json() == {"status": "unready", "failing": ["roots"]}
    assert "host-only" not in answer.text
