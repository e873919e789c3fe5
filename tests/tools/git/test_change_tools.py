"""The git tools of the profile `all`, in real repositories (docs/specs/git-changes.md)."""

from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group

from coretools.errors import AlreadyExists, CoreError, DeniedPath, GitRefused, InvalidArguments, NotFound, ReadOnly
from coretools.roots.root import RootSpec
from coretools.tools.git.changes.stash_commits import kept
from coretools.tools.git.repository.open_checkout import Access
from tests.tools.git.change_calls import CALLS, change_answers, function_of, is_read, with_other
from tests.tools.git.world import HOME_CONFIG, World


async def test_a_day_in_one_repository(tmp_path: Path) -> None:
    """git-changes-1: every call succeeds but the one that has nothing to skip; each change says how to undo it."""
    world = with_other(World(tmp_path).filled())
    async with world.tools() as tools:
        texts = await change_answers(tools)
    refused = [(call, text) for call, text in zip(CALLS, texts, strict=True) if text.startswith("git-refused")]
    assert [call for call, _ in refused] == [("git_continue", {"action": "skip"})], refused
    for (name, arguments), text in zip(CALLS, texts, strict=True):
        is_change = not is_read((name, arguments)) and arguments.get("action") not in ("pop", "abort", "skip", "prune")
        assert not is_change or "Undo: " in text or "rebase ended" in text or name == "git_bisect_run", (name, text)
    assert world.git("status", "--short") == ""
    assert world.git("log", "--format=%s", "topic").splitlines()[0] == 'fixup! Revert "amended"'


async def test_show_explains_a_commit_a_tag_and_a_file(tmp_path: Path) -> None:
    """git-changes-2: message, difference to the first parent, and content at a revision from a line on."""
    world = World(tmp_path).filled()
    world.git("tag", "-a", "-m", "release\n\nwith text", "v1", "HEAD~1")
    async with world.tools() as tools:
        first = (await tools.git_show("HEAD~1", "work")).text()
        assert "    first" in first
        assert "+one" in first
        tagged = (await tools.git_show("v1", "work", stat=True)).text()
        assert tagged.splitlines()[0] == "tag v1"
        assert "    with text" in tagged
        assert "work/a.txt | +1 -0" in tagged
        world.write("long.txt", "".join(f"line {number}\n" for number in range(1, 9_001)))
        world.git("add", "long.txt")
        world.git("commit", "--quiet", "-m", "long")
        shown = await tools.git_show("HEAD", "work", path="work/long.txt")
        assert len(shown.text().encode()) <= 20_000
        following = int(shown.text().rpartition("offset=")[2].rstrip("]"))
        rest = await tools.git_show("HEAD", "work", path="work/long.txt", offset=following)
        assert rest.text().startswith(f"line {following}\n")
        with pytest.raises(NotFound, match=r"not in revision HEAD~1; git_log"):
            await tools.git_show("HEAD~1", "work", path="work/long.txt")


async def test_blame_names_the_commit_of_each_line(tmp_path: Path) -> None:
    """git-changes-3: of the work tree or a commit; whitespace can be ignored."""
    world = World(tmp_path).created()
    world.write("f", "one\ntwo\n")
    world.git("add", "f")
    world.git("commit", "--quiet", "-m", "first")
    first = world.git("rev-parse", "HEAD")[:10]
    world.write("f", "one\n  two\nthree\n")
    world.git("commit", "--quiet", "-a", "-m", "second")
    second = world.git("rev-parse", "HEAD")[:10]
    world.write("f", "one\n  two\nthree\nfour\n")
    async with world.tools() as tools:
        lines = (await tools.git_blame("work/f", "work")).text().splitlines()
        assert [line.split()[0] for line in lines] == [first, second, second, "0000000000"]
        lines = (await tools.git_blame("work/f", "work", ignore_whitespace=True)).text().splitlines()
        assert [line.split()[0] for line in lines] == [first, first, second, "0000000000"]
        part = (await tools.git_blame("work/f", "work", "HEAD~1", start=2, count=1)).text().splitlines()
        assert part == [f"{first} 2026-03-01 Ada Lovelace 2: two", "[for more lines: start=3]"]


