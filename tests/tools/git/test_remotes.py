"""docs/specs/git-remotes.md: fetch, pull, push, clone and the list of remotes, with repositories on this machine."""

import os
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.git_remotes import incoming
from coretools.operations.call import SilentCall
from coretools.roots import new_directory
from coretools.tools.git.remotes.references import MAX_REFERENCES, read_advertised
from coretools.tools.git.remotes.results import MAX_UPDATES
from coretools.tools.git.remotes.transfer import MAX_COMPARED
from tests.tools.git.remote_world import RemoteWorld, error_of
from tests.tools.git.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def remote(tmp_path: Path) -> RemoteWorld:
    return RemoteWorld(World(tmp_path).filled()).created()


def state(directory: Path) -> dict[str, int]:
    """Every file beneath a directory."""
    return {str(path.relative_to(directory)): path.lstat().st_size for path in sorted(directory.rglob("*"))}


async def test_two_clones_work_on_one_repository(remote: RemoteWorld) -> None:
    """git-remotes-11, git-remotes-12, git-remotes-13, git-remotes-14, git-remotes-15: a day with a remote."""
    world, root = remote.world, remote.world.root
    async with remote.tools() as (tools, _):
        assert (
            "(fetch and push allowed)"
            in (await tools.git_remote("add", "origin", "work", url=f"file://{remote.bare}")).text()
        )
        fetched = await tools.git_fetch("work")
        assert [one["kind"] for one in fetched.facts()["updates"]] == ["new"]  # type: ignore[attr-defined]
        cloned = (await tools.git_clone(str(remote.bare), "copy")).text()
        assert "Undo: delete_directory path='copy' with_repositories=True" in cloned
        assert world.git("status", "-sb", cwd=root / "copy") == "## main...origin/main"
        assert world.git("symbolic-ref", "refs/remotes/origin/HEAD", cwd=root / "copy") == "refs/remotes/origin/main"

        world.git("commit", "-q", "-a", "-m", "third")
        world.git("tag", "-a", "-m", "text", "v1")
        pushed = await tools.git_push("work", tags=["v1"], branch="main", set_upstream=True)
        assert [(one["reference"], one["kind"]) for one in pushed.updates] == [
            ("refs/heads/main", "fast-forward"),
            ("refs/tags/v1", "new"),
        ]
        head = world.git("rev-parse", "HEAD")
        assert world.git("rev-parse", "main", cwd=remote.bare) == head
        assert world.git("rev-parse", "main@{upstream}") == head
        pulled = (await tools.git_pull("copy")).text()
        assert "merged by fast-forward" in pulled
        assert world.git("rev-parse", "HEAD", "v1^{commit}", cwd=root / "copy").split() == [head, head]
        assert world.git("fsck", "--strict", cwd=root / "copy") == ""


async def test_branches_that_diverged_are_never_overwritten_unseen(remote: RemoteWorld) -> None:
    """git-remotes-13, git-remotes-14: each refusal says what to do, and that works."""
    world, copy = remote.world, remote.world.root / "copy"
    async with remote.tools() as (tools, git):
        await tools.git_clone(str(remote.bare), "copy")
        await tools.git_remote("add", "origin", "work", url=str(remote.bare))
        await tools.git_fetch("work")
        world.git("commit", "-q", "-a", "-m", "ours")
        (world.git_dir / "hooks" / "pre-push").write_text("#!/bin/sh\nexit 1\n")
        assert "[hooks that did not run: pre-push; git_push runs none;" in (await tools.git_push("work")).text()
        for name, text in (("d.txt", "theirs\n"), ("a.txt", "theirs\n")):
            (copy / name).write_text(text)
            world.git("add", name, cwd=copy)
            world.git("commit", "-q", "-m", f"theirs {name}", cwd=copy)
        refused = await error_of(tools.git_push("copy"))
        assert (refused.kind, "git_pull remote='origin'" in str(refused)) == ("git-refused", True)
        stale = await error_of(tools.git_push("copy", force="lease"))
        assert "has changed since it was last seen" in str(stale)
        plain = await error_of(tools.git_push("copy", force="plain"))
        assert (plain.kind, "plain_force = true" in str(plain)) == ("denied-remote", True)
        diverged = await error_of(tools.git_pull("copy"))
        assert "has 2 commits that" in str(diverged)
        assert "in conflict: copy/a.txt" in (await tools.git_pull("copy", "rebase")).text()
        assert "a rebase is in progress" in str(await error_of(tools.git_pull("copy")))
        (copy / "a.txt").write_text("both\n")
        await git.git_add(["copy/a.txt"], "copy")
        await git.git_continue("continue", "copy")
        assert [one["kind"] for one in (await tools.git_push("copy")).updates] == ["fast-forward"]
        world.git("commit", "-q", "--amend", "-m", "amended", cwd=copy)
        forced = await tools.git_push("copy", force="lease")
        assert [one["kind"] for one in forced.updates] == ["forced"]
        old = forced.updates[0]["old"]
        assert f"name='undo' start={old!r}, then git_push branch='undo' to=" in forced.text()
        assert "merge" not in world.git("log", "--format=%s", cwd=remote.bare)


