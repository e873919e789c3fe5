"""Completion of `coretools mcp` and `coretools run` (docs/specs/completion.md)."""

import json
from contextlib import chdir
from pathlib import Path

import pytest

from coretools.cli.mcp.completion import complete_line
from coretools.client.approval.decisions import Decisions
from tests.variables import variables


def found(capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    assert complete_line(line.split(" ")) == 0
    return [text.partition("\t")[0] for text in capsys.readouterr().out.splitlines()]


def test_servers_tools_actions_and_files_are_completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """completion-9: from files; no server is started for it."""
    started = tmp_path / "started"
    entry = {"command": "touch", "args": [str(started)]}
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"web": entry, "work": entry, "e\x1b[2J": entry}}))
    (project / "other.json").write_text(json.dumps({"mcpServers": {"elsewhere": entry}}))
    (project / "steps").mkdir()
    (project / "steps" / "a.yaml").write_text("")
    of_others = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "CODEX_HOME"))
    with variables(HOME=str(tmp_path), **of_others), chdir(project):
        approved = {"1": "web: echo", "2": "web: erase", "3": "work: other"}
        Decisions({"HOME": str(tmp_path)}).add("approved_tools", approved)
        for line, expected in (
            ("mcp resta", ["restart"]),
            ("mcp call w", ["web", "work"]),
            ("mcp call e", ["e\\x1b[2J"]),
            ("mcp call web e", ["echo", "erase"]),
            ("mcp call web echo ", []),
            ("mcp call none ", []),
            ("mcp tools work ", ["other"]),
            ("mcp approve web echo ", ["erase"]),
            ("mcp ping web w", ["work"]),
            ("mcp --yes ping --lines 5 web w", ["work"]),
            ("mcp call --config other.json ", ["elsewhere"]),
            ("mcp call --config=other.json ", ["elsewhere"]),
            ("mcp call --config missing.json ", []),
            ("mcp approvals ", ["revoke"]),
            ("mcp complete web r", ["resource"]),
            ("mcp list --output nd", ["ndjson"]),
            ("mcp --output gi", ["github"]),
            ("mcp --log-level err", ["error"]),
            ("mcp call --acc", ["--accept-defaults"]),
            ("mcp call --input ", []),
            ("mcp list w", []),
            ("mcp nothing ", []),
            ("run st", ["steps/"]),
            ("run steps/", ["steps/a.yaml"]),
            ("run --replay ot", ["other.json"]),
            ("mcp run none/", []),
            ("run --rep", ["--report", "--replay"]),
        ):
            assert found(capsys, line) == expected, line
    assert not started.exists()
