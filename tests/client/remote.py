"""Remote servers on loopback: an ASGI application on a free port, while the body runs."""

import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer


def echo_server() -> MCPServer:
    server = MCPServer("remote")

    @server.tool()
    def echo(text: str) -> str:
        return text

    return server


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Yield the address."""
    listener = socket.create_server(("127.0.0.1", 0))  # connections queue until the server accepts them
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [listener])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True


class OnlyOld:
    """Answers 400 to requests of the stateless era."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if b"mcp-method" not in dict(scope.get("headers", ())):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Ignoring:
    """Never answers `server/discover`, as servers do that wait for `initialize`."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-method") == b"server/discover":
            await anyio.sleep_forever()
        await self._app(scope, receive, send)


class Failing:
    """Answers the first requests with a status of its own; also records the headers of all."""

    def __init__(self, app: Any, *, status: int, times: int) -> None:
        self._app = app
        self._status = status
        self._left = times
        self.headers: list[dict[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self.headers.append(dict(scope["headers"]))
        if self._left <= 0:
            await self._app(scope, receive, send)
            return
        self._left -= 1
        await send({"type": "http.response.start", "status": self._status, "headers": []})
        await send({"type": "http.response.body", "body": dict(scope["headers"]).get(b"authorization", b"")})


class Refusing:
    """Answers each method with a status, a content type and a body."""

    def __init__(self, answers: Mapping[str, tuple[int, str, str]]) -> None:
        self._answers = answers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status, kind, body = self._answers[scope["method"]]
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})


class OnCall:
    """Answers calls of tools with a status of its own, and with JSON, or with a stream that ends early."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.status = 200
        self.answer: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = await receive()
        if b"tools/call" not in request["body"]:
            await self._app(scope, _once(request, receive), send)
            return
        is_stream = isinstance(self.answer, str)
        kind = b"text/event-stream" if is_stream else b"application/json"
        body = b": hello\n\n" if is_stream else b"" if self.answer is None else json.dumps(self.answer).encode()
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _once(request: Any, receive: Any) -> Any:
    """Return what receives a request again that was taken."""
    waiting = [request]

    async def again() -> Any:
        return waiting.pop() if waiting else await receive()

    return again
