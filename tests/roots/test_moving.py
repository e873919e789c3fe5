"""Moves: they replace nothing unless asked to, cross roots and file systems, and are atomic."""

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.errors import AlreadyExists, InvalidPath, NotFound, ReadOnly, Unsupported
from coretools.roots.root import RootSpec
from coretools.roots.write import move
from tests.roots.world import World, descriptors, opened, state


def test_a_file_and_a_directory_are_moved(world: World) -> None:
    """roots-23: the destination is the new path itself."""
    assert move(world.roots, "plain.txt", "./dir/moved.txt") == ("plain.txt", "dir/moved.txt")
    move(world.roots, "dir", "elsewhere")
    assert (world.root / "elsewhere" / "moved.txt").read_bytes() == b"plain"
    assert not (world.root / "dir").exists()


@pytest.mark.parametrize(
    ("source", "destination", "overwrite", "error"),
    [
        ("plain.txt", "dir/inner.txt", False, AlreadyExists),
        ("plain.txt", "dangling", False, AlreadyExists),
        ("plain.txt", "dir", False, AlreadyExists),
        ("plain.txt", "dir", True, AlreadyExists),
        ("dir", "empty", True, AlreadyExists),
        ("dir", "dir/sub/below", False, InvalidPath),
        ("missing", "new", False, NotFound),
        ("plain.txt", "missing/new", False, NotFound),
        ("plain.txt", "plain.txt", False, AlreadyExists),
    ],
)
def test_a_move_that_is_refused_changes_nothing(
    world: World, source: str, destination: str, overwrite: bool, error: type[Exception]
) -> None:
    """roots-23"""
    (world.root / "empty").mkdir()
    world.link("dangling", "nowhere")
    before, open_before = state(world.root), descriptors()
    with pytest.raises(error):
        move(world.roots, source, destination, overwrite=overwrite)
    assert state(world.root) == before
    assert descriptors() == open_before


def test_a_file_is_replaced_when_that_is_asked_for(world: World) -> None:
    """roots-23: a link at the destination is replaced, not followed."""
    world.link("link", "dir/inner.txt")
    move(world.roots, "plain.txt", "link", overwrite=True)
    assert (world.root / "link").read_bytes() == b"plain"
    assert not (world.root / "link").is_symlink()
    assert (world.root / "dir" / "inner.txt").read_bytes() == b"inner"


def test_a_file_moved_onto_itself_or_another_name_of_it_is_not_lost(world: World) -> None:
    """roots-23: rename(2) does nothing between two names of one file."""
    os.link(world.root / "plain.txt", world.root / "second.txt")
    move(world.roots, "plain.txt", "plain.txt", overwrite=True)
    assert (world.root / "plain.txt").read_bytes() == b"plain"
    move(world.roots, "plain.txt", "second.txt", overwrite=True)
    assert (world.root / "second.txt").read_bytes() == b"plain"
    assert not (world.root / "plain.txt").exists()


def test_of_many_moves_to_one_name_one_succeeds(world: World) -> None:
    """roots-23: check and move are atomic."""
    for number in range(8):
        (world.root / f"source-{number}").write_bytes(b"%d" % number)
    start = threading.Barrier(8)
    moved: list[int] = []

    def work(number: int) -> None:
        start.wait()
        try:
            move(world.roots, f"source-{number}", "target")
        except AlreadyExists:
            return
        moved.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in moved] == [(world.root / "target").read_bytes()]
    assert len(list(world.root.glob("source-*"))) == 7


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("a second file system: there is none at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


def test_a_file_moves_to_another_file_system_with_mode_and_time(world: World, elsewhere: Path, resolver: str) -> None:
    """roots-25"""
    source = world.root / "plain.txt"
    source.chmod(0o751)
    os.utime(source, (1_000_000, 2_000_000))
    with opened(world.root, elsewhere, resolver=resolver) as roots:
        assert move(roots, "plain.txt", f"{elsewhere}/there") == ("plain.txt", f"{elsewhere}/there")
        with pytest.raises(AlreadyExists):
            move(roots, "dir/inner.txt", f"{elsewhere}/there")
        move(roots, "dir/inner.txt", f"{elsewhere}/there", overwrite=True)
    assert not source.exists()
    assert (elsewhere / "there").read_bytes() == b"inner"
    assert os.listdir(elsewhere) == ["there"]


def test_mode_and_time_go_along(world: World, elsewhere: Path, resolver: str) -> None:
    """roots-25"""
    (world.root / "plain.txt").chmod(0o751)
    os.utime(world.root / "plain.txt", (1_000_000, 2_000_000))
    with opened(world.root, elsewhere, resolver=resolver) as roots:
        move(roots, "plain.txt", f"{elsewhere}/there")
    found = (elsewhere / "there").stat()
    assert (found.st_mode & 0o777, found.st_mtime) == (0o751, 2_000_000)


def test_a_directory_does_not_move_to_another_file_system(world: World, elsewhere: Path, resolver: str) -> None:
    """roots-25: a failed move changes nothing."""
    before = state(world.root)
    with opened(world.root, elsewhere, resolver=resolver) as roots, pytest.raises(Unsupported, match="file system"):
        move(roots, "dir", f"{elsewhere}/dir")
    assert state(world.root) == before
    assert os.listdir(elsewhere) == []


def test_a_move_between_roots_needs_the_right_to_change_both(world: World, resolver: str) -> None:
    """roots-15"""
    before = state(world.root.parent)
    with opened(world.root, RootSpec(str(world.outside), writable=False), resolver=resolver) as roots:
        for source, destination in (("plain.txt", "{}/new"), ("{}/secret.txt", "new")):
            with pytest.raises(ReadOnly):
                move(roots, source.format(world.outside), destination.format(world.outside))
    assert state(world.root.parent) == before
