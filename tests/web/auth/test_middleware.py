"""The authentication middleware over real connections (docs/specs/authentication.md)."""

import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from coretools.errors import Unreachable
from coretools.web.auth.hashed_tokens import create_token, revoke_tokens
from coretools.web.auth.local_caller import LocalCallerMiddleware
from coretools.web.auth.middleware import LONGEST_TOKEN, AuthMiddleware
from coretools.web.auth.verifiers import (
    MOST_ADDRESSES,
    WINDOW_SECONDS,
    FailureLimiter,
    ReplaceableVerifier,
    TokenFileVerifier,
    address_group,
)
from coretools.web.common.principals import NotEntitled, Principal, Verifier, principal_name, principal_role
from tests.protocol.http_peer import listening

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "QUERY")
METADATA = "https://coretools.example.com/.well-known/oauth-protected-resource/mcp"
MOST_FAILURES = 5
HELLO = b": hello\n\n"
SECONDS = 50


class GuardedApp:
    """The app behind the middleware: answers with the principal, or streams until it is done or stopped."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.done, self.stopped = anyio.Event(), anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.came.append(f"{scope['method']} {principal_name(scope)} {principal_role(scope)}")
        is_stream = scope["query_string"] == b"stream"
        headers = [(b"content-type", b"text/event-stream" if is_stream else b"application/json")]
        if scope["query_string"] == b"silent":
            await self._stay()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": HELLO, "more_body": is_stream})
        if is_stream:
            await self._stay()
            await send({"type": "http.response.body", "body": b"done"})

    async def _stay(self) -> None:
        try:
            await self.done.wait()
        except anyio.get_cancelled_exc_class():
            self.stopped.set()
            raise


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@asynccontextmanager
async def guarded(
    verifier: Verifier,
    behind: GuardedApp | None = None,
    *,
    metadata_url: str | None = None,
    scopes: Sequence[str] = (),
    looking: float = 5.0,
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an app behind the middleware."""
    failures = FailureLimiter(MOST_FAILURES)

    gate = AuthMiddleware(
        behind or GuardedApp(),
        verifier,
        failures=failures,
        metadata_url=metadata_url,
        scopes=scopes,
        recheck_seconds=looking,
    )
    with anyio.fail_after(SECONDS):
        async with listening(gate) as url, httpx2.AsyncClient(base_url=url, trust_env=False, verify=False) as client:
            yield client


class CountingVerifier:
    """A verifier that reports how often it was asked."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._count = 0
        self.often = anyio.Event()

    async def verify(self, token: str) -> Principal | None:
        self._count += 1
        if self._count > 5:
            self.often.set()
        return await self._verifier.verify(token)

    def admits(self, name: str, role: str) -> bool:
        return self._verifier.admits(name, role)


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def token_of(file: Path, name: str = "ci", role: str = "dev") -> str:
    return create_token(str(file), name=name, role=role)[1]


def rewrite(file: Path, text: str) -> None:
    """Replace a file atomically."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    new.replace(file)


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_needs_the_same_token(file: Path, method: str) -> None:
    """auth-21: every request that reaches the app has a principal."""
    token = token_of(file)
    behind = GuardedApp()
    async with guarded(TokenFileVerifier(str(file)), behind) as client:
        for headers in ({}, bearing("ct_wrong")):
            refused = await client.request(method, "/mcp", headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Bearer ")
        assert behind.came == []
        assert (await client.request(method, "/mcp", headers=bearing(token))).status_code == 200
    assert behind.came == [f"{method} ci dev"]


async def test_nobody_is_asked_where_no_tokens_are_configured() -> None:
    """auth-21: every caller is the single principal of a server on loopback, whatever headers are sent."""
    behind = GuardedApp()
    async with (
        listening(LocalCallerMiddleware(behind, "user")) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, verify=False) as client,
    ):
        for headers in ({}, bearing("ct_wrong"), {"Authorization": "Basic eDp5"}):
            assert (await client.post("/mcp", headers=headers)).status_code == 200
    assert behind.came == ["POST local default"] * 3


