"""Undo of a program's changes, whatever state it left (docs/specs/ci.md, ci-21)."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coretools.errors import Conflict, CoreError, InvalidPath
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import Directory, RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.undo import UNDO_DIRECTORY, SavedEntries, Undo

ENTRIES = SavedEntries(moved=("packages",), created=("environment",), copied=("lock",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    make(folder)
    return folder


def make(folder: Path) -> None:
    """Restore the initial project."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "packages").mkdir()
    (folder / "packages/one").write_text("1")
    (folder / "lock").write_text("as it was")


@pytest.fixture
def roots(project: Path) -> Iterator[Roots]:
    with Roots([RootSpec(str(project))], deny=DenyRules(())) as found:
        yield found


@pytest.fixture
def directory(roots: Roots) -> Iterator[Directory]:
    with open_directory(roots, ".") as one:
        yield one


def state(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in sorted(folder.rglob("*"))
    }


def half_done(project: Path) -> None:
    """The state that an interrupted program leaves."""
    (project / "packages").mkdir()
    (project / "packages/half").write_text("")
    (project / "environment/bin").mkdir(parents=True)
    (project / "lock").write_text("half")


def test_the_former_entries_are_restored(project: Path, roots: Roots, directory: Directory) -> None:
    """ci-21: moved entries and copies; an entry that did not exist is absent."""
    before = state(project)
    undo = Undo(roots, directory, ENTRIES)
    undo.begin()
    assert not (project / "packages").exists()
    half_done(project)
    undo.roll_back()
    assert state(project) == before


def test_changes_of_a_successful_command_are_kept(project: Path, roots: Roots, directory: Directory) -> None:
    """ci-21: and none of the previous entries."""
    undo = Undo(roots, directory, ENTRIES)
    undo.begin()
    half_done(project)
    after = {name: text for name, text in state(project).items() if not name.startswith(UNDO_DIRECTORY)}
    undo.commit()
    assert state(project) == after


def test_only_one_may_change_it_at_a_time(project: Path, roots: Roots, directory: Directory) -> None:
    """ci-21: neither another change nor a recovery interferes."""
    undo = Undo(roots, directory, ENTRIES)
    undo.begin()
    with pytest.raises(Conflict):
        Undo(roots, directory, ENTRIES).begin()
    with pytest.raises(Conflict):
        Undo.recover(roots, directory, ENTRIES)
    assert (project / UNDO_DIRECTORY / "packages/one").exists()
    undo.roll_back()
    assert not (project / UNDO_DIRECTORY).exists()


def test_changes_of_a_killed_server_are_undone(project: Path, roots: Roots, directory: Directory) -> None:
    """ci-21: with an incomplete copy, and with a previous state that was partly removed."""
    before = state(project)
    undo = Undo(roots, directory, ENTRIES)
    undo.begin()
    half_done(project)
    (project / UNDO_DIRECTORY / "part-lock").write_text("not who")
    os.close(undo._fd)
    Undo.recover(roots, directory, ENTRIES)
    assert state(project) == before
    (project / ".coretools-restored/packages").mkdir(parents=True)
    again = Undo(roots, directory, ENTRIES)
    again.begin()
    (project / "packages").mkdir()
    again.commit()
    assert sorted(os.listdir(project)) == ["lock", "packages"]


