"""Writes are atomic and leave nothing behind; no change is lost."""

import errno
import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coretools.errors import AlreadyExists, Conflict, CoreError, InputOutput, NotFound, PermissionRefused, WrongType
from coretools.roots.directory_access import core_error_for
from coretools.roots.read import file_status, read_bytes
from coretools.roots.replace import rename_without_flags
from coretools.roots.write import create_directory, delete_file, write_bytes
from tests.roots.world import PLENTY, World, descriptors, mounted, opened, state


def test_a_new_file_is_created_with_the_mode_that_the_umask_leaves(world: World) -> None:
    """roots-21"""
    old = os.umask(0o027)
    try:
        written = write_bytes(world.roots, "new.txt", b"content")
    finally:
        os.umask(old)
    assert (written.display_path, written.created, written.size) == ("new.txt", True, 7)
    assert (world.root / "new.txt").read_bytes() == b"content"
    assert (world.root / "new.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o664])
def test_a_file_keeps_its_mode(world: World, mode: int) -> None:
    """roots-21: a script stays executable, a private file private."""
    (world.root / "plain.txt").chmod(mode)
    assert write_bytes(world.roots, "plain.txt", b"changed").created is False
    found = (world.root / "plain.txt").stat()
    assert (found.st_mode & 0o7777, found.st_size) == (mode, 7)


def test_the_set_user_id_bit_goes_with_the_content(world: World) -> None:
    """roots-21: as with write(2)."""
    (world.root / "plain.txt").chmod(0o4755)
    write_bytes(world.roots, "plain.txt", b"changed")
    assert (world.root / "plain.txt").stat().st_mode & 0o7777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="chown: only root may give files away")
def test_a_file_keeps_its_owner_where_that_is_allowed(world: World) -> None:
    """roots-21"""
    os.chown(world.root / "plain.txt", 12_345, 54_321)
    write_bytes(world.roots, "plain.txt", b"changed")
    found = (world.root / "plain.txt").stat()
    assert (found.st_uid, found.st_gid) == (12_345, 54_321)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions: root may write everything")
def test_a_write_protected_file_is_not_replaced(world: World) -> None:
    """roots-21: although the directory would permit it."""
    (world.root / "plain.txt").chmod(0o444)
    with pytest.raises(PermissionRefused):
        write_bytes(world.roots, "plain.txt", b"changed")
    assert (world.root / "plain.txt").read_bytes() == b"plain"


def test_a_link_is_written_through_and_stays_a_link(world: World) -> None:
    """roots-4"""
    world.link("link", "dir/inner.txt")
    world.link("dangling", "dir/new.txt")
    write_bytes(world.roots, "link", b"changed")
    write_bytes(world.roots, "dangling", b"created")
    assert (world.root / "link").is_symlink()
    assert (world.root / "dir" / "inner.txt").read_bytes() == b"changed"
    assert (world.root / "dir" / "new.txt").read_bytes() == b"created"


def test_whoever_reads_meanwhile_sees_the_old_or_the_new_content(world: World) -> None:
    """roots-21: never a part of either."""
    contents = [bytes([letter]) * 300_000 for letter in b"ab"]
    (world.root / "data").write_bytes(contents[0])
    seen: set[bytes] = set()
    done = threading.Event()

    def read_all() -> None:
        while not done.is_set():
            seen.add((world.root / "data").read_bytes())

    reader = threading.Thread(target=read_all)
    reader.start()
    for number in range(100):
        write_bytes(world.roots, "data", contents[number % 2])
    done.set()
    reader.join()
    assert seen <= set(contents)


def test_parents_are_created_only_when_asked_for(world: World) -> None:
    """roots-22"""
    before = state(world.root)
    with pytest.raises(NotFound, match="new"):
        write_bytes(world.roots, "dir/new/deep/file", b"")
    with pytest.raises(NotFound):
        create_directory(world.roots, "dir/new/deep", parents=False)
    assert state(world.root) == before
    world.link("link", "dir")
    write_bytes(world.roots, "link/new/deep/file", b"content", parents=True)
    assert (world.root / "dir" / "new" / "deep" / "file").read_bytes() == b"content"


