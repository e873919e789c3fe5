"""Shell lines: when one needs a shell, what is read from it, limits and verdicts (docs/specs/shell-lines.md)."""

import random
import re
import shutil
import subprocess
import sys

import pytest

from coretools.command_policy.line_verdict import judge_command, judge_line
from coretools.command_policy.shell_lines.grammar import MAX_BYTES
from coretools.command_policy.shell_lines.parse import needs_shell, parse_line
from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.operator_policy import CommandPolicy, CommandRule, Verdict
from coretools.errors import BadSetting, CommandSyntax, DeniedCommand
from coretools.shell_words import split

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

PLAIN = """
git status
git show HEAD~1 stash@{0} a#b
find . -name '*.py' -exec cat {} +
echo "a b" 'c $d' e\\ f \\$g
make CC=gcc -j4
echo "it's" '"' a=b
"""
SHELL = """
cd src
a=b make
ls | cat
ls > f
ls; ls
ls &
echo $HOME
echo "$HOME"
echo `date`
ls *.py
ls a?
ls [ab]
ls ~
make CC=~/x
ls {a,b}
ls {1..3}
ls # comment
# comment
! ls
time ls
if x
export A=b
(ls)
echo 'open
"""


def outcome(line: str) -> str:
    """Return why a line is refused, or the first opaque piece."""
    try:
        found = parse_line(line)
    except CommandSyntax as error:
        return str(error)
    return found.opaque[0].reason if found.opaque else ""


def argvs(line: str) -> list[list[str | None]]:
    return [[word.text for word in command.words] for command in parse_line(line).commands]


def test_only_lines_with_shell_syntax_need_a_shell() -> None:
    """shell-1: a line that means the same to a program starts as argv."""
    assert [line for line in PLAIN.strip().split("\n") if needs_shell(line)] == []
    assert [line for line in SHELL.strip().split("\n") if not needs_shell(line)] == []
    assert needs_shell("ls\nls")
    assert not needs_shell("ls \\\n -l\n")


def test_a_plain_line_loads_no_grammar() -> None:
    """shell-1: the grammar is loaded by the first line that needs it."""
    code = (
        "import sys; from coretools.command_policy.line_verdict import judge_line;"
        "from coretools.command_policy.shell_lines.parse import needs_shell; needs_shell('git status');"
        "assert not any(name.startswith('tree_sitter') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_bash
def test_a_line_that_needs_no_shell_has_the_same_words_in_bash() -> None:
    """shell-1: by effect, on random lines."""
    chance = random.Random(5)
    pieces = [
        "a",
        "=",
        "#",
        "~",
        "!",
        "{",
        "}",
        "'b c'",
        '"d"',
        "\\ ",
        "\\$",
        " ",
        "  ",
        "\t",
        ",",
        ".",
        "^",
        "%",
        "@",
        ":",
        "]",
    ]
    lines = ["x " + "".join(chance.choices(pieces, k=7)) for _ in range(600)]
    plain = [line for line in lines if not needs_shell(line)]
    assert len(plain) > 100
    script = "".join(f"printf '%s\\0' {line}\nprintf '\\1'\n" for line in plain)
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, check=True, env={"LANG": "C.UTF-8"})
    found = [part.split("\0")[:-1] for part in done.stdout.decode().split("\1")[:-1]]
    assert found == [split(line) for line in plain]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b | c && d || e; f & g", [["a", "b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ('for x in y; do a "$x"; done; while b; do c; done', [["a", None], ["b"], ["c"]]),
        ("f() { a; }; (b); { c; }; ! d", [["a"], ["b"], ["c"], ["d"]]),
        ('a "$(b $(c))" <(d) `e`', [["a", None, None, None], ["b", None], ["c"], ["d"], ["e"]]),
        ("a > f b 2>&1 < g", [["a", "b"]]),
        ("cat <<E | a > f\n$(b)\nE\nc", [["cat"], ["a"], ["b"], ["c"]]),
        ("a 'b c' \"d\" e\\ f $'g\\n' {h,i}j '' *.k", [["a", "b c", "d", "e f", "g\n", "hj", "ij", "", None]]),
        ("git commit -m \"$(cat <<'E'\na `b`\n\nc\nE\n)\"", [["git", "commit", "-m", "a `b`\n\nc"], ["cat"]]),
        ("command -p a b; time a; command -v a", [["a", "b"], ["a"], ["command", "-v", "a"]]),
    ],
)
def test_all_simple_commands_are_found(line: str, expected: list[list[str | None]]) -> None:
    """shell-4: wherever they stand, with their words as bash passes them on."""
    assert argvs(line) == expected
    assert parse_line(line).opaque == ()


