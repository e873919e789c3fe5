"""Replicas that are killed under load: three of them, one Redis, HAProxy, clients that check each answer.

python -m benchmarks.replicas [--seconds 60] [--kill-every 10] [--clients 12] [--cost]

Ends with 1 when one answer was wrong. A call that was on a killed replica may fail; nothing else may go wrong with it.
"""

import argparse
import asyncio
import itertools
import json
import secrets
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from benchmarks.stdio_client import ENVELOPE, HANDSHAKE
from tests.web.http_server_peer import http_server
from tests.web.replicas.balanced import NAMES, Cluster, cluster
from tests.web.replicas.redis_server import RedisServer

LEASE_SECONDS = 6.0
"""How long a replica that was killed seems alive."""

REGISTRY = Path(__file__).with_name("replicated.py")
"""What the replicas serve in addition to the standard tools."""

STEPS = 4
"""Messages of a call that streams, 50 ms apart: long enough to be killed in the middle."""

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
REVISION = {"handshake": "2025-11-25", "stateless": "2026-07-28"}

COST_CALLS = 300

PAUSE_SECONDS = 0.2
"""After a failure, as a client would."""


@dataclass
class Figures:
    """The results of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def note_wrong(self, what: str) -> None:
        """An answer that is not the client's own."""
        self.wrong.append(what[:300])


class Failed(Exception):
    """A call without a response."""


class Started(Exception):
    """The session is gone; the client has to open a new one."""


class Member:
    """One client of one era, with a file and a word of its own."""

    def __init__(self, place: Cluster, era: str, number: int, figures: Figures) -> None:
        self._place = place
        self._era = era
        self._figures = figures
        self._word = f"{era}-{number}-{secrets.token_hex(8)}"
        self._file = f"{self._word}.txt"
        (place.folder / "root" / self._file).write_text(self._word)
        self._authorization = place.authorization("ann" if number % 2 else "ben")
        self._http = httpx2.AsyncClient(timeout=20, headers={**HEADERS, **self._authorization})
        self._session = ""
        self._ids = itertools.count(1)

    async def work(self, until: float) -> None:
        """Call after call."""
        async with self._http:
            for number in itertools.count():
                if time.monotonic() >= until:
                    return
                await self._one(number)

    async def _one(self, number: int) -> None:
        nonce = f"{self._word}-{number}"
        arguments: dict[str, Any]
        tool, arguments, wanted = "read_file", {"path": self._file}, self._word
        if number % 3 == 0:
            tool, arguments, wanted = "recite", {"word": nonce, "steps": STEPS}, nonce
        began = time.perf_counter()
        try:
            if self._era == "handshake" and not self._session:
                await self._open()
            text = await self._call(tool, arguments, nonce)
        except Started:
            self._session = ""
            self._figures.counts["restarted sessions"] += 1
        except (Failed, httpx2.HTTPError, OSError) as error:
            self._figures.counts["failed calls"] += 1
            self._figures.failures[str(error)[:60] or type(error).__name__] += 1
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            self._figures.counts[f"answered, {self._era}"] += 1
            self._figures.seconds.append(time.perf_counter() - began)
            if wanted not in text:
                self._figures.note_wrong(f"{wanted} wanted, {text} came")

    async def _open(self) -> None:
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HANDSHAKE}
        answer = await self._http.post(self._place.url, json=body)
        if answer.status_code != 200:
            raise Failed(f"initialize: {answer.status_code}")
        self._session = answer.headers["mcp-session-id"]
        self._figures.counts["opened sessions"] += 1
        await self._http.post(
            self._place.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=self._headers("")
        )

    def _headers(self, tool: str) -> dict[str, str]:
        found = {"MCP-Protocol-Version": REVISION[self._era]}
        if self._session:
            return found | {"Mcp-Session-Id": self._session}
        return found | {"Mcp-Method": "tools/call", "Mcp-Name": tool}

    async def _call(self, tool: str, arguments: dict[str, Any], nonce: str) -> str:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self._era == "stateless":
            params["_meta"] = {**ENVELOPE, "io.modelcontextprotocol/logLevel": "info"}
        number = next(self._ids)
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        stream = _Stream(number, nonce, self._figures)
        # Some go away in the middle of an answer, and come back for the rest.
        leaves = tool == "recite" and bool(self._session) and number % 2 == 0
        try:
            async with self._http.stream("POST", self._place.url, json=body, headers=self._headers(tool)) as answer:
                found = await stream.read(answer, leaves=leaves)
        except httpx2.HTTPError:
            if not (self._session and stream.last):
                raise
            found = None
        while found is None and self._session and stream.last:
            found = await self._resumed(stream)
        if found is None:
            raise Failed("ended before its result")
        return found

    async def _resumed(self, stream: "_Stream") -> str | None:
        """Get what was missed from any replica; returns the result if it was kept."""
        headers = self._headers("") | {"Last-Event-ID": stream.last, "Accept": "text/event-stream"}
        before = stream.last
        async with self._http.stream("GET", self._place.url, headers=headers) as answer:
            found = await stream.read(answer)
        if stream.last != before or found is not None:
            self._figures.counts["resumed streams"] += 1
        if found is None and stream.last == before:
            raise Started
        return found


