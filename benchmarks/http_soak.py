"""A mixed load for a given time, and whether the server's resource use grows.

Clients of both eras, well behaved and not: sessions that are opened and deleted or just left, calls that are cancelled,
clients that vanish in the middle of one, commands as children, streams that are opened and dropped.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2

from benchmarks.budgets import SOAKED
from benchmarks.failure import NotMeasured
from benchmarks.http_client import HANDSHAKE_REVISION, STATELESS_REVISION
from benchmarks.http_server import HttpServer
from benchmarks.interleaved import Sample
from benchmarks.stdio_client import ENVELOPE, HANDSHAKE
from benchmarks.workspace import SAMPLE, Workspace, sample_text
from coretools.process.fork_server.client import MAX_WAITING, MIN_WAITING

CLIENTS = 12
"""At once; each does one thing after the other."""

SAMPLE_SECONDS = 5.0
LEAST_SAMPLES = 9
"""A short run looks more often."""

SETTLE_SECONDS = 60.0
"""For what vanished clients left behind to be gone before the last look."""

IDLE_SECONDS = 2
"""After which a session that was left is ended: many of them end within the run."""

CONFIGURATION = f"""
auth.anonymous = "user"

[limits]
sessions = 1024
sessions_per_principal = 1024
session_idle_seconds = {IDLE_SECONDS}

