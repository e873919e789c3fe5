"""Validates the header of a request: host, origin, method, path, fields.

Runs before authentication. The body is read later, by `request_body`, and only for authenticated callers.
"""

import re
from collections.abc import Collection, Sequence

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.web.common.config import LimitsSection, ServerSection
from coretools.web.common.error_response import error_response
from coretools.web.common.headers import CORS_ALLOWED_HEADERS, with_response_headers
from coretools.web.common.urls import ENDPOINT
from coretools.web.validation.allowed_hosts import AllowedHosts, AllowedOrigins
from coretools.web.validation.request_head import MOST_FIELDS, TOO_LONG, VERSION, Fault

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")

JSON_TYPE = re.compile(rb'application/json(?:[ \t]*;[ \t]*charset="?utf-8"?)?[ \t]*', re.IGNORECASE)

_PATH = re.compile(rb"/(?:(?!\.{1,2}(?:/|$))[\w.~-]+/)*(?:(?!\.{1,2}$)[\w.~-]+)?")
"""Literal segments only: no escapes, no empty segment, no `.` and no `..`. No path here needs them."""

_LONGEST_PATH = 512
_LONGEST_QUERY = 2048

_ONCE = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-type", b"content-encoding", b"authorization"}
    | {b"origin", b"last-event-id", b"access-control-request-method", b"access-control-request-headers"}
)
"""Headers that must not be repeated, like all that begin with `mcp-`: a proxy that reads the first one and a server
that reads the last one would see different requests."""

_WRONG_HOST = Fault(
    421,
    "unknown-host",
    "this host and port are not accepted; the operator sets [server] hosts",
)
_WRONG_ORIGIN = Fault(403, "unknown-origin", "pages of this origin may not call; the operator sets [server] origins")
_WRONG_PATH = Fault(404, "unknown-path", "there is nothing here")
_LONG_PATH = Fault(414, "unknown-path", "the path or the query is too long")
_WRONG_METHOD = Fault(405, "unknown-method", "unsupported method; use GET, HEAD, POST, DELETE or OPTIONS")
_TWICE = Fault(400, "bad-request", "a header that must not be repeated occurs twice")
_FRAMING = Fault(
    400, "bad-request", "send either Content-Length or, with HTTP/1.1, the chunked transfer coding; not both"
)
_UPGRADE = Fault(400, "bad-request", "upgrades to another protocol are not supported")
_BODY = Fault(400, "bad-request", "only POST may have a body")
_TOO_LARGE = Fault(413, "body-too-large", "the body is too large")
_ENCODED = Fault(415, "unsupported-encoding", "send the body without a content coding")
_NO_JSON = Fault(415, "unsupported-type", "send application/json, in UTF-8")


