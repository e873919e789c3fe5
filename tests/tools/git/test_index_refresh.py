"""The index is refreshed by tools that compare it with the work tree, as by plain `git status`."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio import create_task_group, to_thread

from coretools.confinement import landlock
from coretools.errors import GitRefused
from coretools.roots.index_copy import IndexCopy, copy_index
from tests.tools.git.world import World

needs_landlock = pytest.mark.skipif(landlock.abi() < landlock.ABI_REQUIRED, reason="Landlock (Linux 6.2)")


def copied(tmp_path: Path) -> World:
    """A world whose work tree was copied after its index was written: git has to read every file."""
    world = World(tmp_path).filled()
    world.git("reset", "--quiet", "--hard")
    shutil.copytree(world.repository, world.root / "copy", symlinks=True)
    shutil.rmtree(world.repository)
    shutil.copytree(world.root / "copy", world.repository, symlinks=True)
    (world.repository / "new.txt").unlink()
    for name in ("a.txt", "b.txt", "folder/c.txt"):  # not within a second of the index: git would read it again
        os.utime(world.repository / name, ns=(0, 1_600_000_000_000_000_000))
    assert is_stale(world)
    return world


def is_stale(world: World) -> bool:
    """Whether git would read files that have not changed; `diff-files` compares times and sizes alone."""
    return bool(world.git("diff-files"))


@pytest.mark.parametrize("tool", ["git_status", "git_diff"])
async def test_a_copied_checkout_is_read_once(tmp_path: Path, tool: str) -> None:
    """git-56: the first call refreshes the index; its mode stays, and nothing is left in the git directory."""
    world = copied(tmp_path)
    index = world.git_dir / "index"
    index.chmod(0o640)
    entries = sorted(os.listdir(world.git_dir))
    async with world.tools() as tools:
        await getattr(tools, tool)("work")
        assert not is_stale(world)
        stamp = index.stat()
        await getattr(tools, tool)("work")
    assert index.stat() == stamp, "a fresh index is not written"
    assert (stamp.st_mode & 0o777, sorted(os.listdir(world.git_dir))) == (0o640, entries)


def test_copy_and_refreshed_index_are_as_old_as_git_made_them(tmp_path: Path) -> None:
    """git-56: a file that changed as late as the index did, or later, is read again; so the time counts."""
    world = copied(tmp_path)
    index = world.git_dir / "index"
    os.utime(index, ns=(0, 1_600_000_000_123_456_789))
    with _index_copy(world, tmp_path) as (copy, handle):
        assert os.stat(copy.path).st_mtime_ns == 1_600_000_000_123_456_789
        os.replace(shutil.copy(copy.path, f"{copy.path}.new"), copy.path)
        os.utime(copy.path, ns=(0, 1_700_000_000_123_456_789))
        copy.put_in_place(handle)
    assert index.stat().st_mtime_ns == 1_700_000_000_123_456_789


@pytest.mark.parametrize("case", ["locked", "read-only root", "monitored", "corrupt", "no index", "a directory"])
async def test_where_the_index_is_not_refreshed_it_stays_and_the_answer_comes(tmp_path: Path, case: str) -> None:
    """git-56: nobody's lock is waited for or broken, and nothing is lost."""
    world = copied(tmp_path)
    index = world.git_dir / "index"
    if case == "locked":
        (world.git_dir / "index.lock").write_text("of another git")
    elif case == "monitored":
        (world.root / "index").write_bytes(index.read_bytes())
        world.git("update-index", "--fsmonitor")
        assert b"FSMN" in index.read_bytes()
    elif case == "corrupt":
        index.write_bytes(b"DAMAGED" + index.read_bytes())
    elif case in ("no index", "a directory"):
        index.unlink()
        if case == "a directory":
            index.mkdir()
    before = {path: path.read_bytes() for path in world.git_dir.rglob("*") if path.is_file()}
    async with world.tools(writable=case != "read-only root") as tools:
        for tool in (tools.git_status, tools.git_diff):
            if case in ("corrupt", "a directory"):
                with pytest.raises(GitRefused, match="index"):
                    await tool("work")
            else:
                assert (await tool("work")).text()
    assert {path: path.read_bytes() for path in world.git_dir.rglob("*") if path.is_file()} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
