"""Load over HTTP on loopback: our server and the SDK's bare apps, in turns, from a third process.

Times are in milliseconds per call, so that less is better as in every other row; 1.18 is 0.85 of the throughput.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import perf_counter

from benchmarks.budgets import FORMS, HTTP_IN_FLIGHT, MANY_IN_FLIGHT, MANY_SESSIONS
from benchmarks.failure import NotMeasured
from benchmarks.http_client import Answer, Caller, Load, callers, end_all
from benchmarks.http_server import HttpServer
from benchmarks.interleaved import Contender
from benchmarks.stdio_client import Era
from benchmarks.workspace import SAMPLE, Workspace, sample_text
from coretools.web.sessions.response_format import BUFFER_SECONDS

CALLS = 320
"""In one turn."""

SMOKE_CALLS = 32

SESSIONS_A_TURN = 250
SMOKE_SESSIONS = 25

CONFIGURATION = """
auth.anonymous = "user"

[limits]
sessions = 8192
sessions_per_principal = 8192
connections = 4096
session_idle_seconds = 3600

[roles.default]
requests_per_second = 0
concurrent = 4096
"""
"""One client stands for many here, so what one principal may have is no limit; everything else is as it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two servers, and the calls it gets."""

    name: str
    server: HttpServer
    path: str
    tool: str
    is_stream: bool
    """Whether progress is asked for, which makes the answer a stream on both sides."""


def own_server(place: Workspace) -> HttpServer:
    """Ours, as `coretools-http` starts it, with the tools of the benchmarks beside its own."""
    beside = place.beside
    configuration = beside / "http.toml"
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    words = ["coretools.servers.http_server", "--port", "0", "--root", place.root, "--config", str(configuration)]
    words += ["--with", "benchmarks.http_tools:registry"]
    return HttpServer(words, log=beside / "http.log", bytecode=place.bytecode)


def bare_server(place: Workspace) -> HttpServer:
    """The SDK's apps on uvicorn, both with their defaults."""
    log = place.beside / "bare-http.log"
    return HttpServer(("benchmarks.bare_http", place.sample), log=log, bytecode=place.bytecode)


