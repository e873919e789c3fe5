"""The console at `/console`: the live state of the server, for holders of a console token.

The page is three fixed files; what it shows comes as data and is never markup. Requests change nothing in the server
but the logins.
"""

import json
import time
from collections.abc import AsyncIterator
from functools import cache
from importlib.resources import files
from urllib.parse import parse_qs, urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from coretools.errors import Unreachable
from coretools.protocol.call_adapter import address_in
from coretools.protocol.draining import Draining
from coretools.web.common.error_response import error_response
from coretools.web.common.events import note_refusal
from coretools.web.observability.console_login import (
    COOKIE,
    SESSION_SECONDS,
    OperatorSession,
    OperatorSessions,
    TooManyFailures,
)
from coretools.web.observability.console_state import ConsoleState

PATH = "/console"
MOST_VIEWERS = 16
"""Concurrent streams of all operators."""

SNAPSHOT_SECONDS = 1.0
FORM_BYTES = 4_096

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: browsers would then say `Origin: null` for the form (Fetch, "append a request Origin header").
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

BAD_CREDENTIAL = "invalid-token"
"""Kind of refusal for a wrong token in the log, as at the endpoint."""

MESSAGE = "<!-- message -->"
WRONG = "This token does not open the console."
WAIT = "Too many wrong tokens came from your address. Wait a minute."
UNREACHABLE = "Tokens can't be verified now. Try again later."

_FILES = {
    "console.js": "text/javascript",
    "console.css": "text/css",
    "console.svg": "image/svg+xml",
}


class Console:
    """Serves the page and its data."""

    def __init__(
        self, console_state: ConsoleState, operators: OperatorSessions, draining: Draining, *, is_secure: bool
    ) -> None:
        """`is_secure`: browsers reach it by TLS, possibly of a proxy."""
        self._console_state = console_state
        self._operators = operators
        self._draining = draining
        self._is_secure = is_secure
        self._viewers = 0
        self._snapshot_data = b""
        self._snapshot_at = -SNAPSHOT_SECONDS

    def routes(self) -> list[Route]:
        """For the server's router."""
        return [
            Route(PATH, self._page, methods=["GET"]),
            Route(f"{PATH}/login", self._log_in, methods=["POST"]),
            Route(f"{PATH}/logout", self._log_out, methods=["POST"]),
            Route(f"{PATH}/state", self._state, methods=["GET"]),
            Route(f"{PATH}/events", self._events, methods=["GET"]),
            *(Route(f"{PATH}/{name}", _file, methods=["GET"]) for name in _FILES),
        ]

    async def _page(self, request: Request) -> Response:
        try:
            operator = await self._operators.session_of(request)
        except TooManyFailures as error:
            return _login(429, WAIT, retry=error.seconds)
        except Unreachable:
            return _login(503, UNREACHABLE)
        return _login(200) if operator is None else _html(200, _text("console.html"))

    async def _log_in(self, request: Request) -> Response:
        if not _is_same_origin(request):
            return _refused(403, "log in on the page itself", "forbidden")
        token = await _token_in(request)
        if token is None:
            return _refused(400, "send the form of the page", "invalid-request")
        try:
            cookie = await self._operators.log_in(token, address_in(request.scope))
        except TooManyFailures as error:
            note_refusal(request.scope, error.kind)
            return _login(429, WAIT, retry=error.seconds)
        except Unreachable:
            return _login(503, UNREACHABLE)
        if cookie is None:
            note_refusal(request.scope, BAD_CREDENTIAL)
            return _login(401, WRONG)
        self._operators.log_out(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse(PATH, status_code=303, headers=HEADERS)
        self._set_cookie(answer, request, cookie, int(SESSION_SECONDS))
        return answer

    async def _log_out(self, request: Request) -> Response:
        if not _is_same_origin(request):
            return _refused(403, "log out on the page itself", "forbidden")
        self._operators.log_out(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse(PATH, status_code=303, headers=HEADERS)
        self._set_cookie(answer, request, "", 0)
        return answer

    async def _state(self, request: Request) -> Response:
        operator = await self._let_in(request)
        if isinstance(operator, Response):
            return operator
        return JSONResponse(self._console_state.snapshot(), headers=HEADERS)

    async def _events(self, request: Request) -> Response:
        operator = await self._let_in(request)
        if isinstance(operator, Response):
            return operator
        if self._draining.has_begun:
            return _refused(503, "the server is ending", "draining")
        if self._viewers >= MOST_VIEWERS:
            return _refused(503, f"{MOST_VIEWERS} viewers are open, which is the limit; close one", "too-many-viewers")
        # Starlette routes HEAD to GET: the stream would hold a viewer's place without ever sending anything.
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=HEADERS)
        return _EventStream(self, operator)

    def enter(self) -> None:
        """Count a viewer."""
        self._viewers += 1

    def leave(self) -> None:
        """Count a viewer who left."""
        self._viewers -= 1

    async def snapshots(self, operator: OperatorSession) -> AsyncIterator[bytes]:
        """Yield a snapshot each second until the login or the server ends."""
        wake = anyio.Event()
        operator.wakes.add(wake)
        forget = self._draining.add_listener(wake.set)
        try:
            yield b"retry: 2000\n\n"
            while not (reason := await self._end_for(operator)):
                yield b"data: " + self._snapshot() + b"\n\n"
                with anyio.move_on_after(SNAPSHOT_SECONDS):
                    await wake.wait()
            yield f"event: over\ndata: {reason}\n\n".encode("ascii")
        finally:
            forget()
            operator.wakes.discard(wake)

    async def _end_for(self, operator: OperatorSession) -> str:
        """Return why a stream ends now; empty if it does not."""
        if self._draining.has_begun:
            return "draining"
        try:
            return "" if await self._operators.is_authorized(operator) else "logged-out"
        except Unreachable:
            return "unreachable"

    def _snapshot(self) -> bytes:
        """Return the snapshot, made once for all viewers in the same second."""
        now = time.monotonic()
        # Half of the interval: the viewers wake at different moments, and each must find a newer one than at its last
        # turn.
        if now - self._snapshot_at >= SNAPSHOT_SECONDS / 2:
            self._snapshot_data = json.dumps(self._console_state.snapshot(), separators=(",", ":")).encode()
            self._snapshot_at = now
        return self._snapshot_data

    async def _let_in(self, request: Request) -> OperatorSession | Response:
        try:
            operator = await self._operators.session_of(request)
        except TooManyFailures as error:
            return _refused(429, str(error), error.kind, {"Retry-After": str(error.seconds)})
        except Unreachable as error:
            return _refused(503, "tokens can't be verified now", error.kind)
        if operator is None:
            kind = BAD_CREDENTIAL if "authorization" in request.headers else "unauthorized"
            return _refused(401, "log in, or send a token", kind, {"WWW-Authenticate": "Bearer"})
        return operator

    def _set_cookie(self, answer: Response, request: Request, cookie: str, seconds: int) -> None:
        is_secure = self._is_secure or request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, cookie, max_age=seconds, path=PATH, secure=is_secure, httponly=True, samesite="strict"
        )


