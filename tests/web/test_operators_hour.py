"""An hour of an operator: one `coretools-http` with TLS and tokens, and what happens to it from its start to its end.

Each stage is a function that finds the server as the one before it left it (docs/specs/observability.md).
"""

import signal
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio import to_thread
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from coretools.web.auth.hashed_tokens import create_token
from tests.process.tree import until_exists, until_files
from tests.web.certificates import Certificate, write_certificate
from tests.web.http_mcp_client import HttpMcpClient, messages_in
from tests.web.http_server_peer import HttpServer, http_server

SECONDS = 60.0

RELOADING = "coretools.web.reload"

CONFIGURATION = """
[server]
tls_certificate = "{certificate.path}"
tls_key = "{certificate.key}"
hosts = ["127.0.0.1:*"]
proxies = ["127.0.0.2"]
drain_seconds = 60.0

[auth]
tokens = "{tokens}"

[roles.hurried]
roots = ["{root}:ro"]
requests_per_second = 5
burst = 5

[roles.default]
roots = ["{root}"]
requests_per_second = 0
"""


@dataclass(frozen=True)
class Hour:
    """The server, and the files that its operator may change."""

    server: HttpServer
    root: Path
    configuration: Path
    tokens: Path
    certificate: Certificate

    async def logged(self, **facts: object) -> None:
        """Wait for a line with these facts; a request is logged after its response is sent."""
        await self._log_has(lambda: any(facts.items() <= line.items() for line in self.server.lines))

    def token(self, name: str, role: str = "default") -> str:
        """Create a token."""
        return create_token(str(self.tokens), name=name, role=role)[1]

    def client(self, token: str = "", *, source: str = "127.0.0.1") -> httpx2.AsyncClient:
        """A client that trusts the server's first certificate and keeps its connections."""
        trusting = ssl.create_default_context(cafile=str(self.certificate.path))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        transport = httpx2.AsyncHTTPTransport(verify=trusting, local_address=source)
        return httpx2.AsyncClient(transport=transport, timeout=SECONDS, headers=headers)

    async def reloaded(self) -> tuple[str, str]:
        """Level and text of the log line about a reload."""
        before = len(self._of_reloads())
        self.server.process.send_signal(signal.SIGHUP)
        await self._log_has(lambda: len(self._of_reloads()) > before)
        return self._of_reloads()[before]

    async def _log_has(self, condition: Callable[[], bool]) -> None:
        await until_files(self.server.log.parent, condition, seconds=SECONDS)

    def _of_reloads(self) -> list[tuple[str, str]]:
        lines = self.server.lines
        return [(one["level"], one["message"]) for one in lines if one["logger"] == RELOADING]


async def test_an_operators_hour(tmp_path: Path) -> None:
    """No client loses a connection, a session or a response, whatever the operator and others do."""
    root, tokens, configuration = tmp_path / "root", tmp_path / "tokens.json", tmp_path / "http.toml"
    root.mkdir()
    (root / "a.txt").write_text("in the project\n")
    (tmp_path / "tls").mkdir()
    certificate = write_certificate(tmp_path / "tls")
    configuration.write_text(CONFIGURATION.format(certificate=certificate, tokens=tokens, root=root))
    create_token(str(tokens), name="first", role="default")
    with http_server(tmp_path, "--config", configuration, "--profile", "all") as server:
        hour = Hour(server, root, configuration, tokens, certificate)
        with anyio.fail_after(5 * SECONDS):
            await the_log_has_the_address_of_each_client(hour)
            await no_connection_is_lost_at_the_rate_limit(hour)
            await no_session_is_lost_at_the_rate_limit(hour)
            await invalid_tokens_lock_nobody_out(hour)
            await a_valid_file_is_in_force_at_once(hour)
            await an_invalid_file_changes_nothing(hour)
            await a_renewed_certificate_is_used_for_new_connections(hour)
            await the_shutdown_answers_every_request(hour)
        assert "Traceback" not in server.log.read_text()


async def no_connection_is_lost_at_the_rate_limit(hour: Hour) -> None:
    """validation-9, validation-28: 200 requests over TLS on persistent connections; each gets its response."""
    statuses: Counter[int] = Counter()
    async with hour.client() as http:
        mcp_client = HttpMcpClient(http, hour.server.url, token=hour.token("hasty", "hurried"))

        async def ask() -> None:
            for _ in range(25):
                answer = await mcp_client.stateless("tools/call", "read_file", arguments={"path": "a.txt"})
                statuses[answer.status_code] += 1
                assert "connection" not in answer.headers

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(ask)
    assert statuses.keys() == {200, 429}
    assert statuses.total() == 200


