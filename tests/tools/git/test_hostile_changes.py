"""Hostile repositories against the git tools of the profile `all`, judged by effect (docs/specs/git-changes.md)."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from coretools.errors import CoreError, GitRefused
from tests.tools.git.change_calls import CALLS, EACH, change_answers, is_read, with_other
from tests.tools.git.include_traps import EXTERNAL_PROGRAMS, EXTERNAL_REDIRECTIONS
from tests.tools.git.traps import PROGRAMS, REDIRECTIONS, WRITTEN_THROUGH, Trap, snapshot
from tests.tools.git.world import SECRET, World


def _groups() -> dict[str, list[Trap]]:
    """The traps of git-12. Those that are nothing but settings are laid into one repository; each is complete alone.

    With a filter in force nearly every change is refused, so filters are a group of their own.
    """
    groups: dict[str, list[Trap]] = {"settings": [], "filters": [], "outside": [], "filters outside": []}
    alone = ("include", "promisor", "signature", "work tree", "submodule", "equals", "outside: by")
    for trap in (*PROGRAMS, *EXTERNAL_PROGRAMS):
        if any(word in trap.name for word in alone) or trap.name == "hooks elsewhere":
            groups[trap.name] = [trap]
            continue
        name = "filters" if "filter" in trap.name else "settings"
        if trap.name.startswith("file outside"):
            name = "filters outside" if name == "filters" else "outside"
        groups[name].append(trap)
    return groups


@pytest.mark.parametrize("group", [pytest.param(traps, id=name) for name, traps in _groups().items()])
async def test_no_program_of_a_repository_runs_in_a_change(tmp_path: Path, group: list[Trap]) -> None:
    """git-changes-12: every vector of git-12 with every tool."""
    world = with_other(World(tmp_path).filled())
    attributes = []
    for trap in group:
        trap.lay(world)
        path = world.repository / ".gitattributes"
        attributes += [path.read_text()] if path.exists() else []
    if attributes:
        world.write(".gitattributes", "".join(dict.fromkeys(attributes)))
    world.marker.unlink(missing_ok=True)
    before = snapshot(world)
    async with world.tools() as tools:
        texts = await change_answers(tools, CALLS if len(group) > 1 else EACH)
    assert snapshot(world) == before
    assert SECRET not in "".join(texts)
    if group[0].name == "fsmonitor":
        refused = [(call, text) for call, text in zip(CALLS, texts, strict=True) if text.startswith("git-refused")]
        assert [call for call, _ in refused] == [("git_continue", {"action": "skip"})], refused


@pytest.mark.parametrize("trap", [*REDIRECTIONS, *EXTERNAL_REDIRECTIONS], ids=lambda trap: trap.name)
async def test_a_repository_that_leads_out_is_refused_for_a_change(tmp_path: Path, trap: Trap) -> None:
    """git-changes-12: every vector of git-13 with every tool; the error names what leads out."""
    world = with_other(World(tmp_path).filled())
    trap.lay(world)
    world.marker.unlink(missing_ok=True)
    before = snapshot(world)
    async with world.tools() as tools:
        texts = await change_answers(tools, EACH)
    assert snapshot(world) == before
    assert SECRET not in "".join(texts)
    # A report about what leads out is the one answer.
    refused = [text for (name, _), text in zip(EACH, texts, strict=True) if name != "git_trust_report"]
    assert all(text.startswith("git-refused: ") and trap.reported in text for text in refused), texts


@pytest.mark.parametrize("trap", WRITTEN_THROUGH, ids=lambda trap: trap.name)
async def test_no_change_writes_through_a_link(tmp_path: Path, trap: Trap) -> None:
    """git-changes-12."""
    world = with_other(World(tmp_path).filled())
    trap.lay(world)
    before = snapshot(world)
    async with world.tools() as tools:
        texts = await change_answers(tools)
    assert snapshot(world) == before
    for (name, arguments), text in zip(CALLS, texts, strict=True):
        assert is_read((name, arguments)) or (text.startswith("git-refused: ") and trap.reported in text), (name, text)


def _configured(world: World, *pairs: str, attributes: str = "") -> None:
    for pair in pairs:
        key, _, value = pair.partition("=")
        world.git("config", key, value.replace("PROGRAM", str(world.program())))
    if attributes:
        (world.git_dir / "info" / "attributes").write_text(attributes)


def _stopped_rebase(world: World) -> Path:
    world.git("reset", "--hard", "--quiet")
    world.git("switch", "--quiet", "other")
    world.git("commit", "--quiet", "--allow-empty", "-m", "one more")
    world.git("rebase", "--merge", "main", check=False)
    return world.git_dir / "rebase-merge"


def _stopped_sequence(world: World) -> Path:
    world.git("reset", "--hard", "--quiet")
    world.git("switch", "--quiet", "-c", "third", "other")
    world.write("third", "x\n")
    world.git("add", "third")
    world.git("commit", "--quiet", "-m", "third")
    world.git("switch", "--quiet", "main")
    world.git("cherry-pick", "main..third", check=False)
    return world.git_dir / "sequencer"


@dataclass(frozen=True)
class Operation:
    """What is planted into an unfinished operation, and how plain git continues it."""

    name: str
    plant: Callable[[World], None]
    trigger: tuple[str, ...]


def _todo_exec(world: World) -> None:
    (_stopped_rebase(world) / "git-rebase-todo").write_text(f"exec {world.program()}\n")


def _todo_x(world: World) -> None:
    (_stopped_rebase(world) / "git-rebase-todo").write_text(f"noop\n\tx {world.program()}\n")


def _strategy(world: World) -> None:
    state = _stopped_rebase(world)
    state.joinpath("strategy").write_text("../../../../../../../../../" + str(world.program())[1:] + "\n")


def _signing(world: World) -> None:
    (_stopped_rebase(world) / "gpg_sign_opt").write_text("-Sx\n")
    _configured(world, "gpg.program=PROGRAM")


def _sequence_signing(world: World) -> None:
    (_stopped_sequence(world) / "opts").write_text("[options]\n\tgpg-sign = x\n")
    _configured(world, "gpg.program=PROGRAM")


def _autostash(world: World) -> None:
    (_stopped_rebase(world) / "autostash").write_text(world.git("rev-parse", "HEAD") + "\n")
    hook = world.git_dir / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\necho ran >> {world.marker}\n")
    hook.chmod(0o755)


_NO_EDITOR = ("-c", "core.editor=true")

PLANTED = (
    Operation("exec in the steps of a rebase", _todo_exec, (*_NO_EDITOR, "rebase", "--continue")),
    Operation("x in the steps of a rebase", _todo_x, (*_NO_EDITOR, "rebase", "--continue")),
    Operation("a strategy of a rebase", _strategy, ()),
    Operation("signing in a rebase", _signing, (*_NO_EDITOR, "rebase", "--continue")),
    Operation("signing in a sequence", _sequence_signing, (*_NO_EDITOR, "cherry-pick", "--continue")),
    Operation("an autostash", _autostash, (*_NO_EDITOR, "rebase", "--continue")),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
async def test_a_planted_operation_starts_nothing(tmp_path: Path, planted: Operation) -> None:
    """git-changes-13: git would start it, whatever the configuration says; here it is not continued."""
    for number, is_plain in enumerate((True, False)):
        world = with_other(World(tmp_path / str(number)).filled())
        planted.plant(world)
        world.write("b.txt", "resolved\n")
        world.git("add", "b.txt")
        world.marker.unlink(missing_ok=True)
        if is_plain:
            world.git(*planted.trigger, check=False) if planted.trigger else None
            assert world.marker.exists() or not planted.trigger
            continue
        async with world.tools() as tools:
            for action in ("continue", "skip", "abort"):
                with pytest.raises(GitRefused, match="end it with git itself"):
                    await tools.git_continue(action, "work")
        assert not world.marker.exists()


@pytest.mark.parametrize("name", ["rebase-merge/message", "rebase-merge/done", "sequencer/todo", "rebase-apply/patch"])
async def test_the_state_of_an_operation_is_no_link(tmp_path: Path, name: str) -> None:
    """git-changes-13: git would write a message, which anybody can choose, through it into `config`."""
    world = World(tmp_path).filled()
    path = world.git_dir / name
    path.parent.mkdir()
    path.symlink_to("../config")
    before = (world.git_dir / "config").read_bytes()
    async with world.tools() as tools:
        texts = await change_answers(tools)
    changes = [text for (tool, _), text in zip(CALLS, texts, strict=True) if tool in ("git_continue", "git_rebase")]
    assert all(text.startswith("git-refused: ") and name in text for text in changes), changes
    assert (world.git_dir / "config").read_bytes() == before


async def test_no_merge_driver_strategy_or_hook_runs(tmp_path: Path) -> None:
    """git-changes-12: what only a change of the work tree would start; a driver's file is never ours alone."""
    world = with_other(World(tmp_path).filled())
    world.git("reset", "--hard", "--quiet")
    _configured(
        world,
        "merge.evil.driver=PROGRAM",
        "merge.text.driver=PROGRAM",
        attributes="b.txt merge=evil\na.txt merge\n",
    )
    for hook in ("post-checkout", "post-merge", "pre-rebase", "post-rewrite", "prepare-commit-msg", "pre-merge-commit"):
        path = world.git_dir / "hooks" / hook
        path.write_text(f"#!/bin/sh\necho {hook} >> {world.marker}\n")
        path.chmod(0o755)
    before = world.git("rev-parse", "HEAD")
    world.git("merge", "other", check=False)
    assert world.marker.exists()
    world.git("merge", "--abort", check=False)
    world.git("reset", "--hard", "--quiet", before)
    _configured(
        world,
        "merge.default=evil",
        "branch.main.mergeoptions=--strategy=evil",
        "pull.twohead=evil",
        "rebase.backend=apply",
        "rebase.autoStash=true",
        "checkout.workers=8",
        "sequence.editor=PROGRAM",
        "merge.verifySignatures=true",
        "notes.rewriteRef=refs/notes/x",
    )
    world.marker.unlink()
    async with world.tools() as tools:
        # A driver that can't run is an error under Landlock, which refuses the process, and a conflict without.
        [text] = await change_answers(tools, (("git_merge", {"revision": "other"}),))
        assert text.startswith(("git-refused: git merge", "merge stopped; in conflict: work/b.txt"))
        if not text.startswith("git-refused"):
            await tools.git_continue("abort", "work")
        assert world.git("rev-parse", "HEAD") == before
        assert world.git("status", "--short") == "?? new.txt"
        await change_answers(tools)
    assert not world.marker.exists()


