"""How paths are ranked by an inexact query (docs/specs/search.md)."""

import itertools
import random
import time

import pytest

from coretools.tools.search.fuzzy import fuzzy_rank


@pytest.mark.parametrize(
    ("query", "ranked"),
    [
        pytest.param("tools", ["tools/", "tools.py", "toolset.py", "my_tools.py", "xtools.py"], id="part of the name"),
        pytest.param("usrctl", ["usr_ctl", "user_controller.py", "usr/ctl"], id="letters"),
        pytest.param("main", ["a/main.c", "xmain.c", "m/a/i/n.c"], id="the name before the path"),
        pytest.param("src/main", ["src/main.c", "lib/src/main.c", "srcs/domain.c"], id="a path"),
        pytest.param("Main", ["MAIN", "Main.c"], id="in any case"),
        pytest.param("a+b [c]", ["a+b[c]"], id="nothing is a pattern"),
        pytest.param("test search", ["search/test.py", "tests/search.py"], id="every word"),
    ],
)
def test_a_better_match_comes_first(query: str, ranked: list[str]) -> None:
    """search-31: of equally good matches the shorter path."""
    rank = fuzzy_rank(query)
    assert sorted(set(ranked), key=lambda path: (rank(path), len(path))) == ranked


@pytest.mark.parametrize(
    ("query", "path"), [("abc", "acb"), ("a b", "xa"), ("a/b", "ab"), ("aa", "a"), ("x", ""), ("ab", "b/a")]
)
def test_a_path_without_the_letters_in_order_does_not_match(query: str, path: str) -> None:
    """search-31."""
    assert fuzzy_rank(query)(path) is None


def test_what_matches_is_exactly_what_contains_the_letters_in_order() -> None:
    """search-31: on random paths, against the definition."""
    generator = random.Random(5)
    for _ in range(3_000):
        path = "".join(generator.choices("aAbc/._", k=generator.randrange(1, 9)))
        word = "".join(generator.choices("abc.", k=generator.randrange(1, 4)))
        letters = iter(path.lower().rstrip("/"))
        assert (fuzzy_rank(word)(path) is not None) is all(one in letters for one in word), (word, path)


@pytest.mark.timeout(60)
def test_the_time_of_a_query_does_not_explode() -> None:
    """search-21, search-31: one pass, whatever letters repeat."""
    started = time.process_time()
    for word, path in itertools.product(("a" * 100, "ab" * 50, "a" * 99 + "b"), ("a" * 4_000, "ab" * 2_000)):
        fuzzy_rank(word)(path)
    assert time.process_time() - started < 1
