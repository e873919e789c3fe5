"""A rebase with steps, fixups that stop at a conflict, and conflicts that are answered in one call."""

from pathlib import Path
from typing import Any

import pytest

from coretools.errors import CoreError, GitRefused, InvalidArguments, NotFound
from tests.tools.git.world import World


def history(top: Path) -> tuple[World, list[str]]:
    """Four commits after the first, each with a file of its own; the last two change one line too."""
    world = World(top).created()
    world.write("shared", "one\ntwo\nthree\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "base")
    for number in range(1, 5):
        world.write(f"f{number}", f"{number}\n")
        world.write("shared", f"one\n{number if number > 2 else 'two'}\nthree\n")
        world.git("add", ".")
        message = f"c{number}\n\nbody {number}"
        world.git("commit", "--quiet", "-m", message, "--author", f"N{number} <n{number}@example.org>")
    return world, world.git("rev-list", "--reverse", "HEAD~4..HEAD").split()


async def test_a_list_of_steps_reorders_rewords_joins_and_drops(tmp_path: Path) -> None:
    """git-changes-17: authors are kept, no editor opens, and the answer says how to undo it."""
    world, (one, two, three, four) = history(tmp_path)
    before = world.git("rev-parse", "HEAD")
    steps = [f"pick {two[:9]} c2", f"reword {one} New subject\n\n# no comment", f"squash {three}", f"drop {four}"]
    async with world.tools() as tools:
        ended = (await tools.git_rebase("HEAD~4", "work", steps=steps)).text()
        assert f"Undo: git_reset revision='{before}' mode='keep'" in ended
        bodies = [one.strip() for one in world.git("log", "-2", "-z", "--format=%an: %B").split("\0")]
        assert bodies[:2] == ["N1: New subject\n\n# no comment\n\nc3\n\nbody 3", "N2: c2\n\nbody 2"]
        assert sorted(path.name for path in world.repository.glob("f*")) == ["f1", "f2", "f3"]
        await tools.git_reset(before, "work", mode="keep")
        assert world.git("symbolic-ref", "HEAD") == "refs/heads/main"
        assert world.git("status", "--short") == ""


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (["exec {1} touch x"], "write steps as in git's list"),
        (["pick"], "write steps as in git's list"),
        (["pick {1}", "pick {2}", "pick {3}"], "has no step; add one, such as 'drop "),
        (["pick {1}", "pick {1}", "pick {3}", "pick {4}"], "has two steps"),
        (["fixup {1}", "pick {2}", "pick {3}", "pick {4}"], "has no commit before it"),
        (["reword {1}", "pick {2}", "pick {3}", "pick {4}"], "needs the new message"),
        (["pick HEAD~4", "pick {2}", "pick {3}", "pick {4}"], "is not moved; these are"),
        (["pick {1}\nexec touch x", "pick --help", "pick {3}", "pick {4}"], "begins with '-'"),
        (["pick nowhere"], "names no commit"),
    ],
)
async def test_steps_are_checked_before_anything_begins(tmp_path: Path, steps: list[str], sentence: str) -> None:
    """git-changes-17: the error names the step; nothing is changed."""
    world, commits = history(tmp_path)
    before = world.git("rev-parse", "HEAD"), sorted(path.name for path in world.git_dir.iterdir())
    written = [step.format("", *commits) for step in steps]
    async with world.tools() as tools:
        with pytest.raises((InvalidArguments, NotFound), match=sentence):
            await tools.git_rebase("HEAD~4", "work", steps=written)
        world.write("shared", "uncommitted\n")
        with pytest.raises(GitRefused, match="uncommitted changes"):
            await tools.git_rebase("HEAD~4", "work", steps=[f"pick {one}" for one in commits])
    assert (world.git("rev-parse", "HEAD"), sorted(path.name for path in world.git_dir.iterdir())) == before


