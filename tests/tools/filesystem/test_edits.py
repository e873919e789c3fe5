"""Edits of text: what is replaced, what is refused, and that all else stays the same (docs/specs/filesystem.md)."""

import random

import pytest

from coretools.errors import EditRefused, TooLarge
from coretools.tools.filesystem.edits import Edit, EditedText, apply_edits

MOST = 1_000_000


def edited(text: str, *edits: Edit) -> EditedText:
    return apply_edits(text, edits, display_path="a.py", most_characters=MOST)


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        pytest.param("one two three", "two", "2", "one 2 three", id="in a line"),
        pytest.param("a\nb\nc\n", "b\n", "", "a\nc\n", id="a line removed"),
        pytest.param("a\nb\n", "a\nb", "a\nX\nb", "a\nX\nb\n", id="lines inserted"),
        pytest.param("a\nb", "b", "B", "a\nB", id="no newline at the end stays so"),
        pytest.param("a\r\nb\r\nc\r\n", "a\nb", "A\nB", "A\r\nB\r\nc\r\n", id="LF asked for in a CRLF file"),
        pytest.param("a\r\nb\r\n", "a", "x\ny", "x\r\ny\r\nb\r\n", id="a new line gets the ending of its place"),
        pytest.param("a\nb\r\nc", "c", "c\nd", "a\nb\r\nc\r\nd", id="at the end the ending of the line before"),
        pytest.param("a\nb\r\nc\n", "a\nb\nc\n", "a\nX\nc\n", "a\nX\r\nc\n", id="mixed endings are kept one by one"),
        pytest.param("a\r\nb\nc\r\n", "b\nc", "b\nB\nc", "a\r\nb\nB\nc\r\n", id="LF where the match has LF"),
        pytest.param("a\nb\r\na\r\nb", "a\nb", "x", "x\r\na\r\nb", id="the exact match goes before the CRLF one"),
        pytest.param("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n", id="CRLF asked for in an LF file"),
        pytest.param("a\r\nb", "\r\n", "\n", "a\nb", id="endings themselves can be changed"),
        pytest.param("a b", "a b", "a\r\nb", "a\r\nb", id="CR that was written is kept"),
        pytest.param("é\U0001f600x", "\U0001f600", "y", "éyx", id="beyond ASCII"),
    ],
)
def test_an_edit_replaces_the_one_match_and_keeps_the_endings_of_the_place(
    text: str, old: str, new: str, result: str
) -> None:
    """filesystem-19, filesystem-23."""
    found = edited(text, Edit(old=old, new=new))
    assert found.text == result
    assert found.replaced == 1


@pytest.mark.parametrize(
    ("text", "old", "lines"),
    [
        pytest.param("x\na\nb\na\n", "a", [2, 4], id="two lines"),
        pytest.param("aaa\n", "aa", [1, 1], id="overlapping"),
        pytest.param("k\r\na\r\nb\r\na\r\nb\r\n", "a\nb", [2, 4], id="through CRLF"),
        pytest.param("a\nb\n" * 30, "a\nb", list(range(1, 40, 2)), id="the first twenty are named"),
    ],
)
def test_a_match_that_is_not_unique_is_refused_with_all_its_lines(text: str, old: str, lines: list[int]) -> None:
    """filesystem-19."""
    with pytest.raises(EditRefused) as caught:
        edited(text, Edit(old=old, new="z"))
    assert caught.value.facts["lines"] == lines
    assert ", ".join(map(str, lines)) in str(caught.value)
    assert "all" in str(caught.value)


def test_matches_beyond_the_first_twenty_lines_are_counted() -> None:
    """filesystem-19."""
    with pytest.raises(EditRefused, match=r"30 times, on lines .* and 10 more") as caught:
        edited("a\n" * 30, Edit(old="a", new="b"))
    assert caught.value.facts["matches"] == 30


def test_with_all_every_match_is_replaced() -> None:
    """filesystem-19."""
    found = edited("a.a\r\na\r\n", Edit(old="a", new="b\nc", all=True))
    assert found.text == "b\r\nc.b\r\nc\r\nb\r\nc\r\n"
    assert found.replaced == 3


def test_with_all_matches_do_not_overlap() -> None:
    """filesystem-19."""
    assert edited("aaaaa", Edit(old="aa", new="b", all=True)).text == "bba"


def test_a_newline_never_matches_half_of_a_crlf() -> None:
    """filesystem-22: a line end is a unit."""
    assert edited("a\r\nb\r\n", Edit(old="\n", new="\n\n", all=True)).text == "a\r\n\r\nb\r\n\r\n"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        pytest.param(Edit(old="", new="x"), "empty", id="nothing to replace"),
        pytest.param(Edit(old="a", new="a"), "the same", id="nothing to change"),
        pytest.param(Edit(old="nowhere", new="x"), "matches nothing", id="not there"),
        pytest.param(Edit(old="A", new="x"), "matches nothing", id="case counts"),
        pytest.param(Edit(old="a", new="x", all=True, line=1), "only one of the two", id="all, and one"),
    ],
)
def test_an_edit_that_can_not_mean_anything_is_refused(edit: Edit, says: str) -> None:
    """filesystem-19, filesystem-20."""
    with pytest.raises(EditRefused, match=says):
        edited("a\nb\n", edit)


def test_one_refused_edit_of_several_refuses_all_and_is_named() -> None:
    """filesystem-21."""
    with pytest.raises(EditRefused, match="edit 2 of 3"):
        edited("a b c", Edit(old="a", new="1"), Edit(old="x", new="2"), Edit(old="c", new="3"))


