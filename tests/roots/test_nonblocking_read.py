"""Nonblocking reads: they return what an ordinary read returns, or nothing."""

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir
from itertools import count
from pathlib import Path

import pytest

from coretools.errors import CoreError
from coretools.roots.file_version import Version
from coretools.roots.nonblocking_read import (
    LATE_SECONDS,
    MAX_BYTES,
    PAUSE_SECONDS,
    attempt_nonblocking,
    can_read_nonblocking,
    read_nonblocking,
)
from coretools.roots.read import read_bytes
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from tests.roots.world import CANARY, PLENTY, SECRET, World, descriptors, mounted, opened


@pytest.fixture
def resolver() -> str:
    if sys.platform != "linux":
        pytest.skip("RESOLVE_CACHED: this is not Linux")
    return "openat2"


@pytest.fixture(autouse=True)
def _is_possible(world: World) -> None:
    """Fail where a nonblocking read never succeeds, so that no test passes for that reason; skip where it is
    unavailable."""
    assert can_read_nonblocking(world.roots)
    if not world.roots.first.is_on_disk:
        pytest.skip("the temporary directory is on a file system that another program may serve")
    read_bytes(world.roots, "plain.txt", limit_bytes=PLENTY)  # from here on the path is in the kernel's cache
    if read_now(world.roots, "plain.txt") is None:
        pytest.skip("RESOLVE_CACHED or RWF_NOWAIT: this kernel or file system lacks it")


def read_now(roots: Roots, path: str, limit: int = PLENTY) -> bytes | None:
    content = read_nonblocking(roots, path, limit_bytes=limit)
    return None if content is None else content.data


@pytest.mark.parametrize("size", [0, 1, 4096, MAX_BYTES])
def test_a_small_file_is_read(world: World, size: int) -> None:
    """roots-28: with the same content, name and version as the ordinary read."""
    (world.root / "dir" / "data").write_bytes(os.urandom(size))
    expected = read_bytes(world.roots, "dir/data", limit_bytes=PLENTY)
    assert read_nonblocking(world.roots, "dir/data", limit_bytes=PLENTY) == expected
    assert isinstance(expected.version, Version)


@pytest.mark.parametrize(
    "path", ["./plain.txt", "dir//inner.txt", "dir/./sub/deep.txt", "plain.txt/", "{root}/plain.txt"]
)
def test_every_spelling_is_the_same_file(world: World, path: str) -> None:
    """roots-28"""
    path = path.format(root=world.root)
    assert read_now(world.roots, path) in (None, read_bytes(world.roots, path, limit_bytes=PLENTY).data)


def _large(world: World) -> str:
    (world.root / "large").write_bytes(bytes(MAX_BYTES + 1))
    return "large"


def _fifo(world: World) -> str:
    os.mkfifo(world.root / "fifo")
    return "fifo"


def _socket(world: World) -> str:
    with socket.socket(socket.AF_UNIX) as bound:
        os.chdir(world.root)
        bound.bind("socket")
    return "socket"


def _link(world: World) -> str:
    world.link("link", "plain.txt")
    return "link"


def _link_out(world: World) -> str:
    world.link("out", world.outside / "secret.txt")
    return "out"


def _directory_link_out(world: World) -> str:
    world.link("away", world.outside)
    return "away/secret.txt"


def _denied(world: World) -> str:
    (world.root / ".env").write_bytes(SECRET)
    return "./.env"


def _magic(world: World) -> str:
    world.link("magic", "/proc/self/cwd")
    return "magic/plain.txt"


LEFT: list[Callable[[World], str]] = [
    *(_large, _fifo, _socket, _link, _link_out, _directory_link_out, _denied, _magic),
    *(lambda _: "dir", lambda _: "nothing", lambda _: "plain.txt/x", lambda _: "../outside/secret.txt"),
    *(lambda _: "dir/../../outside/secret.txt", lambda world: str(world.outside / "secret.txt")),
    *(lambda _: "", lambda _: "a\0b", lambda _: "\ud800", lambda _: "x" * 5000, lambda _: "/proc/self/environ"),
]


@pytest.mark.parametrize("made", LEFT)
def test_other_files_are_left_to_the_ordinary_read(world: World, made: Callable[[World], str]) -> None:
    """roots-28, roots-1, roots-7: it returns None, raises nothing and leaks no descriptor."""
    with chdir(Path.cwd()):  # bind the socket from within its directory: its path may be too long
        path = made(world)
    before = descriptors()
    assert read_now(world.roots, path) is None
    assert descriptors() == before


