"""An hour of an operator: one `coretools-http` with TLS and tokens, and what happens to it from its start to its end.

Each stage is a function that finds the server as the one before it left it (docs/specs/operations.md).
"""

import ssl
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from coretools.serving.web.auth.hashed_tokens import create_token
from tests.serving.web.by_hand import Hand
from tests.serving.web.certificates import Certificate, write_certificate
from tests.serving.web.http_server_peer import HttpServer, http_server

SECONDS = 60.0

CONFIGURATION = """
[server]
tls_certificate = "{certificate.path}"
tls_key = "{certificate.key}"
drain_seconds = 2.0

[auth]
tokens = "{tokens}"

[roles.hurried]
roots = ["{root}:ro"]
requests_per_second = 20
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

    def token(self, name: str, role: str = "default") -> str:
        """A new one."""
        return create_token(str(self.tokens), name=name, role=role)[1]

    def client(self, token: str = "", **options: object) -> httpx2.AsyncClient:
        """One that trusts the certificate of the server's start and keeps its connections."""
        trusting = ssl.create_default_context(cafile=str(self.certificate.path))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.AsyncClient(verify=trusting, timeout=SECONDS, headers=headers, trust_env=False)


async def test_an_operators_hour(tmp_path: Path) -> None:
    """Nobody loses a connection, a session or an answer, whatever the operator and others do."""
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
            await no_connection_is_lost_at_the_rate_limit(hour)
            await no_session_is_lost_at_the_rate_limit(hour)
        assert "Traceback" not in server.log.read_text()


async def no_connection_is_lost_at_the_rate_limit(hour: Hour) -> None:
    """guard-9, guard-28: 400 requests over TLS on connections that are kept; each gets its answer."""
    statuses: Counter[int] = Counter()
    async with hour.client() as http:
        hand = Hand(http, hour.server.url, token=hour.token("hasty", "hurried"))

        async def ask() -> None:
            for _ in range(50):
                answer = await hand.stateless("tools/call", "read_file", arguments={"path": "a.txt"})
                statuses[answer.status_code] += 1
                assert "connection" not in answer.headers

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(ask)
    assert statuses.keys() == {200, 429}
    assert statuses.total() == 400


async def no_session_is_lost_at_the_rate_limit(hour: Hour) -> None:
    """guard-28: the SDK's client has its calls refused, one by one, and its session goes on."""
    outcomes: Counter[str] = Counter()
    async with hour.client(hour.token("patient", "hurried")) as http:
        transport = streamable_http_client(hour.server.url, http_client=http)
        async with Client(transport, mode="legacy") as client:
            for _ in range(60):
                try:
                    await client.call_tool("read_file", {"path": "a.txt"})
                except MCPError as error:
                    outcomes[error.error.data["kind"]] += 1
                else:
                    outcomes["answered"] += 1
    assert outcomes.keys() == {"answered", "too-many-requests"}
