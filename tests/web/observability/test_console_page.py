"""The console over HTTP: what clients without access can reach, and when access ends (docs/specs/console.md)."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from coretools.web.auth.hashed_tokens import create_token, revoke_tokens
from coretools.web.auth.verifiers import FailureLimiter, TokenFileVerifier
from coretools.web.observability.console_login import COOKIE, MOST_SESSIONS, SESSION_SECONDS, OperatorSessions
from coretools.web.observability.console_page import FORM_BYTES, HEADERS, MOST_VIEWERS, Console
from tests.checkout import TREE
from tests.protocol.http_peer import listening
from tests.web.observability.operated import ObservedServer, router

SECONDS = 50
HTML = TREE / "coretools" / "web" / "observability" / "html"
PATHS = ("/console/state", "/console/events")


@dataclass
class ServedConsole:
    """A console, its tokens, and a client that follows no redirect."""

    client: httpx2.AsyncClient
    inside: ObservedServer
    path: Path
    token: str
    now: list[float]

    async def log_in(self, token: str | None = None, **headers: str) -> httpx2.Response:
        answer = await self.client.post("/console/login", data={"token": token or self.token}, headers=headers)
        self.client.cookies.clear()
        return answer

    async def cookie(self) -> dict[str, str]:
        """The cookie header of a logged-in client."""
        found = re.match(rf"{COOKIE}=([^;]+)", (await self.log_in()).headers["set-cookie"])
        assert found
        return {"Cookie": f"{COOKIE}={found[1]}"}

    async def state(self, headers: dict[str, str]) -> int:
        return (await self.client.get("/console/state", headers=headers)).status_code


@asynccontextmanager
async def served_console(
    folder: Path, *, per_minute: int = 30, is_secure: bool = False
) -> AsyncIterator[ServedConsole]:
    inside, now = ObservedServer(), [0.0]
    path = folder / "tokens.json"
    _, token = create_token(str(path), name="operator", role="default")
    operators = OperatorSessions(TokenFileVerifier(str(path)), FailureLimiter(per_minute), clock=lambda: now[0])
    console = Console(inside.console_state, operators, inside.draining, is_secure=is_secure)
    async with listening(router(*console.routes())) as url, httpx2.AsyncClient(timeout=SECONDS) as client:
        client.base_url = httpx2.URL(url.removesuffix("/mcp"))
        yield ServedConsole(client, inside, path, token, now)


async def events(answer: httpx2.Response) -> AsyncIterator[tuple[str, str]]:
    """Names and data of a stream's events."""
    name = "message"
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, line.removeprefix("data: ")
            name = "message"


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_shown_without_a_token(tmp_path: Path, path: str) -> None:
    """console-2: no cookie, an invented one, a wrong token, another scheme: 401, and no data of the server."""
    async with served_console(tmp_path) as one:
        for headers in (
            {},
            {"Cookie": f"{COOKIE}="},
            {"Cookie": f"{COOKIE}={'A' * 43}"},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Bearer"},
            {"Authorization": f"Basic {one.token}"},
            {"Authorization": f"Bearer {one.token}x"},
            {"Cookie": f"{COOKIE}={one.token}"},
        ):
            answer = await one.client.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "replica" not in answer.text


async def test_a_token_in_a_header_opens_the_data(tmp_path: Path) -> None:
    """console-2: for programs; the same data as the page shows."""
    async with served_console(tmp_path) as one:
        answer = await one.client.get("/console/state", headers={"Authorization": f"Bearer {one.token}"})
    assert answer.json()["server"]["replica"] == "replica-1"


async def test_the_page_itself_has_no_data_before_the_login(tmp_path: Path) -> None:
    """console-2: the form; with a cookie the page, which holds no data either."""
    async with served_console(tmp_path) as one:
        form = await one.client.get("/console")
        page = await one.client.get("/console", headers=await one.cookie())
    assert 'name="token"' in form.text
    assert 'id="tenants"' in page.text
    assert "replica-1" not in form.text + page.text


@pytest.mark.parametrize("is_secure", [True, False])
async def test_the_cookie_is_hidden_from_scripts_and_other_sites(tmp_path: Path, is_secure: bool) -> None:
    """console-3: random, for an hour, for this path only; `Secure` behind TLS."""
    async with served_console(tmp_path, is_secure=is_secure) as one:
        answers = [await one.log_in() for _ in range(2)]
    cookies = [answer.headers["set-cookie"] for answer in answers]
    assert [answer.status_code for answer in answers] == [303, 303]
    values = {re.match(rf"{COOKIE}=([\w-]{{43}}); ", one)[1] for one in cookies}  # type: ignore[index]
    assert len(values) == 2
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/console", f"Max-Age={SESSION_SECONDS:.0f}"):
        assert attribute in cookies[0]
    assert ("Secure" in cookies[0]) == is_secure