async def test_an_unknown_caller_is_answered_before_the_body_arrives(file: Path) -> None:
    """auth-21: 100 MB that the request announces are not waited for."""
    token_of(file)
    async with (
        guarded(TokenFileVerifier(str(file))) as client,
        await anyio.connect_tcp(client.base_url.host, client.base_url.port or 0) as stream,
    ):
        await stream.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n{")
        assert (await stream.receive()).startswith(b"HTTP/1.1 401 ")


async def test_the_challenge_names_where_tokens_are_issued(file: Path) -> None:
    """auth-22: an error code only if a token was sent (RFC 6750, 3.1); the metadata address of RFC 9728, 5.1."""
    token_of(file)
    async with guarded(TokenFileVerifier(str(file)), metadata_url=METADATA) as client:
        without = await client.post("/mcp")
        assert without.headers["www-authenticate"] == f'Bearer resource_metadata="{METADATA}"'
        wrong = await client.post("/mcp", headers=bearing("ct_wrong"))
        described = 'error_description="the token is not valid here, or no longer valid"'
        challenge = f'Bearer error="invalid_token", {described}, resource_metadata="{METADATA}"'
        assert wrong.headers["www-authenticate"] == challenge
        error = wrong.json()["error"]
        assert (error["data"]["kind"], error["code"], wrong.json()["id"]) == ("invalid-token", -32600, None)
        assert without.json()["error"]["data"]["kind"] == "unauthorized"
    async with guarded(TokenFileVerifier(str(file)), metadata_url=METADATA, scopes=("a", "b:c")) as client:
        challenge = f'Bearer scope="a b:c", resource_metadata="{METADATA}"'
        assert (await client.post("/mcp")).headers["www-authenticate"] == challenge
    async with guarded(TokenFileVerifier(str(file))) as client:
        assert (await client.post("/mcp")).headers["www-authenticate"] == 'Bearer realm="coretools"'


async def test_a_token_is_taken_from_the_header_only(file: Path) -> None:
    """auth-23: URLs are written to logs, and a form is a body."""
    token = token_of(file)
    behind = GuardedApp()
    async with guarded(TokenFileVerifier(str(file)), behind) as client:
        elsewhere = [
            await client.post(f"/mcp?access_token={token}"),
            await client.post("/mcp", data={"access_token": token}),
            await client.post("/mcp", headers={"Cookie": f"access_token={token}"}),
            await client.post("/mcp", headers={"X-Authorization": f"Bearer {token}", "Proxy-Authorization": token}),
        ]
        assert [answer.status_code for answer in elsewhere] == [401] * 4
        assert "error=" not in "".join(answer.headers["www-authenticate"] for answer in elsewhere)
    assert behind.came == []


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("Bearer TOKEN",), 200),
        (("bearer   TOKEN",), 200),
        (("BEARER TOKEN",), 200),
        (("Bearer TOKEN", "Bearer TOKEN"), 400),
        (("Bearer TOKEN", "Basic eDp5"), 400),
        (("Bearer wrong", "Bearer TOKEN"), 400),
        (("Bearer wrong, Bearer TOKEN",), 401),
        (("Bearer TOKEN, Bearer TOKEN",), 401),
        (("Bearer TOKEN x",), 401),
        (("Bearer",), 401),
        (("TOKEN",), 401),
        (("Basic TOKEN",), 401),
        (("BearerTOKEN",), 401),
        (("Bearer\tTOKEN",), 401),
        (('Bearer "TOKEN"',), 401),
        (("Bearer TOKEN\xe9",), 401),
        (("Bearer " + "x" * LONGEST_TOKEN + "x",), 401),
        (("",), 401),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_the_header_is_read_as_it_is_defined(file: Path, lines: tuple[str, ...], status: int) -> None:
    """auth-23: one header, one token, of bounded length; nothing is guessed."""
    token = token_of(file)
    headers = [(b"Authorization", line.replace("TOKEN", token).encode("latin-1")) for line in lines]
    async with guarded(TokenFileVerifier(str(file))) as client:
        assert (await client.post("/mcp", headers=headers)).status_code == status