@needs_bash
def test_literal_words_are_those_of_bash() -> None:
    """shell-5: a word that counts as known is what the program gets, on random words."""
    chance = random.Random(6)
    pieces = [
        "a",
        "'b c'",
        '"d e"',
        '"\\$\\`\\""',
        "\\ ",
        "\\'",
        "$'f\\t\\x41\\'\\101'",
        "{a,b}",
        "{c,}",
        "{}",
        "{",
        "}",
        ",",
        '"{x,y}"',
    ]
    pieces += ["=", "#", "''", "\\\\", "\\{", "..", "$", '"$"', "!", "^", "é", "'\n'", '"\\\n"']
    lines = ["x " + "".join(chance.choices(pieces, k=chance.randint(1, 6))) for _ in range(800)]
    known = [(line, parse_line(line)) for line in lines]
    known = [(line, found) for line, found in known if not found.opaque and len(found.commands) == 1]
    known = [(line, found) for line, found in known if found.commands[0].is_literal]
    assert len(known) > 200
    script = "".join(f"printf '%s\\0' {line}\nprintf '\\1'\n" for line, _ in known)
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, check=True, env={"LANG": "C.UTF-8"})
    words = [part.split("\0")[:-1] for part in done.stdout.decode().split("\1")[:-1]]
    assert words == [[word.text for word in found.commands[0].words] for _, found in known]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("a | " + "b " * MAX_BYTES, "65536"),
        ("x" * 1_000_000 + ";", "65536"),
        ("(" * 10_000, "deep|can't read|more than"),
        ("( " * 100 + "a" + " )" * 100, "more than 60 groups"),
        ("echo " + "$(echo " * 100 + ")" * 100, "more than 60 groups"),
        ("a;" * 11_000, "more than 20000 parts"),
        ("a;" * 1_001, "more than 1000 commands"),
        ("a|" * 1_501, "more than 1500 pipes"),
        ("a;\0", "control character"),
        ("a;\x01", "control character"),
        ("a;\x7f", "control character"),
        ("a;\ud800", "no valid Unicode"),
    ],
    ids=[
        "bytes",
        "megabyte",
        "open",
        "groups",
        "substitutions",
        "parts",
        "commands",
        "pipes",
        "nul",
        "one",
        "delete",
        "surrogate",
    ],
)
def test_a_line_beyond_a_limit_is_refused_by_name(line: str, named: str) -> None:
    """shell-3: the error names the limit, or the grammar gives up and the whole line is opaque."""
    assert any(part in outcome(line) for part in named.split("|"))


