"""Confined git, judged by effect: without any other protection, and while the repository changes during the call."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.confinement import landlock
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.errors import CoreError
from coretools.process import confined_runner as programs
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots import directory_access
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.access_rules import read_rules, write_rules
from coretools.tools.git.repository.git_directory import GitDirectory
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.repositories import ANYWHERE
from tests.checkout import TREE
from tests.protocol.peer import HANDSHAKE, Peer
from tests.roots.test_race import swapped
from tests.tools.git.test_hostile import TRIGGERED
from tests.tools.git.traps import Trap, laid, snapshot
from tests.tools.git.world import SECRET, World

needs_landlock = pytest.mark.skipif(landlock.abi() < landlock.ABI_REQUIRED, reason="Landlock (Linux 6.2)")

CALLS = 150
"""Rounds of each race, with one or two git processes each."""

PLAIN = {
    "PATH": os.environ["PATH"],
    "HOME": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}

Git = Callable[..., Awaitable[Completed]]


@asynccontextmanager
async def plain_git(world: World, *, change: bool) -> AsyncIterator[Git]:
    """git without our options, in the confined thread of a call, on a repository that has not been checked."""
    runner = Runner(Limits(grace_seconds=0.3), PLAIN)
    with (
        Roots([RootSpec(str(world.root))], deny=DenyRules(())) as roots,
        closing(ConfinedThreadPool()) as confined_threads,
    ):
        confined = ConfinedRunner(runner, confined_threads)
        with ExitStack() as stack:
            directory = stack.enter_context(open_directory(roots, "work"))
            rules = read_rules(roots, [directory.fd], (), stack)
            if directory_access.entry_kind(directory.fd, ".git") == "directory":
                handle = stack.enter_context(directory_access.open_subdirectory(directory.fd, ".git"))
                own = GitDirectory(handle, str(world.git_dir), ".git", roots.first)
                entries = directory_access.entry_kinds(handle)
                rules += write_rules(own, entries, own, entries, stack) if change else []
            options = RunOptions(confined_thread=confined.confined_thread("git", rules))
            assert options.confined_thread is not None

            async def run(*words: str, stdin: bytes = b"", anywhere: bool = False) -> Completed:
                confined_thread = confined.confined_thread("git", ANYWHERE) if anywhere else options.confined_thread
                confined_options = replace(options, confined_thread=confined_thread, stdin=stdin)
                return await confined.run(("git", *words), cwd=directory, options=confined_options)

            try:
                yield run
            finally:
                await runner.close()


@needs_landlock
@pytest.mark.parametrize("trap", TRIGGERED, ids=lambda trap: trap.name)
async def test_confined_plain_git_triggers_no_trap(tmp_path: Path, trap: Trap) -> None:
    """git-28: the traps that plain git falls into (test_hostile.py), without our options and checks."""
    world = laid(trap, tmp_path)
    before = snapshot(world)
    outputs = []
    async with plain_git(world, change=True) as git:
        for words in trap.triggers:
            completed = await git(*words)
            outputs.append(completed.stdout.text() + completed.stderr.text())
    assert snapshot(world) == before
    assert SECRET not in "".join(outputs)


@needs_landlock
async def test_the_loader_runs_no_program_of_the_repository(tmp_path: Path) -> None:
    """git-28: the loader is the one other program that may be executed, and it runs any file that it is given."""
    loader = next((str(where) for where, rights in git_rules()[1:] if rights & landlock.EXECUTE), None)
    touch = shutil.which("touch")
    if loader is None or touch is None:
        pytest.skip("a git that is loaded by a loader, and touch")
    world = World(tmp_path).created()
    shutil.copy(touch, world.write("d/program", ""))
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    with (world.repository / "d" / "program").open("ab") as file:
        file.write(b"changed")
    world.git("config", "diff.external", loader)
    # Called by git with the path, object names and modes, which touch takes for files to create.
    before = set(os.listdir(world.repository))
    world.git("diff", check=False)
    made = set(os.listdir(world.repository)) - before
    assert made
    for name in made:
        (world.repository / name).unlink()
    async with plain_git(world, change=True) as git:
        assert not (await git("diff")).ok
        world.git("config", "core.fsmonitor", loader)
        assert "cannot fork" in (await git("status")).stderr.text()
    assert set(os.listdir(world.repository)) == before


def git_rules() -> tuple[landlock.Rule, ...]:
    rules = programs.startup_rules(os.path.realpath(str(shutil.which("git"))))
    assert rules is not None
    return rules


@needs_landlock
async def test_git_that_reads_writes_nothing(tmp_path: Path) -> None:
    """git-29: neither in the work tree nor in its own directory."""
    world = World(tmp_path).filled()
    before = _files(world.repository)
    async with plain_git(world, change=False) as git:
        assert (await git("status", "--short")).ok
        assert (await git("log", "-p")).ok
        for words in (("add", "."), ("config", "a.b", "c"), ("checkout", "--", "."), ("branch", "b"), ("gc",)):
            assert not (await git(*words)).ok, words
    assert _files(world.repository) == before


@needs_landlock
async def test_a_change_writes_beneath_the_git_directory_only(tmp_path: Path) -> None:
    """git-30: the work tree and everything else beneath the root stay the same."""
    world = World(tmp_path).filled()
    (world.root / "beside").mkdir()
    tree = {path: content for path, content in _files(world.root).items() if "/.git/" not in path}
    async with plain_git(world, change=True) as git:
        assert (await git("add", ".")).ok
        assert (await git("commit", "-m", "x")).ok
        assert (await git("diff", "--output=../beside/file")).exit_code != 0
        assert (await git("diff", "--output=written", "HEAD~1")).exit_code != 0
        assert (await git("init", "--bare", "../beside")).exit_code != 0
        await git("checkout", "-f", "HEAD~1")
    assert {path: content for path, content in _files(world.root).items() if "/.git/" not in path} == tree
    assert "x" in world.git("log", "--format=%s", "main")


@needs_landlock
@pytest.mark.parametrize("access", [Access.GIT_DIRECTORY, Access.WORK_TREE])
async def test_a_change_of_the_work_tree_writes_there_and_nowhere_else(tmp_path: Path, access: Access) -> None:
    """git-changes-14."""
    world = World(tmp_path).filled()
    (world.root / "beside").mkdir()
    async with world.tools() as tools, tools.repositories.opened("work", access=access) as opened:
        written = await opened.run("diff", "--no-ext-diff", "--output=written", "HEAD~1")
        assert written.ok is (access is Access.WORK_TREE), written.stderr.text()
        for place in ("../beside/file", str(world.outside / "file"), "../file"):
            assert not (await opened.run("diff", "--no-ext-diff", f"--output={place}", "HEAD~1")).ok
    assert (world.repository / "written").exists() is (access is Access.WORK_TREE)
    assert not list((world.root / "beside").iterdir())
    assert not (world.root / "file").exists()


@needs_landlock
async def test_configuration_and_hooks_of_a_shared_git_directory_stay(tmp_path: Path) -> None:
    """git-30: in a linked work tree a change has no right to write them, whatever leads there."""
    world = World(tmp_path).filled()
    linked = world.root / "linked"
    world.git("worktree", "add", "--quiet", "-b", "other", str(linked))
    (linked / "a.txt").write_text("changed\n")
    own_directory = world.git_dir / "worktrees" / "linked"
    (own_directory / "COMMIT_EDITMSG").symlink_to(world.git_dir / "config")
    before = (world.git_dir / "config").read_bytes()
    runner = Runner(Limits(), PLAIN)
    with (
        Roots([RootSpec(str(world.root))], deny=DenyRules(())) as roots,
        closing(ConfinedThreadPool()) as confined_threads,
    ):
        confined = ConfinedRunner(runner, confined_threads)
        with ExitStack() as stack:
            directory = stack.enter_context(open_directory(roots, "linked"))
            common = _git_directory(world.git_dir, roots, stack)
            own = _git_directory(own_directory, roots, stack)
            rules = read_rules(roots, [directory.fd, own.handle, common.handle], (), stack)
            rules += write_rules(
                own,
                directory_access.entry_kinds(own.handle),
                common,
                directory_access.entry_kinds(common.handle),
                stack,
            )
            options = RunOptions(confined_thread=confined.confined_thread("git", rules))
            assert (await confined.run(("git", "add", "a.txt"), cwd=directory, options=options)).ok
            for name in ("config", "hooks/pre-commit"):
                words = ("git", "config", "--file", str(world.git_dir / name), "core.fsmonitor", "x")
                assert not (await confined.run(words, cwd=directory, options=options)).ok
            refused = await confined.run(
                ("git", "commit", "-m", "[core]\n\tfsmonitor = x"), cwd=directory, options=options
            )
            assert "COMMIT_EDITMSG" in refused.stderr.text()
            (own_directory / "COMMIT_EDITMSG").unlink()
            assert (await confined.run(("git", "commit", "-m", "x"), cwd=directory, options=options)).ok
    await runner.close()
    assert (world.git_dir / "config").read_bytes() == before
    assert world.git("log", "-1", "--format=%s", "other") == "x"


@needs_landlock
async def test_inspecting_configuration_only_reads(tmp_path: Path) -> None:
    """git-31: it may read the operator's files anywhere; it writes nothing, starts nothing and opens no connection."""
    world = World(tmp_path).filled()
    before = _files(world.top)
    program = world.program()
    async with plain_git(world, change=False) as git:
        found = await git("config", "--file", str(world.home / ".gitconfig"), "user.name", anywhere=True)
        assert found.stdout.text() == "Ada Lovelace\n"
        assert not (await git("config", "--file", str(world.home / ".gitconfig"), "a.b", "c", anywhere=True)).ok
        await git("-c", f"alias.run=!{program}", "run", anywhere=True)
        await git("-c", f"core.pager={program}", "-c", f"core.fsmonitor={program}", "status", anywhere=True)
    assert not world.marker.exists()
    after = _files(world.top)
    assert {path: after[path] for path in before} == before


