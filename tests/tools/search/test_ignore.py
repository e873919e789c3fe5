"""Ignore files: what a search leaves out (docs/specs/search.md). test_engines shows that ripgrep agrees."""

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from coretools.tools.search.ignore import KINDS, IgnoreRules


def rules(files: dict[str, str], start: str = ".") -> IgnoreRules:
    def read_rules(directory: str) -> tuple[str | None, ...]:
        prefix = "" if directory == "." else f"{directory}/"
        return tuple(files.get(prefix + kind) for kind in KINDS)

    return IgnoreRules(start, read_rules)


def test_the_rules_of_one_file() -> None:
    """search-10."""
    for text, path, ignored in (
        ("*.o", "a/b.o", True),
        ("*.o", "a/b.c", False),
        ("/a", "a", True),
        ("/a", "b/a", False),
        ("a/b", "a/b", True),
        ("a/b", "c/a/b", False),
        ("**/b", "c/b", True),
        ("a/**", "a/b/c", True),
        ("a/**/b", "a/b", True),
        ("build/", "build", False),
        ("*.o\n!keep.o", "keep.o", False),
        ("!keep.o\n*.o", "keep.o", True),
        ("# comment", "# comment", False),
        ("\\#name", "#name", True),
        ("\\!name", "!name", True),
        ("name  ", "name", True),
        ("name\\ ", "name ", True),
        ("name\r\nother\r", "name", True),
        ("\ufeffname", "name", True),
        ("a[0-9]", "a5", True),
        ("a[!0-9]", "a5", False),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("*.{a,b}", "x.b", True),
        ("", "a", False),
        ("/", "a", False),
        ("{a,b}" * 10, "a", False),
        ("a\\", "a\\", False),
        ("a\\  ", "a ", True),
        ("a\\/b", "a/b", True),
        ("a//b", "a/b", False),
        ("[a", "[a", False),
        ("[\\!a]", "!", True),
        ("[\\!a]", "b", False),
        ("[[:digit:]_]", "5", True),
        ("[[:digits:]]", "5", False),
        ("x" * 995 + "*", "x" * 995, True),
        ("x" * 1000 + "*", "x" * 1000, False),
    ):
        assert rules({".gitignore": text}).covers(path, is_directory=False) is ignored, (text, path, ignored)


def test_a_rule_with_a_slash_at_its_end_speaks_of_directories_and_so_of_what_is_in_them() -> None:
    """search-10."""
    found = rules({".gitignore": "build/"})
    assert found.covers("build", is_directory=True)
    assert found.covers_any("build/a/b.c")
    assert not found.covers_any("src/b.c")


@pytest.mark.parametrize(
    ("files", "ignored"),
    [
        pytest.param({".gitignore": "*.log", "a/.gitignore": "!x.log"}, False, id="the nearer file decides"),
        pytest.param({"a/.gitignore": "*.log", ".ignore": "!x.log"}, False, id=".ignore before .gitignore"),
        pytest.param({".ignore": "*.log", ".rgignore": "!x.log"}, False, id=".rgignore before .ignore"),
        pytest.param({".gitignore": "!x.log", "a/.ignore": "*.log"}, True, id="a kind before decides at once"),
        pytest.param({".gitignore": "a", "a/.gitignore": "!x.log"}, True, id="nothing comes back from a directory"),
    ],
)
def test_of_several_files_one_decides(files: dict[str, str], ignored: bool) -> None:
    """search-10."""
    assert rules(files).covers_any("a/x.log") is ignored


def test_rules_above_the_searched_directory_apply_beneath_it() -> None:
    """search-10."""
    files = {".gitignore": "*.log\n/a/b/secret\n", "a/.gitignore": "*.tmp"}
    found = rules(files, start="a/b")
    assert found.covers("a/b/x.log", is_directory=False)
    assert found.covers("a/b/x.tmp", is_directory=False)
    assert found.covers("a/b/secret", is_directory=False)
    assert not found.covers("a/b/x.c", is_directory=False)