async def test_a_push_without_its_tracking_branch_is_a_push(remote: RemoteWorld) -> None:
    """git-remotes-14: the remote has changed, so the answer is no error."""
    world, copy = remote.world, remote.world.root / "copy"
    async with remote.tools() as (tools, _):
        await tools.git_clone(str(remote.bare), "copy")
        world.git("update-ref", "refs/remotes/origin/a", "HEAD", cwd=copy)
        pushed = await tools.git_push("copy", to="a/b")
    assert "The remote has it, but tracking branches here were not moved" in pushed.text()
    assert world.git("rev-parse", "refs/heads/a/b", cwd=remote.bare) == world.git("rev-parse", "HEAD", cwd=copy)


async def test_branches_come_and_go(remote: RemoteWorld) -> None:
    """git-remotes-11, git-remotes-12, git-remotes-14, git-remotes-16: other names, deletion, pruning, renaming."""
    world, copy = remote.world, remote.world.root / "copy"
    async with remote.tools() as (tools, _):
        await tools.git_clone(str(remote.bare), "copy", single_branch=True, depth=1)
        assert world.git("rev-list", "--count", "HEAD", cwd=copy) == "1"
        assert [one.name for one in (copy / ".git").iterdir() if one.name == "shallow"] == ["shallow"]
        await tools.git_fetch("copy", depth=100)
        assert world.git("rev-list", "--count", "HEAD", cwd=copy) == "2"
        await tools.git_remote("add", "origin", "work", url=str(remote.bare))
        await tools.git_fetch("work")
        assert [one["kind"] for one in (await tools.git_push("work", to="a/b")).updates] == ["new"]
        named = await tools.git_fetch("copy", branch="a/b")
        assert [one["reference"] for one in named.updates] == ["refs/remotes/origin/a/b"]
        gone = await tools.git_push("work", delete="a/b")
        assert [(one["kind"], one["old"]) for one in gone.updates] == [("deleted", world.git("rev-parse", "HEAD"))]
        await tools.git_push("work", to="a")
        world.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*", cwd=copy)
        assert "prune=true" in str(await error_of(tools.git_fetch("copy")))
        pruned = await tools.git_fetch("copy", prune=True)
        assert [(one["kind"], one["reference"]) for one in pruned.updates] == [
            ("pruned", "refs/remotes/origin/a/b"),
            ("new", "refs/remotes/origin/a"),
        ]
        await tools.git_remote("rename", "origin", "copy", new_name="up")
        assert world.git("rev-parse", "--abbrev-ref", "main@{upstream}", cwd=copy) == "up/main"
        assert "up (" in (await tools.git_fetch("copy", "up")).text().splitlines()[0]
        removed = (await tools.git_remote("remove", "up", "copy")).text()
        assert "branches that had an upstream there: main" in removed
        assert (await tools.git_remote(repository="copy")).text() == "no remotes"


async def test_nothing_is_reached_without_a_rule(remote: RemoteWorld) -> None:
    """git-remotes-1, git-remotes-3, git-remotes-5, git-remotes-16: the refusal has the lines that would allow it."""
    world = remote.world
    world.git("remote", "add", "origin", str(remote.bare))
    world.git("remote", "add", "web", "https://ada:secret-password@git.example.org/x.git")
    before = state(world.git_dir)
    async with remote.tools(remote.rule(url="/elsewhere/*")) as (tools, _):
        for call in (tools.git_fetch("work"), tools.git_pull("work"), tools.git_clone(str(remote.bare), "copy")):
            refused = await error_of(call)
            assert (refused.kind, f'[[remote]]\nurl = "{remote.bare}"' in str(refused)) == ("denied-remote", True)
        pushed = await error_of(tools.git_push("work"))
        assert f'url = "{remote.bare}"\npush = true' in str(pushed)
        web = await error_of(tools.git_fetch("work", "web"))
        listed = (await tools.git_remote(repository="work")).text()
        assert "web https://git.example.org/x.git (not allowed by the policy)" in listed
        assert "secret" not in f"{web}{listed}"
        assert (await error_of(tools.git_remote("add", "n", "work", url=str(remote.bare)))).kind == "denied-remote"
        secret = await error_of(tools.git_remote("add", "n", "work", url="https://a:b@git.example.org/x"))
        assert "credentials" in str(secret)
    async with remote.tools(remote.rule(push=False)) as (tools, _):
        await tools.git_fetch("work")
        assert "push = true" in str(await error_of(tools.git_push("work")))
        other = SilentCall("someone")
        assert "principals = true" in str(await error_of(tools.git_fetch("work", call=other)))
    async with remote.tools(remote.rule(principals=True)) as (tools, _):
        await tools.git_fetch("work", call=SilentCall("someone"))
    assert {name for name in before if name not in state(world.git_dir)} == set()
    assert not (world.root / "copy").exists()