@needs_landlock
@pytest.mark.parametrize("tool", ["git_diff", "git_add"])
async def test_a_directory_exchanged_for_a_link_lets_nothing_out_or_in(tmp_path: Path, tool: str) -> None:
    """git-32: another process swaps a tracked directory with a link to the outside in a loop."""
    world = World(tmp_path).created()
    names = [f"d/{number}.txt" for number in range(12)]
    for name in names:
        world.write(name, "inside\n")
        (world.outside / Path(name).name).write_text(f"{SECRET} {name}\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    for name in names:
        world.write(name, "changed inside\n")
    (world.repository / "link").symlink_to(world.outside)
    outside = snapshot(world)
    results: Counter[str] = Counter()
    async with world.tools() as tools:
        with swapped(world.repository):
            for _ in range(CALLS):
                try:
                    if tool == "git_diff":
                        text = (await tools.git_diff("work")).text()
                    else:
                        text = (await tools.git_add(["work/d"], "work")).text()
                        world.git("reset", "--quiet", check=False)
                except CoreError as error:
                    text = str(error)
                    results[error.kind] += 1
                else:
                    results["done"] += 1
                assert SECRET not in text
    assert results.total() == CALLS
    assert set(results) <= {"done", "git-refused", "not-found"}
    assert snapshot(world) == outside
    assert SECRET not in world.git("cat-file", "--batch-all-objects", "--batch", check=False)


@needs_landlock
async def test_honest_repositories_can_be_used(tmp_path: Path) -> None:
    """git-33: stores and configuration elsewhere beneath the roots, and harmless configuration outside."""
    world = World(tmp_path).filled()
    lender = World(tmp_path / "lender").filled()
    head = lender.git("rev-parse", "HEAD")
    lender.git("commit", "--quiet", "--allow-empty", "-m", "borrowed")
    head = lender.git("rev-parse", "HEAD")
    (world.git_dir / "objects" / "info" / "alternates").write_text(f"{lender.git_dir}/objects\n")
    world.git("update-ref", "refs/heads/theirs", head)
    (world.root / "settings").write_text("[status]\n\tshowUntrackedFiles = all\n")
    world.git("config", "include.path", str(world.root / "settings"))
    (world.outside / "credentials").write_text('[http "https://example.org/"]\n\textraheader = secret\n')
    world.git("config", "--add", "include.path", str(world.outside / "credentials"))
    async with world.tools(roots=(RootSpec(str(lender.root)),)) as tools:
        assert "borrowed" in (await tools.git_log("work", "theirs")).text()
        assert (await tools.git_status("work")).branch == "main"
        await tools.git_add(["."], "work")
        assert "committed" in (await tools.git_commit("all", "work")).text()


@needs_landlock
async def test_each_result_reports_the_confinement_of_git(tmp_path: Path) -> None:
    """confined-threads-9: in its metadata, as for commands."""
    world = World(tmp_path).filled()
    (world.repository / "a.txt").write_text("another line\n")
    async with world.tools() as tools:
        results = [
            await tools.git_status("work"),
            await tools.git_log("work"),
            await tools.git_diff("work"),
            await tools.git_branches("work"),
            await tools.git_add(["."], "work"),
            await tools.git_commit("all", "work"),
        ]
    assert [result.facts()["tier"] for result in results] == ["landlock"] * len(results)


def test_without_landlock_git_works_and_its_confinement_is_missing(tmp_path: Path) -> None:
    """git-34, confined-threads-9: on a kernel that answers as one without Landlock; the diagnostics name it."""
    world = World(tmp_path).filled()
    argv = [
        sys.executable,
        "-m",
        "tests.confinement.without_landlock",
        sys.executable,
        "-m",
        "coretools.servers.workstation",
    ]
    process = subprocess.Popen(
        [*argv, str(world.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )
    try:
        server = Peer(process)
        server.ask("initialize", HANDSHAKE)
        server.notify("notifications/initialized")
        status = server.call("git_status", repository="work")
        assert not status.get("isError"), status
        assert "branch main" in json.dumps(status)
        assert status["_meta"]["coretools/facts"] == {"tier": "none"}
        diagnostics = json.dumps(server.call("get_diagnostics"))
        assert "git-confinement: missing" in diagnostics
        assert server.end() == 0
        assert process.stderr is not None
        assert "git-confinement" in process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def _files(top: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file() and not path.is_symlink()}


def _git_directory(path: Path, roots: Roots, stack: ExitStack) -> GitDirectory:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, handle)
    return GitDirectory(handle, str(path), path.name, roots.first)