def test_a_limit_of_the_caller_applies(world: World) -> None:
    """roots-28, roots-6"""
    assert read_now(world.roots, "plain.txt", limit=4) is None
    assert read_now(world.roots, "plain.txt", limit=5) == b"plain"


def test_denied_files_are_left_to_the_ordinary_read(world: World) -> None:
    """roots-28: the operator's deny globs."""
    with opened(world.root, resolver="openat2", deny=("inner.txt",)) as roots:
        assert read_now(roots, "dir/inner.txt") is None
        assert read_now(roots, "dir/sub/deep.txt") == b"deep"


def test_a_slow_read_disables_nonblocking_reads_for_a_while(world: World) -> None:
    """roots-28: only the clock is simulated; a program that watches opens would need root."""
    now = iter([100.0, 100.0 + LATE_SECONDS + 0.01, 200.0, 200.0, 100.2 + PAUSE_SECONDS, 100.3 + PAUSE_SECONDS])
    for tried in (True, False, True):
        with attempt_nonblocking(world.roots, clock=lambda: next(now), waits=count().__next__) as may_try:
            assert may_try is tried
    world.roots.disable_nonblocking_until(math.inf)
    assert read_now(world.roots, "plain.txt") is None


def test_a_read_that_got_no_processor_disables_nothing(world: World) -> None:
    """roots-28: it did not wait, so a thread would not be faster."""
    now = iter([100.0, 101.0 + LATE_SECONDS, 200.0, 200.0])
    for _ in range(2):
        with attempt_nonblocking(world.roots, clock=lambda: next(now), waits=lambda: 7) as may_try:
            assert may_try


def test_a_thread_that_sleeps_has_waited(world: World) -> None:
    """roots-28: as an open does that another program delays."""
    late = iter([100.0, 101.0 + LATE_SECONDS, 200.0, 200.0])
    for tried in (True, False):
        with attempt_nonblocking(world.roots, clock=lambda: next(late)) as may_try:
            assert may_try is tried
            time.sleep(0.001)


def test_a_removed_root_uses_the_ordinary_read(world: World) -> None:
    """roots-28, roots-17: the descriptor would still refer to the old directory."""
    moved = world.root.rename(world.root.with_name("elsewhere"))
    assert read_now(world.roots, "plain.txt") is None
    world.root.mkdir()
    (world.root / "plain.txt").write_bytes(CANARY)
    assert read_now(world.roots, "plain.txt") is None
    (world.root / "plain.txt").unlink()
    world.root.rmdir()
    moved.rename(world.root)
    assert read_now(world.roots, "plain.txt") == b"plain"


def test_nested_roots_and_the_other_resolver_use_the_ordinary_read(world: World) -> None:
    """roots-28, roots-14"""
    with opened(world.root, RootSpec(str(world.root / "dir"), writable=False), resolver="openat2") as roots:
        assert read_now(roots, "dir/inner.txt") is None
    with opened(world.root, resolver="walk") as roots:
        assert read_now(roots, "plain.txt") is None


def test_another_file_system_uses_the_ordinary_read(world: World) -> None:
    """roots-28: a network or another program may serve it."""
    with mounted("tmpfs", "size=1m", world.root / "mounted") as place:
        (place / "file").write_bytes(b"there")
        assert read_bytes(world.roots, "mounted/file", limit_bytes=PLENTY).data == b"there"
        assert read_now(world.roots, "mounted/file") is None


def test_a_file_without_read_permission_uses_the_ordinary_read(world: World) -> None:
    """roots-28, roots-18"""
    (world.root / "plain.txt").chmod(0)
    try:
        expected: bytes | None = read_bytes(world.roots, "plain.txt", limit_bytes=PLENTY).data
    except CoreError:  # as an ordinary user
        expected = None
    assert read_now(world.roots, "plain.txt") == expected


EXCHANGING = """
import os, sys
os.chdir(sys.argv[1])
os.symlink(sys.argv[2], "to-secret")
print("ready", flush=True)
while True:
    os.rename("plain.txt", "kept"); os.rename("to-secret", "plain.txt")
    os.rename("plain.txt", "to-secret"); os.rename("kept", "plain.txt")
"""


def test_a_file_swapped_with_a_link_leaks_nothing(world: World) -> None:
    """roots-28, roots-1: another process swaps it 20,000 times."""
    words = [sys.executable, "-c", EXCHANGING, str(world.root), str(world.outside / "secret.txt")]
    before = descriptors()
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        found = {read_now(world.roots, "plain.txt") for _ in range(20_000)}
        other.kill()
    assert found == {None, b"plain"}
    assert descriptors() == before
