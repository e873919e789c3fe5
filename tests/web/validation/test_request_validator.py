"""What is accepted: host names, origins, methods, paths, headers (docs/specs/validation.md), over real sockets."""

import pytest
from starlette.types import Receive, Scope, Send

from coretools.errors import BadSetting
from coretools.web.common.config import LimitsSection, ServerSection
from coretools.web.validation.allowed_hosts import AllowedHosts, AllowedOrigins
from coretools.web.validation.request_head import MOST_FIELDS
from coretools.web.validation.request_validator import RequestValidator
from tests.web.raw_peer import Answer, Recorder, connected, respond, served

HOSTS = ("tools.example.com", "127.0.0.1:8765", "[::1]:*", "Any.example.com:*")
SERVER = ServerSection(
    origins=("https://console.example.com", "https://other.example.com:8443"),
    public_url="https://tools.example.com:443/mcp",
)
JSON = b"Content-Type: application/json\r\n"


class ValidatedApp(Recorder):
    """The request validator around an app that records what reached it."""

    def __init__(self, limits: LimitsSection | None = None) -> None:
        super().__init__()
        self.guard = RequestValidator(super().__call__, hosts=HOSTS, server=SERVER, limits=limits or LimitsSection())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.guard(scope, receive, send)

    async def asked(
        self, headers: bytes = b"", *, line: bytes = b"GET /mcp", host: bytes = b"tools.example.com", body: bytes = b""
    ) -> Answer:
        """Return the response to one request on a connection of its own."""
        async with served(self) as running, connected(running.port) as raw:
            await raw.send(line + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + headers + b"\r\n" + body)
            return await raw.answer(has_body=not line.startswith(b"HEAD"))

    async def posted(self, headers: bytes, body: bytes = b"{}", *, path: bytes = b"/mcp") -> Answer:
        return await self.asked(
            b"Content-Length: %d\r\n" % len(body) + headers, line=b"POST " + path, body=body
        )  # fmt: skip


@pytest.mark.parametrize(
    "host", [b"tools.example.com", b"TOOLS.Example.com", b"127.0.0.1:8765", b"[::1]:1", b"any.example.com:65535"]
)
async def test_a_name_of_the_server_is_served(host: bytes) -> None:
    """validation-11: case does not matter; `NAME:*` allows any port."""
    assert (await ValidatedApp().asked(host=host)).status == 200


async def test_any_other_name_is_refused() -> None:
    """validation-11: 421, and the app never sees it, whatever address the server listens on (DNS rebinding)."""
    for host in (
        b"evil.example.com",
        b"tools.example.com:443",
        b"tools.example.com.",
        b"tools.example.com.evil.com",
        b"127.0.0.1",
        b"127.0.0.1:8766",
        b"127.0.0.1:08765",
        b"127.1:8765",
        b"2130706433:8765",
        b"[::1]",
        b"[::1]:",
        b"[::1]:x",
        b"[::1]:1@evil.com",
        b"any.example.com:evil",
        b"any.example.com:80.evil.com",
        b"any.example.com:123456",
        b"any.example.com",
        b"user@any.example.com:80",
        b"any.example.com:*",
        b"*",
        b"",
        b"x" * 5000,
        b"any.example.com:80, tools.example.com",
        b"any.example.com:\xb2",
        b"http://tools.example.com",
    ):
        app = ValidatedApp()
        assert (await app.asked(host=host)).status == 421, host
        assert not app.seen, host


async def test_a_request_without_a_name_is_refused() -> None:
    """validation-11: HTTP/1.0 may omit it."""
    app = ValidatedApp()
    async with served(app) as running, connected(running.port) as raw:
        await raw.send(b"GET /mcp HTTP/1.0\r\n\r\n")
        assert (await raw.answer()).status == 421
    assert not app.seen


@pytest.mark.parametrize("entry", ["*", "*.example.com", "http://a", "a:b", "a b", "", "a:*:*", "a/", "a,b"])
def test_an_invalid_name_ends_the_start(entry: str) -> None:
    """validation-11: a typing error does not widen the list."""
    with pytest.raises(BadSetting, match=r"server\.hosts"):
        AllowedHosts([entry])


