"""What is wrong with the JSON of a request, before the protocol reads it.

Forms that parsers read in different ways, shapes that cost far more than their bytes, and words that an answer would
send back.

The shape is looked at before the parser sees it, in the text without its strings, where there are brackets or commas
enough for it to be wrong; the parser then finds the rest. For a small call both cost a few hundredths of what it costs.
"""

import json
import math
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NoReturn, cast

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
