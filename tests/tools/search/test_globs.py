"""Globs on paths (docs/specs/search.md)."""

import pytest

from coretools.errors import InvalidArguments
from coretools.tools.search.globs import expand_braces, glob_matcher


def test_a_glob_matches_names_anywhere_and_paths_from_the_top() -> None:
    """search-12."""
    for glob, path, matches in (
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", True),
        ("*.py", "a.pyc", False),
        ("*.PY", "a.py", False),
        ("*", ".hidden", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "x/src/a.py", False),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/b/c/a.py", True),
        ("**/*.py", "a.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src/", False),
        ("**/x/**", "a/x/b", True),
        ("src/", "src/", True),
        ("src/", "a/src/", True),
        ("src/", "src", False),
        ("/a", "a", True),
        ("/a", "b/a", False),
        ("./a/*", "a/b", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab]c", "bc", True),
        ("[!ab]c", "bc", False),
        ("[^ab]c", "cc", True),
        ("*.{js,ts}", "x.ts", True),
        ("*.{js,ts}", "x.rs", False),
        ("{a,{b,c}}x", "cx", True),
        ("a{b", "a{b", True),
        ("[{]a,b}", "{a,b}", True),
        ("!*.py", "a.py", False),
        ("!*.py", "a.rs", True),
        ("a.b", "axb", False),
    ):
        assert glob_matcher(glob)(path) is matches, (glob, path, matches)


def test_braces_stand_for_several_globs() -> None:
    """search-12."""
    assert expand_braces("{a,b{c,d}}{,e}") == ["a", "ae", "bc", "bce", "bd", "bde"]


@pytest.mark.parametrize("glob", ["{a,b}" * 7, "x" * 1_001, "{" + "a," * 70 + "}"], ids=["braces", "long", "wide"])
def test_a_glob_with_too_many_alternatives_is_refused(glob: str) -> None:
    """search-12."""
    with pytest.raises(InvalidArguments, match="glob"):
        glob_matcher(glob)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("glob", "path"),
    [
        pytest.param("*a" * 120 + "b", "a" * 255, id="stars in a name"),
        pytest.param("**/a/" * 150 + "b", "a/" * 1_500 + "c", id="stars across directories"),
        pytest.param("{" * 900, "a", id="braces without partner"),
        pytest.param("[" * 900, "a", id="brackets without partner"),
    ],
)
def test_matching_of_a_glob_takes_little_time(glob: str, path: str) -> None:
    """search-21: a backtracking matcher would take years for these."""
    assert not glob_matcher(glob)(path)