async def test_the_index_of_another_user_stays_theirs(tmp_path: Path) -> None:
    """git-56: owner and group are kept."""
    world = copied(tmp_path)
    for path in (world.repository, *world.repository.rglob("*")):
        os.chown(path, 12345, 12346, follow_symlinks=False)
    async with world.tools() as tools:
        await tools.git_status("work")
    found = (world.git_dir / "index").stat()
    assert (found.st_uid, found.st_gid) == (12345, 12346)
    os.chown(world.repository, 0, 0)
    world.git("config", "--global", "--add", "safe.directory", "*")
    assert not is_stale(world)


@needs_landlock
async def test_git_that_refreshes_writes_the_copy_of_the_index_and_nothing_else(tmp_path: Path) -> None:
    """git-29: neither the index itself, its lock, nor any other file of the repository."""
    world = copied(tmp_path)
    before = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()}
    async with world.tools() as tools, tools.repositories.opened("work", refreshes=True) as opened:
        for words in (
            ("update-index", "--index-version", "4"),
            ("config", "a.b", "c"),
            ("branch", "b"),
            ("checkout", "--", "."),
            ("hash-object", "-w", "--stdin"),
            ("diff", "--output=.git/hooks/x"),
            ("diff", f"--output={world.root}/x", "HEAD~1"),
        ):
            completed = await opened.run(*words)
            assert completed.ok == (words[0] == "update-index"), words
        assert {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()} == before


def test_an_index_that_changed_meanwhile_stays(tmp_path: Path) -> None:
    """git-56: what another git staged since the copy was made is kept."""
    world = copied(tmp_path)
    with _index_copy(world, tmp_path) as (copy, handle):
        world.git("rm", "--quiet", "--cached", "b.txt")
        os.replace(shutil.copy(copy.path, f"{copy.path}.new"), copy.path)
        assert copy.is_refreshed
        copy.put_in_place(handle)
    assert world.git("status", "--short").splitlines()[0] == "D  b.txt"
    assert not (world.git_dir / "index.lock").exists()
    assert not os.listdir(tmp_path / "copies")


def test_a_lock_of_somebody_else_does_not_take_the_place_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git-56: the server's lock is replaced by a foreign file before the copy takes the index's place."""
    world = copied(tmp_path)
    lock = world.git_dir / "index.lock"
    with _index_copy(world, tmp_path) as (copy, handle):
        os.replace(shutil.copy(copy.path, f"{copy.path}.new"), copy.path)

        def replaced(file: int, *, ns: tuple[int, int]) -> None:
            os.unlink(lock)
            lock.write_text("foreign")
            utime(file, ns=ns)

        utime = os.utime
        monkeypatch.setattr("coretools.roots.index_copy.os.utime", replaced)
        copy.put_in_place(handle)
        monkeypatch.undo()
    assert lock.read_text() == "foreign"
    lock.unlink()
    assert world.git("ls-files").splitlines() == ["a.txt", "b.txt", "folder/c.txt"]


async def test_two_servers_on_one_root_disturb_nobody(tmp_path: Path) -> None:
    """git-56: statuses of both at once, while git itself stages: nothing staged is lost, and no lock stays."""
    world = copied(tmp_path)
    async with world.tools() as one, world.tools() as other:
        for number in range(4):
            world.write(f"new{number}.txt", "new\n")
            os.utime(world.repository / "a.txt", ns=(number, number))
            async with create_task_group() as tasks:
                for tools in (one, other, one, other):
                    tasks.start_soon(tools.git_status, "work")
                tasks.start_soon(to_thread.run_sync, _staged, world, f"new{number}.txt")
        status = await one.git_status("work")
    assert [entry["path"] for entry in status.entries] == [f"work/new{number}.txt" for number in range(4)]
    assert not (world.git_dir / "index.lock").exists()


@contextmanager
def _index_copy(world: World, tmp_path: Path) -> Iterator[tuple[IndexCopy, int]]:
    """A copy of the index, and the open git directory."""
    (tmp_path / "copies").mkdir()
    handle = os.open(world.git_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        copy = copy_index(handle, str(tmp_path / "copies"))
        assert copy is not None
        yield copy, handle
        copy.remove()
    finally:
        os.close(handle)


def _staged(world: World, name: str) -> None:
    while "index.lock" in world.git("add", name, check=False):  # as beside a plain `git status`
        pass
