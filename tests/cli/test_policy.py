"""`coretools policy`, as an operator runs it (docs/specs/policy.md)."""

import json
from pathlib import Path

import pytest

from tests.cli.test_commands import coretools

RULES = """
[commands]
default = "deny"
[[commands.rule]]
program = "git"
arguments = ["status", "**"]
verdict = "allow"
[[commands.rule]]
program = "rm"
verdict = "deny"
reason = "deleted by hand here"
[[commands.rule]]
program = "git"
arguments = ["push"]
verdict = "ask"
[[commands.rule]]
program = "env"
verdict = "allow"
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(RULES)
    path.chmod(0o644)
    return path


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["git", "status", "-s", "--", "x"], 0, ["allow: git status -s -- x", "rule 1 says allow for git status **"]),
        (["env", "-S", "rm -rf", "x"], 77, ["deny: env", "rule 2 says deny", "by hand here", "through env -S -> env"]),
        (["git", "-C", "sub", "push"], 77, ["ask: git -C sub push", "rule 3", 'arguments = ["-C", "sub", "push"]']),
        (["sh", "-c", "true"], 77, ["deny: sh", "no rule matches; this is the default", 'program = "sh"']),
    ],
    ids=["allow", "deny", "ask", "default"],
)
def test_explain_names_the_deciding_rule_and_its_reason(
    rules: Path, words: list[str], code: int, expected: list[str]
) -> None:
    """policy-17: verdict first, then the reason, every step, and the lines that would allow the command."""
    done = coretools("policy", "explain", "--policy", str(rules), "--", *words, cwd=rules.parent)
    assert (done.returncode, done.stderr) == (code, "")
    assert [part for part in expected if part not in done.stdout] == []
    assert f"policy: {rules}" in done.stdout


def test_explain_describes_ask(rules: Path) -> None:
    """policy-17: who asks, who refuses, and whether the argument may confirm; `check` names the tools that ask."""
    words = ("policy", "explain", "--policy", str(rules), "--", "git", "push")
    expected = coretools(*words, cwd=rules.parent).stdout
    assert "run_command asks a person first" in expected
    assert "does not count" in expected
    rules.write_text(f'[tools]\nask = ["delete_file", "git_*"]\ntrusts_answers = true\n{RULES}')
    expected = coretools(*words, cwd=rules.parent).stdout
    assert "counts, because [tools] trusts_answers is true" in expected
    checked = coretools("policy", "check", str(rules), cwd=rules.parent).stdout
    assert "a person is asked before delete_file, git_*" in checked
    assert "note: trusts_answers lets an agent confirm" in checked


def test_check_lists_the_catalog(rules: Path) -> None:
    """policy-18, policy-19: what is left, what is turned on, and what only a start can verify."""
    rules.write_text('[catalog]\nsets = ["git"]\nwithout = ["git_add"]\npromote_read_only = true\n')
    checked = coretools("policy", "check", str(rules), cwd=rules.parent).stdout
    assert "offered: of the sets git; without git_add\n" in checked
    assert "turned on: promote_read_only\n" in checked
    assert "note: whether commands with these names exist is checked when a server starts" in checked


def test_explain_answers_programs_in_json(rules: Path) -> None:
    """policy-17: one object, the steps in order, one of them decisive."""
    done = coretools(
        "policy", "explain", "--json", "--", "env", "rm", "x", cwd=rules.parent, CORETOOLS_POLICY=str(rules)
    )
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["verdict"], answer["rule"], answer["policy"]) == (77, "deny", 2, str(rules))
    assert [(step["argv"], step["through"], step["decides"]) for step in answer["steps"]] == [
        (["env", "rm", "x"], [], False),
        (["rm", "x"], ["env"], True),
    ]
    assert answer["allow_with"] is None


def test_explain_without_a_command_is_an_invalid_argument(rules: Path) -> None:
    """policy-17: there is nothing to judge."""
    done = coretools("policy", "explain", "--policy", str(rules), cwd=rules.parent)
    assert (done.returncode, done.stdout) == (64, "")
    assert "name a program" in done.stderr


def test_check_reports_errors_and_what_a_file_does_not_do(rules: Path) -> None:
    """policy-18: 78 and the server's message for an error; notes for rules that only look safe."""
    good = coretools("policy", "check", str(rules), cwd=rules.parent)
    assert (good.returncode, good.stderr) == (0, "")
    assert "4 rules, default deny, opaque deny (as default), network deny" in good.stdout
    assert "note: rule 4 allows env, but not the code or programs that its words may start" in good.stdout
    rules.write_text('[[commands.rule]]\nprogram = "rm"\nverdict = "deny"\n')
    assert "note: rules refuse programs, but code" in coretools("policy", "check", str(rules), cwd=rules.parent).stdout
    beneath = coretools("policy", "check", "--root", str(rules.parent), str(rules), cwd=rules.parent)
    assert (beneath.returncode, beneath.stdout) == (78, "")
    assert "move it out" in beneath.stderr
    rules.write_text("[commands]\ndefalt = 1\n")
    bad = coretools("policy", "check", str(rules), cwd=rules.parent)
    assert bad.returncode == 78
    assert "did you mean commands.default?" in bad.stderr


def test_a_server_does_not_start_with_an_invalid_file(rules: Path) -> None:
    """policy-15: the entry points read the same file by the same rules."""
    done = coretools("tools", "--root", str(rules.parent), "--policy", str(rules), cwd=rules.parent)
    assert done.returncode == 78
    assert "lies beneath" in done.stderr
