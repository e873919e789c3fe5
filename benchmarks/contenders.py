"""The contenders: calls to three servers, starts of two, and the system's own programs for the same work.

Times are in milliseconds, memory in megabytes.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.budgets import (
    BARE_ECHO,
    BARE_FLOOD,
    IN_FLIGHT,
    LONG_LIST,
    OWN_FLOOD,
    OWN_TRANSPORT,
    REGISTRY_ECHO,
    SHORT_LIST,
)
from benchmarks.failure import NotMeasured
from benchmarks.interleaved import Contender
from benchmarks.stdio_client import HANDSHAKE, Era, Peer
from benchmarks.workspace import DIRECTORY, SAMPLE, SAMPLE_BYTES, Workspace, plain_environment

BARE_SERVER = ("benchmarks.bare_server",)
BARE_TRANSPORT = ("benchmarks.bare_transport",)
HUNDRED_TOOLS = ("benchmarks.hundred_tools",)

ECHO = ("echo", {"text": "hello"})
READ = ("read_file", {"path": SAMPLE})

GIT_STATUS = ("git", "status", "--porcelain=v2", "--branch")

SHORT = 10
"""Repetitions in a turn of what takes about a millisecond or less."""

LONGER = 3

RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


def workstation(place: Workspace) -> tuple[str, ...]:
    """The command that starts our server in the workspace."""
    return ("coretools.servers.workstation", place.root, place.clone, "--log-level", "error")


def starts(place: Workspace) -> list[Contender]:
    """Starts of our server and of the bare one; the memory of each is taken once it is idle."""
    return [
        _start("server", workstation(place), place),
        _start("bare", BARE_SERVER, place),
    ]


def calls(place: Workspace, era: Era, stack: ExitStack) -> list[Contender]:
    """Calls in one era and their baselines; the servers are ended with the stack."""
    server, bare, own, hundred = (
        stack.enter_context(Peer(words, era, bytecode=place.bytecode))
        for words in (workstation(place), BARE_SERVER, BARE_TRANSPORT, HUNDRED_TOOLS)
    )
    for peer in (server, bare, own, hundred):
        peer.open()
    return [
        _call("read_file", server, READ, repeat=SHORT),
        _call(BARE_ECHO, bare, ECHO, repeat=SHORT),
        _call(OWN_TRANSPORT, own, ECHO, repeat=SHORT),
        _call(REGISTRY_ECHO, hundred, ECHO, repeat=SHORT),
        _list_of(LONG_LIST, hundred, least=100),
        _list_of(SHORT_LIST, own, least=1),
        _direct("open, read, close", lambda: _read(place.sample), repeat=SHORT),
        _call("list_directory", server, ("list_directory", {"path": DIRECTORY}), repeat=SHORT),
        _direct("scandir, stat", lambda: _list(place.directory), repeat=SHORT),
        _call("git_status", server, ("git_status", {}), repeat=LONGER),
        _process("git status process", place.root, GIT_STATUS),
        _call("git_status, clone", server, ("git_status", {"repository": place.clone}), repeat=LONGER),
        _process("git status process, clone", place.clone, GIT_STATUS),
        _call("run_command true", server, ("run_command", {"command": "true"}), repeat=LONGER),
        _process("true process", place.root, ["true"]),
        _call(f"read_file x{IN_FLIGHT}", server, READ, count=IN_FLIGHT),
        _call(BARE_FLOOD, bare, ECHO, count=IN_FLIGHT),
        _call(OWN_FLOOD, own, ECHO, count=IN_FLIGHT),
    ]


def _start(name: str, words: Sequence[str], place: Workspace) -> Contender:
    def once() -> tuple[float, ...]:
        started = time.perf_counter()
        with Peer(words, Era.HANDSHAKE, bytecode=place.bytecode) as peer:
            peer.ask("initialize", HANDSHAKE)
            initialized = time.perf_counter()
            peer.ask("tools/list", {})
            listed = time.perf_counter()
            return 1000 * (initialized - started), 1000 * (listed - started), _resident_megabytes(peer.pid)

    return Contender(figures=(f"{name} initialize", f"{name} tools/list", f"{name} memory"), once=once)


def _call(figure: str, peer: Peer, call: tuple[str, dict[str, str]], *, repeat: int = 1, count: int = 1) -> Contender:
    tool, arguments = call
    return Contender(
        figures=(figure,), once=lambda: (1000 * peer.time_call(tool, arguments, count=count),), repeat=repeat
    )


def _list_of(figure: str, peer: Peer, *, least: int) -> Contender:
    def once() -> tuple[float, ...]:
        return (1000 * peer.time_list("tools/list", "tools", least=least),)

    return Contender(figures=(figure,), once=once, repeat=LONGER)


def _direct(figure: str, work: Callable[[], int], *, repeat: int = LONGER) -> Contender:
    def once() -> tuple[float, ...]:
        started = time.perf_counter()
        done = work()
        seconds = time.perf_counter() - started
        if not done:
            raise NotMeasured(f"{figure}: nothing was done")
        return (1000 * seconds,)

    return Contender(figures=(figure,), once=once, repeat=repeat)


def _process(figure: str, directory: str, argv: Sequence[str]) -> Contender:
    environment = plain_environment()

    def work() -> int:
        return subprocess.run(argv, cwd=directory, env=environment, capture_output=True, check=True).returncode == 0

    return _direct(figure, work)


def _read(path: str) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return len(os.read(fd, SAMPLE_BYTES))
    finally:
        os.close(fd)


def _list(path: str) -> int:
    """Names, kinds and sizes, sorted: what the tool returns too."""
    with os.scandir(path) as entries:
        return len(sorted((entry.name, entry.is_dir(), entry.stat().st_size) for entry in entries))


def _resident_megabytes(pid: int) -> float:
    """Resident memory of a process (proc_pid_status(5)); 0.0 where the system has no such file."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    found = RESIDENT.search(status)
    return int(found[1]) / 1024 if found else 0.0
