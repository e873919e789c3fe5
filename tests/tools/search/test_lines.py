"""Matching lines of one file (docs/specs/search.md)."""

import codecs
import math

import pytest

from coretools.errors import DeadlinePassed
from coretools.tools.search.file_matches import MatchedLine, cut, decode_text, matching_lines, with_context
from coretools.tools.search.pattern import parse_pattern


def found(data: bytes, pattern: str, context: int = 0) -> list[list[MatchedLine]]:
    file = decode_text(data)
    assert file is not None
    parsed = parse_pattern(pattern, literal=False, ignore_case=False)
    return with_context(file, list(matching_lines(file, parsed, deadline=math.inf, display_path="a")), context)


def numbers(data: bytes, pattern: str, context: int = 0) -> list[list[int]]:
    return [[line.number for line in group] for group in found(data, pattern, context)]


@pytest.mark.parametrize(
    ("data", "pattern", "lines"),
    [
        pytest.param(b"a\nb\na\n", "a", [1, 3], id="lines count from one"),
        pytest.param(b"aaa\n", "a", [1], id="a line is found once"),
        pytest.param(b"a\r\nb\r\n", "a$", [1], id="CR before LF belongs to the line's end"),
        pytest.param(b"a\n\nb", "^$", [2], id="an empty line"),
        pytest.param(b"a\nb\n", "x*", [1, 2], id="no line after the last newline"),
        pytest.param(b"", "x*", [], id="an empty file has no line"),
        pytest.param(b"a\nb", "b$", [2], id="no newline at the end"),
        pytest.param(b"\n\n", "^", [1, 2], id="nothing but newlines"),
        pytest.param(codecs.BOM_UTF8 + b"a\n", "^a", [1], id="behind a byte order mark"),
        pytest.param(codecs.BOM_UTF16_LE + "é\r\na".encode("utf-16-le"), "^é$", [1], id="UTF-16 little end first"),
        pytest.param(codecs.BOM_UTF16_BE + "b\né".encode("utf-16-be"), "é", [2], id="UTF-16 big end first"),
        pytest.param(b"caf\xe9\ncafe\n", "caf.", [2], id="a byte that is no UTF-8 matches nothing"),
        pytest.param(b"caf\xe9\ncafe\n", "caf", [1, 2], id="and hides nothing else"),
    ],
)
def test_a_line_matches_by_itself(data: bytes, pattern: str, lines: list[int]) -> None:
    """search-3, search-13."""
    assert [line.number for group in found(data, pattern) for line in group] == lines


@pytest.mark.parametrize("data", [b"\0", b"text\n" * 10_000 + b"\0", codecs.BOM_UTF16_LE + b"\0\0"])
def test_a_file_with_nul_anywhere_is_binary(data: bytes) -> None:
    """search-13."""
    assert decode_text(data) is None


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    """search-13."""
    assert found(b"caf\xe9\n", "caf")[0][0].text == "caf\ufffd"


@pytest.mark.parametrize(
    ("pattern", "context", "groups"),
    [
        ("5", 0, [[5]]),
        ("5", 1, [[4, 5, 6]]),
        ("[19]", 2, [[1, 2, 3], [7, 8, 9]]),
        ("[36]", 1, [[2, 3, 4, 5, 6, 7]]),
        ("[35]", 1, [[2, 3, 4, 5, 6]]),
        ("[34]", 1, [[2, 3, 4, 5]]),
        ("[37]", 1, [[2, 3, 4], [6, 7, 8]]),
        ("[19]", 50, [[1, 2, 3, 4, 5, 6, 7, 8, 9]]),
    ],
)
def test_lines_around_matches_are_listed_once_and_adjacent_groups_are_joined(
    pattern: str, context: int, groups: list[list[int]]
) -> None:
    """search-7."""
    assert numbers(b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", pattern, context) == groups


def test_lines_around_a_match_are_distinguished_from_it() -> None:
    """search-7."""
    assert found(b"a\nb\nc\n", "b", 1) == [
        [MatchedLine(1, "a", None), MatchedLine(2, "b", 0), MatchedLine(3, "c", None)]
    ]


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("short", 0, "short"),
        ("x" * 30, 0, "x" * 20 + "[... 10 characters ...]"),
        ("x" * 100 + "HIT" + "x" * 100, 100, "[... 95 characters ...]xxxxxHIT" + "x" * 12 + "[... 88 characters ...]"),
        ("x" * 30 + "HIT", 30, "[... 13 characters ...]" + "x" * 17 + "HIT"),
        ("é" * 20, 0, "é" * 10 + "[... 10 characters ...]"),
    ],
)
def test_a_long_line_is_cut_around_its_match(line: str, column: int, expected: str) -> None:
    """search-9."""
    assert cut(line, column, 20) == expected


@pytest.mark.timeout(60)
def test_a_pattern_that_backtracks_without_end_is_an_error() -> None:
    """search-18."""
    with pytest.raises(DeadlinePassed, match="simplify nested repetitions"):
        found(b"a" * 60 + b"!\n", "^(a|a)*$")


def test_a_search_that_is_late_ends_with_what_it_has() -> None:
    """search-18."""
    file = decode_text(b"a\n")
    assert file is not None
    parsed = parse_pattern("a", literal=False, ignore_case=False)
    assert list(matching_lines(file, parsed, deadline=-math.inf, display_path="a")) == []
