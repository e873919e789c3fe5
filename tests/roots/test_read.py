"""Files, status, listings and walks as a caller gets them."""

import os
import stat
from pathlib import Path

import pytest

from coretools.errors import NotFound, PermissionRefused, TooLarge, WrongType
from coretools.roots.directory_listing import WalkEntry, list_directory
from coretools.roots.file_version import version_of
from coretools.roots.read import file_status, kind_at, open_directory, open_file, read_bytes
from coretools.roots.write import write_bytes
from tests.roots.world import READS, Operation, World, descriptors, walk


def everything(_directory: str, found: list[WalkEntry]) -> list[WalkEntry]:
    return found


@pytest.mark.parametrize("size", [0, 1, 4096, 65_536, 1_048_576, 3_000_001])
def test_a_file_is_read_whole(world: World, size: int) -> None:
    """roots-6"""
    data = os.urandom(size)
    (world.root / "data").write_bytes(data)
    content = read_bytes(world.roots, "data", limit_bytes=size)
    assert content.data == data
    assert content.version == file_status(world.roots, "data").version


@pytest.mark.parametrize(("size", "limit"), [(1, 0), (100, 99), (2_000_000, 1_999_999)])
def test_a_file_over_the_limit_is_refused(world: World, size: int, limit: int) -> None:
    """roots-6: with its size."""
    (world.root / "data").write_bytes(bytes(size))
    with pytest.raises(TooLarge) as caught:
        read_bytes(world.roots, "data", limit_bytes=limit)
    assert caught.value.facts == {"path": "data", "size": size, "limit": limit}


def test_a_file_that_grows_while_it_is_open_is_read_up_to_the_limit(world: World) -> None:
    """roots-6: the initial size is not trusted."""
    with open_file(world.roots, "plain.txt") as file:
        with (world.root / "plain.txt").open("ab") as more:
            more.write(bytes(500_000))
        assert file.size == len(b"plain")
        with pytest.raises(TooLarge):
            file.read(100_000)


def test_an_open_file_stays_what_it_was_when_another_takes_its_name(world: World) -> None:
    """roots-1: the file that was checked is the file that is read."""
    with open_file(world.roots, "plain.txt") as file:
        (world.root / "plain.txt").unlink()
        (world.root / "plain.txt").symlink_to(world.outside / "secret.txt")
        assert file.read(100) == b"plain"


def test_a_directory_is_no_file_and_a_file_no_directory(world: World) -> None:
    """roots-5"""
    before = descriptors()
    with pytest.raises(WrongType, match="a directory, not a regular file"):
        open_file(world.roots, "dir")
    with pytest.raises(WrongType, match="a file, not a directory"):
        open_directory(world.roots, "plain.txt")
    with pytest.raises(WrongType):
        open_file(world.roots, "plain.txt/below")
    assert descriptors() == before


@pytest.mark.parametrize("operation", READS.values(), ids=READS)
@pytest.mark.parametrize("path", ["missing", "dir/missing", "missing/below", "dangling"])
def test_a_missing_file_is_reported_as_missing(world: World, operation: Operation, path: str) -> None:
    """roots-18: and no descriptor leaks."""
    world.link("dangling", "missing")
    before = descriptors()
    if operation is kind_at:
        assert operation(world.roots, path) == ("link" if path == "dangling" else None)
    elif operation is file_status and path == "dangling":
        assert file_status(world.roots, path).kind == "link"
    else:
        with pytest.raises(NotFound):
            operation(world.roots, path)
    assert descriptors() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions: root may read everything")
def test_a_file_without_read_permission_is_reported_as_refused(world: World) -> None:
    """roots-18"""
    (world.root / "plain.txt").chmod(0)
    with pytest.raises(PermissionRefused):
        world.read("plain.txt")


def test_status_says_kind_and_version(world: World) -> None:
    """roots-18: links are followed."""
    file = world.root / "plain.txt"
    os.utime(file, (1_000_000, 1_000_000.5))
    world.link("link", "plain.txt")
    found = file_status(world.roots, "link")
    assert (found.kind, found.version) == ("file", version_of(file.stat()))
    assert (found.version.size, found.version.modified_ns) == (5, 1_000_000_500_000_000)
    assert file_status(world.roots, "dir").kind == "directory"


def test_a_listing_is_sorted_and_counts_what_it_cuts(world: World) -> None:
    """roots-11: names are sorted, and links are listed as links."""
    world.link("a-link", world.outside)
    listing = list_directory(world.roots, ".", limit=3)
    assert [(entry.name, entry.kind, entry.size) for entry in listing.entries] == [
        ("a-link", "link", None),
        ("dir", "directory", None),
        ("plain.txt", "file", 5),
    ]
    (world.root / "z").mkdir()
    again = list_directory(world.roots, ".", limit=3)
    assert (len(again.entries), again.total) == (3, 4)


def test_names_that_are_no_utf_8_stop_neither_listing_nor_walk(world: World) -> None:
    """roots-11: they are displayed with their bytes."""
    os.mkdir(os.fsencode(world.root) + b"/d\xff")
    with open(os.fsencode(world.root) + b"/d\xff/f\xfe", "wb"):
        pass
    assert "d\\xff" in [entry.name for entry in list_directory(world.roots, ".", limit=9).entries]
    met = [os.fsencode(relative) for relative, _ in walk(world.roots, ".", choose=everything, most=99)]
    assert b"d\xff/f\xfe" in met


