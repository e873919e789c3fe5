"""git_log and git_diff on real repositories."""

import os
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import DeniedPath, GitRefused, InvalidArguments, InvalidPath, NotFound, OutsideRoot
from coretools.roots.root import RootSpec
from tests.tools.git.world import World


async def test_the_log_is_newest_first_and_says_who_when_and_what(tmp_path: Path) -> None:
    """git-6: id, date, author, summary, references."""
    world = World(tmp_path).filled()
    world.git("tag", "v1", "HEAD~1")
    second, first = world.git("log", "--format=%h", "--abbrev=10").split()
    async with world.tools() as tools:
        answer = await tools.git_log("work")
    assert answer.text().splitlines() == [
        f"{second} 2026-03-01T12:00:00+00:00 Ada Lovelace: second (HEAD -> main)",
        f"{first} 2026-03-01T12:00:00+00:00 Ada Lovelace: first (tag: v1)",
    ]


async def test_a_cut_log_reports_that_there_is_more(tmp_path: Path) -> None:
    """git-6: without counting the rest."""
    world = World(tmp_path).created()
    for number in range(5):
        world.git("commit", "--quiet", "--allow-empty", "-m", f"commit {number}")
    async with world.tools() as tools:
        lines = (await tools.git_log("work", limit=2)).text().splitlines()
        assert [line.partition(": ")[2][:8] for line in lines[:2]] == ["commit 4", "commit 3"]
        assert lines[2] == "[more commits; go on with skip=2]"
        assert len((await tools.git_log("work", limit=5)).text().splitlines()) == 5


async def test_the_log_of_a_path_and_of_a_revision(tmp_path: Path) -> None:
    """git-6: both select."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        assert "second" not in (await tools.git_log("work", path="work/folder")).text()
        assert "second" in (await tools.git_log("work", path=str(world.repository / "b.txt"))).text()
        assert "second" not in (await tools.git_log("work", "main~1")).text()
        assert (await tools.git_log("work", path="work/new.txt")).text() == "no commits touch this path"


async def test_no_text_of_a_commit_repaints_the_answer(tmp_path: Path) -> None:
    """git-3: escapes and line ends in names and summaries are printed as text, not sent."""
    world = World(tmp_path).created()
    world.git("-c", "user.name=Eve \x1b[2J", "commit", "--quiet", "--allow-empty", "-m", "sum\x07mary\x1b[31m")
    async with world.tools() as tools:
        text = (await tools.git_log("work")).text()
    assert "Eve \\x1b[2J: sum\\x07mary\\x1b[31m" in text
    assert "\x1b" not in text


async def test_the_three_differences(tmp_path: Path) -> None:
    """git-7: unstaged, staged, since a revision, between two."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        unstaged = (await tools.git_diff("work")).text()
        staged = (await tools.git_diff("work", staged=True)).text()
        since = (await tools.git_diff("work", base="HEAD")).text()
        between = (await tools.git_diff("work", base="HEAD~1", target="HEAD")).text()
        staged_since = (await tools.git_diff("work", staged=True, base="HEAD~1")).text()
    assert unstaged.splitlines()[0] == "diff --git a/work/a.txt b/work/a.txt"
    assert ("+unstaged" in unstaged, "+staged" in unstaged) == (True, False)
    assert ("+unstaged" in staged, "-two\n+staged" in staged) == (False, True)
    assert ("+unstaged" in since, "-two\n+staged" in since) == (True, True)
    assert ("-one\n+two" in between, "staged" in between) == (True, False)
    assert "-one\n+staged" in staged_since


