"""One run: messages are put, two replicas of `coretools-http` take them, and a replica and the store are killed.

A message is lost if no replica noted it, and a duplicate if one was noted again: its worker was killed before it could
acknowledge, or the answer to its `put` was lost and the putter repeated it.
"""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import anyio.lowlevel
import httpx2

from benchmarks.services.worker import AGAIN_SECONDS, NOTES, QUEUE
from coretools.errors import Unreachable
from coretools.services.connect import open_services
from coretools.services.interface import Services
from coretools.services.limits import ServiceLimits
from tests.web.http_server_peer import ANONYMOUS, HttpServer, http_server
from tests.web.mcp_peer import StatelessPeer

APP = Path(__file__).with_name("worker.py")
REPLICAS = ("a", "b")
PUTTERS = 16
WORKERS = 4
"""Calls of `work` at once on one replica."""
HELD = 4
"""Messages that a replica holds when it is killed, for certain."""
SECONDS = 600.0


class Store(Protocol):
    """A store that can be killed and started again on its data."""

    @property
    def url(self) -> str: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...


@dataclass
class Outcome:
    """What became of the messages."""

    messages: int
    noted: Counter[int]
    held: frozenset[int]
    """Those that the killed replica had noted and not acknowledged."""
    repeated_puts: int
    left: int
    """Items in the queue at the end."""
    seconds: float

    @property
    def lost(self) -> list[int]:
        """Messages that no replica noted."""
        return [number for number in range(self.messages) if number not in self.noted]

    @property
    def duplicates(self) -> list[int]:
        """Messages that were noted more than once."""
        return [number for number, times in self.noted.items() if times > 1]


@dataclass
class _Run:
    folder: Path
    store: Store
    messages: int
    lease_seconds: float
    puts: int = 0
    repeated_puts: int = 0
    half_of_the_rest: anyio.Event = field(default_factory=anyio.Event)
    """Set when half of the messages are put that are put while replicas work."""
    replicas: dict[str, HttpServer] = field(default_factory=dict)

    @contextmanager
    def replica(self, name: str) -> Iterator[None]:
        folder = self.folder / name
        (folder / "root").mkdir(parents=True)
        environment = {
            **ANONYMOUS,
            NOTES: str(self._notes(name)),
            "CORETOOLS_HTTP_SERVICES__URL": self.store.url,
            "CORETOOLS_HTTP_SERVICES__WORK_ITEMS": str(2 * self.messages),
        }
        words = ("--root", folder / "root", "--with", f"{APP}:app")
        with http_server(folder, *words, environment=environment) as server:
            self.replicas[name] = server
            yield

    def noted(self) -> Counter[int]:
        return Counter(int(number) for text in self._texts() for number in text.splitlines())

    async def put(self, services: Services, numbers: Iterator[int]) -> None:
        for number in numbers:
            while True:
                try:
                    await services.queues.put(QUEUE, b"%d" % number)
                    self.puts += 1
                    break
                except Unreachable:
                    self.repeated_puts += 1
                    await anyio.sleep(AGAIN_SECONDS)
            if self.puts == self.messages * 3 // 4:
                self.half_of_the_rest.set()

    async def put_all(self, services: Services, numbers: range) -> None:
        waiting = iter(numbers)
        async with anyio.create_task_group() as tasks:
            for _ in range(PUTTERS):
                tasks.start_soon(self.put, services, waiting)

    async def work(self, name: str) -> None:
        """Let a replica work until there is nothing left, or it is killed."""
        limits = {"most": 100, "idle_seconds": 2 * self.lease_seconds, "lease_seconds": self.lease_seconds}
        done: str | None = ""
        while done is not None:
            all_put = self.puts == self.messages
            done = await self.call(name, "work", **limits)
            if done == "0" and all_put:
                return

    async def hold(self, name: str) -> None:
        """Let a replica hold a message until it is killed."""
        await self.call(name, "hold", lease_seconds=self.lease_seconds)

    async def call(self, name: str, tool: str, **arguments: float) -> str | None:
        """Call a tool; None if the replica was killed meanwhile."""
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            try:
                return await StatelessPeer(http, self.replicas[name].url).say(tool, **arguments)
            except httpx2.HTTPError:
                if self.replicas[name].process.poll() is None:
                    raise
                return None

    async def until_noted(self, count: int) -> None:
        # The files are written by processes that may be killed: nothing tells of a change.
        while sum(text.count("\n") for text in self._texts()) < count:  # noqa: ASYNC110
            await anyio.sleep(0.02)

    def _texts(self) -> list[str]:
        return [self._notes(name).read_text() for name in REPLICAS if self._notes(name).exists()]

    def _notes(self, name: str) -> Path:
        return self.folder / f"{name}.notes"


async def run(folder: Path, store: Store, *, messages: int, lease_seconds: float) -> Outcome:
    """Kill a replica after a quarter of the messages, and the store while the second half is put; wait for the end."""
    this = _Run(folder, store, messages, lease_seconds)
    with ExitStack() as stack, anyio.fail_after(SECONDS):
        with ThreadPoolExecutor(len(REPLICAS)) as threads:
            list(threads.map(lambda name: stack.enter_context(this.replica(name)), REPLICAS))
        began = time.monotonic()
        limits = ServiceLimits(work_items=2 * messages)
        async with open_services(store.url, limits) as services:
            await this.put_all(services, range(messages // 2))
            async with anyio.create_task_group() as tasks:
                for _ in range(HELD):
                    tasks.start_soon(this.hold, "a")
                await this.until_noted(HELD)
                held = frozenset(this.noted())
                for name in (*["a"] * WORKERS, *["b"] * WORKERS):
                    tasks.start_soon(this.work, name)
                await this.until_noted(messages // 4)
                this.replicas["a"].end(signal.SIGKILL)
                await this.until_noted(messages // 2 - messages // 8)
                tasks.start_soon(this.put_all, services, range(messages // 2, messages))
                await this.half_of_the_rest.wait()
                store.kill()
                await anyio.lowlevel.checkpoint()
                store.start()
            seconds = time.monotonic() - began - 2 * lease_seconds
            totals = await services.totals()
        left = totals.waiting + totals.leased + totals.dead
        return Outcome(messages, this.noted(), held, this.repeated_puts, left, seconds)
