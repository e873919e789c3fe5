"""Several files are changed together, or none is (docs/specs/filesystem.md)."""

import os
import random
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coretools.errors import AlreadyExists, Conflict, CoreError, InputOutput, InvalidArguments, NotFound, WrongType
from coretools.roots import open_beneath
from coretools.roots import write_together as module
from coretools.roots.file_version import Version
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import file_status
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.write_together import MAX_CHANGES, FileChange, write_together


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Roots]:
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as opened:
        yield opened


def change(roots: Roots, path: str, data: bytes | None) -> FileChange:
    return FileChange(path=path, data=data, expected=file_status(roots, path).version)


def new(path: str, data: bytes) -> FileChange:
    return FileChange(path=path, data=data, expected=None)


def tree(top: Path) -> dict[str, tuple[bytes, int, int, int]]:
    return {
        str(path.relative_to(top)): (path.read_bytes(), status.st_ino, stat.S_IMODE(status.st_mode), status.st_mtime_ns)
        for path in sorted(top.rglob("*"))
        if path.is_file()
        for status in [path.stat()]
    }


def test_files_are_written_created_and_deleted(roots: Roots, tmp_path: Path) -> None:
    """filesystem-52: missing directories are created, modes are kept, and nothing else is left."""
    (tmp_path / "a").write_text("a")
    (tmp_path / "a").chmod(0o750)
    (tmp_path / "b").write_text("b")
    created = FileChange(path="x/y/c", data=b"C", expected=None, mode=0o755)
    written = write_together(roots, [change(roots, "a", b"A"), change(roots, "b", None), created])
    assert [(one.display_path, one.created, one.size) for one in written] == [
        ("a", False, 1),
        ("b", False, 0),
        ("x/y/c", True, 1),
    ]
    assert {name: one[0] for name, one in tree(tmp_path).items()} == {"a": b"A", "x/y/c": b"C"}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "x/y/c").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("last", "error"),
    [
        pytest.param(lambda roots: new("there", b"x"), AlreadyExists, id="something is there"),
        pytest.param(lambda roots: new("there/x", b"x"), WrongType, id="a file is no directory"),
        pytest.param(lambda roots: FileChange(path="gone", data=b"", expected=VERSION), Conflict, id="gone"),
        pytest.param(lambda roots: FileChange(path="gone", data=None, expected=VERSION), NotFound, id="deleted"),
        pytest.param(lambda roots: FileChange(path="there", data=b"", expected=VERSION), Conflict, id="changed"),
        pytest.param(lambda roots: FileChange(path="fifo", data=None, expected=VERSION), WrongType, id="a FIFO"),
        pytest.param(lambda roots: FileChange(path="link", data=None, expected=VERSION), WrongType, id="a link"),
        pytest.param(lambda roots: change(roots, "a", b"2"), InvalidArguments, id="named twice"),
        pytest.param(lambda roots: change(roots, "link", b"2"), InvalidArguments, id="named twice, by a link"),
        pytest.param(lambda roots: new(".git/config", b""), CoreError, id="a git directory"),
        pytest.param(lambda roots: new("../x", b""), CoreError, id="outside"),
    ],
)
def test_one_that_is_refused_changes_nothing(
    roots: Roots, tmp_path: Path, last: Callable[[Roots], FileChange], error: type[CoreError]
) -> None:
    """filesystem-52: not even the inodes of the files that could have been written."""
    (tmp_path / "a").write_text("a")
    (tmp_path / "there").write_text("there")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("a")
    before = tree(tmp_path)
    with pytest.raises(error):
        write_together(roots, [change(roots, "a", b"A"), new("deep/er/b", b"B"), last(roots)])
    assert tree(tmp_path) == before
    assert not (tmp_path / "deep").exists()
    assert not list(tmp_path.glob(".coretools-*"))


VERSION = Version(1, 2, 3, 4, 5)


