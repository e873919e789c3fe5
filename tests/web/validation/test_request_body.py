"""Bodies: read whole and bounded, and the JSON in them (docs/specs/validation.md)."""

import json
import random
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from coretools.web.common.config import LimitsSection
from coretools.web.common.principals import Principal, set_principal
from coretools.web.sessions.batches import IS_CALL_KEY
from coretools.web.validation.json_message import MOST_LEVELS, MOST_VALUES, BadJson, Malformed, check_message, parse
from coretools.web.validation.request_body import BodyMiddleware
from tests.web.raw_peer import Answer, Recorder, connected, respond, served, until

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}'


class BodyReadingApp:
    """The body reader around an app; the header `X-Name` names the principal."""

    def __init__(self, app: Any, limits: LimitsSection | None = None) -> None:
        self.bodies = BodyMiddleware(app, limits or LimitsSection())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        set_principal(scope, Principal(name=dict(scope["headers"]).get(b"x-name", b"ann").decode()))
        await self.bodies(scope, receive, send)


def post(body: bytes, *, name: bytes = b"ann", length: int | None = None) -> bytes:
    head = b"POST /mcp HTTP/1.1\r\nHost: a\r\nX-Name: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (name, len(body) if length is None else length) + body


def chunked(*parts: bytes, name: bytes = b"ann") -> bytes:
    head = b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-Name: %s\r\n\r\n" % name
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


async def posted(app: Any, data: bytes) -> Answer:
    async with served(app) as running, connected(running.port) as raw:
        await raw.push(data)
        return await raw.answer()


async def test_an_app_gets_the_body_in_one_message_and_later_the_disconnect() -> None:
    """validation-21: cancelling a call whose client is gone depends on it."""
    heard: list[Any] = []
    began, ended = anyio.Event(), anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append(await receive())
        began.set()
        heard.append(await receive())
        ended.set()

    async with served(BodyReadingApp(app)) as running:
        async with connected(running.port) as raw:
            await raw.send(chunked(CALL[:10]))
            await raw.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(CALL) - 10, CALL[10:]))
            with anyio.fail_after(50):
                await began.wait()
        with anyio.fail_after(50):
            await ended.wait()
    assert heard == [{"type": "http.request", "body": CALL, "more_body": False}, {"type": "http.disconnect"}]


async def test_a_disconnect_within_the_body_reaches_no_app() -> None:
    """validation-21: no call is begun, and no bytes stay in memory."""
    app = Recorder()
    read = BodyReadingApp(app)
    async with served(read) as running:
        async with connected(running.port) as raw:
            await raw.send(post(CALL[:20], length=1000))
            await until(lambda: read.bodies.buffered_bytes == 20)
        await until(lambda: read.bodies.buffered_bytes == 0)
        await until(lambda: running.connections == 0)
    assert not app.seen


async def test_a_body_in_chunks_is_counted_as_it_comes() -> None:
    """validation-15: 413 without a declared length, and no more than the limit is buffered."""
    app = Recorder()
    read = BodyReadingApp(app, LimitsSection(body_bytes=100_000))
    async with served(read) as running, connected(running.port) as raw:
        await raw.send(chunked())
        await raw.push(chunked(*[b" " * 10_000] * 1000).partition(b"\r\n\r\n")[2])
        answer = await raw.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        await raw.rest()
        assert read.bodies.buffered_bytes == 0
    assert not app.seen


async def test_all_bodies_together_have_a_limit_and_one_principal_a_share_of_it() -> None:
    """validation-22: a principal that sends much at once is refused, and others are not; later there is room again."""
    read = BodyReadingApp(Recorder(), LimitsSection(body_bytes=50_000, bodies_bytes=200_000))
    half = post(b" " * 40_000, length=50_000)
    async with served(read) as running:
        async with connected(running.port) as first:
            await first.send(half)
            await until(lambda: read.bodies.buffered_bytes == 40_000)
            async with connected(running.port) as second:
                await second.push(half)
                refused = await second.answer()
                assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            async with connected(running.port) as other:
                await other.send(post(CALL + b" " * 40_000, name=b"ben"))
                assert (await other.answer()).status == 200
            await first.push(b" " * 10_000)
            assert (await first.answer()).status == 400
        await until(lambda: read.bodies.buffered_bytes == 0)
        async with connected(running.port) as raw:
            await raw.send(post(CALL + b" " * 40_000))
            assert (await raw.answer()).status == 200
    assert read.bodies.buffered_bytes == 0


