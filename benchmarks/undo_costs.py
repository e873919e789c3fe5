"""What the journal of changes costs a call: two servers, one of them with `--no-undo`."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count

from benchmarks.file_servers import own_program
from benchmarks.interleaved import Contender
from benchmarks.stdio_client import Era, Peer
from benchmarks.workspace import Workspace

LINES = 100
READ, WRITTEN, EDITED = "read.txt", "written.txt", "edited.txt"


def undo_costs(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:  # noqa: ARG001 as the others
    """Each row for a server with the journal and one without, each in a tree of its own."""
    contenders = []
    for name, options in {"with undo": (), "without undo": ("--no-undo",)}.items():
        tree = place.beside / f"files {name}"
        tree.mkdir()
        for file in (READ, WRITTEN, EDITED):
            (tree / file).write_text(_text(0))
        program = own_program(str(tree), *options)
        peer = stack.enter_context(Peer((), Era.HANDSHAKE, bytecode=place.bytecode, program=program))
        peer.open()
        calls: dict[str, Callable[[int], tuple[str, dict[str, object]]]] = {
            "read": lambda _: ("read_file", {"path": READ}),
            "write": lambda number: ("write_file", {"path": WRITTEN, "content": _text(number)}),
            "edit": _edit,
            "run-true": lambda _: ("run_command", {"command": "true"}),
        }
        contenders += [
            Contender(figures=(f"{row} {name}",), once=partial(_once, peer, call, count()))
            for row, call in calls.items()
        ]
    return contenders


def _once(peer: Peer, call: Callable[[int], tuple[str, dict[str, object]]], numbers: "count[int]") -> tuple[float, ...]:
    tool, arguments = call(next(numbers))
    return (1000 * peer.time_call(tool, arguments),)


def _edit(number: int) -> tuple[str, dict[str, object]]:
    old, new = f"line 50 of {number}", f"line 50 of {number + 1}"
    return "edit_file", {"path": EDITED, "edits": [{"old": old, "new": new}]}


def _text(number: int) -> str:
    return "".join(f"line {line} of {number}\n" for line in range(LINES))