async def test_a_difference_of_paths_and_its_summary(tmp_path: Path) -> None:
    """git-7: paths select; `stat` lists only the files."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        assert (await tools.git_diff("work", ["work/folder", "work/new.txt"])).text() == "no differences"
        assert "+unstaged" in (await tools.git_diff("work", ["work/a.txt"])).text()
        assert "+unstaged" in (await tools.git_diff("work", [str(world.repository / "a.txt")])).text()
        stat = (await tools.git_diff("work", base="HEAD", stat=True)).text()
    assert stat.splitlines() == ["work/a.txt | +1 -1", "work/b.txt | +1 -1", "2 files changed, +2 -2 lines"]


async def test_a_long_difference_keeps_head_and_tail(tmp_path: Path) -> None:
    """git-7: the answer counts the omitted part."""
    world = World(tmp_path).filled()
    world.write("a.txt", "".join(f"line {number}\n" for number in range(5000)))
    async with world.tools(limits=Limits(answer_bytes=2000)) as tools:
        answer = await tools.git_diff("work")
    assert "lines of this hunk left out ...]" in answer.text()
    assert "+line 4999" in answer.text()
    assert answer.text().startswith("diff --git a/work/a.txt b/work/a.txt")


async def test_hidden_content_is_in_no_difference(tmp_path: Path) -> None:
    """git-8: neither a secret that git does not store, nor either side of a file closed by name, in any commit."""
    world = World(tmp_path).filled()
    world.write(".env", "KEY=committed-1\n")
    world.write("sub/.env.local", "KEY=committed-2\n")
    world.write(".aws/config", "closed-1\n")
    world.write("thing", "harmless\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "secrets")
    world.write(".env", "KEY=typed-3\n")
    world.write(".aws/config", "closed-2\n")
    world.git("rm", "--quiet", "--cached", "thing")
    (world.repository / "thing").unlink()
    world.write("thing/id_rsa", "-----BEGIN PRIVATE KEY-----\ncommittedcommittedcommitted\n")
    world.git("add", "thing")
    world.git("mv", "sub/.env.local", "sub/plain")
    async with world.tools() as tools:
        answers = [
            (await tools.git_diff("work")).text(),
            (await tools.git_diff("work", staged=True)).text(),
            (await tools.git_diff("work", base="HEAD")).text(),
            (await tools.git_diff("work", base="HEAD~1", target="HEAD")).text(),
        ]
        with pytest.raises(DeniedPath, match=r"work/\.env: hidden, since it holds values"):
            await tools.git_diff("work", ["work/.env"])
        with pytest.raises(DeniedPath, match=r"work/\.aws/config: hidden, since the deny glob \.aws "):
            await tools.git_diff("work", ["work/.aws/config"])
        world.write(".env", "KEY=committed-1\n")
        assert "+KEY=committed-1" in (await tools.git_diff("work", ["work/.env"], base="HEAD~1", target="HEAD")).text()
    assert not any("typed" in text or "closed-" in text for text in answers)
    for text in (answers[0], answers[2], answers[3]):
        assert "work/.env (it holds values of environment variables)" in text
        assert "work/.aws/config (the deny glob .aws of this server's operator closes it)" in text
    assert "+harmless" in answers[3]
    assert "+committedcommitted" in answers[1]


@pytest.mark.parametrize(
    "revision", ["--output=x", "-p", "--", "", "a\nb", "a\0b", "\ud800", "\x1b[2J", "x" * 2000], ids=ascii
)
async def test_an_invalid_revision_is_refused(tmp_path: Path, revision: str) -> None:
    """git-14: no revision can be an option."""
    world = World(tmp_path).filled()
    before = sorted(os.listdir(world.repository))
    async with world.tools() as tools:
        for call in (
            lambda: tools.git_log("work", revision or "-"),
            lambda: tools.git_diff("work", base=revision or "-"),
            lambda: tools.git_diff("work", base="HEAD", target=revision or "-"),
        ):
            with pytest.raises(InvalidArguments, match="revision"):
                await call()
    assert sorted(os.listdir(world.repository)) == before


@pytest.mark.parametrize(
    "revision",
    [
        "nowhere",
        "nowhere..HEAD",
        "HEAD...nowhere",
        "..",
        "...",
        "^HEAD",
        "HEAD^@",
        "HEAD:a.txt",
        "HEAD^{tree}",
        ":a.txt",
        "@{upstream}",
        "refs/heads/",
        "deadbeef",
    ],
)
async def test_a_revision_that_names_no_commit_is_reported(tmp_path: Path, revision: str) -> None:
    """git-14: a revision is resolved to one commit before any other command gets it."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        with pytest.raises(NotFound, match="names no commit"):
            await tools.git_log("work", revision)


