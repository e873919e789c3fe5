"""What other calls of a server cost while one of its commands misbehaves: output, memory, processes without end.

A call beside each, against the same call alone, in one server; the value of a turn is the median of many calls.
"""

import shlex
import statistics
from contextlib import ExitStack
from typing import Any

from benchmarks.contenders import workstation
from benchmarks.failure import NotMeasured
from benchmarks.interleaved import Contender
from benchmarks.stdio_client import Era, Peer
from benchmarks.workspace import DIRECTORY, Workspace

CALLS = 200
"""In a turn. A bomb is ended within half a second: most of them are made while it goes off."""
SMOKE_CALLS = 5

ALONE = "a call alone"

_MEMORY = "held = []\nwhile True: held.append(bytearray(1 << 24))"
_PROCESSES = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"

NEIGHBOURS = {
    "output": ("sh", "-c", "while :; do yes; done"),
    "memory": ("python3", "-c", _MEMORY),
    "processes": ("python3", "-c", _PROCESSES),
}


def calls_beside(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:
    """One server, and a call in it alone and beside each command."""
    peer = stack.enter_context(Peer(workstation(place), Era.HANDSHAKE, bytecode=place.bytecode))
    peer.open()
    count = SMOKE_CALLS if is_smoke else CALLS
    beside = [_beside(name, argv, peer, count) for name, argv in NEIGHBOURS.items()]
    return [Contender(figures=(ALONE,), once=lambda: (_calls(peer, count),)), *beside]


def _calls(peer: Peer, count: int) -> float:
    """Milliseconds of a call."""
    taken = [peer.time_call("directory_exists", {"path": DIRECTORY}) for _ in range(count)]
    return 1000 * statistics.median(taken)


def _beside(name: str, argv: tuple[str, ...], peer: Peer, count: int) -> Contender:
    def once() -> tuple[float, ...]:
        started = _asked(peer, "run_command", {"command": shlex.join(argv), "wait_seconds": 0})
        run = started["_meta"]["coretools/facts"].get("run")
        if run is None:
            raise NotMeasured(f"{name}: was over before it was measured")
        try:
            return (_calls(peer, count),)
        finally:
            _asked(peer, "stop_run", {"run": run})

    return Contender(figures=(f"beside {name}",), once=once)


def _asked(peer: Peer, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return peer.ask("tools/call", {"name": tool, "arguments": arguments})