class RefusingVerifier:
    """A verifier that is unavailable, or that refuses a known principal."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def verify(self, token: str) -> Principal | None:
        raise self._error

    def admits(self, name: str, role: str) -> bool:
        raise self._error


async def test_what_cannot_be_a_token_is_not_verified() -> None:
    """auth-23: too long, or with characters that no token has: the app never sees it."""
    async with guarded(RefusingVerifier(NotEntitled("seen"))) as client:
        for token, status in (("x" * LONGEST_TOKEN, 403), ("x" * LONGEST_TOKEN + "x", 401), ("x,y", 401), ("=x", 401)):
            assert (await client.post("/mcp", headers=bearing(token))).status_code == status


async def test_a_token_that_is_not_invalid_is_not_called_invalid() -> None:
    """auth-22: 503 while a token cannot be verified; 403 for a valid one without a scope, and the scopes needed."""
    async with guarded(RefusingVerifier(Unreachable("try again later"))) as client:
        for _ in range(MOST_FAILURES + 1):
            answer = await client.post("/mcp", headers=bearing("x"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "www-authenticate" not in answer.headers
    async with guarded(RefusingVerifier(NotEntitled("no", scopes=("a:b", "c"))), metadata_url=METADATA) as client:
        for _ in range(MOST_FAILURES + 1):
            answer = await client.post("/mcp", headers=bearing("x"))
        challenge = f'Bearer error="insufficient_scope", scope="a:b c", resource_metadata="{METADATA}"'
        assert (answer.status_code, answer.headers["www-authenticate"]) == (403, challenge)
    async with guarded(RefusingVerifier(NotEntitled("no role"))) as client:
        answer = await client.post("/mcp", headers=bearing("x"))
        assert (answer.status_code, "www-authenticate" in answer.headers) == (403, False)


async def test_guessing_tokens_is_throttled(file: Path) -> None:
    """auth-24: a client with a valid token is not throttled, however many invalid ones come from its address."""
    token = token_of(file)
    behind = GuardedApp()
    async with guarded(TokenFileVerifier(str(file)), behind) as client:
        for number in range(MOST_FAILURES):
            assert (await client.post("/mcp", headers=bearing(f"ct_{number}"))).status_code == 401
        for one in ("ct_more", "ct_0", "no token at all"):
            answer = await client.post("/mcp", headers=bearing(one))
            assert (answer.status_code, answer.json()["error"]["data"]["kind"]) == (429, "too-many-failures")
            assert 0 < int(answer.headers["retry-after"]) <= WINDOW_SECONDS
            assert (await client.post("/mcp", headers=bearing(token))).status_code == 200
        assert (await client.post("/mcp")).status_code == 401
    assert behind.came == ["POST ci dev"] * 3


async def test_a_client_that_repeats_an_old_token_locks_nobody_out(file: Path) -> None:
    """auth-24: the same invalid token counts once; requests without one do not count."""
    old, good = token_of(file, "old"), token_of(file)
    revoke_tokens(str(file), "old")
    async with guarded(TokenFileVerifier(str(file))) as client:
        for _ in range(MOST_FAILURES * 2):
            assert (await client.post("/mcp", headers=bearing(old))).status_code == 401
            assert (await client.post("/mcp")).status_code == 401
        assert (await client.post("/mcp", headers=bearing(good))).status_code == 200


class Clock:
    def __init__(self) -> None:
        self.now = 500.0

    def __call__(self) -> float:
        return self.now


def test_failures_are_counted_by_address_and_forgotten_after_a_minute() -> None:
    """auth-24: one address waits, others do not; an IPv6 network is one address."""
    clock = Clock()
    failures = FailureLimiter(2, clock=clock)
    assert failures.record("10.0.0.1", "a") == 0.0
    clock.now += 10
    assert failures.record("::ffff:10.0.0.1", "b") == 0.0
    assert failures.record("10.0.0.1", "c") == pytest.approx(50)
    assert failures.record("10.0.0.2", "c") == 0.0
    clock.now += 51
    assert failures.record("10.0.0.1", "c") == 0.0
    for number in range(2):
        failures.record(f"2001:db8::{number}", f"{number}")
    assert failures.record("2001:db8::ffff", "c") > 0
    assert failures.record("2001:db8:0:1::1", "c") == 0.0
    assert address_group("fe80::1%eth0") == "fe80::/64"
    assert address_group("") == ""


def test_the_memory_of_failures_is_bounded() -> None:
    """auth-24: in addresses, where the oldest go first, and for each address."""
    failures = FailureLimiter(2, clock=Clock())
    for number in range(MOST_ADDRESSES):
        for token in ("a", "b", "c", "d"):
            failures.record(f"10.{number >> 8}.{number & 255}.1", token)
    assert failures.record("10.0.0.1", "e") > 0
    failures.record("192.0.2.1", "a")
    assert failures.record("10.0.1.1", "e") > 0
    assert failures.record("10.0.0.1", "e") == 0.0


class ExpiringVerifier:
    """A verifier whose tokens end soon after each request."""

    async def verify(self, token: str) -> Principal | None:
        return Principal(name="ci", expires_at=time.time() + 0.2)

    def admits(self, name: str, role: str) -> bool:  # all clients
        return True


@pytest.mark.parametrize("way", ["GET", "subscriptions/listen"])
async def test_a_stream_ends_with_the_token_that_opened_it(way: str) -> None:
    """auth-25: the client sees the end of an ordinary stream, and the app is cancelled."""
    behind = GuardedApp()
    headers = bearing("x") | ({} if way == "GET" else {"Mcp-Method": way})
    async with guarded(ExpiringVerifier(), behind) as client:
        async with client.stream("GET" if way == "GET" else "POST", "/mcp?stream", headers=headers) as answer:
            assert answer.status_code == 200
            assert b"".join([part async for part in answer.aiter_raw()]) == HELLO
        await behind.stopped.wait()


@pytest.mark.parametrize("how", ["revoked", "unreadable", "another-role", "reloaded"])
async def test_a_stream_ends_soon_after_its_token_is_revoked(file: Path, how: str) -> None:
    """auth-25, observability-22: even if the token has no expiry; a reload may also name another token file."""
    token = token_of(file)
    behind = GuardedApp()
    verifier = ReplaceableVerifier(TokenFileVerifier(str(file)))
    async with guarded(verifier, behind, looking=0.01) as client:
        async with client.stream("GET", "/mcp?stream", headers=bearing(token)) as answer:
            read = answer.aiter_raw()
            assert await anext(read) == HELLO
            if how == "revoked":
                revoke_tokens(str(file), "ci")
            elif how == "reloaded":
                token_of(file.with_name("other"))
                verifier.replace(TokenFileVerifier(str(file.with_name("other"))))
            else:
                rewrite(file, "{" if how == "unreadable" else file.read_text().replace('"dev"', '"ops"'))  # noqa: ASYNC240
            assert [part async for part in read] == []
        await behind.stopped.wait()
        assert behind.came == ["GET ci dev"]


async def test_a_stream_goes_on_while_its_token_is_valid(file: Path) -> None:
    """auth-25: every check finds the token, also in a file that was rewritten."""
    token, behind = token_of(file), GuardedApp()
    looked = CountingVerifier(TokenFileVerifier(str(file)))
    async with (
        guarded(looked, behind, looking=0.01) as client,
        client.stream("GET", "/mcp?stream", headers=bearing(token)) as answer,
    ):
        token_of(file, name="other")
        await looked.often.wait()
        behind.done.set()
        assert b"".join([part async for part in answer.aiter_raw()]) == HELLO + b"done"


async def test_a_stream_that_has_not_begun_is_refused_when_its_token_ends() -> None:
    """auth-25: like a request that came too late."""
    async with guarded(ExpiringVerifier()) as client:
        answer = await client.get("/mcp?silent", headers=bearing("x"))
    assert (answer.status_code, "invalid_token" in answer.headers["www-authenticate"]) == (401, True)


async def test_a_call_goes_on_when_its_token_ends() -> None:
    """auth-25: it was authorized when it came, and has a deadline of its own."""
    behind = GuardedApp()
    async with (
        guarded(ExpiringVerifier(), behind) as client,
        client.stream("POST", "/mcp?stream", headers=bearing("x")) as call,
    ):
        async with client.stream("GET", "/mcp?stream", headers=bearing("x")) as listened:
            assert b"".join([part async for part in listened.aiter_raw()]) == HELLO
        behind.done.set()
        assert b"".join([part async for part in call.aiter_raw()]) == HELLO + b"done"


async def test_a_websocket_is_refused(file: Path) -> None:
    """auth-21: only HTTP reaches the app."""
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    behind = GuardedApp()
    token_of(file)
    await AuthMiddleware(behind, TokenFileVerifier(str(file)), failures=FailureLimiter(1))(
        {"type": "websocket", "headers": []}, receive, send
    )
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert behind.came == []


async def test_no_answer_and_no_log_has_a_token(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """auth-29: valid or invalid, however it was sent."""
    caplog.set_level(logging.DEBUG)
    good, wrong = token_of(file), "ct_" + "w" * 43
    async with guarded(TokenFileVerifier(str(file))) as client:
        answers = [
            await client.post("/mcp", headers=[("Authorization", value) for value in values])
            for one in (good, wrong)
            for values in ((f"Bearer {one}",), (f"Bearer {one}",) * 2, (one,), (f"Bearer {one} x",), (f"Basic {one}",))
        ]
    sent = "".join(answer.text + json.dumps(dict(answer.headers)) for answer in answers)
    ours = "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith(("coretools", "uvicorn"))
    )
    assert [one for one in (good, wrong) if one in sent or one in ours] == []


def test_a_client_without_an_address_is_counted_too() -> None:
    """auth-24: all clients of a Unix socket are one address."""
    failures = FailureLimiter(1)
    failures.record("", "a")
    assert failures.record("", "b") > 0
