"""What happens in a server, told to whoever counts, logs or shows it: requests here, calls by the dispatcher.

Everything that watches is quick and raises nothing: it stands in the way of each request.
"""

import time
from collections.abc import Sequence
from typing import Literal, Protocol

from starlette.types import Message, Receive, Scope, Send

from coretools.operations.dispatch import ActiveCall, CallObserver, Outcome
from coretools.web.common.headers import HANDSHAKE_REVISIONS, REVISION_HEADER

Era = Literal["handshake", "stateless", "none"]
"""Of the protocol that a request speaks; `none` is one that is not for the endpoint."""

EXCHANGE_KEY = "coretools.exchange"
"""Where a request's own record stands in its ASGI scope."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})
"""RFC 9110 and RFC 5789. A client may send any word for a method, and none of them is to become a label."""

_STREAM = b"text/event-stream"


def outcome_label(outcome: Outcome | None) -> str:
    """How a call ended: `ok`, `failed` for a result that is a failure, `cancelled`, or the kind of the error."""
    if outcome is None:
        return "cancelled"
    if outcome.error is not None:
        return outcome.error.kind
    return "failed" if outcome.failed else "ok"


class CallWatchers:
    """Several watchers of calls as one."""

    def __init__(self, watchers: Sequence[CallObserver]) -> None:
        self._watchers = tuple(watchers)

    def began(self, call: ActiveCall) -> None:
        """Tell each of them, in order."""
        for watcher in self._watchers:
            watcher.began(call)

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Tell each of them, the last first: what was opened last is closed first."""
        for watcher in reversed(self._watchers):
            watcher.ended(call, outcome)


class Exchange:
    """One HTTP request and its answer, counted while they pass."""

    __slots__ = (
        "_receive",
        "_send",
        "began",
        "bytes_in",
        "bytes_out",
        "era",
        "is_stream",
        "method",
        "refused",
        "scope",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, endpoint: str) -> None:
        self.scope = scope
        self.method: str = scope["method"] if scope["method"] in METHODS else "other"
        self.era = era_of(scope, endpoint)
        self.began = time.monotonic()
        self.status = 0
        """Of the answer; 0 where none was begun."""
        self.is_stream = False
        """Whether the answer is a stream of events."""
        self.bytes_in = 0
        """Of the body, as far as it was read."""
        self.bytes_out = 0
        self.refused = ""
        """The kind of refusal, where it was one of ours."""
        self._receive = receive
        self._send = send

    @property
    def path(self) -> str:
        """Without the query, which may hold anything."""
        path: str = self.scope["path"]
        return path

    @property
    def host(self) -> str:
        """The Host header as it was sent; empty where there is none."""
        found = (value for name, value in self.scope["headers"] if name == b"host")
        return next(found, b"").decode("latin-1")

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    async def receive(self) -> Message:
        """What the client sends, counted."""
        message = await self._receive()
        if message["type"] == "http.request":
            self.bytes_in += len(message.get("body", b""))
        return message

    def answer(self, message: Message) -> None:
        """Note how the answer begins."""
        self.status = message["status"]
        self.is_stream = is_stream(message)

    async def send(self, message: Message) -> None:
        """Send, and count what is taken."""
        await self._send(message)
        if message["type"] == "http.response.body":
            self.bytes_out += len(message.get("body", b""))


class RequestWatcher(Protocol):
    """Told of every HTTP request. Is quick, and raises nothing."""

    def request_began(self, exchange: Exchange) -> None:
        """A request has come."""
        ...

    def answer_began(self, exchange: Exchange) -> None:
        """Status and headers are known."""
        ...

    def request_ended(self, exchange: Exchange) -> None:
        """It is over, however it ended."""
        ...


def era_of(scope: Scope, endpoint: str) -> Era:
    """Which era a request is of, by its header, as the endpoint decides."""
    if scope["path"] != endpoint:
        return "none"
    for name, value in scope["headers"]:
        if name == REVISION_HEADER:
            return "handshake" if value in HANDSHAKE_REVISIONS else "stateless"
    return "handshake"


def note_refusal(scope: Scope, kind: str) -> None:
    """Say that a request was refused, and why, to those who watch."""
    exchange = scope.get(EXCHANGE_KEY)
    if isinstance(exchange, Exchange):
        exchange.refused = kind


def is_stream(message: Message) -> bool:
    """Whether an answer that begins so is a stream of events."""
    headers = message.get("headers", ())
    return any(name.lower() == b"content-type" and value.startswith(_STREAM) for name, value in headers)
