"""docs/specs/confinement.md: a command that polls for the moment in which git replaces its configuration."""

import os
import subprocess
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.process.test_git_configs import git, setting
from tests.process.test_sandbox_pool import needs_namespaces, sandboxed

pytestmark = [pytest.mark.anyio, needs_namespaces]

ATTACK = r"""
import os, sys, time
held = []
open("started", "w").close()
while not os.path.exists("stop"):
    for name in (".git/config.lock", ".git/config.lock.new", ".git/config"):
        try:
            handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_APPEND)
        except OSError:
            continue
        held.append(handle)
    for handle in held[:]:
        data = os.pread(handle, 65536, 0)
        is_renamed = os.readlink(f"/proc/self/fd/{handle}").endswith("/config")
        if is_renamed and b"real-file" in data and b"\n\tfsmonitor = evil" not in data:
            os.write(handle, b"\n[core]\n\tfsmonitor = evil\n[alias]\n\tst = !evil\n")
        if len(held) > 50:
            held.remove(handle)
            os.close(handle)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "project"
    folder.mkdir(parents=True)
    git("init", "-q", "-b", "main", directory=folder)
    config = folder / ".git" / "config"
    config.write_text(f"# real-file\n{config.read_text()}[core]\n\tpager = less\n")
    (folder / "attack.py").write_text(ATTACK)
    os.mkfifo(folder / "started")
    return folder


async def replace_until(project: Path, is_over: Callable[[], bool]) -> None:
    """Have the user's git replace the configuration, again and again, once the attack has started."""
    with anyio.fail_after(60):
        await to_thread.run_sync((project / "started").read_bytes, abandon_on_cancel=True)
        for number in count():
            if is_over():
                return
            words = ["git", "config", "user.name", f"n{number}"]
            await to_thread.run_sync(partial(subprocess.run, words, cwd=project, check=False, capture_output=True))


def is_clean(project: Path) -> bool:
    return setting(project, "core.fsmonitor") == setting(project, "alias.st") == ""


async def test_what_a_command_writes_into_a_replaced_configuration_does_not_stay(project: Path) -> None:
    """confinement-49: the user's settings stay, and what was removed is a comment, also if the command goes on."""
    config = project / ".git" / "config"
    async with sandboxed(project.parent) as place:
        await place.run("true", directory="project")
        git("config", "alias.own", "!true", directory=project)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: place.run("python3", "attack.py", directory="project"))
            await replace_until(project, lambda: "# \tfsmonitor = evil\n" in config.read_text())
            await to_thread.run_sync((project / "stop").touch)
    assert is_clean(project)
    assert (setting(project, "core.pager"), setting(project, "alias.own")) == ("less", "!true")
    assert setting(project, "user.name").startswith("n")
    assert "# \tfsmonitor = evil\n" in config.read_text()


async def test_a_command_that_attacks_again_and_again_is_ended(project: Path) -> None:
    """confinement-49: so is a lock that it holds for ever no way to keep its setting."""
    ended = []
    async with sandboxed(project.parent) as place:

        async def attack() -> None:
            ended.append(await place.run("python3", "attack.py", directory="project"))

        async with anyio.create_task_group() as group:
            group.start_soon(attack)
            await replace_until(project, lambda: bool(ended))
        remarks = " ".join(ended[0].remarks)
        assert "they are comments there now" in remarks
        assert "core.fsmonitor (project/.git/config)" in remarks
        await place.run("sh", "-c", "echo held > .git/config.lock", directory="project")
    assert is_clean(project)


async def test_what_a_person_sets_between_two_commands_stays(project: Path) -> None:
    """confinement-49: also a setting by which git starts a program, right after a command."""
    async with sandboxed(project.parent) as place:
        for number in range(10):
            await place.run("true", directory="project")
            git("config", "core.hooksPath", f"hooks-{number}", directory=project)
            for _ in range(20):
                assert await to_thread.run_sync(setting, project, "core.hooksPath") == f"hooks-{number}"
        await place.run("true", directory="project")
    assert setting(project, "core.hooksPath") == "hooks-9"


async def test_a_git_that_locks_while_a_command_runs_is_checked_when_it_replaces_the_file(project: Path) -> None:
    """confinement-49: although the command, which could have opened its file, has ended by then."""
    config = project / ".git" / "config"
    lock = config.with_name("config.lock")
    async with sandboxed(project.parent) as place:
        await place.run("true", directory="project")
        lock.write_text(f"{config.read_text()}[user]\n\tname = n\n")
        await place.run("sh", "-c", "printf '[core]\\n\\tfsmonitor = evil\\n' >> .git/config.lock", directory="project")
        assert "evil" in lock.read_text()
        lock.rename(config)
        with anyio.fail_after(60):
            while "# \tfsmonitor = evil\n" not in config.read_text():
                await anyio.lowlevel.checkpoint()
    assert is_clean(project)
    assert setting(project, "user.name") == "n"


REDIRECTS = """
mkdir evil && cp -r .git/HEAD .git/objects .git/refs evil
printf '[core]\\n\\tfsmonitor = "touch %s; false"\\n' "$1" > evil/config
echo "$PWD/evil" > .git/worktrees/tree/commondir
rm -f .git/worktrees/tree/commondir && echo "$PWD/evil" > .git/worktrees/tree/commondir
mv .git/worktrees/tree .git/worktrees/old && cp -r .git/worktrees/old .git/worktrees/tree
mv .git/worktrees .git/old && cp -r .git/old .git/worktrees
echo "$PWD/evil" > .git/worktrees/tree/commondir
"""
"""Every way to have git in the linked work tree `tree` read another configuration."""


@pytest.mark.parametrize(("tree", "is_kept"), [("outside", True), ("a root", True), ("beneath a root", False)])
async def test_a_linked_work_tree_that_commands_do_not_have_keeps_its_repository(
    project: Path, tmp_path: Path, tree: str, is_kept: bool
) -> None:
    """confinement-50: of one beneath a root, whose `.git` file is open too, the result names what was changed."""
    git("-c", "user.name=U", "-c", "user.email=u@h", "commit", "-q", "--allow-empty", "-m", "one", directory=project)
    place = project.parent / "tree" if tree == "beneath a root" else tmp_path / "tree"
    git("worktree", "add", "-q", "--detach", str(place), directory=project)
    marker = tmp_path / "marker"
    async with sandboxed(project.parent, *([place] if tree == "a root" else [])) as sandbox:
        completed = await sandbox.run("sh", "-c", REDIRECTS, "sh", str(marker), directory="project")
    git("status", directory=place)
    assert marker.exists() != is_kept, completed.stderr.text()
    assert is_kept or [path for path in completed.changed_control_files if "worktrees" in path], (
        completed.changed_control_files
    )
