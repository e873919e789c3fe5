"""A change waits for changes of the same name only (docs/specs/roots.md, roots-30)."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import anyio.from_thread
import anyio.to_thread
import pytest

from coretools.config.limits import Limits
from coretools.errors import CoreError
from coretools.roots.hidden_files import DenyRules
from coretools.roots.path_locks import LOCKS
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.write import lock_paths
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.tools import FilesystemTools

SOON = 60
"""Seconds: far longer than any of these calls takes on a busy machine."""


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Roots]:
    for name in ("a", "b"):
        (tmp_path / name / "sub").mkdir(parents=True)
        for file in ("f", "g", "h", "sub/f"):
            (tmp_path / name / file).write_text("one\n")
    (tmp_path / "a" / "link").symlink_to("f")
    (tmp_path / "a" / "up").symlink_to("sub")
    with Roots([RootSpec(str(tmp_path / name)) for name in ("a", "b")], deny=DenyRules(())) as opened:
        yield opened


@pytest.fixture
def files(roots: Roots) -> FilesystemTools:
    return FilesystemTools(roots, Limits())


def queued(count: int) -> None:
    """Return when that many calls hold the lock or wait for it."""
    deadline = time.monotonic() + SOON
    while LOCKS.count() != count:
        assert time.monotonic() < deadline, f"{LOCKS.count()} calls hold or wait, not {count}"
        os.sched_yield()


def test_a_slow_change_blocks_no_other_name_and_no_other_root(
    roots: Roots, files: FilesystemTools, tmp_path: Path
) -> None:
    """roots-30: during a change of one file all other files of its directory and of other roots can be changed."""
    b = tmp_path / "b"
    with lock_paths(roots, "f"), ThreadPoolExecutor(1) as other:

        def change_all() -> None:
            files.write_file(str(b / "f"), "two\n")
            files.edit_file(str(b / "g"), [Edit(old="one", new="two")])
            files.move_path("g", str(b / "moved"))
            files.write_file("sub/f", "two\n")
            files.write_file("new/f", "two\n", create_parents=True)
            files.delete_file("h")
            files.create_directory("made")
            files.delete_file("link")

        other.submit(change_all).result(SOON)
    assert [(b / name).read_text() for name in ("f", "g", "moved")] == ["two\n", "two\n", "one\n"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["f", "made", "new", "sub", "up"]
    assert LOCKS.count() == 0


@pytest.mark.parametrize("name", ["f", "link", "up/../f", "F", "absolute"])
def test_a_change_of_the_same_name_waits_whatever_it_is_called(
    roots: Roots, files: FilesystemTools, tmp_path: Path, name: str
) -> None:
    """roots-30: through a link, by absolute path, in another case, and from another server with the same root."""
    path = str(tmp_path / "a" / "f") if name == "absolute" else name
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as others, ThreadPoolExecutor(2) as pool:
        with lock_paths(roots, "f"):
            waiting: list[Future[object]] = [
                pool.submit(files.write_file, path, "two\n"),
                pool.submit(FilesystemTools(others, Limits()).write_file, "a/f", "two\n"),
            ]
            queued(3)
            assert (tmp_path / "a" / "f").read_text() == "one\n"
        assert not wait(waiting, SOON).not_done
    assert LOCKS.count() == 0


def test_moves_in_opposite_directions_end(files: FilesystemTools, tmp_path: Path) -> None:
    """roots-30: both names are locked at once, so there is no deadlock; no content is lost."""
    b = str(tmp_path / "b" / "f")
    (tmp_path / "b" / "f").unlink()

    def go(number: int) -> None:
        for _ in range(30):
            try:
                if number % 3 == 2:
                    files.edit_file("f", [Edit(old="one", new="one")])
                else:
                    files.move_path(*(("f", b) if number % 3 else (b, "f")))
            except CoreError:
                pass

    with ThreadPoolExecutor(6) as pool:
        assert not wait([pool.submit(go, number) for number in range(6)], SOON).not_done
    assert [path.read_text() for path in (tmp_path / "a" / "f", tmp_path / "b" / "f") if path.exists()] == ["one\n"]
    assert LOCKS.count() == 0


async def test_a_call_that_is_cancelled_stops_waiting(roots: Roots, files: FilesystemTools, tmp_path: Path) -> None:
    """roots-30: and it leaves the queue."""
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock_paths(roots, "f"):
            locked.set()
            done.wait(SOON)

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(hold)
        assert locked.wait(SOON)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: anyio.to_thread.run_sync(files.write_file, "f", "two\n"))
            await anyio.to_thread.run_sync(queued, 2)
            group.cancel_scope.cancel()
        assert LOCKS.count() == 1
        done.set()
        holder.result(SOON)
    assert (tmp_path / "a" / "f").read_text() == "one\n"
    assert LOCKS.count() == 0
