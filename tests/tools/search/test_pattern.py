"""The pattern language of search_text, which has the same meaning in both engines (docs/specs/search.md)."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from coretools.errors import InvalidArguments
from coretools.tools.search.pattern import CHARACTERS, Pattern, parse_pattern

ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep")


def parsed(text: str, *, literal: bool = False, ignore_case: bool = False) -> Pattern:
    return parse_pattern(text, literal=literal, ignore_case=ignore_case)


def test_a_pattern_means_what_it_means_in_ripgrep() -> None:
    """search-2."""
    for pattern, line, matches in (
        ("a.c", "abc", True),
        ("a.c", "a\u2028c", True),
        ("^a", "ba", False),
        ("a$", "ab", False),
        ("a|b", "b", True),
        ("(ab)+$", "xabab", True),
        ("(?:ab){2}", "abab", True),
        ("(?P<name>a)(?<other>b)", "ab", True),
        ("a{2,3}$", "aa", True),
        ("a{2,}", "a", False),
        ("a+?b", "aab", True),
        ("struct {", "struct { int a; }", True),
        ("a{b}", "a{b}", True),
        ("]", "]", True),
        (r"\bword\b", "a word!", True),
        (r"\bword\b", "swords", False),
        (r"\Bor", "word", True),
        (r"\d+", "٣", True),
        (r"\w", "é", True),
        (r"\W", "é", False),
        (r"\s", "\u00a0", True),
        (r"\S", "\t", False),
        (r"\p{Lu}", "É", True),
        (r"\PL", "é", False),
        (r"\p{Greek}", "λ", True),
        (r"[a-c\d_-]+$", "b5_-", True),
        ("[^a-c]", "abc", False),
        ("[]a]", "]", True),
        ("[^]a]", "]", False),
        ("[[]", "[", True),
        (r"[\]\\]", "\\", True),
        ("[[:alpha:]]", "é", False),
        ("[[:alpha:]]", "e", True),
        (r"[\W]", "!", True),
        (r"\x41\u0042\u{1F600}\U00000043", "AB\U0001f600C", True),
        (r"\.\/\-\é", "./-é", True),
        (r"\t", "\t", True),
        ("(?i)straße", "STRAßE", True),
        ("x(?i:y)", "xY", True),
        ("x(?i:y)", "XY", False),
        ("(?-i)a", "A", False),
        ("()a", "a", True),
        ("a|", "b", True),
    ):
        found = parsed(pattern)
        assert (found.compiled.search(line) is not None) is matches, (pattern, line, matches)
        assert (found.strict.search(line) is not None) is matches, (pattern, line, matches)


def test_what_one_of_the_engines_does_not_have_is_refused_by_name() -> None:
    """search-2: before either engine gets it, so the error is the same with both."""
    for pattern, says in (
        ("", "empty"),
        ("a" * (CHARACTERS + 1), "the most is"),
        ("(?=a)", "look-around"),
        ("(?!a)", "look-around"),
        ("(?<=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "back-reference"),
        (r"(?P<n>a)(?P=n)", "back-reference"),
        (r"\k<n>", "back-reference"),
        (r"\g<1>", "back-reference"),
        ("(?>a)", "kind of group"),
        ("(?(1)a)", "kind of group"),
        ("(?#note)", "kind of group"),
        ("(?R)", "flags"),
        ("(?x)a b", "flags"),
        ("a(?i)b", "in the middle"),
        ("(a", "not closed"),
        ("a)", "not opened"),
        ("[a", "not closed"),
        ("[]", "not closed"),
        ("[z-a]", "range"),
        (r"[a-\d]", "range"),
        ("[a&&b]", "operations on sets"),
        ("[a--b]", "range"),
        ("[[:nope:]]", "not known"),
        ("*a", "nothing to repeat"),
        ("a|*", "nothing to repeat"),
        ("^*", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("a{3}{2}", "nothing to repeat"),
        ("a{3,2}", "below its start"),
        ("a{1001}", "repeats more than"),
        ("((a{20}){20}){20}", "repeats more than"),
        ("(" * 101 + "a" + ")" * 101, "groups in one another"),
        (r"a\nb", "line by line"),
        ("a\nb", "line by line"),
        (r"[\n]", "line by line"),
        ("a\0", "NUL"),
        ("\ud800", "lone surrogates"),
        (r"\y", "not known"),
        (r"\Aa", "not known; ^"),
        (r"\<a", "not known; "),
        (r"\p{Nope}", "pattern: "),
        (r"\p", "property"),
        (r"\x4", "by number"),
        (r"\U00110000", "by number"),
        ("a\\", "backslash"),
    ):
        with pytest.raises(InvalidArguments) as caught:
            parsed(pattern)
        assert says in str(caught.value), (pattern, says)


@pytest.mark.parametrize("text", ["a.c", "(", "[a-", "\\d", "$^", "a{2}", "#é &~-", "*"])
def test_a_literal_is_taken_as_it_stands(text: str) -> None:
    """search-4."""
    found = parsed(text, literal=True)
    assert found.compiled.fullmatch(text)
    assert parsed(text.upper(), literal=True, ignore_case=True).compiled.search(f"x{text.lower()}x")


def test_nothing_matches_across_lines() -> None:
    """search-3."""
    for pattern in (r"a\s+b", "a[^x]b", r"a\Wb", r"a\Db", "(?s)a.b", r"a[\W]b", r"a\p{Cc}b", "a[\\x01-\\x7f]b"):
        assert parsed(pattern).compiled.search("a\nb") is None, pattern


def test_bytes_that_are_no_utf8_match_nothing() -> None:
    """search-13."""
    text = b"a\xffb".decode("utf-8", "surrogateescape")
    for pattern in ("a.b", "a[^x]b", r"a\Sb", r"a\Wb", r"a[\W]b", r"a\PLb", "a[\\x01-\\x{ffff}]b"):
        assert parsed(pattern).strict.search(text) is None, pattern


ATOMS = [
    *"abAikKsé _-1./&~{}]\u0130\u0131\u017fß",
    *(r"\.", r"\*", r"\[", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\b", r"\B", r"\pL", r"\p{Lu}", r"\PL"),
    *(".", "^", "$", r"\x{130}", r"\r", "[ab]", "[^ab]", "[a-z]", "[^a-z]", r"[\d_]", r"[\W]", r"[^\w]", r"[\s-]"),
    *(
        "[]a]",
        "[^]a]",
        "[[:alpha:]]",
        "[^[:space:]]",
        "[a-]",
        r"[^\p{Lu}]",
        r"[\pL\d]",
        "[é-\u017f]",
        "()",
        "[.*+?$^{}|]",
    ),
]


def any_pattern(dice: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(dice.randrange(1, 4)):
        part = dice.choice(ATOMS)
        if depth < 2 and dice.random() < 0.25:
            part = dice.choice(["(", "(?:", "(?i:", "(?P<n>", "(?-i:", "(?s:"]) + any_pattern(dice, depth + 1) + ")"
        if dice.random() < 0.35:
            part += dice.choice(["*", "+", "?", "{2}", "{1,3}", "{0}", "{2,}", "*?", "+?", "??"])
        parts.append(part)
    return "".join(parts) + (f"|{any_pattern(dice, depth + 1)}" if dice.random() < 0.15 else "")


def any_line(dice: random.Random) -> bytes:
    line = "".join(
        dice.choices(
            "abAiI\u0130\u0131kK\u212as\u017féÉ \t_-1٣\r[](){}.*\\^$&~/ß\u2028\x85\U0001f600", k=dice.randrange(9)
        )
    )
    if dice.random() < 0.7:
        return line.encode()
    return line.encode() + dice.choice([b"\xff", b"\xe9", b"\xc3", b"\xed\xa0"]) + dice.choice([b"", b"a"])


@ripgrep
def test_what_matches_here_matches_in_ripgrep(tmp_path: Path) -> None:
    """search-1: the pattern for ripgrep matches at least the same lines of any text."""
    for seed in range(40):
        dice = random.Random(seed)
        data = b"".join(any_line(dice) + dice.choice([b"\n", b"\r\n"]) for _ in range(400))
        (tmp_path / "lines").write_bytes(data)
        lines = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n").split("\n")[:-1]
        for _ in range(10):
            text = any_pattern(dice)
            try:
                pattern = parsed(text, ignore_case=dice.random() < 0.3)
            except InvalidArguments:
                continue
            command = [
                "rg",
                "--no-config",
                "--text",
                "--line-number",
                "--max-columns=1",
                "--color=never",
                "--encoding=none",
            ]
            run = subprocess.run(
                [*command, "--no-heading", f"--regexp={pattern.ripgrep}", "--", "lines"],
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            assert run.returncode in (0, 1), (text, pattern.ripgrep, run.stderr)
            theirs = {int(line.split(b":")[0]) for line in run.stdout.split(b"\n") if line.split(b":")[0].isdigit()}
            ours = {number for number, line in enumerate(lines, 1) if pattern.strict.search(line)}
            assert ours <= theirs, (text, pattern.ripgrep, [lines[number - 1] for number in sorted(ours - theirs)])