async def no_session_is_lost_at_the_rate_limit(hour: Hour) -> None:
    """validation-28: the SDK's client has single calls refused, and its session goes on."""
    outcomes: Counter[str] = Counter()
    async with hour.client(hour.token("patient", "hurried")) as http:
        transport = streamable_http_client(hour.server.url, http_client=http)
        async with Client(transport, mode="legacy") as client:
            # The fourth request of five. Without it the SDK's client asks for the list after its first answered call,
            # to check the result against the schema, and the refusal of that request is raised for the call.
            await client.list_tools()

            async def ask() -> None:
                try:
                    await client.call_tool("read_file", {"path": "a.txt"})
                except MCPError as error:
                    outcomes[error.error.data["kind"]] += 1
                else:
                    outcomes["answered"] += 1

            async with anyio.create_task_group() as tasks:
                for _ in range(40):
                    tasks.start_soon(ask)
            assert outcomes["too-many-requests"]
            answered = outcomes["answered"]
            while outcomes["answered"] == answered:
                await ask()
    assert outcomes.keys() == {"answered", "too-many-requests"}


async def invalid_tokens_lock_nobody_out(hour: Hour) -> None:
    """auth-24: they have to wait from the limit on; the valid token of the same address works all the time."""
    async with hour.client(hour.token("honest")) as http, hour.client() as guessing:
        honest = HttpMcpClient(http, hour.server.url)
        status, number = 401, 0
        while status == 401:
            number += 1
            guess = HttpMcpClient(guessing, hour.server.url, token=f"ct_wrong-{number}")
            status = (await guess.stateless("tools/list")).status_code
            assert (await honest.stateless("tools/list")).status_code == 200
    assert (status, number >= 30 - 1) == (429, True)  # an earlier stage tried one


