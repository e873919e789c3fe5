"""Logins to remote servers, and attacks on them (docs/specs/client-authorization.md)."""

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import pytest
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from coretools.client.authorization.requests import AddressRules
from coretools.client.common.errors import AuthenticationRequired, LoginRequired, ProtocolViolation
from coretools.client.configuration.launch import RemoteLaunch, launch_of
from coretools.client.configuration.server_entries import load_configuration
from coretools.client.connection.options import State
from coretools.client.connection.server_connection import Connection
from coretools.errors import BadSetting, DeadlinePassed, Unreachable
from tests.client.authorization import (
    SECRET,
    AuthorizationServer,
    ResourceServer,
    browse,
    connecting,
    logging_in,
    login_error,
    protected,
    stored,
)
from tests.variables import variables as environment_variables
from tests.web.certificates import write_certificate

WELL_KNOWN = "https://auth.example/.well-known/oauth-authorization-server/tenant"
Peers = tuple[ResourceServer, AuthorizationServer]
NEEDS_LOGIN = "server 'a': needs a login; run `coretools mcp login a --config {}/servers.json`"


@pytest.fixture(scope="module", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One certificate authority instead of 140, which each client of HTTP loads: nothing here is encrypted."""
    authority = write_certificate(tmp_path_factory.mktemp("authority")).path
    with environment_variables(SSL_CERT_FILE=str(authority)):
        yield


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    async with protected() as found:
        yield found


async def echoed(connection: Connection, text: str = "hello") -> str:
    result = await connection.call("echo", {"text": text})
    return result.content[0].text  # type: ignore[union-attr]


async def test_a_server_that_wants_a_login_is_refused_and_nothing_it_names_is_asked(
    tmp_path: Path, peers: Peers
) -> None:
    """client-authorization-1"""
    resource, authorization = peers
    async with connecting(tmp_path, resource.url) as connection:
        assert isinstance(connection.error, LoginRequired)
        assert str(connection.error) == NEEDS_LOGIN.format(tmp_path)
    assert {path for path, _ in resource.seen} == {"/mcp"}
    assert authorization.seen == []
    assert stored(tmp_path) == []


async def test_a_header_of_the_entry_is_sent_instead_of_a_token(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-1: also after a login, and a refused one is an error without a command."""
    resource, _authorization = peers
    async with logging_in(tmp_path, resource.url) as connection:
        assert connection.error is None
    resource.seen.clear()
    async with connecting(tmp_path, resource.url, headers={"authorization": "Bearer mine"}) as connection:
        assert isinstance(connection.error, AuthenticationRequired)
        assert "set `headers` in its entry" in str(connection.error)
    assert {header for _, header in resource.seen} == {"Bearer mine"}


async def test_a_login_finds_the_server_registers_and_keeps_the_tokens(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-2, client-authorization-3: with PKCE, state and resource; the next process uses them."""
    resource, authorization = peers
    pages: list[str] = []

    async def visit(address: str) -> None:
        pages.append((await browse(address)).text)

    async with logging_in(tmp_path, resource.url, visit) as connection:
        assert connection.error is None
        assert await echoed(connection) == "hello"
    asked = dict(authorization.seen)["/authorize"]
    assert (asked["code_challenge_method"], asked["resource"], asked["scope"]) == ("S256", resource.url, "tools")
    assert urlsplit(asked["redirect_uri"]).hostname == "127.0.0.1"
    assert "You can close this page" in pages[0]
    assert asked["state"] not in pages[0]
    [file] = stored(tmp_path)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert urlsplit(resource.url).netloc not in file.name
    authorization.seen.clear()
    async with connecting(tmp_path, resource.url) as connection:
        assert await echoed(connection) == "hello"
    assert authorization.seen == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", urlsplit(asked["redirect_uri"]).port or 0)).close()


async def test_a_token_that_expires_is_renewed_before_it_is_sent(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-4: at the endpoint of the authorization server, and not at the server's."""
    resource, authorization = peers
    authorization.lifetime = 0
    async with logging_in(tmp_path, resource.url) as connection:
        assert connection.error is None
    resource.seen.clear()
    authorization.seen.clear()
    authorization.lifetime = 3600
    async with connecting(tmp_path, resource.url) as connection:
        assert await echoed(connection) == "hello"
    assert [path for path, _ in authorization.seen] == ["/token"]
    assert {path for path, _ in resource.seen} == {"/mcp"}
    assert len({header for _, header in resource.seen}) == 1


async def test_a_token_that_is_refused_is_renewed_once(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-4: a refresh token that is refused is forgotten, and a login is needed."""
    resource, authorization = peers
    async with logging_in(tmp_path, resource.url) as connection:
        assert connection.error is None
    async with connecting(tmp_path, resource.url) as connection:
        authorization.valid.clear()
        assert await echoed(connection) == "hello"
        authorization.valid.clear()
        authorization.refresh_tokens.clear()
        with pytest.raises(
            LoginRequired, match="server 'a': call echo: needs a login; run `coretools mcp login a --config "
        ):
            await echoed(connection)
    authorization.seen.clear()
    async with connecting(tmp_path, resource.url) as connection:
        assert str(connection.error) == NEEDS_LOGIN.format(tmp_path)
    assert authorization.seen == []


async def test_several_users_of_a_token_renew_it_once(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-4: the refresh token is valid once; each connection has a lock of its own on the file."""
    resource, authorization = peers
    authorization.lifetime = 0
    async with logging_in(tmp_path, resource.url) as connection:
        assert connection.error is None
    authorization.lifetime = 3600
    authorization.seen.clear()
    answers: list[str] = []

    async def use(number: int) -> None:
        async with connecting(tmp_path, resource.url) as connection:
            answers.append(await echoed(connection, str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(use, number)
    assert sorted(answers) == ["0", "1", "2", "3"]
    assert authorization.count("/token") == 1


async def test_a_call_that_lacks_a_scope_names_it_and_the_next_login_asks_for_it(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-6: beside the scopes that were granted before."""
    resource, authorization = peers
    async with logging_in(tmp_path, resource.url) as connection:
        assert connection.error is None
    resource.wants_scope = "write"
    async with connecting(tmp_path, resource.url) as connection:
        with pytest.raises(
            LoginRequired, match="needs a login with the scope 'write'; run `coretools mcp login a --config "
        ):
            await echoed(connection)
    async with logging_in(tmp_path, resource.url) as connection:
        assert await echoed(connection) == "hello"
    assert [set(given["scope"].split()) for path, given in authorization.seen if path == "/authorize"] == [
        {"tools"},
        {"tools", "write"},
    ]


def mode_644(file: Path) -> None:
    file.chmod(0o644)


def damaged(file: Path) -> None:
    file.write_text("{")


def newer(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "sealed": True}))


def linked(file: Path) -> None:
    file.rename(file.with_suffix(".old"))
    file.symlink_to(file.with_suffix(".old"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (mode_644, "others can read the tokens in it"),
        (damaged, "is damaged"),
        (linked, "cannot be read"),
        (newer, "a newer version of coretools wrote it"),
    ],
)
async def test_a_file_of_tokens_that_others_can_read_or_that_is_damaged_is_refused(
    tmp_path: Path, peers: Peers, change: Callable[[Path], None], message: str
) -> None:
    """client-authorization-3, installation-12: what this version does not know would be lost by renewing the token."""
    resource, _ = peers
    async with logging_in(tmp_path, resource.url) as connection:
        assert connection.error is None
    change(stored(tmp_path)[0])
    resource.seen.clear()
    async with connecting(tmp_path, resource.url) as connection:
        assert isinstance(connection.error, BadSetting)
        assert message in str(connection.error)
    assert {header for _, header in resource.seen} == {""}


async def test_a_token_stays_with_its_server(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-5: not to another path of another host by a redirect, and not to another URL or client."""
    resource, _authorization = peers
    async with logging_in(tmp_path, resource.url) as connection:
        assert connection.error is None
    async with protected() as (other, _):
        for url, entry in ((other.url, {}), (resource.url, {"oauth": {"clientId": "another"}})):
            async with connecting(tmp_path, url, **entry) as connection:
                assert isinstance(connection.error, LoginRequired)
        assert {header for _, header in other.seen} == {""}
        other.seen.clear()
        for status in (302, 307, 308):
            resource.reply = RedirectResponse(other.url, status)
            async with connecting(tmp_path, resource.url) as connection:
                assert connection.state is State.FAILED
        assert other.seen == []


async def test_no_message_contains_a_token(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-5: also if the server repeats it."""
    resource, _authorization = peers
    async with logging_in(tmp_path, resource.url) as connection:
        token = resource.seen[-1][1].removeprefix("Bearer ")
        error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32050, "message": f"cannot use {token}"}}
        resource.reply = JSONResponse(error, status_code=400)
        with pytest.raises(ProtocolViolation) as caught:
            await echoed(connection)
    assert token.startswith("access-token-")
    assert "cannot use [redacted:" in str(caught.value)


async def test_a_stranger_at_the_listener_changes_nothing(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-2: another state, path, host, method or a repeated code is refused; the login goes on."""
    resource, authorization = peers
    statuses: list[int] = []

    async def visit(address: str) -> None:
        redirect, state = (authorization_parameters(address)[name] for name in ("redirect_uri", "state"))
        good = f"{redirect}?state={state}"
        for url, method, headers in (
            (f"{redirect}?code=injected&state=other", "GET", {}),
            (f"{redirect}?code=injected", "GET", {}),
            (f"{good}&state={state}&code=injected", "GET", {}),
            (f"{redirect}/other?state={state}&code=injected", "GET", {}),
            (f"{good}&code=injected", "POST", {}),
            (f"{good}&code=injected", "GET", {"Host": "attacker.example"}),
        ):
            statuses.append((await browse(url, method, headers)).status_code)
        parts = urlsplit(redirect)
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as mute:
            mute.sendall(b"\xff" * 20_000)
        statuses.append((await browse(address)).status_code)

    async with logging_in(tmp_path, resource.url, visit) as connection:
        assert connection.error is None
        assert await echoed(connection) == "hello"
    assert statuses == [400] * 6 + [200]
    assert authorization.count("/token") == 1


def authorization_parameters(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 65_536
        await anyio.lowlevel.checkpoint()


Change = Callable[[ResourceServer, AuthorizationServer], None]


def metadata(**changes: Any) -> Change:
    def change(resource: ResourceServer, authorization: AuthorizationServer) -> None:
        authorization.metadata = {
            name: value.replace("ISSUER", authorization.issuer) if isinstance(value, str) else value
            for name, value in changes.items()
        }

    return change


def resource_metadata(**changes: Any) -> Change:
    def change(resource: ResourceServer, authorization: AuthorizationServer) -> None:
        resource.metadata = changes

    return change


def challenge(text: str) -> Change:
    def change(resource: ResourceServer, authorization: AuthorizationServer) -> None:
        resource.challenge = text

    return change


def redirected(**changes: str) -> Change:
    def change(resource: ResourceServer, authorization: AuthorizationServer) -> None:
        authorization.redirected = changes

    return change


def reply(path: str, response: Callable[[], Response]) -> Change:
    def change(resource: ResourceServer, authorization: AuthorizationServer) -> None:
        authorization.replies[path] = response()

    return change


def token(**content: Any) -> Change:
    return reply("/token", lambda: JSONResponse({"token_type": "Bearer", **content}))


METADATA = "/.well-known/oauth-authorization-server"
ATTACKS: dict[str, tuple[Change, type[Exception] | tuple[type[Exception], ...], str]] = {
    "another issuer": (metadata(issuer="http://127.0.0.1:1"), AuthenticationRequired, "issuer mismatch"),
    "issuer in the answer": (redirected(iss="http://127.0.0.1:1"), AuthenticationRequired, "iss mismatch"),
    "no issuer in the answer": (
        lambda resource, server: (
            metadata(authorization_response_iss_parameter_supported=True)(resource, server),
            redirected(iss="")(resource, server),
        )[0],
        AuthenticationRequired,
        "missing iss",
    ),
    "no PKCE": (metadata(code_challenge_methods_supported=None), AuthenticationRequired, "does not support PKCE"),
    "plain PKCE": (
        metadata(code_challenge_methods_supported=["plain"]),
        AuthenticationRequired,
        "does not support PKCE",
    ),
    "mix-up": (
        metadata(authorization_endpoint="http://127.0.0.1:1/authorize"),
        AuthenticationRequired,
        "leads to http://127.0.0.1:1; set `oauth.issuer` to",
    ),
    "login page in a file": (metadata(authorization_endpoint="file:///etc/passwd"), AuthenticationRequired, ""),
    "login page in a script": (metadata(authorization_endpoint="javascript:alert(1)"), AuthenticationRequired, ""),
    "metadata in a file": (challenge('Bearer resource_metadata="file:///etc/passwd"'), AuthenticationRequired, "file:"),
    "metadata in the cloud": (
        challenge('Bearer resource_metadata="http://169.254.169.254/latest"'),
        AuthenticationRequired,
        "leads to http://169.254.169.254, which is not encrypted",
    ),
    "metadata of a user": (
        challenge('Bearer resource_metadata="http://user:secret@127.0.0.1:1/"'),
        AuthenticationRequired,
        "which is no http address without a user",
    ),
    "not encrypted": (
        resource_metadata(authorization_servers=["http://198.51.100.1/"]),
        AuthenticationRequired,
        "leads to http://198.51.100.1, which is not encrypted",
    ),
    "resource of another": (
        resource_metadata(resource="http://127.0.0.1:1/mcp"),
        AuthenticationRequired,
        "does not match expected",
    ),
    "access denied": (
        redirected(error="access_denied", error_description="not you\x1b[2J", code=""),
        AuthenticationRequired,
        "the login was refused: access_denied: not you",
    ),
    "no registration": (metadata(registration_endpoint=None), AuthenticationRequired, "Registration failed"),
    "a secret in an error": (
        reply("/token", lambda: JSONResponse({"error": "invalid_grant"}, status_code=400)),
        AuthenticationRequired,
        "Token exchange failed (400)",
    ),
    "a redirect of the token request": (
        reply("/token", lambda: RedirectResponse("http://127.0.0.1:1/token", 307)),
        AuthenticationRequired,
        "Token exchange failed (307)",
    ),
    "endless metadata": (
        reply(METADATA, lambda: StreamingResponse(endless())),
        ProtocolViolation,
        "sent more than 1048576 bytes",
    ),
    "endless token": (
        reply("/token", lambda: StreamingResponse(endless())),
        ProtocolViolation,
        "sent more than 1048576 bytes",
    ),
    "no token": (
        reply("/token", lambda: JSONResponse([])),
        AuthenticationRequired,
        "the authorization server sent a wrong answer",
    ),
    "token with a line break": (token(access_token="a\r\nX: y"), AuthenticationRequired, "no header can carry"),
    "token that is no ASCII": (token(access_token="\u0130"), AuthenticationRequired, "no header can carry"),
    "token for ever": (token(access_token="a", expires_in=10**400), AuthenticationRequired, "the login failed: "),
    "token of another type": (
        token(access_token="a", token_type="mac"),
        AuthenticationRequired,
        "wrong answer: token_type",
    ),
    "address that is none": (challenge('Bearer resource_metadata="http://[::1"'), AuthenticationRequired, "failed: "),
    "port that is none": (
        challenge('Bearer resource_metadata="http://[::1]:99999/"'),
        AuthenticationRequired,
        "no http address",
    ),
    "host that is none": (
        challenge(f'Bearer resource_metadata="https://{"a" * 70}.{"b" * 300}/"'),
        (AuthenticationRequired, Unreachable),
        "",
    ),
    "overloaded": (reply("/token", lambda: Response(status_code=503)), Unreachable, "answers HTTP 503"),
    "gone": (
        resource_metadata(authorization_servers=["http://127.0.0.1:1/"]),
        Unreachable,
        "the authorization server at http://127.0.0.1:1 can't be reached",
    ),
}


async def test_a_login_that_goes_wrong_ends_with_its_reason_and_no_tokens(tmp_path: Path) -> None:
    """client-authorization-7, client-authorization-8, client-authorization-9: and no code or token leaves."""

    async def attack(name: str) -> None:
        change, kind, message = ATTACKS[name]
        home = tmp_path / name
        async with protected() as (resource, authorization):
            change(resource, authorization)
            error = await login_error(home, resource.url)
            assert isinstance(error, kind), (name, error)
            assert message in str(error), name
            assert stored(home) == []
            assert {header for _, header in resource.seen} == {""}
            if kind is AuthenticationRequired and "oken" not in name + message:
                assert authorization.count("/token") == 0, name

    async with anyio.create_task_group() as tasks:
        for name in ATTACKS:
            tasks.start_soon(attack, name)


async def test_a_silent_authorization_server_ends_with_the_time_of_the_login(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-9"""
    resource, _authorization = peers
    asked: list[str] = []

    async def visit(address: str) -> None:
        asked.append(address)

    async with logging_in(tmp_path, resource.url, visit, seconds=0.5) as connection:
        assert isinstance(connection.error, DeadlinePassed)
    assert len(asked) <= 1  # a busy machine may not come that far


@pytest.mark.parametrize(
    ("server", "address", "is_allowed"),
    [
        ("https://8.8.8.8/mcp", "https://9.9.9.9/token", True),
        ("https://8.8.8.8/mcp", "https://10.0.0.1/token", False),
        ("https://8.8.8.8/mcp", "https://127.0.0.1/token", False),
        ("https://8.8.8.8/mcp", "http://localhost:8080/token", False),
        ("https://8.8.8.8/mcp", "https://[::1]/token", False),
        ("https://8.8.8.8/mcp", "https://[::ffff:127.0.0.1]/token", False),
        ("https://8.8.8.8/mcp", "https://169.254.169.254/latest", False),
        ("https://8.8.8.8/mcp", "https://0.0.0.0/token", False),
        ("https://8.8.8.8/mcp", "https://8.8.8.8:8443/token", True),
        ("https://8.8.8.8/mcp", "http://9.9.9.9/token", False),
        ("https://8.8.8.8/mcp", "https://user@9.9.9.9/token", False),
        ("https://8.8.8.8/mcp", "ftp://9.9.9.9/token", False),
        ("https://10.0.0.2/mcp", "https://10.0.0.1/token", True),
        ("https://10.0.0.2/mcp", "https://8.8.8.8/token", True),
        ("https://10.0.0.2/mcp", "https://127.0.0.1/token", False),
        ("http://127.0.0.1:1/mcp", "https://10.0.0.1/token", True),
        ("http://127.0.0.1:1/mcp", "http://localhost:2/token", True),
        ("http://127.0.0.1:1/mcp", "https://169.254.169.254/latest", False),
        ("https://8.8.8.8/mcp", "https://10.9.9.9/token", True),
    ],
)
async def test_an_address_is_asked_only_if_the_server_could_be_asked_from_there(
    server: str, address: str, is_allowed: bool
) -> None:
    """client-authorization-7: the last one is configured."""
    rules = AddressRules(server, ["https://10.9.9.9"])
    if is_allowed:
        await rules.check(address)
    else:
        with pytest.raises(AuthenticationRequired):
            await rules.check(address)


async def test_client_credentials_need_no_person_and_go_to_their_issuer_only(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-10: nothing is stored; a server that names another issuer gets nothing."""
    resource, authorization = peers
    oauth = {"grant": "client_credentials", "clientId": "ci", "clientSecret": SECRET}
    async with connecting(tmp_path, resource.url, oauth=oauth) as connection:
        assert isinstance(connection.error, AuthenticationRequired)
        assert "issuer" in str(connection.error)
    assert SECRET not in json.dumps(authorization.seen)
    assert authorization.count("/token") == 0
    async with connecting(tmp_path, resource.url, oauth=oauth | {"issuer": authorization.issuer}) as connection:
        assert await echoed(connection) == "hello"
        authorization.valid.clear()
        assert await echoed(connection) == "hello"
    grants = [given["grant_type"] for path, given in authorization.seen if path == "/token"]
    assert set(grants) == {"client_credentials"}
    assert stored(tmp_path) == []


Visit = Callable[[str], Awaitable[object]]


@pytest.mark.parametrize(
    ("keys", "expected", "remarks"),
    [
        (  # Claude Code
            {"oauth": {"clientId": "id", "callbackPort": 8080, "authServerMetadataUrl": WELL_KNOWN, "scopes": "a b"}},
            {"client_id": "id", "redirect_port": 8080, "issuer": "https://auth.example/tenant", "scope": "a b"},
            [],
        ),
        (  # Cursor
            {"auth": {"CLIENT_ID": "id", "CLIENT_SECRET": "${env:KEY}", "scopes": ["a", "b"]}},
            {"client_id": "id", "client_secret": "from-the-environment", "scope": "a b", "issuer": None},
            [],
        ),
        (  # Codex
            {"scopes": ["a", "b"], "oauth_resource": "https://r.example"},
            {"scope": "a b", "client_id": None},
            ["the key 'oauth_resource' has no effect here"],
        ),
        (  # Gemini
            {"oauth": {"enabled": True, "audiences": ["x"], "redirectUri": "http://localhost:7777/oauth/callback"}},
            {"redirect_host": "localhost", "redirect_port": 7777, "redirect_path": "/oauth/callback"},
            ["the key 'oauth.audiences' has no effect here"],
        ),
        ({"auth": "oauth"}, {"client_id": None}, []),  # FastMCP
        ({"oauth": {"clientID": "id"}}, {"client_id": None}, ["unknown key 'oauth.clientID'"]),
    ],
)
def test_the_keys_of_each_client_are_read(
    tmp_path: Path, keys: dict[str, Any], expected: dict[str, Any], remarks: list[str]
) -> None:
    """client-authorization-11"""
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"url": "https://mcp.example/mcp", **keys}}}))
    variables = {"HOME": str(tmp_path), "KEY": "from-the-environment"}
    [entry] = load_configuration(str(tmp_path), variables, file=str(file)).effective
    launch = launch_of(entry, variables, {})
    assert isinstance(launch, RemoteLaunch)
    assert {name: getattr(launch.oauth, name) for name in expected} == expected
    assert list(entry.remarks) == remarks
    assert "from-the-environment" not in repr(launch)


async def test_a_configured_client_with_a_secret_and_endpoints_of_its_own(tmp_path: Path, peers: Peers) -> None:
    """client-authorization-11: Gemini's keys; no document is fetched, nothing registered."""
    resource, authorization = peers
    oauth = {
        "enabled": True,
        "clientId": "mine",
        "clientSecret": SECRET,
        "authorizationUrl": f"{authorization.issuer}/authorize",
        "tokenUrl": f"{authorization.issuer}/token",
        "scopes": ["one", "two"],
        "redirectUri": f"http://localhost:{free_port()}/oauth/callback",
    }
    async with logging_in(tmp_path, resource.url, entry={"oauth": oauth}) as connection:
        assert connection.error is None, connection.error
    assert [path for path, _ in authorization.seen] == ["/authorize", "/token"]
    asked = authorization.seen[0][1]
    assert (asked["client_id"], asked["scope"]) == ("mine", "one two")
    assert asked["redirect_uri"] == oauth["redirectUri"]
    assert {path for path, _ in resource.seen} == {"/mcp"}
    assert SECRET not in stored(tmp_path)[0].read_text()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
