"""git_status, git_branches and git_current_branch on real repositories."""

import os
import subprocess
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import GitRefused, NotFound, TooLarge
from coretools.operations.registry import Registry
from coretools.roots.root import RootSpec
from coretools.tools.git.tools import git_tools
from tests.tools.git.world import World, no_command
from tests.variables import variables


async def test_status_shows_branch_and_changes(tmp_path: Path) -> None:
    """git-1, git-46: staged, unstaged and untracked, each path once; what is empty is not sent."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        status = await tools.git_status("work")
    assert status.text().splitlines() == ["branch main", " M work/a.txt", "M  work/b.txt", "?? work/new.txt"]
    assert status.model_dump() == {
        "branch": "main",
        "head": world.git("rev-parse", "HEAD"),
        "clean": False,
        "entries": [
            {"path": "work/a.txt", "unstaged": "modified"},
            {"path": "work/b.txt", "staged": "modified"},
            {"path": "work/new.txt", "unstaged": "untracked"},
        ],
    }


async def test_status_shows_the_distance_to_the_upstream(tmp_path: Path) -> None:
    """git-1: ahead and behind."""
    world = World(tmp_path).filled()
    world.git("clone", "--quiet", str(world.repository), str(world.root / "copy"), cwd=world.root)
    copy = world.root / "copy"
    world.git("commit", "--quiet", "--allow-empty", "-m", "three", cwd=copy)
    world.git("commit", "--quiet", "--allow-empty", "-m", "theirs")
    world.git("fetch", "--quiet", cwd=copy)
    async with world.tools() as tools:
        status = await tools.git_status("copy")
        branches = await tools.git_branches("copy", remote=True)
    assert (status.upstream, status.ahead, status.behind, status.clean) == ("origin/main", 1, 1, True)
    assert status.text().splitlines() == [
        "branch main, upstream origin/main, ahead 1, behind 1",
        "clean: nothing to commit",
    ]
    assert "[origin/main: ahead 1, behind 1] three" in branches.text()
    assert "\n  origin/main " in branches.text()


async def test_a_repository_without_commits_is_a_state(tmp_path: Path) -> None:
    """git-2: unborn."""
    world = World(tmp_path).created()
    async with world.tools() as tools:
        assert (await tools.git_status("work")).text().startswith("branch main (no commits yet)")
        assert (await tools.git_current_branch("work")).text() == "main (no commits yet)"
        assert (await tools.git_log("work")).text() == "no commits yet"
        assert (await tools.git_branches("work")).text() == "no branches yet"
        assert (await tools.git_diff("work")).text() == "no differences"
        assert (await tools.git_diff("work", staged=True)).text() == "no differences"


async def test_a_detached_head_is_a_state(tmp_path: Path) -> None:
    """git-2: detached."""
    world = World(tmp_path).filled()
    world.git("checkout", "--quiet", "--detach")
    commit = world.git("rev-parse", "HEAD")
    async with world.tools() as tools:
        status = await tools.git_status("work")
        current = await tools.git_current_branch("work")
    assert (status.branch, status.head) == ("", commit)
    assert current.text() == f"HEAD detached at {commit[:10]}"
    assert current.facts().items() >= {"branch": "", "commit": commit}.items()


async def test_a_rename_shows_both_names(tmp_path: Path) -> None:
    """git-1: a renamed file is one entry."""
    world = World(tmp_path).filled()
    world.git("mv", "folder/c.txt", "folder/d -> e.txt")
    async with world.tools() as tools:
        status = await tools.git_status("work")
    assert 'R  work/folder/c.txt -> "work/folder/d -> e.txt"' in status.text().splitlines()
    assert status.entries[-2]["from"] == "work/folder/c.txt"


@pytest.mark.parametrize(
    "name", ["a b", "quo'te", 'dou"ble', "new\nline", "tab\tx", " lead", "größe", "-dash", ":(top)x"]
)
async def test_any_name_is_listed_staged_and_committed(tmp_path: Path, name: str) -> None:
    """git-3: names are data: not quoted by git, no pattern, no option."""
    world = World(tmp_path).created()
    world.write(name, "content\n")
    async with world.tools() as tools:
        assert [entry["path"] for entry in (await tools.git_status("work")).entries] == [f"work/{name}"]
        await tools.git_add([f"work/{name}"], "work")
        assert "+content" in (await tools.git_diff("work", [f"work/{name}"], staged=True)).text()
        await tools.git_commit("with it", "work")
        assert (await tools.git_status("work")).clean
        assert "with it" in (await tools.git_log("work", path=f"work/{name}")).text()


async def test_a_name_that_is_no_utf_8_is_shown_and_staged(tmp_path: Path) -> None:
    """git-3: a caller cannot write such a name, but can name its directory."""
    world = World(tmp_path).created()
    world.write(os.fsdecode(b"caf\xe9"), "x")
    async with world.tools() as tools:
        status = await tools.git_status("work")
        assert [entry["path"] for entry in status.entries] == ["work/caf\\xe9"]
        assert '?? "work/caf\\xe9"' in status.text()
        await tools.git_add(["."], "work")
        assert 'A  "work/caf\\xe9"' in (await tools.git_status("work")).text()


async def test_a_conflict_is_shown_with_its_kind(tmp_path: Path) -> None:
    """git-22: conflicts that a merge left."""
    world = World(tmp_path).created()
    world.write("a", "base\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "base")
    world.git("checkout", "--quiet", "-b", "side")
    world.write("a", "side\n")
    world.git("commit", "--quiet", "-a", "-m", "side")
    world.git("checkout", "--quiet", "main")
    world.write("a", "main\n")
    world.git("commit", "--quiet", "-a", "-m", "main")
    world.git("merge", "side", check=False)
    async with world.tools() as tools:
        status = await tools.git_status("work")
        assert status.entries == [{"path": "work/a", "staged": "conflict", "unstaged": "both modified"}]
        assert status.text().splitlines()[:2] == ["branch main, merge in progress", "UU work/a"]
        assert (status.operation, "git_continue action='continue'" in status.end_with) == ("merge", True)
        assert "git_conflicts" in status.text().splitlines()[2]
        with pytest.raises(GitRefused, match="conflicts are not resolved: work/a"):
            await tools.git_commit("merged", "work")
        assert "<<<<<<<" in (await tools.git_diff("work")).text()
        world.write("a", "both\n")
        assert "resolved work/a" in (await tools.git_add(["work/a"], "work")).text()
        assert "on main: merged" in (await tools.git_commit("merged", "work")).text()
    assert len(world.git("rev-list", "--parents", "-1", "HEAD").split()) == 3


async def test_the_work_tree_is_found_from_a_directory_in_it(tmp_path: Path) -> None:
    """git-4: in the parent directories, as git does."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        assert (await tools.git_status("work/folder")).text() == (await tools.git_status("work")).text()
        assert (await tools.git_status(str(world.repository / "folder"))).branch == "main"


