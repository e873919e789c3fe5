"""git_add and git_commit on real repositories."""

import os
from pathlib import Path

import pytest

from coretools.errors import DeniedPath, GitRefused, InvalidArguments, InvalidPath, NotFound, OutsideRoot, ReadOnly
from coretools.roots.root import RootSpec
from coretools.tools.git.repository.results import undo_by_reset
from tests.tools.git.world import HOME_CONFIG, World

VALUES = "it holds values of environment variables"


async def test_paths_are_staged_by_their_exact_names(tmp_path: Path) -> None:
    """git-9: changes, new files and deletions; nothing else."""
    world = World(tmp_path).filled()
    (world.repository / "folder" / "c.txt").unlink()
    async with world.tools() as tools:
        answer = await tools.git_add(["work/a.txt", "work/folder"], "work")
    undo = "Undo: git_restore what='staged' paths=['work/a.txt', 'work/folder/c.txt']"
    assert answer.text().splitlines() == ["staged 2", "M work/a.txt", "D work/folder/c.txt", undo]
    assert world.git("status", "--short").splitlines() == ["M  a.txt", "M  b.txt", "D  folder/c.txt", "?? new.txt"]


async def test_everything_is_staged_but_what_is_denied_or_ignored(tmp_path: Path) -> None:
    """git-9: denied files are left out and named."""
    world = World(tmp_path).filled()
    world.write(".env", "KEY=1\n")
    world.write("x/id_rsa", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n")
    world.write(".gitignore", "*.log\n")
    world.write("x.log", "log\n")
    async with world.tools() as tools:
        answer = await tools.git_add(["."], "work")
        assert "nothing to stage" in (await tools.git_add(["."], "work")).text()
        assert "nothing to stage" in (await tools.git_add(["work/x.log"], "work")).text()
    assert answer.text().splitlines() == [
        "staged 3",
        "A work/.gitignore",
        "M work/a.txt",
        "A work/new.txt",
        "Undo: git_restore what='staged' paths=['work/.gitignore', 'work/a.txt', 'work/new.txt']",
        f"[left out, hidden: work/.env ({VALUES}), work/x/id_rsa (it holds a private key)]",
    ]
    assert answer.facts().items() >= {"staged": 3, "left_out": 2}.items()


async def test_a_denied_path_that_is_named_is_refused(tmp_path: Path) -> None:
    """git-9: and nothing is staged."""
    world = World(tmp_path).filled()
    world.write(".env", "KEY=1\n")
    async with world.tools() as tools:
        with pytest.raises(DeniedPath):
            await tools.git_add(["work/a.txt", "work/.env"], "work")
    assert " M a.txt" in world.git("status", "--short")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("work/nowhere", NotFound),
        ("nowhere.txt", NotFound),
        ("../work/a.txt", InvalidPath),
        ("/etc/passwd", OutsideRoot),
        ("", InvalidPath),
        ("work/--all", NotFound),
        ("--all", NotFound),
        ("work/-A", NotFound),
        ("work/:/", NotFound),
        ("work/*", NotFound),
    ],
)
async def test_an_invalid_path_is_refused(tmp_path: Path, path: str, error: type[Exception]) -> None:
    """git-14: no path is taken for an option or a pattern; nothing is staged."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        with pytest.raises(error):
            await tools.git_add(["work/a.txt", path], "work")
    assert " M a.txt" in world.git("status", "--short")


async def test_a_link_is_staged_as_a_link_and_not_followed(tmp_path: Path) -> None:
    """git-13: content outside never gets into a commit."""
    world = World(tmp_path).created()
    (world.repository / "file-link").symlink_to(world.canary)
    (world.repository / "directory-link").symlink_to(world.outside)
    async with world.tools() as tools:
        await tools.git_add(["."], "work")
        with pytest.raises((GitRefused, OutsideRoot)):
            await tools.git_add(["work/directory-link/canary"], "work")
    assert {line.split()[0] for line in world.git("ls-files", "--stage").splitlines()} == {"120000"}


async def test_a_repository_in_the_work_tree_is_left_out(tmp_path: Path) -> None:
    """git-20: a commit id that exists nowhere else is not staged by accident."""
    world = World(tmp_path).filled()
    world.git("init", "--quiet", "inner")
    world.git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=world.repository / "inner")
    async with world.tools() as tools:
        assert "[left out, repositories of their own: work/inner/]" in (await tools.git_add(["."], "work")).text()
    assert "inner" not in world.git("ls-files")


async def test_a_file_that_a_filter_converts_is_refused(tmp_path: Path) -> None:
    """git-9: without its filter a large file would be stored instead of a pointer."""
    filters = "".join(f'[filter "{name}"]\n\tclean = cat\n' for name in ("lfs", "a=b"))
    world = World(tmp_path, home_config=HOME_CONFIG + filters).filled()
    world.git("config", "filter.own.clean", "cat")
    world.git("config", "filter.own.required", "false")
    world.write(".gitattributes", "*.bin filter=lfs\n*.equal filter=a=b\n*.own filter=own\n*.txt filter=unknown\n")
    world.write("old.bin", "large\n")
    world.git("-c", "filter.lfs.clean=cat", "add", "old.bin")
    (world.repository / "old.bin").unlink()
    before = world.git("ls-files", "--stage")
    async with world.tools() as tools:
        for name, driver in (("x.bin", "lfs"), ("x.equal", "a=b"), ("x.own", "own")):
            world.write(name, "large\n")
            for intent in (False, True):
                with pytest.raises(GitRefused, match=rf"{name}: need the filter {driver}"):
                    await tools.git_add([f"work/{name}", "work/new.txt"], "work", intent=intent)
        with pytest.raises(GitRefused, match=r"x\.bin.*x\.equal.*x\.own: need the filter a=b, lfs, own"):
            await tools.git_add(["."], "work")
        assert world.git("ls-files", "--stage") == before
        assert "staged 2" in (await tools.git_add(["work/.gitattributes", "work/a.txt"], "work")).text()
        assert "D work/old.bin" in (await tools.git_add(["work/old.bin"], "work")).text()


async def test_a_commit_reports_its_id_branch_and_summary(tmp_path: Path) -> None:
    """git-10: the author is the one that the operator configured."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        answer = await tools.git_commit("Summary of it\n\n# kept: this is no comment\n", "work")
    commit = world.git("rev-parse", "HEAD")
    assert answer.text().splitlines() == [
        f"committed {commit[:10]} on main: Summary of it",
        "1 file changed, 1 insertion(+), 1 deletion(-)",
        "M work/b.txt",
        undo_by_reset(world.git("rev-parse", "HEAD~1"), "soft"),
        "not committed: work/a.txt, work/new.txt",
    ]
    assert answer.facts().items() >= {"commit": commit, "branch": "main"}.items()
    body = world.git("log", "-1", "--format=%an <%ae> %cn%n%B")
    assert body == "Ada Lovelace <ada@example.org> Ada Lovelace\nSummary of it\n\n# kept: this is no comment"


