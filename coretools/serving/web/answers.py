"""Refusals before a request reaches the protocol: a JSON-RPC error without an id, with the HTTP status that says why."""

import json
from collections.abc import Mapping

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from starlette.responses import Response

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
    return Response(json.dumps(body), status_code=status, media_type="application/json", headers=dict(headers or {}))
