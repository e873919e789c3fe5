"""The revision in the header of a request beside that in its envelope (2026-07-28, basic/transports).

The SDK compares the two where the header names a stateless revision; here where it names another one, or is missing.
"""

from mcp_types import HEADER_MISMATCH, PROTOCOL_VERSION_META_KEY
from starlette.responses import Response
from starlette.types import Scope

from coretools.serving.web.answers import refusal
from coretools.serving.web.quiet import MESSAGE_KEY


def header_mismatch(scope: Scope, header: bytes | None) -> Response | None:
    """The refusal of a request whose envelope names another revision than its header; None where they agree."""
    message = scope.get(MESSAGE_KEY)
    # `initialize` is of the handshake era whatever envelope it has, as on stdio.
    if message is None or message["method"] == "initialize":
        return None
    meta = (message.get("params") or {}).get("_meta")
    if not isinstance(meta, dict) or PROTOCOL_VERSION_META_KEY not in meta:
        return None
    said = meta[PROTOCOL_VERSION_META_KEY]
    if isinstance(said, str) and header is not None and said == header.decode("latin-1"):
        return None
    how = "is missing" if header is None else "names another revision than the request"
    text = f"MCP-Protocol-Version {how}; it must be the value of _meta's {PROTOCOL_VERSION_META_KEY}"
    return refusal(400, text, kind="header-mismatch", code=HEADER_MISMATCH)


def no_stream_here() -> Response:
    """The answer to GET and DELETE of a client of the stateless era."""
    said = (
        "this revision has no stream to GET and no session to DELETE; POST a subscriptions/listen request to be told of"
        " changes"
    )
    return refusal(405, said, kind="unknown-method", headers={"Allow": "POST"})