async def test_an_edit_stops_and_goes_on(tmp_path: Path) -> None:
    """git-changes-17: what is staged there amends the commit; git in a terminal can go on too."""
    world, commits = history(tmp_path)
    steps = [f"{'edit' if at == 1 else 'pick'} {one}" for at, one in enumerate(commits)]
    async with world.tools() as tools:
        stopped = await tools.git_rebase("HEAD~4", "work", steps=steps)
        assert stopped.text().startswith("rebase stopped to edit ")
        world.write("f2", "edited\n")
        await tools.git_add(["work/f2"], "work")
        await tools.git_continue("continue", "work", message="edited too")
        assert world.git("log", "--format=%an %s").splitlines()[2] == "N2 edited too"
        assert world.git("show", "HEAD~2:f2") == "edited"
        commits = world.git("rev-list", "--reverse", "HEAD~4..HEAD").split()
        await tools.git_rebase("HEAD~4", "work", steps=[f"edit {one}" for one in commits])
    for _ in range(4):
        world.git("-c", "core.editor=true", "rebase", "--continue")
    assert world.git("symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.parametrize("action", ["continue", "skip", "abort"])
async def test_a_fixup_that_stops_at_a_conflict_goes_on(tmp_path: Path, action: str) -> None:
    """git-changes-18: in a chain of three, with the message and author of the first commit."""
    world, (one, two, three, four) = history(tmp_path)
    before = world.git("rev-parse", "HEAD")
    steps = [f"pick {one}", f"fixup {two}", f"fixup {four}", f"fixup {three}"]
    async with world.tools() as tools:
        text = (await tools.git_rebase("HEAD~4", "work", steps=steps)).text()
        for _ in range(2):
            if "rebase stopped" not in text:
                break
            answers: dict[str, Any] = {"work/shared": {"text": "one\n4\nthree\n"}} if action == "continue" else {}
            text = (await tools.git_continue(action, "work", resolutions=answers)).text()  # type: ignore[arg-type]
    assert not (world.git_dir / "rebase-merge").exists()
    if action == "abort":
        assert world.git("rev-parse", "HEAD") == before
        return
    assert world.git("log", "--format=%an %s").splitlines() == ["N1 c1", "Ada Lovelace base"]
    assert world.git("log", "-1", "--format=%b") == "body 1"
    left = {"continue": "4", "skip": "3"}[action]
    assert (world.repository / "shared").read_text() == f"one\n{left}\nthree\n"


def conflicts(top: Path) -> World:
    """A merge that stops: two regions in one file, a deleted one, a binary one."""
    world = World(top).created()
    lines = [f"line {number}\n" for number in range(12)]
    world.write("two regions", "".join(lines))
    world.write("gone", "base\n")
    world.write("binary", "base\0")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "base")
    world.git("branch", "theirs")
    for branch in ("theirs", "main"):
        world.git("switch", "--quiet", branch)
        text = "theirs\n" if branch == "theirs" else "ours\n"
        world.write("two regions", "".join([text, *lines[1:10], text, lines[11]]))
        world.write("binary", text + "\0")
        world.write("gone", "changed\n")
        if branch == "main":
            (world.repository / "gone").unlink()
        world.git("add", ".")
        world.git("commit", "--quiet", "-m", branch)
    return world


async def test_conflicts_are_answered_in_one_call(tmp_path: Path) -> None:
    """git-changes-8: by side, text, or region; then the merge goes on. Undo brings the conflict back."""
    world = conflicts(tmp_path)
    async with world.tools() as tools:
        await tools.git_merge("theirs", "work")
        found = {one["path"]: one for one in (await tools.git_conflicts("work")).conflicts}
        regions = found["work/two regions"]["regions"]
        assert [(one["ours"], one["theirs"]) for one in regions] == [("ours\n", "theirs\n")] * 2
        path = "work/two regions"
        text = (await tools.git_continue("resolve", "work", resolutions={path: ["both", {"text": "by hand\n"}]})).text()
        assert "in conflict: work/binary, work/gone" in text
        written = (world.repository / "two regions").read_text()
        assert written.startswith("ours\ntheirs\nline 1\n")
        assert "line 9\nby hand\nline 11\n" in written
        await tools.git_restore([path], "work", side="conflict")
        assert "<<<<<<<" in (world.repository / "two regions").read_text()
        answers = {path: ["ours", "theirs"], "work/gone": "theirs", "work/binary": "ours"}
        ended = (await tools.git_continue("continue", "work", resolutions=answers)).text()
        assert ended.splitlines()[1].startswith("merge ended")
    assert len(world.git("log", "-1", "--format=%P").split()) == 2
    assert (world.repository / "gone").read_text() == "changed\n"
    assert (world.repository / "two regions").read_text().splitlines()[::10] == ["ours", "theirs"]
    assert world.git("status", "--short") == ""


async def test_a_conflict_of_one_line_in_a_large_file_is_small(tmp_path: Path) -> None:
    """git-changes-8, git-changes-16: the region with some lines around it; the path alone gives more."""
    world = World(tmp_path).created()
    lines = [f"line {number} of a file that is rather large\n" for number in range(4_000)]
    world.write("large", "".join(lines))
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "base")
    world.git("branch", "theirs")
    for branch in ("theirs", "main"):
        world.git("switch", "--quiet", branch)
        world.write("large", "".join([*lines[:2_000], f"by {branch}\n", *lines[2_001:]]))
        world.git("commit", "--quiet", "-a", "-m", branch)
    async with world.tools() as tools:
        await tools.git_merge("theirs", "work")
        found = await tools.git_conflicts("work")
        alone = await tools.git_conflicts("work", ["work/large"])
        [region] = found.conflicts[0]["regions"]
        assert (region["ours"], region["theirs"], region["lines"]) == ("by main\n", "by theirs\n", "2001-2005")
        assert region["before"] == "".join(lines[1_997:2_000])
        assert region["after"] == "".join(lines[2_001:2_004])
        assert max(len(found.text()), len(found.model_dump_json())) <= 1_500
        assert 2 * len(found.text()) < len(alone.text()) <= 20_000
        assert alone.conflicts[0]["base"].startswith(lines[0])
        await tools.git_continue("continue", "work", resolutions={"work/large": [{"text": "by both\n"}]})
    assert (world.repository / "large").read_text() == "".join([*lines[:2_000], "by both\n", *lines[2_001:]])