async def test_the_first_commit_and_one_on_a_detached_head(tmp_path: Path) -> None:
    """git-10: states, not errors."""
    world = World(tmp_path).created()
    world.write("a", "x\n")
    async with world.tools() as tools:
        await tools.git_add(["work/a"], "work")
        assert "on main: first" in (await tools.git_commit("first", "work")).text()
        world.git("checkout", "--quiet", "--detach")
        world.write("a", "y\n")
        await tools.git_add(["work/a"], "work")
        assert "on detached HEAD: second" in (await tools.git_commit("second", "work")).text()


@pytest.mark.parametrize("branch", ["a]b", "x/detached", "(root-commit)", "ümlaut"])
async def test_a_commit_is_reported_whatever_its_branch_and_summary_contain(tmp_path: Path, branch: str) -> None:
    """git-10: git's own output contains both; another commit's author and date are skipped."""
    world = World(tmp_path, environment={"GIT_AUTHOR_NAME": "Eve", "GIT_AUTHOR_EMAIL": "e@x"}).filled()
    world.git("switch", "--quiet", "-c", branch)
    message = "[main 0123456789012345678901234567890123456789] 3 files changed\n\n 2 files changed, 1 insertion(+)"
    async with world.tools() as tools:
        answer = await tools.git_commit(message, "work")
    commit = world.git("rev-parse", "HEAD")
    assert answer.facts().items() >= {"commit": commit, "branch": branch}.items()
    assert answer.text().splitlines() == [
        f"committed {commit[:10]} on {branch}: {message.splitlines()[0]}",
        "1 file changed, 1 insertion(+), 1 deletion(-)",
        "M work/b.txt",
        undo_by_reset(world.git("rev-parse", "HEAD~1"), "soft"),
        "not committed: work/a.txt, work/new.txt",
    ]