async def the_log_has_the_address_of_each_client(hour: Hour) -> None:
    """observability-7, observability-8, observability-28: forwarded addresses are trusted from a declared proxy only.

    The first stage: with more than 50 refusals in a second some have no line.
    """
    forged = {"X-Forwarded-For": "192.0.2.7, 192.0.2.8, 127.0.0.2"}
    token = hour.token("proxied")
    for source, address in (("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "192.0.2.8")):
        async with hour.client(source=source) as http:
            http.headers.update(forged)
            wrong, right = (
                HttpMcpClient(http, hour.server.url, token="ct_x"),
                HttpMcpClient(http, hour.server.url, token=token),
            )
            assert (await wrong.stateless("tools/list")).status_code == 401
            elsewhere = {"Host": f"from-{address}.example"}
            assert (await http.get(hour.server.url, headers=elsewhere)).status_code == 421
            read = await right.stateless("tools/call", "read_file", arguments={"path": "a.txt"})
            assert read.status_code == 200
        await hour.logged(logger="coretools.requests", refused="invalid-token", address=address)
        await hour.logged(logger="coretools.requests", host=elsewhere["Host"], address=address)
        await hour.logged(logger="coretools.calls", principal="proxied", address=address)


async def a_valid_file_is_in_force_at_once(hour: Hour) -> None:
    """http-23, observability-22, observability-27: on SIGHUP, in an open session; what needs a restart is named."""
    written = hour.configuration.read_text()
    async with (
        hour.client(hour.token("writer")) as http,
        Client(streamable_http_client(hour.server.url, http_client=http), mode="legacy") as client,
    ):
        wrote = await client.call_tool("write_file", {"path": "b.txt", "content": "b"})
        assert not wrote.is_error
        changed = written.replace("drain_seconds = 60.0", "drain_seconds = 3.0")
        hour.configuration.write_text(f"{changed}read_only = true\n")
        level, message = await hour.reloaded()
        assert message.startswith("reloaded: roles.default.read_only false -> true; ")
        assert (level, message.partition("; needs a restart: ")[2]) == ("warning", "server.drain_seconds")
        with pytest.raises(MCPError, match="the server is read-only"):
            await client.call_tool("write_file", {"path": "b.txt", "content": "b"})
        hour.configuration.write_text(written)
        assert await hour.reloaded() == ("info", "reloaded: roles.default.read_only true -> false")
        wrote = await client.call_tool("write_file", {"path": "b.txt", "content": "again"})
        assert not wrote.is_error
        assert await hour.reloaded() == ("info", "reloaded: nothing changed")


async def an_invalid_file_changes_nothing(hour: Hour) -> None:
    """observability-23: not even its valid parts."""
    written = hour.configuration.read_text()
    hour.configuration.write_text(f"{written}read_only = true\n[limits]\nsesions = 1\n")
    level, message = await hour.reloaded()
    assert level == "error"
    assert message == (
        f"reload refused, nothing changed: {hour.configuration}: "
        "limits.sesions: unknown key; did you mean limits.sessions?"
    )
    hour.configuration.write_text(written)
    async with hour.client() as http:
        mcp_client = HttpMcpClient(http, hour.server.url, token=hour.token("second-writer"))
        wrote = await mcp_client.stateless("tools/call", "write_file", arguments={"path": "b.txt", "content": "b"})
        assert wrote.json()["result"]["isError"] is False


async def a_renewed_certificate_is_used_for_new_connections(hour: Hour) -> None:
    """observability-22, observability-23: open ones go on; an expired one, or one with another key, is refused."""
    folder = hour.certificate.path.parent
    kept = {path: path.read_bytes() for path in (hour.certificate.path, hour.certificate.key)}
    token = hour.token("long-lived")
    async with hour.client() as before, hour.client() as late:
        mcp_client = HttpMcpClient(before, hour.server.url, token=token)
        assert (await mcp_client.initialize()).status_code == 200
        write_certificate(folder, days=0)
        level, message = await hour.reloaded()
        assert (level, "certificate.pem: expired on" in message) == ("error", True)
        hour.certificate.key.write_bytes(kept[hour.certificate.key])
        level, message = await hour.reloaded()
        assert level == "error"
        assert "certificate.pem" in message
        write_certificate(folder)
        level, message = await hour.reloaded()
        assert (level, message.startswith("reloaded: certificate, valid until 20")) == ("info", True), message
        assert (await mcp_client.call("read_file", path="a.txt")).status_code == 200
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await HttpMcpClient(late, hour.server.url, token=token).initialize()
    async with hour.client() as after:
        assert (await HttpMcpClient(after, hour.server.url, token=token).initialize()).status_code == 200


async def the_shutdown_answers_every_request(hour: Hour) -> None:
    """http-18, observability-6: a stream goes on to its response; new clients get 503."""
    ended: list[httpx2.Response] = []
    waiting = "sh -c 'echo > up; while ! [ -e go ]; do sleep 0.05; done; echo finished'"
    async with hour.client(hour.token("late")) as http, anyio.create_task_group() as tasks:
        mcp_client = HttpMcpClient(http, hour.server.url)
        await mcp_client.initialize()

        async def call() -> None:
            ended.append(await mcp_client.call("run_command", command=waiting))

        tasks.start_soon(call)
        await until_exists(hour.root / "up")
        hour.server.process.send_signal(signal.SIGTERM)
        await hour.logged(message="ending: SIGTERM")
        for ask in (
            mcp_client.initialize,
            partial(mcp_client.call, "read_file", path="a.txt"),
            partial(mcp_client.stateless, "tools/list"),
        ):
            refused = await ask()
            assert (refused.status_code, refused.json()["error"]["data"]["kind"]) == (503, "ending")
            assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        assert (await http.get(hour.server.url, headers=mcp_client.headers())).status_code == 503
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4711}}
        assert (await mcp_client.post(cancelled)).status_code == 202
        base = hour.server.url.removesuffix("/mcp")
        async with hour.client() as stranger:  # on a connection of its own
            ready = await stranger.get(f"{base}/readyz")
            assert (ready.status_code, ready.json()["failing"]) == (503, ["draining"])
            assert (await stranger.get(f"{base}/healthz")).status_code == 200
        assert not ended
        (hour.root / "go").touch()
    (message,) = messages_in(ended[0])
    assert message["result"]["content"][0]["text"] == "finished"
    assert await to_thread.run_sync(hour.server.process.wait, SECONDS) == 128 + signal.SIGTERM
