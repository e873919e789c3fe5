"""A root, a directory outside with a canary, and the effect of every operation on a path."""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from coretools.roots.directory_listing import EntryFilter, WalkEntry, list_directory, walk_batches
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.nonblocking_read import read_nonblocking
from coretools.roots.read import file_status, kind_at, open_directory, open_file, read_bytes
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.write import create_directory, delete_file, move, write_bytes

CANARY = b"the canary outside"
SECRET = b"TOKEN=the canary\n"
"""Content for which a file named `.env` is hidden."""
PLENTY = 1 << 20


@dataclass(frozen=True)
class World:
    root: Path
    outside: Path
    roots: Roots

    def link(self, name: str, target: str | Path) -> None:
        (self.root / name).symlink_to(target)

    def read(self, path: str) -> bytes:
        return read_bytes(self.roots, path, limit_bytes=PLENTY).data


def opened(*roots: Path | RootSpec, resolver: str, deny: tuple[str, ...] = ()) -> Roots:
    specs = [root if isinstance(root, RootSpec) else RootSpec(str(root)) for root in roots]
    rules = DenyRules([*DEFAULT_DENY, *deny])
    return Roots(specs, deny=rules, resolver=resolver)


def state(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """All entries of a directory: mode, modification time, content or target."""
    found = {}
    for path in sorted([directory, *directory.rglob("*")]):
        status_ = path.lstat()
        content = b""
        if stat.S_ISREG(status_.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status_.st_mode):
            content = os.fsencode(path.readlink())
        found[str(path)] = (status_.st_mode, status_.st_mtime_ns, content)
    return found


def descriptors() -> list[str]:
    """The open descriptors of this process with their targets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return sorted(found)


@contextmanager
def mounted(kind: str, options: str, place: Path) -> Iterator[Path]:
    """Mount a file system at a directory, a new one by default; skip where that is not permitted."""
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", kind, "-o", options, "coretools-test", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("mount: not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _file(roots: Roots, path: str) -> bytes:
    with open_file(roots, path) as file:
        return file.read(PLENTY)


def _nonblocking(roots: Roots, path: str) -> bytes:
    """Read as `read_file` does: without blocking if possible, otherwise the ordinary way."""
    content = read_nonblocking(roots, path, limit_bytes=PLENTY)
    return read_bytes(roots, path, limit_bytes=PLENTY).data if content is None else content.data


def _directory(roots: Roots, path: str) -> str:
    with open_directory(roots, path) as directory:
        return directory.path


Operation = Callable[[Roots, str], object]


def walk(roots: Roots, path: str, *, choose: EntryFilter, most: int) -> Iterator[WalkEntry]:
    """Yield what a walk meets one by one, with paths relative to the root."""
    for above, run in walk_batches(roots, path, choose=choose, most=most):
        yield from ((above + name, kind) for name, kind in run)


READS: dict[str, Operation] = {
    "open_file": _file,
    "read_bytes": lambda roots, path: read_bytes(roots, path, limit_bytes=PLENTY).data,
    "read_nonblocking": _nonblocking,
    "open_directory": _directory,
    "list_directory": lambda roots, path: list_directory(roots, path, limit=10),
    "walk": lambda roots, path: list(walk(roots, path, choose=lambda _, found: found, most=10)),
    "file_status": file_status,
    "kind_at": kind_at,
}

CHANGES: dict[str, Operation] = {
    "write": lambda roots, path: write_bytes(roots, path, b"overwritten"),
    "write_with_parents": lambda roots, path: write_bytes(roots, f"{path}/new/file", b"made", parents=True),
    "create_directory": lambda roots, path: create_directory(roots, f"{path}/made"),
    "delete": delete_file,
    "move_from": lambda roots, path: move(roots, path, "moved"),
    "move_to": lambda roots, path: move(roots, "plain.txt", path, overwrite=True),
}

OPERATIONS = READS | CHANGES