@pytest.mark.parametrize("text", ["-d", "--force", "@{-1}", "-", "a..b", "x\ny", "", "HEAD", "a" * 2_000, "refs/../x"])
async def test_text_that_is_no_name_changes_no_branch_or_tag(tmp_path: Path, text: str) -> None:
    """git-changes-4: a name is never an option, a shorthand or a pattern."""
    world = World(tmp_path).filled()
    world.git("branch", "spare")
    world.git("switch", "--quiet", "spare", check=False)
    before = world.git("for-each-ref"), world.git("symbolic-ref", "HEAD")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("git_switch", {"branch": text, "create": True}),
        ("git_switch", {"branch": text}),
        ("git_branch", {"action": "create", "name": text}),
        ("git_branch", {"action": "delete", "name": text, "force": True}),
        ("git_branch", {"action": "rename", "name": "spare", "new_name": text}),
        ("git_branch", {"action": "upstream", "name": text, "upstream": "main"}),
        ("git_tag", {"action": "create", "name": text}),
        ("git_tag", {"action": "delete", "name": text}),
    ]
    async with world.tools() as tools:
        for name, arguments in calls:
            with pytest.raises((InvalidArguments, NotFound)):
                await function_of(tools, name)(repository="work", **arguments)
    assert (world.git("for-each-ref"), world.git("symbolic-ref", "HEAD")) == before


@pytest.mark.parametrize(
    "text", ["-d", "--exec=touch x", "--hard", "nothing", "HEAD\n--hard", ":/first", "HEAD^{tree}"]
)
async def test_text_that_is_no_commit_is_refused_as_a_revision(tmp_path: Path, text: str) -> None:
    """git-changes-4: only the hexadecimal name of a commit is passed on."""
    world = World(tmp_path).filled()
    before = world.git("rev-parse", "HEAD"), world.git("status", "--short")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("git_reset", {"revision": text, "mode": "hard"}),
        ("git_merge", {"revision": text}),
        ("git_cherry_pick", {"revisions": [text]}),
        ("git_revert", {"revisions": [text]}),
        ("git_rebase", {"upstream": text}),
        ("git_switch", {"detach": text}),
        ("git_restore", {"paths": ["work"], "revision": text}),
        ("git_stash", {"action": "apply", "stash": text}),
    ]
    async with world.tools() as tools:
        for name, arguments in calls:
            with pytest.raises((InvalidArguments, NotFound)):
                await function_of(tools, name)(repository="work", **arguments)
    assert (world.git("rev-parse", "HEAD"), world.git("status", "--short")) == before


async def test_what_a_change_overwrites_can_be_taken_back(tmp_path: Path) -> None:
    """git-changes-5: restore and reset keep uncommitted content in a stash commit, which the answer names."""
    world = World(tmp_path).filled()
    before = {name: (world.repository / name).read_text() for name in ("a.txt", "b.txt")}
    async with world.tools() as tools:
        for call in (
            tools.git_restore(["work/a.txt", "work/b.txt"], "work", what="both"),
            tools.git_reset("HEAD", "work", mode="hard"),
        ):
            answer = await call
            assert world.git("status", "--short") == "?? new.txt"
            commit = answer.text().rpartition("stash=")[2].strip("'")
            await tools.git_stash("apply", "work", stash=commit)
            assert {name: (world.repository / name).read_text() for name in before} == before


