"""What can fail at a server, as errors with a kind and a sentence. Pure."""

from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import MCPError
from pydantic import ValidationError

from coretools.client.common.errors import AuthenticationRequired, ProtocolViolation, SchemaMismatch
from coretools.errors import CoreError, DeadlinePassed, Unreachable

LOST = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)
FAULTS = (CoreError, MCPError, OSError, TimeoutError, RuntimeError, ValidationError, httpx2.HTTPError, *LOST)
"""What a server, its program or the network can cause. Anything else is a bug of ours and ends the process."""


def origin_of(url: str) -> str:
    """Return the part of a URL that holds no secrets: scheme, host and port."""
    parts = httpx2.URL(url)
    return f"{parts.scheme}://{parts.host}" + (f":{parts.port}" if parts.port else "")


_BY_CODE: dict[int, tuple[type[CoreError], str]] = {
    types.CONNECTION_CLOSED: (Unreachable, "the connection was lost"),
    types.REQUEST_TIMEOUT: (DeadlinePassed, "no answer in time"),
}


def explained(error: BaseException, status: int) -> tuple[type[CoreError], str]:
    """Return the kind of an error and its sentence."""
    if status in (401, 403) and not isinstance(error, CoreError):
        return AuthenticationRequired, f"refuses the credentials (HTTP {status}); set `headers` in its entry"
    if isinstance(error, CoreError):
        return type(error), str(error)
    if isinstance(error, MCPError):
        refused = (ProtocolViolation, f"refused the request: {error.message} ({error.code})")
        return _BY_CODE.get(error.code, refused)
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        return ProtocolViolation, f"sent an answer that the protocol does not allow: {where}: {fault['msg']}"
    if isinstance(error, RuntimeError):
        return SchemaMismatch, str(error).splitlines()[0][:500]
    text = "the connection was lost" if isinstance(error, LOST) else str(error).strip() or type(error).__name__
    return Unreachable, text


def first_leaf(group: BaseExceptionGroup[Any]) -> BaseException:
    """Return the first error that is no group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
