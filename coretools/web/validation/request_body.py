"""Reads request bodies whole, limits their size and checks their JSON before the rest of the server sees them.

Runs after authentication, so no body of a stranger is read. There is a limit for one body, for the bodies of all active
requests, and for one principal's share of those.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NoReturn, cast

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coretools.protocol.stdio.lines import MAX_BATCHED
from coretools.web.common.config import LimitsSection
from coretools.web.common.error_response import ID_KEY, error_response
from coretools.web.common.principals import principal_name
from coretools.web.sessions.batches import BATCH_KEY, may_be_batch, note_message

# Refused JSON: forms that parsers read differently, shapes that cost far more than their size, and long words that an
# answer would repeat. The shape is checked before parsing, on the text without its strings, and only if it has enough
# brackets or commas to be wrong; the parser finds the rest. For a small call both cost a few hundredths of the call.

MOST_VALUES = 20_000
"""Values in one message. Parsing blocks the event loop: 200 KB with a hundred thousand lists cost as much as forty
calls."""

MOST_DIGITS = 309
"""Digits of an integer; a longer one exceeds a double, and parsing it takes quadratic time."""

LONGEST_WORD = 256
"""Characters of an id, a method, a progress token or a name: answers, errors and logs repeat them."""

LONGEST_KEY = 1024
"""Characters of an object key: an error may name it."""

LARGEST_ID = 2**63

_ECHOED = ("name", "protocolVersion", "level", "taskId", "requestId", "progressToken", "clientInfo", "ref", "argument")
_SURROGATES = (b"\\ud", b"\\uD")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = tuple(1 if byte in b"[{" else -1 for byte in range(256))


class BadJson(Exception):
    """The JSON is refused. The text is for the client and repeats nothing of what it sent."""

    request_id: str | int | None = None
    """The id of the message, if it is valid and can be repeated."""


class Malformed(BadJson):
    """The body is not JSON in UTF-8."""


def check_message(body: bytes, *, depth: int, most_batched: int = 0) -> Any:
    """Parse the JSON-RPC message in a body, or a batch of up to `most_batched` messages.

    Raises:
        Malformed: the body is not JSON in UTF-8.
        BadJson: the JSON is refused; the text says why.
    """
    _check_shape(body, depth)
    message = parse(body)
    if isinstance(message, list) and most_batched:
        if not 1 <= len(message) <= most_batched:
            raise BadJson(f"a batch has 1 to {most_batched} messages")
        for one in message:
            _check_one(one)
    else:
        _check_one(message)
    return message


def _check_one(message: Any) -> None:
    if not isinstance(message, dict):
        raise BadJson("send one JSON-RPC message, an object; batches are not supported here")
    try:
        _check_envelope(message)
        for word in _words(message):
            _check_word(word)
    except BadJson as error:
        if not message.keys() & {"result", "error"}:  # a response gets no response
            error.request_id = _usable_id(message.get("id"))
        raise


def parse(body: bytes) -> Any:
    """Parse JSON that every parser reads in the same way.

    Raises:
        Malformed: the body is not JSON in UTF-8.
        BadJson: a duplicate key, an invalid number or an invalid character.
    """
    try:
        message = (_DECODER if len(body) > LONGEST_KEY else _SHORT_DECODER).decode(body.decode("utf-8"))
        # Python decodes an escaped lone surrogate without an error; encoding the result is what fails.
        if b"\\u" in body and any(escape in body for escape in _SURROGATES):
            json.dumps(message, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadJson("the body has an unpaired surrogate, which is not a character") from error
    except (ValueError, RecursionError) as error:
        # Nesting about a thousand levels deep raises RecursionError.
        raise Malformed("the body is not JSON in UTF-8") from error
    return message


def _check_shape(body: bytes, depth: int) -> None:
    opened = body.count(b"[") + body.count(b"{")
    if opened <= depth and body.count(b",") + opened < MOST_VALUES:
        return
    # The counts above are upper bounds, as strings may contain brackets; only now strings are removed.
    bare = _STRING.sub(b"", body)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MOST_VALUES:
        raise BadJson(f"there are more than {MOST_VALUES} values in the message")
    if max(accumulate(map(_STEPS.__getitem__, bare.translate(None, _NO_BRACKETS))), default=0) > depth:
        raise BadJson(f"arrays and objects are nested more than {depth} deep")


def _check_envelope(message: dict[str, Any]) -> None:
    """Refuse what is not a JSON-RPC message; the SDK's own error would repeat the message."""
    is_known = _is_request(message) if "method" in message else _is_outcome(message)
    if message.get("jsonrpc") != "2.0" or not is_known:
        raise BadJson("the body is not a request, notification or response of JSON-RPC 2.0")


def _is_request(message: dict[str, Any]) -> bool:
    return (
        isinstance(message["method"], str)
        and _is_id(message.get("id", 0))
        and isinstance(message.get("params", {}), dict)
    )


def _is_outcome(message: dict[str, Any]) -> bool:
    """Whether a message is a response; an error for an unreadable request has no id."""
    if "error" not in message:
        return _is_id(message.get("id")) and isinstance(message.get("result"), dict)
    error = message["error"]
    is_error = isinstance(error, dict) and isinstance(error.get("message"), str) and type(error.get("code")) is int
    return is_error and "result" not in message and (message.get("id") is None or _is_id(message["id"]))