def test_a_walk_visits_all_entries_in_order_and_follows_no_link(world: World) -> None:
    """roots-19"""
    world.link("dir/out", world.outside)
    world.link("dir/up", "..")
    os.mkfifo(world.root / "dir" / "pipe")
    assert list(walk(world.roots, ".", choose=everything, most=99)) == [
        ("dir", "directory"),
        ("dir/inner.txt", "file"),
        ("dir/out", "link"),
        ("dir/pipe", "device"),
        ("dir/sub", "directory"),
        ("dir/sub/deep.txt", "file"),
        ("dir/up", "link"),
        ("plain.txt", "file"),
    ]


def test_a_walk_enters_nothing_that_is_skipped_and_ends_at_its_limit(world: World) -> None:
    """roots-19"""
    asked = []

    def choose(directory: str, found: list[WalkEntry]) -> list[WalkEntry]:
        asked.append((directory, found))
        return [one for one in found if one[0] != "sub"]

    met = [relative for relative, _ in walk(world.roots, "dir", choose=choose, most=99)]
    assert met == ["dir/inner.txt"]
    assert asked == [("dir", [("inner.txt", "file"), ("sub", "directory")])]
    assert len(list(walk(world.roots, ".", choose=everything, most=2))) == 2


def test_a_walk_holds_nothing_open_between_two_steps(world: World) -> None:
    """roots-19: the iterator may be abandoned."""
    before = descriptors()
    steps = walk(world.roots, ".", choose=everything, most=99)
    next(steps)
    next(steps)
    assert descriptors() == before


def test_a_walk_does_not_enter_a_directory_that_turned_into_a_link(world: World) -> None:
    """roots-19: nor one that was deleted."""
    met = []
    for relative, _ in walk(world.roots, ".", choose=everything, most=99):
        met.append(relative)
        if relative == "dir":
            (world.root / "dir").rename(world.root / "other")
            (world.root / "dir").symlink_to(world.outside)
    assert met == ["dir", "plain.txt"]


def test_a_walk_goes_deep_without_a_descriptor_for_each_level(world: World) -> None:
    """roots-19"""
    (world.root / ("d/" * 300)).mkdir(parents=True)
    before = descriptors()
    depth = 0
    for relative, _ in walk(world.roots, "d", choose=everything, most=9_999):
        depth += 1
        if relative.count("/") == 250:
            assert descriptors() == before
    assert depth == 299


def test_a_deep_path_is_followed_by_dots_with_few_descriptors(world: World) -> None:
    """roots-3"""
    path = Path("dir/sub")
    (world.root / path / "e" / "f").mkdir(parents=True)
    assert world.read("/".join(["dir/sub/e/f/../../../.."] * 150) + "/plain.txt") == b"plain"


def test_a_missing_path_offers_names_that_are_there(world: World) -> None:
    """roots-29: with another case or a typing error; through a link, and where a directory is the missing name."""
    (world.root / "README.md").write_text("x")
    (world.root / "dir" / "settings.toml").write_text("x")
    world.link("way", "dir")
    for path, hint in (
        ("readme.MD", "did you mean README.md?"),
        ("dir/setings.toml", "did you mean dir/settings.toml?"),
        ("way/setting.toml", "did you mean way/settings.toml?"),
        ("dirr/settings.toml", "did you mean dir?"),
        ("quite-different", "nothing at this path"),
    ):
        with pytest.raises(NotFound) as caught:
            world.read(path)
        assert str(caught.value).endswith(hint)


def test_a_dangling_link_is_reported(world: World) -> None:
    """roots-29: the path is a link whose target is missing."""
    world.link("dangling", "dir/gone-for-good")
    world.link("to-dangling", "dangling")
    for path in ("dangling", "to-dangling", "dir/../dangling", f"{world.root}/dangling"):
        with pytest.raises(NotFound, match="a link leads to dir/gone-for-good, where there is nothing"):
            world.read(path)
    with pytest.raises(NotFound, match="there is nothing at this path"):
        world.read(f"{world.root}/dir/../quite-different")


def test_versions_differ_after_every_write(world: World) -> None:
    """roots-20: also when writes of one size follow each other within one tick of the clock."""
    seen = {file_status(world.roots, "plain.txt").version}
    for number in range(100):
        write_bytes(world.roots, "plain.txt", b"%05d" % number)
        seen.add(file_status(world.roots, "plain.txt").version)
    assert len(seen) == 101


def test_reading_leaves_no_trace(world: World) -> None:
    """roots-1: no read operation changes a mode or a time."""
    before = [(path, path.lstat().st_mode, path.lstat().st_mtime_ns) for path in sorted(world.root.rglob("*"))]
    for operation in READS.values():
        for path in ("plain.txt", "dir"):
            try:
                operation(world.roots, path)
            except WrongType:
                continue
    assert before == [(path, path.lstat().st_mode, path.lstat().st_mtime_ns) for path in sorted(world.root.rglob("*"))]
    assert stat.S_ISREG((world.root / "plain.txt").lstat().st_mode)
