"""Which lines of a file an answer contains, and what it reports about the rest (docs/specs/filesystem.md)."""

import random

import pytest

from coretools.errors import InvalidArguments
from coretools.tools.filesystem.line_window import LineRange, count_lines, window

TEN = "".join(f"line {number}\n" for number in range(1, 11))


def window_text(text: str, budget_bytes: int = 100_000, **lines: int) -> str:
    return window(text, LineRange(**lines), display_path="a.txt", budget_bytes=budget_bytes).text()


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\r\nb\r\n", "a\n\n\nb", "é\u2028\x0c\x85b\n", TEN])
def test_a_text_that_fits_is_returned_unchanged(text: str) -> None:
    """filesystem-2."""
    assert window_text(text) == text
    assert window_text(text, offset=1) == text
    assert window_text(text, head=1_000) == text
    assert window_text(text, tail=1_000) == text


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        pytest.param({"offset": 9}, "line 9\nline 10\n[lines 9 to 10 of 10]\n", id="offset to the end"),
        pytest.param({"offset": 3, "limit": 1}, "line 3\n[line 3 of 10; offset=4 reads on]\n", id="one line"),
        pytest.param({"limit": 2}, "line 1\nline 2\n[lines 1 to 2 of 10; offset=3 reads on]\n", id="limit alone"),
        pytest.param({"head": 2}, "line 1\nline 2\n[lines 1 to 2 of 10; offset=3 reads on]\n", id="head"),
        pytest.param({"tail": 2}, "line 9\nline 10\n[lines 9 to 10 of 10]\n", id="tail"),
        pytest.param({"offset": 10, "limit": 99}, "line 10\n[line 10 of 10]\n", id="limit beyond the end"),
    ],
)
def test_lines_count_from_one_and_the_answer_gives_their_range(lines: dict[str, int], answer: str) -> None:
    """filesystem-3."""
    assert window_text(TEN, **lines) == answer


@pytest.mark.parametrize(
    ("text", "lines"), [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\r\nb\r\n", 2), ("\n\n", 2)]
)
def test_a_newline_at_the_end_starts_no_line(text: str, lines: int) -> None:
    """filesystem-3."""
    assert count_lines(text) == lines


@pytest.mark.parametrize(
    "lines",
    [
        {"head": 1, "tail": 1},
        {"head": 1, "offset": 1},
        {"tail": 1, "limit": 1},
        {"head": 1, "tail": 1, "offset": 1, "limit": 1},
    ],
)
def test_contradictory_arguments_are_refused_by_name(lines: dict[str, int]) -> None:
    """filesystem-4."""
    with pytest.raises(InvalidArguments, match=" and ".join(name for name in ("head", "tail") if name in lines)):
        window_text(TEN, **lines)


def test_an_offset_behind_the_end_is_refused_with_the_number_of_lines() -> None:
    """filesystem-3."""
    with pytest.raises(InvalidArguments, match="it has 10 lines") as caught:
        window_text(TEN, offset=11)
    assert caught.value.facts == {"lines": 10}


def test_a_long_text_comes_as_its_start_and_its_end_with_the_rest_counted() -> None:
    """filesystem-5."""
    text = "".join(f"line {number:05}\n" for number in range(1, 10_001))
    answer = window_text(text, budget_bytes=110)
    assert answer == (
        "".join(f"line {number:05}\n" for number in range(1, 6))
        + "[... lines 6 to 9996 left out, 109901 characters; offset=6 reads on ...]\n"
        + "".join(f"line {number:05}\n" for number in range(9_997, 10_001))
    )


@pytest.mark.parametrize(
    ("text", "budget_bytes", "lines", "answer"),
    [
        pytest.param("a\nb", 100, {"tail": 1}, "b\n[line 2 of 2]\n", id="last line without newline"),
        pytest.param(
            "x" * 1_000_000,
            100,
            {},
            f"{'x' * 50}\n[... 999900 characters left out, from line 1 to line 1 ...]\n{'x' * 50}",
            id="one long line",
        ),
        pytest.param(
            TEN, 17, {"offset": 2}, "line 2\nline 3\n[lines 2 to 3 of 10; offset=4 reads on]\n", id="only whole lines"
        ),
        pytest.param(
            "a\n" + "x" * 100 + "\nb\n",
            10,
            {"offset": 2},
            f"{'x' * 10}\n[line 2 of 3, 91 characters of it left out; offset=3 reads on]\n",
            id="line over the budget",
        ),
        pytest.param(TEN, 17, {"tail": 5}, "line 9\nline 10\n[lines 9 to 10 of 10]\n", id="tail over the budget"),
        pytest.param(
            "a\n" + "x" * 100,
            10,
            {"tail": 1},
            f"{'x' * 10}\n[line 2 of 2, 90 characters of it left out]\n",
            id="end of a long last line",
        ),
    ],
)
def test_the_answer_fits_the_budget_and_counts_the_rest(
    text: str, budget_bytes: int, lines: dict[str, int], answer: str
) -> None:
    """filesystem-2, filesystem-5, filesystem-6: the note is a line of its own, and a range can be read on."""
    assert window_text(text, budget_bytes, **lines) == answer


def test_reading_on_where_each_answer_says_gives_the_whole_text() -> None:
    """filesystem-6: nothing is lost between two parts."""
    for seed in range(100):
        dice = random.Random(seed)
        text = "".join("é" * dice.randrange(20) + dice.choice(["\n", "\r\n"]) for _ in range(dice.randrange(1, 60)))
        read = ""
        offset = 1
        while offset <= count_lines(text):
            seen = window(text, LineRange(offset=offset), display_path="a", budget_bytes=50)
            read += seen.head
            offset += count_lines(seen.head)
        assert read == text, seed


def test_no_character_is_ever_cut_in_two() -> None:
    """filesystem-5."""
    for budget_bytes in range(40, 60):
        answer = window_text("é\U0001f600" * 100, budget_bytes=budget_bytes)
        assert "\ufffd" not in answer, budget_bytes
        assert len(answer.encode()) < budget_bytes + 80, budget_bytes
