"""Lines of large files, found by seeking: the same lines as from the whole text, with few bytes read."""

import hashlib
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import Conflict, CoreError, InvalidArguments, TooLarge
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.line_window import LineRange, count_lines, window
from coretools.tools.filesystem.reading_tools import WHOLE_BYTES
from coretools.tools.filesystem.seek_window import (
    BLOCK_BYTES,
    COUNT_BYTES,
    MOST_COUNTED_BYTES,
    Cursor,
    after_lines,
    seek_window,
)
from coretools.tools.filesystem.tools import FilesystemTools

NUMBERED = b"".join(b"line %d\n" % number for number in range(1, 100_001))


class Bytes:
    """A source in memory that counts the bytes read."""

    display_path = "a.txt"

    def __init__(self, data: bytes, *, size: int | None = None) -> None:
        self.data = data
        self.size = len(data) if size is None else size
        self.read = 0

    def read_at(self, position: int, count: int) -> bytes:
        found = self.data[position : position + count]
        self.read += len(found)
        return found


def window_text(data: bytes, budget_bytes: int = 1_000_000, *, first: int = 0, **lines: int | str) -> str:
    return seek_window(Bytes(data), LineRange(**lines), first_byte=first, budget_bytes=budget_bytes).window.text()  # type: ignore[arg-type] # a table's values


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def files(top: Path) -> Iterator[FilesystemTools]:
    with Roots([RootSpec(str(top))], deny=DenyRules(DEFAULT_DENY)) as roots:
        yield FilesystemTools(roots, Limits(file_bytes=3_000_000))


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ({"head": 2}, "line 1\nline 2\n[lines 1 to 2, to byte 14 of 1088895; offset=3@14 reads on]\n"),
        ({"offset": 3, "limit": 1}, "line 3\n[line 3, to byte 21 of 1088895; offset=4@21 reads on]\n"),
        ({"offset": "4@21", "limit": 1}, "line 4\n[line 4, to byte 28 of 1088895; offset=5@28 reads on]\n"),
        ({"offset": 99_999}, "line 99999\nline 100000\n[lines 99999 to 100000 of 100000]\n"),
        ({"offset": 100_000, "limit": 9}, "line 100000\n[line 100000 of 100000]\n"),
        ({"tail": 1}, "line 100000\n[last line, of 1088895 bytes]\n"),
        ({"tail": 2}, "line 99999\nline 100000\n[last 2 lines, of 1088895 bytes]\n"),
    ],
)
def test_a_large_file_reports_its_lines_only_after_counting_them(
    files: FilesystemTools, top: Path, lines: dict[str, int | str], answer: str
) -> None:
    """filesystem-32."""
    (top / "log").write_bytes(NUMBERED)
    found = files.read_file("log", **lines)  # type: ignore[arg-type] # a table's values
    assert found.text() == answer
    assert found.facts().get("lines") == (100_000 if "of 100000" in answer else None)
    assert found.facts()["bytes"] == len(NUMBERED)


def test_a_large_file_comes_as_its_start_and_its_end(files: FilesystemTools, top: Path) -> None:
    """filesystem-5: the cursor continues where the start ends."""
    (top / "log").write_bytes(NUMBERED)
    answer = files.read_file("log").text()
    gap = re.search(r"\n\[\.\.\. (\d+) bytes left out, from line (\d+); offset=(\d+@\d+) reads on \.\.\.\]\n", answer)
    assert gap is not None
    assert len(answer) - len(gap.group()) + 1 + int(gap[1]) == len(NUMBERED)
    assert files.read_file("log", offset=gap[3], limit=1).content.startswith(f"line {gap[2]}\n")
    assert answer.endswith("\nline 100000\n")


@pytest.mark.parametrize(
    ("lines", "most"),
    [
        ({"head": 10}, BLOCK_BYTES),
        ({"tail": 10}, BLOCK_BYTES + 2),
        ({"cursor": "5000@43894", "limit": 10}, BLOCK_BYTES + 1),
        ({}, 30_000),
        ({"offset": 5_000, "limit": 10}, COUNT_BYTES + BLOCK_BYTES),
    ],
)
def test_no_more_is_read_than_is_shown(lines: dict[str, int | str], most: int) -> None:
    """filesystem-32: whatever the size of the file; an offset reads the text before it."""
    source = Bytes(NUMBERED * 10)
    seek_window(source, LineRange(**lines), first_byte=0, budget_bytes=20_000)  # type: ignore[arg-type] # a table's values
    assert source.read <= most