async def test_the_log_of_a_range(tmp_path: Path) -> None:
    """git-6: commits of one side only, or of either; an omitted side is HEAD."""
    world = World(tmp_path).filled()
    world.git("stash", "--quiet")
    world.git("switch", "--quiet", "-c", "topic", "HEAD~1")
    world.git("commit", "--quiet", "--allow-empty", "-m", "on topic")
    world.git("tag", "-m", "a tag", "v1")
    async with world.tools() as tools:

        async def summaries(revision: str, **arguments: str) -> list[str]:
            text = (await tools.git_log("work", revision, **arguments)).text()  # type: ignore[arg-type] # one of text
            return [line.partition(": ")[2].partition(" (")[0] or line for line in text.splitlines()]

        assert await summaries("main..topic") == ["on topic"]
        assert await summaries("main..v1") == ["on topic"]
        assert await summaries("topic..main") == ["second"]
        assert sorted(await summaries("main...topic")) == ["on topic", "second"]
        assert await summaries("main..") == await summaries("main..HEAD") == ["on topic"]
        assert await summaries("..main") == ["second"]
        assert await summaries("topic..topic") == ["no commits in this range"]
        assert await summaries("topic..main", path="work/b.txt") == ["second"]
        assert await summaries("topic..main", path="work/a.txt") == ["no commits touch this path"]
        with pytest.raises(NotFound, match="matches nothing"):
            await summaries("topic..main", path="work/nowhere")
        for revision in ("main..--all", "--output=x..main", "main..a\nb"):
            with pytest.raises(InvalidArguments, match="revision"):
                await summaries(revision)


async def test_the_revision_that_names_no_commit_is_named(tmp_path: Path) -> None:
    """git-14: also where git stops at the first."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        for base, target, wrong in (("HEAD", "nowhere", "nowhere"), ("@{upstream}", "HEAD", "@{upstream}")):
            with pytest.raises(NotFound, match=f"revision '{wrong}'"):
                await tools.git_diff("work", base=base, target=target)
        with pytest.raises(NotFound, match="revision 'nowhere'"):
            await tools.git_diff("work", base="nowhere...HEAD")


async def test_a_difference_in_conflict_is_reported(tmp_path: Path) -> None:
    """git-7: git prints names and patches alternately there."""
    world = World(tmp_path).created()
    for name in ("a", ".env", "z"):
        world.write(name, "A=one\n")
    world.git("add", "-f", ".")
    world.git("commit", "--quiet", "-m", "first")
    world.git("switch", "--quiet", "-c", "topic")
    for name in ("a", ".env"):
        world.write(name, "A=topic\n")
    world.git("commit", "--quiet", "-am", "topic")
    world.git("switch", "--quiet", "main")
    for name in ("a", ".env"):
        world.write(name, "A=typed\n" if name == ".env" else "main\n")
    world.git("commit", "--quiet", "-am", "main")
    world.git("merge", "topic", check=False)
    world.write("z", "changed\n")
    async with world.tools() as tools:
        text = (await tools.git_diff("work")).text()
    assert "++<<<<<<< HEAD" in text
    assert "+changed" in text
    assert "typed" not in text
    assert "[not shown, hidden: work/.env (it holds values of environment variables)]" in text


async def test_a_range_is_two_arguments(tmp_path: Path) -> None:
    """git-7: a target without base, or with staged, is refused."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        with pytest.raises(InvalidArguments, match="target"):
            await tools.git_diff("work", target="HEAD")
        with pytest.raises(InvalidArguments, match="target"):
            await tools.git_diff("work", base="HEAD", target="HEAD", staged=True)


async def test_no_path_leads_out_of_the_work_tree(tmp_path: Path) -> None:
    """git-14: `diff -- /dev/null SECRET` would compare files outside."""
    world = World(tmp_path).filled()
    (world.root / "beside").write_text("beside\n")
    async with world.tools() as tools:
        for path in ("/dev/null", str(world.canary), str(world.root / "beside")):
            with pytest.raises(OutsideRoot):
                await tools.git_diff("work", [path, "work/a.txt"])
        for path in ("../beside", "folder/../../beside", ".."):
            with pytest.raises(InvalidPath):
                await tools.git_log("work", path=path)
        for path in ("", "a\0b", "\ud800"):
            with pytest.raises(InvalidPath):
                await tools.git_diff("work", [path])
        for path in (":(top)", ":/", ":!a.txt", "*", "--output=x", "-"):
            for written in (path, f"work/{path}"):
                with pytest.raises(NotFound, match="matches nothing"):
                    await tools.git_diff("work", [written])