async def test_a_merge_is_committed_also_where_it_changes_nothing(tmp_path: Path) -> None:
    """git-10."""
    world = World(tmp_path).created()
    for name in ("main", "topic"):
        world.git("switch", "--quiet", "-c", name) if name == "topic" else None
        world.write(name, "x\n")
        world.git("add", ".")
        world.git("commit", "--quiet", "-m", name)
    world.git("switch", "--quiet", "-c", "other", "HEAD~1")
    world.git("commit", "--quiet", "--allow-empty", "-m", "other")
    world.git("merge", "--no-commit", "--quiet", "--strategy=ours", "topic")
    async with world.tools() as tools:
        answer = await tools.git_commit("merged", "work")
    assert answer.text().splitlines()[0] == f"committed {world.git('rev-parse', 'HEAD')[:10]} on other: merged"
    assert len(world.git("log", "-1", "--format=%P").split()) == 2


async def test_a_merge_that_could_be_a_fast_forward_has_both_parents(tmp_path: Path) -> None:
    """git-changes-7: git drops a parent that the other contains, unless it reads that it must not."""
    world = World(tmp_path).filled()
    tip = world.git("rev-parse", "HEAD")
    world.git("switch", "--quiet", "-c", "topic")
    world.git("commit", "--quiet", "--allow-empty", "-m", "more")
    world.git("switch", "--quiet", "-")
    async with world.tools() as tools:
        await tools.git_merge("topic", "work", fast_forward=False)
    assert world.git("log", "-1", "--format=%P").split() == [tip, world.git("rev-parse", "topic")]


async def test_only_some_paths_are_committed_and_signed_off(tmp_path: Path) -> None:
    """git-10: with their unstaged changes; what else is staged stays staged, and the answer names the rest."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        answer = (await tools.git_commit("only a", "work", paths=["work/a.txt"], signoff=True)).text()
        assert "not committed: work/b.txt, work/new.txt" in answer
        assert world.git("show", "--format=%b", "--name-only").split("\n") == [
            *("Signed-off-by: Ada Lovelace <ada@example.org>", "", "", "a.txt")
        ]
        assert world.git("status", "--short").splitlines() == ["M  b.txt", "?? new.txt"]
        for paths in (["work/new.txt"], ["work/a.txt"], ["work/folder"], ["--all"]):
            with pytest.raises(GitRefused, match="nothing that git tracks has changed"):
                await tools.git_commit("x", "work", paths=paths)


async def test_nothing_staged_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    """git-10: no empty commit."""
    world = World(tmp_path).filled()
    world.git("reset", "--quiet")
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="nothing is staged; git_add"):
            await tools.git_commit("message", "work")


@pytest.mark.parametrize("message", ["", "  \n ", "a\0b"])
async def test_an_empty_message_is_refused(tmp_path: Path, message: str) -> None:
    """git-10: a commit needs a message."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        with pytest.raises(InvalidArguments, match="message"):
            await tools.git_commit(message, "work")


async def test_an_amended_first_commit_names_its_files(tmp_path: Path) -> None:
    """git-10: git prints `(root-commit)` only when it is created, not when it is replaced."""
    world = World(tmp_path).created()
    world.write("a.txt", "one\n")
    async with world.tools() as tools:
        await tools.git_add(["work/a.txt"], "work")
        first = await tools.git_commit("first", "work")
        world.write("b.txt", "two\n")
        await tools.git_add(["work/b.txt"], "work")
        amended = await tools.git_commit("first", "work", amend=True)
    assert first.text().endswith("\nA work/a.txt")
    assert "\nA work/a.txt\nA work/b.txt" in amended.text()


async def test_a_name_in_another_encoding_is_restored(tmp_path: Path) -> None:
    """git-9: names are bytes."""
    world = World(tmp_path).filled()
    name = os.fsdecode(b"caf\xe9.txt")
    world.write(name, "one\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "latin-1")
    world.write(name, "two\n")
    world.git("add", ".")
    async with world.tools() as tools:
        await tools.git_restore(["work"], "work", what="staged")
    assert world.git("diff", "--cached", "--name-only") == ""


@pytest.mark.parametrize("message", ["--amend", "-F /etc/passwd", "# only a comment", "x" * 300_000])
async def test_any_text_is_a_message(tmp_path: Path, message: str) -> None:
    """git-14: text is never an option, nor too long for a command line."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        await tools.git_commit(message, "work")
    assert world.git("log", "-1", "--format=%B") == message
    assert world.git("rev-list", "--count", "HEAD") == "3"


async def test_without_an_author_the_error_names_the_setting(tmp_path: Path) -> None:
    """git-10: no name is derived from the host's."""
    world = World(tmp_path, home_config="[user]\n\tname = Ada\n").created()
    world.write("a", "x\n")
    world.git("add", ".")
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match=r"no email .*git config --global user\.email"):
            await tools.git_commit("message", "work")