@pytest.mark.parametrize("at", ["d", "d/deep"])
async def test_a_linked_directory_leads_no_change_out(tmp_path: Path, at: str) -> None:
    """git-changes-12: a tracked directory that was replaced by a link to the outside."""
    world = World(tmp_path).created()
    world.write("d/deep/x.txt", "one\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    world.write("d/deep/x.txt", "two\n")
    world.git("commit", "--quiet", "-a", "-m", "second")
    target = world.repository / at
    moved = world.outside / "moved"
    os.rename(target, moved)
    target.symlink_to(moved)
    before = snapshot(world)
    async with world.tools() as tools:
        await change_answers(
            tools,
            (
                ("git_restore", {"paths": ["work"], "revision": "HEAD~1"}),
                ("git_stash", {"action": "push", "untracked": True}),
                ("git_switch", {"detach": "HEAD~1"}),
                ("git_reset", {"revision": "HEAD", "mode": "keep"}),
            ),
        )
    assert snapshot(world) == before


def _tree(world: World, mode: str, name: str, object_name: str) -> str:
    raw = f"{mode} {name}".encode() + b"\0" + bytes.fromhex(object_name)
    return world.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw)


async def test_a_commit_with_paths_into_the_git_directory_is_not_written(tmp_path: Path) -> None:
    """git-changes-12: `.git` under names that some file system takes for it, `..`, and a link to it."""
    world = World(tmp_path).filled()
    blob = world.git("hash-object", "-w", "--stdin", stdin=b"[core]\nfsmonitor = x\n")
    link = world.git("hash-object", "-w", "--stdin", stdin=b".git")
    directory = _tree(world, "100644", "config", blob)
    trees = [_tree(world, "40000", name, directory) for name in (".git", "..", ".GIT", "git~1", ".g\u200cit")]
    trees += [_tree(world, "120000", "d", link), _tree(world, "40000", "d", directory)]
    for number, tree in enumerate(trees):
        world.git("update-ref", f"refs/heads/evil{number}", world.git("commit-tree", tree, "-p", "HEAD", "-m", "x"))
    before = snapshot(world), (world.git_dir / "config").read_bytes(), sorted(os.listdir(world.root))
    calls: list[tuple[str, dict[str, object]]] = []
    for number in range(len(trees)):
        name = f"evil{number}"
        calls += [
            ("git_merge", {"revision": name}),
            ("git_cherry_pick", {"revisions": [name]}),
            ("git_restore", {"paths": ["work"], "revision": name, "what": "both"}),
            ("git_switch", {"branch": name}),
            ("git_reset", {"revision": name, "mode": "hard"}),
        ]
    async with world.tools() as tools:
        texts = await change_answers(tools, tuple(calls))
    assert (snapshot(world), (world.git_dir / "config").read_bytes(), sorted(os.listdir(world.root))) == before
    assert all(text.startswith(("git-refused", "denied-path")) for text in texts[: 5 * 5]), texts


