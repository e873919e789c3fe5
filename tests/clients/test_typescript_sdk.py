"""The TypeScript SDK's clients against the workstation server (docs/specs/interoperability.md)."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import TREE
from tests.clients.calls import CALLS, COMMAND, REFUSED, WORKSTATION
from tests.clients.conftest import NODE_FOLDER

SECONDS = 100


def drive(node: Path, client: str, root: Path) -> dict[str, Any]:
    """The output of `drive.js`: era, tools, results in the order of the calls."""
    calls = [call.plain() for call in (*CALLS, REFUSED)]
    plan = {"command": COMMAND, "args": [*WORKSTATION, str(root)], "calls": calls}
    run = subprocess.run(
        [node, NODE_FOLDER / "drive.js", client, json.dumps(plan)],
        cwd=TREE,
        env={**os.environ, "HOME": str(root.parent)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == 0, run.stderr
    message: dict[str, Any] = json.loads(run.stdout)
    return message


@pytest.mark.parametrize(
    ("client", "era"), [("sdk", "legacy"), ("client-legacy", "legacy"), ("client-modern", "modern")]
)
def test_a_typescript_client_lists_the_tools_and_calls_each_set(node: Path, clone: Path, client: str, era: str) -> None:
    """interoperability-1, interoperability-3: both generations, and both eras of the newer one."""
    message = drive(node, client, clone)
    assert message["era"] == era
    assert {call.name for call in CALLS} <= {tool["name"] for tool in message["tools"]}
    *results, refusal = message["results"]
    for call, result in zip(CALLS, results, strict=True):
        assert not result.get("isError"), result
        assert call.expected in result["content"][0]["text"]
    assert refusal["isError"]
    assert REFUSED.expected in refusal["content"][0]["text"]
