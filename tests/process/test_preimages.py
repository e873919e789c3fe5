"""States before changes: kept once for each entry, and enough to restore a tree exactly (ADR 0055)."""

import ctypes
import errno
import mmap
import os
import random
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coretools.process.fork_server.preimages import PreimageLimits, Preimages, RecordedRoot
from coretools.undo.change_log import (
    ABSENT,
    DIRECTORY,
    FILE,
    LINK,
    METADATA,
    MOVED,
    NOT_KEPT,
    OTHER,
    ChangeLog,
    ChangeRecord,
    read_changes,
)

MEBIBYTE = 1 << 20


class Recording:
    """A root, a spool, and the states that were kept."""

    def __init__(self, directory: Path, limits: PreimageLimits, view: Path | None = None) -> None:
        self.root, self.spool, self._path = directory / "root", directory / "spool", directory / "log"
        for path in (self.root, self.spool):
            path.mkdir(exist_ok=True)
        self._handles = [
            os.open(self.root, os.O_PATH),
            os.open(self.spool, os.O_PATH),
            os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ]
        roots = [RecordedRoot(os.fsencode(view or self.root), self._handles[0])]
        self.preimages = Preimages(roots, self._handles[1], ChangeLog(self._handles[2]), limits)

    def path(self, name: str) -> bytes:
        return os.fsencode(self.root / name)

    def records(self) -> list[ChangeRecord]:
        return list(read_changes(self._path.read_bytes()))

    def kinds(self) -> list[str]:
        """Kinds of the records without those of the root's times."""
        return [record.kind for record in self.records() if record.path]

    def close(self) -> None:
        for handle in self._handles:
            os.close(handle)


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    opened = Recording(tmp_path, PreimageLimits(file_bytes=MEBIBYTE, total_bytes=4 * MEBIBYTE))
    yield opened
    opened.close()


def _remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)


class _Replay:
    """Restores a tree from its records, without the checks that an undo makes."""

    def __init__(self, recording: Recording) -> None:
        self._root, self._spool = os.fsencode(recording.root), recording.spool
        self._times: list[tuple[bytes, int, int]] = []
        self._restored: dict[int, bytes] = {}
        self._inodes: dict[int, int] = {}
        """Inodes of what was made again, by those that were recorded."""

    def run(self, records: list[ChangeRecord]) -> None:
        for record in reversed(records):
            path = os.path.join(self._root, record.path) if record.path else self._root
            if record.kind == ABSENT:
                _remove(path)
            elif record.kind == MOVED:
                self._move_back(record, path)
            else:
                self._restore(record, path)
                assert record.status is not None
                self._inodes[record.status.inode] = os.lstat(path).st_ino
        oldest = {path: (path, mode, time) for path, mode, time in self._times}
        for path, mode, time in sorted(oldest.values(), key=lambda one: -len(one[0])):
            if os.path.isdir(path) and not os.path.islink(path):  # else it was made by the command
                os.chmod(path, mode)
                os.utime(path, ns=(0, time))

    def _move_back(self, record: ChangeRecord, old: bytes) -> None:
        new = os.path.join(self._root, record.detail)
        if os.path.lexists(old):  # the call failed
            return
        self._times = [(_renamed(path, old, new), mode, time) for path, mode, time in self._times]
        self._restored = {inode: _renamed(path, old, new) for inode, path in self._restored.items()}
        os.rename(new, old)

    def _restore(self, record: ChangeRecord, path: bytes) -> None:
        status = record.status
        assert status is not None
        mode = stat.S_IMODE(status.mode)
        if stat.S_ISDIR(status.mode):
            if not os.path.isdir(path) or os.path.islink(path):
                _remove(path)
                os.mkdir(path)
            self._times.append((path, mode, status.modified_ns))
            return
        if record.kind == METADATA and not stat.S_ISLNK(status.mode):
            os.chmod(path, mode)
        elif record.kind == LINK:
            _remove(path)
            os.symlink(record.detail, path)
        elif record.kind == FILE:
            self._restore_file(record, path)
            os.chmod(path, mode)
        elif record.kind == OTHER:
            _remove(path)
            os.mkfifo(path, mode)
        os.utime(path, ns=(0, status.modified_ns), follow_symlinks=False)

    def _restore_file(self, record: ChangeRecord, path: bytes) -> None:
        """Restore the content, in the inode that the file had if one of its names is left."""
        assert record.status is not None
        kept = os.fsencode(self._spool / os.fsdecode(record.detail))
        inode = self._inodes.get(record.status.inode, record.status.inode)
        if not _is_inode(path, inode):
            _remove(path)
            known = self._restored.get(record.status.inode, b"")
            name = known if record.status.links > 1 else b""
            for other in (name, kept):
                if _is_inode(other, inode):
                    os.link(other, path)
                    break
        if not os.path.lexists(path) or not os.path.samefile(kept, path):
            Path(os.fsdecode(path)).write_bytes(Path(os.fsdecode(kept)).read_bytes())
        self._restored[record.status.inode] = path