METHODS = (b"GET", b"HEAD", b"POST", b"DELETE", b"OPTIONS")
GOOD_ORIGINS = [b"https://console.example.com", b"https://other.example.com:8443", b"https://tools.example.com"]
BAD_ORIGINS = [
    b"https://evil.example.com", b"http://console.example.com", b"https://console.example.com:444",
    b"https://console.example.com.evil.com", b"https://xconsole.example.com", b"https://console.example.com/",
    b"https://console.example.com, https://evil.com", b"null", b"", b"*", b"file://", b"vscode-webview://abc",
    b"https://other.example.com", b"https://tools.example.com:8765", b"x" * 5000, b"https://console.example.com\xff",
]  # fmt: skip


async def test_pages_of_other_origins_may_not_call() -> None:
    """validation-12: 403 for every method, for streams and the end of sessions too; the page can read no response."""
    for method in METHODS:
        for origin in BAD_ORIGINS:
            app = ValidatedApp()
            answer = await app.asked(b"Origin: " + origin + b"\r\n" + JSON, line=method + b" /mcp")
            assert answer.status == 403, (method, origin)
            assert not [name for name in answer.headers if name.startswith("access-control")], (method, origin)
            assert not app.seen, (method, origin)


@pytest.mark.parametrize("origin", GOOD_ORIGINS)
@pytest.mark.parametrize("method", METHODS[:-1])
async def test_pages_of_listed_origins_and_our_own_may_call(method: bytes, origin: bytes) -> None:
    """validation-12: origins of the list, and of the server's public address."""
    app = ValidatedApp()
    answer = await app.asked(b"Origin: " + origin + b"\r\n" + JSON, line=method + b" /mcp")
    assert answer.status == 200
    assert len(app.seen) == 1


async def test_a_page_of_the_server_itself_may_call() -> None:
    """validation-12: by any name of the server, with the same scheme; it needs no CORS."""
    answer = await ValidatedApp().asked(
        b"Origin: http://127.0.0.1:8765\r\n", host=b"127.0.0.1:8765", line=b"GET /console"
    )
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers
    answer = await ValidatedApp().asked(
        b"Origin: https://127.0.0.1:8765\r\n", host=b"127.0.0.1:8765", line=b"GET /console"
    )
    assert answer.status == 403


async def test_a_preflight_of_a_listed_origin_is_answered() -> None:
    """validation-13: by the validator itself; `*` and credentials are never allowed."""
    app = ValidatedApp()
    answer = await app.asked(
        b"Origin: https://console.example.com\r\nAccess-Control-Request-Method: POST\r\n"
        b"Access-Control-Request-Headers: authorization, Mcp-Param-Path, x-evil, mcp-param-,mcp-param-a b\r\n",
        line=b"OPTIONS /mcp",
    )
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "https://console.example.com"
    assert answer.headers["access-control-allow-methods"] == "POST, GET, DELETE"
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert allowed == [
        "authorization", "content-type", "accept", "mcp-session-id", "mcp-protocol-version", "last-event-id",
        "mcp-method", "mcp-name", "mcp-param-path",
    ]  # fmt: skip
    assert "access-control-allow-credentials" not in answer.headers
    assert "Origin" in answer.headers["vary"]
    assert not app.seen


async def test_only_a_listed_origin_can_read_its_response() -> None:
    """validation-13: refusals too, so that a page learns that it needs a token; only the headers meant for clients."""
    headers = b"Origin: https://console.example.com\r\n"
    answer = await ValidatedApp().asked(headers)
    assert answer.headers["access-control-allow-origin"] == "https://console.example.com"
    exposed = answer.headers["access-control-expose-headers"]
    assert exposed.split(", ") == ["mcp-session-id", "www-authenticate", "retry-after"]
    assert (await ValidatedApp().posted(headers)).status == 415
    assert (await ValidatedApp().posted(headers)).headers[
        "access-control-allow-origin"
    ] == "https://console.example.com"
    for path in (b"/metrics", b"/console", b"/healthz"):
        answer = await ValidatedApp().asked(headers, line=b"GET " + path)
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["vary"] == "Origin"


