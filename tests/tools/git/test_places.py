"""Linked work trees, sparse checkout, submodules, the reflog, bisect, and a stash with its index."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from anyio import Path as AnyPath

from coretools.app.assembly import open_assembly
from coretools.config.settings import Settings
from coretools.errors import AlreadyExists, CoreError, GitRefused, InvalidArguments, NotFound, ReadOnly
from coretools.roots.root import RootSpec
from tests.tools.git.remote_world import RemoteWorld
from tests.tools.git.world import World


async def test_the_reflog_says_how_to_go_back(tmp_path: Path) -> None:
    """git-changes-20: of HEAD or a branch, in pages; a reset is undone through it."""
    world = World(tmp_path).filled()
    head = world.git("rev-parse", "HEAD")
    async with world.tools() as tools:
        await tools.git_reset("HEAD~1", "work", mode="hard")
        text = (await tools.git_reflog("HEAD", "work", limit=2)).text()
        lines = text.splitlines()
        assert lines[0].startswith("HEAD@{0} ")
        assert "reset: moving to" in lines[0]
        assert "[more entries; go on with skip=2]" in lines
        assert "git_reset revision='HEAD@{1}' mode='keep'" in lines[-1]
        assert (await tools.git_reflog("main", "work", skip=1)).text().startswith(f"main@{{1}} {head[:10]}")
        await tools.git_reset("HEAD@{1}", "work", mode="keep")
        for name in ("nowhere", "../HEAD", "-x"):
            with pytest.raises((NotFound, InvalidArguments)):
                await tools.git_reflog(name, "work")
    assert world.git("rev-parse", "HEAD") == head


async def test_a_work_tree_that_cannot_be_checked_out_is_not_added(tmp_path: Path) -> None:
    """git-changes-21: nothing of it is left, here since an object is missing."""
    world = World(tmp_path).filled()
    tree = world.git("mktree", "--missing", stdin=f"100644 blob {'1' * 40}\ta.txt\n".encode())
    broken = world.git("commit-tree", "-m", "broken", tree)
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="unable to read"):
            await tools.git_worktree("add", "side", "work", branch="topic", start=broken)
    assert not (world.root / "side").exists()
    assert len(world.git("worktree", "list").splitlines()) == 1
    assert world.git("branch", "--list", "topic") == ""


async def test_a_work_tree_is_added_and_removed(tmp_path: Path) -> None:
    """git-changes-21: git and our tools work in it; with uncommitted changes it stays."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        added = (await tools.git_worktree("add", "side/tree", "work", branch="topic", start="HEAD~1")).text()
        assert "Undo: git_worktree action='remove' path='side/tree', then git_branch" in added
        tree = world.root / "side" / "tree"
        assert (tree / "b.txt").read_text() == "one\n"
        assert world.git("status", "--short", "--branch", cwd=tree) == "## topic"
        assert str(tree) in world.git("worktree", "list")
        assert "topic" in (await tools.git_worktree("list", repository="work")).text()
        with pytest.raises(AlreadyExists, match="checked out in a work tree"):
            await tools.git_worktree("add", "other", "work", branch="topic")
        (tree / "new").write_text("x\n")
        with pytest.raises(GitRefused, match="uncommitted changes: new"):
            await tools.git_worktree("remove", "side/tree", "work")
        await tools.git_add(["side/tree/new"], "side/tree")
        await tools.git_commit("in the other tree", "side/tree")
        removed = (await tools.git_worktree("remove", "side/tree", "work")).text()
        assert not tree.exists()
        assert str(tree) not in world.git("worktree", "list")
        assert world.git("log", "-1", "--format=%s", "topic") == "in the other tree"
        assert "Undo: git_worktree action='add' path='side/tree' branch='topic'" in removed
        await tools.git_worktree("add", "side/tree", "work", branch="topic")
        shutil.rmtree(tree)
        assert "tree" in (await tools.git_worktree("prune", repository="work")).text()
        for path, error in (
            ("work", AlreadyExists),
            ("../out", CoreError),
            ("/etc/x", CoreError),
            ("x/.git/y", CoreError),
        ):
            with pytest.raises(error):
                await tools.git_worktree("add", path, "work", branch="another")
        with pytest.raises(NotFound, match="no linked work tree"):
            await tools.git_worktree("remove", "work", "work")
    assert not (tmp_path / "out").exists()


