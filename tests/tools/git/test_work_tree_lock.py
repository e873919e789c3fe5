"""Several gits at work in one work tree: coretools servers, editors, people at a terminal."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import anyio
import pytest
from anyio import create_task_group

from coretools.errors import Busy, GitRefused
from coretools.roots import directory_access
from coretools.tools.git.repository.open_checkout import Access
from tests.tools.git.change_calls import CALLS, Call, function_of, is_read
from tests.tools.git.world import World

HOLDER = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("locked", flush=True)
input()
"""

CHANGES: dict[str, Call] = {call[0]: call for call in CALLS if not is_read(call) and call[0] != "git_bisect_run"}
"""A change by each tool; a bisect is driven by changes of `git_bisect`."""

_watchers: list[Callable[[list[str]], None]] = []


@cache
def _audit() -> None:
    """Tell the watchers of each start of git; a hook can't be removed."""

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("subprocess.Popen", "os.posix_spawn") and _watchers:
            words = [os.fsdecode(word) for word in arguments[1]]  # type: ignore[attr-defined]
            for one in _watchers:
                one(words)

    sys.addaudithook(watch)


@contextmanager
def watched(watcher: Callable[[list[str]], None]) -> Iterator[None]:
    """Call the watcher with the words of each git before it starts."""
    _audit()
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def state_of(world: World) -> tuple[object, ...]:
    return (
        world.git("status", "--porcelain", "--branch"),
        world.git("for-each-ref"),
        sorted(os.listdir(world.git_dir)),
    )


async def test_what_was_staged_survives_a_change_that_git_refuses(tmp_path: Path) -> None:
    """git-changes-28: content staged as it is in the target is the user's work, not half of a switch."""
    world = World(tmp_path).filled()
    world.git("reset", "--quiet", "--hard")
    world.git("switch", "--quiet", "--create", "other")
    world.write("a.txt", "as in other\n")
    world.git("commit", "--quiet", "-am", "other")
    world.git("switch", "--quiet", "main")
    world.git("worktree", "add", "--quiet", str(tmp_path / "elsewhere"), "other")
    world.write("a.txt", "as in other\n")
    world.git("add", "a.txt")
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="another work tree"):
            await tools.git_switch("other", "work")
        world.git("worktree", "remove", str(tmp_path / "elsewhere"))
        (world.git_dir / "refs/heads/main.lock").touch()
        with pytest.raises(GitRefused):
            await tools.git_merge("other", "work")
    assert world.git("show", ":a.txt") == "as in other"
    assert (world.repository / "a.txt").read_text() == "as in other\n"


async def test_a_change_waits_for_a_lock_of_the_index(tmp_path: Path) -> None:
    """git-57: another git holds `index.lock` for a moment; here until the refused command is started again."""
    world = World(tmp_path).filled()
    lock = world.git_dir / "index.lock"
    last: list[str] = []

    def watch(words: list[str]) -> None:
        if words == last:
            lock.unlink()
        last[:] = words

    calls: tuple[Call, ...] = (
        ("git_add", {"paths": ["work/new.txt"]}),
        ("git_commit", {"message": "third"}),
        ("git_stash", {"action": "push"}),
        ("git_switch", {"detach": "HEAD~1"}),
        ("git_merge", {"revision": "main"}),
        ("git_restore", {"paths": ["work/b.txt"], "revision": "HEAD~1", "what": "both"}),
        ("git_reset", {"mode": "hard"}),
    )
    async with world.tools() as tools:
        for name, arguments in calls:
            lock.touch()
            os.utime(lock, (2**31, 2**31))  # never old
            with watched(watch):
                await function_of(tools, name)(repository="work", **arguments)
            assert not lock.exists(), name
    assert world.git("log", "-1", "--format=%s") == "third"
    assert world.git("stash", "list", "--format=%gd") == "stash@{0}"
    assert world.git("status", "--porcelain") == ""