def _is_inode(path: bytes, inode: int) -> bool:
    """Whether a file has this inode. A link or directory may have got the number of one that was removed."""
    return os.path.lexists(path) and os.lstat(path).st_ino == inode and stat.S_ISREG(os.lstat(path).st_mode)


def _renamed(path: bytes, old: bytes, new: bytes) -> bytes:
    if path == new or path.startswith(new + b"/"):
        return old + path[len(new) :]
    return path


def _exchange(one: bytes, other: bytes) -> None:
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, one, -100, other, 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def _snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        content: object = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found


def test_a_file_is_kept_once_and_a_new_one_not_at_all(recording: Recording) -> None:
    (recording.root / "old").write_bytes(b"before")
    for _ in range(3):
        for name in ("old", "new"):
            recording.preimages.before_write(recording.path(name))
            (recording.root / name).write_bytes(b"after")
    assert recording.kinds() == [FILE, ABSENT]
    assert [path.read_bytes() for path in recording.spool.iterdir()] == [b"before"]


def test_a_removed_file_is_linked_whatever_its_size(recording: Recording) -> None:
    large = recording.root / "large"
    large.write_bytes(b"x" * 3 * MEBIBYTE)
    inode = large.stat().st_ino
    recording.preimages.before_removal(recording.path("large"))
    large.unlink()
    assert recording.kinds() == [FILE]
    assert [path.stat().st_ino for path in recording.spool.iterdir()] == [inode]


def test_a_file_that_was_linked_is_copied_before_a_later_write(recording: Recording) -> None:
    """The removal before which it was linked has failed, or another name of it is left."""
    (recording.root / "one").write_bytes(b"before")
    os.link(recording.root / "one", recording.root / "two")
    recording.preimages.before_removal(recording.path("one"))
    for name in ("one", "two"):
        recording.preimages.before_write(recording.path(name))
        with open(recording.root / name, "ab") as file:
            file.write(b" after")
    assert [path.read_bytes() for path in recording.spool.iterdir()] == [b"before"]


def test_what_is_larger_than_the_limits_is_recorded_as_not_kept(recording: Recording) -> None:
    (recording.root / "large").write_bytes(b"x" * 2 * MEBIBYTE)
    os.truncate(recording.root / "large", 900 * MEBIBYTE)  # the rest is a hole, which needs no space
    for number in range(5):
        (recording.root / f"{number}").write_bytes(b"x" * MEBIBYTE)
    for name in ("large", *"01234"):
        recording.preimages.before_write(recording.path(name))
    assert recording.kinds() == [NOT_KEPT, FILE, FILE, FILE, FILE, NOT_KEPT]
    details = [record.detail for record in recording.records() if record.kind == NOT_KEPT]
    assert details == [b"larger than 1048576 bytes", b"the command changed more than 4194304 bytes"]
    assert len(list(recording.spool.iterdir())) == 4


def test_a_sparse_file_is_kept_with_its_holes(recording: Recording) -> None:
    path = recording.root / "sparse"
    with open(path, "wb") as file:
        file.truncate(900 * MEBIBYTE)
        file.seek(500 * MEBIBYTE)
        file.write(b"middle")
    recording.preimages.before_write(recording.path("sparse"))
    (kept,) = recording.spool.iterdir()
    assert kept.stat().st_size == 900 * MEBIBYTE
    assert kept.stat().st_blocks * 512 < MEBIBYTE
    with open(kept, "rb") as file:
        file.seek(500 * MEBIBYTE)
        assert file.read(7) == b"middle\0"


