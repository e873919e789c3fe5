"""Stage, unstage and discard hunks and lines (docs/specs/git-changes.md)."""

import random
import re
from pathlib import Path

import pytest

from coretools.errors import Conflict, CoreError, GitRefused, InvalidArguments
from coretools.tools.git.repository.patches import PATCH, Hunk, read_patch
from tests.tools.git.world import World


def hunks_of(world: World, name: str, *words: str) -> list[Hunk]:
    data = world.git("diff", *PATCH, "--src-prefix=a/", "--dst-prefix=b/", *words, "--", name)
    return list(read_patch(data.encode())[0].hunks) if data else []


def lines(count: int) -> list[str]:
    return [f"line {number}\n" for number in range(count)]


def changed(world: World, name: str = "f") -> World:
    """A file with three hunks."""
    text = lines(60)
    world.created().write(name, "".join(text))
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    text[5] = "changed 5\n"
    text[30:32] = ["changed 30\n", "more\n", "changed 31\n"]
    del text[55]
    world.write(name, "".join(text))
    return world


@pytest.mark.parametrize("form", ["number", "id", "both", "range"])
async def test_hunks_are_staged_and_unstaged(tmp_path: Path, form: str) -> None:
    """git-changes-19: by number, id, or both; the answer undoes it as a call."""
    world = changed(World(tmp_path))
    first, second, third = hunks_of(world, "f")
    choices = {
        "number": ["1", "3"],
        "id": [third.id, first.id],
        "both": [f"1:{first.id}", f"3:{third.id}"],
        "range": ["1-1", "3"],
    }
    async with world.tools() as tools:
        answer = (await tools.git_add(["work/f"], "work", hunks=choices[form])).text()
        assert answer.startswith("staged 2 of 3 hunks in work/f\n")
        assert [hunk.lines for hunk in hunks_of(world, "f", "--cached")] == [first.lines, third.lines]
        assert [hunk.lines for hunk in hunks_of(world, "f")] == [second.lines]
        ids = re.findall(r"[0-9a-f]{8}", answer.rpartition("hunks=")[2])
        await tools.git_restore(["work/f"], "work", what="staged", hunks=ids)
    assert not hunks_of(world, "f", "--cached")
    assert len(hunks_of(world, "f")) == 3


async def test_a_hunk_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    """git-changes-19: nothing is staged, and the error names the hunks of now."""
    world = changed(World(tmp_path))
    first, second, _ = hunks_of(world, "f")
    text = (world.repository / "f").read_text()
    world.write("f", text.replace("changed 30", "changed again"))
    async with world.tools() as tools:
        for choice in (second.id, f"2:{second.id}"):
            with pytest.raises(Conflict, match="has changed since"):
                await tools.git_add(["work/f"], "work", hunks=["1", choice])
        for choice in ("4", "1-9", "2-1", "+500", "-500"):
            with pytest.raises(GitRefused, match="hunks"):
                await tools.git_add(["work/f"], "work", hunks=["1", choice])
        for choice in ("", "x", "0", "-", "+0", "--cached", "1 2"):
            with pytest.raises(InvalidArguments, match="choose hunks by number"):
                await tools.git_add(["work/f"], "work", hunks=[choice])
        assert world.git("diff", "--cached") == ""
        await tools.git_add(["work/f"], "work", hunks=[first.id])
    assert world.git("diff", "--cached") != ""


async def test_lines_of_a_diff_are_staged(tmp_path: Path) -> None:
    """git-changes-19: added lines by the new file's numbers, removed ones by the old file's."""
    world = changed(World(tmp_path))
    async with world.tools() as tools:
        await tools.git_add(["work/f"], "work", hunks=["+32", "-55"])
    expected = lines(60)
    del expected[54]
    # The removed lines 31 and 32 stay, so the added one follows them.
    expected.insert(32, "more\n")
    assert f"{world.git('show', ':f')}\n" == "".join(expected)


