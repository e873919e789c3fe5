"""The access log of a server: calls and requests, none of their content (docs/specs/observability.md)."""

import configparser
import logging
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import Receive, Scope, Send

from coretools.config.logs import FIELDS, JsonFormatter, TextFormatter
from coretools.operations.dispatch import Dispatcher
from coretools.protocol.call_adapter import PRINCIPAL_KEY
from coretools.redaction.redactor import Redactor
from coretools.web.common.events import CallWatchers, Exchange
from coretools.web.observability.access_log import MOST_REFUSALS, CallLog, RequestLog
from coretools.web.observability.middleware import ObservabilityMiddleware
from tests.checkout import TREE
from tests.protocol.http_peer import listening
from tests.web.http_server_peer import http_server
from tests.web.observability.operated import ObservedServer, router

CANARY = "canary-4711"


@pytest.fixture
def inside() -> ObservedServer:
    found = ObservedServer()
    found.dispatcher = Dispatcher(threads=2, observer=CallWatchers([CallLog()]))
    return found


def facts_of(caplog: pytest.LogCaptureFixture, logger: str) -> list[dict[str, object]]:
    return [getattr(record, FIELDS) for record in caplog.records if record.name == logger]


async def asked(app: ObservabilityMiddleware, *requests: tuple[str, str]) -> list[int]:
    async with listening(app) as url, httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as client:
        headers = {"Authorization": f"Bearer {CANARY}", "Mcp-Session-Id": CANARY}
        return [
            (await client.request(method, path, headers=headers, content=CANARY)).status_code
            for method, path in requests
        ]


async def test_a_call_has_one_line(inside: ObservedServer, caplog: pytest.LogCaptureFixture) -> None:
    """observability-7: its id, principal, tool, outcome and duration; no argument and no result."""
    with caplog.at_level(logging.INFO):
        await inside.call("echo", "alice", text=CANARY)
        await inside.call("lose", "alice", path=CANARY)
    first, second = facts_of(caplog, "coretools.calls")
    assert (first["principal"], first["tool"], first["outcome"]) == ("alice", "echo", "ok")
    assert isinstance(first["ms"], float)
    assert second["outcome"] == "not-found"
    assert first["call"] != second["call"]
    assert CANARY not in caplog.text
    assert CANARY not in str([first, second])


