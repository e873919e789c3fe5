"""Error responses before a request reaches the protocol: a JSON-RPC error with a suitable HTTP status."""

import json
from collections.abc import Mapping
from typing import Any

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from coretools.web.common.events import note_refusal

SERVER_FAULT = 500

ID_KEY = "coretools.json_rpc_id"
"""ASGI scope key: the request id as sent, once the body was read."""


def error_response(
    status: int, message: str, *, kind: str, headers: Mapping[str, str] | None = None, code: int | None = None
) -> Response:
    """Create the response that refuses a request. `message` says what would work and repeats nothing that was sent.

    `kind` is one word for programs, as in the errors of tools. The code is -32600 for 4xx and -32603 for 5xx unless
    given. The error has the id of the request once that was read.
    """
    if code is None:
        code = INVALID_REQUEST if status < SERVER_FAULT else INTERNAL_ERROR
    error = {"code": code, "message": message, "data": {"kind": kind}}
    return _ErrorResponse(error, status, headers or {})


class _ErrorResponse(Response):
    """Reports its kind to the observers when it is sent."""

    media_type = "application/json"

    def __init__(self, error: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> None:
        super().__init__(_text(None, error), status_code=status, headers=dict(headers))
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        note_refusal(scope, self._error["data"]["kind"])
        if ID_KEY in scope:
            self.body = _text(scope[ID_KEY], self._error)
            self.headers["Content-Length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def _text(request_id: object, error: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()
