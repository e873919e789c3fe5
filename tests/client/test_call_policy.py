"""The operator's policy for calls (docs/specs/pipelines.md)."""

import os
from pathlib import Path
from typing import Any

import pytest

from coretools.client.approval.call_policy import CallPolicy, CallRule, find_policy
from coretools.errors import BadSetting

RULES = (
    CallRule(server="files", tool="write_file", verdict="allow", arguments={"path": "out/**"}),
    CallRule(server="files", tool="write_file", verdict="deny", reason="only beneath out/"),
    CallRule(server="files", tool="*", verdict="deny", arguments={"path": "*.ssh*"}),
    CallRule(server="files", tool="read_*", verdict="allow"),
    CallRule(server="files", tool="move", verdict="allow", arguments={"paths": "a/*", "force": "false"}),
    CallRule(server="shop", tool="*", verdict="ask"),
)


@pytest.mark.parametrize(
    ("server", "tool", "arguments", "verdict"),
    [
        ("files", "write_file", {"path": "out/a/b"}, "allow"),
        ("files", "write_file", {"path": "out/../.bashrc"}, "deny"),
        ("files", "write_file", {"path": "out\\..\\x"}, "deny"),
        ("files", "write_file", {"path": ["out/a", "etc/b"]}, "deny"),
        ("files", "write_file", {"path": {"out/a": 1}}, "deny"),
        ("files", "write_file", {"path": []}, "deny"),
        ("files", "write_file", {"path": None}, "deny"),
        ("files", "write_file", {}, "deny"),
        ("files", "WRITE_FILE", {"path": "x"}, "deny"),
        ("files", "read_file", {"path": "a"}, "allow"),
        ("files", "read_file", {"path": "/home/me/.SSH/id"}, "deny"),
        ("files", "read_file", {"path": [{"deep": ["/x/.ssh/id"]}]}, "deny"),
        ("files", "read_file\n", {}, "allow"),
        ("Files", "read_file", {}, "deny"),
        ("files", "Read_file", {}, "deny"),
        ("files", "move", {"paths": ["a/b", "a/c"], "force": False}, "allow"),
        ("files", "move", {"paths": ["a/b", "a/b/c"], "force": False}, "deny"),
        ("files", "move", {"paths": "a/b", "force": True}, "deny"),
        ("SHOP", "buy", {}, "ask"),
        ("other", "x", {}, "deny"),
    ],
)
def test_the_first_rule_that_matches_decides(server: str, tool: str, arguments: dict[str, Any], verdict: str) -> None:
    """pipelines-1, pipelines-2: narrowly where it allows, widely where it refuses."""
    found = CallPolicy("policy", "deny", RULES).verdict(server, tool, arguments)
    assert found.verdict == verdict
    assert "policy" in found.because


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('default = "allow"', "default: 'allow' is not valid; choose 'ask' or 'deny'"),
        ('[[rule]]\nserver = "a"\ntool = "b"', "rule #1.verdict: is missing"),
        ('[[rule]]\nserver = "a"\nverdict = "allow"', "rule #1.tool: is missing"),
        ('[[rule]]\nserver = "a"\ntool = "b"\nverdict = "allow"\nargument = {}', "did you mean"),
        ("[[rule]", "not valid TOML"),
        ("#" * (1024 * 1024 + 1), "larger than 1048576 bytes"),
    ],
)
def test_a_policy_file_with_a_mistake_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """pipelines-1: an error, never a policy with other rules."""
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(BadSetting, match=message.replace("[", r"\[")):
        find_policy(str(tmp_path / "policy.toml"), "/", {})


def test_a_project_has_no_policy_of_its_own(tmp_path: Path) -> None:
    """pipelines-3: neither by itself, nor named, nor by a link, unless the project is trusted."""
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".config" / "coretools").mkdir(parents=True)
    (project / ".git").mkdir(parents=True)
    text = '[[rule]]\nserver = "*"\ntool = "*"\nverdict = "allow"\n'
    inside = project / "mcp-policy.toml"
    inside.write_text(text)
    environment = {"HOME": str(home)}
    assert find_policy(None, str(project), environment) is None
    (home / "link.toml").symlink_to(inside)
    for named in (inside, home / "link.toml"):
        with pytest.raises(BadSetting, match="belongs to the project"):
            find_policy(str(named), str(project), environment)
    inside.chmod(0o666)  # as some runners of continuous integration check out
    found = find_policy(str(inside), str(project), environment, trusts_project=True)
    assert found is not None
    assert found.verdict("a", "b", {}).verdict == "allow"


def test_a_policy_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    """pipelines-3: in the user's configuration or elsewhere."""
    home = tmp_path / "home"
    usual = home / ".config" / "coretools" / "mcp-policy.toml"
    usual.parent.mkdir(parents=True)
    usual.write_text('default = "ask"\n')
    environment = {"HOME": str(home)}
    found = find_policy(None, str(tmp_path), environment)
    assert found is not None
    assert found.default == "ask"
    usual.chmod(0o666)
    with pytest.raises(BadSetting, match="others may write"):
        find_policy(None, str(tmp_path), environment)
    usual.chmod(0o600)
    usual.parent.chmod(0o777)
    with pytest.raises(BadSetting, match="others may change its directory"):
        find_policy(str(usual), str(tmp_path), environment)
    usual.parent.chmod(0o700)
    os.rename(usual, tmp_path / "elsewhere")
    os.mkfifo(usual)
    with pytest.raises(BadSetting, match="not a regular file"):
        find_policy(None, str(tmp_path), environment)
