"""Random changes of a random tree by the file tools, all taken back: the tree is as before (docs/specs/undo.md)."""

import hashlib
import os
import random
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import CoreError
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.multi_file_tools import FileEdits
from coretools.tools.filesystem.tools import FilesystemTools
from coretools.tools.undo.tools import UndoTools
from coretools.undo.change import Bounds
from coretools.undo.journal import Journal
from coretools.undo.recorder import ChangeRecorder

BOUNDS = Bounds(size=1 << 30, days=14, changes=10_000)
NAMES = ("a", "b", "ü", "c d", ".env", "e\udcff", "f\n")


class World:
    """A root, its tools, and a journal elsewhere."""

    def __init__(self, top: Path, *, bounds: Bounds = BOUNDS, most_copied: int = 1 << 26) -> None:
        self.root = top / "root"
        self.root.mkdir(exist_ok=True)
        self.store = top / "changes"
        self.roots = Roots([RootSpec(str(self.root))], deny=DenyRules(DEFAULT_DENY, by_content=True))
        self.recorder = ChangeRecorder(
            lambda: Journal(str(self.store), bounds, most_copied=most_copied), role="", most_bytes=bounds.size
        )
        self.roots.changes = self.recorder
        self.files = FilesystemTools(self.roots, Limits())
        self.undo = UndoTools(self.roots, Limits(), self.recorder)

    def close(self) -> None:
        self.recorder.close()
        self.roots.close()

    def state(self) -> dict[str, tuple[object, ...]]:
        """Every entry with kind, permissions and content; of files and links the time too."""
        found: dict[str, tuple[object, ...]] = {}
        for above, directories, files in os.walk(self.root):
            for name in directories + files:
                path = os.path.join(above, name)
                status = os.lstat(path)
                what: object = b""
                if stat.S_ISREG(status.st_mode):
                    what = hashlib.sha256(Path(path).read_bytes()).digest(), status.st_mtime_ns
                elif stat.S_ISLNK(status.st_mode):
                    what = os.readlink(path)
                found[os.path.relpath(path, self.root)] = (stat.S_IFMT(status.st_mode), status.st_mode & 0o777, what)
        return found


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
    changes = world.recorder.journal.changes("")
    for one in changes:  # the newest first, each with what it undid
        result = world.undo.undo(change=one.id)
        assert result.kept == [], (one, result.text())
    assert world.state() == before
    for one in world.recorder.journal.changes("", since=changes[0].id):
        assert world.undo.undo(change=one.id).kept == []
    assert {path: state[:2] for path, state in world.state().items()} == {path: s[:2] for path, s in after.items()}