async def test_a_stash_keeps_what_git_itself_keeps(tmp_path: Path) -> None:
    """git-changes-6: index, work tree and untracked files; git applies it, and our pop restores it."""
    world = World(tmp_path).filled()
    world.write("b.txt", "staged and changed\n")
    before = {path.name: path.read_text() for path in world.repository.iterdir() if path.is_file()}
    status = world.git("status", "--short")
    async with world.tools() as tools:
        await tools.git_stash("push", "work", untracked=True, message="all of it")
        assert world.git("status", "--short") == ""
        assert world.git("stash", "list") == "stash@{0}: On main: all of it"
        world.git("stash", "pop", "--index", "--quiet")
        assert world.git("status", "--short") == status
        await tools.git_stash("push", "work", untracked=True)
        answer = await tools.git_stash("pop", "work")
    assert "applied" in answer.text()
    assert {path.name: path.read_text() for path in world.repository.iterdir() if path.is_file()} == before
    assert world.git("stash", "list") == ""
    assert not list(world.git_dir.glob("coretools-index*"))


async def test_a_conflict_is_data_and_is_resolved(tmp_path: Path) -> None:
    """git-changes-8: kinds and versions; a deleted side is left out."""
    world = with_other(World(tmp_path).filled())
    world.git("reset", "--hard", "--quiet")
    world.git("switch", "--quiet", "other")
    world.git("rm", "--quiet", "a.txt")
    world.git("commit", "--quiet", "-m", "without a")
    world.git("switch", "--quiet", "main")
    world.write("a.txt", "changed\n")
    world.git("commit", "--quiet", "-a", "-m", "a")
    async with world.tools() as tools:
        stopped = await tools.git_merge("other", "work")
        assert stopped.facts()["stopped"] is True
        found = await tools.git_conflicts("work")
        assert found.operation == "merge"
        sides = {"ours": "two\n", "theirs": "other\n"}
        assert found.conflicts == [
            {"path": "work/a.txt", "kind": "deleted by them", "base": "one\n", "ours": "changed\n"},
            {"path": "work/b.txt", "kind": "both modified"}
            | {"regions": [{"lines": "1-5", "before": "", **sides, "after": ""}]},
        ]
        [alone] = (await tools.git_conflicts("work", ["work/b.txt"])).conflicts
        assert alone.items() >= {"base": "one\n", **sides}.items()
        with pytest.raises(GitRefused, match=r"not resolved: work/a\.txt, work/b\.txt"):
            await tools.git_continue("continue", "work")
        await tools.git_restore(["work"], "work", side="theirs")
        await tools.git_continue("continue", "work")
    assert world.git("ls-files") == "b.txt\nfolder/c.txt"
    assert (world.repository / "b.txt").read_text() == "other\n"
    assert len(world.git("log", "-1", "--format=%P").split()) == 2


async def test_what_is_in_conflict_is_neither_committed_nor_stashed_over(tmp_path: Path) -> None:
    """git-changes-8: after a stash in conflict, of which git knows no operation; nothing is changed."""
    world = World(tmp_path).filled()
    world.git("reset", "--hard", "--quiet")
    for name in ("b.txt", "a.txt"):
        world.write(name, "stashed\n")
        world.git("stash", "--quiet")
    world.write("a.txt", "changed\n")
    world.git("commit", "--quiet", "-a", "-m", "a")
    head = world.git("rev-parse", "HEAD")
    async with world.tools() as tools:
        assert "in conflict: work/a.txt" in (await tools.git_stash("pop", "work")).text()
        state = world.git("status", "--short")
        with pytest.raises(GitRefused, match=r"not resolved: work/a\.txt"):
            await function_of(tools, "git_commit")(repository="work", message="x", paths=["work/a.txt"])
        with pytest.raises(GitRefused, match="nothing was applied"):
            await tools.git_stash("apply", "work", stash="stash@{1}")
    assert world.git("rev-parse", "HEAD") == head
    assert world.git("status", "--short") == state
    assert "<<<<<<<" in (world.repository / "a.txt").read_text()


async def test_a_temporary_file_of_a_write_is_not_staged(tmp_path: Path) -> None:
    """git-changes-1: another call, or another server, is writing a file at the moment."""
    world = World(tmp_path).filled()
    world.git("reset", "--hard", "--quiet")
    world.write(".coretools-0123456789abcdef.tmp", "half of\n")
    world.write("new.txt", "new\n")
    async with world.tools() as tools:
        await function_of(tools, "git_add")(repository="work", paths=["work"])
    assert world.git("diff", "--cached", "--name-only") == "new.txt"


