"""Random changes of a random tree by the file tools, all taken back: the tree is as before (docs/specs/undo.md)."""

import codecs
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


MARKS = {
    "utf-8": b"",
    "utf-8-sig": b"",
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "cp1252": b"",
    "shift_jis": b"",
}
ENDINGS = ("\n", "\r\n", "\r", "\n\r\n", "")
SIZES = (0, 0, 10, 300, 9_000, 300_000)
LARGEST = 25_000_000
"""Of each side of the edit."""


def bytes_around(draw: random.Random, size: int, encoding: str) -> tuple[bytes, bytes]:
    """What a file has before and after the place of an edit."""
    line = "".join(draw.choices("abc é日\0" if draw.random() < 0.1 else "abc xyz", k=30)) + draw.choice(ENDINGS)
    sides = [(line * (size // len(line) + 1))[: draw.choice((0, size // 2, size))] for _ in range(2)]
    codec = encoding.removesuffix("-sig")
    return tuple(side.encode(codec, "ignore") for side in sides)  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(40))
def test_an_edit_changes_its_own_bytes_and_undo_brings_everything_back(world: World, seed: int) -> None:
    """roots-26, undo-1: in any encoding, with any line endings, from 1 byte to 50 MB; a refusal changes nothing."""
    draw = random.Random(seed)
    encoding, size = draw.choice(sorted(MARKS)), LARGEST if seed == 0 else draw.choice(SIZES)
    mark = codecs.BOM_UTF8 if encoding == "utf-8-sig" else MARKS[encoding]
    before, after = bytes_around(draw, size, encoding)
    old, new = (text.encode(encoding.removesuffix("-sig")) for text in ("Q", "changed"))
    path = world.root / "file"
    path.write_bytes(mark + before + old + after)
    path.chmod(draw.choice((0o644, 0o600, 0o755)))
    os.utime(path, ns=(1, draw.randrange(10**18)))
    state = world.state()
    refused = ""
    try:
        world.files.edit_file("file", [Edit(old="Q", new="changed")])
    except CoreError as error:
        refused = error.kind
    if refused:
        assert refused in ("not-text", "edit-refused")
        assert world.state() == state
        return
    assert path.read_bytes() == mark + before + new + after
    assert world.undo.undo(since=1).kept == []
    assert world.state() == state