@pytest.mark.parametrize("piece", [")", "<", "((a", "a=(", "a|", "`", '"$(', "${", "<<E\n", "\xff", "'"])
def test_hostile_repetitions_end_in_time(piece: str) -> None:
    """shell-3: the parser is stopped; nothing but the stated error comes out."""
    line = piece * (MAX_BYTES // 4 // len(piece.encode()))
    assert re.search("more than|can't read|^$", outcome(line))


def test_random_input_raises_only_the_stated_error() -> None:
    """shell-3: whatever the text."""
    chance = random.Random(7)
    alphabet = [
        *"ab \t\n'\"\\`$(){}[]<>|&;#~*?!=+-,.:^%@/0",
        "$(",
        "<<",
        "[[",
        "do",
        "if",
        "\u00e9",
        "\u2028",
        "\x0b",
        "\x01",
        "\ud800",
    ]
    for _ in range(2000):
        line = "".join(chance.choices(alphabet, k=chance.randint(0, 30)))
        try:
            judge_line(POLICIES["deny"], line)
        except CommandSyntax:
            continue


@pytest.mark.parametrize("line", ["echo 'abc", 'echo "$(ls"', "cat <<E\nabc", "if a; then", "a |"])
def test_a_line_that_is_not_finished_is_opaque(line: str) -> None:
    """shell-6: as a whole."""
    assert [piece.text for piece in parse_line(line).opaque] == [line]


def test_brace_words_beyond_the_limit_are_unknown() -> None:
    """shell-3: 256 words from the braces of one word."""
    assert [len(argv) for argv in argvs("a {b,c}{d,e}")] == [5]
    assert argvs("a " + "{b,c}" * 9) == [["a", None]]


DENIES = CommandRule(program="denied", verdict="deny")
POLICIES = {opaque: ProgramPolicy(CommandPolicy(opaque=opaque, rule=(DENIES,))) for opaque in ("allow", "ask", "deny")}


@pytest.mark.parametrize(
    ("line", "allow", "ask", "deny"),
    [
        ("ls | cat", "allow", "allow", "allow"),
        ("ls; eval x", "allow", "ask", "deny"),
        ("ls && denied x", "deny", "deny", "deny"),
        ("$x a", "allow", "ask", "deny"),
        ("$x denied", "deny", "deny", "deny"),
        ("env $x denied", "deny", "deny", "deny"),
        ("python3 -c 'x' | cat", "allow", "ask", "deny"),
        ("FOO=1 ls", "allow", "ask", "deny"),
        ("export FOO=1; ls", "allow", "ask", "deny"),
        ("FOO=1; ls $FOO", "allow", "allow", "allow"),
        ("set -a; FOO=1; ls", "allow", "ask", "deny"),
        ("GIT_PAGER=x; git log", "allow", "ask", "deny"),
        ("LC_ALL=C ls; TZ=UTC ls", "allow", "allow", "allow"),
        ("ls $x *.c", "allow", "allow", "allow"),
        ("tar xf $x", "allow", "ask", "deny"),
        ("> f", "allow", "allow", "allow"),
        ("cd x; exit 1", "allow", "allow", "allow"),
    ],
)
def test_the_strictest_piece_decides(line: str, allow: Verdict, ask: Verdict, deny: Verdict) -> None:
    """shell-7, shell-8: opaque pieces have the verdict of `opaque`; a rule that refuses a program always counts."""
    assert [judge_line(POLICIES[name], line).verdict for name in ("allow", "ask", "deny")] == [allow, ask, deny]


def test_without_rules_every_line_that_can_be_read_is_allowed() -> None:
    """shell-8: the confinement is the wall; `opaque` is as `default` unless the operator sets it."""
    policy = ProgramPolicy(CommandPolicy())
    assert {judge_line(policy, line).verdict for line in ("eval x", "$x", "a <<E", "ls | sh")} == {"allow"}


def test_an_allow_list_holds_for_every_program_of_a_line() -> None:
    """shell-7: builtins that start nothing need no rule; a word that is unknown fits only `**`."""
    rules = [CommandRule(program=name, verdict="allow") for name in ("ls", "cat")]
    rules.append(CommandRule(program="git", arguments=("status", "*"), verdict="allow"))
    policy = ProgramPolicy(CommandPolicy(default="deny", rule=tuple(rules)))
    verdicts = {
        line: judge_line(policy, line).verdict
        for line in (
            "cd x && ls | cat > y",
            "ls | grep x",
            "ls; echo x",
            "git status x; ls",
            "git status $x",
            "ls $x",
            "f() { ls; }; f",
            "ls() { cat; }; ls",
            "[ -f x ] && ls",
        )
    }
    assert [line for line, verdict in verdicts.items() if verdict == "allow"] == [
        "cd x && ls | cat > y",
        "git status x; ls",
        "ls $x",
        "ls() { cat; }; ls",
        "[ -f x ] && ls",
    ]


def test_a_variable_that_commands_inherit_counts_as_exported() -> None:
    """shell-7: the shell passes it on without `export`."""
    assert judge_line(POLICIES["deny"], "HOME=/x; git log").verdict == "allow"
    assert judge_line(POLICIES["deny"], "HOME=/x; git log", inherited={"HOME"}).verdict == "deny"


def test_the_decision_names_each_program_and_piece() -> None:
    """shell-9: with its place in the line."""
    line = "é; denied a | eval b"
    found = judge_line(POLICIES["ask"], line)
    assert [(program.argv, program.verdict) for program in found.programs] == [
        (("é",), "ask"),
        (("denied", "a"), "deny"),
        (("eval", "b"), "allow"),
    ]
    assert [command.start for command in found.parsed.commands] == [0, 4, 15]
    assert [(piece.text, piece.start) for piece in found.parsed.opaque] == [("eval b", 15)]
    assert [step.argv for step in found.opaque] == [("eval b",)]
    assert found.decision.decisive.rule == 1


def test_a_refusal_names_the_piece() -> None:
    """shell-7: with the reason, and what would work; a person may confirm what is `ask`."""
    policy = POLICIES["ask"]
    opaque = judge_line(policy, "ls | eval b").decision
    with pytest.raises(DeniedCommand, match=r"'eval b': needs confirmation: eval runs its words as code"):
        policy.require(opaque)
    with pytest.raises(DeniedCommand, match=r"denied a: is denied: rule 1 says deny for denied"):
        policy.require(judge_line(policy, "denied a; ls").decision, is_confirmed=True)
    policy.require(opaque, is_confirmed=True)


def test_variables_of_the_caller_count_as_those_of_the_line() -> None:
    """shell-14: one that may make a program start another is opaque, whether a shell runs or not."""
    policy = POLICIES["deny"]
    for name, verdict in {"CI": "allow", "LD_PRELOAD": "deny", "PATH": "deny", "BASH_ENV": "deny"}.items():
        for line in ("", "ls | cat"):
            found = judge_command(policy, ["ls"], line=line, variables={name: "1"}, inherited=())
            assert found.verdict == verdict, (name, line)
    values = {"CI": "a[$(denied)]", "LC_ALL": "ja_JP.SJIS", "LINES": "24"}
    for name, verdict in {"CI": "deny", "LC_ALL": "deny", "LINES": "allow"}.items():
        for line in (f"(({name}))", f"[[ ${name} -gt 3 ]]", f"echo ${{x:{name}}}"):
            found = judge_command(policy, ["ls"], line=line, variables={name: values[name]}, inherited=())
            assert found.verdict == verdict, (name, line)


def test_rules_are_tested_by_their_own_examples() -> None:
    """shell-12: a rule that fails is an error at start that names it."""
    rule = CommandRule(
        program="git",
        arguments=("push", "**"),
        verdict="deny",
        match=("git push", "cd x && env git push -f", ("git", "-C", "x", "push")),
        not_match=("git status", "echo git push"),
    )
    ProgramPolicy(CommandPolicy(rule=(rule,)))
    wrong = CommandRule(program="rm", verdict="deny", match=("ls", "rm x; ls"), not_match=("ls | rm", "'"))
    with pytest.raises(BadSetting) as caught:
        ProgramPolicy(CommandPolicy(rule=(rule, wrong)), source="/etc/policy.toml")
    assert str(caught.value).startswith("/etc/policy.toml: commands.rule #2.match: 'ls' is not matched by the rule;")
    assert "#2.not_match: 'ls | rm' is matched by the rule" in str(caught.value)