async def test_a_rebase_keeps_authors_and_can_be_undone(tmp_path: Path) -> None:
    """git-changes-7: after a conflict too."""
    world = with_other(World(tmp_path).filled())
    world.git("reset", "--hard", "--quiet")
    world.git("switch", "--quiet", "other")
    world.git("commit", "--quiet", "--amend", "--no-edit", "--author", "Zoe <z@example.org>", "--date", "@1 +0100")
    before = world.git("rev-parse", "HEAD")
    async with world.tools() as tools:
        assert "stopped" in (await tools.git_rebase("main", "work")).text()
        with pytest.raises(GitRefused, match="a rebase is in progress"):
            await tools.git_merge("main", "work")
        world.write("b.txt", "both\n")
        await tools.git_add(["work/b.txt"], "work")
        ended = (await tools.git_continue("continue", "work")).text()
    assert ended.splitlines()[1].startswith(f"Undo: git_reset revision={before!r} mode='keep' (only while")
    assert world.git("log", "-1", "--format=%an %ad %s", "--date=raw") == "Zoe 1 +0100 other"
    assert world.git("rev-parse", "HEAD~1", "main").split()[0] == world.git("rev-parse", "main")


@pytest.mark.parametrize(
    "name", ["git_switch", "git_reset", "git_merge", "git_cherry_pick", "git_rebase", "git_restore"]
)
async def test_a_hidden_file_is_not_changed(tmp_path: Path, name: str) -> None:
    """git-changes-9: the operator's .env stays as it is, whatever a commit has in its place."""
    world = World(tmp_path).filled()
    world.git("reset", "--hard", "--quiet")
    world.git("switch", "--quiet", "-c", "theirs")
    world.write(".env", "KEY=theirs\n")
    world.git("add", ".env")
    world.git("commit", "--quiet", "-m", "env")
    world.git("switch", "--quiet", "main")
    world.write(".env", "KEY=mine\n")
    arguments: dict[str, Any] = {
        "git_switch": {"branch": "theirs"},
        "git_reset": {"revision": "theirs", "mode": "hard"},
        "git_merge": {"revision": "theirs"},
        "git_cherry_pick": {"revisions": ["theirs"]},
        "git_rebase": {"upstream": "theirs"},
        "git_restore": {"paths": ["work/.env"], "revision": "theirs"},
    }[name]
    async with world.tools() as tools:
        with pytest.raises(DeniedPath):
            await function_of(tools, name)(repository="work", **arguments)
        with pytest.raises(DeniedPath):
            await tools.git_show("theirs", "work", path="work/.env")
        assert "theirs" not in (await tools.git_show("theirs", "work")).text().partition("env")[2]
    assert (world.repository / ".env").read_text() == "KEY=mine\n"
    assert world.git("rev-parse", "--abbrev-ref", "HEAD") == "main"


async def test_a_file_that_a_filter_converts_is_not_written(tmp_path: Path) -> None:
    """git-changes-9: a pointer would take the place of the file."""
    world = World(tmp_path, home_config=HOME_CONFIG + '[filter "lfs"]\n\tsmudge = cat\n\tclean = cat\n').filled()
    world.write(".gitattributes", "b.txt filter=lfs\n")
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match=r"b\.txt: need the filter lfs"):
            await tools.git_restore(["work/b.txt"], "work", what="both")


async def test_a_read_only_root_in_the_work_tree_is_not_written(tmp_path: Path) -> None:
    """git-changes-10: nor is a root that is read-only as a whole."""
    world = World(tmp_path).filled()
    inner = RootSpec(str(world.repository / "folder"), writable=False)
    async with world.tools(roots=(inner,)) as tools:
        with pytest.raises(ReadOnly):
            await tools.git_switch("", "work", detach="HEAD~1")
    async with world.tools(writable=False) as tools:
        for name, arguments in CALLS[4:]:
            if not is_read((name, arguments)):
                with pytest.raises(ReadOnly):
                    await function_of(tools, name)(repository="work", **arguments)