async def test_a_repository_above_the_root_is_not_found(tmp_path: Path) -> None:
    """git-4: never above the root."""
    world = World(tmp_path).filled()
    inner = World(tmp_path / "inner")
    async with inner.tools(roots=(RootSpec(str(world.repository / "folder")),)) as tools:
        for repository in (".", str(world.repository / "folder")):
            with pytest.raises(NotFound, match="no git work tree"):
                await tools.git_status(repository)


async def test_a_work_tree_of_another_repository_is_used(tmp_path: Path) -> None:
    """git-13: `.git` may be a file, and lead to a repository beneath the roots."""
    world = World(tmp_path).filled()
    world.git("worktree", "add", "--quiet", "-b", "other", str(world.root / "tree"))
    async with world.tools() as tools:
        assert (await tools.git_current_branch("tree")).text() == "other"
        (world.root / "tree" / "x").write_text("x\n")
        await tools.git_add(["tree/x"], "tree")
        assert "on other: in the tree" in (await tools.git_commit("in the tree", "tree")).text()
        assert (await tools.git_status("tree")).clean
    assert world.git("log", "-1", "--format=%s", "other") == "in the tree"


async def test_a_long_status_is_cut_and_counted(tmp_path: Path) -> None:
    """git-6: the answer counts the omitted part."""
    world = World(tmp_path).created()
    for number in range(7):
        world.write(f"f{number}", "x")
    async with world.tools(limits=Limits(answer_bytes=500)) as tools:
        status = await tools.git_status("work")
        assert 0 < len(status.entries) == 7 - status.omitted < 7
        assert not status.clean
        assert f"[{status.omitted} more entries" in status.text()
    async with world.tools(limits=Limits(git_output_bytes=40)) as tools:
        with pytest.raises(TooLarge, match="40 bytes"):
            await tools.git_status("work")


async def test_git_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """git-23: each run has a deadline; a FIFO as ignore file blocks git for ever."""
    world = World(tmp_path).filled()
    os.mkfifo(world.repository / ".gitignore")
    async with world.tools(limits=Limits(git_seconds=0.3, grace_seconds=0.3)) as tools:
        with pytest.raises(GitRefused, match=r"longer than 0\.3 s"):
            await tools.git_status("work")


async def test_branches_are_listed_last_used_first(tmp_path: Path) -> None:
    """git-21: the current one is marked."""
    world = World(tmp_path).filled()
    world.git("branch", "older", "HEAD~1")
    world.git("update-ref", "refs/heads/packed", "HEAD")
    world.git("pack-refs", "--all")
    async with world.tools() as tools:
        answer = await tools.git_branches("work")
    lines = answer.text().splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("*")] == [["*", "main"]]
    assert sorted(line[2:].split()[0] for line in lines) == ["main", "older", "packed"]
    assert answer.facts().items() >= {"branches": 3}.items()


