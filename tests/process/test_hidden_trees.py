"""Trees with hidden files: what commands can do with them, and what only a tool can do."""

import os
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protocol.peer import peer
from tests.tools.test_hidden_files import World

CANARY = "TOKEN=canary-of-a-hidden-file"
START_SECONDS = 60.0
IDENTITY = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b"


def plant(root: Path) -> None:
    (root / "tree" / "deep").mkdir(parents=True)
    (root / "tracked").write_text("one\n")
    for name in ("by-name.txt", "by-name.sh"):
        (root / name).write_text(CANARY)
        (root / name).chmod(0o755 if name.endswith(".sh") else 0o644)
        os.utime(root / name, (10**9, 10**9))
    for words in (
        "init -q .",
        "add tracked by-name.txt by-name.sh",
        "-c user.name=a -c user.email=a@b commit -qm first",
    ):
        subprocess.run(["git", *words.split()], cwd=root, check=True)
    for path in ("tree/.env", "tree/deep/.env", "tree/open"):
        (root / path).write_text(CANARY if ".env" in path else "open")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    plant(tmp_path)
    with peer(tmp_path, "--deny", "by-name.*") as client:
        client.start_session()
        if "commands are confined in tier: full" not in client.call("get_diagnostics")["content"][0]["text"]:
            pytest.skip("needs tier full")
        yield World(tmp_path, client)


def test_a_tree_with_hidden_files_is_moved(world: World) -> None:
    """confinement-29: as a whole, by rename, and the files stay hidden."""
    assert CANARY not in world.sh("mkdir other; mv tree other/; cat other/tree/.env other/tree/deep/.env")
    assert (world.root / "other" / "tree" / "deep" / ".env").read_text() == CANARY
    assert CANARY not in world.sh("cat other/tree/.env other/tree/deep/.env")


def test_git_reports_tracked_hidden_files_correctly(world: World) -> None:
    """confinement-28, confinement-29: unchanged and untracked ones are no changes and block nothing; both git statuses
    report a changed one."""
    assert "by-name" not in world.call("git_status")
    output = world.sh(
        f"{IDENTITY}; cat by-name.*; set -e; git status --short --untracked=no;"
        "echo two >> tracked; git commit -qam second; git reset -q --hard HEAD~1; git checkout -qb other;"
        "echo three >> tracked; git stash -q; cat tracked; git stash pop -q; cat tracked;"
        "git status --short --untracked=no"
    )
    assert CANARY not in output
    assert "one\none\nthree\n M tracked" in output
    assert output.count(" M ") == 1
    (world.root / "by-name.txt").write_text(f"{CANARY} and more")
    assert " M by-name.txt" in world.sh("git status --short")
    assert "by-name.txt" in world.call("git_status")
    assert (world.root / "by-name.sh").read_text() == CANARY


@pytest.mark.parametrize(
    "command",
    [
        *("cat tree/.env", "cat by-name.sh | wc -c", "rm -rf tree", "mv by-name.txt x", "git add -f tree"),
        "python3 -c 'open(\"tree/.env\")'",
    ],
)
def test_a_command_that_met_a_hidden_file_is_reported(world: World, command: str) -> None:
    """confinement-32: the file, the reason why it is hidden, and the way to open it."""
    output = world.sh(command)
    line = next(line for line in output.splitlines() if line.startswith("[hidden from commands: "))
    assert f": {'by-name' if 'by-name' in command else 'tree/.env'}" in line
    assert "by-name" not in command or "deny glob by-name.*" in line
    assert "delete_directory" in line
    assert CANARY not in output


@pytest.mark.parametrize(
    "output",
    [
        "KeyError: 'API_KEY'",
        "Error: DATABASE_URL is required",
        "Missing required environment variable: TOKEN",
        "the environment variable API_TOKEN must be set",
    ],
)
def test_a_test_that_lacks_a_variable_is_told_of_the_hidden_file(world: World, output: str) -> None:
    """confinement-32: most libraries pass over a `.env` that they can't read, in silence."""
    quoted = shlex.quote(output)
    said = world.sh(f"echo {quoted}; exit 1")
    assert "[hidden from commands: tree/.env" in said
    assert "--deny '!.env'" in said


@pytest.mark.parametrize(
    "command", ["ls -A tree", "cat /etc/shadow", "echo .env; cat /root/nothing", "cat tree/open", "false"]
)
def test_other_commands_get_no_remark(world: World, command: str) -> None:
    """confinement-32: naming a hidden file without being refused is no encounter."""
    assert "hidden from commands" not in world.sh(command)


def test_a_tree_with_hidden_files_is_deleted_by_a_tool(world: World) -> None:
    """confinement-29: a command deletes everything else in it; the tool deletes the hidden files."""
    assert "busy" in world.sh("rm -rf tree")
    assert [(world.root / path).read_text() for path in ("tree/.env", "tree/deep/.env")] == [CANARY, CANARY]
    answer = world.call("delete_directory", path="tree")
    assert answer.startswith("deleted tree, ")
    assert not (world.root / "tree").exists()
    assert world.sh("ls tree; mkdir tree; echo new > tree/.env; cat tree/.env").endswith(
        "tree': No such file or directory"
    )


WAITING = """
with open("ready", "w") as ready:
    ready.write(".")
while True:
    try:
        with open("tree/.env") as file:
            print("found:", file.read())
            break
    except PermissionError:
        pass
    except FileNotFoundError:
        break
"""


def test_a_command_that_waits_for_a_deletion_reads_nothing(world: World) -> None:
    """confinement-29: the cover is removed before the name; the file is empty by then."""
    os.mkfifo(world.root / "ready")
    ready = os.open(world.root / "ready", os.O_RDWR)
    for _ in range(10):
        (world.root / "tree" / "deep").mkdir(parents=True, exist_ok=True)
        (world.root / "tree" / ".env").write_text(CANARY)
        run = world.client.send(
            "tools/call",
            {"name": "run_command", "arguments": {"command": shlex.join([sys.executable, "-c", WAITING])}},
        )
        assert select.select([ready], [], [], START_SECONDS)[0]
        assert os.read(ready, 1) == b"."
        assert world.call("delete_directory", path="tree").startswith("deleted tree, ")
        assert CANARY not in str(world.client.answer(run))
    os.close(ready)