[roles.default]
requests_per_second = 0
concurrent = 512
"""


@dataclass
class Soaked:
    """What was done, and what the server used meanwhile."""

    done: Counter[str] = field(default_factory=Counter)
    samples: list[dict[str, float]] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)

    def thirds(self) -> dict[str, Sample]:
        """The values of each figure in the first and in the last third of the run."""
        size = max(1, len(self.samples) // 3)
        parts = {"first third": self.samples[:size], "last third": self.samples[-size:]}
        return {
            f"{figure}, {name}": Sample(tuple(sample[figure] for sample in part))
            for figure in SOAKED
            for name, part in parts.items()
        }


def _server(place: Workspace, stack: ExitStack) -> HttpServer:
    """Our server, with short session lifetimes."""
    beside = place.beside
    configuration = beside / "soak.toml"
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    words = ["coretools.servers.http_server", "--port", "0", "--root", place.root, "--config", str(configuration)]
    words += ["--with", "benchmarks.http_tools:registry"]
    return stack.enter_context(HttpServer(words, log=beside / "soak.log", bytecode=place.bytecode))


def soaked(place: Workspace, stack: ExitStack, seconds: float) -> Soaked:
    """Load a server for this many seconds.

    Raises:
        NotMeasured: it gave a wrong answer, or did not settle afterwards.
    """
    server = _server(place, stack)
    found: Soaked = anyio.run(_soak, server, seconds)
    return found


async def _soak(server: HttpServer, seconds: float) -> Soaked:
    found = Soaked()
    url = f"http://127.0.0.1:{server.port}"
    async with httpx2.AsyncClient(base_url=url, timeout=60, limits=httpx2.Limits(max_connections=4 * CLIENTS)) as http:
        await _Client(http, Counter(), random.Random(0)).command()
        found.before = await _used(server, http)
        until = time.monotonic() + seconds
        every = min(SAMPLE_SECONDS, seconds / LEAST_SAMPLES)
        async with anyio.create_task_group() as tasks:
            for number in range(CLIENTS):
                tasks.start_soon(_client, _Client(http, found.done, random.Random(number)), until)
            while time.monotonic() < until:
                await anyio.sleep(every)
                found.samples.append(await _used(server, http))
        found.after = await _settled(server, http, found.before)
    return found


async def _client(client: "_Client", until: float) -> None:
    things: Sequence[Callable[[], Awaitable[None]]] = (
        *(6 * [client.stateless_read]),
        *(3 * [client.session]),
        client.stateless_progress,
        client.command,
        client.left_session,
        client.cancelled,
        client.vanished,
        client.dropped_listener,
    )
    while time.monotonic() < until:
        try:
            await client.random.choice(things)()
        except* _Expired:
            client.done["sessions expired in use"] += 1


class _Expired(Exception):
    """The server ended a session that was idle too long between two calls."""


class _Client:
    """One client; each method is one thing that clients do, from beginning to end."""

    def __init__(self, http: httpx2.AsyncClient, done: Counter[str], source: random.Random) -> None:
        self._http = http
        self.done = done
        self._asked = time.monotonic()
        """When the last message that was answered was sent."""
        self._last_id = 0
        self.random = source

    async def stateless_read(self) -> None:
        """A file, in the stateless era."""
        answer = await self._stateless("tools/call", {"name": "read_file", "arguments": {"path": SAMPLE}})
        self._require_sample(answer)
        self.done["stateless reads"] += 1

    async def stateless_progress(self) -> None:
        """A call whose answer is a stream."""
        answer = await self._stateless(
            "tools/call", {"name": "with_progress", "arguments": {}, "_meta": {"progressToken": "p"}}
        )
        self._require_sample(answer)
        self.done["stateless streams"] += 1

    async def command(self) -> None:
        """A child of the server."""
        word = f"word-{self.random.randrange(10**9)}"
        params = {"name": "run_command", "arguments": {"command": f"echo {word}"}}
        answer = await self._stateless("tools/call", params)
        if word not in answer.text:
            raise NotMeasured(f"run_command: {answer.text[:500]}")
        self.done["commands"] += 1

    async def session(self) -> None:
        """A session with some calls, ended by its client."""
        session = await self._opened()
        for _ in range(self.random.randrange(1, 6)):
            answer = await self._in_session(session, "tools/call", {"name": "read_file", "arguments": {"path": SAMPLE}})
            self._require_sample(answer)
        deleted = await self._http.delete("/mcp", headers=self._session_headers(session))
        self._require_open(deleted)
        if deleted.status_code != 200:
            raise NotMeasured(f"DELETE: {deleted.status_code}")
        self.done["sessions deleted"] += 1

    async def left_session(self) -> None:
        """An abandoned session."""
        session = await self._opened()
        await self._in_session(session, "tools/list", {})
        self.done["sessions left"] += 1

    async def cancelled(self) -> None:
        """A command that its client cancels in a session, which goes on."""
        session = await self._opened()
        async with anyio.create_task_group() as tasks:
            number = self._last_id + 1
            params = {"name": "run_command", "arguments": {"command": "sleep 30"}}
            tasks.start_soon(self._in_session, session, "tools/call", params)
            await anyio.sleep(0.1)
            gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
            await self._posted(gone, self._session_headers(session))
        self._require_sample(
            await self._in_session(session, "tools/call", {"name": "read_file", "arguments": {"path": SAMPLE}})
        )
        await self._http.delete("/mcp", headers=self._session_headers(session))
        self.done["calls cancelled"] += 1

    async def vanished(self) -> None:
        """A client that closes its connection during a command: the command is stopped."""
        params = {"name": "run_command", "arguments": {"command": "sleep 30"}}
        with anyio.move_on_after(0.1 + 0.2 * self.random.random()):
            await self._stateless("tools/call", params)
        self.done["clients vanished"] += 1

    async def dropped_listener(self) -> None:
        """A session's stream of its own, opened and dropped, and then the session."""
        session = await self._opened()
        with anyio.move_on_after(0.1):
            headers = {**self._session_headers(session), "Accept": "text/event-stream"}
            async with self._http.stream("GET", "/mcp", headers=headers) as stream:
                async for _ in stream.aiter_lines():
                    continue
        self.done["listeners dropped"] += 1

    async def _opened(self) -> str:
        answer = await self._posted(self._message("initialize", HANDSHAKE), {})
        session = str(answer.headers["mcp-session-id"])
        await self._posted({"jsonrpc": "2.0", "method": "notifications/initialized"}, self._session_headers(session))
        return session

    async def _in_session(self, session: str, method: str, params: dict[str, Any]) -> httpx2.Response:
        return await self._posted(self._message(method, params), self._session_headers(session))

    async def _stateless(self, method: str, params: dict[str, Any]) -> httpx2.Response:
        params = {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}
        headers = {"MCP-Protocol-Version": STATELESS_REVISION, "Mcp-Method": method, "Mcp-Name": params["name"]}
        return await self._posted(self._message(method, params), headers)

    async def _posted(self, message: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        asked = time.monotonic()
        accepted = {"Accept": "application/json, text/event-stream", **headers}
        answer = await self._http.post("/mcp", json=message, headers=accepted)
        if "Mcp-Session-Id" in headers:
            self._require_open(answer)
        self._asked = asked
        if answer.status_code not in (200, 202):
            raise NotMeasured(f"{message['method']}: {answer.status_code} {answer.text[:500]}")
        return answer

    def _require_open(self, answer: httpx2.Response) -> None:
        """On a busy machine a client may wait between two calls; a session that ends then is no failure."""
        if answer.status_code == 404 and time.monotonic() - self._asked > IDLE_SECONDS:
            raise _Expired

    def _message(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        return {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}

    def _session_headers(self, session: str) -> dict[str, str]:
        return {"MCP-Protocol-Version": HANDSHAKE_REVISION, "Mcp-Session-Id": session}

    def _require_sample(self, answer: httpx2.Response) -> None:
        if sample_text().splitlines()[-1] not in answer.text:
            raise NotMeasured(f"not the file: {answer.text[:500]}")


async def _used(server: HttpServer, http: httpx2.AsyncClient) -> dict[str, float]:
    page = (await http.get("/metrics")).text
    found = re.search(r"^coretools_sessions_open\{[^}]*\} ([0-9.e+]+)$", page, re.MULTILINE)
    return {
        "memory": server.resident_kilobytes() / 1024,
        "descriptors": server.descriptors(),
        "children": server.children(),
        "sessions": float(found[1]) if found else 0.0,
        "threads": server.threads(),
    }


async def _settled(server: HttpServer, http: httpx2.AsyncClient, before: dict[str, float]) -> dict[str, float]:
    """Wait until no session and no child of the load is left, but for the supervisors that are kept."""
    until = time.monotonic() + SETTLE_SECONDS
    most_children = before["children"] + 2 * (MAX_WAITING - MIN_WAITING)
    while True:
        after = await _used(server, http)
        if after["children"] <= most_children and after["sessions"] <= before["sessions"]:
            return after
        if time.monotonic() > until:
            raise NotMeasured(f"did not settle: {after}, before {before}")
        await anyio.sleep(0.2)
