"""Bodies of requests: read whole, bounded and checked before anything behind this sees the request.

Stands behind the gate, so that nobody who may not call has a body read. What one request may send is bounded, and so
is what all requests hold together, and of that one principal's share.
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

# What is wrong with the JSON of a request, before the protocol reads it.
#
# Forms that parsers read in different ways, shapes that cost far more than their bytes, and words that an answer would
# send back.
#
# The shape is looked at before the parser sees it, in the text without its strings, where there are brackets or commas
# enough for it to be wrong; the parser then finds the rest. For a small call both cost a few hundredths of what it
# costs.


MOST_VALUES = 20_000
"""In one message. Nobody else is served while it is parsed: 200 KB with a hundred thousand lists in them cost as much
as forty calls."""

MOST_DIGITS = 309
"""Of a whole number; a longer one is beyond a double, and reading it costs the square of its length."""

LONGEST_WORD = 256
"""Characters of an id, a method, a progress token or a name: what an answer, an error or a log repeats."""

LONGEST_KEY = 1024
"""Characters of a key: an error may name it."""

LARGEST_ID = 2**63

_ECHOED = ("name", "protocolVersion", "level", "taskId", "requestId", "progressToken", "clientInfo", "ref", "argument")
_SURROGATES = (b"\\ud", b"\\uD")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = tuple(1 if byte in b"[{" else -1 for byte in range(256))


class BadJson(Exception):
    """It is not to be read. The text is for the client, and holds nothing of what it sent."""

    request_id: str | int | None = None
    """That of the message, where one can be made out and sent back."""


class Malformed(BadJson):
    """It is no JSON at all, or not in UTF-8."""


def check_message(body: bytes, *, depth: int, most_batched: int = 0) -> Any:
    """The one JSON-RPC message in a body, parsed; or as a list a batch of them, where so many may be one.

    Raises:
        Malformed: no JSON in UTF-8.
        BadJson: JSON of a kind that is refused; says which.
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
        raise BadJson("send one JSON-RPC message, an object; there are no batches")
    try:
        _check_envelope(message)
        for word in _words(message):
            _check_word(word)
    except BadJson as error:
        if not message.keys() & {"result", "error"}:  # an answer is not answered
            error.request_id = _usable_id(message.get("id"))
        raise


def parse(body: bytes) -> Any:
    """JSON that every parser reads in the same way.

    Raises:
        Malformed: no JSON in UTF-8.
        BadJson: a key twice, or a number or a character that is none.
    """
    try:
        message = (_DECODER if len(body) > LONGEST_KEY else _SHORT_DECODER).decode(body.decode("utf-8"))
        if b"\\u" in body and any(escape in body for escape in _SURROGATES):
            json.dumps(message, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadJson("half of a surrogate pair is no character") from error
    except (ValueError, RecursionError) as error:
        # A nesting of about a thousand is a RecursionError.
        raise Malformed("the body is no JSON in UTF-8") from error
    return message


def _check_shape(body: bytes, depth: int) -> None:
    opened = body.count(b"[") + body.count(b"{")
    if opened <= depth and body.count(b",") + opened < MOST_VALUES:
        return
    bare = _STRING.sub(b"", body)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MOST_VALUES:
        raise BadJson(f"there are more than {MOST_VALUES} values in the message")
    if max(accumulate(map(_STEPS.__getitem__, bare.translate(None, _NO_BRACKETS))), default=0) > depth:
        raise BadJson(f"arrays and objects are nested more than {depth} deep")


def _check_envelope(message: dict[str, Any]) -> None:
    """The SDK answers what is no message in the words of its validator, with the message in them."""
    is_known = _is_request(message) if "method" in message else _is_outcome(message)
    if message.get("jsonrpc") != "2.0" or not is_known:
        raise BadJson("this is no request, notification or answer of JSON-RPC 2.0")


def _is_request(message: dict[str, Any]) -> bool:
    return (
        isinstance(message["method"], str)
        and _is_id(message.get("id", 0))
        and isinstance(message.get("params", {}), dict)
    )


def _is_outcome(message: dict[str, Any]) -> bool:
    """Whether it holds a result or an error; that of a request which could not be read has no id."""
    if "error" not in message:
        return _is_id(message.get("id")) and isinstance(message.get("result"), dict)
    error = message["error"]
    is_error = isinstance(error, dict) and isinstance(error.get("message"), str) and type(error.get("code")) is int
    return is_error and "result" not in message and (message.get("id") is None or _is_id(message["id"]))


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or type(value) is int


def _usable_id(value: Any) -> str | int | None:
    """An id that an answer can repeat."""
    if not _is_id(value):
        return None
    try:
        _check_word(value)
    except BadJson:
        return None
    return cast("str | int", value)


def _words(message: dict[str, Any]) -> Iterator[Any]:
    """What comes back to the client, or goes into a log, where it is wrong."""
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
        raise BadJson("an object has a key twice")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = _short_object(pairs)
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
    raise BadJson(f"{text} is no JSON")  # NaN, Infinity or -Infinity


_DECODER, _SHORT_DECODER = (
    json.JSONDecoder(object_pairs_hook=hook, parse_int=_whole, parse_float=_finite, parse_constant=_no_number)
    for hook in (_object, _short_object)
)


PARSE_ERROR = -32700
RETRY_SECONDS = "1"
SHARE = 4
"""One principal's requests hold no more than a quarter of what all may hold."""


class BodyMiddleware:
    """An app that gets each body in one message. Later it hears, as ever, that the client went away."""

    def __init__(self, app: ASGIApp, limits: LimitsSection) -> None:
        self._app = app
        self._limits = limits
        self._held = 0
        self._held_by: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Bytes of the bodies of all requests that are under way."""
        return self._held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        holding = _Holding(self, principal_name(scope))
        try:
            answer = await self._read(holding, receive)
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
            holding.release()

    def hold(self, principal: str, count: int) -> bool:
        """Count bytes of a body; whether there was room for them."""
        most = self._limits.bodies_bytes
        if self._held + count > most or self._held_by[principal] + count > max(most // SHARE, self._limits.body_bytes):
            return False
        self._held += count
        self._held_by[principal] += count
        return True

    def release(self, principal: str, count: int) -> None:
        """They are held no more."""
        self._held -= count
        self._held_by[principal] -= count
        if self._held_by[principal] <= 0:
            del self._held_by[principal]

    async def _read(self, holding: "_Holding", receive: Receive) -> bytes | Response | None:
        """The body; or why it is not read; None where the client went away before its end."""
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            if holding.count + len(part) > self._limits.body_bytes:
                reason = f"the body is over {self._limits.body_bytes} bytes"
                return error_response(413, reason, kind="body-too-large")
            if not holding.add(len(part)):
                reason = "too much is being sent at once; try again later"
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


class _Holding:
    """What one request holds of the room for bodies."""

    def __init__(self, bodies: BodyMiddleware, principal: str) -> None:
        self._bodies = bodies
        self._principal = principal
        self.count = 0

    def add(self, count: int) -> bool:
        """More of the body came."""
        if not self._bodies.hold(self._principal, count):
            return False
        self.count += count
        return True

    def release(self) -> None:
        """The request is over."""
        self._bodies.release(self._principal, self.count)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """What the app hears: the body, then whatever comes after it, which is that the client is gone."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def hear() -> Message:
        return first.pop() if first else await receive()

    return hear