def test_a_directory_that_was_named_is_searched_though_it_is_ignored() -> None:
    """search-11."""
    assert not rules({".gitignore": "build/"}, start="build").covers_any("build/x/a.c")


def test_the_git_directory_is_never_searched() -> None:
    """search-11: also when it is a file, as in a worktree."""
    assert rules({}).covers_any(".git/config")
    assert rules({}).covers("a/.git", is_directory=False)
    assert not rules({}).covers_any(".gitignore")


PIECES = re.findall(
    r"\S+", r"a b B * ? ** [ab] [!a] [^a] [a-c] []a] [!]a] [a-] [[:upper:]] [\]a] [\!a] [a\-c] a] \* \a \\"
)
PIECES += ["\\[", "\\?", "!", "#", "\\!", "\\#", ".o", "-", " ", "\\ "]
NAMES = [*re.findall(r"\S+", r"a b ab B !a #a [a] a] - c \ a\b x.o * ?a a-c"), "a b", "a "]


def any_rule(dice: random.Random) -> str:
    components = ["".join(dice.choices(PIECES, k=dice.choice((1, 1, 2, 3)))) for _ in range(dice.choice((1, 1, 2, 3)))]
    # `**` beside other characters of a component has a different meaning in each version of git.
    components = [one if one == "**" else one.replace("**", "*") for one in components]
    line = dice.choice(("", "", "/", "!", "!/")) + "/".join(components) + dice.choice(("", "", "/", " ", "  "))
    return line + dice.choice(("", "\\", "\r")) * (dice.random() < 0.1)


def plant_names(directory: Path, dice: random.Random, depth: int = 0) -> None:
    directory.mkdir(exist_ok=True)
    if depth == 0 or dice.random() < 0.3:
        start = dice.choice(("", "", "", "\ufeff"))
        (directory / ".gitignore").write_text(start + "\n".join(any_rule(dice) for _ in range(6)), newline="")
    for name in dice.sample(NAMES, 12 - 3 * depth):
        if depth < 2 and dice.random() < 0.5:
            plant_names(directory / name, dice, depth + 1)
        else:
            (directory / name).touch()


def test_git_ignores_the_same(tmp_path: Path) -> None:
    """search-10: whatever the ignore files contain; remaining differences are listed under "Not promised"."""
    isolated = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for seed in range(12):
        top = tmp_path / str(seed)
        plant_names(top, random.Random(seed))
        paths = sorted(path.relative_to(top) for path in top.rglob("*"))
        subprocess.run(("git", "init", "-q", top), env=isolated, check=True)
        asked = subprocess.run(
            ("git", "-C", top, "check-ignore", "--no-index", "-z", "--stdin"),
            input="\0".join(map(str, paths)),
            env=isolated,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        found = rules({str(path): (top / path).read_bytes().decode() for path in paths if path.name == ".gitignore"})
        ignored = {
            str(path)
            for path in paths
            if any(found.covers(str(one), is_directory=(top / one).is_dir()) for one in (path, *path.parents[:-1]))
        }
        theirs = {path for path in asked.stdout.split("\0") if path}
        assert ignored == theirs, (seed, ignored ^ theirs)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n".join(["*a" * 120 + "b", "**/a/" * 150 + "b", "{" * 500, "[" * 500]), id="rules"),
        pytest.param("[" * 1_000_000, id="brackets"),
        pytest.param("{" * 1_000_000, id="braces"),
        pytest.param("{" * 500_000 + "}" * 500_000, id="braces in braces"),
        pytest.param(("[" * 999 + "\n") * 1_000, id="lines of brackets"),
        pytest.param(("{" * 999 + "\n") * 1_000, id="lines of braces"),
    ],
)
def test_matching_of_a_rule_takes_little_time(text: str) -> None:
    """search-21: a repository cannot stop the server with its ignore file."""
    assert not rules({".gitignore": text}).covers_any("a/" * 300 + "a" * 255)