async def test_options_without_an_origin_lists_the_methods() -> None:
    """validation-13: without CORS headers."""
    answer = await ValidatedApp().asked(line=b"OPTIONS /mcp")
    assert (answer.status, answer.headers["allow"]) == (204, "GET, HEAD, POST, DELETE, OPTIONS")
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("entry", ["*", "null", "console.example.com", "https://a/b", "https://*.a", "", "https://"])
def test_an_invalid_origin_ends_the_start(entry: str) -> None:
    """validation-12: `*` is invalid."""
    with pytest.raises(BadSetting, match=r"server\.origins"):
        AllowedOrigins([entry])


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/jsonp", "application/json; charset=utf-16", "application/json; a=b", "text/json",
     "application/json, text/plain", "application/json;charset=utf-8;x", "multipart/form-data", "xapplication/json",
     "application/x-www-form-urlencoded", "application/json-rpc", "application/json;"],
)  # fmt: skip
async def test_only_json_is_posted_to_the_endpoint(kind: str) -> None:
    """validation-14: a form of any page can be sent without a preflight, so it is refused: 415."""
    app = ValidatedApp()
    assert (await app.posted(f"Content-Type: {kind}\r\n".encode())).status == 415
    assert not app.seen


@pytest.mark.parametrize(
    "kind",
    ["application/json", "APPLICATION/JSON", "application/json;charset=UTF-8", 'application/json ; charset="utf-8"'],
)
async def test_json_in_utf_8_is_json(kind: str) -> None:
    """validation-14: whatever the case."""
    assert (await ValidatedApp().posted(f"Content-Type: {kind}\r\n".encode())).status == 200


async def test_forms_are_for_other_paths() -> None:
    """validation-14: the rule is the endpoint's; the console's pages post a form."""
    form = b"Content-Type: application/x-www-form-urlencoded\r\n"
    assert (await ValidatedApp().posted(form, b"a=b", path=b"/console/login")).status == 200
    assert (await ValidatedApp().posted(form, b"a=b", path=b"/mcp")).status == 415


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br", b"gzip, identity", b"x"])
async def test_a_body_in_a_content_coding_is_refused(coding: bytes) -> None:
    """validation-14: a kilobyte of gzip is a megabyte of zeros."""
    app = ValidatedApp()
    assert (await app.posted(JSON + b"Content-Encoding: " + coding + b"\r\n")).status == 415
    assert not app.seen


async def test_a_body_declared_too_large_is_not_read() -> None:
    """validation-15: 413 before a byte of it; `Expect: 100-continue` is not answered with 100."""
    app = ValidatedApp()
    answer = await app.asked(JSON + b"Content-Length: 100000000\r\nExpect: 100-continue\r\n", line=b"POST /mcp")
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert not app.seen