def throughput(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:
    """Calls with 16 in flight, in both eras and both response formats."""
    own, bare = stack.enter_context(own_server(place)), stack.enter_context(bare_server(place))
    calls = SMOKE_CALLS if is_smoke else CALLS
    found = []
    for era in Era:
        for form in FORMS:
            is_stream = form == "stream"
            tool = "with_progress" if is_stream else "read_file"
            sides = [
                Side(name=f"{era.value} {form}", server=own, path="/mcp", tool=tool, is_stream=is_stream),
                Side(name=f"bare {era.value} {form}", server=bare, path=f"/{form}", tool=tool, is_stream=is_stream),
                Side(
                    name=f"lowlevel {era.value} {form}",
                    server=bare,
                    path=f"/lowlevel/{form}",
                    tool=tool,
                    is_stream=is_stream,
                ),
            ]
            if not is_stream:
                constant = f"lowlevel echo, {era.value} {form}"
                sides.append(Side(name=constant, server=bare, path="/lowlevel/json", tool="echo", is_stream=False))
            found += [_flood(side, era, calls) for side in sides]
    return found


def _flood(side: Side, era: Era, calls: int) -> Contender:
    address = side.server.address
    with closing(Load(address, HTTP_IN_FLIGHT)) as opening:
        found = callers(opening, address, side.path, era, HTTP_IN_FLIGHT)
    expected = sample_text()

    def once() -> tuple[float, ...]:
        given = {} if side.is_stream else {"path": SAMPLE}
        requests = [
            found[number % HTTP_IN_FLIGHT].call(side.tool, given, with_progress=side.is_stream)
            for number in range(calls)
        ]
        # New connections for each turn: uvicorn closes those that others' turns leave idle, after 5 s.
        with closing(Load(address, HTTP_IN_FLIGHT)) as load:
            answers, seconds, processor = _timed(lambda: load.run(requests), side.server)
        for answer in answers:
            if answer.is_stream is not side.is_stream and answer.seconds < BUFFER_SECONDS:
                raise NotMeasured(f"{side.name}: not the form of an answer that is compared: {answer.raw[:500]!r}")
            if answer.text().rstrip() != expected.rstrip():
                raise NotMeasured(f"{side.name}: another answer: {answer.raw[:500]!r}")
        taken = sorted(1000 * answer.seconds for answer in answers)
        middle, late = statistics.median(taken), taken[int(0.99 * len(taken))]
        own = 1000 * load.own_seconds / calls
        return 1000 * seconds / calls, middle, late, 1000 * processor / calls, own

    parts = ("", " p50", " p99", " processor", " client")
    return Contender(figures=tuple(f"{side.name}{part}" for part in parts), once=once)


def _timed(work: Callable[[], list[Answer]], server: HttpServer) -> tuple[list[Answer], float, float]:
    processor, started = server.processor_seconds(), perf_counter()
    answers = work()
    seconds = perf_counter() - started
    return answers, seconds, server.processor_seconds() - processor


def crowds(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:
    """Many sessions with a call in each at once, many calls at once, and the memory of sessions that do nothing."""
    found = []
    for name, server, path in (
        ("own", stack.enter_context(own_server(place)), "/mcp"),
        ("bare", stack.enter_context(bare_server(place)), "/json"),
    ):
        found += [
            _sessions(name, server, path, SMOKE_SESSIONS if is_smoke else MANY_SESSIONS),
            _meeting(name, server, path, SMOKE_SESSIONS if is_smoke else MANY_IN_FLIGHT),
            _idle(name, server, path, SMOKE_SESSIONS if is_smoke else SESSIONS_A_TURN, stack),
        ]
    return found


def _sessions(name: str, server: HttpServer, path: str, count: int) -> Contender:
    """Many clients, each with a connection and a session: all read the file at once, then all end."""

    def once() -> tuple[float, ...]:
        before = server.descriptors()
        with closing(Load(server.address, count)) as load:

            def work() -> list[Answer]:
                found = callers(load, server.address, path, Era.HANDSHAKE, count)
                answers = load.run([caller.call("read_file", {"path": SAMPLE}) for caller in found])
                end_all(load, found)
                return answers

            answers, seconds, _ = _timed(work, server)
            if any(answer.text().rstrip() != sample_text().rstrip() for answer in answers) or len(answers) != count:
                raise NotMeasured(f"{name}: an answer was lost")
        _settled(server, before)
        late = sorted(answer.seconds for answer in answers)[int(0.99 * count)]
        return 1000 * seconds, 1000 * late

    return Contender(figures=(f"{name} sessions", f"{name} sessions p99"), once=once)


def _meeting(name: str, server: HttpServer, path: str, count: int) -> Contender:
    """Many calls that are answered only once all of them have arrived."""

    def once() -> tuple[float, ...]:
        before = server.descriptors()
        with closing(Load(server.address, count)) as load:
            found = callers(load, server.address, path, Era.STATELESS, count)
            requests = [
                caller.call("meet", {"count": count, "word": f"word {number}"}) for number, caller in enumerate(found)
            ]
            answers, seconds, _ = _timed(lambda: load.run(requests), server)
            if [answer.text() for answer in answers] != [f"word {number}" for number in range(count)]:
                raise NotMeasured(f"{name}: an answer was lost, or went to another caller")
        _settled(server, before)
        late = sorted(answer.seconds for answer in answers)[int(0.99 * count)]
        return 1000 * seconds, 1000 * late

    return Contender(figures=(f"{name} in flight", f"{name} in flight p99"), once=once)


def _idle(name: str, server: HttpServer, path: str, count: int, stack: ExitStack) -> Contender:
    """Kilobytes per session that was opened and used once; those of earlier turns stay open."""
    kept: list[Caller] = []

    def end() -> None:
        with closing(Load(server.address, 1)) as load:
            end_all(load, kept)

    stack.callback(end)

    def once() -> tuple[float, ...]:
        before = server.resident_kilobytes()
        with closing(Load(server.address, 1)) as load:
            found = callers(load, server.address, path, Era.HANDSHAKE, count)
            load.run([caller.call("read_file", {"path": SAMPLE}) for caller in found])
        kept.extend(found)
        return ((server.resident_kilobytes() - before) / count,)

    return Contender(figures=(f"{name} idle session",), once=once)


SPARE = 8
"""Descriptors of the processes that a server has ready for commands, which it may start while we look."""


def _settled(server: HttpServer, descriptors: int) -> None:
    """Wait until the server has closed the connections that we closed.

    Raises:
        NotMeasured: some stay open.
    """
    until = time.monotonic() + 30
    while server.descriptors() > descriptors + SPARE:
        if time.monotonic() > until:
            raise NotMeasured(f"{server.descriptors() - descriptors} descriptors stay open")
        time.sleep(0.01)
