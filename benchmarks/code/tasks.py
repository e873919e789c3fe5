"""Twelve tasks of an agent in click, with the code tools and with text tools alone: calls and bytes of each.

    python -m benchmarks.code.tasks CLONE [-- python -m pytest -q tests]

CLONE is a clean clone of pallets/click at 2c8cd3ac; git restores it after each task. The calls are those that a careful
agent made who knew the question and not the answer; what it concluded is in docs/specs/code.md. With a command, it runs
after each task that changes files, with the sources of the clone on PYTHONPATH, and its exit code is printed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.stdio_client import Era, Peer

CORE, TYPES, FORMATTING, UTILS, OWN_UTILS, COMPAT = (
    f"src/click/{name}.py" for name in ("core", "types", "formatting", "utils", "_utils", "_compat")
)
HINT = "def get_error_hint(self, ctx: Context | None"
MOVED = "_make_default_short_help"

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Task:
    """A task, and the calls by which it is done in two ways."""

    name: str
    with_code: Sequence[Call]
    with_text: Sequence[Call]
    before: tuple[str, str, str] | None = None
    """A change that makes the task: file, old and new text."""


def references(path: str, symbol: str, **more: str) -> Call:
    return "code_references", {"path": path, "symbol": symbol, **more}


def search(pattern: str, **more: object) -> Call:
    return "search_text", {"pattern": pattern, **more}


def read(path: str, **more: object) -> Call:
    return "read_file", {"path": path, **more}


def edit(*files: tuple[str, Sequence[tuple[str, str]]]) -> Call:
    """Edits that replace every match."""
    return "edit_files", {
        "files": [
            {"path": path, "edits": [{"old": old, "new": new, "all": True} for old, new in edits]}
            for path, edits in files
        ]
    }


def tasks(top: Path) -> list[Task]:
    """The twelve; the text of what is moved is read from the clone."""
    text = (top / UTILS).read_text()
    moved = text[text.index(f"def {MOVED}") : text.index("class _LazyFile")]
    signature = edit(
        (
            CORE,
            [
                (f"{HINT}) -> str:", f"{HINT}, *, quoted: bool) -> str:"),
                ("super().get_error_hint(ctx)", "super().get_error_hint(ctx, quoted=quoted)"),
            ],
        ),
        ("src/click/exceptions.py", [("get_error_hint(self.ctx)", "get_error_hint(self.ctx, quoted=True)")]),
    )
    move = edit(
        (
            UTILS,
            [
                (moved, ""),
                ("from ._compat import WIN\n", f"from ._compat import WIN\nfrom ._utils import {MOVED} as {MOVED}\n"),
            ],
        ),
        (OWN_UTILS, [("class Sentinel(", f"{moved}class Sentinel(")]),
        (CORE, [(f"from .utils import {MOVED}\n", f"from ._utils import {MOVED}\n")]),
    )
    renamed = edit(
        (FORMATTING, [("def write_dl(", "def write_definition_list(")]),
        (CORE, [("formatter.write_dl(", "formatter.write_definition_list(")]),
    )
    return [
        Task(
            "who calls Parameter.get_default",
            [references(CORE, f"{owner}.get_default", relation="callers") for owner in ("Parameter", "Option")],
            [
                search(r"\bget_default\(", glob="*.py"),
                search(r"^class |def get_default\(", path=CORE),
                read("tests/test_options.py", offset=2480, limit=20),
            ],
        ),
        Task(
            "a further parameter for get_error_hint",
            [
                references(CORE, "Parameter.get_error_hint"),
                references(CORE, "Parameter.get_error_hint", relation="implementations"),
                signature,
            ],
            [search("get_error_hint", glob="*.py"), signature],
        ),
        Task(
            "formatting.py fails: which type is wrong",
            [
                ("code_check", {"paths": [FORMATTING], "severity": "error"}),
                ("code_symbols", {"path": FORMATTING, "name": "term_len", "line": 19}),
            ],
            [read(FORMATTING, offset=14, limit=15), search("def term_len", path="src/click", context=3)],
            before=(
                COMPAT,
                "def term_len(x: str) -> int:\n    return len(strip_ansi(x))",
                "def term_len(x: str) -> str:\n    return str(len(strip_ansi(x)))",
            ),
        ),
        Task(
            "implementations of ParamType.convert",
            [references(TYPES, "ParamType.convert", relation="implementations")],
            [
                search(r"^\s*class |def convert\(", glob="*.py", path="src/click"),
                search(r"ParamType\b", glob="*.py"),
                search(r"def convert\(self", glob="*.py", context=4),
            ],
        ),
        Task(
            "rename HelpFormatter.write_dl",
            [
                (
                    "code_rename",
                    {"path": FORMATTING, "symbol": "HelpFormatter.write_dl", "new_name": "write_definition_list"},
                )
            ],
            [search("write_dl"), renamed],
        ),
        Task(
            "what overrides Parameter.get_error_hint",
            [references(CORE, "Parameter.get_error_hint", relation="implementations")],
            [search("get_error_hint", glob="*.py"), search("^class ", path=CORE)],
        ),
        Task(
            "where is FORCED_WIDTH used",
            [search("FORCED_WIDTH", glob="*.py", with_symbols=True)],
            [search("FORCED_WIDTH", glob="*.py")],
        ),
        Task(
            "what is UNSET",
            [("code_symbols", {"name": "UNSET", "path": "src"})],
            [search(r"\bUNSET\b *[:=]|import UNSET|class UNSET", path="src/click"), read(OWN_UTILS)],
        ),
        Task(
            "is _is_binary_writer unused",
            [references(COMPAT, "_is_binary_writer")],
            [search("_is_binary_writer")],
        ),
        Task(
            f"move {MOVED} to another module",
            [
                references(UTILS, MOVED),
                read(UTILS, symbol=MOVED),
                read(OWN_UTILS, head=20),
                move,
                ("code_check", {"paths": [UTILS, OWN_UTILS, CORE], "severity": "error"}),
            ],
            [search("make_default_short_help"), read(UTILS, offset=1, limit=115), read(OWN_UTILS, head=20), move],
        ),
        Task(
            "errors of the project",
            [("code_check", {"paths": ["src/click"], "severity": "error"})],
            [],
        ),
        Task(
            "who calls Context.close, one of many of this name",
            [references(CORE, "Context.close", relation="callers")],
            [
                search(r"\.close\(\)", glob="*.py"),
                read(CORE, offset=815, limit=15),
                search(r"(ctx|context|self)\.close\b", glob="*.py", context=2),
            ],
        ),
    ]


def do(peer: Peer, calls: Sequence[Call]) -> tuple[int, int, int]:
    """Make calls; return their number, the bytes of the answers and those of the arguments."""
    answers = arguments = 0
    for name, given in calls:
        result = peer.ask("tools/call", {"name": name, "arguments": dict(given)})
        text = "\n".join(item.get("text", "") for item in result["content"])
        if result.get("isError"):
            raise SystemExit(f"{name} {given}: {text}")
        answers += len(text.encode())
        arguments += len(json.dumps(given).encode())
    return len(calls), answers, arguments


def tests(top: Path, command: Sequence[str]) -> str:
    """Run the tests of the clone."""
    variables = {**os.environ, "PYTHONPATH": str(top / "src")}
    run = subprocess.run(command, cwd=top, env=variables, capture_output=True, check=False)
    return f"exit code {run.returncode}"


def main() -> None:
    """Do the tasks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("clone", type=Path)
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    top = options.clone.resolve()
    server = ["coretools.servers.workstation", str(top)]
    sums = [[0, 0, 0], [0, 0, 0]]
    print("| task | with code tools: calls, bytes of answers, of arguments | with text tools |\n|---|---|---|")
    for task in tasks(top):
        shown: list[str] = []
        for number, calls in enumerate((task.with_code, task.with_text)):
            if task.before is not None:
                path, old, new = task.before
                (top / path).write_text((top / path).read_text().replace(old, new))
            # A server of its own: one that saw a file before tells what others changed in it since.
            with Peer(server, Era.HANDSHAKE, bytecode="", program=(sys.executable, "-m")) as peer:
                peer.open()
                counts = do(peer, calls)
            sums[number] = [a + b for a, b in zip(sums[number], counts, strict=True)]
            is_change = any(name in ("edit_files", "code_rename") for name, _ in calls)
            tested = f" ({tests(top, options.command)})" if is_change and options.command else ""
            subprocess.run(["git", "checkout", "-q", "--", "."], cwd=top, check=True)
            shown.append(", ".join(map(str, counts)) + tested if calls else "not possible")
        print(f"| {task.name} | {' | '.join(shown)} |", flush=True)
    print("| all |", " | ".join(", ".join(map(str, one)) for one in sums), "|")


if __name__ == "__main__":
    main()
