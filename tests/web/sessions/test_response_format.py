"""JSON if nothing streams, otherwise a stream, in the handshake era (docs/specs/http.md)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest

from coretools.hosting.serve import http_app
from coretools.operations.call import Call
from coretools.operations.declare import Effect, tool
from coretools.operations.registry import Registry
from coretools.web.sessions.response_format import ResponseFormatMiddleware
from tests.protocol.http_peer import listening
from tests.web.http_mcp_client import HttpMcpClient, fields, messages_in

SECONDS = 50.0
STREAM = "text/event-stream"

lingering: list[anyio.Event] = []
"""`linger` waits for the newest of these."""


@tool(Effect.READ)
def say(text: str) -> str:
    """Say it."""
    return text


@tool(Effect.READ)
async def work(call: Call) -> str:
    """Tell of progress, then be done."""
    await call.progress(1, 2, "half")
    return "done"


@tool(Effect.READ)
async def linger(call: Call) -> str:
    """Report nothing, and end when the client has the beginning of its stream."""
    await lingering[-1].wait()
    return f"late for {call.principal}"


@tool(Effect.READ)
async def leave(call: Call) -> str:
    """Send the client away before the answer."""
    await call.close_stream()
    return "come back"


@asynccontextmanager
async def client(revision: str = "2025-11-25") -> AsyncIterator[HttpMcpClient]:
    registry = Registry()
    for one in (say, work, linger, leave):
        registry.add(one)
    async with listening(http_app(registry)) as url, httpx2.AsyncClient(timeout=SECONDS) as http:
        mcp_client = HttpMcpClient(http, url, revision=revision)
        await mcp_client.initialize()
        yield mcp_client


def texts(answer: httpx2.Response) -> list[str]:
    return [one["result"]["content"][0]["text"] for one in messages_in(answer) if "result" in one]


HOSTILE = [
    "",
    "plain",
    'a"b\\c',
    "data: x\r\n\r\nid: 1",
    '{"jsonrpc":"2.0","method":"x"}',
    "\u2028\x00é",
    "x" * 300_000,
]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_quick_response_is_json(revision: str) -> None:
    """http-2: whatever its content, with its length, and no headers of a stream."""
    async with client(revision) as mcp_client:
        for text in HOSTILE:
            answer = await mcp_client.call("say", text=text)
            assert answer.headers["content-type"] == "application/json"
            assert int(answer.headers["content-length"]) == len(answer.content)
            assert texts(answer) == [text]
        errors = messages_in(await mcp_client.ask("no/such", {}))
        assert errors[0]["error"]["code"] == -32601


async def test_ids_of_every_kind_are_answered_as_json() -> None:
    """http-2: a number, a negative one, a text with quotes and escapes in it."""
    async with client() as mcp_client:
        for request_id in (0, -7, 2**53, "", 'q"\\', '","result":', "é\u2028"):
            body = {"jsonrpc": "2.0", "id": request_id, "method": "ping"}
            answer = await mcp_client.post(body)
            assert answer.headers["content-type"] == "application/json"
            assert answer.json() == {"jsonrpc": "2.0", "id": request_id, "result": {}}


async def test_progress_makes_a_stream_in_order() -> None:
    """http-3: the id to resume from first, then progress, then the response."""
    async with client() as mcp_client:
        params = {"name": "work", "arguments": {}, "_meta": {"progressToken": "t"}}
        answer = await mcp_client.ask("tools/call", params)
        assert answer.headers["content-type"].startswith(STREAM)
        assert next(fields(answer.text, "data: ")) == ""
        progress, result = messages_in(answer)
        assert progress["params"]["message"] == "half"
        assert result["result"]["content"][0]["text"] == "done"
        assert len(set(fields(answer.text, "id: "))) == 3


async def test_a_slow_call_is_a_stream_that_can_be_resumed() -> None:
    """http-2: its client has the id before the response is there."""
    lingering.append(anyio.Event())
    async with client() as mcp_client:
        body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "linger", "arguments": {}}}
        async with mcp_client.http.stream("POST", mcp_client.url, json=body, headers=mcp_client.headers()) as answer:
            assert answer.headers["content-type"].startswith(STREAM)
            first = [line async for line in _until_data(answer)]
        lingering[-1].set()
        (last,) = fields("\n".join(first), "id: ")
        headers = {**mcp_client.headers(), "Accept": STREAM, "Last-Event-ID": last}
        with anyio.fail_after(SECONDS):
            async with mcp_client.http.stream("GET", mcp_client.url, headers=headers) as missed:
                async for line in missed.aiter_lines():
                    if line.startswith("data: {"):
                        break
        assert json.loads(line.removeprefix("data: "))["result"]["content"][0]["text"] == "late for local"


async def _until_data(answer: httpx2.Response) -> AsyncIterator[str]:
    async for line in answer.aiter_lines():
        yield line
        if line.startswith("data:"):
            return


async def test_a_stream_that_ends_without_a_response_stays_one() -> None:
    """http-3: the client has to resume and needs the id and the retry time."""
    async with client() as mcp_client:
        answer = await mcp_client.call("leave")
        assert answer.headers["content-type"].startswith(STREAM)
        assert list(fields(answer.text, "retry: ")) == ["500"]
        assert messages_in(answer) == []


class RecordedResponse:
    """An app that sends given bytes, and the messages that come out of the middleware."""

    def __init__(self, *bodies: bytes, status: int = 200, kind: bytes = b"text/event-stream") -> None:
        self.out: list[Any] = []
        self._bodies = bodies
        self._start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}

    async def app(self, scope: Any, receive: Any, send: Any) -> None:  # an ASGI app's signature
        await send(self._start)
        for body in self._bodies:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def run(self) -> bytes:
        async def send(message: Any) -> None:
            self.out.append(message)

        async def receive() -> Any:
            await anyio.sleep_forever()

        await ResponseFormatMiddleware(self.app)({"type": "http", "method": "POST"}, receive, send)
        assert self.out[-1].get("more_body") is False
        assert [one["type"] for one in self.out].count("http.response.start") == 1
        return b"".join(one.get("body", b"") for one in self.out)


PRIMING = b"id: a-0\r\nretry: 500\r\ndata: \r\n\r\n"
ANSWER = b'id: a-1\r\nevent: message\r\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\r\n\r\n'
ASKING = b'event: message\r\ndata: {"jsonrpc":"2.0","method":"ping","id":1}\r\n\r\n'


@pytest.mark.parametrize(
    "bodies",
    [
        (PRIMING, b": ping\r\n\r\n", ANSWER),
        (PRIMING, ASKING, ANSWER),
        (ANSWER + ASKING,),
        (b'data: {"jsonrpc":"2.0",\r\ndata: "id":1,"result":{}}\r\n\r\n',),
        (b'data: {"id":1,"result":{},"jsonrpc":"2.0"}\r\n\r\n',),
        (b"garbage",),
        (),
    ],
    ids=["ping", "question", "two events", "two lines", "another order", "garbage", "nothing"],
)
async def test_what_is_not_exactly_one_response_is_sent_unchanged(bodies: tuple[bytes, ...]) -> None:
    """http-3: no byte is changed or lost for the sake of the format."""
    assert await RecordedResponse(*bodies).run() == b"".join(bodies)


async def test_a_response_behind_the_priming_event_is_json() -> None:
    """http-2: what follows it is not sent."""
    sent = RecordedResponse(PRIMING, ANSWER, ASKING)
    assert await sent.run() == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert dict(sent.out[0]["headers"]) == {b"content-type": b"application/json", b"content-length": b"36"}


async def test_other_responses_are_unchanged() -> None:
    """http-2: refusals, and what is JSON already."""
    assert await RecordedResponse(b"no", status=404).run() == b"no"
    assert await RecordedResponse(b"{}", kind=b"application/json").run() == b"{}"