@pytest.mark.parametrize(
    ("home", "local", "environment", "expected"),
    [
        ("[user]\nname=G\nemail=g@x\n", {"user.email": "l@x"}, {}, "G <l@x> G <l@x>"),
        ("", {"user.name": "L", "user.email": "l@x"}, {}, "L <l@x> L <l@x>"),
        ("[user]\nname=G\nemail=g@x\n[author]\nname=A\n", {}, {}, "A <g@x> G <g@x>"),
        (
            "[user]\nname=G\nemail=g@x\n",
            {},
            {"GIT_AUTHOR_NAME": "E", "GIT_AUTHOR_EMAIL": "e@x"},
            "E <e@x> G <g@x>",
        ),
        ("[user]\nname=G\nemail=g@x\n[include]\npath=more\n", {}, {}, "M <g@x> M <g@x>"),
        ('[user]\nname=G\nemail=g@x\n[includeIf "gitdir:**/work/"]\npath=more\n', {}, {}, "M <g@x> M <g@x>"),
        ('[user]\nname=G\nemail=g@x\n[includeIf "gitdir:**/other/"]\npath=more\n', {}, {}, "G <g@x> G <g@x>"),
    ],
    ids=["local wins", "local only", "author", "environment", "include", "conditional include", "other condition"],
)
async def test_the_name_is_the_one_git_would_take(
    tmp_path: Path, home: str, local: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    """git-10: from the operator's own files with their conditions, then from the repository's."""
    world = World(tmp_path, home_config=home, environment=environment).created()
    (world.home / "more").write_text("[user]\nname=M\n")
    for key, value in local.items():
        world.git("config", key, value)
    world.write("a", "x\n")
    world.git("add", ".")
    async with world.tools() as tools:
        await tools.git_commit("message", "work")
    assert world.git("log", "-1", "--format=%an <%ae> %cn <%ce>") == expected


async def test_a_read_only_root_takes_no_change(tmp_path: Path) -> None:
    """git-11: reads work there; the root of the repository counts, not only that of the work tree."""
    world = World(tmp_path).filled()
    world.git("worktree", "add", "--quiet", "-b", "other", str(tmp_path / "tree"))
    (tmp_path / "tree" / "x").write_text("x\n")
    async with world.tools(writable=False, roots=(RootSpec(str(tmp_path / "tree")),)) as tools:
        assert (await tools.git_status("work")).branch == "main"
        for repository in ("work", str(tmp_path / "tree")):
            with pytest.raises(ReadOnly, match="read-only"):
                await tools.git_add(["."], repository)
            with pytest.raises(ReadOnly):
                await tools.git_commit("message", repository)
        assert (await tools.git_status(str(tmp_path / "tree"))).branch == "other"


@pytest.mark.parametrize("inner", [".git", ".git/objects"])
async def test_a_read_only_root_in_the_work_tree_takes_no_change(tmp_path: Path, inner: str) -> None:
    """git-11: the git directory, or a part of it, is a root of its own."""
    world = World(tmp_path).filled()
    objects = world.git("count-objects", "-v")
    async with world.tools(roots=(RootSpec(f"{world.repository}/{inner}", writable=False),)) as tools:
        assert (await tools.git_status("work")).branch == "main"
        with pytest.raises(ReadOnly, match="read-only"):
            await tools.git_add(["."], "work")
        with pytest.raises(ReadOnly, match="read-only"):
            await tools.git_commit("message", "work")
    assert world.git("count-objects", "-v") == objects


async def test_hooks_that_did_not_run_are_listed_with_what_runs_them(tmp_path: Path) -> None:
    """git-15: those that plain git would have run, wherever they are, and no samples or hooks of a push."""
    world = World(tmp_path).filled()
    for name in ("pre-commit", "pre-push", "update", "commit-msg.sample"):
        (world.git_dir / "hooks" / name).write_text("#!/bin/sh\nexit 1\n")
    async with world.tools() as tools:
        text = (await tools.git_commit("x", "work")).text()
        assert text.endswith(
            "[hooks that did not run: pre-commit; git tools run only hooks that the operator grants;"
            " `git commit` in run_command runs those of git commit]"
        )
        world.git("switch", "--quiet", "-c", "side", "HEAD~1")
        assert "[hooks that did not run: pre-commit;" in (await tools.git_merge("main", "work")).text()
        world.git("config", "core.hooksPath", ".husky")
        await tools.git_add(["work/new.txt"], "work")
        assert "[hooks that did not run: those of core.hooksPath;" in (await tools.git_commit("y", "work")).text()
