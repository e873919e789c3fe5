"""What a program changed is put back, whatever state it was left in (docs/specs/ci.md, ci-21)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.errors import Conflict, CoreError
from coretools.sandbox.deny import DenyRules
from coretools.sandbox.reading import Directory, open_directory
from coretools.sandbox.roots import Roots, RootSpec
from coretools.sandbox.undo import BESIDE, Entries, Undo

ENTRIES = Entries(moved=("packages",), made=("environment",), copied=("lock",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "packages").mkdir(parents=True)
    (folder / "packages/one").write_text("1")
    (folder / "lock").write_text("as it was")
    return folder


@pytest.fixture
def directory(project: Path) -> Iterator[Directory]:
    with Roots([RootSpec(str(project))], deny=DenyRules(())) as roots, open_directory(roots, ".") as one:
        yield one


def state(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in sorted(folder.rglob("*"))
    }


def half_done(project: Path) -> None:
    """What a program leaves that does not come to its end."""
    (project / "packages").mkdir()
    (project / "packages/half").write_text("")
    (project / "environment/bin").mkdir(parents=True)
    (project / "lock").write_text("half")


def test_what_was_there_comes_back(project: Path, directory: Directory) -> None:
    """ci-21: moved entries, copies, and nothing for what was not there."""
    before = state(project)
    undo = Undo(directory, ENTRIES)
    undo.begin()
    assert not (project / "packages").exists()
    half_done(project)
    undo.put_back()
    assert state(project) == before


def test_a_success_is_kept(project: Path, directory: Directory) -> None:
    """ci-21: and nothing of what was there before."""
    undo = Undo(directory, ENTRIES)
    undo.begin()
    half_done(project)
    after = {name: text for name, text in state(project).items() if not name.startswith(BESIDE)}
    undo.keep()
    assert state(project) == after


def test_only_one_may_change_it_at_a_time(project: Path, directory: Directory) -> None:
    """ci-21: neither another change nor a recovery interferes."""
    undo = Undo(directory, ENTRIES)
    undo.begin()
    with pytest.raises(Conflict):
        Undo(directory, ENTRIES).begin()
    with pytest.raises(Conflict):
        Undo.recovered(directory, ENTRIES)
    assert (project / BESIDE / "packages/one").exists()
    undo.put_back()
    assert not (project / BESIDE).exists()


def test_what_a_killed_server_left_is_put_back(project: Path, directory: Directory) -> None:
    """ci-21: with a copy that was not whole, and with an earlier state that was half removed."""
    before = state(project)
    undo = Undo(directory, ENTRIES)
    undo.begin()
    half_done(project)
    (project / BESIDE / "part-lock").write_text("not who")
    os.close(undo._fd)
    Undo.recovered(directory, ENTRIES)
    assert state(project) == before
    (project / ".coretools-restored/packages").mkdir(parents=True)
    again = Undo(directory, ENTRIES)
    again.begin()
    (project / "packages").mkdir()
    again.keep()
    assert sorted(os.listdir(project)) == ["lock", "packages"]


def test_a_link_is_moved_and_removed_itself(project: Path, directory: Directory, tmp_path: Path) -> None:
    """ci-21: never what it leads to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("")
    undo = Undo(directory, ENTRIES)
    undo.begin()
    for name in ("packages", "environment"):
        (project / name).symlink_to(outside)
    undo.put_back()
    assert (project / "packages/one").exists()
    assert not (project / "environment").is_symlink()
    assert (outside / "mine").exists()


def test_a_repository_can_not_have_something_removed(project: Path, directory: Directory) -> None:
    """ci-21: git holds no empty directory, and only known names are put back."""
    (project / "environment").mkdir()
    (project / "src").mkdir()
    for name in ("absent-environment", "absent-src", "src"):
        (project / BESIDE / name).mkdir(parents=True)
        (project / BESIDE / name / "keep").write_text("")
    Undo.recovered(directory, ENTRIES)
    assert (project / "environment").is_dir()
    assert os.listdir(project / "src") == []
    (project / BESIDE).rename(project / "moved")
    (project / BESIDE).symlink_to(project / "moved")
    with pytest.raises(CoreError):
        Undo.recovered(directory, ENTRIES)


def test_nothing_is_made_beneath_a_root_that_is_read_only(project: Path) -> None:
    """ci-21: whatever a restore does there."""
    before = state(project)
    with (
        Roots([RootSpec(str(project), writable=False)], deny=DenyRules(())) as roots,
        open_directory(roots, ".") as one,
    ):
        undo = Undo.recovered(one, ENTRIES)
        undo.begin()
        assert state(project) == before
        undo.keep()
        undo.put_back()
    assert state(project) == before
