"""One request with an id at a time in a session (docs/specs/validation.md), over real sockets."""

import json

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from coretools.web.common.config import LimitsSection
from coretools.web.sessions.request_ids import RequestIdMiddleware
from coretools.web.validation.request_body import BodyMiddleware
from tests.web.raw_peer import RawConnection, connected, respond, served, until


class WaitingApp:
    """An app that answers when the test lets it."""

    def __init__(self) -> None:
        self.began = 0
        self.go_on = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.began += 1
        await self.go_on.wait()
        await respond(send)


def post(number: object, session: str = "s") -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "x"}).encode()
    head = f"POST /mcp HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: {session}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode().replace(b"Mcp-Session-Id: \r\n", b"") + body


async def ended(raw: RawConnection) -> int:
    return (await raw.answer()).status


@pytest.mark.parametrize("other", [5, "5"])
async def test_an_id_that_is_in_use_is_refused_and_free_afterwards(other: object) -> None:
    """validation-26: the first is answered; a number and its text are one id."""
    app = WaitingApp()
    async with (
        served(BodyMiddleware(RequestIdMiddleware(app), LimitsSection())) as running,
        connected(running.port) as first,
        connected(running.port) as second,
    ):
        await first.send(post(5))
        await until(lambda: app.began == 1)
        await second.send(post(other))
        refused = await second.answer()
        assert (refused.status, json.loads(refused.body)["error"]["data"]["kind"]) == (400, "id-in-use")
        app.go_on.set()
        assert await ended(first) == 200
        await second.send(post(other))
        assert await ended(second) == 200


@pytest.mark.parametrize(("one", "other"), [((5, "s"), (6, "s")), ((5, "s"), (5, "t")), ((5, ""), (5, ""))])
async def test_ids_of_other_sessions_and_of_no_session_are_independent(
    one: tuple[int, str], other: tuple[int, str]
) -> None:
    """validation-26: in the stateless era any id may be used at any time."""
    app = WaitingApp()
    async with (
        served(BodyMiddleware(RequestIdMiddleware(app), LimitsSection())) as running,
        connected(running.port) as first,
        connected(running.port) as second,
    ):
        await first.send(post(*one))
        await second.send(post(*other))
        await until(lambda: app.began == 2)
        app.go_on.set()
        assert [await ended(first), await ended(second)] == [200, 200]