async def test_a_work_tree_is_made_beneath_writable_roots_only(tmp_path: Path) -> None:
    """git-changes-21."""
    world = World(tmp_path).filled()
    (tmp_path / "second").mkdir()
    async with world.tools(roots=(RootSpec(str(tmp_path / "second"), writable=False),)) as tools:
        with pytest.raises(ReadOnly):
            await tools.git_worktree("add", str(tmp_path / "second" / "tree"), "work", branch="topic")
    assert list((tmp_path / "second").iterdir()) == []


async def test_directories_are_checked_out_sparsely(tmp_path: Path) -> None:
    """git-changes-22: in cone mode, with names of any kind; uncommitted files stay."""
    world = World(tmp_path).created()
    for name in ("top", "a/f", "b/f", 'q"u/f', "ümlaut/f"):
        world.write(name, "x\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    async with world.tools() as tools:
        assert "everything" in (await tools.git_sparse_checkout(repository="work")).text()
        text = (await tools.git_sparse_checkout("set", ["work/a", 'work/q"u'], "work")).text()
        assert "Undo: git_sparse_checkout action='disable'" in text
        assert sorted(path.name for path in world.repository.iterdir()) == [".git", "a", 'q"u', "top"]
        assert (await tools.git_status("work")).clean
        await tools.git_sparse_checkout("add", ["work/ümlaut"], "work")
        assert (world.repository / "ümlaut" / "f").exists()
        await tools.git_sparse_checkout("disable", repository="work")
        assert (world.repository / "b" / "f").exists()
        for paths in ([], ["work"], ["../x"], ["work/-x", "/etc"]):
            with pytest.raises(CoreError):
                await tools.git_sparse_checkout("set", paths, "work")
        assert (world.repository / "b" / "f").exists()


async def test_submodules_are_listed_and_not_entered(tmp_path: Path) -> None:
    """git-changes-23: path, commit and address, without credentials; without a rule none is reached."""
    remote = RemoteWorld(World(tmp_path).filled())
    world = remote.world
    commit = world.git("rev-parse", "HEAD")
    world.write(".gitmodules", '[submodule "x"]\n\tpath = lib/x\n\turl = https://user:TOKEN@example.org/x.git\n')
    world.git("add", ".gitmodules")
    world.git("update-index", "--add", "--cacheinfo", f"160000,{commit},lib/x")
    async with remote.tools() as (tools, _):
        text = (await tools.git_submodule("status", "work")).text()
        assert text == f"work/lib/x {commit[:10]} not cloned: https://example.org/x.git"
        with pytest.raises(GitRefused, match=r"work/lib/x: https://example\.org/x\.git is not allowed"):
            await tools.git_submodule("update", "work")


def many(world: World, *, first_bad: int) -> list[str]:
    """Twelve commits of which one breaks a file."""
    world.created()
    for number in range(12):
        world.write("f", f"{number}\n{'bad' if number >= first_bad else 'good'}\n")
        world.git("add", ".")
        world.git("commit", "--quiet", "-m", f"c{number}")
    return world.git("rev-list", "--reverse", "HEAD").split()


async def test_a_bisect_that_cannot_begin_is_not_in_progress(tmp_path: Path) -> None:
    """git-changes-24: as with git; here the commit in the middle would overwrite a change."""
    world = World(tmp_path).filled()
    world.git("commit", "--quiet", "--allow-empty", "-am", "third")
    world.write("a.txt", "of the user\n")
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="overwritten"):
            await tools.git_bisect("start", "work", good=["HEAD~2"])
        assert "in progress" not in (await tools.git_status("work")).text()
    assert world.git("for-each-ref", "refs/bisect") == ""


