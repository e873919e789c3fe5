"""Reports of hidden files: in results of commands that met one, in the diagnostics, and in both git statuses."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protocol.peer import Peer, peer

SECRET = "TOKEN=canary-of-a-hidden-file\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n"
WHY = "it holds values of environment variables"


class World:
    def __init__(self, root: Path, client: Peer) -> None:
        self.root, self.client = root, client

    def call(self, tool: str, **arguments: object) -> str:
        return str(self.client.call(tool, **arguments)["content"][0]["text"])

    def sh(self, text: str) -> str:
        return self.call("run_command", command=shlex.join(["sh", "-c", text]), timeout_seconds=60)

    def git(self, *words: str) -> str:
        argv = ("git", "-c", "user.name=a", "-c", "user.email=a@b", *words)
        return subprocess.run(argv, cwd=self.root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with peer(tmp_path) as client:
        client.start_session()
        if "commands are confined in tier: full" not in str(client.call("get_diagnostics")["content"]):
            pytest.skip("needs tier full")
        yield World(tmp_path, client)


def test_a_command_that_can_t_change_control_files_gets_a_remark(world: World) -> None:
    """confinement-35: git itself ends some of these with exit code 0."""
    world.git("init", "-q", "-b", "main", "inner")
    world.git("-C", "inner", "commit", "-q", "--allow-empty", "-m", "x")
    world.git("-C", "inner", "branch", "other")
    write = "open('inner/.git/hooks/pre-commit', 'w')"
    node = "require('fs').writeFileSync('inner/.git/hooks/pre-commit', '')"
    for command in (
        "rm inner/.git/hooks/update.sample",
        "rm -rf inner",
        "printf x > inner/.git/hooks/pre-commit",
        shlex.join(["python3", "-c", write]),
        shlex.join(["python3", "-c", f"try: {write}\nexcept OSError as error: print('Error:', error)"]),
        shlex.join(["node", "-e", node]),
    ):
        if command.startswith("node") and shutil.which("node") is None:
            continue
        answer = world.call("run_command", command=command)
        assert "[commands can't replace .git/config and can't change .git/hooks" in answer, command
    assert "deleted inner" in world.call("delete_directory", path="inner", with_repositories=True)


def test_a_command_that_can_t_remove_a_submodule_gets_a_remark(world: World) -> None:
    """confinement-35: git ends some of these with exit code 0 too; the tool named in the remark does the work."""
    world.git("init", "-q", "-b", "main", "part")
    world.git("-C", "part", "commit", "-q", "--allow-empty", "-m", "x")
    world.git("init", "-q", "-b", "main", "whole")
    world.git("-c", "protocol.file.allow=always", "-C", "whole", "submodule", "--quiet", "add", "../part", "sub")
    for command in ("rm whole/sub/.git", "git -C whole submodule deinit -f sub", "git -C whole mv sub other"):
        answer = world.call("run_command", command=command)
        assert "[commands can't change, replace or delete the .git file of a submodule" in answer, command
    assert "deleted whole/other" in world.call("delete_directory", path="whole/other", with_repositories=True)


def test_a_command_that_meets_a_hidden_file_reports_it(world: World) -> None:
    """secret-files-8: path, reason and the operator's option; no remark if none was met."""
    (world.root / "app").mkdir()
    (world.root / "app" / ".env").write_text(SECRET)
    (world.root / ".env.example").write_text(SECRET)
    (world.root / ".npmrc").write_text("_authToken=x\n")
    answer = world.sh("cat app/.env")
    assert "canary" not in answer
    assert f"[hidden from commands: app/.env ({WHY}); " in answer
    assert "the operator can open one with --deny '!.env']" in answer
    assert "hidden from commands" not in world.sh("cat .env.example; ls -a app; exit 1")
    assert "hidden from commands" not in world.sh("echo Permission denied; exit 1")
    (world.root / "npm").write_text("#!/bin/sh\necho done\n")
    (world.root / "npm").chmod(0o755)
    answer = world.call("run_command", command="./npm install")
    assert answer.startswith("[hidden from commands: .npmrc (it holds a token or password); ")
    answer = world.call("get_diagnostics")
    assert f"hidden from commands: 2: .npmrc (it holds a token or password), app/.env ({WHY})" in answer


