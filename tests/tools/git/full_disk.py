"""Git operations on a disk that is full but for some blocks: `python -m tests.tools.git.full_disk DIRECTORY`."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tools.git.change_calls import change_answers
from tests.tools.git.world import World

BIG = os.urandom(192 * 1024)
"""Random, so that git can't compress it into the blocks that are left."""

FREE_BYTES = 96 * 1024

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("git_add", {"paths": ["work/big"]}),
    ("git_stash", {"action": "push", "untracked": True}),
    ("git_switch", {"branch": "side"}),
    ("git_merge", {"revision": "side"}),
    ("git_rebase", {"upstream": "side"}),
    ("git_cherry_pick", {"revisions": ["side"]}),
)


@contextmanager
def _full(filler: Path) -> Iterator[None]:
    with filler.open("wb", buffering=0) as file:
        while _is_written(file.fileno()):
            pass
    os.truncate(filler, filler.stat().st_size - FREE_BYTES)
    try:
        yield
    finally:
        filler.unlink()


def _is_written(handle: int) -> bool:
    try:
        return os.write(handle, bytes(4096)) > 0
    except OSError:
        return False


async def _outcome(top: Path, call: tuple[str, dict[str, Any]]) -> dict[str, object]:
    world = World(top).filled()
    world.git("reset", "--hard", "--quiet")
    world.git("switch", "--quiet", "-c", "side")
    world.write("big", "").write_bytes(BIG)
    world.git("add", "big")
    world.git("commit", "--quiet", "-m", "big")
    world.git("switch", "--quiet", "main")
    world.git("commit", "--quiet", "--allow-empty", "-m", "more")
    kept = BIG[::-1] if call[0] in ("git_add", "git_stash") else None
    if kept:
        world.write("big", "").write_bytes(kept)
    head = world.git("rev-parse", "HEAD")
    async with world.tools() as tools:
        with _full(top / "filler"):
            [text] = await change_answers(tools, (call,))
        status = (await tools.git_status("work")).text()
    return {
        "is_refused": text.startswith("git-refused: ") and ("No space" in text or "is the disk full?" in text),
        "is_kept": (kept is None or (world.repository / "big").read_bytes() == kept)
        and (world.repository / "new.txt").read_text() == "new\n",
        "is_unmoved": world.git("rev-parse", "HEAD") == head or "in progress" in status,
        "is_sound": "error" not in world.git("fsck", "--strict", check=False),
        "is_unlocked": not (world.git_dir / "index.lock").exists(),
        # git itself leaves the beginning of a file that a switch or merge could not write.
        "is_done_later": kept is None or await _again(world, call),
    }


async def _again(world: World, call: tuple[str, dict[str, Any]]) -> bool:
    async with world.tools() as tools:
        [text] = await change_answers(tools, (call,))
    return not text.startswith("git-refused")


def main() -> None:
    """Print the outcome of each call."""
    found = {}
    for call in CALLS:
        found[call[0]] = asyncio.run(_outcome(Path(sys.argv[1]) / call[0], call))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
