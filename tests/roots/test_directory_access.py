"""Access to an open directory: status, reads and subdirectories by descriptor."""

import os
import socket
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from coretools.errors import CoreError, NotFound, OutsideRoot, TooLarge, WrongType
from coretools.roots import directory_access
from coretools.roots.file_version import Version


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_text("text")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "directory-link").symlink_to("directory")
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_the_kind_of_every_entry_is_reported(handle: int) -> None:
    """git-13: links are links, whatever their target; a second call returns the same."""
    expected = {"file": "file", "directory": "directory", "link": "link", "directory-link": "link", "fifo": "other"}
    for _ in range(2):
        assert directory_access.entry_kinds(handle) == expected
    assert {name: directory_access.entry_kind(handle, name) for name in expected} == expected
    assert directory_access.entry_kind(handle, "nothing") is None
    assert directory_access.special_entries(handle, ".") == {"link": "link", "directory-link": "link", "fifo": "other"}
    assert directory_access.special_entries(handle, "directory") == {}
    assert directory_access.special_entries(handle, "nothing") is None


def test_the_kind_of_a_socket_is_reported(handle: int, tmp_path: Path) -> None:
    """git-13: git's fsmonitor leaves one in its directory."""
    # The path of a socket has at most 107 bytes (unix(7)).
    with chdir(tmp_path), socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
    assert directory_access.entry_kind(handle, "s") == "socket"
    assert directory_access.entry_kinds(handle)["s"] == "socket"


@pytest.mark.parametrize(
    ("name", "error"),
    [("link", OutsideRoot), ("fifo", WrongType), ("directory", WrongType), ("nothing", NotFound)],
)
def test_only_a_regular_file_is_read(handle: int, name: str, error: type[CoreError]) -> None:
    """git-13: no link is followed, and nothing blocks."""
    with pytest.raises(error):
        directory_access.read_file(handle, name, limit_bytes=10)


def test_a_file_is_read_up_to_its_limit(handle: int) -> None:
    """git-13: and not one byte more."""
    assert directory_access.read_file(handle, "file", limit_bytes=4) == b"text"
    with pytest.raises(TooLarge):
        directory_access.read_file(handle, "file", limit_bytes=3)


@pytest.mark.parametrize("name", ["directory-link", "file", "nothing", "fifo"])
def test_only_a_directory_is_opened(handle: int, name: str) -> None:
    """git-13: not the target of a link."""
    with pytest.raises(CoreError), directory_access.open_subdirectory(handle, name):
        pass
    if name != "nothing":
        with pytest.raises(CoreError):
            directory_access.special_entries(handle, name)


def test_a_version_changes_with_the_file(handle: int, tmp_path: Path) -> None:
    """git-18: also for a change that keeps size and modification time."""
    before = directory_access.entry_version(handle, "file")
    (tmp_path / "new").write_text("tex2")
    os.utime(tmp_path / "new", ns=(before.modified_ns, before.modified_ns) if before else None)
    (tmp_path / "new").rename(tmp_path / "file")
    assert before != directory_access.entry_version(handle, "file")
    assert directory_access.entry_version(handle, "nothing") is None


@pytest.mark.parametrize(
    ("changed_ns", "at_ns", "is_settled"),
    [
        (5_000_000_001, 5_100_000_001, False),
        (5_000_000_001, 5_100_000_002, True),
        (5_000_000_000, 5_900_000_000, False),
        (5_000_000_000, 7_100_000_000, False),
        (5_000_000_000, 7_100_000_001, True),
    ],
)
def test_a_version_is_trusted_when_the_next_change_will_show(changed_ns: int, at_ns: int, is_settled: bool) -> None:
    """git-18, confinement-26: later for times in whole seconds, and by the later of both times (FAT has only one)."""
    assert Version(1, 2, 3, changed_ns, changed_ns).is_settled(at_ns) is is_settled
    assert Version(1, 2, 3, changed_ns, 1).is_settled(at_ns) is is_settled
    assert Version(1, 2, 3, 1, changed_ns).is_settled(at_ns) is is_settled