def test_another_writer_is_reported(recording: Recording) -> None:
    (recording.root / "database").write_bytes(b"x")
    with open(recording.root / "database", "r+b") as file, mmap.mmap(file.fileno(), 1):
        recording.preimages.before_write(recording.path("database"))
    recording.preimages.forget()
    recording.preimages.before_write(recording.path("database"))
    assert [record.has_writer for record in recording.records() if record.kind == FILE] == [True, False]


def test_a_failed_copy_is_an_error_and_leaves_nothing(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "copy_file_range", fail)
    (recording.root / "file").write_bytes(b"before")
    with pytest.raises(OSError, match="full"):
        recording.preimages.before_write(recording.path("file"))
    assert recording.kinds() == []
    assert list(recording.spool.iterdir()) == []


def test_covers_and_what_lies_outside_are_not_kept(tmp_path: Path) -> None:
    """The view shows another inode than the root: a cover over a hidden file or directory."""
    view = tmp_path / "view"
    (view / "hidden").mkdir(parents=True)
    (view / "secret").write_bytes(b"")
    recording = Recording(tmp_path, PreimageLimits(MEBIBYTE, MEBIBYTE), view)
    (recording.root / "hidden").mkdir()
    (recording.root / "hidden/key").write_bytes(b"secret")
    (recording.root / "secret").write_bytes(b"secret")
    (recording.root / "link").symlink_to("/etc")
    for name in ("secret", "hidden/key", "hidden/new", "link/passwd", "no/such"):
        for keep in (recording.preimages.before_write, recording.preimages.before_removal):
            with suppress(OSError):
                keep(os.fsencode(view / name))
    recording.preimages.before_write(b"/etc/passwd")
    assert recording.records() == []
    assert list(recording.spool.iterdir()) == []
    recording.close()


def test_a_directory_stays_in_its_root(recording: Recording, tmp_path: Path) -> None:
    for path in (recording.root / "inside", tmp_path / "outside"):
        path.mkdir()
    inside, outside = recording.path("inside"), os.fsencode(tmp_path / "outside")
    for old, new in ((inside, os.fsencode(tmp_path / "new")), (outside, recording.path("new"))):
        with pytest.raises(OSError, match="by copying") as caught:
            recording.preimages.before_move(old, new)
        assert caught.value.errno == errno.EXDEV
    recording.preimages.before_move(outside, os.fsencode(tmp_path / "new"))
    assert recording.records() == []


@pytest.mark.parametrize("seed", range(25))
def test_random_changes_are_taken_back_exactly(tmp_path: Path, seed: int) -> None:
    """Contents, modes, times of files and directories, symbolic links; calls may fail."""
    chance = random.Random(seed)
    recording = Recording(tmp_path, PreimageLimits(MEBIBYTE, 64 * MEBIBYTE))
    _fill(recording.root, chance)
    before = _snapshot(recording.root)
    for _ in range(chance.choice([5, 40, 150])):
        _change(recording, chance)
    _Replay(recording).run(recording.records())
    recording.close()
    shutil.rmtree(recording.spool)  # links there count as names
    assert _snapshot(recording.root) == before


def test_names_of_one_file_are_names_of_one_file_again(recording: Recording) -> None:
    one, two = recording.root / "one", recording.root / "two"
    one.write_bytes(b"before")
    os.link(one, two)
    recording.preimages.before_write(recording.path("one"))
    one.write_bytes(b"after")
    for path in (two, one):
        recording.preimages.before_removal(recording.path(path.name))
        path.unlink()
    _Replay(recording).run(recording.records())
    assert (one.read_bytes(), one.stat().st_ino) == (b"before", two.stat().st_ino)


