"""Several gits at work in one work tree: coretools servers, editors, people at a terminal."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.tools.git.change_calls import Call, function_of
from tests.tools.git.world import World

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
