"""The MCP Inspector's command line against the workstation server (docs/specs/interoperability.md)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.checkout import TREE
from tests.clients.calls import CALLS, COMMAND, REFUSED, WORKSTATION, Call
from tests.clients.conftest import NODE_FOLDER

SECONDS = 100
PATIENT = ("--connect-timeout", "60000")
"""In milliseconds; by default the Inspector gives a server 15 s to start, which a busy machine may exceed."""
ERAS = ("legacy", "modern")
REFUSED_EXIT_CODE = 5
"""Exit code of the Inspector for a tool error."""

ONE_OF_EACH_SET = tuple({call.tool_set: call for call in reversed(CALLS)}.values())
"""The Inspector starts a server for each call, so it makes only some of the calls."""


def inspect(node: Path, root: Path, era: str, *words: str) -> subprocess.CompletedProcess[str]:
    """One run of `inspector --cli`; its files lie beside the clone."""
    inspector = NODE_FOLDER / "node_modules" / ".bin" / "inspector"
    line = [node, inspector, "--cli", COMMAND, *WORKSTATION, str(root), "--protocol-era", era, "--format", "json"]
    return subprocess.run(
        [*line, *PATIENT, *words],
        cwd=TREE,
        env={**os.environ, "HOME": str(root.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_lists_the_tools_without_warnings(node: Path, clone: Path, era: str) -> None:
    """interoperability-1, interoperability-2: `--strict` fails on a schema that other clients would reject."""
    run = inspect(node, clone, era, "--strict", "--method", "tools/list")
    assert run.returncode == 0, run.stderr
    assert "portability" not in run.stderr
    assert {call.name for call in CALLS} <= {tool["name"] for tool in json.loads(run.stdout)["result"]["tools"]}


@pytest.mark.parametrize("call", ONE_OF_EACH_SET, ids=lambda call: call.name)
@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_calls_each_tool_set(node: Path, clone: Path, era: str, call: Call) -> None:
    """interoperability-1: over stdio, in both eras."""
    run = inspect(node, clone, era, *tool_call(call))
    assert run.returncode == 0, run.stderr
    assert call.expected in json.loads(run.stdout)["result"]["content"][0]["text"]


def test_the_inspector_shows_a_refusal(node: Path, clone: Path) -> None:
    """interoperability-3."""
    run = inspect(node, clone, "legacy", *tool_call(REFUSED))
    assert run.returncode == REFUSED_EXIT_CODE
    result = json.loads(run.stdout)["result"]
    assert result["isError"]
    assert REFUSED.expected in result["content"][0]["text"]


def tool_call(call: Call) -> list[str]:
    arguments = json.dumps(call.arguments)
    return ["--method", "tools/call", "--tool-name", call.name, "--tool-args-json", arguments]