async def test_a_person_confirms_what_the_operator_says(remote: RemoteWorld) -> None:
    """git-remotes-4: before anything is sent; where nobody can be asked it is refused."""
    world = remote.world
    world.git("commit", "-q", "-a", "-m", "third")
    async with remote.tools(remote.rule(ask=("push",))) as (tools, _):
        await tools.git_remote("add", "origin", "work", url=str(remote.bare))
        await tools.git_fetch("work")
        refused = await error_of(tools.git_push("work"))
        assert (refused.kind, "nobody can be asked" in str(refused)) == ("denied-remote", True)
        declining, confirming = SilentCall(), SilentCall()
        declining.prefill({"remote": False})
        assert (await error_of(tools.git_push("work", call=declining))).kind == "declined"
        assert world.git("rev-parse", "main", cwd=remote.bare) == world.git("rev-parse", "HEAD~1")
        confirming.prefill({"remote": True})
        await tools.git_push("work", call=confirming)
        assert world.git("rev-parse", "main", cwd=remote.bare) == world.git("rev-parse", "HEAD")


async def test_hooks_of_the_remote_end_a_push_or_are_left_alone(remote: RemoteWorld) -> None:
    """git-remotes-8: by their effect, which is none."""
    world = remote.world
    program = world.program()
    world.git("remote", "add", "origin", str(remote.bare))
    async with remote.tools() as (tools, _):
        (remote.bare / "hooks").mkdir(exist_ok=True)
        for hook in ("post-receive", "post-update", "fsmonitor-watchman"):
            os.symlink(program, remote.bare / "hooks" / hook)
        await tools.git_push("work", to="one")
        for hook in ("pre-receive", "update", "proc-receive", "reference-transaction"):
            os.symlink(program, remote.bare / "hooks" / hook)
            assert hook in str(await error_of(tools.git_push("work", to="two")))
            (remote.bare / "hooks" / hook).unlink()
        world.git("config", "core.hooksPath", str(program.parent), cwd=remote.bare)
        assert "core.hookspath" in str(await error_of(tools.git_push("work", to="two")))
        await tools.git_fetch("work")
    assert not world.marker.exists()


async def test_a_transfer_that_fails_leaves_nothing(remote: RemoteWorld) -> None:
    """git-remotes-9: with a remote that is damaged, sends too much, or too slowly."""
    world = remote.world
    world.git("remote", "add", "origin", str(remote.bare))
    blob = world.git("hash-object", "-w", "--stdin", stdin=os.urandom(300_000), cwd=remote.bare)
    tree = world.git("mktree", stdin=f"100644 blob {blob}\tlarge\n".encode(), cwd=remote.bare)
    commit = world.git("commit-tree", "-m", "large", tree, cwd=remote.bare)
    world.git("update-ref", "refs/heads/large", commit, cwd=remote.bare)
    before = state(world.git_dir)
    async with remote.tools(limits=Limits(grace_seconds=0.3, transfer_bytes=100_000)) as (tools, _):
        assert (await error_of(tools.git_fetch("work"))).kind == "too-large"
        assert (await error_of(tools.git_clone(str(remote.bare), "copy"))).kind == "too-large"
    async with remote.tools(limits=Limits(grace_seconds=0.3, transfer_seconds=0.001)) as (tools, _):
        assert (await error_of(tools.git_fetch("work"))).kind in ("git-refused", "unreachable")
    hostile = world.git("mktree", "--missing", stdin=f"100644 blob {blob}\t.git\n".encode(), cwd=remote.bare)
    commit = world.git("commit-tree", "-m", "hostile", hostile, cwd=remote.bare)
    world.git("update-ref", "refs/heads/large", commit, cwd=remote.bare)
    # What a killed server left is removed by the next transfer.
    (world.git_dir / "objects" / f"{incoming.PREFIX}dead" / "pack").mkdir(parents=True)
    (world.root / f"{new_directory.PREFIX}dead" / ".git").mkdir(parents=True)
    async with remote.tools() as (tools, _):
        assert "hasDotgit" in str(await error_of(tools.git_fetch("work")))
        (remote.bare / "objects" / blob[:2] / blob[2:]).unlink()
        await error_of(tools.git_clone(str(remote.bare), "copy"))
    assert state(world.git_dir) == before
    assert sorted(path.name for path in world.root.iterdir()) == ["work"]