async def test_a_cookie_ends_with_its_hour_its_logout_or_its_token(tmp_path: Path) -> None:
    """console-4: whichever comes first; then it gives no access."""
    async with served_console(tmp_path) as one:
        late, left, revoked = [await one.cookie() for _ in range(3)]
        assert await one.state(late) == 200
        await one.client.post("/console/logout", headers=left)
        assert (await one.state(left), await one.state(revoked)) == (401, 200)
        revoke_tokens(str(one.path), "operator")
        assert (await one.state(revoked), await one.state(late)) == (401, 401)
        _, one.token = create_token(str(one.path), name="operator", role="default")
        assert await one.state(revoked) == 401
        again = await one.cookie()
        one.now[0] += SESSION_SECONDS
        assert await one.state(again) == 401


async def test_cookies_are_bounded(tmp_path: Path) -> None:
    """console-10: the oldest login ends, and its stream too."""
    async with served_console(tmp_path) as one:
        first = await one.cookie()
        async with one.client.stream("GET", "/console/events", headers=first) as answer:
            received = events(answer)
            assert (await anext(received))[0] == "message"
            later = [await one.cookie() for _ in range(MOST_SESSIONS)]
            with anyio.fail_after(SECONDS):
                while (event := await anext(received))[0] == "message":
                    pass
        assert event == ("over", "logged-out")
        assert await one.state(first) == 401
        assert await one.state(later[0]) == 200


async def test_guessing_tokens_is_throttled(tmp_path: Path) -> None:
    """console-3: for the form and the header together; the right token still works."""
    async with served_console(tmp_path, per_minute=4) as one:
        inside = await one.cookie()
        for number in range(2):
            assert (await one.log_in(f"wrong-{number}")).status_code == 401
            assert await one.state({"Authorization": f"Bearer no-{number}"}) == 401
        form = await one.log_in("wrong-again")
        assert form.status_code == 429
        assert int(form.headers["retry-after"]) > 0
        assert "set-cookie" not in form.headers
        assert await one.state({"Authorization": "Bearer no-more"}) == 429
        assert await one.state({"Authorization": f"Bearer {one.token}"}) == 200
        assert await one.state(inside) == await one.state(await one.cookie()) == 200


