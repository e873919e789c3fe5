"""What can fail at a server, as errors with a kind and a sentence. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import InputRequiredRoundsExceededError, MCPError
from pydantic import ValidationError

from coretools.client.common.errors import AuthenticationRequired, ProtocolViolation, SchemaMismatch
from coretools.errors import CoreError, DeadlinePassed, Unreachable

LOST = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)
FAULTS = (CoreError, MCPError, OSError, TimeoutError, RuntimeError, ValidationError, httpx2.HTTPError, *LOST)
"""What a server, its program or the network can cause. Anything else is a bug of ours and ends the process."""


_MOST_NAMES = 10
_NAME_CHARACTERS = 100
"""Capabilities shown of those that a server requires, and characters of one."""


def origin_of(url: str) -> str:
    """Return the part of a URL that holds no secrets: scheme, host and port."""
    parts = httpx2.URL(url)
    return f"{parts.scheme}://{parts.host}" + (f":{parts.port}" if parts.port else "")


_BY_CODE: dict[int, tuple[type[CoreError], str]] = {
    types.CONNECTION_CLOSED: (Unreachable, "the connection was lost"),
    types.REQUEST_TIMEOUT: (DeadlinePassed, "no answer in time"),
}
"""What the SDK reports by codes that JSON-RPC leaves to servers (-32000 to -32099)."""

_MADE_UP = "SSE stream "
"""Begin of the answers that the SDK's HTTP transport makes up if none came; nothing else tells them from real ones."""

_NO_MESSAGE = "Server returned an error response"
"""What the SDK says of an HTTP status whose body is not an error of JSON-RPC."""

UNAVAILABLE = (429, 502, 503, 504)
"""HTTP statuses by which a server, or a proxy before it, says that it can't serve now."""


@dataclass(frozen=True, slots=True)
class ServerData:
    """The data of an error that the server sent with a code that the SDK uses too."""

    data: Any


def marked(error: types.ErrorData) -> types.ErrorData:
    """Return an error that the server sent so that `explained` takes it for one, whatever its code."""
    if error.code not in _BY_CODE or error.message.startswith(_MADE_UP):
        return error
    return types.ErrorData(code=error.code, message=error.message, data=ServerData(error.data))


def explained(
    error: BaseException, status: int = 0, message: str = "", *, is_ready: bool = True
) -> tuple[type[CoreError], str]:
    """Return the kind of an error and its sentence.

    `status` is that of the last answer over HTTP, and `message` what an error said in it; `is_ready`: the handshake
    was over.
    """
    if status in (401, 403) and not isinstance(error, CoreError):
        return AuthenticationRequired, f"refuses the credentials (HTTP {status}); set `headers` in its entry"
    if isinstance(error, CoreError):
        return type(error), str(error)
    if isinstance(error, InputRequiredRoundsExceededError):
        return ProtocolViolation, f"asked again after each of {error.max_rounds} answers to one request; given up"
    if isinstance(error, MCPError):
        return _of_protocol(error, status, message)
    if isinstance(error, httpx2.HTTPStatusError):
        return _of_status(error.response.status_code, message)
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        return ProtocolViolation, f"sent an answer that the protocol does not allow: {where}: {fault['msg']}"
    if isinstance(error, RuntimeError):
        # Before, it is the handshake, such as a revision that nobody knows.
        return SchemaMismatch if is_ready else ProtocolViolation, str(error).splitlines()[0][:500]
    text = "the connection was lost" if isinstance(error, LOST) else str(error).strip() or type(error).__name__
    return Unreachable, text


def _of_protocol(error: MCPError, status: int, message: str) -> tuple[type[CoreError], str]:
    if error.code in _BY_CODE and not isinstance(error.data, ServerData):
        return _BY_CODE[error.code]
    text = f"{error.message} ({error.code}){_needed(error)}"
    if status < 400:
        return ProtocolViolation, f"refused the request: {text}"
    return _of_status(status, message if message and error.message == _NO_MESSAGE else text)


def _of_status(status: int, message: str) -> tuple[type[CoreError], str]:
    kind = Unreachable if status in UNAVAILABLE else ProtocolViolation
    phrase = f" {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else ""
    return kind, f"answers HTTP {status}{phrase}" + (f": {message}" if message else "")


def _needed(error: MCPError) -> str:
    """Name the capabilities that an error requires and its message does not name."""
    if error.code != types.MISSING_REQUIRED_CLIENT_CAPABILITY or not isinstance(error.data, Mapping):
        return ""
    required = error.data.get("requiredCapabilities")
    if not isinstance(required, Mapping):
        return ""
    names = [name for name in required if name != "extensions"]
    extensions = required.get("extensions")
    names += list(extensions) if isinstance(extensions, Mapping) else []
    missing = [str(name)[:_NAME_CHARACTERS] for name in names[:_MOST_NAMES] if str(name) not in error.message]
    return f"; it requires of this client: {', '.join(missing)}" if missing else ""


def first_leaf(group: BaseExceptionGroup[Any]) -> BaseException:
    """Return the first error that is not a group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
