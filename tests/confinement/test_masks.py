"""The scan for hidden files: it watches directories, polls those that cannot be watched, and misses nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from coretools.confinement.masks import MaskFinder
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from tests.confinement.random_tree import DENY, wrong_scans

SCANS = 80

needs_namespaces = pytest.mark.skipif(
    sys.platform != "linux" or subprocess.run(["unshare", "-Urm", "true"], check=False).returncode != 0,
    reason="needs user namespaces",
)


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path
        return
    if not os.path.isdir("/dev/shm"):  # a directory of random name is made there
        pytest.skip("needs /dev/shm")
    with TemporaryDirectory(dir="/dev/shm") as folder:  # as above
        yield Path(folder)


def in_namespaces(setting: str, *argv: str) -> list[str]:
    """Return the lines that a program prints as user 0 of new user and mount namespaces, after a shell setup."""
    ended = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", f'{setting} && exec "$@"', "sh", sys.executable, *argv],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ended.stdout.splitlines()


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_sees_what_a_walk_sees(place: Path, seed: int) -> None:
    """confinement-26: whatever was created, moved, exchanged or removed since the previous scan."""
    assert wrong_scans(place, seed, SCANS) == (0, ())


@needs_namespaces
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("echo 0 > /proc/sys/user/max_inotify_instances", "no inotify instance: Too many open files"),
        ("echo 12 > /proc/sys/user/max_inotify_watches", "no inotify watch: No space left on device"),
        ("mount -t ramfs none {}", "ramfs may change without a notification"),
    ],
    ids=["instances", "watches", "file-system"],
)
def test_what_can_not_be_watched_is_polled(tmp_path: Path, setting: str, why: str) -> None:
    """confinement-26: on a file system with coarse timestamps too; the reason is reported."""
    words = ("-m", "tests.confinement.random_tree", str(tmp_path), "5", str(SCANS))
    assert in_namespaces(setting.format(tmp_path), *words) == ["0", why]


def missed(place: Path, scans: int) -> int:
    """Count the files, of `count` created or changed right after a scan, that the next scan misses."""
    wrong = 0
    (place / "a").mkdir()
    with Roots([RootSpec(str(place))], deny=DenyRules(DEFAULT_DENY)) as roots:
        finder = MaskFinder(roots)
        for _ in range(scans):
            finder.scan()
            (place / "a/.env").write_text("A=1")
            wrong += finder.scan().masked != (f"{place}/a/.env",)
            (place / "a/.env").write_text("A= ")
            wrong += finder.scan().masked != ()
            with open(place / "a/.env", "r+", encoding="ascii") as file:
                file.write("A=2")  # the same size
            wrong += finder.scan().masked != (f"{place}/a/.env",)
            (place / "a/.env").unlink()
        finder.close()
    return wrong


def test_a_change_within_a_tick_of_a_scan_is_found(place: Path) -> None:
    """confinement-26: also where the times and sizes of files and the times of their directory are unchanged."""
    assert missed(place, 100) == 0


@needs_namespaces
def test_what_changes_within_a_tick_is_found_where_times_are_coarse(tmp_path: Path) -> None:
    """confinement-26: on ramfs nearly all of these changes leave the old timestamp."""
    program = f"""
from pathlib import Path
from tests.confinement.test_masks import missed
print(missed(Path({str(tmp_path)!r}), 100))
"""
    assert in_namespaces(f"mount -t ramfs none {tmp_path}", "-c", program) == ["0"]


@needs_namespaces
def test_what_is_mounted_later_is_searched(tmp_path: Path) -> None:
    """confinement-26: a mount causes no event in the directories around it."""
    program = f"""
import subprocess
from pathlib import Path
from coretools.confinement.masks import MaskFinder
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root_set import Roots
from coretools.roots.root import RootSpec
from tests.confinement.random_tree import DENY
top = Path({str(tmp_path)!r})
(top / "here").mkdir()
with Roots([RootSpec(str(top))], deny=DENY) as roots:
    finder = MaskFinder(roots)
    print(*finder.scan().masked)
    subprocess.run(["mount", "-t", "tmpfs", "none", top / "here"], check=True)
    print(*finder.scan().masked)
    (top / "here/.env").touch()
    print(*finder.scan().masked)
    subprocess.run(["umount", top / "here"], check=True)
    print(*finder.scan().masked)
"""
    assert in_namespaces("true", "-c", program) == ["", "", f"{tmp_path}/here/.env", ""]


def test_events_that_were_lost(tmp_path: Path) -> None:
    """confinement-26: when more directories changed than the kernel keeps events for, all are listed again."""
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:
        # Each changed directory causes two events: its change, and the end of its watch.
        count = int(file.read()) // 2 + 100
    if count > 10_000:
        pytest.skip("the event queue of this system is too long")
    for number in range(count):
        (tmp_path / str(number)).mkdir()
    with Roots([RootSpec(str(tmp_path))], deny=DENY) as roots:
        finder = MaskFinder(roots)
        assert finder.scan().masked == ()
        for number in range(count):
            (tmp_path / str(number) / "file").touch()
        # The event of this last one is among those that are lost.
        (tmp_path / str(count - 1) / ".env").touch()
        assert finder.scan().masked == (f"{tmp_path}/{count - 1}/.env",)
        finder.close()


def test_a_scan_in_pieces(tmp_path: Path) -> None:
    """confinement-26: the next scan continues one that was abandoned half-way."""
    for number in range(30):
        (tmp_path / f"{number}/deep").mkdir(parents=True)
        (tmp_path / f"{number}/deep/.env").touch()
    with Roots([RootSpec(str(tmp_path))], deny=DENY) as roots:
        finder = MaskFinder(roots)
        finder.begin()
        assert finder.advance(0) is None
        (tmp_path / ".env").touch()
        assert len(finder.scan().masked) == 31
        finder.close()


def test_suspects_are_read_in_pieces(tmp_path: Path) -> None:
    """confinement-26: one per piece, however little time there is: reading one can take a while."""
    for number in range(30):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}/.env").write_text("A=1\n")
    with Roots([RootSpec(str(tmp_path))], deny=DENY) as roots:
        finder = MaskFinder(roots)
        finder.begin()
        pieces = 0
        while (found := finder.advance(0)) is None:
            pieces += 1
        assert pieces >= 60  # one for each directory, one for each suspect
        assert len(found.masked) == 30
        finder.begin()
        assert finder.advance(0) is None
        (tmp_path / "0/.env").unlink()
        assert len(finder.scan().masked) == 29
        finder.close()


def test_handles_are_given_back(tmp_path: Path) -> None:
    """confinement-26: a finder has two descriptors, however much it watches."""
    before = len(os.listdir("/proc/self/fd"))
    with Roots([RootSpec(str(tmp_path))], deny=DENY) as roots:
        finder = MaskFinder(roots)
        finder.scan()
        assert len(os.listdir("/proc/self/fd")) == before + 3
        finder.close()
    assert len(os.listdir("/proc/self/fd")) == before
