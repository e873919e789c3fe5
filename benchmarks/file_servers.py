"""The file tools beside two other file servers, in a tree of 5,000 files.

The other servers are optional. In the checkout, this command installs them:

    npm install --ignore-scripts --prefix benchmarks/peers/npm \
        @modelcontextprotocol/server-filesystem @wonderwhy-er/desktop-commander
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.budgets import FILE_ROWS, IN_FLIGHT
from benchmarks.interleaved import Contender
from benchmarks.peer_servers import INSTALLED, Call, Server, is_installed
from benchmarks.stdio_client import Era, Peer
from benchmarks.workspace import Workspace

FILES = 5_000
SMOKE_FILES = 200
FILES_OF_A_DIRECTORY = 100
LINES = 100
LONG_LINES = 100_000

OFFICIAL, OTHER = "server-filesystem", "desktop-commander"
READ, LONG, WRITTEN, EDITED, LISTED = "read.txt", "long.log", "written.txt", "edited.txt", "part0"


def own_program(tree: str, *options: str) -> Sequence[str]:
    """Return the command line of our server, with further options."""
    return (sys.executable, "-m", "coretools.servers.workstation", tree, "--log-level", "error", *options)


def official_program(tree: str) -> Sequence[str]:
    """Return the command line of the official file server."""
    script = INSTALLED / "npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
    return ("node", str(script), tree)


def other_program(tree: str) -> Sequence[str]:
    """Return the command line of Desktop Commander, which may use this tree.

    It is started without a network, since it reports its use, and with a home of its own.
    """
    script = INSTALLED / "npm/node_modules/@wonderwhy-er/desktop-commander/dist/index.js"
    settings = Path(f"{tree}-home/.claude-server-commander")
    if is_installed(Server(OTHER, (str(script),))):
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "config.json").write_text(json.dumps({"telemetryEnabled": False, "allowedDirectories": [tree]}))
    return ("env", f"HOME={settings.parent}", "unshare", "-rn", "node", str(script))


def _ours(tree: str) -> Server:
    calls: dict[str, Sequence[Call]] = {
        "read": [("read_file", {"path": READ})],
        "read-in-flight": [("read_file", {"path": READ})],
        "head": [("read_file", {"path": LONG, "head": 10})],
        "tail": [("read_file", {"path": LONG, "tail": 10})],
        "write": [("write_file", {"path": WRITTEN})],
        "edit": [("edit_file", {"path": EDITED})],
        "list": [("list_directory", {"path": LISTED})],
        "glob": [("search_files", {"pattern": "**/*7.py", "limit": 500})],
    }
    return Server("coretools", own_program(tree), calls)


def _official(tree: str) -> Server:
    calls: dict[str, Sequence[Call]] = {
        "read": [("read_text_file", {"path": f"{tree}/{READ}"})],
        "read-in-flight": [("read_text_file", {"path": f"{tree}/{READ}"})],
        "head": [("read_text_file", {"path": f"{tree}/{LONG}", "head": 10})],
        "tail": [("read_text_file", {"path": f"{tree}/{LONG}", "tail": 10})],
        "write": [("write_file", {"path": f"{tree}/{WRITTEN}"})],
        "edit": [("edit_file", {"path": f"{tree}/{EDITED}"})],
        "list": [("list_directory_with_sizes", {"path": f"{tree}/{LISTED}"})],
        "glob": [("search_files", {"path": tree, "pattern": "**/*7.py"})],
    }
    return Server(OFFICIAL, official_program(tree), calls)


def _other(tree: str) -> Server:
    calls: dict[str, Sequence[Call]] = {
        "read": [("read_file", {"path": f"{tree}/{READ}"})],
        "head": [("read_file", {"path": f"{tree}/{LONG}", "length": 10})],
        "tail": [("read_file", {"path": f"{tree}/{LONG}", "offset": -10})],
        "write": [("write_file", {"path": f"{tree}/{WRITTEN}"})],
        "edit": [("edit_block", {"file_path": f"{tree}/{EDITED}"})],
        "list": [("list_directory", {"path": f"{tree}/{LISTED}", "depth": 1})],
    }
    return Server(OTHER, other_program(tree), calls)


def missing_servers() -> list[str]:
    """Return the names of the other servers that are not installed."""
    programs = {OFFICIAL: official_program, OTHER: other_program}
    with TemporaryDirectory() as tree:
        return [name for name, program in programs.items() if not is_installed(Server(name, program(tree)))]


def file_servers(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:
    """Each row for ours and for the other servers that are installed; each has a tree of its own."""
    contenders = []
    for make in (_ours, _official, _other):
        tree = place.beside / f"files-of-{make.__name__}"
        server = make(str(tree))
        if not is_installed(server):
            continue
        _plant(tree, SMOKE_FILES if is_smoke else FILES)
        peer = stack.enter_context(Peer((), Era.HANDSHAKE, bytecode=place.bytecode, program=server.program))
        peer.open()
        contenders += [_timed(row, server, peer) for row in FILE_ROWS if row in server.calls]
    return contenders


_versions = count()


def _timed(row: str, server: Server, peer: Peer) -> Contender:
    (tool, fixed) = server.calls[row][0]

    def once() -> tuple[float, ...]:
        number = next(_versions)
        arguments: Mapping[str, object] = fixed
        if row == "write":
            arguments = {**fixed, "content": f"{number}\n{_text(number)}"}
        if row == "edit":
            arguments = {**fixed, **_edit(server.name, number)}
        calls = IN_FLIGHT if row == "read-in-flight" else 1
        return (1000 * peer.time_call(tool, dict(arguments), count=calls),)

    return Contender(figures=(f"{row} by {server.name}",), once=once)


_edits: dict[str, str] = {}


def _edit(name: str, number: int) -> dict[str, object]:
    """The arguments of each server to replace what the last edit left."""
    old, new = _edits.get(name, "line 50 of 0"), f"line 50 of {number + 1}"
    _edits[name] = new
    if name == OTHER:
        return {"old_string": old, "new_string": new}
    return {"edits": [{"oldText": old, "newText": new} if name == OFFICIAL else {"old": old, "new": new}]}


def _plant(tree: Path, files: int) -> None:
    for number in range(files):
        directory = tree / f"part{number // FILES_OF_A_DIRECTORY}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"file{number}.py").write_text(_text(number))
    (tree / READ).write_text(_text(1))
    (tree / EDITED).write_text(_text(0))
    (tree / LONG).write_text("".join(f"2026-11-28 a line of a log, number {line}\n" for line in range(LONG_LINES)))


def _text(number: int) -> str:
    return "".join(f"line {line} of {number}\n" for line in range(LINES))