async def test_changes_of_one_work_tree_wait_for_each_other(tmp_path: Path) -> None:
    """git-changes-27: each tool waits, then names the process; reads go on; `kill -9` frees the lock."""
    world = World(tmp_path).filled()
    before = state_of(world)
    refusals: dict[str, str] = {}

    async def refused(call: Call) -> None:
        with pytest.raises(Busy) as caught:
            await function_of(tools, call[0])(repository="work", **call[1])
        refusals[call[0]] = str(caught.value)

    async with world.tools() as tools:
        async with await anyio.open_process([sys.executable, "-c", HOLDER, str(world.git_dir)]) as holder:
            assert holder.stdout is not None
            assert (await holder.stdout.receive()).startswith(b"locked")
            async with create_task_group() as tasks:
                for call in CHANGES.values():
                    tasks.start_soon(refused, call)
                await tools.git_status("work")
                await tools.git_diff("work")
                await tools.git_stash("list", "work")
                assert refusals == {}
            assert refusals.keys() == CHANGES.keys()
            assert {f"process {holder.pid} (python" in text for text in refusals.values()} == {True}, refusals
            assert {text[:51] for text in refusals.values()} == {"work: another change of this work tree has not ende"}
            assert state_of(world) == before
            holder.kill()
        await tools.git_stash("push", "work")
    assert state_of(world)[2] == before[2]


async def test_a_change_holds_the_lock_of_its_work_tree_alone(tmp_path: Path) -> None:
    """git-changes-27: while it runs; a read, a fetch and a change of a linked work tree don't."""
    world = World(tmp_path).filled()
    world.git("worktree", "add", "--quiet", str(world.root / "linked"))

    def is_free() -> bool:
        with directory_access.open_subdirectory(handle, ".git") as again:
            return directory_access.lock(again)

    handle = os.open(world.repository, os.O_RDONLY)
    async with world.tools() as tools:
        opened = tools.repositories.opened
        async with opened("work", access=Access.GIT_DIRECTORY), opened("linked", access=Access.WORK_TREE):
            assert not is_free()
        assert is_free()
        async with opened("work"), opened("work", access=Access.WORK_TREE, is_exclusive=False):
            assert is_free()
    os.close(handle)


@pytest.mark.parametrize(
    ("tool", "arguments", "is_edited"),
    [
        ("git_merge", {"revision": "side"}, False),
        ("git_merge", {"revision": "side"}, True),
        ("git_switch", {"branch": "side"}, False),
    ],
)
async def test_where_head_is_lost_index_and_work_tree_are_put_back(
    tmp_path: Path, tool: str, arguments: dict[str, str], *, is_edited: bool
) -> None:
    """git-changes-28: git writes them before it moves HEAD; if somebody edits them then, the way back is named."""
    world = World(tmp_path).filled()
    world.git("branch", "side", "HEAD")
    world.git("reset", "--quiet", "--hard", "HEAD~1")
    world.write("a.txt", "unstaged\n")
    before = state_of(world)
    (world.git_dir / "HEAD.lock").touch()

    def edit(words: list[str]) -> None:
        if "read-tree" in words and is_edited:
            world.write("b.txt", "edited\n")

    async with world.tools() as tools:
        with watched(edit), pytest.raises(GitRefused) as caught:
            await function_of(tools, tool)(repository="work", **arguments)
        (world.git_dir / "HEAD.lock").unlink()
        if is_edited:
            assert "left in index and work tree; git_restore what='both' paths=['work/b.txt']" in str(caught.value)
            await tools.git_restore(["work/b.txt"], "work", what="both")
    assert is_edited or "index and work tree were put back" in str(caught.value)
    assert state_of(world)[0] == before[0]
    assert (world.repository / "b.txt").read_text() == "one\n"


async def test_a_merge_that_is_not_committed_says_how_to_go_on(tmp_path: Path) -> None:
    """git-changes-28: it stays in progress, and `git_continue` commits it."""
    world = World(tmp_path).filled()
    world.git("reset", "--quiet", "--hard")
    world.git("switch", "--quiet", "--create", "side", "HEAD~1")
    world.git("commit", "--quiet", "--allow-empty", "--message=side")
    lock = world.git_dir / "HEAD.lock"
    lock.touch()
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="merged, but not committed: git_continue commits it, or aborts"):
            await tools.git_merge("main", "work")
        lock.unlink()
        await tools.git_continue(repository="work")
    assert world.git("log", "-1", "--format=%s %P").startswith("Merge branch 'main' into side ")