async def test_many_references_are_bounded(remote: RemoteWorld) -> None:
    """git-remotes-11, git-remotes-12: of many updates the first are told apart, and all of them are made."""
    world = remote.world
    old, new = world.git("rev-parse", "main~1", "main").split()
    names = [f"refs/heads/many/{number}" for number in range(MAX_COMPARED + 1)]
    world.git(
        "update-ref", "--stdin", stdin="".join(f"create {name} {old}\n" for name in names).encode(), cwd=remote.bare
    )
    world.git("remote", "add", "origin", str(remote.bare))
    async with remote.tools() as (tools, _):
        fetched = await tools.git_fetch("work")
        assert len(fetched.updates) == MAX_COMPARED + 2
        assert f"[{MAX_COMPARED + 2 - MAX_UPDATES} more references;" in fetched.text()
        moves = "".join(f"update {name} {new}\n" for name in names).encode()
        world.git("update-ref", "--stdin", stdin=moves, cwd=remote.bare)
        kinds = [one["kind"] for one in (await tools.git_fetch("work")).updates]
    assert (kinds.count("fast-forward"), kinds.count("updated")) == (MAX_COMPARED, 1)
    assert set(world.git("for-each-ref", "--format=%(objectname)", "refs/remotes/origin/many").split()) == {new}


def test_names_of_a_hostile_remote_are_ignored() -> None:
    """git-remotes-19: as git-check-ref-format(1) says; no more than the limit is considered."""
    commit = "1" * 40
    bad = ("refs/heads/../x", "refs/heads/a..b", "refs/heads/.a", "refs/heads/a.lock", "refs/heads/a b", "HEAD", "x")
    bad += ("refs/heads/a\x1b[31m", "refs/heads/a~1", "refs/heads/a^", "refs/heads/a:b", "refs/heads/@{1}", "refs//a")
    lines = [f"{commit}\t{name}" for name in (*bad, "refs/heads/good")] + [
        "ref: refs/heads/x\tHEAD",
        "zz\trefs/heads/b",
    ]
    assert list(read_advertised("\n".join(lines).encode()).objects) == ["refs/heads/good"]
    many = "".join(f"{commit}\trefs/heads/b{number}\n" for number in range(MAX_REFERENCES + 1))
    assert len(read_advertised(many.encode()).objects) == MAX_REFERENCES


async def test_unusual_repositories_have_clear_answers(remote: RemoteWorld) -> None:
    """git-remotes-12, git-remotes-14, git-remotes-15: unborn, detached, linked, SHA-256, and names that are taken."""
    world, root = remote.world, remote.world.root
    world.git("init", "-q", "-b", "main", str(root / "unborn"), cwd=root)
    world.git("worktree", "add", "-q", str(root / "linked"), "-b", "linked")
    for name in ("unborn", "work"):
        world.git("remote", "add", "origin", str(remote.bare), cwd=root / name)
    newer = remote.bare.parent / "newer.git"
    world.git("clone", "-q", "--bare", str(remote.bare), str(newer), cwd=root)
    world.git("init", "-q", "--bare", "--object-format=sha256", str(remote.bare.parent / "long.git"), cwd=root)
    async with remote.tools() as (tools, _):
        for call, sentence in (
            (tools.git_push("unborn"), "it has no commits yet"),
            (tools.git_pull("unborn", branch="main"), "has no commits yet"),
            (tools.git_clone(str(newer), "work"), "already exists"),
            (tools.git_clone(str(newer), "work/.git/x"), "git directory"),
            (tools.git_clone(str(newer), "missing/x"), "the directory missing does not exist"),
            (tools.git_clone(str(newer), "../x"), "outside the roots"),
            (tools.git_clone(str(newer), "x", branch="--upload-pack=x"), "the remote has none of this name"),
            (tools.git_fetch("work", "--upload-pack=x"), "there is none"),
            (tools.git_remote("add", "-x", "work", url="https://example.org/x"), "not a name"),
        ):
            assert sentence in str(await error_of(call)), sentence
        assert "linked" not in world.git("branch", cwd=remote.bare)
        assert [one["kind"] for one in (await tools.git_push("linked", set_upstream=True)).updates] == ["new"]
        assert world.git("config", "branch.linked.remote") == "origin"
        world.git("checkout", "-q", "--detach", cwd=root / "linked")
        assert "HEAD is detached" in str(await error_of(tools.git_push("linked")))
        assert "no commits yet" in (await tools.git_clone(str(remote.bare.parent / "long.git"), "long")).text()
    assert sorted(path.name for path in root.iterdir()) == ["linked", "long", "unborn", "work"]
