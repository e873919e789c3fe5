"""No answer of the server is longer than what a model reads, whatever it is asked for."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coretools.config.limits import Limits
from coretools.tools.answer_budget import LINE_CHARACTERS
from tests.protocol.peer import Peer, peer

MOST = Limits().answer_bytes
LINE = LINE_CHARACTERS + 200
"""A cut line, and the remark on what is left out of it."""

FAILING = """
import sys
for number in range(500):
    print("FAILED tests/test_a.py::test_%d - " % number + "why " * 600)
sys.exit(1)
"""


def git(top: Path, *words: str, stdin: str = "") -> None:
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    subprocess.run(["git", "-C", top, *author, *words], check=True, capture_output=True, input=stdin.encode())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which everything is large: files, lines, names, messages, changes."""
    top = tmp_path_factory.mktemp("large")
    git(top, "init", "-q", "-b", "main")
    (top / "long.txt").write_text("".join(f"line {number} of a long file\n" for number in range(60_000)))
    (top / "empty.txt").write_text("\n" * 100_000)
    (top / "minified.js").write_text("f(1);" * 100_000 + "\n" + "g();\n" * 50)
    (top / "wide.txt").write_text("\u6f22" * 30_000 + "\n" + "\u6f22\n" * 30_000)
    git(top, "add", ".")
    for number in range(60):
        git(top, "commit", "-q", "--allow-empty", "-m", f"{number} " + "subject " * 400)
    branches = (f"refs/heads/a-branch-with-a-rather-long-name-to-fill-the-answer/{number}" for number in range(300))
    git(top, "update-ref", "--stdin", stdin="".join(f"create {branch} HEAD\n" for branch in branches))
    (top / "long.txt").write_text("".join(f"line {number} of another file\n" for number in range(60_000)))
    (top / "many").mkdir()
    for number in range(1_500):
        (top / "many" / f"a-file-with-a-rather-long-name-to-fill-the-answer-{number}").write_text("f(1);\n")
    git(top, "add", "many")
    (top / "control").mkdir()
    for number in range(150):
        (top / "control" / f"{number}{chr(1) * 200}").write_text("f(1);\n")
        (top / "control" / f"{number}{chr(0x6F22) * 80}").write_text("f(2);\n")
    cell = {"cell_type": "code", "source": "f(1)\n" * 50, "outputs": []}
    (top / "long.ipynb").write_text(json.dumps({"cells": [cell] * 2_000, "nbformat": 4}))
    (top / "failing.py").write_text(FAILING)
    return top


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "long.txt"}),
    ("read_file", {"path": "long.txt", "offset": 2, "line_numbers": True}),
    ("read_file", {"path": "long.txt", "tail": 50_000}),
    ("read_file", {"path": "empty.txt", "offset": 1, "limit": 50_000, "line_numbers": True}),
    ("read_file", {"path": "empty.txt", "line_numbers": True}),
    ("read_file", {"path": "minified.js"}),
    ("read_file", {"path": "minified.js", "offset": 2}),
    ("read_file", {"path": "wide.txt"}),
    ("read_file", {"path": "wide.txt", "head": 40_000}),
    ("read_file", {"path": "long.ipynb"}),
    ("read_file", {"path": "long.ipynb", "offset": 9, "line_numbers": True}),
    ("read_files", {"paths": ["long.txt", "minified.js", "wide.txt", "empty.txt"]}),
    ("read_files", {"paths": ["many/*", "control/*", "*.txt"]}),
    ("directory_tree", {"limit": 2_000}),
    ("directory_tree", {"path": "control"}),
    ("list_directory", {"path": "many"}),
    ("search_text", {"pattern": "line", "limit": 500}),
    ("search_text", {"pattern": r"f\(1\)", "context": 3, "limit": 500}),
    ("search_text", {"pattern": r"f\(1\)", "path": "control", "limit": 500}),
    ("search_text", {"pattern": r"f\(2\)", "path": "control", "limit": 500}),
    ("search_files", {"glob": "*"}),
    ("search_files", {"glob": "*\x01", "path": "control"}),
    ("git_status", {}),
    ("git_log", {"limit": 200}),
    ("git_log", {"limit": 200, "stat": True, "body": True}),
    ("git_diff", {}),
    ("git_diff", {"base": "HEAD", "word": True}),
    ("git_diff", {"base": "HEAD", "names": True}),
    ("git_diff", {"staged": True, "stat": True}),
    ("git_branches", {}),
    ("run_command", {"command": "cat long.txt"}),
    ("run_command", {"command": "cat minified.js wide.txt"}),
    ("run_command", {"command": "python3 failing.py"}),
    ("run_command", {"command": "python3 failing.py", "wait_seconds": 60}),
    ("ci_test", {"command": "python3 failing.py"}),
    ("ci_build", {"command": "python3 failing.py"}),
    ("run_command", {"command": "x" * 50_000}),
    ("ci_build", {"command": "true " + "x" * 50_000}),
    ("ci_test", {"command": "python3 failing.py " + "x" * 50_000}),
    ("get_diagnostics", {}),
]


@pytest.fixture(scope="module")
def client(large: Path) -> Any:
    with peer(large) as client:
        client.start_session()
        yield client


@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_answer_fits_a_model(client: Peer, tool: str, arguments: dict[str, Any]) -> None:
    """answers-1, answers-2: as text and as structured content; the remark on the rest included."""
    result = client.call(tool, **arguments)
    text = "\n".join(block["text"] for block in result["content"])
    assert 0 < len(text.encode()) <= MOST
    assert max(map(len, text.split("\n"))) <= LINE
    assert len(json.dumps(result.get("structuredContent", {}), separators=(",", ":"), ensure_ascii=False)) <= MOST


def test_a_matching_line_fits_an_answer(client: Peer, large: Path) -> None:
    """answers-1, answers-2: wait_run quotes the line that matched."""
    (large / "long_line.py").write_text("print('here' + 'x' * 19_000, flush=True); input()")
    started = client.call("run_command", command="python3 long_line.py", wait_seconds=0, stdin="")
    run = started["content"][0]["text"].removeprefix("[").split()[0]
    text = client.call("wait_run", run=run, pattern="here", seconds=60)["content"][0]["text"]
    assert ", matched: herexx" in text
    assert len(text.encode()) <= MOST
    assert max(map(len, text.split("\n"))) <= LINE


@pytest.mark.parametrize(
    ("tool", "arguments", "way"),
    [
        ("read_file", {"path": "long.txt"}, "offset="),
        ("read_file", {"path": "minified.js"}, "offset="),
        ("list_directory", {"path": "many"}, "search_files"),
        ("search_text", {"pattern": "line", "limit": 500}, "narrow pattern, path or glob"),
        ("search_files", {"glob": "*"}, "narrow glob or path"),
        ("git_status", {}, "more entries; run_command with git status --short PATH"),
        ("git_log", {"limit": 200}, "go on with skip="),
        ("git_diff", {}, "with git diff, then read_run"),
        ("git_diff", {"base": "HEAD"}, "name paths"),
        ("git_branches", {}, "pattern="),
        ("run_command", {"command": "cat long.txt"}, "read_run run="),
    ],
)
def test_an_answer_names_the_way_to_the_rest(client: Peer, tool: str, arguments: dict[str, Any], way: str) -> None:
    """answers-3."""
    result = client.call(tool, **arguments)
    assert way in result["content"][0]["text"]
