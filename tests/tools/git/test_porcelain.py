"""git's machine-readable output, parsed."""

import pytest

from coretools.errors import GitRefused
from coretools.tools.git.repository.porcelain import StatusEntry, as_text, quoted, read_records, read_status

HEADERS = b"# branch.oid 1234\0# branch.head main\0"


@pytest.mark.parametrize(
    ("record", "entry", "states"),
    [
        (b"1 .M N... 100644 100644 100644 aa bb a b.txt", StatusEntry(b"a b.txt", ".M"), ("", "modified")),
        (b"1 MD N... 100644 100644 000000 aa bb a", StatusEntry(b"a", "MD"), ("modified", "deleted")),
        (b"1 A. N... 000000 100644 100644 aa bb a\nb", StatusEntry(b"a\nb", "A."), ("added", "")),
        (b"1 .T N... 100644 100644 120000 aa bb a", StatusEntry(b"a", ".T"), ("", "type changed")),
        (b"2 R. N... 100644 100644 100644 aa bb R100 new\0old", StatusEntry(b"new", "R.", b"old"), ("renamed", "")),
        (b"u UU N... 1 2 3 4 aa bb cc a", StatusEntry(b"a", "UU"), ("conflict", "both modified")),
        (b"u DU N... 1 2 3 4 aa bb cc a", StatusEntry(b"a", "DU"), ("conflict", "deleted by us")),
        (b"u AA N... 1 2 3 4 aa bb cc a", StatusEntry(b"a", "AA"), ("conflict", "both added")),
        (b"? ? x", StatusEntry(b"? x", "??"), ("", "untracked")),
        (b"! x", StatusEntry(b"x", "!!"), ("", "ignored")),
    ],
)
def test_each_kind_of_entry_is_read(record: bytes, entry: StatusEntry, states: tuple[str, str]) -> None:
    """git-1: every path with its staged and unstaged changes."""
    status = read_status(HEADERS + record + b"\0")
    assert status.entries == (entry,)
    assert (entry.staged, entry.unstaged) == states


@pytest.mark.parametrize(
    ("headers", "where", "upstream", "distance"),
    [
        (b"# branch.oid 12\0# branch.head main\0", "branch main", "", (0, 0)),
        (b"# branch.oid (initial)\0# branch.head main\0", "branch main (no commits yet)", "", (0, 0)),
        (b"# branch.oid 1234567890ab\0# branch.head (detached)\0", "HEAD detached at 1234567890", "", (0, 0)),
        (
            b"# branch.oid 12\0# branch.head x\0# branch.upstream o/x\0# branch.ab +2 -3\0",
            "branch x",
            "o/x",
            (2, 3),
        ),
        (b"# branch.oid 12\0# branch.head x\0# branch.upstream o/x\0", "branch x", "o/x", (0, 0)),
    ],
    ids=["plain", "unborn", "detached", "with upstream", "upstream gone"],
)
def test_the_branch_is_read(headers: bytes, where: str, upstream: str, distance: tuple[int, int]) -> None:
    """git-2: detached and unborn are states, not errors."""
    status = read_status(headers)
    assert (status.where, status.upstream, (status.ahead, status.behind)) == (where, upstream, distance)


@pytest.mark.parametrize("record", [b"9 x", b"1 .M", b"1 .Z N... 1 1 1 a b path", b"2 R. N... 1 1 1 a b R1 new"])
def test_a_format_that_is_not_known_is_refused(record: bytes) -> None:
    """git-1: nothing is guessed."""
    with pytest.raises(GitRefused):
        read_status(record)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"plain.txt", "plain.txt"),
        (b"with blank", "with blank"),
        ("größe".encode(), "größe"),
        (b" edge", '" edge"'),
        (b'q"uote', '"q\\"uote"'),
        (b"back\\slash", '"back\\\\slash"'),
        (b"new\nline", '"new\\nline"'),
        (b"esc\x1b[31m", '"esc\\x1b[31m"'),
        (b"caf\xe9", '"caf\\xe9"'),
        (b"a -> b", '"a -> b"'),
        ("rtl\u202e".encode(), '"rtl\\u202e"'),
        (b"", '""'),
    ],
)
def test_a_name_that_would_mislead_is_quoted(name: bytes, text: str) -> None:
    """git-3: a name never ends a line or overwrites it on a terminal."""
    assert quoted(name) == text


def test_a_name_that_is_not_utf_8_is_displayed_with_its_bytes() -> None:
    """git-3: nothing is dropped."""
    assert as_text(b"caf\xe9") == "caf\\xe9"


def test_records_that_were_cut_are_left_out() -> None:
    """git-6: an incomplete record is ignored."""
    assert read_records(b"a\0b\0c\0d", 2) == [[b"a", b"b"]]