class _Stream:
    """The response to one call, in one part or several."""

    def __init__(self, request_id: int, nonce: str, figures: Figures) -> None:
        self._id = request_id
        self._nonce = nonce
        self._figures = figures
        self.last = ""

    async def read(self, answer: httpx2.Response, *, leaves: bool = False) -> str | None:
        """The text of the result; None if it did not come, or if the client leaves after the first message."""
        if answer.status_code == 404:
            raise Started
        if answer.status_code != 200:
            raise Failed(f"status {answer.status_code}")
        if answer.headers["content-type"].startswith("application/json"):
            return self._said(json.loads(await answer.aread()))
        async for name, value in _fields(answer):
            if name == "id":
                self.last = value
            elif name == "data" and value:
                text = self._said(json.loads(value))
                if leaves or text is not None:
                    return text
        return None

    def _said(self, message: dict[str, Any]) -> str | None:
        if message.get("method") == "notifications/message":
            if not str(message["params"]["data"]).startswith(self._nonce):
                self._figures.note_wrong(f"{self._nonce}: {message}")
            return None
        if "method" in message:
            return None
        if message.get("id") != self._id:
            self._figures.note_wrong(f"{self._id} wanted: {message}")
        if "error" in message:
            raise Failed(f"error {message['error']['code']}")
        text: str = message["result"]["content"][0]["text"]
        if message["result"].get("isError"):
            raise Failed(f"tool: {text}")
        return text


async def _fields(answer: httpx2.Response) -> AsyncIterator[tuple[str, str]]:
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        yield name, value


async def _killed(place: Cluster, stack: ExitStack, every: float, until: float, figures: Figures) -> None:
    """Kill the replicas one after the other, and restart each in its place."""
    async with asyncio.TaskGroup() as starting:
        for name in itertools.cycle(NAMES):
            await asyncio.sleep(every)
            if time.monotonic() + every / 2 > until:
                return
            server = place.replicas[name]
            server.process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(server.process.wait)
            figures.counts["killed replicas"] += 1
            starting.create_task(_started_again(place, stack, name))


async def _started_again(place: Cluster, stack: ExitStack, name: str) -> None:
    port = int(place.replicas[name].url.rpartition(":")[2].partition("/")[0])
    place.replicas[name] = await asyncio.to_thread(stack.enter_context, place.replica(name, port))


async def _measured(place: Cluster, options: argparse.Namespace, stack: ExitStack) -> Figures:
    figures = Figures()
    until = time.monotonic() + options.seconds
    members = [
        Member(place, ("handshake", "stateless")[number % 2], number // 2, figures) for number in range(options.clients)
    ]
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(member.work(until))
        if options.kill_every:
            tasks.create_task(_killed(place, stack, options.kill_every, until, figures))
    return figures


def _print_cost() -> None:
    """Measure a call on a server alone and on one with Redis, in turns, without a balancer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="replicas-")))
        redis = stack.enter_context(closing(RedisServer()))
        (folder / "root").mkdir()
        (folder / "root" / "note.txt").write_text("x" * 4096)
        servers = {}
        for name, environment in (("memory", {}), ("redis", {"CORETOOLS_HTTP_REDIS__URL": redis.url})):
            (folder / name).mkdir()
            generous = {"CORETOOLS_HTTP_LIMITS__CONNECTIONS": "64", **environment}
            servers[name] = stack.enter_context(
                http_server(
                    folder / name, "--root", folder / "root", "--config", _generous(folder), environment=generous
                )
            )
        for era, revision in REVISION.items():
            asking = {name: _asking(stack, server.url, era, revision) for name, server in servers.items()}
            taken: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(COST_CALLS):
                for name, ask in asking.items():
                    taken[name].append(ask())
            print(f"{era}: " + ", ".join(f"{name} {statistics.median(one):.2f} ms" for name, one in taken.items()))


def _generous(folder: Path) -> Path:
    written = folder / "generous.toml"
    written.write_text("[roles.default]\nrequests_per_second = 100000.0\nburst = 100000\n")
    return written


def _asking(stack: ExitStack, url: str, era: str, revision: str) -> Callable[[], float]:
    http = stack.enter_context(httpx2.Client(timeout=20, headers={**HEADERS, "MCP-Protocol-Version": revision}))
    params: dict[str, Any] = {"name": "read_file", "arguments": {"path": "note.txt"}}
    if era == "handshake":
        opened = http.post(url, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HANDSHAKE})
        http.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    else:
        params["_meta"] = ENVELOPE
        http.headers.update({"Mcp-Method": "tools/call", "Mcp-Name": "read_file"})
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    def ask() -> float:
        began = time.perf_counter()
        answer = http.post(url, json=body)
        seconds = time.perf_counter() - began
        if "xxxx" not in answer.text:
            raise Failed(answer.text[:300])
        return 1000 * seconds

    return ask


def main() -> None:
    """Entry point of `python -m benchmarks.replicas`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kill-every", type=float, default=10.0, help="seconds; 0: nothing is killed")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--cost", action="store_true", help="only what a call costs more with Redis than without")
    options = parser.parse_args()
    if options.cost:
        _print_cost()
        return
    with (
        TemporaryDirectory(prefix="replicas-") as folder,
        cluster(Path(folder), lease_seconds=LEASE_SECONDS, registry=REGISTRY) as place,
        ExitStack() as stack,
    ):
        figures = asyncio.run(_measured(place, options, stack))
    milliseconds = sorted(1000 * one for one in figures.seconds)
    for name, count in sorted(figures.counts.items()):
        print(f"{name}: {count}")
    print(f"failures: {dict(figures.failures)}")
    print(f"p50 {statistics.median(milliseconds):.1f} ms, p99 {milliseconds[len(milliseconds) * 99 // 100]:.1f} ms")
    print(f"wrong answers: {len(figures.wrong)}")
    for one in figures.wrong[:5]:
        print(f"  {one}")
    sys.exit(bool(figures.wrong))


if __name__ == "__main__":
    main()
