"""What a terminal shows, drawn from the output of a program (docs/specs/runs.md)."""

import random

import pytest

from coretools.process.children.streams import TerminalSize
from coretools.process.jobs.terminal_screen import MAX_REDRAWN_BYTES, TerminalScreen


def screen_text(*pieces: bytes, rows: int = 4, columns: int = 10) -> str:
    screen = TerminalScreen(TerminalSize(rows=rows, columns=columns))
    text, printed = "", b""
    for piece in pieces:
        printed += piece
        text = screen.draw(printed[-MAX_REDRAWN_BYTES:], len(printed))
    return text


@pytest.mark.parametrize(
    ("output", "picture"),
    [
        (b"one\r\ntwo", "one\ntwo"),
        (b"1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5"),
        (b"0123456789ab", "0123456789\nab"),
        (b"loading\rdone\x1b[K", "done"),
        (b"gone\x1b[2J\x1b[Htop\x1b[3;4Hlow", "top\n\n   low"),
        (b"\x1b[31mred\x1b[0m", "red"),
        ("wide \u6f22\u5b57!".encode(), "wide \u6f22\u5b57!"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
        (b"a\x1b[2;3H\xc3\xa9\x1b[1mb", "a\n  \u00e9b"),
    ],
)
def test_the_picture_is_what_a_terminal_shows(output: bytes, picture: str) -> None:
    """runs-21: lines without trailing blanks, no empty lines at the bottom; also for output cut anywhere."""
    assert screen_text(output) == picture
    for cut in range(len(output) + 1):
        assert screen_text(output[:cut], output[cut:]) == picture, cut


def test_only_the_end_of_a_flood_is_drawn() -> None:
    """runs-21: earlier output has scrolled away."""
    assert screen_text(b"begin\r\n", b"x\r\n" * 100_000, b"end") == "x\nx\nx\nend"


@pytest.mark.parametrize(
    "broken",
    [
        b"\x1b[?1;2A",
        b"\x1b[1;2;3;4A",
        b"\x1b[" + b"9" * 5000 + b"C",
        b"\x1b[?6n",
        b"\x1b[999999999;999999999H",
        b"\x1b[99999999L\x1b[99999999@",
        b"\xcc\x81" * 30,
        b"\x1b]0;" + b"t" * 5000,
        b"\x1b(",
        b"\x1b[?3h",
    ],
    ids=lambda broken: repr(broken[:12]),
)
def test_broken_sequences_do_not_stop_the_drawing(broken: bytes) -> None:
    """runs-21: output after a reset is drawn as usual."""
    assert screen_text(b"before" + broken, b"\x07\x1b\\\x1bc" + b"after") == "after"


def test_no_output_makes_the_drawing_fail() -> None:
    """runs-21: whatever a program prints."""
    for seed in range(30):
        chance = random.Random(seed)
        parts = [b"\x1b[", b"\x1b]", b"\x1b", b"\x9b", b"?", b";", b"9", b"99999999", b"\xcc\x81", b"\xf0\x9f\x98\x80"]
        parts += [bytes([byte]) for byte in range(256)]
        output = [b"".join(chance.choice(parts) for _ in range(150)) for _ in range(6)]
        picture = screen_text(*output, rows=6, columns=20)
        assert len(picture.split("\n")) <= 6, seed
        assert "\x1b" not in picture, seed