def test_creating_a_directory_says_whether_it_did(world: World) -> None:
    """roots-22"""
    world.link("link", "dir")
    assert create_directory(world.roots, "a/b/c") is True
    assert create_directory(world.roots, "a/b/c") is False
    assert create_directory(world.roots, "link") is False
    assert create_directory(world.roots, "link/made", parents=False) is True
    with pytest.raises(AlreadyExists, match="file"):
        create_directory(world.roots, "plain.txt")
    assert (world.root / "dir" / "made").is_dir()


def test_nothing_is_replaced_unless_that_is_asked_for(world: World) -> None:
    """roots-23"""
    before = state(world.root)
    with pytest.raises(AlreadyExists):
        write_bytes(world.roots, "plain.txt", b"changed", overwrite=False)
    with pytest.raises(WrongType):
        write_bytes(world.roots, "dir", b"changed")
    assert state(world.root) == before
    assert write_bytes(world.roots, "new.txt", b"", overwrite=False).created is True


def test_of_many_that_create_one_file_one_succeeds(world: World) -> None:
    """roots-23: check and creation are atomic."""
    start = threading.Barrier(8)
    created: list[int] = []

    def create(number: int) -> None:
        start.wait()
        try:
            write_bytes(world.roots, "new.txt", b"%d" % number, overwrite=False)
        except AlreadyExists:
            return
        created.append(number)

    together(create, 8)
    assert [b"%d" % number for number in created] == [(world.root / "new.txt").read_bytes()]


def test_a_change_since_the_read_is_a_conflict(world: World) -> None:
    """roots-20: detected by content, by replacement, by removal; nothing is written."""
    for change in (
        lambda path: path.write_bytes(b"other"),
        lambda path: (path.unlink(), path.write_bytes(b"plain")),
        lambda path: path.unlink(),
    ):
        (world.root / "plain.txt").write_bytes(b"plain")
        version = file_status(world.roots, "plain.txt").version
        change(world.root / "plain.txt")
        before, open_before = state(world.root), descriptors()
        with pytest.raises(Conflict):
            write_bytes(world.roots, "plain.txt", b"mine", expected=version)
        assert state(world.root) == before
        assert descriptors() == open_before


def test_no_change_is_lost_between_calls_that_expect_a_version(world: World) -> None:
    """roots-20: eight callers count to 25 each in one file."""
    (world.root / "count").write_bytes(b"000")

    def count(_number: int) -> None:
        for _ in range(25):
            while True:
                content = read_bytes(world.roots, "count", limit_bytes=PLENTY)
                try:
                    write_bytes(world.roots, "count", b"%03d" % (int(content.data) + 1), expected=content.version)
                except Conflict:
                    continue
                break

    together(count, 8)
    assert (world.root / "count").read_bytes() == b"200"


def test_deleting_says_the_path_and_refuses_directories(world: World) -> None:
    """roots-4"""
    assert delete_file(world.roots, "./dir//inner.txt") == "dir/inner.txt"
    assert not (world.root / "dir" / "inner.txt").exists()
    with pytest.raises(WrongType, match="directory"):
        delete_file(world.roots, "dir")
    with pytest.raises(NotFound):
        delete_file(world.roots, "dir/inner.txt")
    world.link("link", "dir")
    with pytest.raises(WrongType):
        delete_file(world.roots, "link/")
    delete_file(world.roots, "link")
    assert (world.root / "dir").is_dir()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Make writes beyond `size` bytes fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("path", ["plain.txt", "new.txt", "new/deep/file"])
