"""Texts that are no path, and how Windows would read them."""

import pytest

from coretools.errors import InvalidPath
from coretools.roots.path_text import check_path, printable
from coretools.roots.read import read_bytes
from tests.roots.world import World


@pytest.mark.parametrize(
    "text",
    ["", "a\0b", "\ud800", "a/\udcff", "a" * 256, "é" * 128, "a/" * 2049],
    ids=["empty", "nul", "surrogate", "undecodable", "long name", "long name in bytes", "long path"],
)
def test_text_that_can_name_no_file_is_refused(world: World, text: str) -> None:
    """roots-10: before any system call, with an error that says why."""
    with pytest.raises(InvalidPath):
        read_bytes(world.roots, text, limit_bytes=100)


@pytest.mark.parametrize(
    "text", ["~", "$HOME", "%2e%2e", "file:x", "a" * 255, "é" * 127, " a ", "-rf", "C:x", "a\nb", "*"]
)
def test_nothing_is_expanded_folded_or_trimmed(world: World, text: str) -> None:
    """roots-10: every other character is ordinary."""
    check_path(text)
    (world.root / text).write_bytes(b"as named")
    assert world.read(text) == b"as named"


def test_a_name_that_is_not_utf_8_is_displayed_with_its_bytes() -> None:
    """roots-11"""
    assert printable("caf\udce9") == "caf\\xe9"
    assert printable("café") == "café"