def test_the_lines_are_those_of_the_whole_text() -> None:
    """filesystem-32: for every range, whatever the budget, with multi-byte characters everywhere."""
    for seed in range(200):
        chance = random.Random(seed)
        pieces = ["é", "\U0001f600", "a", "\n", "\n", "\r\n", "\r"]
        text = "".join(chance.choice(pieces) * chance.randint(1, 9) for _ in range(chance.randint(0, 60)))
        data = text.encode()
        for _ in range(20):
            budget = chance.choice([8, 20, 100, 10_000])
            number = chance.randint(1, 40)
            ranges = [{"head": number}, {"tail": number}, {"offset": number, "limit": chance.randint(1, 9)}, {}]
            lines = LineRange(**chance.choice(ranges))
            try:
                expected = window(text, lines, display_path="a.txt", budget_bytes=budget)
            except InvalidArguments as error:
                with pytest.raises(InvalidArguments, match=re.escape(str(error))):
                    seek_window(Bytes(data), lines, first_byte=0, budget_bytes=budget)
                continue
            found = seek_window(Bytes(data), lines, first_byte=0, budget_bytes=budget)
            if lines == LineRange() and expected.gap:
                assert text.startswith(found.window.head), seed
                assert text.endswith(found.window.tail), seed
            else:
                assert found.window.head == expected.head, seed
                assert bool(found.window.note) == bool(expected.note), seed
            if found.lines is not None:
                assert found.lines == count_lines(text), seed


def test_reading_on_at_each_cursor_gives_the_whole_text() -> None:
    """filesystem-6: long lines too; every byte is read once."""
    for seed in range(100):
        chance = random.Random(seed)
        text = "".join(
            chance.choice(["é", "a", "\U0001f600"]) * chance.randrange(40) + chance.choice(["\n", "\r\n", ""])
            for _ in range(chance.randrange(1, 60))
        )
        source = Bytes(text.encode())
        read, cursor, line = "", "1@0", 1
        while source.size:
            found = seek_window(source, LineRange(cursor=cursor), first_byte=0, budget_bytes=50).window
            assert text.count("\n", 0, len(read)) + 1 == line, seed
            read += found.head
            next_part = re.search(r"offset=((\d+)@\d+) reads on", found.note)
            if next_part is None:
                break
            cursor, line = next_part[1], int(next_part[2])
        assert read == text, seed


