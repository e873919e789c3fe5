"""The diff of an edit: another program can apply it, and its length is bounded (docs/specs/filesystem.md)."""

import random
import re

import pytest

from coretools.tools.filesystem.edit_diff import SHOWN_LINES, unified_diff
from coretools.tools.filesystem.edits import Edit, apply_edits


def diff_of(before: str, *edits: Edit) -> tuple[str, str]:
    found = apply_edits(before, edits, display_path="f", most_characters=10_000_000)
    return unified_diff(before, found.text, found.hunks, display_path="f"), found.text


def applied(before: str, diff: str) -> str:
    """The result of a strict reader of the format, which checks every line number and length."""
    lines = re.findall(r"[^\n]*\n|[^\n]+$", before)
    out: list[str] = []
    position = 0
    body = re.findall(r"[^\n]*\n", diff)
    assert body[:2] == ["--- f\n", "+++ f\n"]
    body = body[2:]
    while body:
        header = re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n", body.pop(0))
        assert header is not None
        start, length, new_start, new_length = (int(group) if group else 1 for group in header.groups())
        first = start - 1 if length else start
        out += lines[position:first]
        assert len(out) == (new_start - 1 if new_length else new_start)
        position, added = first, len(out)
        while body and not body[0].startswith("@@"):
            line = body.pop(0)
            mark, content = line[0], line[1:]
            if body and body[0].startswith("\\"):
                body.pop(0)
                content = content.removesuffix("\n")
            if mark in " -":
                assert lines[position] == content
                position += 1
            if mark in " +":
                out.append(content)
        assert (position - first, len(out) - added) == (length, new_length)
    return "".join(out + lines[position:])


@pytest.mark.parametrize(
    ("before", "edits", "diff"),
    [
        pytest.param(
            "a\nb\nc\nd\ne\nf\ng\n",
            [Edit(old="d", new="D")],
            "@@ -2,5 +2,5 @@\n b\n c\n-d\n+D\n e\n f\n",
            id="a line with two around it",
        ),
        pytest.param(
            "a\nb\nc\n",
            [Edit(old="b\n", new="")],
            "@@ -1,3 +1,2 @@\n a\n-b\n c\n",
            id="a line removed",
        ),
        pytest.param(
            "a\nb",
            [Edit(old="b", new="B")],
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n\\ No newline at end of file\n",
            id="no newline at the end",
        ),
        pytest.param(
            "a\nb\nc\n",
            [Edit(old="a\nb\nc\n", new="a\nB\nc\n")],
            "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n",
            id="lines that an edit names but leaves are context",
        ),
        pytest.param(
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            [Edit(old="1", new="one"), Edit(old="9", new="nine")],
            "@@ -1,3 +1,3 @@\n-1\n+one\n 2\n 3\n@@ -7,3 +7,3 @@\n 7\n 8\n-9\n+nine\n",
            id="two places",
        ),
        pytest.param("a\r\n", [Edit(old="a", new="b")], "@@ -1 +1 @@\n-a\r\n+b\r\n", id="CR stays visible"),
    ],
)
def test_a_diff_shows_what_changed_and_two_lines_around_it(before: str, edits: list[Edit], diff: str) -> None:
    """filesystem-26."""
    assert diff_of(before, *edits)[0] == "--- f\n+++ f\n" + diff


def test_a_diff_applied_to_the_text_before_gives_the_text_after() -> None:
    """filesystem-26."""
    for seed in range(300):
        dice = random.Random(seed)
        lines = [dice.choice("abcdefgh") * dice.randrange(3) for _ in range(dice.randrange(1, 60))]
        before = "\n".join(lines) + dice.choice(["", "\n"])
        edits: list[Edit] = []
        text = before
        for _ in range(dice.randrange(1, 5)):
            if not text:
                break
            start = dice.randrange(len(text))
            edits.append(
                Edit(
                    old=text[start : start + dice.randrange(1, 9)],
                    new="".join(dice.choices("xy\n", k=dice.randrange(6))) + "!",
                    all=True,
                )
            )
            text = apply_edits(text, edits[-1:], display_path="f", most_characters=10_000_000).text
        if text == before:
            return
        diff, after = diff_of(before, *edits)
        assert applied(before, diff) == after, seed


def test_edits_that_undo_each_other_have_no_diff() -> None:
    """filesystem-26."""
    diff, after = diff_of("a\n", Edit(old="a", new="b"), Edit(old="b", new="a"))
    assert after == "a\n"
    assert "@@" not in diff


def test_a_long_diff_is_cut_and_what_is_missing_is_counted() -> None:
    """filesystem-26."""
    diff, _ = diff_of("a\n" * 5_000, Edit(old="a", new="b", all=True))
    assert diff.count("\n") == SHOWN_LINES + 1
    assert diff.endswith(f"[... {2 + 1 + 10_000 - SHOWN_LINES} lines of the diff left out ...]\n")


def test_a_long_line_is_cut_and_what_is_missing_is_counted() -> None:
    """filesystem-26."""
    diff, _ = diff_of("x" * 100_000 + "y", Edit(old="y", new="z"))
    assert "[... 99001 characters left out ...]" in diff
    assert len(diff) < 3_000


def test_a_small_change_in_a_large_file_looks_only_at_its_place() -> None:
    """filesystem-26: two distant changes are two small hunks, however much text is between them."""
    before = "start\n" + "same\n" * 200_000 + "end\n"
    diff, _ = diff_of(before, Edit(old="start", new="START"), Edit(old="end", new="END"))
    assert diff.count("@@") == 4
    assert diff.count("\n") == 2 + 2 * 5
