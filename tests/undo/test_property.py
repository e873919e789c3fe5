"""Random changes of a random tree by the file tools, all taken back: the tree is as before (docs/specs/undo.md)."""

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coretools.errors import CoreError
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.multi_file_tools import FileEdits
from tests.undo.world import World

NAMES = ("a", "b", "ü", "c d", ".env", "e\udcff", "f\n")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def plant(root: Path, draw: random.Random, depth: int = 3) -> None:
    for name in draw.sample(NAMES, draw.randrange(2, 6)):
        path, kind = root / name, draw.random()
        if kind < 0.5:
            path.write_bytes(draw.choice((b"", b"one\ntwo\n", b"\xef\xbb\xbfx\r\ny", draw.randbytes(3000))))
            path.chmod(draw.choice((0o644, 0o600, 0o755, 0o444)))
            os.utime(path, ns=(1, draw.randrange(10**18)))
        elif kind < 0.6:
            path.symlink_to(draw.choice(("a", "nowhere", "..")))
        elif depth:
            path.mkdir(mode=draw.choice((0o755, 0o700)))
            plant(path, draw, depth - 1)


def some_path(world: World, draw: random.Random) -> str:
    paths = [*world.state(), "new", "new/er", "a/new"]
    return draw.choice(paths)


def change(world: World, draw: random.Random) -> None:
    """One call of a file tool, which may be refused."""
    path, other, tools = some_path(world, draw), some_path(world, draw), world.files
    draw.choice(
        (
            lambda: tools.write_file(path, draw.choice(("", "x\n", "one\n")), create_parents=True, overwrite=True),
            lambda: tools.write_file(path, "more\n", append=True),
            lambda: tools.edit_file(path, [Edit(old="one", new="two")]),
            lambda: tools.edit_files([FileEdits(path=one, edits=[Edit(old="x", new="one")]) for one in (path, other)]),
            lambda: tools.delete_file(path),
            lambda: tools.delete_directory(path),
            lambda: tools.create_directory(path),
            lambda: tools.move_path(path, other, overwrite=True),
            lambda: tools.copy_path(path, f"{other}-copy", create_parents=True),
            lambda: world.undo.undo(change=draw.randrange(1, 30)),
        )
    )()


@pytest.mark.parametrize("seed", range(12))
def test_everything_since_the_start_is_taken_back(world: World, seed: int) -> None:
    """undo-1, undo-4, undo-11: with undos among the changes; then the undo itself is taken back."""
    draw = random.Random(seed)
    plant(world.root, draw)
    before = world.state()
    for _ in range(60):
        with suppress(CoreError, UnicodeEncodeError):
            change(world, draw)
    after = world.state()
    changes = world.recorder.journal.changes("", [str(world.root)])
    for one in changes:  # the newest first, each with what it undid
        result = world.undo.undo(change=one.id)
        assert result.kept == [], (one, result.text())
    assert world.state() == before
    for one in world.recorder.journal.changes("", [str(world.root)], since=changes[0].id):
        assert world.undo.undo(change=one.id).kept == []
    assert {path: state[:2] for path, state in world.state().items()} == {path: s[:2] for path, s in after.items()}
