"""How rules match, which one decides, and the text of a refusal (docs/specs/policy.md)."""

import fnmatch
import random

import pytest

from coretools.command_policy.rules import is_allowed, is_refused
from coretools.command_policy.subcommand import Subcommand
from coretools.command_policy.unwrap import MAX_WORDS
from coretools.command_policy.verdict import ProgramPolicy, rule_lines
from coretools.config.operator_policy import CommandPolicy, CommandRule, Verdict
from coretools.config.policy_schema import parse_policy
from coretools.errors import DeniedCommand, InvalidArguments


def rule(verdict: Verdict, program: str, *arguments: str, reason: str = "") -> CommandRule:
    return CommandRule(program=program, verdict=verdict, arguments=arguments or None, reason=reason)


def policy(*rules: CommandRule, default: Verdict = "allow", opaque: Verdict | None = None) -> ProgramPolicy:
    return ProgramPolicy(CommandPolicy(default=default, opaque=opaque, rule=rules), source="/etc/policy.toml")


def test_without_rules_everything_is_allowed() -> None:
    """policy-1: the kernel, not the policy, restricts what a command can reach."""
    assert ProgramPolicy(CommandPolicy()).decide(["sh", "-c", "x"]).verdict == "allow"
    assert policy(default="ask").decide(["ls"]).verdict == "ask"


@pytest.mark.parametrize("seed", range(20))
def test_the_strictest_rule_decides_in_whatever_order(seed: int) -> None:
    """policy-2: no rule hides a later one."""
    rules = [rule("allow", "git"), rule("ask", "git", "push"), rule("deny", "git", "push", "--force")]
    random.Random(seed).shuffle(rules)
    asked = policy(*rules, default="deny")
    assert asked.decide(["git", "status"]).verdict == "allow"
    assert asked.decide(["git", "push"]).verdict == "ask"
    assert asked.decide(["git", "push", "--force"]).verdict == "deny"


def test_a_rule_that_allows_exactly_one_argv_confirms_in_advance() -> None:
    """policy-2: it overrides `ask`, never `deny`; one with wildcards does not."""
    asking = rule("ask", "git", "push")
    exact = rule("allow", "git", "push", "origin")
    assert policy(asking, exact).decide(["git", "push", "origin"]).verdict == "allow"
    assert policy(asking, exact).decide(["git", "push", "other"]).verdict == "ask"
    assert policy(asking, rule("allow", "git", "push", "**")).decide(["git", "push", "origin"]).verdict == "ask"
    assert policy(rule("deny", "git", "push"), exact).decide(["git", "push", "origin"]).verdict == "deny"


@pytest.mark.parametrize(
    ("program", "refused", "others"),
    [
        (
            "rm",
            ["rm", "/bin/rm", "./rm", "a/../rm", "RM", "rm.EXE", "rm2", "rm-2.1", "rm.basic"],
            ["rmdir", "arm", "rm-sh", "r"],
        ),
        ("python3", ["python3", "python3.12", "/opt/python3.9"], ["python", "python2", "pythonw"]),
        ("python*", ["python", "python3.12", "pythonw"], ["ipython"]),
        ("/usr/bin/curl", ["curl", "/usr/bin/curl", "/bin/curl", "/usr//bin/../bin/curl", "./curl"], ["/opt/curl"]),
    ],
)
def test_a_rule_that_refuses_covers_every_spelling_of_the_program(
    program: str, refused: list[str], others: list[str]
) -> None:
    """policy-3: by any path, in any case, with a version; an absolute path covers that path and the bare name."""
    denying = policy(rule("deny", program), opaque="allow")
    assert {word: denying.decide([word]).verdict for word in refused} == dict.fromkeys(refused, "deny")
    assert {word: denying.decide([word]).verdict for word in others} == dict.fromkeys(others, "allow")


@pytest.mark.parametrize(
    ("patterns", "words", "is_met"),
    [
        (["push"], "push", True),
        (["push"], "-C x --no-pager push origin", True),
        (["push"], "PUSH", True),
        (["push"], "status", False),
        (["push", "--force"], "--force push", True),
        (["push", "--force"], "push --forc", True),
        (["push", "--force"], "push -- --force", True),
        (["push", "--force"], "push --force=x", True),
        (["push", "--force"], "push --follow", False),
        (["--exec=rm*"], "--exec rm", True),
        (["--exec=rm*"], "--ex=rmdir", True),
        (["--exec=rm*"], "--exec ls", False),
        (["-r"], "-fr x", True),
        (["-r"], "-Rf x", False),
        (["-r"], "--recursive", False),
        (["-Ifoo"], "-I foo", True),
        (["-Ifoo"], "-Ifoo", True),
        (["*/etc/*"], "--file=/etc/passwd", True),
        ([], "", False),
        (["**"], "", True),
    ],
)
def test_patterns_that_refuse_match_any_word_in_any_order(patterns: list[str], words: str, is_met: bool) -> None:
    """policy-4: abbreviated, joined, with `=` or the next word, after `--`."""
    met = is_refused(tuple(patterns), Subcommand(("x", *words.split()), ""))
    assert met == (is_met or (not patterns and not words))


