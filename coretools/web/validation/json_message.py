"""Refuse JSON that parsers read differently, that costs far more than its size, or whose words an answer would repeat.

The shape is checked before parsing, on the text without its strings, and only if it has enough brackets or commas to
be wrong; the parser finds the rest. For a small call both cost a few hundredths of the call.
"""

import json
import math
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NoReturn, cast

MOST_LEVELS = 64
"""Nesting depth of arrays and objects."""

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


def check_message(body: bytes, *, most_batched: int = 0) -> Any:
    """Parse the JSON-RPC message in a body, or a batch of up to `most_batched` messages.

    Raises:
        Malformed: the body is not JSON in UTF-8.
        BadJson: the JSON is refused; the text says why.
    """
    _check_shape(body)
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


def _check_shape(body: bytes) -> None:
    opened = body.count(b"[") + body.count(b"{")
    if opened <= MOST_LEVELS and body.count(b",") + opened < MOST_VALUES:
        return
    # The counts above are upper bounds, as strings may contain brackets; only now strings are removed.
    bare = _STRING.sub(b"", body)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MOST_VALUES:
        raise BadJson(f"there are more than {MOST_VALUES} values in the message")
    if max(accumulate(map(_STEPS.__getitem__, bare.translate(None, _NO_BRACKETS))), default=0) > MOST_LEVELS:
        raise BadJson(f"arrays and objects are nested more than {MOST_LEVELS} deep")


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
    values = dict(pairs)
    if len(values) != len(pairs):
        raise BadJson("an object has a duplicate key")
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = _short_object(pairs)
    # A body shorter than one key (`_SHORT_DECODER`) needs no such check.
    if max(map(len, values), default=0) > LONGEST_KEY:
        raise BadJson(f"a key is longer than {LONGEST_KEY} characters")
    return values


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