async def test_a_body_stays_counted_until_the_response_is_sent() -> None:
    """validation-22: the app may still use it."""
    go_on, began = anyio.Event(), anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await go_on.wait()
        await respond(send)

    read = BodyReadingApp(app)
    async with served(read) as running, connected(running.port) as raw:
        await raw.send(post(CALL))
        with anyio.fail_after(50):
            await began.wait()
        assert read.bodies.buffered_bytes == len(CALL)
        go_on.set()
        assert (await raw.answer()).status == 200
        await until(lambda: read.bodies.buffered_bytes == 0)


REFUSED = {
    "empty": b"",
    "no-json": b"hello",
    "half": CALL[:-1],
    "behind": CALL + b"x",
    "two": CALL + CALL,
    "batch": b"[" + CALL + b"," + CALL + b"]",
    "empty-batch": b"[]",
    "text": b'"x"',
    "number": b"1",
    "null": b"null",
    "nan": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}',
    "infinity": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":-Infinity}}',
    "infinite": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e999}}',
    "digits": b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"x"}',
    "wide-id": b'{"jsonrpc":"2.0","id":9223372036854775808,"method":"x"}',
    "long-id": b'{"jsonrpc":"2.0","id":"' + b"x" * 257 + b'","method":"x"}',
    "long-method": b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 257 + b'"}',
    "long-name": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"' + b"x" * 257 + b'"}}',
    "long-token": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progressToken":"' + b"x" * 257 + b'"}}}',
    "long-revision": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"protocolVersion":"' + b"x" * 257 + b'"}}',
    "long-key": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"' + b"x" * 1025 + b'":1}}',
    "key-twice": b'{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}',
    "key-twice-within": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":{"a":1,"\\u0061":2}}}',
    "half-pair": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud800"}}',
    "half-pair-in-key": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"\\uDFFF":"a"}}',
    "half-pair-in-bytes": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xed\xa0\x80"}}',
    "no-utf-8": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xff"}}',
    "overlong": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xc0\xaf"}}',
    "mark": b"\xef\xbb\xbf" + CALL,
    "utf-16": CALL.decode().encode("utf-16"),
    "utf-32": CALL.decode().encode("utf-32-le"),
    "nul": CALL + b"\0",
    "deep": b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b'{"a":' * 64 + b"1" + b"}" * 64 + b"}",
    "deep-lists": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"[" * 64 + b"]" * 64 + b"}}",
    "very-deep": b"[" * 100_000 + b"]" * 100_000,
    "deep-and-open": b'{"a":' * 200_000,
    "many": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[' + b"[]," * (MOST_VALUES + 1) + b"1]}}",
    "long-number": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"9" * 310 + b"}}",
    "long-negative": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":-' + b"9" * 310 + b"}}",
    "no-version": b'{"id":1,"method":"x"}',
    "other-version": b'{"jsonrpc":"1.0","id":1,"method":"x"}',
    "null-id": b'{"jsonrpc":"2.0","id":null,"method":"x"}',
    "true-id": b'{"jsonrpc":"2.0","id":true,"method":"x"}',
    "fraction-id": b'{"jsonrpc":"2.0","id":1.5,"method":"x"}',
    "no-method": b'{"jsonrpc":"2.0","id":1,"method":null}',
    "list-of-params": b'{"jsonrpc":"2.0","id":1,"method":"x","params":[]}',
    "nothing": b'{"jsonrpc":"2.0","id":1}',
    "result-and-error": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
    "result-of-nobody": b'{"jsonrpc":"2.0","result":{}}',
    "no-error": b'{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}',
    "comment": b'{"jsonrpc":"2.0","id":1,/**/"method":"x"}',
    "comma": b'{"jsonrpc":"2.0","id":1,"method":"x",}',
    "control": b'{"jsonrpc":"2.0","id":1,"method":"a\nb"}',
}


