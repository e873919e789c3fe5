"""What a command waits for: the directories beneath its roots, other commands, and a client that reads without pause.

Each is compared with the same command with nothing to wait for, in the same server.
"""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from benchmarks.failure import NotMeasured
from benchmarks.http_client import Caller, Load
from benchmarks.http_load import own_server
from benchmarks.interleaved import Contender
from benchmarks.stdio_client import Era, Peer
from benchmarks.workspace import SAMPLE, Workspace

FEW, MANY = 100, 6000
"""Directories."""
AT_ONCE = 200
SMOKE_DIRECTORIES, SMOKE_AT_ONCE = 200, 5

_EACH = 50
"""Directories in one directory."""
_READS = 8
"""In flight at any time, of the client that reads."""

TRUE = {"command": "true"}
SHORT = {"command": "sleep 0.2"}
LONG = {"command": "sleep 1"}


def commands_that_wait(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:
    """A server with few directories, one with many, and one over HTTP."""
    few = _server(place, stack, FEW)
    many = _server(place, stack, SMOKE_DIRECTORIES if is_smoke else MANY)
    # A server of its own for what floods it: the two above differ in their directories alone.
    busy = _server(place, stack, SMOKE_DIRECTORIES if is_smoke else MANY)
    at_once = SMOKE_AT_ONCE if is_smoke else AT_ONCE
    web, web_beside = _over_http(place, stack)
    return [
        Contender(figures=("true, few directories",), once=_called(few, TRUE), repeat=5),
        Contender(figures=("true, many directories",), once=_called(many, TRUE), repeat=5),
        Contender(figures=("sleep 0.2",), once=_called(busy, SHORT)),
        Contender(figures=("sleep 0.2 at once",), once=_called(busy, SHORT, count=at_once)),
        Contender(figures=("sleep 1",), once=_called(busy, LONG)),
        Contender(
            figures=("sleep 1 beside reads",),
            once=lambda: (
                1000 * busy.time_beside(("run_command", LONG), ("read_file", {"path": "sample.txt"}), reads=_READS),
            ),
        ),
        Contender(figures=("sleep 1, http",), once=web),
        Contender(figures=("sleep 1 beside reads, http",), once=web_beside),
    ]


def _server(place: Workspace, stack: ExitStack, directories: int) -> Peer:
    """A server whose root has this many directories."""
    root = place.beside / f"directories-{directories}"
    for number in range(directories):
        (root / str(number // _EACH) / str(number % _EACH)).mkdir(parents=True, exist_ok=True)
    (root / "sample.txt").write_text("one line\n" * 100, encoding="utf-8")
    words = ("coretools.servers.workstation", str(root), "--log-level", "error")
    peer = stack.enter_context(Peer(words, Era.HANDSHAKE, bytecode=place.bytecode))
    peer.open()
    return peer


def _called(peer: Peer, arguments: dict[str, Any], *, count: int = 1) -> Callable[[], tuple[float, ...]]:
    return lambda: (1000 * peer.time_call("run_command", arguments, count=count),)


def _over_http(
    place: Workspace, stack: ExitStack
) -> tuple[Callable[[], tuple[float, ...]], Callable[[], tuple[float, ...]]]:
    """The same command over HTTP, alone and beside another connection that reads."""
    server = stack.enter_context(own_server(place))
    sample = os.path.join(place.root, SAMPLE)

    def client() -> tuple[Load, Caller]:
        load = Load(server.address, 1)
        return load, Caller(server.address, "/mcp", Era.STATELESS)

    commands, reads = client(), client()
    for load, _ in (commands, reads):
        stack.callback(load.close)

    def alone() -> tuple[float, ...]:
        started = perf_counter()
        _asked(*commands, "run_command", LONG)
        return (1000 * (perf_counter() - started),)

    def beside() -> tuple[float, ...]:
        is_over = threading.Event()
        failures: list[NotMeasured] = []

        def read() -> None:
            try:
                while not is_over.is_set():
                    _asked(*reads, "read_file", {"path": sample})
            except NotMeasured as error:
                failures.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            taken = alone()
        finally:
            is_over.set()
            reader.join()
        if failures:
            raise failures[0]
        return taken

    return alone, beside


def _asked(load: Load, caller: Caller, tool: str, arguments: dict[str, Any]) -> None:
    (answer,) = load.run([caller.call(tool, arguments)])
    if answer.result().get("isError"):
        raise NotMeasured(f"{tool}: {answer.result()}")
