"""What every client calls: at least one tool of each set, with the expected text."""

import sys
from dataclasses import asdict, dataclass
from typing import Any

COMMAND = sys.executable
WORKSTATION = ("-m", "coretools.servers.workstation")
"""Started in `TREE`, with the directory to serve as last argument."""

SETS = frozenset({"filesystem", "search", "git", "ci", "commands", "diagnostics"})


@dataclass(frozen=True)
class Call:
    tool_set: str
    name: str
    arguments: dict[str, Any]
    expected: str

    def plain(self) -> dict[str, Any]:
        return asdict(self)


EDIT = {"path": "greeting.py", "edits": [{"old": "Hello, ", "new": "Good day, "}]}

CALLS = (
    Call("filesystem", "read_file", {"path": "greeting.py", "limit": 3}, "def greeting(name):"),
    Call("search", "search_text", {"pattern": "def greet"}, "greeting.py"),
    Call("git", "git_log", {"limit": 2}, "greet by name"),
    Call("ci", "ci_test", {"command": "python3 -m unittest -v"}, "1 passed"),
    Call("commands", "run_command", {"command": "git --version"}, "git version"),
    Call("filesystem", "edit_file", EDIT, "greeting.py"),
    Call("git", "git_status", {}, "greeting.py"),
    Call("diagnostics", "get_diagnostics", {}, "coretools"),
)

REFUSED = Call("filesystem", "read_file", {"path": "../outside"}, "root")