@pytest.mark.parametrize("shift", range(4))
def test_a_character_on_the_border_of_two_blocks_is_whole(files: FilesystemTools, top: Path, shift: int) -> None:
    """filesystem-5: at block borders of the text, and of the start that is inspected."""
    text = "x" * shift + "\U0001f600" * (WHOLE_BYTES // 2) + "\nend"
    (top / "a").write_text(text)
    found = files.read_file("a", head=1).content
    assert "\ufffd" not in found
    assert text.startswith(found.partition("\n[")[0])
    assert files.read_file("a", tail=1).content == "end\n[last line, of " + f"{len(text.encode())} bytes]\n"
    (top / "a").write_text(text.removesuffix("\nend"))
    last = files.read_file("a", tail=1).content
    assert last.startswith("\U0001f600")
    assert last.endswith(f"\n[end of the last line, of {len(text.encode()) - 4} bytes]\n")


def test_one_line_of_10_megabytes_is_read_piece_by_piece() -> None:
    """filesystem-6: its end is searched for within 1 MiB only."""
    source = Bytes(b"x" * 10_000_000 + b"\nsecond\n")
    answer = seek_window(source, LineRange(), first_byte=0, budget_bytes=100).window.text()
    assert answer.startswith("x" * 50 + "\n[... 9999951 bytes left out, from line 1; offset=1@50 reads on ...]\n")
    assert answer.endswith("second\n")
    source.read = 0
    answer = seek_window(source, LineRange(head=1), first_byte=0, budget_bytes=100).window.note
    assert answer == "part of line 1, to byte 100 of 10000008; offset=1@100 reads on, offset=2 after it"
    assert source.read < 2 * COUNT_BYTES
    answer = seek_window(source, LineRange(cursor="1@9999800"), first_byte=0, budget_bytes=100).window.note
    assert answer.endswith("offset=1@9999900 reads on, offset=2@10000001 after 101 bytes that are left of it")
    assert window_text(source.data, 100, offset=2) == "second\n[line 2 of 2]\n"
    assert window_text(source.data, 100, tail=2).endswith("second\n[last line, of 10000008 bytes]\n")
    assert window_text(source.data[:-8], 100, tail=1).endswith("x\n[end of the last line, of 10000000 bytes]\n")


@pytest.mark.parametrize(
    ("data", "encoding", "line"),
    [
        pytest.param(b"\xef\xbb\xbf" + NUMBERED, "utf-8-sig", "line 1\n", id="mark"),
        pytest.param(NUMBERED.replace(b"\n", b"\r\n"), "utf-8", "line 1\r\n", id="crlf"),
        pytest.param(NUMBERED.decode().encode("utf-16"), "utf-16-le-bom", "line 1\n", id="utf-16"),
        pytest.param(NUMBERED.decode().encode("utf-16-be")[:600_000], "utf-16-be", "line 1\n", id="no mark"),
        pytest.param(b"caf\xe9\n" + NUMBERED, "iso-8859-1", "caf\xe9\n", id="western"),
        pytest.param(NUMBERED + b"caf\xe9\n", "utf-8", "line 1\n", id="western at its end"),
    ],
)
def test_every_encoding_has_its_first_and_last_line(
    files: FilesystemTools, top: Path, data: bytes, encoding: str, line: str
) -> None:
    """filesystem-7, filesystem-32: a file that is not UTF-8 in the requested part is read as a whole."""
    (top / "a").write_bytes(data)
    found = files.read_file("a", head=1)
    assert found.encoding == encoding
    assert found.content.startswith(f"{line}[line 1")
    if data.endswith(b"\xe9\n"):
        last = files.read_file("a", tail=1)
        assert (last.encoding, last.content) == ("iso-8859-1", "café\n[line 100001 of 100001]\n")
        assert files.read_file("a", offset="100001@1088895").content == last.content


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(WHOLE_BYTES), id="png"),
        pytest.param(b"text\n" * 10_000 + bytes(WHOLE_BYTES), id="later"),
    ],
)
def test_a_large_binary_file_is_described_where_it_shows(files: FilesystemTools, top: Path, data: bytes) -> None:
    """filesystem-8."""
    (top / "a").write_bytes(data)
    answer = files.read_file("a", tail=1)
    assert answer.facts()["bytes"] == len(data)
    assert answer.facts()["sha256"] == hashlib.sha256(data).hexdigest()


def test_a_sparse_file_of_10_gigabytes_is_read_in_parts(files: FilesystemTools, top: Path) -> None:
    """filesystem-10, filesystem-32: beyond `file_bytes`, the lines at its ends are returned at once."""
    with (top / "sparse").open("wb") as file:
        file.write(b"first\n" * 100_000)
        file.seek(10_000_000_000)
        file.write(b"\n\0\nlast\n")
    assert files.read_file("sparse", head=1).content.startswith("first\n[line 1, to byte 6 of 10000000008")
    assert files.read_file("sparse", tail=1).content == "last\n[last line, of 10000000008 bytes]\n"
    assert files.read_file("sparse", offset=100_000, limit=1).content.startswith("first\n[line 100000, to byte")
    assert files.read_file("sparse", tail=2).text().startswith("[sparse: binary, ")


def test_an_offset_is_looked_for_within_1_gib() -> None:
    """filesystem-32: the limit, and what would work."""

    class Endless(Bytes):
        def read_at(self, position: int, count: int) -> bytes:
            return self.data[:count]

    source = Endless(b"x" * COUNT_BYTES, size=10**12)
    with pytest.raises(TooLarge, match="LINE@BYTE") as caught:
        seek_window(source, LineRange(offset=2), first_byte=0, budget_bytes=100)
    assert caught.value.facts["limit"] == MOST_COUNTED_BYTES