@pytest.mark.parametrize(
    ("patterns", "words", "is_met"),
    [
        (["status"], ["status"], True),
        (["status"], ["status", "-s"], False),
        (["status"], ["STATUS"], False),
        (["status"], [], False),
        (["status", "**"], ["status"], True),
        (["status", "**"], ["status", "-s", "x"], True),
        (["status", "**"], ["-c", "x", "status"], False),
        (["*.py"], ["a.py"], True),
        (["*.py"], ["-c a.py"], False),
        (["*.py"], ["../a.py"], False),
        (["src/**.py"], ["src/a/b.py"], True),
        (["src/*/b?.py"], ["src/a/b1.py"], True),
        (["src/*/b.py"], ["src/a/c/b.py"], False),
        (["--x=*"], ["--x=1"], True),
        (["a\\*"], ["a*"], True),
        (["a\\*"], ["ab"], False),
        ([""], [""], True),
        ([], [], True),
        ([], ["x"], False),
    ],
)
def test_patterns_that_allow_match_word_by_word(patterns: list[str], words: list[str], is_met: bool) -> None:
    """policy-6: in order, with case, none left over; a wildcard stops at `/` and never begins an option."""
    assert is_allowed(tuple(patterns), Subcommand(("x", *words), "")) == is_met
    assert not is_allowed(tuple(patterns), Subcommand(("x", *words), "", has_unseen_words=True)) or patterns[-1:] == [
        "**"
    ]


def test_an_allowing_rule_covers_exactly_a_name_or_a_path() -> None:
    """policy-5: `./git` is not git, and a name does not cover a path."""
    by_name, by_path = policy(rule("allow", "git"), default="deny"), policy(rule("allow", "/opt/x/git"), default="deny")
    assert by_name.decide(["git"]).verdict == "allow"
    assert by_path.decide(["/opt/x/git"]).verdict == "allow"
    for program in ("./git", "/tmp/git", "/opt/x/git", "GIT", "git2", "git.exe", "/opt/x/../x/git", "/opt/x/git/"):
        assert by_name.decide([program]).verdict == "deny"
        assert program == "/opt/x/git" or by_path.decide([program]).verdict == "deny"
    assert by_path.decide(["git"]).verdict == "deny"


def test_code_is_allowed_by_a_rule_that_names_its_argument() -> None:
    """policy-9: the script or the option, not `**` and not the program alone."""
    argv = ["python", "-m", "pytest", "-q"]
    for arguments, verdict in [
        (("-m", "pytest", "**"), "allow"),
        (("-m", "pytest", "-q"), "allow"),
        (("**",), "deny"),
        ((), "deny"),
    ]:
        rules = (rule("allow", "python", *arguments),)
        assert policy(*rules, default="deny").decide(argv).verdict == verdict
        assert policy(*rules, opaque="deny").decide(argv).verdict == verdict
    assert policy(rule("allow", "python"), default="deny", opaque="allow").decide(argv).verdict == "allow"
    assert policy(rule("allow", "python"), default="deny", opaque="ask").decide(argv).verdict == "ask"


def test_unseen_words_never_allow_more() -> None:
    """policy-10: words that xargs adds may match a rule that refuses, but never one that allows."""
    refusing = policy(rule("deny", "git", "push"), opaque="allow")
    assert refusing.decide(["xargs", "git"]).verdict == "deny"
    assert refusing.decide(["git"]).verdict == "allow"
    allowing = policy(rule("allow", "xargs"), rule("allow", "grep", "x"), rule("allow", "wc", "**"), default="deny")
    assert allowing.decide(["xargs", "grep", "x"]).verdict == "deny"
    assert allowing.decide(["xargs", "wc", "-l"]).verdict == "allow"


