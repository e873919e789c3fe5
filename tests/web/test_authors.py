"""Commit authors over HTTP: the token's, else the role's, else the server's (docs/specs/http.md)."""

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from coretools.config.commit_author import Author
from coretools.errors import BadSetting
from coretools.protocol.tasks.extension import IDENTIFIER
from coretools.web.auth.hashed_tokens import create_token
from coretools.web.service import ServerConfig
from tests.web.http_mcp_client import ACCEPT, ENVELOPE, STATELESS, messages_in
from tests.web.plans import at_work, plan_of, site_at_work

SECONDS = 60

CONFIGURATION = """
[auth]
tokens = "{folder}/tokens"

[roles.dev]
roots = ["{folder}/work"]
author = "Dev Team <dev@example.com>"

[roles.ci]
roots = ["{folder}/work"]
"""

TASKS = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {"extensions": {IDENTIFIER: {}}}}

WHO = {
    # Name: role, author of the token, expected author.
    "ada": ("dev", Author("Ada", "ada@example.com"), "Ada <ada@example.com>"),
    "bob": ("dev", Author("Bob", "bob@example.com"), "Bob <bob@example.com>"),
    "cat": ("dev", None, "Dev Team <dev@example.com>"),
    "robot": ("ci", None, "Server <server@example.com>"),
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def repositories(work: Path, *names: str) -> None:
    for name in names:
        subprocess.run(["git", "init", "-q", name], cwd=work, check=True, timeout=60)


def planned(folder: Path) -> tuple[ServerConfig, dict[str, str]]:
    """The server configuration, and the token of each principal."""
    tokens = {
        name: create_token(str(folder / "tokens"), name=name, role=role, author=author)[1]
        for name, (role, author, _) in WHO.items()
    }
    (folder / "http.toml").write_text(CONFIGURATION.format(folder=folder))
    return plan_of("--config", str(folder / "http.toml"), "--author", "Server <server@example.com>"), tokens


@asynccontextmanager
async def connected(url: str, token: str, mode: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=SECONDS) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def done(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.content[0].text  # type: ignore[union-attr]  # these send text only


def commits(repository: Path) -> dict[str, str]:
    """Author of each commit by its subject; the committer is the same."""
    words = ["git", "-C", str(repository), "log", "--format=%s%x00%an <%ae>%x00%cn <%ce>"]
    found = {}
    for line in subprocess.check_output(words, text=True, timeout=60).splitlines():
        subject, author, committer = line.split("\0")
        assert author == committer
        found[subject] = author
    return found


async def commit_twice(client: Client, name: str, repository: str) -> None:
    """With the tool, with git in a command, and with git in a program that becomes a run."""
    await done(client, "write_file", path=f"{repository}/{name}", content=name)
    await done(client, "git_add", repository=repository, paths=[name])
    await done(client, "git_commit", repository=repository, message=f"{name} by tool")
    by_command = f"git commit -q --allow-empty -m '{name} by command'"
    await done(client, "run_command", command=by_command, directory=repository)
    script = f"sh -c \"git commit -q --allow-empty -m '{name} by run'\""
    await done(client, "run_command", command=script, directory=repository, wait_seconds=SECONDS)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_each_principal_commits_as_its_token_role_or_server_says(tmp_path: Path, work: Path, mode: str) -> None:
    """http-20: all at the same time, each in a repository of its own."""
    repositories(work, *WHO)
    plan, tokens = planned(tmp_path)

    async def everything(url: str, name: str) -> None:
        async with connected(url, tokens[name], mode) as client:
            await commit_twice(client, name, name)

    with anyio.fail_after(SECONDS):
        async with at_work(plan) as url, anyio.create_task_group() as tasks:
            for name in WHO:
                tasks.start_soon(everything, url, name)
    for name, (_, _, expected) in WHO.items():
        assert commits(work / name) == {f"{name} by {way}": expected for way in ("tool", "command", "run")}


@pytest.mark.parametrize(("policy", "expected"), [("", ""), ('[git]\nidentity = "server"\n', "Root <root@host>")])
async def test_principals_get_the_name_of_the_servers_user_only_from_the_operator(
    tmp_path: Path, work: Path, policy: str, expected: str
) -> None:
    """git-user-8: neither by a tool nor by git in a command."""
    repositories(work, "one")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text(
        "[user]\n\tname = Root\n\temail = root@host\n[alias]\n\tst = status\n"
    )
    (tmp_path / "policy.toml").write_text(policy)
    token = create_token(str(tmp_path / "tokens"), name="bob", role="ci")[1]
    (tmp_path / "http.toml").write_text(
        f'[auth]\ntokens = "{tmp_path}/tokens"\n[roles.ci]\nroots = ["{work}"]\nprofile = "all"\n'
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    words = ("--config", str(tmp_path / "http.toml"), "--policy", str(tmp_path / "policy.toml"))
    with anyio.fail_after(SECONDS):
        async with (
            at_work(plan_of(*words, environment=environment)) as url,
            connected(url, token, "auto") as client,
        ):
            await done(client, "write_file", path="one/f", content="x")
            await done(client, "git_add", repository="one", paths=["one/f"])
            result = await client.call_tool("git_commit", {"repository": "one", "message": "tool"})
            command = "git st -s && git commit -q --allow-empty -m command; true"
            await done(client, "run_command", command=command, directory="one")
    if expected:
        assert commits(work / "one") == {"tool": expected, "command": expected}
    else:
        assert "to commit under is known" in result.content[0].text  # type: ignore[union-attr]
        assert not list((work / "one" / ".git" / "refs" / "heads").iterdir())


async def test_a_reload_reads_the_configuration_of_the_user_again(tmp_path: Path, work: Path) -> None:
    """git-user-2: until then, what happens to the file has no effect."""
    repositories(work, "one")
    config = tmp_path / "home" / ".gitconfig"
    config.parent.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(config.parent)}
    config.write_text("[user]\n\tname = Old\n\temail = a@example.org\n")
    plan = plan_of("--root", str(work), "--profile", "all", environment=environment)
    with anyio.fail_after(SECONDS):
        async with site_at_work(plan) as (url, site), connected(url, "none", "auto") as client:
            config.write_text("[user]\n\tname = New\n\temail = a@example.org\n")
            for name in ("before", "after"):
                await done(client, "write_file", path=f"one/{name}", content="x")
                await done(client, "git_add", repository="one", paths=[f"one/{name}"])
                await done(client, "git_commit", repository="one", message=name)
                await site.reloader.reload()
    assert commits(work / "one") == {"before": "Old <a@example.org>", "after": "New <a@example.org>"}


async def test_a_task_commits_as_the_principal_that_started_it(tmp_path: Path, work: Path) -> None:
    """http-20: a task continues after its request."""
    repositories(work, ".")
    os.mkfifo(work / "go")
    plan, tokens = planned(tmp_path)
    with anyio.fail_after(SECONDS):
        async with at_work(plan) as url, httpx2.AsyncClient(trust_env=False, timeout=SECONDS) as http:
            for name in ("ada", "bob"):
                peer = TaskPeer(http, url, {**ACCEPT, "Authorization": f"Bearer {tokens[name]}"})
                await peer.carried(f"git commit -q --allow-empty -m '{name} by task'", work / "go")
    assert commits(work) == {"ada by task": WHO["ada"][2], "bob by task": WHO["bob"][2]}


class TaskPeer:
    """A client of the stateless era that accepts tasks."""

    def __init__(self, http: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> None:
        self._http = http
        self._url = url
        self._headers = headers

    async def carried(self, command: str, go: Path) -> None:
        """Run a command as a task that waits for the end of its request, and wait for its result."""
        arguments = {"command": f'sh -c "cat {go.name}; {command}"'}
        task_state = await self._sent("tools/call", "run_command", arguments=arguments)
        task = task_state["taskId"]
        await anyio.Path(go).write_text("go")
        while task_state.get("status", "working") == "working":
            task_state = await self._sent("tasks/get", task, taskId=task)
        assert task_state["status"] == "completed", task_state

    async def _sent(self, method: str, called: str, **params: object) -> dict[str, Any]:
        headers = {**self._headers, "MCP-Protocol-Version": STATELESS, "Mcp-Method": method, "Mcp-Name": called}
        name = {"name": called} if method == "tools/call" else {}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**name, **params, "_meta": TASKS}}
        answer = await self._http.post(self._url, json=message, headers=headers)
        last = messages_in(answer)[-1]
        assert "result" in last, last
        found: dict[str, Any] = last["result"]
        return found


@pytest.mark.parametrize("author", ["Ada", "Ada <a@x>\nBob <b@x>", "<a@x>"])
def test_an_invalid_author_of_a_role_ends_the_start(tmp_path: Path, work: Path, author: str) -> None:
    """http-20: the message names the key."""
    (tmp_path / "http.toml").write_text(f"[roles.dev]\nroots = ['{work}']\nauthor = {json.dumps(author)}\n")
    with pytest.raises(BadSetting, match=r"roles\.dev\.author: write a name and an address as git does"):
        plan_of("--config", str(tmp_path / "http.toml"))
