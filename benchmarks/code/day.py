"""A day of work with language servers running all the time, and the same day without code tools.

    python -m benchmarks.code.day CHECKOUT [--calls 300] [--tier full|landlock] [--under src]

Each of the two works on a clone of its own of CHECKOUT, a Python project, and makes the same calls in the same order:
reads, searches, edits, commands and git. The one with code tools asks for references, symbols or problems after every
fourth call. They take turns, ten calls at a time. Printed of each, at the start of the work, at its end, and the most:
memory (PSS) of the whole tree; and at the end its processor seconds, the seconds of its calls, descriptors of the
server, processes, bytes and files of its state and cache, files in its temporary directory, and what lives when it has
been closed. Tier landlock needs the profile of the tests, so a checkout of this project.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.code.processes import descriptors, is_alive, processor_seconds, pss
from benchmarks.stdio_client import TREE, Era, Peer
from coretools.process.fork_server.descendants import descendants
from coretools.tools.outline import outline_of

TURN = 10
"""Calls before the other one's turn."""

Request = tuple[str, dict[str, Any]]


class Worker:
    """One server with its clone, its state and its measurements."""

    def __init__(self, name: str, checkout: Path, scratch: Path, tier: str) -> None:
        self.name = name
        self.top = scratch / name / "clone"
        self.own = [scratch / name / one for one in ("state", "cache", "tmp")]
        for directory in self.own:
            directory.mkdir(parents=True)
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(checkout), str(self.top)], check=True)
        variables = zip(("XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR"), self.own, strict=True)
        before = [sys.executable, "-m", "tests.docker_profile", "--keep-user", "--"] if tier == "landlock" else []
        server = [sys.executable, "-m", "coretools.servers.workstation", str(self.top)]
        words = [*(f"{variable}={path}" for variable, path in variables), *before, *server]
        self.peer = Peer(words, Era.HANDSHAKE, bytecode="", program=["env"])
        self.peer.open()
        self.memory: list[int] = []
        self.seconds = 0.0
        self.errors = 0
        if tier not in self.ask(("get_diagnostics", {})):
            raise SystemExit(f"tier {tier} is not to be had here")

    def ask(self, request: Request) -> str:
        """Make a call; return its text."""
        began = time.perf_counter()
        result = self.peer.ask("tools/call", {"name": request[0], "arguments": request[1]})
        self.seconds += time.perf_counter() - began
        if result.get("isError"):
            self.errors += 1
            print(f"{self.name}: {request}: {result['content'][0].get('text', '')[:200]}", file=sys.stderr)
        return json.dumps(result)

    def measure(self) -> None:
        """Add the memory of now."""
        self.memory.append(sum(map(pss, self.tree())))

    def tree(self) -> list[int]:
        """The server, and what descends from it."""
        return [self.peer.pid, *descendants(self.peer.pid)]

    def report(self) -> str:
        """Close it; return its line."""
        tree = self.tree()
        found = [
            f"PSS {self.memory[0] / 1e6:.0f} to {self.memory[-1] / 1e6:.0f} MB, most {max(self.memory) / 1e6:.0f}",
            f"{processor_seconds(tree):.1f} s of the processor, {self.seconds:.1f} s in calls, {self.errors} errors",
            f"{descriptors(self.peer.pid)} descriptors, {len(tree)} processes",
        ]
        self.peer.close()
        for directory in self.own:
            files = [one for one in directory.rglob("*") if one.is_file()]
            found.append(
                f"{directory.name} {sum(one.stat().st_size for one in files) / 1e6:.1f} MB in {len(files)} files"
            )
        found.append(f"{sum(map(is_alive, tree))} processes left")
        return f"{self.name}: {'; '.join(found)}"


def work(top: Path, under: str, count: int, *, with_code: bool) -> Iterator[Request]:
    """The calls of the day, the same at every run."""
    draw = random.Random(30)
    files = sorted(str(one.relative_to(top)) for one in (top / under).rglob("*.py"))
    sizable = [one for one in files if (top / one).stat().st_size > 2000]
    symbols = [
        (path, one.path)
        for path in sizable
        if (outline := outline_of(path, (top / path).read_text("utf-8", "replace")))
        for one in outline.symbols
        if one.kind in ("class", "function") and len(outline.named((*one.scope, one.name))) == 1
    ]
    edited: dict[str, int] = {}
    for number in range(count):
        path, symbol = draw.choice(symbols)
        name = symbol.rpartition(".")[2]
        yield draw.choice(
            [
                ("read_file", {"path": path, "limit": 200}),
                ("read_file", {"path": path, "symbol": symbol}),
                ("search_text", {"pattern": name, "glob": "*.py"}),
                ("search_files", {"pattern": "**/*.py"}),
                ("run_command", {"command": f"grep -c def {path}; ls {under} | wc -l"}),
                ("run_command", {"command": f"python3 -m py_compile {path}"}),
                ("git_status", {}),
                ("git_diff", {}),
                ("git_log", {"limit": 5}),
            ]
        )
        if number % 3 == 0:
            edited[path] = edited.get(path, 0) + 1
            yield ("run_command", {"command": f"echo 'added_{number} = {number}' >> {path}"})
            yield (
                "edit_file",
                {
                    "path": path,
                    "edits": [{"old": f"added_{number} = {number}\n", "new": f"added_{number}: int = {number}\n"}],
                },
            )
        if number % 50 == 49:
            yield (
                "run_command",
                {
                    "command": "git -c user.name=a -c user.email=a@b commit -qam work; git checkout -q -b b"
                    + str(number)
                },
            )
        if with_code and number % 4 == 3:
            yield draw_code(number, path, symbol, sorted(edited))


def draw_code(number: int, path: str, symbol: str, edited: list[str]) -> Request:
    """A question about code; by turns, so that the other day has the same draws."""
    return [
        ("code_references", {"path": path, "symbol": symbol}),
        ("code_check", {"paths": edited[-3:]}),
        ("code_symbols", {"path": path}),
        ("code_references", {"path": path, "symbol": symbol, "relation": "callers"}),
    ][number // 4 % 4]


def main() -> None:
    """Work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--tier", choices=("full", "landlock"), default="full")
    parser.add_argument("--under", default="src")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="benchmarks-"))
    os.chdir(TREE)
    try:
        workers = [Worker(name, options.checkout.resolve(), scratch, options.tier) for name in ("with", "without")]
        days = [work(one.top, options.under, options.calls, with_code=one.name == "with") for one in workers]
        for one, calls in zip(workers, days, strict=True):
            one.ask(next(calls))
            one.measure()
        waiting = list(zip(workers, days, strict=True))
        while waiting:
            for pair in list(waiting):
                one, calls = pair
                asked = [one.ask(request) for _, request in zip(range(TURN), calls, strict=False)]
                one.measure()
                if len(asked) < TURN:
                    waiting.remove(pair)
        for one in workers:
            print(one.report(), flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