def test_what_is_wider_or_deeper_than_any_command_is_denied() -> None:
    """policy-11: unwrapping is bounded, and a command beyond the bound is denied."""
    refusing = policy(rule("deny", "rm"), opaque="allow")
    for argv in (
        ["nice"] * 500 + ["rm"],
        ["env", "-S"] * 500 + ["rm"],
        ["find", *["-exec", "true", ";"] * 500, "-exec", "rm", ";"],
        ["true", *["x"] * MAX_WORDS],
        ["env", "--odd", *[f"w{number}" for number in range(500)], "rm"],
        ["env", *[f"A{number}=1" for number in range(500)], "rm"],
        ["strace", *[f"w{number}" for number in range(MAX_WORDS - 2)], "rm"],
    ):
        assert refusing.decide(argv).verdict == "deny"


@pytest.mark.parametrize("argv", [[], [""], ["", "rm"]])
def test_a_command_without_a_program_is_invalid(argv: list[str]) -> None:
    """policy-11: refused as an invalid argument, whatever the rules."""
    with pytest.raises(InvalidArguments, match="name a program"):
        policy().decide(argv)


def test_a_refusal_names_the_rule_and_the_remedy() -> None:
    """policy-12: the operator's own reason for a rule; the lines to add for a default."""
    denying = policy(rule("deny", "rm", reason="deleted by hand here"))
    with pytest.raises(
        DeniedCommand, match=r"rm x: is denied: rule 1 .*deleted by hand here.*/etc/policy.toml.*or a reload"
    ) as no:
        denying.require(denying.decide(["env", "rm", "x"]))
    assert no.value.facts == {"verdict": "deny", "rule": 1, "argv": ["rm", "x"]}
    lines = r"needs confirmation(.|\n)*program = \"git\"\narguments = \[\"push\"\]"
    asking, opaque = policy(default="ask"), policy(opaque="deny")
    with pytest.raises(DeniedCommand, match=lines) as asked:
        asking.require(asking.decide(["git", "push"]))
    assert (asked.value.kind, asked.value.exit_code, asked.value.facts["verdict"]) == ("denied-command", 77, "ask")
    with pytest.raises(DeniedCommand, match="absolute path"):
        opaque.require(opaque.decide(["./x"]))
    policy(default="ask", opaque="allow").decide(["git"])


WORDS = ["git", "-c", "a.b=c", "*", "?", "a\\b", '"', "'", "é", "\n", "\x7f", "\U0001f600", "", "--x=y", "**", "/bin/x"]


def test_the_lines_of_a_refusal_allow_exactly_what_was_refused() -> None:
    """policy-12: written to a file and read back, they allow this step and no other argv."""
    for seed in range(60):
        pick = random.Random(seed)
        argv = [pick.choice(["git", "sh", "/opt/x", "find", "Ünï"]), *pick.choices(WORDS, k=pick.randint(0, 4))]
        text = ""
        for _ in range(20):
            commands = parse_policy(f'[commands]\ndefault = "ask"\n{text}'.encode(), "policy.toml", {}).commands
            decision = ProgramPolicy(commands).decide(argv)
            if decision.verdict == "allow":
                break
            text += rule_lines(decision.decisive) + "\n"
        assert decision.verdict == "allow", seed
        for other in ([*argv, "more"], [argv[0], "other", *argv[1:]], [f"./{argv[0]}", *argv[1:]]):
            assert ProgramPolicy(commands).decide(other).verdict == "ask", seed


def test_a_wide_pattern_matches_as_globs_do() -> None:
    """policy-4: the optimisation for long words changes no result."""
    for seed in range(40):
        pick = random.Random(seed)
        for _ in range(200):
            pattern = "x" + "".join(pick.choices("ab*?/", k=pick.randint(0, 6)))
            word = "x" + "".join(pick.choices("ab/", k=pick.randint(0, 7)))
            expected = fnmatch.fnmatchcase(word, pattern)
            assert is_refused((pattern,), Subcommand(("p", word), "")) == expected, (pattern, word)


def test_long_words_and_many_stars_are_answered() -> None:
    """policy-11: a word of 128 KiB against stars that a backtracking engine would never finish."""
    stars = rule("deny", "x", "*a*a*a*a*a*a*b")
    assert policy(stars).decide(["x", "a" * 131_072]).verdict == "allow"
    allowing = policy(rule("allow", "x", "*a*a*a*a*a*a*b"), default="deny")
    assert allowing.decide(["x", "a" * 4_000]).verdict == "deny"
    assert allowing.decide(["sed", "p" + "\n" * 100_000 + "x"]).verdict == "deny"
    assert allowing.decide(["a" + "1" * 131_072]).verdict == "deny"
