"""Pagers and editors that git opens on a terminal do not get past the operator's rules, judged by effect."""

import shutil
import subprocess
from pathlib import Path

import pytest

from coretools.command_policy.verdict import safe_variables
from coretools.config.operator_policy import CommandPolicy
from tests.protocol.peer import Peer, peer

POLICY = """
[commands]
opaque = "deny"
[[commands.rule]]
program = "touch"
verdict = "deny"
[[commands.rule]]
program = "less"
arguments = ["notes"]
verdict = "allow"
[environment]
pass = ["GIT_SEQUENCE_EDITOR"]
"""

OPENED = {
    "git log": "!touch marker\n\nq",
    "git -p show": "!touch marker\n\nq",
    "git commit --allow-empty": ":!touch marker\n\n:q!\n",
    "git rebase -i --root": ":!touch marker\n\n:q!\n",
    "git branch --edit-description": ":!touch marker\n\n:q!\n",
    "less notes": "!touch marker\n\nq",
}
"""Commands that open a pager or an editor, and the input that starts the denied program from it."""

JUDGED = (
    *("env GIT_PAGER=less git log", "env PAGER=less git log", "env EDITOR=vi git commit", "env LESSSECURE= git log"),
    *("env -u GIT_PAGER git log", "env --unset=GIT_EDITOR git commit", "env -uLESSSECURE less notes"),
    *(
        "env -i git log",
        "env - git log",
        "env -0iu A git log",
        "nice env --ignore-env git log",
        "busybox env -i git log",
    ),
    *(
        "git -c core.pager=less log",
        "git -c pager.log=less log",
        "git -c core.editor=vi commit",
        "git -ccore.pager=x log",
    ),
    *("git --config-env=pager.log=X log", "git --config-env core.pager=X log", "git -c sequence.editor=vi rebase -i x"),
    *("git log --help", "git --help log", "git help log", "git -C . commit --help", "git config --edit", "less other"),
    *("git grep -O note", "git rebase --edit-todo", "xargs -I{} env -u {} git log", "xargs env -u GIT_PAGER git log"),
)
"""Ways to configure another one."""


def on_terminal(client: Peer, command: str, typed: str) -> str:
    """Run a command on a terminal, type the input, and return its final text."""
    started = client.call("run_command", command=command, terminal="60x10", stdin="", wait_seconds=0)
    run = started["_meta"]["coretools/facts"].get("run")
    assert run is not None, started
    client.call("wait_run", run=run, pattern="note|[Cc]ommit|branch", seconds=20)
    written = client.call("write_run", run=run, text=typed, pattern="not available", seconds=10)
    waited = client.call("wait_run", run=run, pattern="not available", seconds=10)
    client.call("stop_run", run=run)
    return "\n".join(str(answer["content"][0]["text"]) for answer in (written, waited))


@pytest.mark.skipif(not shutil.which("less") or not shutil.which("vi"), reason="needs less and vi")
def test_no_pager_and_no_editor_of_git_starts_a_denied_program(tmp_path: Path) -> None:
    """policy-21: git opens no pager and no editor where code is refused; an argument that would change that counts as
    code."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "notes").write_text("a note\n" * 100)
    identity = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    for key, value in (("user.name", "a"), ("user.email", "a@b")):
        subprocess.run(["git", "config", key, value], cwd=root, check=True)
    subprocess.run(["git", "add", "notes"], cwd=root, check=True)
    subprocess.run([*identity, "commit", "-q", "-m", "note\n" * 100], cwd=root, check=True)
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with peer(root, "--policy", policy, environment={"GIT_SEQUENCE_EDITOR": "true"}) as client:
        client.start_session()
        names = "GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR LESSSECURE"
        text = client.call("run_command", command=f"printenv {names}")["content"][0]["text"]
        assert text.splitlines() == ["cat", ":", "true", "1"]  # the operator's variables win
        for command, typed in OPENED.items():
            answer = on_terminal(client, command, typed)
            assert not (root / "marker").exists(), answer
            assert " exit code " in answer or "Command not available" in answer, answer
        for command in JUDGED:
            answer = client.call("run_command", command=command)
            assert answer["isError"], command
            assert "denied-command" in str(answer), command
        assert "exit code 0" in on_terminal(client, "git commit --amend --allow-empty", "")  # with the previous message
        assert client.call("run_command", command="env -u LANG git log --format=%an")["content"][0]["text"] == "a"


def test_pagers_and_editors_work_where_code_is_allowed() -> None:
    """policy-21: such a policy does not restrict code."""
    for default, opaque, expected in [
        *(("allow", None, False), ("deny", "allow", False), ("allow", "deny", True)),
        *(("allow", "ask", True), ("ask", None, True), ("deny", None, True)),
    ]:
        assert bool(safe_variables(CommandPolicy(default=default, opaque=opaque))) is expected, (default, opaque)


@pytest.mark.skipif(not shutil.which("vim"), reason="needs vim")
def test_an_editor_without_a_terminal_ends_at_its_deadline_and_is_explained(tmp_path: Path) -> None:
    """shell-17: vim waits for keys even if its input is /dev/null; the result says what gives a terminal."""
    with peer(tmp_path) as client:
        client.start_session()
        result = client.call("run_command", command="vim notes", timeout_seconds=5)
    text = result["content"][0]["text"]
    assert 'it expects a terminal: give run_command terminal="80x24"' in text, text
    assert result["_meta"]["coretools/facts"]["timed_out"] or result["_meta"]["coretools/facts"]["exit_code"]
