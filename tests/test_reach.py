"""Whether agents and commands can change what a path leads to, on real files and, where that is permitted, mounts."""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from coretools.reach import Place, Reach

NAMES = ("a", "b", "l", "root")


def reach(*places: Path, trusted: Sequence[str] = ()) -> Reach:
    """What agents may change if they may change these places."""
    return Reach([Place(str(place), "the writable root") for place in places], trusted=trusted)


def test_a_path_is_within_reach_exactly_if_another_file_can_be_put_there(tmp_path: Path) -> None:
    """trust-1: for every short path through links, `..` and the root, the answer is that of an agent that tries it.

    The agent replaces each entry in the root, one after the other, and looks whether the path then leads elsewhere.
    """
    outside, root = tmp_path / "a", tmp_path / "root"
    for directory in (outside, root / "a", root / "b"):
        directory.mkdir(parents=True)
    (outside / "b").write_text("same")
    (outside / "l").symlink_to(root / "a")
    (outside / "root").symlink_to("../root/l")
    (root / "l").symlink_to("../a")
    (root / "a" / "b").write_text("same")
    (tmp_path / "l").symlink_to("a/l/../../a")
    (tmp_path / "b").symlink_to("root/b")
    within = reach(root)
    for words in (words for length in (1, 2, 3) for words in product((*NAMES, ".."), repeat=length)):
        path = os.path.join(tmp_path, *words)
        if not os.path.exists(path):
            continue
        assert bool(within.reason(path)) == can_be_replaced(path, root), path


def can_be_replaced(path: str, root: Path) -> bool:
    """Whether an agent changes what is found at a path by renaming entries beneath a root, or may create beneath it."""
    before = os.path.realpath(path)
    if before == str(root) or before.startswith(f"{root}/"):
        return True
    for above, directories, files in list(os.walk(root)):
        for name in (*directories, *files):
            entry = os.path.join(above, name)
            os.rename(entry, f"{entry}.away")
            try:
                if not os.path.exists(path) or os.path.realpath(path) != before:
                    return True
            finally:
                os.rename(f"{entry}.away", entry)
    return False


def test_missing_files_hard_links_and_loops(tmp_path: Path) -> None:
    """trust-2: a missing name counts where an agent could create it; a hard link and a loop count always."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "own").write_text("x")
    os.link(outside / "own", outside / "second")
    (outside / "shared").write_text("x")
    os.link(outside / "shared", root / "name")
    (outside / "loop").symlink_to("loop")
    within = reach(root)
    assert within.reason(str(root / "new" / "file"))
    assert not within.reason(str(outside / "new" / "file"))
    assert not within.reason(str(outside / "own"))
    assert "2 names (hard links)" in within.reason(str(outside / "shared"))
    assert "loop" in within.reason(str(outside / "loop"))
    assert not within.reason(str(tmp_path))
    assert not reach(root, trusted=[str(root / "new")]).reason(str(root / "new" / "file"))
    assert reach(root, trusted=[str(root / "new")]).reason(str(root / "file"))
    assert not reach().reason(str(root))


@pytest.mark.skipif(sys.platform != "linux", reason="bind mounts are Linux's")
def test_bind_mounts_of_a_root_are_within_reach(tmp_path: Path) -> None:
    """trust-2: a directory of a root that is mounted elsewhere, and one from elsewhere that is mounted in a root."""
    for name in ("root/inner/bin", "elsewhere", "tools/bin", "root/mounted", "case", "apart"):
        (tmp_path / name).mkdir(parents=True)
    script = (
        f"cd {tmp_path} && mount --bind root/inner elsewhere && mount --bind tools root/mounted && "
        f"mount --bind root case && exec {sys.executable} -P -c '{PROGRAM}' {tmp_path}"
    )
    checkout = str(Path(__file__).parent.parent)
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": checkout},
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("mounts in a user namespace are not permitted here")
    assert done.stdout.split() == ["elsewhere/bin", "tools/bin", "case/inner"], done.stderr


PROGRAM = """
import sys
from coretools.reach import Place, Reach
within = Reach([Place(sys.argv[1] + "/root", "the writable root")])
for path in ("elsewhere/bin", "tools/bin", "case/inner", "apart", "."):
    if within.reason(sys.argv[1] + "/" + path):
        print(path)
"""


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="needs FUSE")
def test_a_mount_whose_type_is_not_unicode_hides_no_other(tmp_path: Path) -> None:
    """trust-2: any user may name the type of a FUSE file system (fusermount3(1), subtype)."""
    for name in ("root/inner/bin", "elsewhere", "fuse"):
        (tmp_path / name).mkdir(parents=True)
    program = f"{MOUNT}{PROGRAM}"
    script = f"cd {tmp_path} && mount --bind root/inner elsewhere && exec {sys.executable} -P -c '{program}' {tmp_path}"
    checkout = str(Path(__file__).parent.parent)
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": checkout},
    )
    if "unshare" in done.stderr or "mount:" in done.stderr or "PermissionError" in done.stderr:
        pytest.skip("mounts in a user namespace are not permitted here")
    assert done.stdout.split() == ["elsewhere/bin"], done.stderr


MOUNT = """
import ctypes, os
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % os.open("/dev/fuse", os.O_RDWR)
if ctypes.CDLL(None).mount(b"x", b"fuse", b"fuse.\\xff", 0, options):
    raise PermissionError
"""