async def test_every_state_of_a_repository_has_a_clear_answer(tmp_path: Path) -> None:
    """git-changes-11: unborn branch, detached HEAD, shallow, names that are not UTF-8; never an unexpected error."""
    unborn = World(tmp_path / "unborn").created()
    detached = with_other(World(tmp_path / "detached").filled())
    detached.git("switch", "--quiet", "--detach")
    shallow = World(tmp_path / "shallow")
    shallow.git("clone", "--quiet", "--depth=1", f"file://{detached.repository}", str(shallow.repository), cwd=tmp_path)
    odd = World(tmp_path / "odd").created()
    (odd.repository / b"caf\xe9.txt".decode("utf-8", "surrogateescape")).write_text("x\n")
    odd.write('a "quoted"\nname', "x\n")
    odd.git("add", ".")
    odd.git("commit", "--quiet", "-m", "odd names")
    odd.write('a "quoted"\nname', "y\n")
    for world in (unborn, detached, shallow, odd):
        async with world.tools() as tools:
            texts = await change_answers(tools)  # anything but a CoreError fails the test
            assert all(texts)
            assert world.git("status", "--short") is not None
    async with unborn.tools() as tools:
        with pytest.raises(NotFound, match="names nothing in this repository"):
            await tools.git_show("HEAD", "work")
        with pytest.raises(GitRefused, match="has no commits yet"):
            await tools.git_stash("push", "work")
        unborn.write("a", "x\n")
        unborn.git("add", "a")
        assert "unstaged 1" in (await tools.git_restore(["work/a"], "work", what="staged")).text()


async def test_an_ignored_file_is_not_overwritten_by_a_switch(tmp_path: Path) -> None:
    """git-changes-5: git alone would replace it without a word."""
    world = World(tmp_path).filled()
    world.git("reset", "--hard", "--quiet")
    world.git("switch", "--quiet", "-c", "theirs")
    world.write("local.log", "theirs\n")
    world.git("add", "local.log")
    world.git("commit", "--quiet", "-m", "log")
    world.git("switch", "--quiet", "main")
    world.write(".git/info/exclude", "*.log\n")
    world.write("local.log", "mine\n")
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match=r"local\.log"):
            await tools.git_switch("theirs", "work")
    assert (world.repository / "local.log").read_text() == "mine\n"


async def test_an_unmerged_branch_is_deleted_only_by_force_and_comes_back(tmp_path: Path) -> None:
    """git-changes-4: the undo is a call with the commit."""
    world = with_other(World(tmp_path).filled())
    before = world.git("for-each-ref", "refs/heads")
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="force=true"):
            await tools.git_branch("delete", "other", "work")
        answer = await tools.git_branch("delete", "other", "work", force=True)
        start = answer.text().rpartition("start=")[2].strip("'")
        await tools.git_branch("create", "other", "work", start=start)
        with pytest.raises(AlreadyExists):
            await tools.git_branch("create", "other", "work")
        with pytest.raises(CoreError, match="checked out"):
            await tools.git_branch("delete", "main", "work")
    assert world.git("for-each-ref", "refs/heads") == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"amend": True}, "Ada Lovelace second 2"),
        ({"amend": True, "message": "other text"}, "Ada Lovelace other text 2"),
        ({"message": "m", "by": "Bea <b@example.org>"}, "Bea m 3"),
        ({"fixup": "HEAD"}, "Ada Lovelace fixup! second 3"),
    ],
    ids=["amend", "amend with a message", "author", "fixup"],
)
async def test_a_commit_can_amend_fix_and_name_an_author(
    tmp_path: Path, arguments: dict[str, Any], expected: str
) -> None:
    """git-10."""
    world = World(tmp_path).filled()
    before = world.git("rev-parse", "HEAD")
    async with world.tools() as tools:
        answer = await tools.git_commit(repository="work", **arguments)
        assert world.git("log", "-1", "--format=%an %s") + f" {world.git('rev-list', '--count', 'HEAD')}" == expected
        assert f"Undo: git_reset revision={before!r} mode='soft'" in answer.text()
        await tools.git_reset(before, "work", mode="soft")
        assert world.git("rev-parse", "HEAD") == before
        for bad in ({"fixup": "HEAD", "message": "m"}, {"message": "m", "by": "--help"}, {"message": ""}):
            with pytest.raises(InvalidArguments):
                await tools.git_commit(repository="work", **bad)


