"""A second process swaps a directory with a link to the outside in a loop, while all operations are tried."""

import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from coretools.errors import CoreError
from coretools.roots.directory_listing import list_directory
from coretools.roots.read import open_directory, read_bytes
from coretools.roots.write import create_directory, delete_file, move, write_bytes
from tests.checkout import TREE
from tests.roots.world import CANARY, PLENTY, READS, World, descriptors, state, walk

SECONDS = 2.0

SWAPPER = """
import os, sys
sys.path.insert(0, sys.argv[2])
from coretools.roots import open_beneath

here = os.open(sys.argv[1], os.O_RDONLY)
def exchange():
    open_beneath.rename(here, "d", here, "link", flags=2)  # RENAME_EXCHANGE
def rename():
    os.rename("d", "aside", src_dir_fd=here, dst_dir_fd=here)
    os.rename("link", "d", src_dir_fd=here, dst_dir_fd=here)
    os.rename("aside", "link", src_dir_fd=here, dst_dir_fd=here)
swap = exchange
try:
    exchange()
except OSError:
    swap = rename
os.set_blocking(0, False)
print("ready", flush=True)
swaps = 0
while True:
    for _ in range(1000):
        swap()
    swaps += 1000
    try:
        if os.read(0, 1) == b"":
            break
    except BlockingIOError:
        pass
print(swaps)
"""


@contextmanager
def swapped(root: Path) -> Iterator[None]:
    """Swap `d`, a directory, with `link`, which leads outside, in a loop."""
    tree = str(TREE)
    command = [sys.executable, "-c", SWAPPER, str(root), tree]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdin is not None
        assert swapper.stdout is not None
        try:
            assert swapper.stdout.readline() == b"ready\n"
            yield
        finally:
            swapper.stdin.close()
            assert int(swapper.stdout.read()) > 0


def attempts(world: World) -> list[Callable[[], object]]:
    """One round of all operations, with paths through the swapped directory."""
    roots, fresh = world.roots, itertools.count()
    return [
        lambda: read_bytes(roots, "d/secret.txt", limit_bytes=PLENTY).data,
        lambda: READS["read_nonblocking"](roots, "d/secret.txt"),
        lambda: read_bytes(roots, "d/sub/../secret.txt", limit_bytes=PLENTY).data,
        lambda: read_bytes(roots, "d/../d/secret.txt", limit_bytes=PLENTY).data,
        lambda: [entry.name for entry in list_directory(roots, "d", limit=99).entries],
        lambda: [relative for relative, _ in walk(roots, ".", choose=lambda _, found: found, most=999)],
        lambda: opened_and_listed(world),
        lambda: write_bytes(roots, "d/secret.txt", b"inside"),
        lambda: write_bytes(roots, "d/victim.txt", b"inside"),
        lambda: write_bytes(roots, f"d/new-{next(fresh) % 20}/deep/file", b"inside", parents=True),
        lambda: create_directory(roots, f"d/made-{next(fresh) % 50}/deep"),
        lambda: delete_file(roots, "d/victim.txt"),
        lambda: move(roots, "d/secret.txt", "taken.txt", overwrite=True),
        lambda: move(roots, "taken.txt", "d/secret.txt", overwrite=True),
        lambda: move(roots, "d/victim.txt", "d/sub/victim.txt", overwrite=True),
        lambda: write_bytes(roots, "d/secret.txt", b"inside"),
    ]


def opened_and_listed(world: World) -> list[str]:
    with open_directory(world.roots, "d/sub") as directory:
        return [entry.name for entry in list_directory(world.roots, directory.display_path, limit=99).entries]


def test_a_directory_swapped_for_a_link_lets_nothing_out_or_in(world: World) -> None:
    """roots-1: no leak and no change outside, whenever the swap happens between check and use."""
    (world.outside / "victim.txt").write_bytes(CANARY)
    (world.outside / "outside-only").mkdir()
    (world.outside / "sub").mkdir()
    (world.outside / "sub" / "outside-only").write_bytes(CANARY)
    inside = world.root / "d"
    (inside / "sub").mkdir(parents=True)
    (inside / "secret.txt").write_bytes(b"inside")
    world.link("link", world.outside)
    before, open_before = state(world.outside), descriptors()
    results: Counter[str] = Counter()
    with swapped(world.root):
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            for attempt in attempts(world):
                try:
                    result = attempt()
                except CoreError as error:
                    results[error.kind] += 1
                    continue
                results["done"] += 1
                assert result != CANARY
                assert not (isinstance(result, list) and any("outside-only" in name for name in result))
    assert state(world.outside) == before
    assert descriptors() == open_before
    assert results["done"] > 0
    assert results["outside-root"] > 0
    assert set(results) <= {"done", "outside-root", "not-found", "wrong-type", "already-exists", "conflict"}
