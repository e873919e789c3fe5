"""Edits whose old text differs from the file in its indentation alone (docs/specs/filesystem.md)."""

import random

import pytest

from coretools.errors import EditRefused
from coretools.tools.filesystem.edits import Edit, EditedText, apply_edits


def edited(text: str, old: str, new: str) -> EditedText:
    return apply_edits(text, [Edit(old=old, new=new)], display_path="a.py", most_characters=1_000_000)


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        pytest.param(
            "class A:\n    def f(self):\n        return 1\n",
            "def f(self):\n    return 1\n",
            "def f(self):\n    if x:\n        return 2\n    return 1\n",
            "class A:\n    def f(self):\n        if x:\n            return 2\n        return 1\n",
            id="less than in the file",
        ),
        pytest.param(
            "def f():\n    return 1\n",
            "    def f():\n        return 1\n",
            "    def f():\n        return 2\n",
            "def f():\n    return 2\n",
            id="more than in the file",
        ),
        pytest.param(
            "def f():\n\tif x:\n\t\treturn 1\n",
            "def f():\n    if x:\n        return 1\n",
            "def f():\n    if x:\n        if y:\n            return 2\n",
            "def f():\n\tif x:\n\t\tif y:\n\t\t\treturn 2\n",
            id="spaces where the file has tabs",
        ),
        pytest.param(
            "def f():\n    if x:\n        return 1\n",
            "def f():\n\tif x:\n\t\treturn 1\n",
            "def f():\n\tif x:\n\t\treturn 2\n",
            "def f():\n    if x:\n        return 2\n",
            id="tabs where the file has spaces",
        ),
        pytest.param(
            "    b\r\n    c\r\n",
            "  b\n  c\n",
            "  b\n  d\n  c\n",
            "    b\r\n    d\r\n    c\r\n",
            id="CRLF stays",
        ),
        pytest.param(
            "if a:\n    b\n    c", "if a:\n  b\n  c", "if a:\n  d", "if a:\n    d", id="no newline at the end"
        ),
        pytest.param(
            "if a:\n    b\n\n    c\nd\n",
            "if a:\n  b\n  \n  c\n",
            "if a:\n  b\n\n  d\n",
            "if a:\n    b\n\n    d\nd\n",
            id="empty line",
        ),
        pytest.param(
            "if a:\n    b \n",
            "if a:\n  b \n",
            "if a:\n  b\n",
            "if a:\n    b\n",
            id="white space at the end of a line goes",
        ),
    ],
)
def test_new_lines_get_the_indentation_of_the_file(text: str, old: str, new: str, result: str) -> None:
    """filesystem-49."""
    found = edited(text, old, new)
    assert found.text == result
    assert found.reindented


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        pytest.param("  a b\n    a b\n\ta b\n", "a b\n\n", "c\n", id="another line below"),
        pytest.param("if x:\n  a\n  b\nif x:\n    a\n    b\n", "if x:\n a\n b\n", "c\n", id="twice in the file"),
        pytest.param("if x:\n    a\n      b\n", "if x:\n  a\n   b\n", "     c\n", id="no common difference"),
        pytest.param("    a = 1\n    b = 2\n", "\ta = 1\n\t\tb = 2\n", "c\n", id="other levels"),
        pytest.param("x = 'a'\ny\n", '  x = "a"\n  y\n', "z\n", id="quotes"),
        pytest.param("x = 1 \ny\n", "  x = 1\n  y\n", "z\n", id="white space at the end of a line"),
        pytest.param("if x:\n    a\n    b = 3\n", "if x:\n  a\n  b\n", "c\n", id="a part of the last line"),
        pytest.param("\tf(a,\n\t  b)\n", "    f(a,\n      b)\n", "    f(a)\n        c\n", id="aligned with spaces"),
        pytest.param("\ta\n\tb\n", "a\nb\n", "a\n  b\n", id="would mix tabs and spaces"),
        pytest.param("if x:\n    a\n", "if x:\n  a\n", "if x:\n        a\n", id="an edit of the indentation itself"),
        pytest.param("if x:\n    a\n", "if x:\n  a\n", "if x:\n  a\n    b\n", id="a level that is not in the match"),
        pytest.param("\n\n", "  \n  \n ", "x", id="nothing but white space"),
    ],
)
def test_anything_else_is_refused(text: str, old: str, new: str) -> None:
    """filesystem-49: nothing fuzzier is applied."""
    with pytest.raises(EditRefused):
        edited(text, old, new)


def test_an_exact_match_is_taken_as_it_is_written() -> None:
    """filesystem-49: the first line can begin after the indentation; further lines of `new` then stay as they are."""
    found = edited("def f():\n    return 1\n", "return 1\n", "return 1\n\n\ndef g():\n    return 2\n")
    assert found.text == "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    assert not found.reindented


@pytest.mark.parametrize("seed", range(300))
def test_whatever_the_indentation_the_result_is_that_of_the_exact_edit_or_a_refusal(seed: int) -> None:
    """filesystem-49: random files and edits, shifted and with tabs for spaces."""
    dice = random.Random(seed)
    unit = dice.choice(["    ", "  ", "\t"])
    lines = [unit * dice.randrange(4) + f"line{number}" for number in range(30)]
    lines = [line if dice.random() < 0.9 else "" for line in lines]
    start = dice.randrange(25)
    stop = start + dice.randrange(1, 5)
    new = [*lines[start:stop], unit * dice.randrange(5) + "added"]
    dice.shuffle(new)
    other = dice.choice(["    ", "  ", "\t", "      "])

    def shifted(text: list[str]) -> str:
        levels = [(len(line) - len(line.lstrip())) // len(unit) for line in text]
        return "".join(other * level + line.lstrip() + "\n" for level, line in zip(levels, text, strict=True))

    text = "".join(line + "\n" for line in lines)
    exact = "".join(line + "\n" for line in [*lines[:start], *new, *lines[stop:]])
    try:
        found = edited(text, shifted(lines[start:stop]), shifted(new)).text
    except EditRefused:
        return

    def bare(one: str) -> list[str]:
        return [line.strip() for line in one.split("\n")]

    assert bare(found) == bare(exact)
    assert found[: len("".join(f"{line}\n" for line in lines[:start]))] == "".join(
        f"{line}\n" for line in lines[:start]
    )


def test_several_places_are_named() -> None:
    """filesystem-49: which one is meant is not known."""
    with pytest.raises(EditRefused, match="more than one place, such as lines 2 and 5") as caught:
        edited("if x:\n    a\n    b\nif y:\n    a\n    b\n", "  a\n  b\n", "c\n")
    assert caught.value.facts["lines"] == [2, 5]