@pytest.mark.parametrize(
    ("operation", "ours", "theirs"),
    [
        ("merge", "main (", "topic ("),
        ("rebase", "the new base, topic (", "the commit that is moved, main ("),
        ("cherry-pick", "main (", "the picked commit topic ("),
        ("revert", "main (", "the state before the reverted commit "),
        ("stash", "main (", "stash@{1} (On main: mine"),
    ],
)
async def test_sides_are_named_by_branch_or_commit(tmp_path: Path, operation: str, ours: str, theirs: str) -> None:
    """git-changes-8: in every operation, whoever began it."""
    world = World(tmp_path).created()
    for branch, text in (("main", "base\n"), ("topic", "topic\n"), ("main", "main\n")):
        world.git("switch", "--quiet", *(() if text == "base\n" or branch == "main" else ("-c",)), branch, check=False)
        world.write("file", text)
        world.git("add", ".")
        world.git("commit", "--quiet", "-m", f"{branch} {text}")
    words = {
        "merge": ("merge", "topic"),
        "rebase": ("rebase", "topic"),
        "cherry-pick": ("cherry-pick", "topic"),
        "revert": ("revert", "HEAD~1"),
        "stash": ("stash", "apply", "stash@{1}"),
    }[operation]
    if operation == "stash":
        for text in ("mine", "other"):
            world.write("file", f"{text}\n")
            world.git("stash", "push", "--quiet", "-m", text)
        world.write("file", "committed\n")
        world.git("commit", "--quiet", "-a", "-m", "committed")
    if operation != "rebase":
        world.git("branch", "alike")  # names the commit of HEAD too, and is no better name for it
    world.git(*words, check=False)
    async with world.tools() as tools:
        found = await tools.git_conflicts("work")
    assert found.sides["ours"].startswith(ours)
    assert found.sides["theirs"].startswith(theirs)
    assert f"theirs is {found.sides['theirs']}" in found.text()
    assert operation != "rebase" or found.sides["theirs"].endswith(", of main")


@pytest.mark.parametrize(
    "answers",
    [
        {"work/two regions": ["ours"]},
        {"work/two regions": ["ours", "base"]},
        {"work/two regions": "mine"},
        {"work/two regions": {"texts": "x"}},
        {"work/two regions": {"text": "\ud800"}},
        {"work/other": "ours"},
        {"work/binary": ["ours"]},
        {"work/gone": "theirs", "work/two regions": ["ours", 5]},
        {"../etc": "ours"},
        {"work/.git/config": {"text": "x"}},
    ],
)
async def test_a_wrong_answer_resolves_nothing(tmp_path: Path, answers: dict[str, Any]) -> None:
    """git-changes-8: everything is checked before anything is written."""
    world = conflicts(tmp_path)
    async with world.tools() as tools:
        await tools.git_merge("theirs", "work")
        before = world.git("ls-files", "--stage"), world.git("status", "--short")
        with pytest.raises(CoreError):
            await tools.git_continue("continue", "work", resolutions=answers)
        assert (world.git("ls-files", "--stage"), world.git("status", "--short")) == before
        await tools.git_continue("abort", "work")
    assert world.git("status", "--short") == ""


async def test_lines_that_look_like_markers_are_no_regions(tmp_path: Path) -> None:
    """git-changes-8: rather none than wrong ones; the whole file can be answered."""
    world = conflicts(tmp_path)
    world.git("switch", "--quiet", "theirs")
    world.write("two regions", "Title\n=======\n")
    world.git("commit", "--quiet", "-a", "-m", "title")
    async with world.tools() as tools:
        await tools.git_merge("main", "work")
        found = {one["path"]: one for one in (await tools.git_conflicts("work")).conflicts}
        assert "regions" not in found["work/two regions"]
        await tools.git_continue("resolve", "work", resolutions={"work/two regions": {"text": "mine\n"}})
    assert (world.repository / "two regions").read_text() == "mine\n"


async def test_a_fixup_joins_a_commit_whose_message_has_a_body(tmp_path: Path) -> None:
    """git-changes-17: the subject alone names the commit."""
    world = World(tmp_path).filled()
    world.git("commit", "--quiet", "-a", "-m", "long\n\nWith a body.")
    async with world.tools() as tools:
        world.write("a.txt", "better\n")
        await tools.git_commit("", "work", fixup="HEAD", paths=["work/a.txt"])
        await tools.git_rebase("HEAD~2", "work", autosquash=True)
    assert world.git("log", "-1", "--format=%B").strip() == "long\n\nWith a body."
    assert world.git("show", "HEAD:a.txt") == "better"