class RequestValidator:
    """Passes only valid requests to the application, and adds the headers of every response (`web.common.headers`)."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Sequence[str],
        server: ServerSection,
        limits: LimitsSection,
        paths_of_any_host: Collection[str] = (),
    ) -> None:
        """`hosts` are the accepted Host values, `NAME:*` with any port.

        Requests to `paths_of_any_host` need no accepted Host.

        Raises:
            BadSetting: a host or an origin is malformed.
        """
        self._app = app
        self._hosts = AllowedHosts(hosts)
        self._origins = AllowedOrigins(server.origins, public_url=server.public_url)
        self._limits = limits
        self._paths_of_any_host = frozenset(paths_of_any_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":  # the only other type; a WebSocket is never accepted
                await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        fault = self._fault_in(scope, headers)
        shared = origin if _is_shared(scope["path"]) and self._origins.is_foreign(origin) else None
        answering = with_response_headers(send, shared)
        if fault is not None:
            await _refused(fault)(scope, receive, answering)
        elif scope["method"] == "OPTIONS":
            await self._options(headers, shared)(scope, receive, answering)
        else:
            await self._app(scope, receive, answering)

    def _fault_in(self, scope: Scope, headers: dict[bytes, bytes]) -> Fault | None:
        return (
            _fault_in_line(scope)
            or self._fault_in_fields(scope, headers)
            or self._fault_in_names(scope, headers)
            or self._fault_in_body(scope, headers)
        )

    def _fault_in_fields(self, scope: Scope, headers: dict[bytes, bytes]) -> Fault | None:
        if len(scope["headers"]) > MOST_FIELDS or _size(scope["headers"]) > self._limits.header_bytes:
            return TOO_LONG
        if len(scope["headers"]) != len(headers) and _is_twice(scope["headers"]):
            return _TWICE
        return _UPGRADE if b"upgrade" in headers else None

    def _fault_in_names(self, scope: Scope, headers: dict[bytes, bytes]) -> Fault | None:
        host = headers.get(b"host", b"")
        if not self._hosts.have(host) and scope["path"] not in self._paths_of_any_host:
            return _WRONG_HOST
        origin = headers.get(b"origin")
        if origin is not None and not self._origins.allow(origin, scheme=scope["scheme"], host=host):
            return _WRONG_ORIGIN
        return None

    def _fault_in_body(self, scope: Scope, headers: dict[bytes, bytes]) -> Fault | None:
        length = headers.get(b"content-length", b"0")
        is_chunked = b"transfer-encoding" in headers
        if not length.isdigit() or (is_chunked and (b"content-length" in headers or scope["http_version"] == "1.0")):
            return _FRAMING
        if scope["method"] != "POST":
            return _BODY if is_chunked or int(length) else None
        return _TOO_LARGE if int(length) > self._limits.body_bytes else self._fault_in_type(scope, headers)

    def _fault_in_type(self, scope: Scope, headers: dict[bytes, bytes]) -> Fault | None:
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return _ENCODED
        is_for_endpoint = scope["path"] == ENDPOINT
        return _NO_JSON if is_for_endpoint and not JSON_TYPE.fullmatch(headers.get(b"content-type", b"")) else None

    def _options(self, headers: dict[bytes, bytes], shared: bytes | None) -> Response:
        """Answer a CORS preflight (Fetch, 4.8); any other OPTIONS request gets the list of methods."""
        if shared is None or b"access-control-request-method" not in headers:
            return Response(status_code=204, headers={"Allow": ", ".join(METHODS)})
        asked = headers.get(b"access-control-request-headers", b"").decode("latin-1").lower().split(",")
        parameters = sorted({name.strip() for name in asked if _PARAMETER.fullmatch(name.strip())})
        return Response(
            status_code=204,
            headers={
                "Access-Control-Allow-Methods": "POST, GET, DELETE",
                "Access-Control-Allow-Headers": ", ".join((*CORS_ALLOWED_HEADERS, *parameters)),
                "Access-Control-Max-Age": "600",
                "Vary": "Access-Control-Request-Headers",
            },
        )


_PARAMETER = re.compile(r"mcp-param-[a-z0-9_.-]{1,128}")
"""Headers that repeat tool arguments for proxies (MCP 2026-07-28, Streamable HTTP)."""


def _is_shared(path: str) -> bool:
    """Whether pages of accepted origins may read this path."""
    return path == ENDPOINT or path.startswith("/.well-known/")


def _fault_in_line(scope: Scope) -> Fault | None:
    if scope["http_version"] not in ("1.1", "1.0"):
        return VERSION
    if scope["method"] not in METHODS:
        return _WRONG_METHOD
    if len(scope["raw_path"]) > _LONGEST_PATH or len(scope["query_string"]) > _LONGEST_QUERY:
        return _LONG_PATH
    return None if _PATH.fullmatch(scope["raw_path"]) else _WRONG_PATH


def _size(headers: list[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)  # ": " and CR LF


def _is_twice(headers: list[tuple[bytes, bytes]]) -> bool:
    names: set[bytes] = set()
    for name, _ in headers:
        if name in names and (name in _ONCE or name.startswith(b"mcp-")):
            return True
        names.add(name)
    return False


def _refused(fault: Fault) -> Response:
    """Return a refusal that closes the connection: after a malformed request the next bytes can't be trusted."""
    headers = {"Connection": "close"}
    if fault is _WRONG_METHOD:
        headers["Allow"] = ", ".join(METHODS)
    return error_response(fault.status, fault.message, kind=fault.kind, headers=headers)