def test_each_edit_sees_what_those_before_it_left() -> None:
    """filesystem-24: overlapping edits are applied in their order."""
    found = edited("one", Edit(old="one", new="two three"), Edit(old="two t", new="T"))
    assert found.text == "Three"


def test_a_result_that_would_be_too_large_is_refused_before_it_is_made() -> None:
    """filesystem-19: the result has a size limit, too."""
    with pytest.raises(TooLarge, match="could pass 1000000 characters"):
        edited("a" * 10_000, Edit(old="a", new="x" * 10_000, all=True))


@pytest.mark.parametrize(
    ("text", "old", "says"),
    [
        pytest.param("def f():\n    return 1\n", "def f():  \n  return 1\n", "only in white space", id="white space"),
        pytest.param("a = 1\nb = 2\nc = 3\n", "b = 2\nc = 4", "lines 2 to 3:\nb = 2\nc = 3", id="one line differs"),
        pytest.param("total = price + tax\n", "total = price * tax", "line 1:\ntotal = price", id="shared words"),
        pytest.param(
            "if a:\n    x = f(1)\nif b:\n        x = f(1)\n",
            "        x = f(1) \n",
            "line 4:",
            id="the same indentation",
        ),
        pytest.param(
            "f(a, b)\nf(a, c)\nf(a, b, c, d)\n", 'f("a", c)\n', "line 2:\nf(a, c)", id="no words that it lacks"
        ),
        pytest.param("Title\n=====\n", "=====  \n", "white space), line 2:\n=====", id="no word in it"),
        pytest.param("x\n", "entirely different words", "the file contains nothing similar", id="nothing alike"),
        pytest.param("", "a", "the file contains nothing similar", id="empty file"),
    ],
)
def test_a_refusal_shows_the_lines_that_come_closest(text: str, old: str, says: str) -> None:
    """filesystem-20."""
    with pytest.raises(EditRefused) as caught:
        edited(text, Edit(old=old, new="z"))
    assert says in str(caught.value)


def test_looking_for_the_closest_lines_is_bounded_by_the_lines_shown() -> None:
    """filesystem-20: neither a file of one long line nor one of many similar lines makes a long refusal."""
    text = "spam eggs ham\n" * 200_000 + "spam " * 200_000
    with pytest.raises(EditRefused) as caught:
        edited(text, Edit(old="spam eggs toast\n" * 1000, new="z"))
    assert len(str(caught.value)) < 4_000


def any_text(dice: random.Random) -> str:
    endings = dice.choice([["\n"], ["\r\n"], ["\n", "\r\n"]])
    lines = ["".join(dice.choices("abc xé\U0001f600", k=dice.randrange(5))) for _ in range(dice.randrange(1, 30))]
    return "".join(line + dice.choice(endings) for line in lines) + dice.choice(["", "end"])


def test_everything_outside_the_matches_is_as_it_was() -> None:
    """filesystem-22: between the hunks both texts are the same, line ends included."""
    for seed in range(300):
        dice = random.Random(seed)
        text = before = any_text(dice)
        edits = []
        for _ in range(dice.randrange(1, 5)):
            start = dice.randrange(len(text))
            old = text[start : start + dice.randrange(1, 12)].replace("\r\n", "\n").strip("\r")
            edit = Edit(
                old=old or "é", new="".join(dice.choices("abQ\n", k=dice.randrange(7))), all=dice.random() < 0.4
            )
            try:
                text = edited(text, edit).text
            except EditRefused:
                continue
            edits.append(edit)
            if not text:
                break
        if not edits:
            return
        found = edited(before, *edits)
        assert found.text == text, seed
        at_before = at_after = 0
        for hunk in found.hunks:
            assert before[at_before : hunk.a0] == text[at_after : hunk.b0], seed
            at_before, at_after = hunk.a1, hunk.b1
        assert before[at_before:] == text[at_after:], seed


def test_line_endings_never_change_what_an_edit_means() -> None:
    """filesystem-23: an edit has the same effect in a CRLF file as in the same file with LF."""
    for seed in range(200):
        dice = random.Random(seed)
        plain = any_text(dice).replace("\r\n", "\n")
        start = dice.randrange(len(plain))
        old = plain[start : start + dice.randrange(1, 12)]
        edit = Edit(old=old, new="".join(dice.choices("abQ\n", k=dice.randrange(7))) + "!", all=True)
        crlf = plain.replace("\n", "\r\n")
        if "\r\n" not in crlf:
            crlf = plain = f"{plain}\n"
            crlf = plain.replace("\n", "\r\n")
        assert edited(crlf, edit).text == edited(plain, edit).text.replace("\n", "\r\n"), seed


def test_more_edits_than_one_call_may_make_are_refused_with_the_number_that_may() -> None:
    """filesystem-21: their time adds up, and they block other changes meanwhile."""
    edits = [Edit(old=f"line {number}\n", new="x\n") for number in range(1_001)]
    text = "".join(edit.old for edit in edits)
    with pytest.raises(TooLarge, match="1001 edits; at most 1000 per call for a text of this size"):
        apply_edits(text, edits, display_path="f", most_characters=1_000_000)
    with pytest.raises(TooLarge, match="1000 edits; at most 16 per call for a text of this size"):
        apply_edits("x" * 128 * 1024**2, edits[:1_000], display_path="f", most_characters=1_000_000_000)