async def test_json_that_can_be_read_in_two_ways_or_costs_too_much_is_refused() -> None:
    """validation-23, validation-24, validation-25: 400, a short answer, and the app never sees it."""
    for body in REFUSED.values():
        app = Recorder()
        answer = await posted(BodyReadingApp(app), post(body))
        assert answer.status == 400, body
        assert len(answer.body) < 300, body
        error = json.loads(answer.body)
        assert error["id"] in (None, 1), body
        assert error["error"]["code"] in (-32700, -32600), body
        assert not app.seen, body


@pytest.mark.parametrize(
    "body",
    [
        CALL,
        b"  " + CALL + b"\r\n",
        b'{"jsonrpc":"2.0","id":"' + b"x" * 256 + b'","method":"x"}',
        b'{"jsonrpc":"2.0","id":9223372036854775807,"method":"x"}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud83d\\ude00 \\\\ud800"}}',
        '{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"😀\u0000"}}'.replace("\u0000", "\\u0000").encode(),
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"[" * 60 + b"]" * 60 + b"}}",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"' + b"[{" * 100_000 + b'\\""}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"' + b"," * 200_000 + b'"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":{"name":"' + b"x" * 5000 + b'"}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":123456789012345678901234567890}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[' + b"9" * 309 + b",-" + b"9" * 309 + b"]}}",
    ],
)
async def test_plain_json_is_passed_on_unchanged(body: bytes) -> None:
    """validation-23: brackets and commas within strings do not count; no byte is changed."""
    app = Recorder()
    assert (await posted(BodyReadingApp(app), post(body))).status == 200
    assert app.seen == [("POST", "/mcp", body)]


@pytest.mark.parametrize(
    ("body", "is_call"),
    [
        (CALL, True),
        (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', False),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', False),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', False),
    ],
)
async def test_the_kind_of_message_is_passed_on(body: bytes, is_call: bool) -> None:
    """validation-30: so that responses and notifications take no slot."""
    found: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope[IS_CALL_KEY])
        await respond(send)

    await posted(BodyReadingApp(app), post(body))
    assert found == [is_call]


async def test_other_methods_have_no_body_to_read() -> None:
    """validation-21: a stream that is opened with GET begins at once."""
    app = Recorder()
    async with served(BodyReadingApp(app)) as running, connected(running.port) as raw:
        await raw.send(b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await raw.answer()).status == 200


def test_accepted_json_means_the_same_to_every_parser() -> None:
    """validation-24: Python's and pydantic's parser read the same value from the same bytes."""
    for seed in range(50):
        import pydantic_core

        source = random.Random(seed)
        for _ in range(40):
            mutated = bytearray(json.dumps(_any_value(source, 4)).encode())
            for _ in range(source.randint(0, 2)):
                at = source.randint(0, len(mutated))
                mutated[at : at + source.randint(0, 2)] = bytes(
                    source.choices(b'{}[]",:\\u01e9\x00\xffndN', k=source.randint(0, 2))
                )
            try:
                value = parse(bytes(mutated))
            except BadJson:
                continue
            assert value == json.loads(bytes(mutated)) == pydantic_core.from_json(bytes(mutated)), seed
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _any_value(source: random.Random, depth: int) -> Any:
    if depth == 0 or source.random() < 0.3:
        return source.choice([None, True, 0, -1.5, "", "a", 'é"\\😀', 2**70])
    if source.random() < 0.5:
        return [_any_value(source, depth - 1) for _ in range(source.randint(0, 3))]
    return {source.choice("abc") * source.randint(0, 3): _any_value(source, depth - 1) for _ in range(3)}


def test_the_largest_message_is_accepted_and_no_larger_one() -> None:
    """validation-25: one byte more is too many; the error differs from that of malformed JSON."""

    def nested(levels: int) -> bytes:
        start = b'{"jsonrpc":"2.0","method":"x","params":'
        return start + b'{"a":' * (levels - 1) + b"1" + b"}" * levels

    assert check_message(nested(MOST_LEVELS))
    with pytest.raises(BadJson, match=f"more than {MOST_LEVELS} deep"):
        check_message(nested(MOST_LEVELS + 1))
    with pytest.raises(BadJson, match="values"):
        check_message(b'{"a":[' + b"1," * MOST_VALUES + b"1]}")
    with pytest.raises(Malformed):
        check_message(b"{")