def failing_at(number: int, error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commit of one file fail, as a directory that vanished does."""
    committed = iter(range(1_000))
    commit = module._Staged.commit

    def count(self: module._Staged) -> None:
        if next(committed) == number:
            raise error
        commit(self)

    monkeypatch.setattr(module._Staged, "commit", count)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_write_that_fails_puts_the_earlier_ones_back(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, exchanges: bool
) -> None:
    """filesystem-53: contents, modes and times are as before, and where names can be exchanged the inodes too."""
    for name in "abc":
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, ns=(1, 1_000_000_000))
    if not exchanges:
        monkeypatch.setattr(open_beneath, "_renameat2", None)
    before = tree(tmp_path)
    changes = [change(roots, "a", b"A"), change(roots, "b", None), new("d/e", b"E"), change(roots, "c", b"C")]
    failing_at(number, OSError(5, "Input/output error"), monkeypatch)
    with pytest.raises(InputOutput, match="no file was changed"):
        write_together(roots, changes)
    after = tree(tmp_path)
    if exchanges:
        assert after == before
    assert {name: (one[0], one[2], one[3]) for name, one in after.items()} == {
        name: (one[0], one[2], one[3]) for name, one in before.items()
    }
    assert not (tmp_path / "d").exists()


def test_what_somebody_else_changed_meanwhile_stays_and_is_named(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """filesystem-53: never written over; a deleted content that can't be put back is kept beside it."""
    for name in "abc":
        (tmp_path / name).write_text(name)
    changes = [change(roots, "a", b"A"), change(roots, "b", None), new("n", b"N"), change(roots, "c", b"C")]
    commit = module._Staged.commit

    def interfere(self: module._Staged) -> None:
        if self.change.path == "c":
            for name in "abn":
                (tmp_path / name).write_text("somebody else's")
            raise OSError(28, "No space left on device")
        commit(self)

    monkeypatch.setattr(module._Staged, "commit", interfere)
    with pytest.raises(InputOutput, match="of 3 files written before, 0 were put back, and 3 not") as caught:
        write_together(roots, changes)
    message = str(caught.value)
    assert "a: somebody else changed it meanwhile" in message
    assert "b: somebody else created it again" in message
    for name in "abn":
        assert (tmp_path / name).read_text() == "somebody else's"
    assert (tmp_path / "c").read_text() == "c"
    (kept,) = tmp_path.glob("b.*.orig")
    assert kept.name in message
    assert kept.read_text() == "b"


def test_a_file_that_changes_in_the_last_moment_is_not_replaced(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """filesystem-53: between the check of the version and the exchange."""
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    changes = [change(roots, "a", b"A"), change(roots, "b", b"B")]
    require = module.require_version

    def check_then_change(resolved: object, expected: Version) -> None:
        require(resolved, expected)  # type: ignore[arg-type]
        (tmp_path / "new").write_text("somebody else's")
        (tmp_path / "new").rename(tmp_path / "b")

    write = module._Staged.commit

    def commit(self: module._Staged) -> None:
        if self.change.path == "b":
            monkeypatch.setattr(module, "require_version", check_then_change)
        write(self)

    monkeypatch.setattr(module._Staged, "commit", commit)
    with pytest.raises(Conflict, match="b: changed since it was read"):
        write_together(roots, changes)
    assert (tmp_path / "a").read_text() == "a"
    assert (tmp_path / "b").read_text() == "somebody else's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, stdin=subprocess.DEVNULL).returncode != 0:
        pytest.skip("mount")
    yield disk
    subprocess.run(["umount", str(disk)], check=True, stdin=subprocess.DEVNULL)


def test_a_full_disk_is_found_before_anything_changes(small_disk: Path) -> None:
    """filesystem-52."""
    for name in "abc":
        (small_disk / name).write_text(name)
    before = tree(small_disk)
    with Roots([RootSpec(str(small_disk))], deny=DenyRules(())) as roots, pytest.raises(InputOutput, match="full"):
        write_together(roots, [change(roots, name, name.encode() * 30_000) for name in "abc"])
    assert tree(small_disk) == before
    assert sorted(path.name for path in small_disk.iterdir()) == ["a", "b", "c"]


def test_too_many_files_are_refused(roots: Roots) -> None:
    """filesystem-52."""
    with pytest.raises(InvalidArguments, match="at most"):
        write_together(roots, [new(f"f{number}", b"") for number in range(MAX_CHANGES + 1)])


@pytest.mark.parametrize("seed", range(60))
def test_random_changes_are_all_made_or_none(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """filesystem-52, filesystem-53: any number of files, failing at any of them."""
    dice = random.Random(seed)
    names = [f"d{dice.randrange(3)}/f{number}" for number in range(8)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(dice.randbytes(dice.randrange(200)))
    changes = [change(roots, name, dice.choice([None, dice.randbytes(50)])) for name in dice.sample(names, 5)]
    changes += [new(f"new{number}/f", dice.randbytes(9)) for number in range(2)]
    dice.shuffle(changes)
    before = tree(tmp_path)
    failing = dice.randrange(12)
    failing_at(failing, OSError(5, "Input/output error"), monkeypatch)
    if failing < len(changes):
        with pytest.raises(InputOutput):
            write_together(roots, changes)
        assert tree(tmp_path) == before
        return
    write_together(roots, changes)
    wanted = {name: one[0] for name, one in before.items()} | {one.path: one.data for one in changes}
    assert {name: one[0] for name, one in tree(tmp_path).items()} == {
        name: data for name, data in wanted.items() if data is not None
    }
