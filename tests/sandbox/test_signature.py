"""Signatures: what fstat says, and what is mounted."""

import os
import sys
from pathlib import Path

import pytest

from coretools.sandbox import inside
from coretools.sandbox.signature import mount_of, signature, stamp_from
from tests.sandbox.world import mounted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="statx: this is not Linux")


def signed(path: Path) -> bytes:
    fd = os.open(path, os.O_PATH)
    try:
        return signature(fd)
    finally:
        os.close(fd)


def test_a_signature_says_what_a_stamp_says(tmp_path: Path) -> None:
    """sandbox-28: of a directory, of a file, and of times before 1970."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", ns=(-1_500_000_000, -1_500_000_000))
    for path in (tmp_path, tmp_path / "file", tmp_path / "old"):
        parent = os.open(path.parent, os.O_RDONLY)
        assert stamp_from(signed(path)) == inside.stamp(parent, path.name)
        os.close(parent)


def test_any_change_changes_it(tmp_path: Path) -> None:
    """sandbox-28: a time that is set back too."""
    path = tmp_path / "file"
    path.write_bytes(b"a")
    first = signed(path)
    os.utime(path, (1, 1))
    second = signed(path)
    path.rename(tmp_path / "other")
    path.write_bytes(b"a")
    assert len({first, second, signed(path)}) == 3
    assert signed(path) == signed(path)


def test_a_mount_shows(tmp_path: Path) -> None:
    """sandbox-28"""
    place = tmp_path / "mounted"
    with mounted("tmpfs", "size=1m", place):
        assert mount_of(signed(place)) != mount_of(signed(tmp_path))
    assert mount_of(signed(place)) == mount_of(signed(tmp_path))