def test_a_write_that_fails_half_way_leaves_nothing_behind(world: World, path: str) -> None:
    """roots-24: no temporary file, no directory, no descriptor; the old content is kept."""
    before, open_before = state(world.root), descriptors()
    with file_size_limit(65_536), pytest.raises(InputOutput):
        write_bytes(world.roots, path, bytes(2_000_000), parents=True)
    assert set(state(world.root)) == set(before)
    assert (world.root / "plain.txt").read_bytes() == b"plain"
    assert descriptors() == open_before


def test_a_full_disk_is_an_error_and_leaves_the_old_content(world: World, resolver: str) -> None:
    """roots-24: on a real one."""
    with mounted("tmpfs", "size=256k", world.root.parent / "disk") as disk:
        (disk / "kept.txt").write_bytes(b"kept")
        with opened(disk, resolver=resolver) as roots:
            for path in ("kept.txt", "new/file"):
                with pytest.raises(InputOutput, match="disk is full"):
                    write_bytes(roots, path, bytes(1_000_000), parents=True)
            assert sorted(os.listdir(disk)) == ["kept.txt"]
            assert (disk / "kept.txt").read_bytes() == b"kept"
            write_bytes(roots, "kept.txt", b"there is room again")


def test_a_read_only_mount_is_reported(world: World, resolver: str) -> None:
    """roots-18"""
    with mounted("tmpfs", "size=256k", world.root.parent / "disk") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with opened(disk, resolver=resolver) as roots, pytest.raises(CoreError) as caught:
            write_bytes(roots, "new.txt", b"")
    assert caught.value.kind == "read-only"


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions: root may write everywhere")
def test_a_directory_that_may_not_be_written_refuses(world: World) -> None:
    """roots-18"""
    (world.root / "dir").chmod(0o555)
    for operation in (
        lambda: write_bytes(world.roots, "dir/new", b""),
        lambda: create_directory(world.roots, "dir/new"),
        lambda: delete_file(world.roots, "dir/inner.txt"),
    ):
        with pytest.raises(PermissionRefused):
            operation()
    (world.root / "dir").chmod(0o755)


@pytest.mark.parametrize("what", ["file", "link", "directory"])
def test_without_renameat2_nothing_is_replaced_either(tmp_path: Path, what: str) -> None:
    """roots-23: link(2) and mkdir(2) fail if the name exists."""
    source = tmp_path / "source"
    if what == "directory":
        source.mkdir()
        (source / "inside").write_bytes(b"")
    elif what == "link":
        source.symlink_to("nowhere")
    else:
        source.write_bytes(b"content")
    (tmp_path / "taken").write_bytes(b"taken")
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        before = state(tmp_path)
        with pytest.raises(FileExistsError):
            rename_without_flags(handle, "source", handle, "taken")
        assert set(state(tmp_path)) == set(before)
        rename_without_flags(handle, "source", handle, "free")
    finally:
        os.close(handle)
    assert sorted(os.listdir(tmp_path)) == ["free", "taken"]
    assert (tmp_path / "taken").read_bytes() == b"taken"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, "not-found"),
        (errno.EACCES, "permission-refused"),
        (errno.EPERM, "permission-refused"),
        (errno.EROFS, "read-only"),
        (errno.EEXIST, "already-exists"),
        (errno.ENOTDIR, "wrong-type"),
        (errno.EISDIR, "wrong-type"),
        (errno.ELOOP, "outside-root"),
        (errno.EXDEV, "outside-root"),
        (errno.ENAMETOOLONG, "invalid-path"),
        (errno.EBUSY, "busy"),
        (errno.ENOSPC, "input-output"),
        (errno.EIO, "input-output"),
        (errno.EMFILE, "input-output"),
        (errno.EDQUOT, "input-output"),
    ],
)
def test_what_the_system_says_has_a_kind(number: int, kind: str) -> None:
    """roots-18: from errno to kind."""
    error = core_error_for(OSError(number, os.strerror(number)), "some/path")
    assert error.kind == kind
    assert str(error).startswith("some/path: ")


def together(work: object, count: int) -> None:
    """Run `work(number)` in threads; raise a failure of any of them."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)  # type: ignore[operator]  # a plain function of a number
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
