"""Calls whose cost must depend on what is requested, not on what exists: parts of files, a history, a large tree."""

import re
import shutil
import subprocess
import time
from contextlib import ExitStack

from benchmarks.failure import NotMeasured
from benchmarks.interleaved import Contender
from benchmarks.stdio_client import Era, Peer
from benchmarks.workspace import Workspace, plain_environment, plant_tree

LARGE_BYTES = 10_000_000
SMALL_BYTES = 10_000
LINES = 10
COMMITS = 50
TREE_FILES = 100_000
SMOKE_FILES = 1_000

LINE = b"2026-11-23T12:00:00Z INFO a line of a log, some eighty characters long, as they are\n"
LARGE, SMALL = "large.log", "small.log"

GIT_LOG = ("git", "log", f"--max-count={COMMITS + 1}", "--format=%h %aI %an %D %s")
RG_FILES = ("rg", "--files", "--hidden", "--no-config", "--no-messages")
RG_TEXT = ("rg", "--files-with-matches", "--hidden", "--no-config", "--no-messages", "needle")

_READS_ON = re.compile(r"offset=(\d+@(\d+)) reads on\]\n$")


def can_search() -> bool:
    """Whether ripgrep, the baseline, is installed."""
    return shutil.which("rg") is not None


def large_files(place: Workspace, stack: ExitStack) -> list[Contender]:
    """Parts of a large file, and of a small one."""
    folder = place.beside / "files"
    folder.mkdir()
    for name, size in ((LARGE, LARGE_BYTES), (SMALL, SMALL_BYTES)):
        (folder / name).write_bytes((LINE * (size // len(LINE) + 1))[:size])
    peer = _server(str(folder), place, stack)
    parts = [("head of 10 MB", LARGE, "head"), ("head of 10 KB", SMALL, "head")]
    parts += [("tail of 10 MB", LARGE, "tail"), ("tail of 10 KB", SMALL, "tail")]
    return [
        *(_call(figure, peer, "read_file", {"path": name, part: LINES}, repeat=10) for figure, name, part in parts),
        Contender(figures=("10 MB by pages",), once=lambda: _paged(peer, LARGE_BYTES)),
        Contender(figures=("5 MB by pages",), once=lambda: _paged(peer, LARGE_BYTES // 2)),
    ]


def history(place: Workspace, stack: ExitStack) -> list[Contender]:
    """The last commits of a real repository."""
    peer = _server(place.clone, place, stack)
    return [
        _call("git_log of 50", peer, "git_log", {"limit": COMMITS}, repeat=3),
        _process("git log process", place.clone, GIT_LOG),
    ]


def large_tree(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:
    """Names and text in a tree of 100,000 files, one in a hundred of which contains the text."""
    top = place.beside / "tree"
    plant_tree(top, SMOKE_FILES if is_smoke else TREE_FILES)
    peer = _server(str(top), place, stack)
    return [
        _call("search_files", peer, "search_files", {"glob": "*.py"}),
        _process("rg --files process", str(top), RG_FILES),
        _call("search_text", peer, "search_text", {"pattern": "needle"}),
        _process("rg process", str(top), RG_TEXT),
    ]


def _server(root: str, place: Workspace, stack: ExitStack) -> Peer:
    words = ("coretools.servers.workstation", root, "--log-level", "error")
    peer = stack.enter_context(Peer(words, Era.HANDSHAKE, bytecode=place.bytecode))
    peer.open()
    return peer


def _call(figure: str, peer: Peer, tool: str, arguments: dict[str, object], *, repeat: int = 1) -> Contender:
    return Contender(figures=(figure,), once=lambda: (1000 * peer.time_call(tool, arguments),), repeat=repeat)


def _process(figure: str, directory: str, argv: tuple[str, ...]) -> Contender:
    environment = plain_environment()

    def once() -> tuple[float, ...]:
        started = time.perf_counter()
        done = subprocess.run(argv, cwd=directory, env=environment, capture_output=True, check=False)
        seconds = time.perf_counter() - started
        if done.returncode or not done.stdout:
            raise NotMeasured(f"{figure}: {done.stderr[:500]!r}")
        return (1000 * seconds,)

    return Contender(figures=(figure,), once=once)


def _paged(peer: Peer, until_byte: int) -> tuple[float, ...]:
    """Milliseconds for the pages up to this byte, each starting where the previous one ended."""
    started = time.perf_counter()
    arguments: dict[str, object] = {"path": LARGE, "offset": 1}
    while True:
        text = peer.ask("tools/call", {"name": "read_file", "arguments": arguments})["content"][0]["text"]
        found = _READS_ON.search(text, max(0, len(text) - 200))
        if found is None or int(found[2]) >= until_byte:
            break
        arguments = {"path": LARGE, "offset": found[1]}
    if found is None and until_byte < LARGE_BYTES:
        raise NotMeasured(f"no cursor in {text[-200:]!r}")
    return (1000 * (time.perf_counter() - started),)
