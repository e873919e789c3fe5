"""A client gets the events that it missed, and nobody else does (docs/specs/interoperability.md)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse
from starlette.applications import Starlette

from coretools.hosting.serve import http_app
from coretools.operations.call import Call
from coretools.operations.declare import Effect, tool
from coretools.operations.registry import Registry
from coretools.web.replicas.memory_stores import MemoryStores
from coretools.web.sessions.event_store import SessionEventStore
from tests.protocol.http_peer import listening

SECONDS = 50


@tool(Effect.READ)
async def leave(text: str, call: Call) -> str:
    """Send the client away, and say this to whom comes back."""
    await call.close_stream()
    return text


def app() -> Starlette:
    registry = Registry()
    registry.add(leave)
    served = http_app(registry)
    assert isinstance(served, Starlette)
    return served


def store() -> SessionEventStore:
    """The event store that the SDK is given for one session."""
    found = SessionEventStore(MemoryStores())
    found.open("s")
    return found


def message(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": text})


ANSWER = JSONRPCResponse(jsonrpc="2.0", id=1, result={})


async def test_a_response_that_arrives_during_a_replay_is_sent_too() -> None:
    """interoperability-8: the SDK alone loses it, and its client waits for ever."""
    events = store()
    sent: list[Any] = []
    first = await events.store_event("1", None)
    await events.store_event("1", message("a"))

    async def send(event: EventMessage) -> None:
        sent.append(event.message)
        if len(sent) == 1:
            await events.store_event("1", ANSWER)

    with anyio.fail_after(SECONDS):
        assert await events.replay_events_after(first, send) is None
    assert sent == [message("a"), ANSWER]


async def test_a_response_that_comes_later_is_waited_for() -> None:
    """interoperability-8: nothing is waited for behind it, nor in an ended session."""
    events = store()
    sent: list[Any] = []
    first, other = await events.store_event("1", None), await events.store_event("2", None)

    async def send(event: EventMessage) -> None:
        sent.append(event.message)

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(events.replay_events_after, first, send)
            tasks.start_soon(events.replay_events_after, other, send)
            await anyio.wait_all_tasks_blocked()
            last = await events.store_event("1", ANSWER)
            await anyio.wait_all_tasks_blocked()
            assert sent == [ANSWER]
            assert await events.replay_events_after(last, send) is None
            await events.log.clear()
    assert sent == [ANSWER]


async def test_the_stream_without_a_request_is_handled_by_the_sdk() -> None:
    """interoperability-8: it has no response, and goes on."""
    events = store()
    sent: list[Any] = []
    first = await events.store_event(GET_STREAM_KEY, None)
    await events.store_event(GET_STREAM_KEY, message("a"))

    async def send(event: EventMessage) -> None:
        sent.append(event.message)

    assert await events.replay_events_after(first, send) == GET_STREAM_KEY
    assert sent == [message("a")]


@dataclass(frozen=True)
class Session:
    """A hand-written client of the handshake era."""

    http: httpx2.AsyncClient
    url: str
    id: str
    revision: str

    def headers(self) -> dict[str, str]:
        return {**HEADERS, "Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.revision}

    async def call(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """The last event id, and the messages before the stream was closed."""
        body = request("tools/call", {"name": "leave", "arguments": {"text": text}})
        answer = await self.http.post(self.url, json=body, headers=self.headers())
        if answer.headers["content-type"] == "application/json":
            return "", [answer.json()]
        ids = list(fields(answer.text, "id: "))
        return ids[-1], [json.loads(line) for line in fields(answer.text, "data: ") if line]

    async def texts_after(self, event_id: str) -> list[str]:
        """The texts that are replayed; ends with the first result, or when the server ends the stream."""
        headers = {**self.headers(), "Accept": "text/event-stream", "Last-Event-ID": event_id}
        found: list[str] = []
        with anyio.fail_after(SECONDS):
            async with self.http.stream("GET", self.url, headers=headers) as answer:
                async for line in answer.aiter_lines():
                    for text in fields(line, "data: "):
                        if text and (result := json.loads(text).get("result")):
                            return [*found, result["content"][0]["text"]]
        return found


HEADERS = {"Accept": "application/json, text/event-stream"}


def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def fields(text: str, name: str) -> Iterator[str]:
    return (line.removeprefix(name) for line in text.splitlines() if line.startswith(name))


async def opened(http: httpx2.AsyncClient, url: str, revision: str = "2025-11-25") -> Session:
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
    answer = await http.post(url, json=request("initialize", params), headers=HEADERS)
    session = Session(http, url, answer.headers["mcp-session-id"], revision)
    started = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await http.post(url, json=started, headers=session.headers())
    return session


async def test_each_session_gets_its_own_responses_although_request_ids_are_equal() -> None:
    """interoperability-8: with the SDK's one store for all, a session gets another's response to the same id."""
    async with listening(app()) as url, httpx2.AsyncClient() as http:
        ann, ben = await opened(http, url), await opened(http, url)
        (of_ann, said_to_ann), (of_ben, said_to_ben) = await ann.call("for ann"), await ben.call("for ben")
        assert said_to_ann == said_to_ben == []
        assert await ann.texts_after(of_ben) == []
        assert await ann.texts_after(of_ann) == ["for ann"]
        assert await ben.texts_after(of_ben) == ["for ben"]


async def test_a_client_that_cannot_resume_keeps_its_stream() -> None:
    """interoperability-8: before 2025-11-25 a stream has no event to resume from before its first message."""
    async with listening(app()) as url, httpx2.AsyncClient() as http:
        session = await opened(http, url, "2025-06-18")
        _, (message,) = await session.call("still here")
        assert message["result"]["content"][0]["text"] == "still here"


async def test_the_events_of_a_session_are_deleted_with_it() -> None:
    """interoperability-8: although timers of its tasks may live as long as a session may be idle."""
    served = app()
    async with listening(served) as url, httpx2.AsyncClient() as http:
        session = await opened(http, url)
        last, _ = await session.call("nobody comes back")
        sessions = served.state.endpoint.manager.sessions
        events = sessions[session.id].events
        assert await events.log.after(last) is not None
        await http.delete(url, headers=session.headers())
        assert len(sessions) == 0
        assert await events.log.after(last) is None


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_whose_stream_was_closed_resumes_for_its_response(mode: str) -> None:
    """interoperability-8: the SDK's own client; in the stateless era there is nothing to resume, and no need."""
    async with listening(app()) as url, Client(url, mode=mode) as client:
        with anyio.fail_after(SECONDS):
            result = await client.call_tool("leave", {"text": "welcome back"})
    assert result.content[0].text == "welcome back"  # type: ignore[union-attr]  # a text block