async def test_another_site_can_neither_log_in_nor_log_out(tmp_path: Path) -> None:
    """console-3: decided by the headers in which browsers name the origin of a form."""
    async with served_console(tmp_path) as one:
        cookie = await one.cookie()
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert (await one.log_in(**headers)).status_code == 403
            out = await one.client.post("/console/logout", headers={**cookie, **headers})
            assert out.status_code == 403
        assert await one.state(cookie) == 200
        own = {"Origin": str(one.client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        assert (await one.log_in(**own)).status_code == 303


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b'{"token": "x"}', 400),
        ("application/x-www-form-urlencoded", b"token=" + b"x" * FORM_BYTES, 400),
        ("application/x-www-form-urlencoded", b"a=1&" * 100, 400),
        ("application/x-www-form-urlencoded", b"\xff\xfe", 400),
        ("application/x-www-form-urlencoded", b"", 401),
        ("application/x-www-form-urlencoded", b"token=%00%ff%0a", 401),
        ("application/x-www-form-urlencoded", b"token=" + b"x" * 2_000, 401),
        ("application/x-www-form-urlencoded", b"token=%3Cscript%3Ealert(1)%3C%2Fscript%3E", 401),
    ],
    ids=["json", "long", "many fields", "no text", "empty", "controls", "long token", "markup"],
)
async def test_what_is_no_form_is_refused(tmp_path: Path, kind: str, body: bytes, status: int) -> None:
    """console-2: with a 4xx status, and nothing of what was sent in the response."""
    async with served_console(tmp_path) as one:
        answer = await one.client.post("/console/login", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert "alert(1)" not in answer.text
    assert "set-cookie" not in answer.headers


async def test_tokens_that_cannot_be_verified_give_no_access(tmp_path: Path) -> None:
    """console-4: a broken token file lets nobody in, and ends the sessions that exist."""
    async with served_console(tmp_path) as one:
        cookie = await one.cookie()
        async with one.client.stream("GET", "/console/events", headers=cookie) as answer:
            received = events(answer)
            await anext(received)
            one.path.write_text("{")
            with anyio.fail_after(SECONDS):
                while (event := await anext(received))[0] == "message":
                    pass
        assert event == ("over", "unreachable")
        assert (await one.log_in()).status_code == 503
        assert await one.state(cookie) == 503
        page = await one.client.get("/console", headers=cookie)
        assert (page.status_code, 'name="token"' in page.text) == (503, True)


async def test_a_stream_reports_what_happens(tmp_path: Path) -> None:
    """console-5: a snapshot each second, with the running call, and without it when it has ended."""
    async with served_console(tmp_path) as one:
        headers = {"Authorization": f"Bearer {one.token}"}
        async with one.client.stream("GET", "/console/events", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            received = events(answer)

            async def until(count: int) -> dict[str, Any]:
                with anyio.fail_after(SECONDS):
                    async for _, data in received:
                        found: dict[str, Any] = json.loads(data)
                        if found["calls"]["count"] == count:
                            return found
                raise AssertionError("the stream ended")

            await until(0)
            call = one.inside.hostile()
            assert (await until(1))["calls"]["shown"][0]["id"] == call.id
            one.inside.fail(call)
            assert (await until(0))["errors"]["count"] == 1


async def test_a_stream_ends_when_the_server_does(tmp_path: Path) -> None:
    """console-4: with an event for it, at once; no new stream begins."""
    async with served_console(tmp_path) as one:
        headers = {"Authorization": f"Bearer {one.token}"}
        async with one.client.stream("GET", "/console/events", headers=headers) as answer:
            received = events(answer)
            await anext(received)
            one.inside.draining.begin()
            with anyio.fail_after(SECONDS):
                assert [event async for event in received] == [("over", "draining")]
        assert (await one.client.get("/console/events", headers=headers)).status_code == 503


async def test_logging_out_ends_the_stream(tmp_path: Path) -> None:
    """console-4: at once, in every window."""
    async with served_console(tmp_path) as one:
        cookie = await one.cookie()
        async with one.client.stream("GET", "/console/events", headers=cookie) as answer:
            received = events(answer)
            await anext(received)
            await one.client.post("/console/logout", headers=cookie)
            with anyio.fail_after(SECONDS):
                while (event := await anext(received))[0] == "message":
                    pass
    assert event == ("over", "logged-out")


async def test_viewers_are_bounded_and_release_their_slot(tmp_path: Path) -> None:
    """console-10: one more is refused; when one disconnects there is room again."""
    async with served_console(tmp_path) as one:
        headers = {"Authorization": f"Bearer {one.token}"}
        async with anyio.create_task_group() as many:
            ready = [anyio.Event() for _ in range(MOST_VIEWERS)]

            async def look(at: int) -> None:
                async with one.client.stream("GET", "/console/events", headers=headers) as answer:
                    async for _ in events(answer):
                        ready[at].set()

            for at in range(MOST_VIEWERS):
                many.start_soon(look, at)
            with anyio.fail_after(SECONDS):
                for event in ready:
                    await event.wait()
            refused = await one.client.get("/console/events", headers=headers)
            assert (refused.status_code, refused.json()["error"]["data"]["kind"]) == (503, "too-many-viewers")
            many.cancel_scope.cancel()
        with anyio.fail_after(SECONDS):
            while True:
                async with one.client.stream("GET", "/console/events", headers=headers) as answer:
                    if answer.status_code == 200:
                        break
        assert (await one.client.head("/console/events", headers=headers)).status_code in (200, 503)


async def test_every_response_is_for_the_page_alone(tmp_path: Path) -> None:
    """console-8: a policy without inline script, no frame, no cache, no referrer, on each path."""
    async with served_console(tmp_path) as one:
        cookie = await one.cookie()
        answers = [
            await one.client.get("/console"),
            await one.client.get("/console", headers=cookie),
            await one.client.get("/console/state"),
            await one.client.get("/console/state", headers=cookie),
            await one.client.get("/console/console.js"),
            await one.client.get("/console/console.css"),
            await one.client.get("/console/console.svg"),
            await one.log_in("wrong"),
            await one.log_in(),
        ]
        assert (await one.client.get("/console/console.html")).status_code == 404
        assert (await one.client.get("/console/../operators.py")).status_code == 404
    for answer in answers:
        for name, value in HEADERS.items():
            if name != "Cache-Control":
                assert answer.headers[name] == value
        assert answer.headers["Cache-Control"] in ("no-store", "no-cache")
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize("name", ["console.html", "console_login.html", "console.js", "console.css"])
def test_the_page_has_nothing_inline_and_parses_no_markup(name: str) -> None:
    """console-8: no script, style or handler in the markup, no other origin, and no text parsed as markup."""
    text = (HTML / name).read_text()
    for never in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "//cdn",
        "https:",
    ):
        assert never not in text
    assert not re.search(r"<script(?! src=)|<style|\son\w+=|\sstyle=", text)
    assert re.findall(r"http://\S+", text) in ([], ['http://www.w3.org/2000/svg",'])