@pytest.mark.parametrize("size", [WHOLE_BYTES + 1, 2 * COUNT_BYTES])
@pytest.mark.parametrize("end", [b"\n", b"x"])
def test_a_large_offset_behind_the_end_is_refused_with_the_number_of_lines(size: int, end: bytes) -> None:
    """filesystem-3: also where the file ends with a block."""
    data = (b"x\n" * size)[: size - 1] + end
    total = count_lines(data.decode())
    with pytest.raises(InvalidArguments, match=f"offset {total + 1} lies behind the end; it has {total} lines"):
        window_text(data, offset=total + 1)
    assert window_text(data, offset=total).endswith(f"[line {total} of {total}]\n")


@pytest.mark.parametrize("cursor", ["", "0", "0@0", "-1@2", "1@2@3", "a@b", "\u0661@0", "9" * 50 + "@1"])
def test_what_is_no_cursor_is_refused(files: FilesystemTools, top: Path, cursor: str) -> None:
    """filesystem-33."""
    (top / "a").write_text("text\n")
    with pytest.raises(InvalidArguments, match="LINE@BYTE"):
        files.read_file("a", offset=cursor)


def test_a_cursor_that_no_longer_fits_is_refused(files: FilesystemTools, top: Path) -> None:
    """filesystem-33: after the end, before the text, inside a character."""
    (top / "a").write_bytes(b"\xef\xbb\xbf" + "éé\n".encode())
    for position, message in ((8, "behind the end"), (0, "before the text"), (4, "was changed")):
        with pytest.raises(InvalidArguments, match=message):
            files.read_file("a", offset=f"1@{position}")
    assert files.read_file("a", offset="1@3").text() == "éé\n[utf-8-sig]\n"


@pytest.mark.parametrize("other", ["head", "tail"])
def test_a_cursor_goes_with_limit_alone(files: FilesystemTools, other: str) -> None:
    """filesystem-4."""
    with pytest.raises(InvalidArguments, match=f"{other} and offset together"):
        files.read_file("missing", **{other: 1}, offset="1@0")  # type: ignore[arg-type] # a table's names


def test_a_file_that_shrinks_during_a_read_is_reported() -> None:
    """filesystem-32: from its end; from its start the remaining text is returned."""
    shrunk = Bytes(NUMBERED[:500], size=len(NUMBERED))
    with pytest.raises(Conflict, match="shrinks"):
        seek_window(shrunk, LineRange(tail=3), first_byte=0, budget_bytes=1_000)
    found = seek_window(shrunk, LineRange(offset=2), first_byte=0, budget_bytes=1_000)
    assert found.window.head == NUMBERED[7:500].decode()


def test_bytes_appended_during_a_read_are_not_returned() -> None:
    """filesystem-32: they may be half a line."""
    grown = Bytes(NUMBERED, size=14)
    assert seek_window(grown, LineRange(), first_byte=0, budget_bytes=1_000).window.text() == "line 1\nline 2\n"
    assert seek_window(grown, LineRange(tail=1), first_byte=0, budget_bytes=1_000).window.head == "line 2\n"


def test_the_start_of_a_line_is_found_by_halves() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        data = bytes(chance.choices(b"x\n", [chance.choice([1, 30]), 1], k=chance.randint(1, 5_000)))
        count = chance.randint(0, data.count(b"\n"))
        at = after_lines(data, count)
        assert data.count(b"\n", 0, at) == count, seed
        assert at == 0 or data[at - 1 : at] == b"\n", seed


def test_random_bytes_are_answered_or_refused(files: FilesystemTools, top: Path) -> None:
    """filesystem-8, filesystem-32: the tool answers or refuses any content."""
    for seed in range(100):
        chance = random.Random(seed)
        alphabet = chance.choice([b"ab\n", b"a\xc3\xa9\n", bytes(range(256)), b"a\0\n", b"\xe9a\n"])
        size = WHOLE_BYTES + chance.randint(1, 9)
        repeated = bytes(chance.choices(alphabet, k=chance.randint(5_000, 20_000)))
        (top / "a").write_bytes((repeated * (size // 5_000 + 1))[:size])
        for lines in ({"head": 3}, {"tail": 3}, {"offset": 2, "limit": 2}, {}):
            with suppress(CoreError):
                assert files.read_file("a", **lines).size > WHOLE_BYTES, seed


def test_a_cursor_is_printed_in_the_form_that_is_accepted() -> None:
    """filesystem-33."""
    assert str(Cursor.parse("12@345")) == "12@345"
