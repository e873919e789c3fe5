"""Ignore files: what a search leaves out (docs/specs/search.md). test_search_engines shows that ripgrep agrees."""

import pytest

from coretools.tools.search.ignore import KINDS, IgnoreRules


def rules(files: dict[str, str], start: str = ".") -> IgnoreRules:
    def look(directory: str) -> tuple[str | None, ...]:
        prefix = "" if directory == "." else f"{directory}/"
        return tuple(files.get(prefix + kind) for kind in KINDS)

    return IgnoreRules(start, look)


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


def test_rules_above_the_directory_searched_hold_beneath_it() -> None:
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


@pytest.mark.timeout(20)
def test_no_rule_takes_long() -> None:
    """search-21: a repository can't stop the server by its ignore file."""
    found = rules({".gitignore": "\n".join(["*a" * 120 + "b", "**/a/" * 150 + "b", "{" * 500, "[" * 500])})
    assert not found.covers_any("a/" * 300 + "a" * 255)
