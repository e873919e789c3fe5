"""Refusals before a request reaches the protocol: a JSON-RPC error without an id, under the HTTP status that fits."""

import json
from collections.abc import Mapping

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from coretools.serving.web.operations.watching import note_refusal

SERVER_FAULT = 500


def refusal(
    status: int, message: str, *, kind: str, headers: Mapping[str, str] | None = None, code: int | None = None
) -> Response:
    """The answer to a request that is not served. `message` says what would work; it never holds what the client sent.

    `kind` is one word for a program, as in the errors of tools; the code is -32600 for 4xx and -32603 for 5xx unless
    the protocol has another.
    """
    if code is None:
        code = INVALID_REQUEST if status < SERVER_FAULT else INTERNAL_ERROR
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": {"kind": kind}}}
    return _Refusal(kind, json.dumps(body), status, headers or {})


class _Refusal(Response):
    """Told to those who watch when it is sent."""

    media_type = "application/json"

    def __init__(self, kind: str, text: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(text, status_code=status, headers=dict(headers))
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        note_refusal(scope, self._kind)
        await super().__call__(scope, receive, send)