class _EventStream(StreamingResponse):
    """The stream of one viewer, counted from its first byte to its end."""

    media_type = "text/event-stream"

    def __init__(self, console: Console, operator: OperatorSession) -> None:
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        super().__init__(console.snapshots(operator), headers=headers)
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        self._console.enter()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._console.leave()


async def _file(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    return Response(_text(name), media_type=_FILES[name], headers={**HEADERS, "Cache-Control": "no-cache"})


async def _token_in(request: Request) -> str | None:
    """Return the token of the login form; None if the body is not that form."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            return None
    try:
        tokens = parse_qs(body.decode("utf-8"), max_num_fields=4).get("token", [""])
    except ValueError:
        return None
    return tokens[0].strip()


def _is_same_origin(request: Request) -> bool:
    """Whether a form was sent from the page itself; clients that are not browsers send neither header."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _login(status: int, message: str = "", *, retry: int = 0) -> Response:
    # The message is a constant; it contains nothing that a client sent.
    reason = f'<p class="fault" role="alert">{message}</p>' if message else ""
    answer = _html(status, _text("console_login.html").replace(MESSAGE, reason))
    if retry:
        answer.headers["Retry-After"] = str(retry)
    return answer


def _html(status: int, text: str) -> Response:
    return Response(text, status_code=status, media_type="text/html", headers=HEADERS)


def _refused(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> Response:
    return error_response(status, message, kind=kind, headers={**HEADERS, **(headers or {})})


@cache
def _text(name: str) -> str:
    return (files("coretools.web.observability") / "html" / name).read_text("utf-8")
