"""A server whose configuration files change while it serves (docs/specs/observability.md, SIGHUP)."""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from anyio import to_thread

from coretools.protocol.tasks.extension import IDENTIFIER
from coretools.web.auth.hashed_tokens import create_token, revoke_tokens
from coretools.web.common.config import Config
from coretools.web.config_changes import changes_of_config, effective_config, needs_restart
from tests.process.tree import until
from tests.protocol.peer import marker, processes_with, wait_until_none, wait_until_some
from tests.web.auth.authorization_server import AuthorizationServer
from tests.web.http_mcp_client import HttpMcpClient, messages_in
from tests.web.plans import plan_of, site_at_work

SECONDS = 50.0
DENIED = '[[commands.rule]]\nprogram = "sh"\nverdict = "deny"\n'
CALLED = "echo > up; while [ ! -e go ]; do sleep 0.02; done; echo finished"
WAITS = f"sh -c '{CALLED}'"
TAKES_TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {IDENTIFIER: {}}}}


@dataclass
class ReloadableServer:
    """A server, its operator's files, and its log."""

    folder: Path
    url: str
    reload: Callable[[], Awaitable[None]]
    tokens: Mapping[str, str]
    log: pytest.LogCaptureFixture

    def write(self, config: str = "", policy: str = "") -> None:
        (self.folder / "http.toml").write_text(config or self.config())
        (self.folder / "policy.toml").write_text(policy)

    def config(self, role: str = "", more: str = "") -> str:
        auth = f'[auth]\ntokens = "{self.folder}/tokens"\n'
        return f'{auth}[roles.default]\nroots = ["{self.folder}/a"]\n{role}\n{more}\n'

    async def reloaded(self) -> str:
        """Reload, and return the log line about it."""
        self.log.clear()
        await self.reload()
        (call_text,) = [one.getMessage() for one in self.log.records if one.name == "coretools.web.reload"]
        return call_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which.txt").write_text(name)
    return tmp_path


@asynccontextmanager
async def operated(
    folder: Path, caplog: pytest.LogCaptureFixture, more: str = ""
) -> AsyncIterator[tuple[ReloadableServer, HttpMcpClient]]:
    """A server with the role `default`, a client of that role, and a token for the role `late`."""
    caplog.set_level(logging.INFO, "coretools")
    roles = ("default", "late")
    tokens = {role: create_token(str(folder / "tokens"), name=f"of-{role}", role=role)[1] for role in roles}
    found = ReloadableServer(folder, "", _nothing, tokens, caplog)
    found.write(found.config(more=more))
    (folder / "policy.toml").chmod(0o600)
    plan = plan_of("--config", f"{folder}/http.toml", "--policy", f"{folder}/policy.toml")
    async with site_at_work(plan) as (url, site), httpx2.AsyncClient(timeout=SECONDS) as http:
        found.url, found.reload = url, site.reloader.reload
        mcp_client = HttpMcpClient(http, url, token=tokens["default"])
        await mcp_client.initialize()
        yield found, mcp_client


async def _nothing() -> None:
    """Not at work yet."""


async def call_text(mcp_client: HttpMcpClient, tool: str, **arguments: Any) -> str:
    """The text of a result, or of the error."""
    answer = await mcp_client.call(tool, **arguments)
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.json()['error']['message']}"
    message = messages_in(answer)[-1]
    return str(message["error"]["message"] if "error" in message else message["result"]["content"][0]["text"])


