"""Tokens at the whole server: real clients, a real authorization server (docs/specs/authentication.md)."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.routing import Router
from starlette.testclient import TestClient

from coretools.errors import BadSetting
from coretools.protocol.draining import Draining
from coretools.web.auth.hashed_tokens import create_token, revoke_tokens
from coretools.web.auth.jwt_tokens import JwtVerifier
from coretools.web.auth.resource_metadata import WELL_KNOWN, metadata_routes, metadata_url
from coretools.web.auth.verifiers import TokenFileVerifier, create_verifier
from coretools.web.common.config import Config
from coretools.web.common.principals import Principal
from coretools.web.service import running_app
from tests.web.auth.authorization_server import AuthorizationServer
from tests.web.http_mcp_client import ENVELOPE, STATELESS, HttpMcpClient
from tests.web.plans import plan_of

ERAS = ("legacy", "auto")
SECONDS = 60
URL = "https://coretools.example.com/mcp"
JWT: dict[str, Any] = {"issuer": "https://as.example.com/tenant", "scopes": ("tools:read",)}


class MemoryTokenStorage:
    """Token storage of the SDK's client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("no client is registered here")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "README.md").write_text("hello there\n")
    return root


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "tokens.json")


def token_of(file: str, name: str = "ada", **more: Any) -> str:
    return create_token(file, name=name, **{"role": "default", **more})[1]


@asynccontextmanager
async def at_work(root: Path, **flags: Any) -> AsyncIterator[str]:
    """Serve a whole server at its public URL; yields that URL."""
    with anyio.fail_after(SECONDS), socket.create_server(("127.0.0.1", 0)) as accepting:
        port = accepting.getsockname()[1]
        url = f"http://127.0.0.1:{port}/mcp"
        keys = {"server.public_url": url, **{name.replace("__", "."): value for name, value in flags.items()}}
        plan = plan_of("--root", str(root), "--profile", "read", flags=keys)
        async with running_app(plan, port, Draining()) as site:
            options = uvicorn.Config(site.app, lifespan="off", log_level="warning", timeout_graceful_shutdown=1)
            server = uvicorn.Server(options)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(server.serve, sockets=[accepting]))
                yield url
                server.should_exit = True


