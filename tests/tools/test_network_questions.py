"""A person is asked about hosts that are not listed: through a real client, by what arrives at the hosts."""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from coretools.egress.approvals import MAX_COMMANDS, MAX_HOSTS, HostApprovals
from coretools.egress.blocked_connections import ASK_AGAIN, Refusal
from coretools.operations.call import SilentCall
from coretools.protocol.results import ERROR_KEY
from coretools.tools.commands.host_questions import ask_about_hosts
from tests.checkout import TREE
from tests.egress.private_internet import METADATA, PUBLIC
from tests.process.test_sandbox_pool import needs_namespaces
from tests.protocol.peer import peer
from tests.tools.internet import Internet

NAMES = {"listed.example": [PUBLIC], "a.example": [PUBLIC], "b.example": [PUBLIC], "inner.example": ["127.0.0.1"]}


class Person:
    """Gives the answers in order, and keeps the questions."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        answer = self._answers.pop(0)
        if answer == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"answer": answer})


class Agent:
    """A client of a server that lists one host."""

    def __init__(self, client: Client, internet: Internet) -> None:
        self._client = client
        self.internet = internet

    async def run(self, command: str, **more: object) -> Any:
        return await self._client.call_tool("run_command", {"command": command, **more})

    async def text(self, command: str, **more: object) -> str:
        return str((await self.run(command, **more)).content[0].text)

    async def tier(self) -> str:
        return str((await self._client.call_tool("get_diagnostics", {})).content[0].text)


@asynccontextmanager
async def serving(folder: Path, era: str, person: Person) -> AsyncIterator[Agent]:
    root = folder / "root"
    (folder / "internet").mkdir()
    root.mkdir()
    internet = Internet(folder / "internet", NAMES)
    words = [
        *internet.before,
        sys.executable,
        "-m",
        "coretools.servers.workstation",
        str(root),
        "--network",
        "listed.example",
    ]
    server = StdioServerParameters(
        command=words[0], args=words[1:], env={**os.environ, "PYTHONPATH": str(TREE)}, cwd=TREE
    )
    with anyio.fail_after(120):
        async with Client(server, mode=era, elicitation_callback=person) as client:
            agent = Agent(client, internet)
            if "commands are confined in tier: full" not in await agent.tier():
                pytest.skip("tier full is not available here")
            yield agent


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
A, B = "curl -sS http://a.example/page", "curl -sS http://b.example/page"


@needs_namespaces
@needs_curl
async def test_a_person_permits_a_host_once_for_the_session_or_never(tmp_path: Path) -> None:
    """network-16: in the stateless era, before the command starts again."""
    person = Person("once", "decline", "this session", "never", "once")
    async with serving(tmp_path, "auto", person) as agent:
        first = await agent.text(A)
        assert ASK_AGAIN in first
        assert 'network = [..., "a.example"]' in first
        assert "page of a.example" in await agent.text(A)
        assert "Let commands connect to a.example:80?" in person.asked[0]
        assert f"command: {A}" in person.asked[0]
        assert "not in the operator's list" in await agent.text("curl -sS http://a.example/page?other")
        assert len(agent.internet.requests("a.example")) == 1, "once is for one command"

        declined = await agent.run(A, answers={"hosts": "once"})
        assert declined.meta[ERROR_KEY] == "declined", "an answer of the agent does not count"
        assert "page of a.example" in await agent.text(A)
        assert "page of a.example" in await agent.text("curl -sS http://a.example/page?more")
        assert len(person.asked) == 3

        assert ASK_AGAIN in await agent.text(B)
        for _ in range(2):
            text = await agent.text(B)
            assert "not in the operator's list" in text
            assert ASK_AGAIN not in text
        assert len(person.asked) == 4

        inner = "curl -sS http://inner.example/page"
        assert ASK_AGAIN in await agent.text(inner)
        assert "leads to an address that is not public" in await agent.text(inner), "a person permits the name only"
        for _ in range(2):
            assert ASK_AGAIN not in await agent.text(f"curl -sS http://{METADATA}/page")
        assert len(person.asked) == 5
        assert agent.internet.addresses() == {PUBLIC}
        assert agent.internet.requests("b.example") == []


@needs_namespaces
@needs_curl
async def test_a_run_keeps_its_permission_until_it_ends(tmp_path: Path) -> None:
    """network-16: in the handshake era."""
    person = Person("once")
    code = "import sys, urllib.request as r; r.urlopen('http://a.example/page'); print('first', flush=True); input()"
    command = ["python3", "-c", f"{code}; r.urlopen('http://a.example/page'); print('second')"]
    async with serving(tmp_path, "legacy", person) as agent:
        call = agent._client.call_tool
        assert ASK_AGAIN in await agent.text(command, stdin="\n")  # type: ignore[arg-type]
        started = await call("run_command", {"command": command, "stdin": "", "wait_seconds": 0})
        run = started.meta["coretools/facts"]["run"]
        await call("wait_run", {"run": run, "pattern": "first", "seconds": 60})
        assert "page of a.example" in await agent.text("curl -sS http://a.example/page?beside")
        await call("write_run", {"run": run, "text": "\n", "end": True, "seconds": 0})
        ended = await call("wait_run", {"run": run, "seconds": 60})
        assert "second" in ended.content[0].text
        assert "not in the operator's list" in await agent.text("curl -sS http://a.example/page?after")
        assert len(person.asked) == 1


@needs_namespaces
@needs_curl
def test_without_a_form_nobody_is_asked(tmp_path: Path) -> None:
    """network-16"""
    with peer(tmp_path, "--network", "listed.example") as client:
        client.start_session()
        for _ in range(2):
            text = str(client.call("run_command", command=A)["content"][0]["text"])
            if "network is denied" in text:
                pytest.skip("tier full is not available here")
            assert "not in the operator's list" in text
            assert ASK_AGAIN not in text


class ForbiddenCall(SilentCall):
    """The call of a client with forms, by whom nobody must be asked."""

    def has_capability(self, _: str) -> bool:
        return True


async def test_a_principal_with_a_token_is_not_asked() -> None:
    """network-16: the namespace is shared by all of them."""
    approvals = HostApprovals()
    await ask_about_hosts(approvals, ("a",), ForbiddenCall("ada"))
    assert not approvals.refused(("a",), [Refusal("not listed", "a.example", 80)])
    assert approvals.open_questions(("a",)) == ()


def test_what_is_remembered_is_bounded() -> None:
    """network-16"""
    approvals = HostApprovals()
    for number in range(MAX_COMMANDS + 1):
        approvals.expect((str(number),))
        refusals = [Refusal("not listed", f"h{host}.example", 80) for host in range(MAX_HOSTS + 3)]
        assert approvals.refused((str(number),), refusals)
    assert approvals.open_questions(("0",)) == ()
    assert len(approvals.open_questions((str(MAX_COMMANDS),))) == MAX_HOSTS
