"""Which repository belongs to a root: linked work trees of every kind, and pointers that must not be believed."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots


def git(directory: Path, *words: str) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words],
        cwd=directory,
        env=environment,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A repository `main` with the linked work tree `tree`."""
    git(tmp_path, "init", "--quiet", "-b", "main", "main")
    git(tmp_path / "main", "commit", "--quiet", "--allow-empty", "-m", "first")
    git(tmp_path / "main", "worktree", "add", "--quiet", "../tree")
    return tmp_path


@contextmanager
def opened(*roots: Path, writable: bool = True) -> Iterator[Roots]:
    with Roots([RootSpec(str(root), writable=writable) for root in roots], deny=DenyRules(())) as found:
        found.open_repositories()
        yield found


def repositories(*roots: Path) -> list[str]:
    with opened(*roots) as found:
        assert all(not one.only_git for one in found)
        return [one.path for one in found.for_git if one.only_git]


def refusal(root: Path) -> str:
    with opened(root) as found:
        assert found.for_git is found
        return found.git_refusals.get(str(root), "")


def test_the_repository_of_a_linked_work_tree_is_found(top: Path) -> None:
    """git-51: of two roots once, a bare one, by relative pointers; not if a root has it; read-only like the root."""
    assert repositories(top / "tree") == [f"{top}/main/.git"]
    git(top / "main", "worktree", "add", "--quiet", "../second")
    assert repositories(top / "tree", top / "second") == [f"{top}/main/.git"]
    assert repositories(top / "tree", top / "main") == []
    assert repositories(top / "tree", top / "main" / ".git") == []
    with opened(top / "tree", writable=False) as found:
        assert [one.writable for one in found.for_git] == [False, False]
    git(top, "clone", "--quiet", "--bare", "main", "repo.git")
    git(top / "repo.git", "worktree", "add", "--quiet", "../beside", "main")
    assert repositories(top / "beside") == [f"{top}/repo.git"]
    (top / "beside" / ".git").write_text("gitdir: ../repo.git/worktrees/beside\n")
    (top / "repo.git" / "worktrees" / "beside" / "gitdir").write_text("../../../beside/.git\n")
    assert repositories(top / "beside") == [f"{top}/repo.git"]


def test_ordinary_roots_have_no_further_repository(top: Path) -> None:
    assert repositories(top / "main") == []
    assert refusal(top / "main") == ""
    assert refusal(top) == ""


def entry(top: Path) -> Path:
    return top / "main" / ".git" / "worktrees" / "tree"


def point_elsewhere(top: Path) -> None:
    git(top, "clone", "--quiet", "main", "foreign")
    git(top / "foreign", "worktree", "add", "--quiet", "-b", "theirs", "../theirs")
    (top / "tree" / ".git").write_text(f"gitdir: {top}/foreign/.git/worktrees/theirs\n")


def share_elsewhere(top: Path) -> None:
    git(top, "clone", "--quiet", "main", "foreign")
    (entry(top) / "commondir").write_text(f"{top}/foreign/.git\n")


def link_on_the_way(top: Path) -> None:
    (top / "main").rename(top / "real")
    (top / "main").symlink_to("real")


def link_entry(top: Path) -> None:
    entry(top).rename(top / "kept")
    entry(top).symlink_to(top / "kept")


def link_pointer(top: Path) -> None:
    (entry(top) / "gitdir").rename(top / "gitdir")
    (entry(top) / "gitdir").symlink_to(top / "gitdir")


def separate(top: Path) -> None:
    shutil.copytree(top / "main" / ".git", top / "apart")
    (top / "tree" / ".git").write_text(f"gitdir: {top}/apart\n")


def move_repository(top: Path) -> None:
    (top / "main").rename(top / "moved")


def prune(top: Path) -> None:
    shutil.rmtree(entry(top))


def copy_tree(top: Path) -> None:
    (top / "tree").rename(top / "original")
    shutil.copytree(top / "original", top / "tree")
    (entry(top) / "gitdir").write_text(f"{top}/original/.git\n")