async def test_every_answer_fits_a_model_and_names_the_way_to_the_rest(tmp_path: Path) -> None:
    """git-changes-16: large messages, files, lines, conflicts, and many of them."""
    world = World(tmp_path).created()
    long_name = "a-name-that-is-rather-long-to-fill-the-answer/" * 3
    for number in range(14):
        world.write(f"{long_name}{number}.txt", "base\n" * 4_000)
    world.write("wide.txt", "\u6f22" * 30_000 + "\n" + "\u6f22\n" * 9_000)
    world.git("add", ".")
    world.git(
        "commit", "--quiet", "-F", "-", stdin=b"subject\n\n" + b"a long line of a message " * 200 + b"\nline" * 900
    )
    commit = world.git("rev-parse", "HEAD")
    tags = "".join(f"create refs/tags/{'t' * 60}-{number:04} {commit}\n" for number in range(600))
    world.git("update-ref", "--stdin", stdin=tags.encode())
    for branch, text in (("left", "left\n"), ("right", "right\n")):
        world.git("switch", "--quiet", "-c", branch, "main")
        for number in range(14):
            world.write(f"{long_name}{number}.txt", text * 4_000)
        world.git("commit", "--quiet", "-a", "-m", f"{branch} " * 500)
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("git_show", {"revision": "main"}, "lines of the message"),
        ("git_show", {"revision": "left"}, "paths="),
        ("git_show", {"revision": "main", "path": "work/wide.txt"}, "offset="),
        ("git_blame", {"path": "work/wide.txt", "count": 2_000}, "start="),
        ("git_tag", {"action": "list"}, "name="),
        ("git_stash", {"action": "push"}, ""),
        ("git_stash", {"action": "show"}, ""),
        ("git_restore", {"paths": ["work"], "revision": "left", "what": "both"}, "and 4 more"),
        ("git_reset", {"mode": "hard"}, "stash="),
        ("git_merge", {"revision": "left"}, "git_conflicts"),
        ("git_conflicts", {}, "name paths"),
        ("git_conflicts", {"paths": [f"work/{long_name}1.txt"]}, "bytes left out"),
        ("git_continue", {"action": "abort"}, ""),
        ("git_rebase", {"upstream": "left"}, "git_conflicts"),
        ("git_continue", {"action": "abort"}, ""),
    ]
    for number in range(14):
        world.write(f"{long_name}{number}.txt", "mine\n" * 5_000)
    async with world.tools() as tools:
        for name, arguments, way in calls:
            result = await function_of(tools, name)(repository="work", **arguments)
            text = result.text()
            assert 0 < len(text.encode()) <= 20_000, (name, len(text.encode()))
            assert max(map(len, text.split("\n"))) <= 2_300, name
            assert way in text, (name, text[-300:])
            assert name != "git_conflicts" or len(result.model_dump_json().encode()) <= 20_000


async def test_two_stashes_at_once_do_not_mix(tmp_path: Path) -> None:
    """git-changes-5: each stash commit is put together in an index of its own."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        repositories = tools.repositories

        async def one(results: list[str]) -> None:
            async with repositories.opened("work", access=Access.WORK_TREE) as opened:
                results.append(await kept(opened))

        results: list[str] = []
        async with create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(one, results)
    trees = {world.git("rev-parse", f"{commit}^{{tree}}", f"{commit}^2^{{tree}}") for commit in results}
    assert len(trees) == 1
    assert world.git("ls-tree", "-r", "--name-only", results[0]) == "a.txt\nb.txt\nfolder/c.txt"