async def test_a_new_policy_applies_to_new_calls_and_to_no_running_one(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """observability-22, observability-24: in open sessions; a run started before goes on."""
    async with operated(folder, caplog) as (server, mcp_client):
        started = await call_text(mcp_client, "run_command", command="sleep 1000", wait_seconds=0)
        run = started.partition(" ")[0].strip("[")
        answers: list[str] = []

        async def call() -> None:
            answers.append(await call_text(mcp_client, "run_command", command=WAITS))

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await until((folder / "a" / "up").exists)
                server.write(policy=DENIED)
                assert await server.reloaded() == "reloaded: policy.commands.rule unset -> 1 rule"
                assert "is denied: rule 1 says deny for sh" in await call_text(
                    mcp_client, "run_command", command="sh -c true"
                )
                stateless = await mcp_client.stateless("tools/call", "run_command", arguments={"command": "sh -c true"})
                assert "is denied: rule 1" in stateless.text
                assert answers == []
                (folder / "a" / "go").touch()
        assert answers == ["finished"]
        assert run in await call_text(mcp_client, "list_runs")


BROKEN: dict[str, tuple[str, Callable[[ReloadableServer], str], str]] = {
    "a key": ("http.toml", lambda one: one.config(more="[limits]\nsesions = 4"), "http.toml: limits.sesions"),
    "a value": ("http.toml", lambda one: one.config(more="[limits]\nsessions = 0"), "limits.sessions"),
    "no TOML": ("http.toml", lambda _: "[roles", "http.toml: not valid TOML"),
    "a root": ("http.toml", lambda one: one.config(more='[roles.other]\nroots = ["/no/such"]'), "/no/such"),
    "the root of a role that there is": ("http.toml", lambda one: one.config().replace("/a", "/none"), "/none"),
    "a root that is a file": (
        "http.toml",
        lambda one: one.config("read_only = true", f'[roles.other]\nroots = ["{one.folder}/b/which.txt"]'),
        "which.txt",
    ),
    "a profile": (
        "http.toml",
        lambda one: one.config('profile = "devv"'),
        "role default: unknown profile 'devv'; choose read, dev, ci or all",
    ),
    "an author": ("http.toml", lambda one: one.config('author = "nobody"'), "roles.default.author"),
    "an origin": ("http.toml", lambda one: one.config(more='[server]\norigins = ["x"]'), "server.origins"),
    "a policy": ("policy.toml", lambda _: "[commandz]", "policy.toml: commandz: unknown key"),
    "a catalog of nothing": ("policy.toml", lambda _: '[catalog]\nonly = ["no_such_*"]', "no_such_*"),
    "a question before nothing": ("policy.toml", lambda _: '[tools]\nask = ["no_such"]', "no_such"),
    "tokens": ("tokens", lambda _: "{", "tokens"),
}


async def test_if_one_file_is_invalid_nothing_changes(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """observability-23, observability-32: the log names file and reason; a valid reload follows."""
    async with operated(folder, caplog) as (server, mcp_client):

        async def has_succeeded() -> bool:
            text = (await mcp_client.http.get(server.url.replace("/mcp", "/metrics"))).text
            return "coretools_last_reload_successful 1.0" in text

        tokens = (folder / "tokens").read_text()
        assert await has_succeeded()
        for what, (file, text_of, why) in BROKEN.items():
            server.write(config=server.config("read_only = true"), policy=DENIED)
            (folder / file).write_text(text_of(server))
            report = await server.reloaded()
            assert report.startswith("reload refused, nothing changed: "), (what, report)
            assert why in report, (what, report)
            (folder / "tokens").write_text(tokens)
            assert await call_text(mcp_client, "run_command", command="sh -c 'echo still'") == "still", what
        assert not await has_succeeded()
        server.write()
        assert await server.reloaded() == "reloaded: nothing changed"
        assert await has_succeeded()


async def test_roles_are_added_changed_and_removed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """observability-22, observability-25: sessions of a role stay; a removed role ends its sessions and runs."""
    seconds = marker()
    async with operated(folder, caplog) as (server, mcp_client):
        late = HttpMcpClient(mcp_client.http, server.url, token=server.tokens["late"])
        assert (await late.initialize()).status_code == 403
        server.write(config=server.config(more=f'[roles.late]\nroots = ["{folder}/b"]'))
        assert await server.reloaded() == "reloaded: roles.late (added)"
        assert (await late.initialize()).status_code == 200
        assert await call_text(late, "read_file", path="which.txt") == "b"
        await call_text(late, "run_command", command=f"sleep {seconds}", wait_seconds=0)
        await to_thread.run_sync(wait_until_some, f"sleep {seconds}", 1)

        server.write(config=server.config().replace("/a", "/b"))
        report = await server.reloaded()  # with the roots themselves, unless their paths are long here
        assert report.startswith("reloaded: roles.default.roots")
        assert report.endswith("; roles.late (removed)")
        assert await call_text(mcp_client, "read_file", path="which.txt") == "b"
        assert "403" in await call_text(late, "read_file", path="which.txt")
        assert await to_thread.run_sync(wait_until_none, f"sleep {seconds}") == []

        server.write()
        assert "roles.default.roots" in await server.reloaded()
        (folder / "a").rename(folder / "older")
        (folder / "a").mkdir()
        assert await server.reloaded() == "reloaded: roles.default: its roots are opened again"
        assert "nothing at this path" in await call_text(mcp_client, "read_file", path="which.txt")

        server.write(config=server.config("requests_per_second = 0.001\nburst = 1", "[limits]\nsessions = 1"))
        report = await server.reloaded()
        assert "limits.sessions 1024 -> 1; " in report
        assert "roles.default.requests_per_second unset -> 0.001; roles.default.burst 100 -> 1" in report
        answers = [(await mcp_client.call("read_file", path="which.txt")).status_code for _ in range(3)]
        assert 429 in answers  # requests before the reload still count, so any may be refused


@pytest.mark.parametrize("is_told", [True, False], ids=["SIGHUP", "no signal"])
async def test_what_the_owner_of_a_revoked_token_left_running_is_stopped(
    folder: Path, caplog: pytest.LogCaptureFixture, is_told: bool
) -> None:
    """observability-29: runs and tasks with all their processes, and calls; what others run goes on."""
    his, others, asked = marker(), marker(), marker()
    async with operated(folder, caplog) as (server, mcp_client):
        _, token = create_token(str(folder / "tokens"), name="leaver", role="default")
        leaver = HttpMcpClient(mcp_client.http, server.url, token=token)
        tree = f"sh -c 'sleep {his} & sleep {his}'"
        task = await leaver.stateless("tools/call", "run_command", arguments={"command": tree}, meta=TAKES_TASKS)
        assert messages_in(task)[-1]["result"]["resultType"] == "task"
        await leaver.initialize()
        await call_text(leaver, "run_command", command=tree, wait_seconds=0)
        run = (
            (await call_text(mcp_client, "run_command", command=f"sleep {others}", wait_seconds=0))
            .partition(" ")[0]
            .strip("[")
        )
        answers: list[str] = []

        async def call() -> None:
            answers.append(await call_text(leaver, "run_command", command=f"sh -c 'echo {asked}; {CALLED}'"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until((folder / "a" / "up").exists)
            await to_thread.run_sync(wait_until_some, f"sleep {his}", 4)
            assert len(revoke_tokens(str(folder / "tokens"), "leaver")) == 1
            if is_told:
                assert (await server.reloaded()).startswith("reloaded: ")
            assert await to_thread.run_sync(wait_until_none, his) == []
            assert answers == []
            (folder / "a" / "go").touch()
        assert answers == [f"{asked}\nfinished"]
        assert len(processes_with(f"sleep {others}")) == 1
        assert "access of leaver as default was revoked; stopped: 2 runs, 1 task" in caplog.text
        assert "401" in await call_text(leaver, "list_runs")
        assert run in await call_text(mcp_client, "list_runs")


async def test_what_a_principal_of_an_issuer_left_running_is_stopped(
    folder: Path, caplog: pytest.LogCaptureFixture, authorization_server: AuthorizationServer
) -> None:
    """observability-29: when his claims give no role any more; another principal's runs of the same role go on."""
    both = '[auth.jwt.roles]\nbuilders = "default"\ngardeners = "default"\n'
    issuer = f'[server]\npublic_url = "{authorization_server.resource}"\nhosts = ["127.0.0.1:*"]\n'
    issuer += f'[auth.jwt]\nissuer = "{authorization_server.issuer}"\nrole_claim = "team"\n'
    seconds = {"builders": marker(), "gardeners": marker()}
    async with operated(folder, caplog, issuer + both) as (server, mcp_client):
        token = await authorization_server.token()
        claims = jwt.decode(token, options={"verify_signature": False})
        for team, mark in seconds.items():
            token = authorization_server.signed({}, {**claims, "sub": f"of-{team}", "team": team})
            owner = HttpMcpClient(mcp_client.http, server.url, token=token)
            await owner.initialize()
            await call_text(owner, "run_command", command=f"sleep {mark}", wait_seconds=0)
            await to_thread.run_sync(wait_until_some, f"sleep {mark}")
        server.write(config=server.config(more=issuer + both.replace("gardeners", "florists")))
        assert "auth.jwt.roles.gardeners" in await server.reloaded()
        assert await to_thread.run_sync(wait_until_none, f"sleep {seconds['gardeners']}") == []
        assert len(processes_with(f"sleep {seconds['builders']}")) == 1


async def test_listeners_are_notified_of_changed_lists(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """observability-22, notifications-1: in a session opened before, which still watches its resources."""
    async with operated(folder, caplog) as (server, mcp_client):
        await mcp_client.ask("resources/subscribe", {"uri": "coretools://files/which.txt"})
        async with mcp_client.http.stream("GET", mcp_client.url, headers=mcp_client.headers()) as stream:
            server.write(policy='[catalog]\nwithout = ["write_file"]')
            assert await server.reloaded() == "reloaded: policy.catalog.without unset -> [write_file]"
            with anyio.fail_after(SECONDS):
                lines = stream.aiter_lines()
                while "notifications/tools/list_changed" not in await anext(lines):
                    pass
                (folder / "a" / "which.txt").write_text("another")
                while "notifications/resources/updated" not in await anext(lines):
                    pass
        assert "failed inside" not in caplog.text
        assert "reading the version of a resource failed" not in caplog.text
        assert "write_file is not offered here" in await call_text(mcp_client, "write_file", path="x", content="x")


async def test_replaced_resources_are_closed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """observability-25: after any number of reloads there are as many descriptors and children as before."""

    def resources() -> tuple[int, int]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return len(os.listdir("/proc/self/fd")), len(children)

    async with operated(folder, caplog) as (server, mcp_client):
        assert await call_text(mcp_client, "run_command", command="echo here") == "here"
        server.write(policy=DENIED)
        await server.reloaded()
        assert await call_text(mcp_client, "run_command", command="echo here") == "here"
        before = resources()
        for number in range(3):
            server.write(policy=f'{DENIED}reason = "{number}"')
            await server.reloaded()
            assert await call_text(mcp_client, "run_command", command="echo here") == "here"
        with anyio.fail_after(SECONDS):
            await until(lambda: all(now <= then for now, then in zip(resources(), before, strict=True)))


def test_keys_that_need_a_restart_stay_unchanged() -> None:
    """observability-26: all other keys apply."""
    before = Config()
    after = Config.model_validate(
        {
            "server": {"port": 1, "hosts": ("x",), "tls_certificate": "c", "tls_key": "k"},
            "limits": {"sessions": 2, "connections": 2},
            "auth": {"tokens": "t"},
            "redis": {"url": "redis://:hidden@h/0"},
            "services": {"url": "redis://:hidden@h/1"},
            "log": {"level": "debug", "format": "text"},
        }
    )
    named = {str(one) for one in changes_of_config(before, after) if needs_restart(one, before, after)}
    assert {one.partition(" ")[0] for one in named} == {
        *("server.port", "server.tls_certificate", "server.tls_key", "limits.connections", "auth.tokens"),
        *("redis.url", "services.url", "log.format"),
    }
    kept = effective_config(before, after)
    assert (kept.server.hosts, kept.limits.sessions, kept.log.level) == (("x",), 2, "debug")
    left = [change for change in changes_of_config(before, kept) if needs_restart(change, before, after)]
    assert left == []
