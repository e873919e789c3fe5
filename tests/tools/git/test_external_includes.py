"""Configuration outside the roots that a repository includes (hostile ones: `test_hostile`)."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coretools.errors import GitRefused
from coretools.roots.root import RootSpec
from tests.tools.git.traps import answers
from tests.tools.git.world import SECRET, World

REMARK = "configuration outside the roots"


def checked_out_by_a_runner(top: Path) -> tuple[World, Path]:
    """A checkout as actions/checkout v6 leaves it (its git-auth-helper.ts, configureToken), and its credentials."""
    world = World(top).filled()
    credentials = world.outside / "git-credentials-4f5a6f0c-8a05-4d4e-9d52-6a7e1f1f8b1e.config"
    world.git("config", "--file", str(credentials), "http.https://github.com/.extraheader", f"AUTHORIZATION: {SECRET}")
    inside_container = f"/github/runner_temp/{credentials.name}"
    for git_dir, file in ((str(world.git_dir), str(credentials)), ("/github/workspace/.git", inside_container)):
        world.git("config", f"includeIf.gitdir:{git_dir}.path", file)
        world.git("config", f"includeIf.gitdir:{git_dir}/worktrees/*.path", file)
    world.git("config", "gc.auto", "0")
    return world, credentials


@contextmanager
def watched_git(world: World) -> Iterator[Path]:
    """The arguments of each git process, one line each, while a wrapper is git in PATH."""
    log = world.top / "log"
    log.write_text("")
    wrapper = world.outside / "git"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(0o755)
    world.environment["PATH"] = f"{world.outside}:{os.environ['PATH']}"
    yield log
    del world.environment["PATH"]


async def test_every_tool_works_in_the_checkout_of_a_runner(tmp_path: Path) -> None:
    """git-26: credentials in a file outside, included by a condition, block nothing and are never in an answer."""
    world, _ = checked_out_by_a_runner(tmp_path)
    assert SECRET in world.git("config", "--list")
    async with world.tools() as tools:
        texts = await answers(tools)
        status = await tools.git_status("work")
    assert not any(text.startswith(("git-refused", "not-found")) for text in texts[:11]), texts
    assert texts[9].startswith("staged 1"), texts[9]
    assert texts[10].startswith("committed "), texts[10]
    assert all(REMARK in text for text in texts[:11]), texts
    assert status.branch == "main"
    assert status.not_used == []
    assert SECRET not in "".join(texts)
    assert world.git("log", "-1", "--format=%an %s") == "Ada Lovelace message"


async def test_a_work_tree_beside_the_checkout_of_a_runner_works_too(tmp_path: Path) -> None:
    """git-26: its own git directory matches another condition."""
    world, _ = checked_out_by_a_runner(tmp_path)
    world.git("worktree", "add", "--quiet", str(world.root / "beside"))
    assert SECRET in world.git("config", "--list", cwd=world.root / "beside")
    async with world.tools() as tools:
        assert REMARK in (await tools.git_log("beside")).text()


async def test_only_such_a_repository_costs_one_process_more(tmp_path: Path) -> None:
    """git-5, git-26: names are queried once per call, values never."""
    world, _ = checked_out_by_a_runner(tmp_path)
    plain = World(tmp_path / "plain").filled()
    with watched_git(world) as log:
        async with world.tools() as tools:
            await tools.git_status("work")
        asked, status = log.read_text().splitlines()
    assert "config --includes --list -z --name-only" in asked
    assert " status " in status
    with watched_git(plain) as log:
        async with plain.tools() as tools:
            await tools.git_status("work")
        assert len(log.read_text().splitlines()) == 1


async def test_a_file_outside_is_read_for_each_call(tmp_path: Path) -> None:
    """git-26: none of it is cached."""
    world, credentials = checked_out_by_a_runner(tmp_path)
    world.write(".gitattributes", "* filter=evil\n")
    async with world.tools() as tools:
        assert REMARK in (await tools.git_status("work")).text()
        with credentials.open("a") as file:
            file.write(f'[filter "evil"]\nclean = {world.program()}\n')
        os.utime(world.repository / "b.txt", (1, 1))
        assert "evil" not in (await tools.git_status("work")).text()
        assert not world.marker.exists()
        with credentials.open("a") as file:
            file.write("[core]\nautocrlf = true\n")
        with pytest.raises(GitRefused, match="make the directory of the file a root"):
            await tools.git_status("work")
        credentials.unlink()
        assert REMARK in (await tools.git_status("work")).text()


async def test_a_file_whose_directory_is_made_a_root_is_used(tmp_path: Path) -> None:
    """git-26: what the refusal recommends works."""
    world, credentials = checked_out_by_a_runner(tmp_path)
    with credentials.open("a") as file:
        file.write(f"[core]\nautocrlf = false\nfsmonitor = {world.program()}\n")
    async with world.tools() as tools:
        with pytest.raises(GitRefused):
            await tools.git_status("work")
    async with world.tools(roots=(RootSpec(str(world.outside), writable=False),)) as tools:
        assert (await tools.git_status("work")).not_used == ["core.fsmonitor"]
    assert not world.marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"[push]\ndefault = {SECRET}\n", id="a value"),
        pytest.param(
            f"[commit]\ngpgSign = {SECRET}\n[diff]\nignoreSubmodules = {SECRET}\n", id="values that are fixed"
        ),
        pytest.param(f'[url "https://{SECRET}@example.org/"]\ninsteadOf\n', id="a name"),
    ],
)
async def test_messages_of_git_that_could_quote_the_file_are_omitted(tmp_path: Path, text: str) -> None:
    """git-26: plain git quotes what it cannot use; our error gives the reason without quoting."""
    world, credentials = checked_out_by_a_runner(tmp_path)
    credentials.write_text(text)
    world.git("config", "branch.main.remote", "origin")
    world.git("config", "branch.main.merge", "refs/heads/main")
    plain = [world.git(*words, check=False) for words in (("status", "--branch"), ("commit", "-m", "x", "--dry-run"))]
    assert SECRET in "".join(plain)
    async with world.tools() as tools:
        texts = await answers(tools)
    assert SECRET not in "".join(texts)
    assert any("its message may quote" in text for text in texts), texts


async def test_standard_input_is_no_configuration_by_any_path(tmp_path: Path) -> None:
    """git-26: otherwise a caller's message would be configuration of the commit."""
    world = World(tmp_path).filled()
    (world.outside / "link").symlink_to("/proc/self/fd/0")
    (world.outside / "empty").write_text("")
    world.git("config", "include.path", str(world.outside / "link"))
    world.write(".gitattributes", "* filter=evil\n")
    message = f'[filter "evil"]\nclean = {world.program(then="cat")}\n'
    kept, empty = os.dup(0), os.open(world.outside / "empty", os.O_RDONLY)
    os.dup2(empty, 0)  # a regular file, so that only what git reads there can tell
    try:
        async with world.tools() as tools:
            with pytest.raises(GitRefused, match=r"include\.path"):
                await tools.git_commit(message, "work")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(empty)
    assert not world.marker.exists()


async def test_more_files_outside_than_a_command_should_name_are_refused(tmp_path: Path) -> None:
    """git-26: even if none of them exists."""
    world = World(tmp_path).filled()
    with (world.git_dir / "config").open("a") as file:
        file.write("[include]\n" + "".join(f"path = {world.outside}/{number}\n" for number in range(17)))
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="outside the roots"):
            await tools.git_status("work")