def _is_id(value: Any) -> bool:
    # `type`, not isinstance: `true` is no id.
    return isinstance(value, str) or type(value) is int


def _usable_id(value: Any) -> str | int | None:
    """Return an id that an answer can repeat, or None."""
    if not _is_id(value):
        return None
    try:
        _check_word(value)
    except BadJson:
        return None
    return cast("str | int", value)


def _words(message: dict[str, Any]) -> Iterator[Any]:
    """Yield the values that an error or a log would repeat."""
    yield from (message.get("id"), message.get("method"), message.get("jsonrpc"))
    params = message.get("params")
    if isinstance(params, dict):
        meta = params.get("_meta")
        for holder in (params, meta):
            if isinstance(holder, dict):
                yield from (value for key, value in holder.items() if key in _ECHOED or "/protocolVersion" in key)


def _check_word(word: Any) -> None:
    if isinstance(word, str) and len(word) > LONGEST_WORD:
        raise BadJson(f"an id, a method or a name is longer than {LONGEST_WORD} characters")
    if isinstance(word, int) and not -LARGEST_ID <= word < LARGEST_ID:
        raise BadJson("an id does not fit into 64 bits")
    if isinstance(word, dict):
        for inner in word.values():
            _check_word(inner)


def _short_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadJson("an object has a duplicate key")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = _short_object(pairs)
    # A body shorter than one key (`_SHORT_DECODER`) needs no such check.
    if max(map(len, found), default=0) > LONGEST_KEY:
        raise BadJson(f"a key is longer than {LONGEST_KEY} characters")
    return found


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS + text.startswith("-"):
        raise BadJson("a number is too large")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise BadJson("a number is too large")
    return number


def _no_number(text: str) -> NoReturn:
    raise BadJson(f"{text} is not JSON")  # NaN, Infinity or -Infinity


_DECODER, _SHORT_DECODER = (
    json.JSONDecoder(object_pairs_hook=hook, parse_int=_whole, parse_float=_finite, parse_constant=_no_number)
    for hook in (_object, _short_object)
)


PARSE_ERROR = -32700
RETRY_SECONDS = "1"
SHARE = 4
"""One principal may hold a quarter of the bytes of all active bodies."""


class BodyMiddleware:
    """Passes each body to the application in one message; a later disconnect is passed on as usual."""

    def __init__(self, app: ASGIApp, limits: LimitsSection) -> None:
        self._app = app
        self._limits = limits
        self._buffered = 0
        self._buffered_by: Counter[str] = Counter()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the bodies of all active requests."""
        return self._buffered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        counted = _BodyBytes(self, principal_name(scope))
        try:
            answer = await self._read(counted, receive)
            if answer is None:
                return
            if isinstance(answer, Response):
                await answer(scope, receive, send)
                return
            refused = self._checked(scope, answer)
            if refused is not None:
                await refused(scope, receive, send)
                return
            await self._app(scope, _replaying(answer, receive), send)
        finally:
            counted.release()

    def hold(self, principal: str, count: int) -> bool:
        """Count bytes of a body; False if a limit is reached."""
        most = self._limits.bodies_bytes
        share = max(most // SHARE, self._limits.body_bytes)
        if self._buffered + count > most or self._buffered_by[principal] + count > share:
            return False
        self._buffered += count
        self._buffered_by[principal] += count
        return True

    def release(self, principal: str, count: int) -> None:
        """Release counted bytes."""
        self._buffered -= count
        self._buffered_by[principal] -= count
        if self._buffered_by[principal] <= 0:
            del self._buffered_by[principal]

    async def _read(self, counted: "_BodyBytes", receive: Receive) -> bytes | Response | None:
        """Return the body, or a refusal, or None if the client disconnected before its end."""
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            if counted.count + len(part) > self._limits.body_bytes:
                reason = f"the body is over {self._limits.body_bytes} bytes"
                return error_response(413, reason, kind="body-too-large")
            # Counted part by part while it arrives: a Content-Length is a promise, and chunked bodies have none.
            if not counted.add(len(part)):
                reason = "the bodies of active requests reach the limit; try again later"
                return error_response(503, reason, kind="busy", headers={"Retry-After": RETRY_SECONDS})
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _checked(self, scope: Scope, body: bytes) -> Response | None:
        try:
            most = MAX_BATCHED if may_be_batch(scope) else 0
            message = check_message(body, depth=self._limits.json_depth, most_batched=most)
        except BadJson as error:
            is_json = not isinstance(error, Malformed)
            if error.request_id is not None:
                scope[ID_KEY] = error.request_id
            return error_response(400, str(error), kind="bad-json", code=None if is_json else PARSE_ERROR)
        if isinstance(message, list):
            scope[BATCH_KEY] = message
        else:
            note_message(scope, message)
        return None


class _BodyBytes:
    """Counts the body of one request."""

    def __init__(self, bodies: BodyMiddleware, principal: str) -> None:
        self._bodies = bodies
        self._principal = principal
        self.count = 0

    def add(self, count: int) -> bool:
        """Count another part of the body."""
        if not self._bodies.hold(self._principal, count):
            return False
        self.count += count
        return True

    def release(self) -> None:
        """Release the body; the request is over."""
        self._bodies.release(self._principal, self.count)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that delivers the body and then the client's disconnect."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def hear() -> Message:
        return first.pop() if first else await receive()

    return hear