async def test_a_planted_reference_or_message_leaves_nothing_unfinished(tmp_path: Path) -> None:
    """git-changes-13."""
    world = with_other(World(tmp_path).filled())
    (_stopped_rebase(world) / "head-name").write_text("refs/heads/../../config\n")
    before = (world.git_dir / "config").read_bytes()
    async with world.tools() as tools:
        await tools.git_restore(["work"], "work", side="ours")
        with pytest.raises(GitRefused, match="bad name"):
            await tools.git_continue("continue", "work")
        await tools.git_continue("abort", "work")
        assert (world.git_dir / "config").read_bytes() == before
        world.git("switch", "--quiet", "--force", "main")
        (world.git_dir / "MERGE_MSG").mkdir()
        with pytest.raises(CoreError, match="MERGE_MSG"):
            await tools.git_merge("other", "work")
    assert not (world.git_dir / "MERGE_HEAD").exists()


async def test_planted_states_of_the_newer_tools_run_and_reach_nothing(tmp_path: Path) -> None:
    """git-changes-12, git-changes-13: bisect files, work trees that lie, editors, rerere, submodules."""
    world = with_other(World(tmp_path).filled())
    world.git("reset", "--hard", "--quiet")
    (world.repository / "new.txt").unlink()
    _configured(
        world,
        *("sequence.editor=PROGRAM", "core.editor=PROGRAM", "rerere.enabled=true", "submodule.x.update=!PROGRAM"),
        *("submodule.recurse=true", "core.fsmonitor=PROGRAM", "index.sparse=true", "extensions.worktreeConfig=true"),
    )
    (world.git_dir / "config.worktree").write_text(f"[core]\n\tfsmonitor = {world.program()}\n")
    linked = world.git_dir / "worktrees" / "evil"
    linked.mkdir(parents=True)
    for name, text in (("HEAD", "ref: refs/heads/main"), ("commondir", "../.."), ("gitdir", f"{world.outside}/.git")):
        (linked / name).write_text(f"{text}\n")
    (world.outside / ".git").write_text(f"gitdir: {linked}\n")
    program = world.program()
    before = snapshot(world)
    head = world.git("-c", "core.fsmonitor=false", "rev-parse", "HEAD")
    world.marker.unlink(missing_ok=True)
    async with world.tools() as tools:
        listed = (await tools.git_worktree("list", repository="work")).text()
        assert "[outside the roots]" in listed
        assert str(world.outside) not in listed
        for path in (str(world.outside), "../outside"):
            with pytest.raises(CoreError):
                await tools.git_worktree("remove", path, "work")
        await tools.git_rebase("HEAD~1", "work", steps=["reword HEAD new"])
        await tools.git_reset(head, "work", mode="keep")
        for start in ("--detach", "../../config", "refs/../x", "-", "nowhere"):
            for name, text in (("BISECT_START", start), ("BISECT_LOG", "x"), ("BISECT_RUN", str(program))):
                (world.git_dir / name).write_text(f"{text}\n")
            with pytest.raises(CoreError):
                await tools.git_bisect("reset", "work")
        (world.git_dir / "BISECT_TERMS").write_text(f"{program}\nold\n")
        with pytest.raises(GitRefused, match="terms of its own"):
            await tools.git_bisect("good", "work")
        for name in ("BISECT_START", "BISECT_LOG", "BISECT_RUN", "BISECT_TERMS"):
            (world.git_dir / name).unlink()
        await tools.git_merge("other", "work")
        await tools.git_continue("continue", "work", resolutions={"work/b.txt": "ours"})
        await tools.git_sparse_checkout("set", ["work/folder"], "work")
        await tools.git_sparse_checkout("disable", repository="work")
        for line in ("reword {} x", "squash {}", "fixup -c {}"):
            state = world.git_dir / "rebase-merge"
            state.mkdir()
            for name, text in (
                ("interactive", ""),
                ("head-name", "refs/heads/main"),
                ("onto", head),
                ("orig-head", head),
            ):
                (state / name).write_text(text)
            (state / "git-rebase-todo").write_text(line.format(head))
            with pytest.raises(GitRefused, match="open an editor"):
                await tools.git_continue("continue", "work")
            await tools.git_continue("abort", "work")
    assert not world.marker.exists()
    assert snapshot(world) == before
    assert (world.outside / ".git").exists()


async def test_the_configuration_makes_no_link_of_head(tmp_path: Path) -> None:
    """git-changes-12: with a link as HEAD every tool would refuse the repository from then on."""
    world = World(tmp_path).filled()
    world.git("config", "core.preferSymlinkRefs", "true")
    async with world.tools() as tools:
        await tools.git_switch("topic", "work", create=True)
        assert "branch topic" in (await tools.git_status("work")).text()
    assert not (world.git_dir / "HEAD").is_symlink()