async def test_an_internal_error_is_found_by_its_call_id(
    inside: ObservedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """observability-7: the traceback and the line of the call have the same id."""
    with caplog.at_level(logging.INFO):
        outcome = await inside.call("crash")
    [line] = facts_of(caplog, "coretools.calls")
    [fault] = [record for record in caplog.records if record.name == "coretools.operations.dispatch"]
    assert str(line["call"]) in fault.getMessage()
    assert str(line["call"]) in outcome.text


async def test_calls_are_not_logged_at_level_warning(inside: ObservedServer, caplog: pytest.LogCaptureFixture) -> None:
    """observability-7: the operator chooses the level."""
    with caplog.at_level(logging.WARNING):
        await inside.call("echo", text="x")
    assert facts_of(caplog, "coretools.calls") == []


async def test_refused_requests_have_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """observability-8: answered ones at `debug`; no query, no header and no body in either."""
    app = ObservabilityMiddleware(router(), [RequestLog()])
    with caplog.at_level(logging.DEBUG, "coretools.requests"):
        statuses = await asked(app, ("POST", "/mcp"), ("GET", f"/refused?token={CANARY}"), ("GET", "/nowhere"))
    assert statuses == [200, 403, 404]
    lines = [record for record in caplog.records if record.name == "coretools.requests"]
    assert [record.levelno for record in lines] == [logging.DEBUG, logging.INFO, logging.INFO]
    answered, refused, missing = facts_of(caplog, "coretools.requests")
    assert (answered["method"], answered["path"], answered["status"], answered["era"]) == (
        "POST",
        "/mcp",
        200,
        "handshake",
    )
    assert (refused["path"], refused["refused"], refused["era"]) == ("/refused", "host", "none")
    assert "refused" not in missing
    assert CANARY not in str([answered, refused, missing])


DATES = {"%%Y": r"\d{4}", "%%f": r"\d+", "%%z": r"[+-]\d\d:\d\d"}


def banned(line: str) -> str | None:
    """Return the address that fail2ban extracts from a line, in a file and in the journal."""
    found = [found_in(line), found_in(f"host coretools-http[12]: {line}", is_in_file=False)]
    assert found[0] == found[1]
    return found[0]


def found_in(line: str, *, is_in_file: bool = True) -> str | None:
    """As fail2ban: it cuts the time out of a line of a file and searches the rest; the journal has its own time."""
    section = configparser.RawConfigParser()
    section.read(TREE / "docs/deploy/fail2ban.conf")
    for dates in section["Definition"]["datepattern"].split("\n") if is_in_file else ():
        pattern = re.sub(r"%%[a-zA-Z]", lambda sign: DATES.get(sign[0], r"\d\d"), dates)
        line = re.sub(pattern, "", line, count=1)
    for pattern in section["Definition"]["failregex"].split("\n"):
        if found := re.search(pattern.replace("<ADDR>", r"(?P<address>[0-9a-f.:]+)"), line):
            return found["address"]
    return None


WHOLE = (
    '{"time":"2026-11-23T04:00:00.000+00:00","level":"info","logger":"coretools.requests","message":"request",'
    '"address":"10.9.9.9","status":401,"refused":"invalid-token",'
)
FORGED = (
    '/x","address":"10.9.9.9","status":401,"refused":"invalid-token",',
    "/x address=10.9.9.9 status=401 refused=invalid-token ",
    f"/\n{WHOLE}",
    "/\n2026-11-23 04:00:00,000 INFO coretools.requests: request address=10.9.9.9 status=401 refused=invalid-token ",
)


@pytest.mark.parametrize("form", [JsonFormatter, TextFormatter])
def test_the_filter_of_fail2ban_finds_wrong_tokens_and_no_line_is_forged(
    form: type[JsonFormatter | TextFormatter], caplog: pytest.LogCaptureFixture
) -> None:
    """observability-28: in both formats of the log, with any path and any Host header."""
    journal = RequestLog()

    def line(address: str, status: int, refused: str, sent: str = "/mcp") -> str:
        headers = [(b"host", sent.encode())]
        scope = {"client": (address, 1), "method": "POST", "path": sent, "headers": headers}
        exchange = Exchange(scope, _nothing, _nothing)
        exchange.status, exchange.refused = status, refused
        with caplog.at_level(logging.INFO):
            journal.request_ended(exchange)
        text = form(Redactor([])).format(caplog.records[-1])
        assert "\n" not in text
        return text

    assert banned(line("192.0.2.1", 401, "invalid-token")) == "192.0.2.1"
    assert banned(line("192.0.2.1", 429, "too-many-failures", FORGED[0])) == "192.0.2.1"
    assert banned(line("2001:db8:0::1", 401, "invalid-token", FORGED[1])) == "2001:db8::1"
    assert banned(line("::ffff:192.0.2.1", 401, "invalid-token")) == "192.0.2.1"
    for host in ("", "_gateway", "10.9.9.9 ", '10.9.9.9","status":401,"refused":"invalid-token",'):
        assert banned(line(host, 401, "invalid-token")) is None
    for sent in FORGED:
        for status, refused in ((401, "unauthorized"), (404, "unknown-path"), (421, "unknown-host"), (429, "busy")):
            assert banned(line("192.0.2.2", status, refused, sent)) is None


async def _nothing(*_: object) -> Any:
    raise AssertionError("nothing is sent or received")


async def test_a_request_is_logged_with_its_principal(caplog: pytest.LogCaptureFixture) -> None:
    """observability-8: as authenticated; without a principal the field is absent."""

    class Gate:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            scope[PRINCIPAL_KEY] = "alice"
            await router()(scope, receive, send)

    with caplog.at_level(logging.DEBUG, "coretools.requests"):
        await asked(ObservabilityMiddleware(Gate(), [RequestLog()]), ("POST", "/mcp"))
        await asked(ObservabilityMiddleware(router(), [RequestLog()]), ("POST", "/mcp"))
    known, unknown = facts_of(caplog, "coretools.requests")
    assert known["principal"] == "alice"
    assert "principal" not in unknown


async def test_a_request_that_fails_inside_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """observability-8: with the status that its client gets."""
    with caplog.at_level(logging.INFO, "coretools.requests"):
        statuses = await asked(ObservabilityMiddleware(router(), [RequestLog()]), ("GET", "/broken"))
    assert statuses == [500]
    [line] = [record for record in caplog.records if record.name == "coretools.requests"]
    assert line.levelno == logging.WARNING
    assert getattr(line, FIELDS)["status"] == 500


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_no_level_logs_what_was_sent(tmp_path: Path, mode: str) -> None:
    """observability-9: the SDK would log messages and session ids; a whole server at `debug` does not."""
    (root := tmp_path / "root").mkdir()
    (root / "a.txt").write_text(f"content {CANARY}")
    sessions = []

    async def note(answer: httpx2.Response) -> None:
        sessions.append(answer.headers.get("mcp-session-id", "none"))

    environment = {"CORETOOLS_HTTP_LOG__LEVEL": "debug"}
    with http_server(tmp_path, "--root", root, environment=environment) as server:
        async with (
            httpx2.AsyncClient(event_hooks={"response": [note]}) as http,
            Client(streamable_http_client(server.url, http_client=http), mode=mode) as client,
        ):
            assert CANARY in str(await client.call_tool("read_file", {"path": "a.txt"}))
            await client.call_tool("read_file", {"path": f"{CANARY}.txt"})
        server.end()
        log = server.log.read_text()
    assert ("read_file", "ok") in server.calls
    assert '"logger":"coretools.requests"' in log
    assert CANARY not in log
    ids = set(sessions) - {"none"}
    assert len(ids) == (1 if mode == "legacy" else 0)
    assert not any(session in log for session in ids)


def test_refusals_logged_are_limited_in_rate(caplog: pytest.LogCaptureFixture) -> None:
    """observability-8: 50 a second; the next line has the number of those left out."""
    now = [7.0]
    journal = RequestLog(lambda: now[0])

    async def nothing(*_: object) -> None:
        return None

    def refuse() -> None:
        scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}
        exchange = Exchange(scope, nothing, nothing)  # type: ignore[arg-type]
        exchange.status = 401
        journal.request_ended(exchange)

    with caplog.at_level(logging.INFO, "coretools.requests"):
        for _ in range(MOST_REFUSALS + 20):
            refuse()
        assert len(caplog.records) == MOST_REFUSALS
        now[0] = 8.5
        refuse()
    assert getattr(caplog.records[-1], FIELDS)["left_out"] == 20
