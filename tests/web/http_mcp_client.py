"""A hand-written client of the protocol: it sends each request as given and returns each response as received."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

ACCEPT = {"Accept": "application/json, text/event-stream"}
LATEST = "2025-11-25"
STATELESS = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def fields(text: str, name: str) -> Iterator[str]:
    """The values of one field of an event stream."""
    return (line.removeprefix(name) for line in text.splitlines() if line.startswith(name))


def messages_in(answer: httpx2.Response) -> list[dict[str, Any]]:
    """Return every message of a response, JSON or stream."""
    if answer.headers["content-type"] == "application/json":
        return [answer.json()]
    return [json.loads(data) for data in fields(answer.text, "data: ") if data]


@dataclass
class HttpMcpClient:
    """One client; `session` is set once it has one."""

    http: httpx2.AsyncClient
    url: str
    token: str = ""
    revision: str = LATEST
    session: str = ""
    last_id: int = field(default=0)

    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        found = {**ACCEPT}
        if self.token:
            found["Authorization"] = f"Bearer {self.token}"
        if self.session:
            found |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.revision}
        return found

    async def initialize(self, capabilities: dict[str, Any] | None = None) -> httpx2.Response:
        """Initialize, and send `notifications/initialized` if there is a session."""
        params = {
            "protocolVersion": self.revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "hand", "version": "1"},
        }
        answer = await self.ask("initialize", params)
        if answer.status_code == 200:
            self.session = answer.headers["mcp-session-id"]
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def ask(self, method: str, params: dict[str, Any]) -> httpx2.Response:
        """Send one request."""
        self.last_id += 1
        return await self.post({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})

    async def call(self, tool: str, **arguments: Any) -> httpx2.Response:
        """Call a tool."""
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def post(self, body: object) -> httpx2.Response:
        """Post any body."""
        return await self.http.post(self.url, json=body, headers=self.headers())

    async def stateless(
        self, method: str, name: str = "", *, meta: dict[str, Any] | None = None, **params: Any
    ) -> httpx2.Response:
        """Send one request of the stateless era; `meta` overrides the envelope."""
        self.last_id += 1
        headers = {**self.headers(), "MCP-Protocol-Version": STATELESS, "Mcp-Method": method}
        if name:
            headers["Mcp-Name"] = name
            params["name"] = name
        body = {
            "jsonrpc": "2.0",
            "id": self.last_id,
            "method": method,
            "params": {**params, "_meta": {**ENVELOPE, **(meta or {})}},
        }
        return await self.http.post(self.url, json=body, headers=headers)
