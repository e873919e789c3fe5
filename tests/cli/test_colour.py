"""Colour is added to a text without changing it (docs/specs/cli.md)."""

import random
import re

import pytest

from coretools.cli.common.colours import colour_result, colour_tools_table, styled
from coretools.cli.common.terminal import for_terminal

ESCAPE = re.compile("\x1b\\[[0-9]*m")
NAMES = ("git_diff", "git_status", "git_log", "search_text", "edit_file", "read_file")

PIECES = [
    *("+", "-", "+++ a/b", "--- a/b", "@@ -1 +1 @@", "diff --git a/x b/x", " M x.py", "?? y", "A  z", "R  a -> b"),
    *("0123456789 2026-01-02 Ada: x", "a/b.py:12:text", "a-b.py-7-text", "--", "[3 more]", "", "\t", "plain [bold]"),
    *("read_file  reads   Read.", "x  changes It.", "ünïcode", "::", "1:2:3", "branch main"),
]


def test_without_its_escapes_a_coloured_text_is_the_plain_one() -> None:
    """cli-15: for any text."""
    for seed in range(100):
        chance = random.Random(seed)
        text = "\n".join(chance.choice(PIECES) + chance.choice(["", " ", chance.choice(PIECES)]) for _ in range(20))
        for name in NAMES:
            assert ESCAPE.sub("", colour_result(name, text)) == text, seed
        assert ESCAPE.sub("", colour_tools_table(text)) == text, seed


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("git_diff", "+new", styled("+new", "green")),
        ("git_diff", "-old", styled("-old", "red")),
        ("git_diff", "@@ -1 +1 @@", styled("@@ -1 +1 @@", "cyan")),
        ("git_diff", "+++ b/x", styled("+++ b/x", "bold")),
        ("git_status", " M x.py", f" {styled('M', 'red')} x.py"),
        ("git_status", "A  x.py", f"{styled('A', 'green')}  x.py"),
        ("git_status", "?? x.py", f"{styled('?', 'red')}{styled('?', 'red')} x.py"),
        ("git_log", "0123456789 2026 x", f"{styled('0123456789', 'yellow')} 2026 x"),
        ("search_text", "a.py:3:x", f"{styled('a.py', 'magenta')}:{styled('3', 'green')}:x"),
        ("search_text", "[3 shown]", styled("[3 shown]", "dim")),
        ("search_text", "src/a.py", styled("src/a.py", "magenta")),
        ("search_text", "3:x:4:", f"{styled('3', 'green')}:x:4:"),
        ("search_text", "4-x", f"{styled('4', 'dim')}-x"),
        ("search_text", "--", "--"),
        ("read_file", "+new", "+new"),
    ],
)
def test_lines_are_coloured_by_their_kind(name: str, line: str, expected: str) -> None:
    """cli-15: diffs, status, history, search."""
    assert colour_result(name, line) == expected


def test_the_effect_of_a_tool_is_coloured_in_the_table() -> None:
    """cli-15: tools that change something stand out."""
    assert (
        colour_tools_table("write_file  changes Write.")
        == f"{styled('write_file', 'bold')}  {styled('changes', 'red')} Write."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\tb\nc", "a\tb\nc"), ("\x1b[2J", "\\x1b[2J"), ("a\rb", "a\\rb"), ("\x9b1m", "\\x9b1m"), ("ü…", "ü…")],
)
def test_control_characters_are_escaped(text: str, expected: str) -> None:
    """cli-15: C1 too; line breaks and tabs stay."""
    assert for_terminal(text) == expected
