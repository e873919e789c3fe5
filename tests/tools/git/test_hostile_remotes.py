"""docs/specs/git-remotes.md: what a repository could do to choose a program, a host or a file, by its effect."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.config.remote_policy import RemoteRule
from tests.tools.git.remote_world import RemoteWorld, error_of, outcome
from tests.tools.git.traps import snapshot
from tests.tools.git.world import SECRET, World

pytestmark = pytest.mark.anyio

SETTINGS = (
    ("url.ext::sh -c PROGRAM.insteadOf", "fd::"),
    ("url.ext::sh -c PROGRAM.pushInsteadOf", "BARE"),
    ("url.http://127.0.0.1:PORT/.insteadOf", "BARE"),
    ("remote.origin.vcs", "canary"),
    ("remote.origin.uploadpack", "PROGRAM"),
    ("remote.origin.receivepack", "PROGRAM"),
    ("remote.origin.proxy", "http://127.0.0.1:PORT"),
    ("remote.origin.serverOption", "x"),
    ("core.sshCommand", "PROGRAM"),
    ("core.gitProxy", "PROGRAM"),
    ("core.askPass", "PROGRAM"),
    ("core.fsmonitor", "PROGRAM"),
    ("core.hooksPath", "HOOKS"),
    ("core.alternateRefsCommand", "PROGRAM"),
    ("http.proxy", "http://127.0.0.1:PORT"),
    ("http.sslCert", "PROGRAM"),
    ("credential.helper", "!PROGRAM"),
    ("protocol.allow", "always"),
    ("protocol.ext.allow", "always"),
    ("protocol.file.allow", "always"),
    ("transfer.credentialsInUrl", "allow"),
    ("transfer.bundleURI", "true"),
    ("fetch.bundleURI", "http://127.0.0.1:PORT/x"),
    ("fetch.recurseSubmodules", "true"),
    ("fetch.fsckObjects", "false"),
    ("fetch.fsck.hasDotgit", "ignore"),
    ("push.gpgSign", "true"),
    ("gpg.program", "PROGRAM"),
    ("push.recurseSubmodules", "on-demand"),
    ("push.pushOption", "ci.skip"),
    ("push.followTags", "true"),
    ("submodule.recurse", "true"),
    ("submodule.sub.url", "ext::sh -c PROGRAM"),
    ("gc.auto", "1"),
    ("maintenance.auto", "true"),
    ("uploadpack.packObjectsHook", "PROGRAM"),
    ("receive.procReceiveRefs", "refs/"),
    ("merge.ff", "false"),
    ("pull.octopus", "PROGRAM"),
    ("branch.main.mergeOptions", "--strategy=PROGRAM"),
    ("trace2.normalTarget", "OUTSIDE/trace"),
    ("init.templateDir", "HOOKS"),
    ("alias.index-pack", "!PROGRAM"),
    ("pager.fetch", "PROGRAM"),
    ("hook.x.command", "PROGRAM"),
    ("hook.x.event", "pre-push"),
)
"""Keys of a repository; each value is one that would show by its effect."""

HOOKS = (
    *("pre-push", "post-checkout", "post-merge", "pre-rebase", "post-rewrite", "reference-transaction", "post-receive"),
    *("post-update", "pre-auto-gc", "fsmonitor-watchman", "post-index-change", "pre-merge-commit", "commit-msg"),
)

CALLS = (
    ("git_remote", {}),
    ("git_fetch", {"prune": True, "tags": "all"}),
    ("git_fetch", {"depth": 1}),
    ("git_push", {"to": "topic", "set_upstream": True}),
    ("git_push", {"delete": "topic", "force": "lease"}),
    ("git_pull", {}),
    ("git_pull", {"mode": "merge"}),
    ("git_pull", {"mode": "rebase"}),
    ("git_remote", {"action": "add", "name": "more", "url": "https://example.org/x"}),
    ("git_remote", {"action": "set-url", "name": "more", "url": "https://example.org/y"}),
    ("git_remote", {"action": "rename", "name": "more", "new_name": "less"}),
    ("git_remote", {"action": "remove", "name": "less"}),
    ("git_submodule", {"action": "update", "depth": 1}),
)
"""Every tool for a repository, each in the state that the ones before leave."""

CLONES = (("git_clone", {"path": "copy"}),)
"""Every tool that takes no repository, for the hostile remotes."""


@pytest.fixture
def canary() -> Iterator[socket.socket]:
    """A listener to which nothing may connect."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def hostile(directory: Path, world: World, bare: Path, port: int) -> None:
    """Plant every program and every address in one git directory."""
    program = world.program(then="cat")
    hooks = world.outside / "hooks"
    hooks.mkdir(exist_ok=True)
    (directory / "hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        for place in (hooks, directory / "hooks"):
            if not os.path.lexists(place / name):
                os.symlink(program, place / name)
    words = {"PROGRAM": program, "PORT": port, "BARE": bare, "HOOKS": hooks, "OUTSIDE": world.outside}
    for key, value in SETTINGS:
        for word, meaning in words.items():
            key, value = key.replace(word, str(meaning)), value.replace(word, str(meaning))  # noqa: PLW2901
        world.git("config", "--file", str(directory / "config"), key, value)


async def test_a_hostile_repository_reaches_nothing(tmp_path: Path, canary: socket.socket) -> None:
    """git-remotes-6, git-remotes-7: every vector at once, and then each tool."""
    remote = RemoteWorld(World(tmp_path).filled()).created()
    world, port = remote.world, canary.getsockname()[1]
    world.git("commit", "-q", "-a", "-m", "third")
    world.write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ../origin.git\n')
    world.git("add", ".gitmodules")
    world.git("update-index", "--add", "--cacheinfo", f"160000,{world.git('rev-parse', 'HEAD~1')},sub")
    world.git("commit", "-q", "-m", "a submodule")
    world.git("remote", "add", "origin", str(remote.bare))
    world.git("config", "branch.main.remote", "origin")
    world.git("config", "branch.main.merge", "refs/heads/main")
    hostile(world.git_dir, world, remote.bare, port)
    before = snapshot(world)
    async with remote.tools() as (tools, _):
        answers = [await outcome(getattr(tools, name), repository="work", **given) for name, given in CALLS]
    assert snapshot(world) == before
    assert [text for text in answers if "git-refused" in text or "unreachable" in text] == []
    with pytest.raises(BlockingIOError):
        canary.accept()
    world.git("config", "fetch.fsck.skipList", str(world.canary))
    other = world.git("commit-tree", "-m", "x", "main^{tree}", cwd=remote.bare)
    world.git("update-ref", "refs/heads/other", other, cwd=remote.bare)
    async with remote.tools() as (tools, _):
        assert SECRET not in await outcome(tools.git_fetch, repository="work")
    # The same settings do their work for plain git: the table is not empty talk.
    world.git("status", check=False)
    assert snapshot(world) != before


async def test_a_hostile_remote_on_this_machine_reaches_nothing(tmp_path: Path, canary: socket.socket) -> None:
    """git-remotes-6, git-remotes-8: the configuration and hooks of the bare repository."""
    remote = RemoteWorld(World(tmp_path).filled()).created()
    world = remote.world
    world.git("commit", "-q", "-a", "-m", "third")
    world.git("remote", "add", "origin", str(remote.bare))
    hostile(remote.bare, world, remote.bare, canary.getsockname()[1])
    before = snapshot(world)
    async with remote.tools() as (tools, _):
        refused = [
            await outcome(tools.git_push, repository="work", branch="main"),
            await outcome(tools.git_fetch, repository="work", remote="origin"),
            *[await outcome(getattr(tools, name), url=str(remote.bare), **given) for name, given in CLONES],
        ]
        assert all("git is not run in this repository" in text for text in refused), refused
        world.git("config", "--file", str(remote.bare / "config"), "--unset", "core.alternateRefsCommand")
        assert "hooks that decide" in str(await error_of(tools.git_push("work", branch="main")))
        await tools.git_fetch("work", "origin")
        await tools.git_clone(str(remote.bare), "copy")
        (remote.bare / "objects" / "info").mkdir(exist_ok=True)
        (remote.bare / "objects" / "info" / "alternates").write_text(f"{world.git_dir}/objects\n")
        assert "alternates" in str(await error_of(tools.git_fetch("work", "origin")))
        (remote.bare / "objects" / "info" / "alternates").unlink()
        os.rename(remote.bare / "refs", world.outside / "refs")
        os.symlink(world.outside / "refs", remote.bare / "refs")
        assert "refs" in str(await error_of(tools.git_fetch("work", "origin")))
        elsewhere = remote.bare.parent / "link.git"
        os.symlink(world.git_dir, elsewhere)
        assert (await error_of(tools.git_clone(str(elsewhere), "other"))).kind == "denied-remote"
    assert not world.marker.exists()
    assert before["marker"] is False
    with pytest.raises(BlockingIOError):
        canary.accept()


async def test_a_partial_clone_is_left_alone(tmp_path: Path) -> None:
    """git-remotes-10"""
    remote = RemoteWorld(World(tmp_path).filled()).created()
    world = remote.world
    world.git("remote", "add", "origin", str(remote.bare))
    world.git("config", "remote.origin.promisor", "true")
    async with remote.tools() as (tools, _):
        for call in (tools.git_fetch("work"), tools.git_pull("work"), tools.git_push("work")):
            assert "partial clone" in str(await error_of(call))


async def test_references_that_lead_elsewhere_are_not_moved(tmp_path: Path) -> None:
    """git-remotes-11: a refspec of the repository moves tracking branches and nothing else."""
    remote = RemoteWorld(World(tmp_path).filled()).created()
    world = remote.world
    world.git("remote", "add", "origin", str(remote.bare))
    world.git("push", "-q", str(remote.bare), "main~1:refs/heads/topic", "main~1:refs/tags/v1")
    world.git("branch", "topic", "main")
    world.git("tag", "v1", "main")
    world.git("config", "remote.origin.fetch", "+refs/*:refs/*")
    async with remote.tools() as (tools, _):
        fetched = (await tools.git_fetch("work")).text()
        assert "refspecs that are not used" in fetched
        tags = (await tools.git_fetch("work", tags="all")).text()
        assert "rejected: refs/tags/v1" in tags
    assert len(set(world.git("rev-parse", "main", "topic", "v1").split())) == 1
    assert world.git("rev-parse", "refs/remotes/origin/topic") == world.git("rev-parse", "main~1")


@pytest.fixture
def unreadable() -> Iterator[str]:
    """A path that lstat(2) calls a link and readlink(2) can't read: the working directory of a process that ended."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        yield f"/proc/{ended.pid}/cwd"


async def test_a_path_that_no_kernel_resolves_is_an_error_of_the_caller(tmp_path: Path, unreadable: str) -> None:
    """git-remotes-8: loops, long names, links that can't be read, what may not be opened; never an internal error."""
    remote = RemoteWorld(World(tmp_path).filled()).created()
    top = remote.bare.parent
    os.symlink(top / "loop", top / "loop")
    (top / "closed").mkdir(mode=0)
    paths = [f"{top}/loop", f"{top}/loop/x", f"{top}/{'n' * 300}", f"{top}/{'n/' * 400}n", f"{top}/closed/x"]
    paths += [f"{top}/none", f"{remote.bare}/HEAD", unreadable, f"{unreadable}/x", "/", f"{top}/nul\0"]
    async with remote.tools(RemoteRule(url="/**")) as (tools, _):
        kinds = {(await error_of(tools.git_clone(path, "copy"))).kind for path in paths}
    assert kinds == {"not-found", "invalid-path", "invalid-arguments"}
    assert not (remote.world.root / "copy").exists()
