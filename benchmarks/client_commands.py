"""The command line as a client: its help, and one call of a server that echoes, beside the SDK's client alone.

Every figure counts a program from its start to its exit: elapsed time, or the processor time of it and of all that it
started and waited for. Both are in milliseconds.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.failure import NotMeasured
from benchmarks.interleaved import Contender
from benchmarks.stdio_client import environment_with
from benchmarks.workspace import CHECKOUT, Workspace

_ECHO = (sys.executable, "-m", "benchmarks.bare_server")
_HELP = (sys.executable, "-m", "coretools.cli.main", "--help")
_BARE = (sys.executable, "-m", "benchmarks.bare_client", *_ECHO)


def client_commands(place: Workspace, _: ExitStack) -> list[Contender]:
    """The help, the interpreter alone, and a call by either client."""
    configuration = place.beside / "echo.json"
    program, *words = _ECHO
    variables = {name: value for name, value in environment_with(place.bytecode).items() if name.startswith("PYTHON")}
    server = {"command": program, "args": words, "cwd": str(CHECKOUT), "env": variables}
    configuration.write_text(json.dumps({"mcpServers": {"echo": server}}), encoding="utf-8")
    call = (sys.executable, "-m", "coretools.cli.main", "mcp", "call", f"--config={configuration}", "--yes")
    return [
        _program("coretools --help", _HELP, place, expected="coretools mcp"),
        _program("interpreter", (sys.executable, "-c", "print('started')"), place, expected="started"),
        _program("coretools mcp call", (*call, "echo", "echo", "text=hello"), place, expected="hello"),
        _program("bare call", _BARE, place, expected="hello"),
    ]


def _program(name: str, argv: Sequence[str], place: Workspace, *, expected: str) -> Contender:
    environment = environment_with(place.bytecode) | {"XDG_STATE_HOME": str(place.beside / "state")}

    def once() -> tuple[float, ...]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        done = subprocess.run(argv, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0 or expected not in done.stdout:
            raise NotMeasured(f"{name}: ended with {done.returncode}: {done.stderr[-500:]}")
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return 1000 * seconds, 1000 * used

    return Contender(figures=(name, f"{name}, processor"), once=once)