def test_hidden_paths_that_no_tool_takes_are_named_all_the_same(world: World) -> None:
    """secret-files-8: too long, or in no encoding; a command created them, and its results must not be lost."""
    world.sh("printf 'TOKEN=x' > \"$(printf '\\377.env')\"")
    deep = "import os\nfor _ in range(300): os.mkdir('x' * 20); os.chdir('x' * 20)"
    assert "exit code 0" in world.call("run_command", command=shlex.join(["python3", "-c", deep]))
    assert "hidden from commands: " in world.sh("rm -rf " + "x" * 20)
    assert "\\xff.env" in world.call("get_diagnostics")
    assert "deleted " in world.call("delete_directory", path="x" * 20)
    assert "hidden" not in world.sh("ls")


def test_what_is_no_secret_is_read_by_commands(world: World) -> None:
    """secret-files-1: certificates, settings without a token; and the content of committed files."""
    for name, content in (("ca.pem", "-----BEGIN CERTIFICATE-----"), (".npmrc", "package-lock=false"), (".env", "")):
        (world.root / name).write_text(content + "\n")
    (world.root / "test.key").write_text(KEY)
    assert "MIIEvQ" not in world.sh("cat test.key")
    world.git("init", "-q")
    world.git("add", "test.key")
    assert (
        world.sh("cat ca.pem .npmrc .env test.key")
        == f"-----BEGIN CERTIFICATE-----\npackage-lock=false\n\n{KEY}".strip()
    )
    (world.root / "test.key").write_text(KEY.replace("MIIE", "MIIF"))
    assert "MIIF" not in world.sh("cat test.key")


STATES = {
    "unchanged": lambda root: None,
    "a token was typed in": lambda root: (root / ".npmrc").write_text("_authToken=typed\n"),
    "a secret was changed": lambda root: (root / ".env").write_text(SECRET + "B=2\n"),
    "a secret is untracked": lambda root: (root / "new.env").write_text(SECRET),
    "a secret was deleted": lambda root: (root / ".env").unlink(),
    "a secret is ignored": lambda root: (root / "ignored.env").write_text(SECRET),
}


def test_both_statuses_agree_whatever_is_hidden(world: World) -> None:
    """secret-files-9: git_status, which sees every file, and git status in a command, which does not."""
    world.git("init", "-q", "-b", "main")
    for name, content in ((".env", SECRET), (".npmrc", "a=b\n"), ("a", "a\n"), (".gitignore", "ignored.env\n")):
        (world.root / name).write_text(content)
    world.git("add", "-f", ".")
    world.git("commit", "-qm", "first")
    for state, change in STATES.items():
        change(world.root)
        lines = world.call("git_status").splitlines()
        inside = world.call("run_command", command="git status --porcelain").splitlines()
        inside = [line for line in inside if not line.startswith("[")]
        for path in (".env", ".npmrc", "new.env", "ignored.env", "a"):
            assert any(path in line.split() for line in lines) == any(path in line.split() for line in inside), state
        world.git("checkout", "-q", ".")
        world.git("clean", "-qfx")


def test_hidden_files_do_not_disturb_git_commands(world: World) -> None:
    """secret-files-9: an unchanged tracked secret does not disturb commit -a, stash and add -A."""
    world.git("init", "-q", "-b", "main")
    for name, content in (("test.key", KEY), ("a", "a\n")):
        (world.root / name).write_text(content)
    world.git("add", ".")
    world.git("commit", "-qm", "first")
    who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
    output = world.sh(f"{who} echo b >> a; git stash -q && git stash pop -q && git commit -qam second && echo done")
    assert output.splitlines()[-1] == "done"
    assert "hidden" not in output
    (world.root / ".env").write_text(SECRET)
    output = world.sh(f"{who} echo c >> a; git add -A; git commit -qm third")
    assert f"hidden from commands: .env ({WHY})" in output
    assert world.sh(f"{who} git add a && git commit -qm third && echo done").endswith("done")