@pytest.mark.parametrize("seed", range(12))
async def test_random_choices_are_what_git_itself_makes_of_them(tmp_path: Path, seed: int) -> None:
    """git-changes-19: staged, unstaged and discarded hunks, with CRLF and odd names."""
    rng = random.Random(seed)
    name = rng.choice(("f", "a b", "ümlaut\t", '"quoted"'))
    ending = rng.choice(("\n", "\r\n"))
    world = World(tmp_path).created()
    before = [f"{number} {rng.randrange(3)}{ending}" for number in range(40)]
    world.repository.joinpath(name).write_bytes("".join(before).encode())
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    after = list(before)
    for _ in range(8):
        at = rng.randrange(len(after))
        match rng.randrange(3):
            case 0:
                after[at] = f"changed {rng.randrange(9)}{ending}"
            case 1:
                after.insert(at, f"new {rng.randrange(9)}{ending}")
            case _:
                del after[at]
    world.repository.joinpath(name).write_bytes("".join(after).encode())
    hunks = hunks_of(world, name)
    chosen = [hunk for hunk in hunks if rng.random() < 0.5] or hunks[:1]
    single = rng.choice(hunks)
    async with world.tools() as tools:
        path = f"work/{name}"
        await tools.git_add([path], "work", hunks=[hunk.id for hunk in chosen])
        assert [hunk.lines for hunk in hunks_of(world, name, "--cached")] == [hunk.lines for hunk in chosen]
        ids = [hunk.id for hunk in hunks_of(world, name, "--cached")]
        await tools.git_restore([path], "work", what="staged", hunks=ids)
        assert world.git("diff", "--cached") == ""
        answer = await tools.git_restore([path], "work", what="worktree", hunks=[single.id])
        left = [hunk.lines for hunk in hunks if hunk is not single]
        assert [hunk.lines for hunk in hunks_of(world, name)] == left
        assert "Undo: git_stash action='apply' stash='" in answer.text()


async def test_what_has_no_hunks_is_refused_with_what_works(tmp_path: Path) -> None:
    """git-changes-19: binary, new, deleted and mode-only changes, conflicts, and a hunk at an end without a newline."""
    world = changed(World(tmp_path))
    for name, content in (("binary", "x\0"), ("gone", "x\n"), ("mode", "x\n"), ("end", "one\ntwo")):
        world.write(name, content)
    world.git("add", "binary", "gone", "mode", "end")
    world.git("commit", "--quiet", "-m", "second")
    world.write("binary", "y\0")
    (world.repository / "gone").unlink()
    (world.repository / "mode").chmod(0o755)
    world.write("end", "one\nTWO\nthree")
    world.write("new", "x\n")
    world.git("add", "--intent-to-add", "new")
    async with world.tools() as tools:
        for name, sentence in (
            ("binary", "is binary"),
            ("gone", "leave out hunks"),
            ("mode", "only its mode"),
            ("new", "leave out hunks"),
        ):
            with pytest.raises(GitRefused, match=sentence):
                await tools.git_add([f"work/{name}"], "work", hunks=["1"])
        with pytest.raises(GitRefused, match="without a newline; choose the whole hunk"):
            await tools.git_add(["work/end"], "work", hunks=["+2"])
        with pytest.raises(InvalidArguments, match="only ids of git_diff name a hunk"):
            await tools.git_add(["work"], "work", hunks=["1"])
        assert world.git("diff", "--cached") == ""
        await tools.git_add(["work/end"], "work", hunks=["1"])
        assert world.git("show", ":end") == "one\nTWO\nthree"
        with pytest.raises(CoreError):
            await tools.git_add(["work/.env"], "work", hunks=["1"])


async def test_tracked_files_only_and_new_files_without_content(tmp_path: Path) -> None:
    """git-9: update, and intent to add; a new file is then in the difference."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        await tools.git_add(["work"], "work", update=True)
        assert "?? new.txt" in world.git("status", "--short")
        await tools.git_add(["work"], "work", intent=True)
    assert " A new.txt" in world.git("status", "--short")
    assert "+new" in world.git("diff")


async def test_calls_that_undo_have_their_names(tmp_path: Path) -> None:
    """git-changes-1: also for a file of which only the name is staged, and for a stash that is kept."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        before = world.git("status", "--short")
        noted = (await tools.git_add(["work/new.txt"], "work", intent=True)).text()
        assert "Undo: git_restore what='staged' paths=['work/new.txt']" in noted
        unstaged = (await tools.git_restore(["work/new.txt"], "work", what="staged")).text()
        assert "Undo: git_add paths=['work/new.txt']" in unstaged
        assert world.git("status", "--short") == before
        await tools.git_stash("push", "work")
        applied = (await tools.git_stash("apply", "work")).text()
        assert "Undo: git_restore what='both' paths=['work/a.txt', 'work/b.txt']; the stash is kept" in applied
        await tools.git_restore(["work/a.txt", "work/b.txt"], "work", what="both")
        assert world.git("status", "--short") == "?? new.txt"