def http(**more: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(trust_env=False, verify=False, timeout=SECONDS, **more)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_finds_its_way_from_a_refusal_to_a_call(
    authorization_server: AuthorizationServer, root: Path, mode: str
) -> None:
    """auth-22, auth-30: the SDK's client reads 401 and both sets of metadata, gets a token, and calls."""
    jwt = authorization_server.section(scopes=("tools:read",)).model_dump()
    async with at_work(root, auth__jwt=jwt) as url:
        kept = MemoryTokenStorage()
        provider = ClientCredentialsOAuthProvider(
            server_url=url,
            storage=kept,
            client_id="ci",
            client_secret=authorization_server.secret,
            issuer=authorization_server.issuer,
        )
        authorization_server.requests()
        async with (
            http(auth=provider) as client,
            Client(streamable_http_client(url, http_client=client), mode=mode) as mcp,
        ):
            result = await mcp.call_tool("read_file", {"path": "README.md"})
            assert "hello there" in str(result.content)
        assert kept.tokens is not None
        asked = authorization_server.requests()
        assert asked.count("/tenant/token") == 1
        assert asked.count("/tenant/jwks") == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_with_a_token_of_the_file_calls(root: Path, file: str, mode: str) -> None:
    """auth-1, auth-21: in both eras."""
    token = token_of(file)
    async with (
        at_work(root, auth__tokens=file) as url,
        http(headers={"Authorization": f"Bearer {token}"}) as client,
        Client(streamable_http_client(url, http_client=client), mode=mode) as mcp,
    ):
        assert "hello there" in str((await mcp.call_tool("read_file", {"path": "README.md"})).content)


async def test_a_session_needs_a_token_that_is_valid_now(root: Path, file: str) -> None:
    """auth-5, auth-21: a session id alone gives no access; a revoked token ends with the next request."""
    token, other = token_of(file), token_of(file, "eve")
    async with at_work(root, auth__tokens=file) as url, http() as client:
        mcp_client = HttpMcpClient(client, url, token)
        assert (await mcp_client.initialize()).status_code == 200
        assert (await mcp_client.call("read_file", path="README.md")).status_code == 200
        for stranger, status in (("", 401), ("ct_wrong", 401), (other, 404)):
            thief = HttpMcpClient(client, url, stranger, session=mcp_client.session)
            for method in ("GET", "DELETE"):
                assert (await client.request(method, url, headers=thief.headers())).status_code == status
            assert (await thief.call("read_file", path="README.md")).status_code == status
        revoke_tokens(file, "ada")
        assert (await mcp_client.call("read_file", path="README.md")).status_code == 401
        assert (await mcp_client.stateless("tools/list")).status_code == 401
        # The principal is the same with another token, so the session is still his.
        again = HttpMcpClient(client, url, token_of(file), session=mcp_client.session, last_id=10)
        assert (await again.call("read_file", path="README.md")).status_code == 200


async def test_the_stream_of_a_session_ends_with_its_token_and_the_session_does_not(root: Path, file: str) -> None:
    """auth-25: a client that has a new token opens another stream."""
    token = token_of(file)
    async with at_work(root, auth__tokens=file) as url, http() as client:
        mcp_client = HttpMcpClient(client, url, token)
        await mcp_client.initialize()
        brief = HttpMcpClient(
            client, url, token_of(file, expires=datetime.now(UTC) + timedelta(seconds=3)), session=mcp_client.session
        )
        async with client.stream("GET", url, headers=brief.headers()) as stream:
            assert stream.status_code == 200
            async for _ in stream.aiter_raw():
                pass
        assert (await client.get(url, headers=brief.headers())).status_code == 401
        async with client.stream("GET", url, headers=mcp_client.headers()) as stream:
            assert stream.status_code == 200
            assert (await mcp_client.call("read_file", path="README.md")).status_code == 200


async def test_listening_in_the_stateless_era_ends_with_the_token(root: Path, file: str) -> None:
    """auth-25: the client asks again with a new token."""
    token_of(file)
    async with at_work(root, auth__tokens=file) as url, http() as client:
        brief = HttpMcpClient(client, url, token_of(file, expires=datetime.now(UTC) + timedelta(seconds=3)))
        headers = {**brief.headers(), "MCP-Protocol-Version": STATELESS, "Mcp-Method": "subscriptions/listen"}
        params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
        body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        async with client.stream("POST", url, json=body, headers=headers) as stream:
            assert stream.status_code == 200
            text = b"".join([part async for part in stream.aiter_raw()])
            assert b"notifications/subscriptions/acknowledged" in text
        assert (await client.post(url, json=body, headers=headers)).status_code == 401


async def test_a_role_that_is_not_served_lets_nobody_in(root: Path, file: str) -> None:
    """auth-7: even if the token itself is valid."""
    token = token_of(file, role="admin")
    async with at_work(root, auth__tokens=file) as url, http() as client:
        answer = await HttpMcpClient(client, url, token).initialize()
    assert (answer.status_code, answer.json()["error"]["data"]["kind"]) == (403, "not-entitled")


def answered(config: Config, path: str) -> httpx2.Response:
    answer: Any = TestClient(Router(metadata_routes(config))).get(path)
    found: httpx2.Response = answer
    return found


def test_the_metadata_say_what_is_configured_and_nothing_else() -> None:
    """auth-30: at both addresses of RFC 9728, exactly as configured."""
    config = Config.model_validate({"server": {"public_url": URL}, "auth": {"jwt": JWT}})
    assert metadata_url(config) == f"https://coretools.example.com{WELL_KNOWN}/mcp"
    for path in (f"{WELL_KNOWN}/mcp", WELL_KNOWN):
        answer = answered(config, path)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == {
            "resource": URL,
            "authorization_servers": ["https://as.example.com/tenant"],
            "scopes_supported": ["tools:read"],
            "bearer_methods_supported": ["header"],
            "resource_name": "coretools",
        }
    assert answered(config, f"{WELL_KNOWN}/other").status_code == 404


def test_without_a_path_or_scopes_there_are_none_in_the_metadata() -> None:
    """auth-30: one address, and no list."""
    config = Config.model_validate(
        {
            "server": {"public_url": "https://coretools.example.com/"},
            "auth": {"jwt": {"issuer": "https://as.example.com"}},
        }
    )
    assert metadata_url(config) == f"https://coretools.example.com{WELL_KNOWN}"
    assert len(metadata_routes(config)) == 1
    assert "scopes_supported" not in answered(config, WELL_KNOWN).json()


def test_without_an_authorization_server_there_are_no_metadata() -> None:
    """auth-30: the operator hands out the tokens of the file."""
    assert metadata_routes(Config()) == []
    assert metadata_url(Config()) is None
    with pytest.raises(BadSetting):
        metadata_routes(Config.model_validate({"auth": {"jwt": JWT}}))


async def test_metadata_are_read_without_a_token(authorization_server: AuthorizationServer, root: Path) -> None:
    """auth-30: by clients that have none yet."""
    async with at_work(root, auth__jwt=authorization_server.section().model_dump()) as url, http() as client:
        answer = await client.get(url.replace("/mcp", f"{WELL_KNOWN}/mcp"))
        assert answer.json()["resource"] == url
        refused = await client.post(url, json={})
        assert f'resource_metadata="{url.replace("/mcp", WELL_KNOWN)}/mcp"' in refused.headers["www-authenticate"]


async def test_both_kinds_of_tokens_stand_side_by_side(authorization_server: AuthorizationServer, file: str) -> None:
    """auth-9: tokens with our prefix never reach the authorization server; it judges all others."""
    ours = token_of(file)
    both = {"tokens": file, "jwt": authorization_server.section().model_dump()}
    server = {"public_url": authorization_server.resource}
    verifier = create_verifier(Config.model_validate({"server": server, "auth": both}))
    assert verifier is not None
    theirs = await authorization_server.token()
    authorization_server.requests()
    assert await verifier.verify(ours) == Principal(name="ada")
    assert await verifier.verify("ct_wrong") is None
    assert authorization_server.requests() == []
    found = await verifier.verify(theirs)
    assert found is not None
    assert found.name == f"{authorization_server.issuer}#sub:ci"


def test_the_configuration_selects_the_verifiers(file: str) -> None:
    """auth-9: nothing, a token file, an issuer; a file that cannot be used ends the start."""
    assert create_verifier(Config()) is None
    with pytest.raises(BadSetting, match="there is no token file"):
        create_verifier(Config.model_validate({"auth": {"tokens": file}}))
    token_of(file)
    assert isinstance(create_verifier(Config.model_validate({"auth": {"tokens": file}})), TokenFileVerifier)
    by_jwt = create_verifier(Config.model_validate({"server": {"public_url": URL}, "auth": {"jwt": JWT}}))
    assert isinstance(by_jwt, JwtVerifier)
