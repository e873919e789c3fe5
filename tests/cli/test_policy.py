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
    assert "a person confirms each call of delete_file, git_*" in checked
    assert "note: trusts_answers lets an agent confirm" in checked


def test_check_lists_remotes_and_what_repositories_may_run(rules: Path) -> None:
    """git-remotes-1, git-user-11: before anything is reached or run."""
    remote = '[[remote]]\nurl = "https://example.com/acme/**"\npush = true\nask = ["push"]\n'
    grants = f'[roots."{rules.parent}".git]\nhooks = ["pre-commit"]\nsigning = true\n'
    rules.write_text(remote + grants)
    checked = coretools("policy", "check", str(rules), cwd=rules.parent).stdout
    assert "the git tools fetch from and push to https://example.com/acme/**; each push needs confirmation\n" in checked
    assert f"git runs in {rules.parent}: pre-commit, signatures\n" in checked


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
    """policy-18, network-15: 78 and the server's message for an error; notes for rules that only look safe."""
    good = coretools("policy", "check", str(rules), cwd=rules.parent)
    assert (good.returncode, good.stderr) == (0, "")
    assert "4 rules, default deny, opaque deny (as default), network deny" in good.stdout
    assert "note: rule 4 allows env, but not the code or programs that its words may start" in good.stdout
    network = '[confinement]\nnetwork = ["pypi", "a.example"]\n'
    rules.write_text(f'[[commands.rule]]\nprogram = "rm"\nverdict = "deny"\n{network}')
    listed = coretools("policy", "check", str(rules), cwd=rules.parent).stdout
    assert "note: rules refuse programs, but code" in listed
    assert "in tier full commands reach a.example, files.pythonhosted.org, pypi.org; " in listed
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
    assert "can be changed by tools or commands" in done.stderr


LINE_RULES = """
[commands]
opaque = "ask"
[[commands.rule]]
program = "rm"
verdict = "deny"
match = ["rm x", "cd x && sudo rm y"]
not_match = ["echo rm", ["ls", "rm"]]
"""


def test_explain_lists_every_program_of_a_line(tmp_path: Path) -> None:
    """shell-9: with its rule and verdict, and each opaque piece; 77 unless the line would run."""
    path = tmp_path / "policy.toml"
    path.write_text(LINE_RULES)
    path.chmod(0o644)
    explain = ("policy", "explain", "--policy", str(path))
    done = coretools(*explain, "--", "cd src && make | tee log; env rm -r x", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (77, "")
    assert done.stdout.startswith("deny: 'cd src && make | tee log; env rm -r x'\nbecause rule 1 says deny for rm")
    for part in (
        "allow  cd src: a builtin",
        "ask    make: make runs code",
        "allow  tee log",
        "deny   env rm -r x: rule 1",
    ):
        assert part in done.stdout
    asked = coretools(*explain, "--json", "--", "ls > f && eval x", cwd=tmp_path)
    facts = json.loads(asked.stdout)
    assert (asked.returncode, facts["verdict"], facts["line"]) == (77, "ask", "ls > f && eval x")
    assert [(one["argv"], one["verdict"], one["rule"], one["position"]) for one in facts["programs"]] == [
        (["ls"], "allow", None, 0),
        (["eval", "x"], "allow", None, 10),
    ]
    assert [(one["text"], one["verdict"]) for one in facts["opaque"]] == [("eval x", "ask")]
    assert coretools(*explain, "--", "ls | head -n 3", cwd=tmp_path).returncode == 0
    assert coretools(*explain, "--", "ls -l", cwd=tmp_path).stdout.startswith("allow: ls -l\n")
    refused = coretools(*explain, "--", "ls; \x01", cwd=tmp_path)
    assert (refused.returncode, "control character" in refused.stderr) == (64, True)


def test_a_rule_that_fails_its_own_test_is_an_error(tmp_path: Path) -> None:
    """shell-12: `check` and a server say which rule, which command, and that either can be changed."""
    path = tmp_path / "policy.toml"
    path.write_text(LINE_RULES.replace('"echo rm"', '"ls | rm z"'))
    path.chmod(0o644)
    expected = f"{path}: commands.rule #1.not_match: 'ls | rm z' is matched by the rule; change the rule or its test"
    root = tmp_path / "root"
    root.mkdir()
    for words in (("policy", "check", str(path)), ("call", "--policy", str(path), "list_runs")):
        done = coretools(*words, cwd=root)
        assert (done.returncode, expected in done.stderr) == (78, True), done.stderr
