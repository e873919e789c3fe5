"""Kill a process in the middle of every changing git tool: `-m tests.tools.git.killed TOP STEP`.

Each call runs in a fork, in a copy of one repository, once for every STEP-th git process that it starts; the fork kills
itself (SIGKILL) where that process would start. Prints JSON: for each place what is wrong afterwards.
"""

import json
import os
import shutil
import signal
import sys
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any

import anyio

from coretools.errors import CoreError
from tests.tools.git.change_calls import EACH, Call, function_of, is_read, with_other
from tests.tools.git.world import World

CONTENTS = {"a.txt": "unstaged\n", "b.txt": "staged\n", "new.txt": "new\n"}
"""Uncommitted content of the repository: unstaged, staged, untracked."""

CLEAN = ("git_merge", "git_rebase", "git_cherry_pick", "git_revert", "git_continue", "git_bisect")
"""Tools that are tried after a commit of everything, since they refuse uncommitted changes."""

ADDED: tuple[Call, ...] = (
    ("git_add", {"paths": ["work"]}),
    ("git_add", {"paths": ["work/a.txt"], "hunks": ["1"]}),
    ("git_commit", {"message": "x"}),
    ("git_restore", {"paths": ["work"], "what": "both"}),
    ("git_stash", {"action": "pop", "with_index": True}),
    ("git_switch", {"detach": "HEAD"}),
)


def calls() -> list[Call]:
    changes = [call for call in (*EACH, *ADDED) if not is_read(call) and call[0] != "git_bisect_run"]
    return [call for call in changes if call[1].get("side") != "ours"]


@cache
def prepared(top: Path, needs: frozenset[str]) -> World:
    """A repository in the state in which calls with these needs do their work."""
    world = with_other(World(top / "-".join(["start", *sorted(needs)])).filled())

    async def prepare() -> None:
        async with world.tools() as tools:
            if "clean" in needs:
                await tools.git_add(["work"], "work")
                await tools.git_commit("all", "work")
            if "conflict" in needs:
                await tools.git_merge("other", "work")
            if "stash" in needs:
                await tools.git_stash("push", "work")
            if "bisect" in needs:
                await tools.git_bisect("start", "work", good=["HEAD~2"])

    anyio.run(prepare)
    return world


def needs_of(call: Call) -> frozenset[str]:
    """What a call needs to find."""
    name, arguments = call
    found = {
        "clean": name in CLEAN,
        "conflict": name == "git_continue",
        "stash": arguments.get("action") == "pop",
        "bisect": arguments.get("action") == "reset",
    }
    return frozenset(need for need, is_needed in found.items() if is_needed)


async def interrupted(world: World, call: Call, at: int) -> None:
    """Make the call, and die where its git process number `at` would start."""
    count = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in ("subprocess.Popen", "os.posix_spawn") and str(arguments[0]).endswith("git"):
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

    async with world.tools() as tools:
        sys.addaudithook(watch)
        try:
            await function_of(tools, call[0])(repository="work", **call[1])
        except CoreError as error:
            print(f"{call}: {error}", file=sys.stderr)


async def wrong(world: World, call: Call) -> list[str]:
    """What is not as it must be after a crash."""
    found = []
    status = world.git("status", check=False)
    if "fatal" in status or "error:" in status:
        found.append(status)
    if list(world.git_dir.glob("*.lock")):
        found.append(f"locks: {list(world.git_dir.glob('*.lock'))}")
    for name, text in CONTENTS.items():
        path = world.repository / name
        blob = sha1(f"blob {len(text)}\0{text}".encode(), usedforsecurity=False).hexdigest()
        is_there = path.exists() and path.read_text() == text
        if not is_there and world.git("cat-file", "-t", blob, check=False) != "blob":
            found.append(f"{name}: its content is gone")
    async with world.tools() as tools:
        text = (await tools.git_status("work")).text()
        unfinished = [one for one in ("MERGE_HEAD", "rebase-merge", "BISECT_LOG") if (world.git_dir / one).exists()]
        if unfinished and "in progress" not in text:
            found.append(f"{unfinished} is not mentioned: {text}")
    return found


def main() -> None:
    top, step = Path(sys.argv[1]), int(sys.argv[2])
    results: dict[str, list[str]] = {}
    places = 0
    for number, call in enumerate(calls()):
        start = prepared(top, needs_of(call))
        for at in range(1 + number % step, 40, step):
            world = World(top / f"{number}-{at}")
            shutil.copytree(start.root, world.root, symlinks=True, dirs_exist_ok=True)
            child = os.fork()
            if not child:
                anyio.run(interrupted, world, call, at)
                os._exit(0)
            _, code = os.waitpid(child, 0)
            bad: list[Any] = anyio.run(wrong, world, call)
            if bad:
                results[f"{call} at {at}"] = bad
            shutil.rmtree(world.top)
            if os.WIFEXITED(code):
                break
            places += 1
    print(json.dumps({"places": places, "wrong": results}))


if __name__ == "__main__":
    main()