def test_a_write_through_a_new_name_of_a_file_is_taken_back(recording: Recording) -> None:
    old, new = recording.root / "old", recording.root / "new"
    old.write_bytes(b"before")
    recording.preimages.before_link(recording.path("old"), recording.path("new"))
    os.link(old, new)
    recording.preimages.before_write(recording.path("new"))
    new.write_bytes(b"after")
    _Replay(recording).run(recording.records())
    assert (old.read_bytes(), new.exists()) == (b"before", False)


def test_an_exchange_keeps_both_files_and_is_refused_for_directories(recording: Recording) -> None:
    for name in ("one", "other"):
        (recording.root / name).write_bytes(name.encode())
    (recording.root / "directory").mkdir()
    before = _snapshot(recording.root)
    recording.preimages.before_exchange(recording.path("one"), recording.path("other"))
    _exchange(recording.path("one"), recording.path("other"))
    with pytest.raises(OSError, match="not exchanged"):
        recording.preimages.before_exchange(recording.path("one"), recording.path("directory"))
    _Replay(recording).run(recording.records())
    assert _snapshot(recording.root) == before


def _fill(root: Path, chance: random.Random) -> None:
    for directory in ("a", "b/c", "b/empty", "d"):
        (root / directory).mkdir(parents=True)
        for name in "xyz":
            (root / directory / name).write_bytes(chance.randbytes(chance.choice([0, 10, 5000])))
    for path in (root / "b/empty").iterdir():
        path.unlink()
    (root / "a/soft").symlink_to("x")
    for path in root.rglob("*"):
        os.utime(path, ns=(0, chance.randrange(10**18)), follow_symlinks=False)


def _change(recording: Recording, chance: random.Random) -> None:
    """Make a random change as a command would: what is kept first, then the call, which may fail."""
    root = recording.root
    known = [str(path.relative_to(root)) for path in root.rglob("*")]
    made = [f"{chance.choice(['', 'a/', 'b/', 'b/c/', 'q/'])}{chance.choice('xyzpqr')}" for _ in range(3)]
    old, new = (recording.path(chance.choice([*known, *made])) for _ in range(2))
    with suppress(OSError):
        if chance.random() < 0.5:
            recording.preimages.before_move(old, new)
            os.rename(old, new)
        else:
            _change_one(recording.preimages, chance, old)


def _change_one(keep: Preimages, chance: random.Random, path: bytes) -> None:
    call = chance.choice([os.unlink, os.rmdir, os.mkdir, os.mkfifo, "symlink", "write", "mode", "times"])
    if call == "symlink":
        keep.before_removal(path)
        os.symlink(b"target", path)
    elif call == "write" and not os.path.islink(path) and not stat.S_ISFIFO(os.lstat(path).st_mode):
        keep.before_write(path)
        with open(path, chance.choice(["wb", "ab", "r+b"])) as file:
            file.write(b"changed")
    elif call == "mode" and not os.path.islink(path):
        keep.before_metadata(path)
        os.chmod(path, chance.choice([0o700, 0o755]))
    elif call == "times":
        keep.before_metadata(path)
        os.utime(path, ns=(0, 10**18), follow_symlinks=False)
    elif callable(call):
        keep.before_removal(path)
        call(path)


def test_a_log_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    recording = Recording(tmp_path, PreimageLimits(MEBIBYTE, MEBIBYTE))
    for name in ("a", "b"):
        recording.preimages.before_write(recording.path(name))
    recording.close()
    whole = recording.records()
    data = (tmp_path / "log").read_bytes()
    counts = [len(list(read_changes(data[:length]))) for length in range(len(data) + 1)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1], len(set(counts))) == (0, len(whole), len(whole) + 1)
    assert len(list(read_changes(data[:20] + b"?" + data[21:]))) == 0


def test_a_directory_that_is_removed_is_kept(recording: Recording) -> None:
    """Also if it could not be removed at first."""
    (recording.root / "full").mkdir()
    (recording.root / "full/file").write_bytes(b"before")
    before = _snapshot(recording.root)
    for name in ("full", "full/file", "full"):
        recording.preimages.before_removal(recording.path(name))
    shutil.rmtree(recording.root / "full")
    assert [kind for kind in recording.kinds() if kind != METADATA] == [DIRECTORY, FILE, DIRECTORY]
    _Replay(recording).run(recording.records())
    assert _snapshot(recording.root) == before
