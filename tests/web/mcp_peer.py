"""A hand-written client that reads a response event by event, disconnects in the middle of it, and resumes."""

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2

from tests.web.http_mcp_client import ACCEPT, STATELESS, messages_in

SECONDS = 50

JSON = "application/json"
STREAM = "text/event-stream"

META = "io.modelcontextprotocol/"
CLIENT = {"name": "by hand", "version": "1"}

_ids = itertools.count(1)


def request(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A request with a new id."""
    return {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": params or {}}


def call(tool: str, /, *, token: str = "", **arguments: Any) -> dict[str, Any]:
    """A tool call; with a token it asks for progress."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    return request("tools/call", params | ({"_meta": {"progressToken": token}} if token else {}))


@dataclass(frozen=True)
class Event:
    """One event of a stream."""

    id: str
    retry: str
    data: str

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found


class Stream:
    """A response while it arrives: events, or one JSON body."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    @property
    def kind(self) -> str:
        return self.response.headers["content-type"].partition(";")[0]

    async def event(self) -> Event | None:
        """Return the next event, without comments; None at the end of the stream."""
        found: dict[str, str] = {}
        with anyio.fail_after(SECONDS):
            async for line in self._lines:
                if not line and found:
                    return Event(found.get("id", ""), found.get("retry", ""), found.get("data", ""))
                name, colon, value = line.partition(":")
                if name and colon:
                    found[name] = value.removeprefix(" ")
        return None

    async def message(self) -> dict[str, Any]:
        """Return the next message; events that only carry an id are skipped."""
        while (event := await self.event()) is not None:
            if event.data:
                return event.message
        raise AssertionError("the stream is at its end")

    async def rest(self) -> list[Event]:
        """Return all events until the server ends the stream."""
        found = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found

    async def body(self) -> Any:
        """Return the body of a JSON response."""
        with anyio.fail_after(SECONDS):
            return json.loads(await self.response.aread())


@dataclass(frozen=True)
class Peer:
    """A client of one URL."""

    http: httpx2.AsyncClient
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def asking(self, body: object, headers: Mapping[str, str] | None = None) -> AsyncIterator[Stream]:
        """POST, and read the response as it arrives; leaving the block early disconnects."""
        sent = {**ACCEPT, **self.headers, **(headers or {})}
        with anyio.fail_after(SECONDS):
            response = await self.http.send(
                self.http.build_request("POST", self.url, json=body, headers=sent), stream=True
            )
        try:
            yield Stream(response)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def post(self, body: object, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        """POST, and read the whole response."""
        with anyio.fail_after(SECONDS):
            return await self.http.post(self.url, json=body, headers={**ACCEPT, **self.headers, **(headers or {})})

    async def delete(self) -> httpx2.Response:
        with anyio.fail_after(SECONDS):
            return await self.http.delete(self.url, headers=dict(self.headers))

    @asynccontextmanager
    async def listening(self, last_event: str = "") -> AsyncIterator[Stream]:
        """GET the stream, or what was missed since an event."""
        headers = {**self.headers, "Accept": STREAM} | ({"Last-Event-ID": last_event} if last_event else {})
        with anyio.fail_after(SECONDS):
            response = await self.http.send(self.http.build_request("GET", self.url, headers=headers), stream=True)
        try:
            yield Stream(response)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def say(self, tool: str, /, **arguments: Any) -> str:
        """Return the text of a tool's result."""
        answer = await self.post(call(tool, **arguments))
        message = messages_in(answer)[-1]
        assert "result" in message, answer.text
        text: str = message["result"]["content"][0]["text"]
        return text


def as_session(url: str, http: httpx2.AsyncClient, revision: str, session: str) -> Peer:
    """A peer in a session."""
    return Peer(http, url, {"Mcp-Session-Id": session, "MCP-Protocol-Version": revision})


def handshake(revision: str, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The `initialize` request."""
    return request(
        "initialize", {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": CLIENT}
    )


@asynccontextmanager
async def session(url: str, revision: str, capabilities: Mapping[str, Any] | None = None) -> AsyncIterator[Peer]:
    """Open a session of the handshake era, ended with the block."""
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        opened = await Peer(http, url).post(handshake(revision, capabilities))
        assert opened.status_code == 200, opened.text
        assert opened.json()["result"]["protocolVersion"] == revision
        peer = as_session(url, http, revision, opened.headers["mcp-session-id"])
        accepted = await peer.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert accepted.status_code == 202
        yield peer
        await peer.delete()


def enveloped(body: dict[str, Any], *, revision: str = STATELESS, **capabilities: object) -> dict[str, Any]:
    """A request with the envelope of the stateless era."""
    envelope = {
        META + "protocolVersion": revision,
        META + "clientInfo": CLIENT,
        META + "clientCapabilities": capabilities,
    }
    params = body["params"]
    return {**body, "params": {**params, "_meta": {**envelope, **params.get("_meta", {})}}}


def routing(body: Mapping[str, Any], revision: str = STATELESS) -> dict[str, str]:
    """The headers that a stateless request needs."""
    headers = {"MCP-Protocol-Version": revision, "Mcp-Method": body["method"]}
    name = body["params"].get("name") or body["params"].get("uri")
    return headers | ({"Mcp-Name": name} if name else {})


class StatelessPeer(Peer):
    """Adds envelope and headers of the stateless era to what it sends."""

    @asynccontextmanager
    async def asking(self, body: Any, headers: Mapping[str, str] | None = None) -> AsyncIterator[Stream]:
        """POST, and read the response as it arrives."""
        async with super().asking(enveloped(body), {**routing(body), **(headers or {})}) as stream:
            yield stream

    async def post(self, body: Any, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        """POST, and read the whole response."""
        return await super().post(enveloped(body), {**routing(body), **(headers or {})})


@asynccontextmanager
async def stateless(url: str) -> AsyncIterator[StatelessPeer]:
    """A client of the stateless era."""
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        yield StatelessPeer(http, url)
