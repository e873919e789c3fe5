"""A listing, a tree, a glob and a regex in trees of 5,000 and 100,000 files, beside two other file servers.

Each server answers as an agent gets it: ours up to its limits, with the way to the rest; the official server with
everything at once, 7 MB of JSON for the larger tree; Desktop Commander by searches of their own, which are polled.
"""

import json
import os
import re
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.budgets import FILE_TREES, TREE_ROWS
from benchmarks.failure import NotMeasured
from benchmarks.file_servers import OFFICIAL, OTHER, official_program, other_program, own_program
from benchmarks.interleaved import Contender
from benchmarks.peer_servers import Call, Server, is_installed
from benchmarks.stdio_client import Era, Peer
from benchmarks.workspace import Workspace, plant_tree

SMOKE_FILES = 1_000
LIMIT = 500
"""Of matches."""

LISTED = "part0/module0"
PATTERN, GLOB = "ne+dle", "**/file7*.py"

_SESSION = re.compile(r"session: (search_\w+)")


def file_trees(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:
    """Each row for ours and for the other servers that are installed. They only read, so one tree is for all."""
    contenders = []
    for files in FILE_TREES:
        tree = place.beside / f"tree-of-{files}"
        plant_tree(tree, SMOKE_FILES if is_smoke else files)
        for server in _servers(str(tree)):
            if is_installed(server):
                peer = stack.enter_context(Peer((), Era.HANDSHAKE, bytecode=place.bytecode, program=server.program))
                if server.name == OTHER:  # it does not end with its input while its searches are kept
                    stack.callback(os.kill, peer.pid, signal.SIGKILL)
                peer.open()
                contenders += [_timed(row, files, server, peer) for row in TREE_ROWS if row in server.calls]
    return contenders


def _servers(tree: str) -> tuple[Server, ...]:
    own: dict[str, Sequence[Call]] = {
        "list": [("list_directory", {"path": LISTED})],
        "tree": [("directory_tree", {})],
        "glob": [("search_files", {"glob": GLOB, "limit": LIMIT})],
        "regex": [("search_text", {"pattern": PATTERN, "limit": LIMIT})],
    }
    official: dict[str, Sequence[Call]] = {
        "list": [("list_directory_with_sizes", {"path": f"{tree}/{LISTED}"})],
        "tree": [("directory_tree", {"path": tree})],
        "glob": [("search_files", {"path": tree, "pattern": GLOB})],
    }
    search = {"path": tree, "maxResults": LIMIT}
    other: dict[str, Sequence[Call]] = {
        "list": [("list_directory", {"path": f"{tree}/{LISTED}", "depth": 1})],
        "tree": [("list_directory", {"path": tree, "depth": 3})],
        "glob": [("start_search", {**search, "pattern": GLOB, "searchType": "files"})],
        "regex": [("start_search", {**search, "pattern": PATTERN, "searchType": "content", "contextLines": 0})],
    }
    return (
        Server("coretools", own_program(tree), own),
        Server(OFFICIAL, official_program(tree), official),
        Server(OTHER, other_program(tree), other),
    )


def _timed(row: str, files: int, server: Server, peer: Peer) -> Contender:
    ((tool, arguments),) = server.calls[row]
    figure = f"{row} of {files} by {server.name}"
    if tool == "start_search":
        return Contender(figures=(figure,), once=lambda: (_searched(peer, dict(arguments)),))
    return Contender(figures=(figure,), once=lambda: (1000 * peer.time_call(tool, dict(arguments)),))


def _searched(peer: Peer, arguments: dict[str, object]) -> float:
    """Milliseconds until a search that runs beside the calls has ended and its matches are there."""
    started = time.perf_counter()
    answer = _text(peer, "start_search", arguments)
    session = _SESSION.search(answer)
    if session is None:
        raise NotMeasured(f"start_search: {answer[:300]}")
    while "Status: COMPLETED" not in answer:
        time.sleep(0.002)
        answer = _text(peer, "get_more_search_results", {"sessionId": session[1], "length": LIMIT})
    return 1000 * (time.perf_counter() - started)


def _text(peer: Peer, tool: str, arguments: dict[str, object]) -> str:
    result = peer.ask("tools/call", {"name": tool, "arguments": arguments})
    if result.get("isError"):
        raise NotMeasured(f"{tool}: {json.dumps(result)[:300]}")
    return str(result["content"][0]["text"])