@pytest.mark.parametrize(
    ("headers", "line"),
    [
        (JSON + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"POST /mcp"),
        (b"Transfer-Encoding: chunked\r\n", b"GET /mcp"),
        (b"Content-Length: 5\r\n", b"GET /mcp"),
        (b"Content-Length: 5\r\n", b"DELETE /mcp"),
        (b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"GET /mcp"),
        (b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", b"GET /mcp"),
    ],
    ids=["two-lengths", "chunked-get", "get", "delete", "websocket", "h2c"],
)
async def test_a_request_of_ambiguous_length_is_refused(headers: bytes, line: bytes) -> None:
    """validation-16: 400, and the connection ends; the bytes behind it are ignored."""
    app = ValidatedApp()
    async with served(app) as running, connected(running.port) as raw:
        smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: tools.example.com\r\n\r\n"
        await raw.send(line + b" HTTP/1.1\r\nHost: tools.example.com\r\n" + headers + b"\r\n" + smuggled)
        answer = await raw.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        await raw.push(smuggled)
        assert await raw.rest() == b""
    assert not app.seen


async def test_chunks_are_of_http_1_1() -> None:
    """validation-16: a proxy that speaks HTTP/1.0 passes them on unchanged."""
    app = ValidatedApp()
    async with served(app) as running, connected(running.port) as raw:
        await raw.send(
            b"POST /mcp HTTP/1.0\r\nHost: tools.example.com\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        assert (await raw.answer()).status == 400
    assert not app.seen


@pytest.mark.parametrize(
    "name",
    ["Authorization", "Content-Type", "Origin", "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name",
     "Mcp-Param-Path", "Last-Event-ID", "Content-Encoding"],
)  # fmt: skip
async def test_a_header_that_decides_something_may_not_be_repeated(name: str) -> None:
    """validation-17: equal ones too; two parsers may choose different ones."""
    app = ValidatedApp()
    twice = f"{name}: x\r\n{name.lower()}: x\r\n".encode()
    assert (await app.asked(twice)).status == 400
    assert not app.seen
    assert (await app.asked(b"Accept: a\r\nAccept: b\r\nX-Forwarded-For: a\r\nX-Forwarded-For: b\r\n")).status == 200


async def test_header_fields_and_bytes_are_bounded() -> None:
    """validation-10: also behind another HTTP server than ours."""
    app = ValidatedApp(LimitsSection(header_bytes=1000))
    assert (await app.asked(b"X: y\r\n" * (MOST_FIELDS - 1))).status == 200
    assert (await app.asked(b"X: y\r\n" * MOST_FIELDS)).status == 431
    assert (await app.asked(b"X: " + b"y" * 990 + b"\r\n")).status == 431


@pytest.mark.parametrize("method", [b"PUT", b"PATCH", b"TRACE", b"CONNECT", b"PROPFIND", b"get", b"X" * 200])
async def test_other_methods_are_refused(method: bytes) -> None:
    """validation-18: 405, with the allowed methods; TRACE would send headers back."""
    app = ValidatedApp()
    answer = await app.asked(b"X-Secret: s3cret\r\n", line=method + b" /mcp")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST, DELETE, OPTIONS")
    assert b"s3cret" not in answer.body
    assert not app.seen


@pytest.mark.parametrize(
    "path",
    [b"//mcp", b"/mcp//", b"/mcp/../metrics", b"/./mcp", b"/mcp/.", b"/mcp/..", b"/%6dcp", b"/%2e%2e/metrics",
     b"/mcp%00", b"/mcp;a=b", b"/mcp\\..\\metrics", b"/mcp%2f..%2fmetrics", b"http://tools.example.com/mcp", b"http://evil/mcp",
     b"*", b"mcp", b"evil.example.com:443", b"/mcp#x", b"?", b"/a@"],
)  # fmt: skip
async def test_an_ambiguous_path_is_refused(path: bytes) -> None:
    """validation-18: 404 for what a proxy and this server could read as different paths, absolute forms included."""
    app = ValidatedApp()
    assert (await app.asked(line=b"GET " + path)).status == 404
    assert not app.seen


@pytest.mark.parametrize(
    "path", [b"/", b"/mcp", b"/mcp?a=%2e&b", b"/.well-known/oauth-protected-resource/mcp", b"/a-b_c~d/..e"]
)
async def test_plain_paths_are_let_through(path: bytes) -> None:
    """validation-18: also with a query, and with segments that only begin with a dot."""
    assert (await ValidatedApp().asked(line=b"GET " + path)).status == 200


async def test_every_response_forbids_sniffing_and_caching() -> None:
    """validation-19: refusals and responses of the app; headers that the app sets itself stay."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"Cache-Control", b"no-cache"), (b"Server", b"Secret/1.0"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    guarded = ValidatedApp()
    answers = [await guarded.asked(), await guarded.asked(host=b"evil"), await guarded.asked(line=b"TRACE /mcp")]
    guarded.guard = RequestValidator(app, hosts=HOSTS, server=SERVER, limits=LimitsSection())
    answers.append(await guarded.asked())
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "1.0" not in answer.headers.get("server", "")
    assert [answer.headers["cache-control"] for answer in answers] == ["no-store"] * 3 + ["no-cache"]


async def test_no_refusal_repeats_what_was_sent() -> None:
    """validation-19: a marker in every position of a request comes back from none."""
    for answer in (
        await ValidatedApp().asked(host=b"MARK"),
        await ValidatedApp().asked(b"Origin: https://MARK\r\n"),
        await ValidatedApp().asked(line=b"MARK /mcp"),
        await ValidatedApp().asked(line=b"GET /MARK//"),
        await ValidatedApp().posted(b"Content-Type: MARK\r\n"),
        await ValidatedApp().asked(b"Mcp-MARK: a\r\nMcp-MARK: a\r\n"),
    ):
        assert answer.status >= 400
        assert b"mark" not in (str(answer.headers).encode() + answer.body).lower()
        assert len(answer.body) < 400


async def test_only_http_reaches_the_app() -> None:
    """validation-18: a WebSocket is not accepted; the lifespan is the server's own."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def drop(message: object) -> None:
        await respond(drop)

    guard = RequestValidator(app, hosts=HOSTS, server=SERVER, limits=LimitsSection())
    await guard({"type": "websocket", "path": "/mcp", "headers": []}, nothing, drop)
    await guard({"type": "lifespan"}, nothing, drop)
    assert seen == ["lifespan"]