def test_a_link_is_moved_and_removed_itself(project: Path, roots: Roots, directory: Directory, tmp_path: Path) -> None:
    """ci-21: never its target."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("")
    undo = Undo(roots, directory, ENTRIES)
    undo.begin()
    for name in ("packages", "environment"):
        (project / name).symlink_to(outside)
    undo.roll_back()
    assert (project / "packages/one").exists()
    assert not (project / "environment").is_symlink()
    assert (outside / "mine").exists()


def test_a_repository_can_not_have_something_removed(project: Path, roots: Roots, directory: Directory) -> None:
    """ci-21: git stores no empty directory, and only known names are restored."""
    (project / "environment").mkdir()
    (project / "src").mkdir()
    for name in ("absent-environment", "absent-src", "src"):
        (project / UNDO_DIRECTORY / name).mkdir(parents=True)
        (project / UNDO_DIRECTORY / name / "keep").write_text("")
    Undo.recover(roots, directory, ENTRIES)
    assert (project / "environment").is_dir()
    assert os.listdir(project / "src") == []
    (project / UNDO_DIRECTORY).rename(project / "moved")
    (project / UNDO_DIRECTORY).symlink_to(project / "moved")
    with pytest.raises(CoreError):
        Undo.recover(roots, directory, ENTRIES)


def test_nothing_is_made_beneath_a_root_that_is_read_only(project: Path) -> None:
    """ci-21: whatever a restore does there."""
    before = state(project)
    with (
        Roots([RootSpec(str(project), writable=False)], deny=DenyRules(())) as roots,
        open_directory(roots, ".") as one,
    ):
        undo = Undo.recover(roots, one, ENTRIES)
        undo.begin()
        assert state(project) == before
        undo.commit()
        undo.roll_back()
    assert state(project) == before


def killed_at(call: int, action: Callable[[], None]) -> bool:
    """Call a function in a child that is killed before its nth call of a C function; return whether it got that far."""
    pid = os.fork()
    if pid == 0:
        left = call

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal left
            left -= event == "c_call"
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(count)
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("phase", ["begin", "roll_back", "commit"])
def test_a_kill_at_any_moment_leaves_the_former_state_or_the_new_one(project: Path, roots: Roots, phase: str) -> None:
    """ci-21: whatever was done by then, and also when the recovery itself is killed."""
    before = state(project)

    def act() -> None:
        with open_directory(roots, ".") as mine:
            undo = Undo(roots, mine, ENTRIES)
            undo.begin()
            if phase != "begin":
                half_done(project)
                getattr(undo, phase)()

    def recover() -> None:
        with open_directory(roots, ".") as mine:
            Undo.recover(roots, mine, ENTRIES)

    after = {"environment": "", "environment/bin": "", "lock": "half", "packages": "", "packages/half": ""}
    calls, found = 0, set()
    while killed_at(calls, act):
        killed_at(calls % 37, recover)
        recover()
        now = {name: text for name, text in state(project).items() if not name.startswith(".coretools-restored")}
        assert now in ((before, after) if phase == "commit" else (before,)), calls
        found.add(now == before)
        make(project)
        calls += 1 if phase == "begin" else 11
    assert calls > 60
    assert found == ({True, False} if phase == "commit" else {True})


def test_a_directory_of_this_name_that_is_the_projects_own_stays(
    project: Path, roots: Roots, directory: Directory
) -> None:
    """ci-21: its content is moved nowhere, and a restore is refused with the way out."""
    for name in ("packages", "src", "lock"):
        (project / UNDO_DIRECTORY / name).mkdir(parents=True)
        (project / UNDO_DIRECTORY / name / "own").write_text("x")
    before = state(project)
    undo = Undo.recover(roots, directory, ENTRIES)
    with pytest.raises(Conflict, match="move or delete it"):
        undo.begin()
    undo.roll_back()
    assert state(project) == before


@pytest.mark.parametrize("inner", ["packages", "packages/deep"])
def test_a_root_among_the_entries_is_never_touched(project: Path, inner: str) -> None:
    """ci-21: neither moved nor deleted, even if a command has planted a record that says so."""
    (project / inner).mkdir(exist_ok=True)
    (project / inner / "kept").write_text("x")
    specs = [RootSpec(str(project)), RootSpec(str(project / inner), writable=False)]
    with Roots(specs, deny=DenyRules(())) as roots, open_directory(roots, ".") as directory:
        with pytest.raises(InvalidPath, match="contains a root"):
            Undo(roots, directory, ENTRIES).begin()
        before = state(project)
        for planted in ("begun", "absent-packages"):
            (project / UNDO_DIRECTORY / planted).mkdir(parents=True)
        Undo.recover(roots, directory, ENTRIES)
    assert {name: text for name, text in state(project).items() if not name.startswith(UNDO_DIRECTORY)} == before


MOUNTED = """
import os, subprocess, sys
from coretools.errors import CoreError
from coretools.roots.delete import delete_directory
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root_set import Roots
from coretools.roots.root import RootSpec
from coretools.roots.undo import SavedEntries, Undo

def mount(*words):
    subprocess.run(["mount", *words], check=True)

os.chdir(sys.argv[1])
for name in ("outside", "p", "p/bound", "p/packages", "p/tree", "p/tree/inner", "full"):
    os.mkdir(name)
open("outside/kept", "w").close()
for name in ("p/bound", "p/packages", "p/tree/inner"):
    mount("--bind", "outside", name)
mount("-t", "tmpfs", "-o", "size=64k", "none", "full")
os.mkdir("full/packages")
open("full/lock", "w").write("as it was " * 1000)
with open("full/rest", "wb", 0) as file:
    while True:
        try:
            file.write(bytes(4096))
        except OSError:
            break
entries = SavedEntries(moved=("packages",), created=("environment",), copied=("lock",))
with Roots([RootSpec("p"), RootSpec("full")], deny=DenyRules(())) as roots:
    for name in ("bound", "tree"):
        try:
            delete_directory(roots, name)
            print("deleted", name)
        except CoreError as error:
            print(error.kind)
    with open_directory(roots, ".") as directory:
        undo = Undo(roots, directory, entries)
        undo.begin()
        undo.roll_back()
    with open_directory(roots, os.path.abspath("full")) as directory:
        undo = Undo(roots, directory, entries)
        try:
            undo.begin()
            print("begun")
        except CoreError as error:
            print(error.kind)
        undo.roll_back()
print(os.listdir("outside"), sorted(os.listdir("p")), sorted(os.listdir("full")))
"""


def test_mounts_are_left_alone_and_a_full_disk_is_survived(tmp_path: Path) -> None:
    """filesystem-35, ci-21: bind mounts, which have the device of their surroundings; no space for a copy."""
    completed = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", MOUNTED, tmp_path], capture_output=True, text=True, check=False
    )
    if "unshare" in completed.stderr or "mount:" in completed.stderr:
        pytest.skip("needs user namespaces")
    assert completed.stdout.splitlines() == [
        *("unsupported", "unsupported", "input-output"),
        "['kept'] ['bound', 'packages', 'tree'] ['lock', 'packages', 'rest']",
    ], completed.stderr