def leave_text(top: Path) -> None:
    (top / "tree" / ".git").write_text("nonsense\n")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (point_elsewhere, "knows the work tree theirs at"),
        (share_elsewhere, "not its own repository"),
        (link_on_the_way, "can't be opened"),
        (link_entry, "no usable entry"),
        (link_pointer, "can't be read"),
        (separate, "not the entry of a linked work tree"),
        (move_repository, "git worktree repair"),
        (prune, "git worktree add"),
        (copy_tree, "git worktree repair"),
        (leave_text, "names no directory"),
    ],
)
def test_a_pointer_that_does_not_agree_opens_nothing(top: Path, damage: Callable[[Path], None], named: str) -> None:
    """git-52, git-53: neither what was planted nor what is broken; the reason names the cure."""
    damage(top)
    assert named in refusal(top / "tree")


def test_the_cures_work(top: Path) -> None:
    """git-53: `git worktree repair`, in the repository and in the work tree."""
    (top / "main").rename(top / "moved")
    git(top / "moved", "worktree", "repair", str(top / "tree"))
    assert repositories(top / "tree") == [f"{top}/moved/.git"]
    (top / "tree").rename(top / "elsewhere")
    assert "git worktree repair" in refusal(top / "elsewhere")
    git(top / "elsewhere", "worktree", "repair")
    assert repositories(top / "elsewhere") == [f"{top}/moved/.git"]


def test_submodules_and_folders_name_the_root_that_has_git(top: Path) -> None:
    """git-53."""
    git(top, "init", "--quiet", "project")
    git(top / "project", "submodule", "--quiet", "add", f"{top}/main", "libs/sub")
    assert refusal(top / "project" / "libs" / "sub").endswith(f"the root {top}/project")
    (top / "main" / "packages" / "a").mkdir(parents=True)
    folder = top / "main" / "packages" / "a"
    assert refusal(folder).endswith(f"the root {top}/main")
    assert "--git-above" in refusal(folder)


def test_the_repository_above_is_opened_only_on_request(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git-54: its work tree read-only, its `.git` with the rights of the root; never around the home directory."""
    folder = top / "main" / "packages" / "a"
    folder.mkdir(parents=True)
    deny = DenyRules((), by_content=False)
    with Roots([RootSpec(str(folder))], deny=deny) as roots:
        roots.open_repositories(above=True)
        rights = {root.path: root.writable for root in roots.for_git}
        assert rights == {str(folder): True, f"{top}/main": False, f"{top}/main/.git": True}
        assert [root.path for root in roots] == [str(folder)]
        assert roots.split(f"{top}/main/a.txt") is None
    with Roots([RootSpec(str(top)), RootSpec(str(folder))], deny=deny) as roots:
        roots.open_repositories(above=True)
        assert "name that as repository" in roots.git_refusals[str(folder)]
    (top / "main" / "b").mkdir()
    specs = [RootSpec(str(folder)), RootSpec(str(top / "main" / "b"), writable=False)]
    for more, expected in (([], True), ([RootSpec(f"{top}/main/.git", writable=False)], False)):
        with Roots([*specs, *more], deny=deny) as roots:
            roots.open_repositories(above=True)
            assert {root.path: root.writable for root in roots.for_git} == {
                str(folder): True,
                f"{top}/main/b": False,
                f"{top}/main": False,
                f"{top}/main/.git": expected,
            }
    monkeypatch.setenv("HOME", f"{top}/main")
    with Roots([RootSpec(str(folder))], deny=deny) as roots:
        roots.open_repositories(above=True)
        assert "home directory" in roots.git_refusals[str(folder)]
        assert roots.for_git is roots


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
def test_a_repository_of_somebody_else_is_not_opened(top: Path) -> None:
    """git-52."""
    os.chown(top / "main" / ".git", 12345, 12345)
    assert "belongs to another user" in refusal(top / "tree")
