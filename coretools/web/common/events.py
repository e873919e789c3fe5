"""Events of requests and calls, for metrics, logs and console.

Observers must be fast and must not raise: they run within each request.
"""

import time
from collections.abc import Sequence
from typing import Literal

from starlette.types import Message, Receive, Scope, Send

from coretools.operations.dispatch import ActiveCall, CallObserver, Outcome
from coretools.web.common.headers import HANDSHAKE_REVISIONS, REVISION_HEADER
from coretools.web.common.urls import ENDPOINT

Era = Literal["handshake", "stateless", "none"]
"""Protocol era of a request; `none` if it is not for the endpoint."""

EXCHANGE_KEY = "coretools.exchange"
"""ASGI scope key of the request's `Exchange`."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})
"""Methods of RFC 9110 and RFC 5789; a client may send any word, which must not become a label."""

_STREAM = b"text/event-stream"


def outcome_label(outcome: Outcome | None) -> str:
    """Return how a call ended: `ok`, `failed` for a failed result, `cancelled`, or the kind of the error."""
    if outcome is None:
        return "cancelled"
    if outcome.error is not None:
        return outcome.error.kind
    return "failed" if outcome.failed else "ok"


class CallWatchers:
    """Combines several observers of calls."""

    def __init__(self, watchers: Sequence[CallObserver]) -> None:
        self._watchers = tuple(watchers)

    def began(self, call: ActiveCall) -> None:
        """Notify each observer, in order."""
        for watcher in self._watchers:
            watcher.began(call)

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Notify each observer in reverse order: what was opened last is closed first."""
        for watcher in reversed(self._watchers):
            watcher.ended(call, outcome)


class Exchange:
    """One HTTP request and its response, measured while they pass."""

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

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"] if scope["method"] in METHODS else "other"
        self.era = era_of(scope)
        self.began = time.monotonic()
        self.status = 0
        """Status of the response; 0 if none has begun."""
        self.is_stream = False
        """Whether the response is an event stream."""
        self.bytes_in = 0
        """Bytes of the body that were read."""
        self.bytes_out = 0
        self.refused = ""
        """Kind of the refusal, if the request was refused here."""
        self._receive = receive
        self._send = send

    @property
    def path(self) -> str:
        """The path without the query, which may contain anything."""
        path: str = self.scope["path"]
        return path

    @property
    def host(self) -> str:
        """The Host header as sent; empty if there is none."""
        hosts = (value for name, value in self.scope["headers"] if name == b"host")
        return next(hosts, b"").decode("latin-1")

    @property
    def seconds(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self.began

    async def receive(self) -> Message:
        """Receive a message and count its bytes."""
        message = await self._receive()
        if message["type"] == "http.request":
            self.bytes_in += len(message.get("body", b""))
        return message

    def answer(self, message: Message) -> None:
        """Record status and type of the response."""
        self.status = message["status"]
        self.is_stream = is_stream(message)

    async def send(self, message: Message) -> None:
        """Send a message and count its bytes."""
        await self._send(message)
        if message["type"] == "http.response.body":
            self.bytes_out += len(message.get("body", b""))


class RequestWatcher:
    """Observes every HTTP request. Must be fast and must not raise. A subclass overrides what it needs."""

    def request_began(self, exchange: Exchange) -> None:
        """A request began."""

    def answer_began(self, exchange: Exchange) -> None:
        """Status and headers are known."""

    def request_ended(self, exchange: Exchange) -> None:
        """The request ended, in whatever way."""


def era_of(scope: Scope) -> Era:
    """Return the era of a request by its header, as the endpoint decides."""
    if scope["path"] != ENDPOINT:
        return "none"
    for name, value in scope["headers"]:
        if name == REVISION_HEADER:
            return "handshake" if value in HANDSHAKE_REVISIONS else "stateless"
    # No header: revisions before 2025-06-18 did not have it.
    return "handshake"


def note_refusal(scope: Scope, kind: str) -> None:
    """Record for the observers that and why a request was refused."""
    exchange = scope.get(EXCHANGE_KEY)
    if isinstance(exchange, Exchange):
        exchange.refused = kind


def is_stream(message: Message) -> bool:
    """Whether a response that begins with this message is an event stream."""
    headers = message.get("headers", ())
    return any(name.lower() == b"content-type" and value.startswith(_STREAM) for name, value in headers)


class ResponseState:
    """Tracks the progress of a response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_begun = False
        self.is_stream = False
        self.is_over = False

    async def send(self, message: Message) -> None:
        """Send a message of the response."""
        if message["type"] == "http.response.start":
            self.is_begun, self.is_stream = True, is_stream(message)
        else:
            self.is_over = not message.get("more_body", False)
        await self._send(message)