@pytest.mark.parametrize("first_bad", [1, 6, 11])
async def test_a_bisect_finds_the_first_bad_commit(tmp_path: Path, first_bad: int) -> None:
    """git-changes-24: as git does; another change waits for its end, and git can end it too."""
    world = World(tmp_path)
    commits = many(world, first_bad=first_bad)
    async with world.tools() as tools:
        result = await tools.git_bisect("start", "work", good=[commits[0]])
        assert "bisect in progress" in (await tools.git_status("work")).text()
        with pytest.raises(GitRefused, match="git_bisect action='reset'"):
            await tools.git_merge("main", "work")
        assert "git bisect start" in world.git("bisect", "log")
        for _ in range(12):
            if not result.details["left"]:
                break
            word: Any = (world.repository / "f").read_text().split()[1]
            result = await tools.git_bisect(word, "work")
        assert result.details["first_bad"] == commits[first_bad]
        assert "bad " in (await tools.git_bisect("log", "work")).text()
        await tools.git_bisect("reset", "work")
        assert world.git("symbolic-ref", "HEAD") == "refs/heads/main"
        assert world.git("for-each-ref", "refs/bisect") == ""
        with pytest.raises(GitRefused, match="no bisect is in progress"):
            await tools.git_bisect("good", "work")
        await tools.git_bisect("start", "work", good=["HEAD~5"])
        await tools.git_bisect("skip", "work")
        world.git("bisect", "reset")
        assert world.git("status", "--short", "--branch") == "## main"
        for arguments in ({"good": []}, {"good": ["HEAD"]}, {"good": ["HEAD"], "bad": "HEAD~3"}, {"good": ["-x"]}):
            with pytest.raises((InvalidArguments, NotFound)):
                await tools.git_bisect("start", "work", **arguments)  # type: ignore[arg-type]
        assert (await tools.git_status("work")).clean


async def test_a_bisect_is_driven_by_a_confined_command(tmp_path: Path) -> None:
    """git-changes-24: with the runner of run_command; a command that can't say leaves the bisect where it is."""
    world = World(tmp_path)
    commits = many(world, first_bad=7)
    settings = Settings(roots=(str(world.root),), profile="all")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(world.home)}
    async with open_assembly(settings, environment) as assembly:
        catalog = assembly.catalog.current

        async def call(name: str, **arguments: Any) -> Any:
            return await catalog.get(name).function(**arguments)

        await call("git_bisect", action="start", repository="work", good=[commits[0]])
        with pytest.raises(GitRefused, match="exit code 130, which says neither"):
            await call("git_bisect_run", command=["sh", "-c", "exit 130"], repository="work")
        result = await call("git_bisect_run", command=["grep", "-q", "good", "f"], repository="work")
        assert result.details["first_bad"] == commits[7]
        assert result.text().splitlines()[-2].startswith("the first bad commit is ")
    assert await AnyPath(world.git_dir / "BISECT_LOG").exists()


async def test_a_stash_is_applied_with_its_index(tmp_path: Path) -> None:
    """git-changes-6: on request, what was staged is staged again, as git does."""
    world = World(tmp_path).filled()
    world.write("b.txt", "staged and changed\n")
    world.write("added", "x\n")
    world.write("long", "".join(f"{number}\n" for number in range(30)))
    world.git("add", "added", "long")
    world.git("commit", "--quiet", "-m", "long", "long")
    world.write("long", "".join(f"{number}\n" for number in range(30) if number != 9))
    world.git("add", "long")
    world.git("config", "diff.context", "0")  # a patch without context does not apply
    before = world.git("status", "--short"), world.git("ls-files", "--stage")
    async with world.tools() as tools:
        await tools.git_stash("push", "work")
        await tools.git_stash("apply", "work")
        assert world.git("diff", "--cached", "--name-only") == "added"
        world.git("reset", "--hard", "--quiet")
        await tools.git_stash("pop", "work", with_index=True)
        assert (world.git("status", "--short"), world.git("ls-files", "--stage")) == before
        await tools.git_stash("push", "work")
        world.write("b.txt", "conflict\n")
        world.git("add", "b.txt")
        with pytest.raises(GitRefused, match="something is staged"):
            await tools.git_stash("pop", "work", with_index=True)