async def test_git_s_own_reason_is_reported(tmp_path: Path) -> None:
    """git-25: an error of git is one sentence, without escapes."""
    world = World(tmp_path).filled()
    (world.git_dir / "index").write_bytes(b"no index")
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match=r"^git status: .*index"):
            await tools.git_status("work")


async def test_a_path_means_the_same_as_in_the_file_tools(tmp_path: Path) -> None:
    """git-36: it begins at the root, whichever repository is meant; paths in git's answers fit every tool."""
    world = World(tmp_path).filled()
    beside = world.top / "beside"
    beside.mkdir()
    world.git("clone", "--quiet", str(world.repository), str(beside / "copy"))
    (beside / "copy" / "b.txt").write_text("changed\n")
    (world.repository / "folder" / "a.txt").write_text("untracked\n")
    async with world.tools(roots=(RootSpec(str(beside)),)) as tools:
        (world.root / "b.txt").write_text("beside the repository\n")
        with pytest.raises(OutsideRoot, match=r"paths are relative to the root, as in every tool: name work/b\.txt$"):
            await tools.git_log("work", path="b.txt")
        inner = (await tools.git_diff("work/folder", ["work/a.txt"])).text()
        assert inner.splitlines()[0] == "diff --git a/work/a.txt b/work/a.txt"
        assert "+unstaged" in (await tools.git_diff("work", ["."])).text()
        status = await tools.git_status(str(beside / "copy"))
        paths = [entry["path"] for entry in status.entries]
        assert paths == [str(beside / "copy" / "b.txt")]
        patch = (await tools.git_diff(str(beside / "copy"), paths)).text()
        assert [line for line in patch.splitlines() if line.startswith(("---", "+++"))] == [
            f"--- {paths[0]}",
            f"+++ {paths[0]}",
        ]
        assert "second" in (await tools.git_log(str(beside / "copy"), path=paths[0])).text()


async def test_paths_are_understood_with_and_without_the_repository(tmp_path: Path) -> None:
    """git-36: a path of the work tree, if the root has none of that name; and a path names the repository."""
    world = World(tmp_path).filled()
    for number in range(11):
        (world.root / f"other{number:02}" / ".git").mkdir(parents=True)
    (world.root / "other00" / "c.txt").write_text("of another repository\n")
    async with world.tools() as tools:
        for repository, path in (("work", "folder/c.txt"), ("work", "./folder//c.txt"), (".", "work/folder/c.txt")):
            assert "first" in (await tools.git_log(repository, path=path)).text(), (repository, path)
            assert "1: one" in (await tools.git_blame(path, repository)).text(), (repository, path)
        assert "+unstaged" in (await tools.git_diff(paths=["work/a.txt"])).text()
        assert "A work/new.txt" in (await tools.git_add(["work/new.txt"])).text()
        assert "work/new.txt" in (await tools.git_restore(["new.txt"], "work", what="staged")).text()
        (world.repository / "folder" / "c.txt").unlink()
        assert "first" in (await tools.git_log(path="work/folder/c.txt")).text(), "a path that is only in git"
        with pytest.raises(OutsideRoot, match=r"^other00/c\.txt: not in the work tree work"):
            await tools.git_add(["work/a.txt", "other00/c.txt"])
        with pytest.raises(NotFound, match=r"other09 and 2 more$"):
            await tools.git_log(path="folder/c.txt")


async def test_a_path_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    """git-36: an empty answer would be taken for "nothing changed"; a path that exists only in git matches."""
    world = World(tmp_path).filled()
    world.git("rm", "--quiet", "-r", "--cached", "folder")
    (world.repository / "folder" / "c.txt").unlink()
    (world.repository / "folder").rmdir()
    world.git("commit", "--quiet", "-m", "without")
    async with world.tools() as tools:
        for call in (
            lambda: tools.git_diff("work", ["work/nowhere"]),
            lambda: tools.git_diff("work", ["work/folder"]),
            lambda: tools.git_diff("work", ["work/nowhere"], base="HEAD~1", target="HEAD"),
            lambda: tools.git_log("work", path="work/nowhere"),
            lambda: tools.git_log("work", path="work/folder/nowhere"),
        ):
            with pytest.raises(NotFound, match="matches nothing in the work tree or in git"):
                await call()
        assert (
            await tools.git_diff("work", ["work/folder"], base="HEAD~1", target="HEAD~1")
        ).text() == "no differences"
        assert "without" in (await tools.git_log("work", path="work/folder")).text()
