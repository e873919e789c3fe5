"""What is kept of an output (docs/specs/programs.md)."""

import pytest

from coretools.truncation import Excerpter


@pytest.mark.parametrize("pieces", [(b"0123456789abcdef",), (b"0123", b"456789", b"abcdef")])
def test_an_excerpt_is_all_of_an_output_that_fits_and_else_its_start_and_end(pieces: tuple[bytes, ...]) -> None:
    """programs-7"""
    kept = Excerpter(16)
    for piece in pieces:
        kept.feed(piece)
    whole = kept.excerpt()
    assert (whole.head, whole.tail, whole.dropped_bytes) == (b"0123456789abcdef", b"", 0)
    assert f"{whole}" == whole.text() == "0123456789abcdef"
    kept.feed(b"ghij")
    part = kept.excerpt()
    assert (part.head, part.tail, part.dropped_bytes) == (b"0123", b"89abcdefghij", 4)
    assert f"{part}" == part.text() == "0123\n[... 4 bytes left out ...]\n89abcdefghij"
