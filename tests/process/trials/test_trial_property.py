"""Random commands on trial, kept: the tree is that of a plain run; discarded: as before (docs/specs/trials.md)."""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.process.test_sandbox_pool import needs_namespaces
from tests.process.trials.world import tree, world_in

pytestmark = needs_namespaces

NAMES = ("a", "b", "ü", "c d", "e", "x.sh", "f\n")
CONTENTS = (b"", b"one\ntwo\n", b"\0\1\2" * 999, "grün\r\n".encode())

MODES = ("700", "755", "u+x", "a-w", "500", *(["000"] if os.geteuid() == 0 else []))
"""What others than root can't read they can't compare, nor keep for undo."""


def plant(root: Path, draw: random.Random, depth: int = 2) -> None:
    root.mkdir(exist_ok=True)
    for name in draw.sample(NAMES, draw.randrange(2, len(NAMES))):
        path, kind = root / name, draw.random()
        if kind < 0.5:
            path.write_bytes(draw.choice(CONTENTS))
            path.chmod(draw.choice((0o644, 0o600, 0o755, 0o444)))
        elif kind < 0.6:
            path.symlink_to(draw.choice(("a", "nowhere", "..")))
        elif depth:
            plant(path, draw, depth - 1)
            path.chmod(draw.choice((0o755, 0o700)))
        if path.exists() and not path.is_symlink():
            os.utime(path, ns=(1, draw.randrange(10**18)))


def command(draw: random.Random) -> str:
    """A line whose parts may fail, each the same way in every tree."""

    def path() -> str:
        return "/".join(quoted(draw.choice(NAMES)) for _ in range(draw.randrange(1, 4)))

    def step() -> str:
        one, other = path(), path()
        return draw.choice(
            (
                f"echo {draw.randrange(100)} > {one}",
                f"echo more >> {one}",
                f"rm -f {one}",
                f"rm -rf {one}",
                f"rm -rf {one}; mkdir {one}; echo again > {one}/a",
                f"rmdir {one}",
                f"mkdir -p {one}",
                f"mv -T {one} {other}",
                f"mv {one} {other}",
                f"cp -a {one} {other}",
                f"ln -sfn {one} {other}",
                f"ln {one} {one}.second && rm {one}",  # two names that were there before are told apart by an overlay
                f"chmod {draw.choice(MODES)} {one}",
                f"touch -d @{draw.randrange(10**9)} {one}",
                f"sed -i s/one/two/ {one}",
                f"truncate -s {draw.randrange(9999)} {one}",
                f"cat {one}; : >> {one}",
                f"find {one} -type f -exec sh -c 'echo z >> \"$1\"' _ {{}} \\;",
                f"tar cf t.tar {one}; mkdir -p {other}; tar xf t.tar -C {other}; rm t.tar",
            )
        )

    return "\n".join(step() for _ in range(draw.randrange(1, 12)))


def quoted(name: str) -> str:
    return f"$'{name}'".replace("\n", "\\n")


@pytest.mark.parametrize("seed", range(8))
async def test_random_commands_kept_are_as_run_and_discarded_are_as_never_run(tmp_path: Path, seed: int) -> None:
    """trial-3, trial-4: content, kind, permissions, links, times that are not new; then the undo of each."""
    draw = random.Random(seed)
    plant(tmp_path / "root", draw)
    shutil.copytree(tmp_path / "root", tmp_path / "plain" / "root", symlinks=True, copy_function=shutil.copy2)
    async with world_in(tmp_path) as world, world_in(tmp_path / "plain") as plain:
        now = os.stat(tmp_path).st_mtime_ns
        now -= now % 10**9  # tar keeps whole seconds
        for _ in range(12):
            line, before = command(draw), tree(world.root)
            answer = await world.on_trial(line)
            assert tree(world.root) == before, line
            if draw.random() < 0.3 and "would" in answer and "trial=" in answer:
                await world.discard(answer.split("trial='")[1].split("'")[0])
                assert tree(world.root) == before, line
                continue
            if "trial='" in answer:
                kept = await world.keep(answer.split("trial='")[1].split("'")[0])
                assert kept.startswith("kept "), (line, kept)
            await plain.run(line)
            assert tree(world.root, new_from=now) == tree(plain.root, new_from=now), line
        assert world.left() == []