@pytest.mark.parametrize("name", ["feature/x", "größe", "a'b", "100%", "HEADS", "refs/heads/x"])
async def test_the_current_branch_is_read_whatever_its_name(tmp_path: Path, name: str) -> None:
    """git-21: also before its first commit, and from packed references."""
    world = World(tmp_path).created()
    world.git("checkout", "--quiet", "-b", name)
    async with world.tools() as tools:
        assert (await tools.git_current_branch("work")).text() == f"{name} (no commits yet)"
        world.git("commit", "--quiet", "--allow-empty", "-m", "x")
        world.git("pack-refs", "--all")
        answer = await tools.git_current_branch("work")
    assert answer.text() == name
    assert answer.facts().items() >= {"branch": name, "commit": world.git("rev-parse", "HEAD")}.items()


async def test_the_current_branch_is_reported_although_git_rejects_its_name(tmp_path: Path) -> None:
    """git-21, git-3: not UTF-8, a character that ends a line, a branch that is called HEAD as well."""
    world = World(tmp_path).filled()
    commit = world.git("rev-parse", "HEAD")
    async with world.tools() as tools:
        world.git("update-ref", "refs/heads/HEAD", "HEAD")
        assert (await tools.git_current_branch("work")).facts().items() >= {"branch": "main", "commit": commit}.items()
        world.git("update-ref", "refs/heads/a\u2028b", "HEAD")
        world.git("symbolic-ref", "HEAD", "refs/heads/a\u2028b")
        answer = await tools.git_current_branch("work")
        assert (answer.text(), answer.facts()["branch"]) == ("a\\u2028b", "a\u2028b")
        (world.git_dir / "HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")
        assert (await tools.git_current_branch("work")).text() == "caf\\xe9 (no commits yet)"
        (world.git_dir / "HEAD").write_text(f"{commit}\n")
        assert (await tools.git_current_branch("work")).text() == f"HEAD detached at {commit[:10]}"


@pytest.mark.skipif(
    subprocess.run(["git", "init", "--ref-format=reftable", "-q", "/dev/null/x"], capture_output=True).returncode
    == 129,
    reason="this git has no reftable",
)
async def test_references_kept_as_reftable_are_read(tmp_path: Path) -> None:
    """git-21: in any reference format of git."""
    world = World(tmp_path)
    world.git("init", "--quiet", "--ref-format=reftable", "-b", "main", str(world.repository), cwd=world.root)
    world.git("commit", "--quiet", "--allow-empty", "-m", "x")
    async with world.tools() as tools:
        assert (await tools.git_current_branch("work")).text() == "main"
        assert (await tools.git_status("work")).branch == "main"


async def test_the_server_s_own_git_variables_are_not_obeyed(tmp_path: Path) -> None:
    """git-19: a server started from a hook has a GIT_DIR, which its tools ignore."""
    world = World(tmp_path).filled()
    other = World(tmp_path / "other").created()
    program = world.program()
    names = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
    own = {**dict.fromkeys(names, str(other.git_dir)), "GIT_EXTERNAL_DIFF": str(program)}
    world.environment.update(own)
    with variables(**own):
        async with world.tools() as tools:
            assert (await tools.git_status("work")).text().splitlines()[0] == "branch main"
            assert (await tools.git_current_branch("work")).text() == "main"
            assert "+unstaged" in (await tools.git_diff("work")).text()
    assert not world.marker.exists()


async def test_a_repository_of_another_user_is_used(tmp_path: Path) -> None:
    """git-4: our own check of the repository replaces git's check of its owner."""
    world = World(tmp_path).filled()
    try:
        for path in (world.repository, *world.repository.rglob("*")):
            os.chown(path, 12345, 12345)
    except PermissionError:
        pytest.skip("needs the right to give files away")
    assert "dubious ownership" in world.git("status", check=False)
    async with world.tools() as tools:
        assert (await tools.git_status("work")).branch == "main"
        await tools.git_add(["work/a.txt"], "work")
        assert "on main: message" in (await tools.git_commit("message", "work")).text()


async def test_the_tools_are_declared(tmp_path: Path) -> None:
    """git-24: seven tools in a fixed order; the structured ones have small schemas."""
    world = World(tmp_path)
    registry = Registry()
    async with world.tools() as tools:
        for function in git_tools(tools.repositories, no_command, remote_rules=(), environment={})[:7]:
            registry.add(function)
    names = ["git_status", "git_log", "git_diff", "git_branches", "git_current_branch", "git_add", "git_commit"]
    assert [command.name for command in registry] == names
    assert [command.name for command in registry if not command.declaration.read_only] == names[-2:]
    assert [command.name for command in registry if command.output_schema is not None] == names[:4]


async def test_a_directory_above_repositories_names_them(tmp_path: Path) -> None:
    """git-4: what the argument should be; links are not followed."""
    world = World(tmp_path).filled()
    (world.root / "link").symlink_to(world.outside)
    (world.outside / ".git").mkdir()
    (world.root / "plain").mkdir()
    async with world.tools() as tools:
        with pytest.raises(NotFound, match=r"no git work tree here or above; name one with repository: work$"):
            await tools.git_status(".")
