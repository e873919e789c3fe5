"""Files outside the roots are inspected, never opened."""

import os
from pathlib import Path

import pytest

from coretools.roots.file_version import is_harmless_to_open


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("file", True),
        ("link to file", True),
        ("missing", True),
        ("file/below", True),
        ("link to nothing", True),
        ("long file", False),
        ("directory", False),
        ("fifo", False),
        ("link to fifo", False),
        ("loop", False),
        ("x" * 300, False),
    ],
)
def test_only_a_short_regular_file_or_nothing_may_be_opened(tmp_path: Path, name: str, expected: bool) -> None:
    """git-26: opening a FIFO would block; the check does not."""
    (tmp_path / "file").write_bytes(b"x" * 10)
    (tmp_path / "long file").write_bytes(b"x" * 11)
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for target in ("file", "fifo"):
        (tmp_path / f"link to {target}").symlink_to(target)
    (tmp_path / "link to nothing").symlink_to("missing")
    (tmp_path / "loop").symlink_to("loop")
    assert is_harmless_to_open(str(tmp_path / name), limit_bytes=10) is expected


def test_a_device_may_not_be_opened() -> None:
    """git-26: reading some devices has side effects."""
    assert not is_harmless_to_open("/dev/null", limit_bytes=10)
