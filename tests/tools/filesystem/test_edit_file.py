"""edit_file on real files: bytes, faults, and concurrent writers (docs/specs/filesystem.md)."""

import codecs
import os
import random
import resource
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from coretools.config.limits import Limits
from coretools.errors import Conflict, EditRefused, InputOutput, NotText, ReadOnly, TooLarge
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import read_bytes
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.write import write_bytes
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.tools import FilesystemTools


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Roots]:
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as opened:
        yield opened


@pytest.fixture
def files(roots: Roots) -> FilesystemTools:
    return FilesystemTools(roots, Limits())


def test_an_edit_answers_with_a_diff(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-25, filesystem-26."""
    (tmp_path / "a").write_text("one\ntwo\n")
    answer = files.edit_file("a", [Edit(old="two", new="2")])
    assert answer.text() == "edited a: 1 replacement\n--- a\n+++ a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert answer.facts() == {"replaced": 1, "dry_run": False}
    assert (tmp_path / "a").read_text() == "one\n2\n"


def test_a_dry_run_answers_the_same_and_writes_nothing(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-25."""
    (tmp_path / "a").write_text("one\n")
    before = (tmp_path / "a").stat()
    answer = files.edit_file("a", [Edit(old="one", new="1")], dry_run=True)
    assert answer.text() == "would edit a: 1 replacement\n--- a\n+++ a\n@@ -1 +1 @@\n-one\n+1\n"
    after = (tmp_path / "a").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_dry_run_works_in_a_read_only_root_and_an_edit_does_not(tmp_path: Path) -> None:
    """filesystem-30."""
    (tmp_path / "a").write_text("one\n")
    with Roots([RootSpec(str(tmp_path), writable=False)], deny=DenyRules(())) as roots:
        files = FilesystemTools(roots, Limits())
        assert "+1" in files.edit_file("a", [Edit(old="one", new="1")], dry_run=True).text()
        with pytest.raises(ReadOnly):
            files.edit_file("a", [Edit(old="one", new="1")])


def test_all_edits_or_none(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-21."""
    (tmp_path / "a").write_text("one two two\n")
    with pytest.raises(EditRefused, match="a: edit 2 of 2"):
        files.edit_file("a", [Edit(old="one", new="1"), Edit(old="two", new="2")])
    assert (tmp_path / "a").read_text() == "one two two\n"


def test_edits_that_undo_each_other_write_nothing(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-25."""
    (tmp_path / "a").write_text("a\n")
    inode = (tmp_path / "a").stat().st_ino
    answer = files.edit_file("a", [Edit(old="a", new="b"), Edit(old="b", new="a")])
    assert "nothing written" in answer.text()
    assert (tmp_path / "a").stat().st_ino == inode


def test_an_edit_keeps_the_mode(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-11."""
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o755)
    files.edit_file("run", [Edit(old="sh", new="bash")])
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755


ENCODINGS = [
    pytest.param(b"", "utf-8", id="utf-8"),
    pytest.param(codecs.BOM_UTF8, "utf-8", id="utf-8 with mark"),
    pytest.param(codecs.BOM_UTF16_LE, "utf-16-le", id="utf-16 little end"),
    pytest.param(codecs.BOM_UTF16_BE, "utf-16-be", id="utf-16 big end"),
    pytest.param(codecs.BOM_UTF32_LE, "utf-32-le", id="utf-32"),
    pytest.param(b"", "iso-8859-1", id="latin"),
]


@pytest.mark.parametrize(("mark", "codec"), ENCODINGS)
@pytest.mark.parametrize("seed", range(12))
def test_every_byte_outside_the_match_stays(
    files: FilesystemTools, tmp_path: Path, mark: bytes, codec: str, seed: int
) -> None:
    """filesystem-22: with byte order marks, mixed line ends, lone CR and no newline at the end."""
    dice = random.Random(seed)
    endings = dice.choice([["\n"], ["\r\n"], ["\n", "\r\n", "\r"]])
    lines = [f"line {number} " + "é" * dice.randrange(3) for number in range(200)]
    pieces = [line + dice.choice(endings) for line in lines]
    pieces[-1] = pieces[-1].rstrip("\r\n")
    number = dice.randrange(200)
    (tmp_path / "a").write_bytes(mark + "".join(pieces).encode(codec))
    files.edit_file("a", [Edit(old=f"line {number} ", new="ünew ")])
    pieces[number] = pieces[number].replace(f"line {number} ", "ünew ")
    assert (tmp_path / "a").read_bytes() == mark + "".join(pieces).encode(codec)


def test_a_character_that_the_encoding_lacks_is_refused(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-22: a file never changes its encoding."""
    data = b"caf\xe9 au lait, une tasse\n"
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(NotText, match="iso-8859-1"):
        files.edit_file("a", [Edit(old="lait", new="\u2603")])
    assert (tmp_path / "a").read_bytes() == data


def test_a_binary_file_is_not_edited(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-8."""
    (tmp_path / "a").write_bytes(b"\x7fELF\0\0\0\1text")
    with pytest.raises(NotText):
        files.edit_file("a", [Edit(old="text", new="x")])


def test_a_sparse_file_of_200_megabytes_is_not_read_for_an_edit(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-10."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(TooLarge):
        files.edit_file("sparse", [Edit(old="a", new="b")])


async def test_edits_of_one_file_at_the_same_time_all_land(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-27: no edit overwrites another one, whatever name of the file it uses."""
    names = [f"<{number}>" for number in range(40)]
    (tmp_path / "a").write_text("\n".join(names))
    (tmp_path / "link").symlink_to("a")
    start = threading.Barrier(10)

    def edit(number: int) -> None:
        if number < 10:
            start.wait()
        files.edit_file("link" if number % 2 else "a", [Edit(old=names[number], new=f"done {number}")])

    limiter = anyio.CapacityLimiter(10)
    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(lambda number=number: anyio.to_thread.run_sync(edit, number, limiter=limiter))
    assert (tmp_path / "a").read_text() == "\n".join(f"done {number}" for number in range(40))
    assert (tmp_path / "link").is_symlink()


def test_a_file_that_changed_since_it_was_read_is_not_written(roots: Roots, tmp_path: Path) -> None:
    """filesystem-27: another process writes between the read and the write of edit_file."""
    (tmp_path / "a").write_text("one\n")
    read = read_bytes(roots, "a", limit_bytes=100)
    (tmp_path / "a").write_text("someone else's\n")
    with pytest.raises(Conflict):
        write_bytes(roots, "a", b"mine\n", expected=read.version)
    assert (tmp_path / "a").read_text() == "someone else's\n"


@pytest.fixture
def small_limit() -> Iterator[int]:
    """Files of at most 1 MB for this process: a write beyond it fails halfway (setrlimit(2), EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    yield 1_000_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_halfway_leaves_the_file_as_it_was(
    files: FilesystemTools, tmp_path: Path, small_limit: int
) -> None:
    """filesystem-28."""
    (tmp_path / "a").write_text("x" * 10 + "\n")
    with pytest.raises(InputOutput):
        files.edit_file("a", [Edit(old="x" * 10, new="y" * (small_limit + 1))])
    assert (tmp_path / "a").read_text() == "x" * 10 + "\n"
    with pytest.raises(InputOutput):
        files.write_file("new", "y" * (small_limit + 1))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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


def test_an_edit_on_a_full_disk_leaves_the_file_as_it_was(small_disk: Path) -> None:
    """filesystem-28."""
    (small_disk / "a").write_text("one\n")
    edit = Edit(old="one", new="x" * 100_000)
    with Roots([RootSpec(str(small_disk))], deny=DenyRules(())) as roots, pytest.raises(InputOutput, match="full"):
        FilesystemTools(roots, Limits()).edit_file("a", [edit])
    assert (small_disk / "a").read_text() == "one\n"
    assert [path.name for path in small_disk.iterdir()] == ["a"]
