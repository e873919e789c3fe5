"""Policy, `never`, and how a decision is undone, on the command line (docs/specs/pipelines.md)."""

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from coretools.client.approval.decisions import Decisions
from tests.cli.terminal import terminal
from tests.cli.test_mcp import STARTS, configured, typed
from tests.client.peers import misbehaving
from tests.variables import variables

Captured = pytest.CaptureFixture[str]
CALL = ("call", "a", "echo", "text=hello")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    of_others = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME"))
    with variables(HOME=str(tmp_path / "home"), **of_others), chdir(tmp_path / "project"):
        configured(tmp_path / "home", {"a": misbehaving("ok")})
        yield tmp_path / "home"


def policy(home: Path, text: str) -> None:
    (home / ".config" / "coretools" / "mcp-policy.toml").write_text(text)


def test_a_policy_allows_and_refuses_calls(home: Path, capsys: Captured) -> None:
    """pipelines-4: it names file and rule, holds against --yes, and starts nothing that is not trusted."""
    policy(home, '[[rule]]\nserver = "a"\ntool = "echo"\nverdict = "allow"\narguments = { text = "h*" }\n')
    assert typed(*CALL) == 0
    assert capsys.readouterr().out == "hello\n"
    assert typed("call", "a", "echo", "text=bye", "--yes") == 77
    assert f"'a: echo' is refused by policy: no rule of {home}/.config/coretools/mcp-policy.toml" in (
        capsys.readouterr().err
    )
    (home / "strict.toml").write_text(
        '[[rule]]\nserver = "*"\ntool = "E*"\nverdict = "deny"\nreason = "\x1b[2Jno"\n'.replace("\x1b", "\\u001b")
    )
    assert typed(*CALL, "--yes", "--policy", str(home / "strict.toml"), "--output", "json") == 77
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["kind"] == "refused-by-policy"
    assert f"rule 1 (server '*', tool 'E*') of {home}/strict.toml: \\x1b[2Jno" in printed.err
    configured(home.parent, {"theirs": misbehaving("ok")}, "project/.mcp.json")
    policy(home, '[[rule]]\nserver = "*"\ntool = "*"\nverdict = "allow"\n')
    assert typed("call", "theirs", "echo", "text=x") == 77
    assert "is not trusted yet" in capsys.readouterr().err
    policy(home, 'default = "ask"\n')
    assert typed(*CALL) == 77
    assert typed(*CALL, "--yes") == 0


def test_never_is_remembered_until_it_is_revoked(home: Path, capsys: Captured) -> None:
    """pipelines-5, pipelines-6: whatever the policy or the line says."""
    with terminal(*STARTS, "mcp", *CALL, cwd=home, environment={"HOME": str(home)}) as person:
        person.wait_for("Call it?")
        person.type("never\n")
        assert person.end() == 77
    policy(home, '[[rule]]\nserver = "*"\ntool = "*"\nverdict = "allow"\n')
    assert typed(*CALL, "--yes") == 77
    assert "`coretools mcp approvals revoke 'a: echo'` undoes that" in capsys.readouterr().err
    assert typed("approvals") == 0
    assert "tool refused  a: echo" in capsys.readouterr().out
    assert typed("approvals", "revoke", "a: ech") == 66
    assert "did you mean 'a: echo'?" in capsys.readouterr().err
    assert typed("approvals", "revoke", "a: echo") == 0
    assert typed(*CALL) == 0
    assert typed("approvals") == 0
    assert "nothing is remembered" in capsys.readouterr().err


def test_approvals_and_trust_are_revoked(home: Path, capsys: Captured) -> None:
    """pipelines-6: by ID, by server, and of servers of a project."""
    Decisions({"HOME": str(home)}).add("approved_tools", {"0123456789abcdef": "a: echo", "fedcba9876543210": "a: x"})
    assert typed("approvals", "list", "--output", "json") == 0
    made = json.loads(capsys.readouterr().out)
    assert [(one["decision"], one["about"]) for one in made] == [
        ("tool approved", "a: echo"),
        ("tool approved", "a: x"),
    ]
    assert typed("approvals", "revoke", made[0]["id"]) == 0
    assert typed("approvals", "revoke", "a") == 0
    assert capsys.readouterr().err == "coretools: revoked: a: echo\ncoretools: revoked: a: x\n"
    configured(home.parent, {"theirs": misbehaving("ok")}, "project/.mcp.json")
    assert typed("trust", "theirs", "--yes") == 0
    assert typed("ping", "theirs", "--unconfined", "theirs") == 0
    assert typed("trust", "theirs", "--revoke") == 0
    assert typed("ping", "theirs") == 77
    for words in (("trust", "theirs", "--revoke"), ("approvals", "revoke", "theirs")):
        assert typed(*words) == 66
    for words in (("trust", "--revoke"), ("approvals", "revoke"), ("approvals", "forget")):
        assert typed(*words) == 64
