"""Covered files that a process outside replaces while a command runs, judged from the command's side."""

import ctypes
import json
import os
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from coretools.process.run import Completed
from tests.process.test_sandbox_pool import SandboxedRunner, needs_namespaces, sandboxed
from tests.process.tree import PATIENCE_SECONDS
from tests.protocol.peer import peer
from tests.protocol.test_jobs import facts

pytestmark = needs_namespaces

CANARY = "c4n4ry-0f-a-t0ken"
SECRET = f"API_TOKEN={CANARY}-{{}}\n"
CONFIG = f'[core]\n\trepositoryformatversion = 0\n[remote "origin"]\n\turl = https://user:{CANARY}@host.example/x.git\n'

COMMAND = f"""
import json, os, select, sys
def attempt(words):
    try:
        return str(eval(words))
    except OSError as error:
        return type(error).__name__
def read(path):
    with open(path) as file:
        return file.read()
def add(path, text):
    with open(path, 'a') as file:
        file.write(text)
def answer(words, expected):
    with open('/proc/self/mountinfo') as mounts:
        changes = select.poll()
        changes.register(mounts, select.POLLPRI | select.POLLERR)
        while (found := attempt(words)) not in expected and changes.poll({1000 * PATIENCE_SECONDS}):
            pass
    return found
with open('requests') as requests, open('responses', 'w') as responses:
    print('0', file=responses, flush=True)
    for line in requests:
        words, expected = json.loads(line)
        result = attempt(words) if expected is None else answer(words, expected)
        print(json.dumps(result), file=responses, flush=True)
"""
"""Evaluates expressions until its input ends. With expected answers it evaluates one again after each change of the
mounts (proc(5), mountinfo), until the answer is one of them."""


class RemoteCommand:
    """The test's end of a command that evaluates expressions."""

    def __init__(self, root: Path) -> None:
        for name in ("requests", "responses"):
            os.mkfifo(root / name)
        # O_RDWR: to open one end of a FIFO waits for the other end.
        self._requests, self._responses = (os.open(root / name, os.O_RDWR) for name in ("requests", "responses"))
        self.ended: Completed | None = None

    def ask(self, words: str) -> str:
        """The value of a Python expression in the command, or the class of the error."""
        self._request(words, None)
        return str(self.receive())

    def receive(self) -> object:
        """The next response; the first one reports that the command runs."""
        data = b""
        while not data.endswith(b"\n"):
            assert select.select([self._responses], [], [], 2 * PATIENCE_SECONDS)[0], "no response"
            data += os.read(self._responses, 65536)
        return json.loads(data)

    def end(self) -> None:
        """End the command."""
        os.close(self._requests)
        os.close(self._responses)

    async def until(self, words: str, *answers: str) -> None:
        """Wait until the value of an expression in the command is one of the answers."""
        self._request(words, answers)
        assert await anyio.to_thread.run_sync(self.receive) in answers

    def _request(self, words: str, expected: Sequence[str] | None) -> None:
        os.write(self._requests, json.dumps([words, expected]).encode() + b"\n")

    @property
    def remarks(self) -> str:
        """The remarks of the command's result."""
        assert self.ended is not None
        return " ".join(self.ended.remarks)


@asynccontextmanager
async def running_command(place: SandboxedRunner, root: Path) -> AsyncIterator[RemoteCommand]:
    """A command that runs until the block ends."""
    command = RemoteCommand(root)
    async with anyio.create_task_group() as group:

        async def run() -> None:
            command.ended = await place.run(sys.executable, "-c", COMMAND)

        group.start_soon(run)
        try:
            await anyio.to_thread.run_sync(command.receive)
            yield command
        finally:
            command.end()


def git(*words: str, directory: Path) -> None:
    subprocess.run(("git", *words), cwd=directory, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with every kind of covered file, at the top and in a repository further down."""
    top = tmp_path / "root"
    for folder in (top, top / "deep" / "project"):
        folder.mkdir(parents=True, exist_ok=True)
        git("init", "-q", directory=folder)
        (folder / ".git" / "config").write_text(CONFIG)
        (folder / ".env").write_text(SECRET.format(0))
    (top / ".mcp.json").write_text("{}")
    (top / ".zed").symlink_to("editor")
    return top


def renamed(path: Path, text: str) -> None:
    """Write a new file and rename it, as most programs save."""
    new = path.with_name("new")
    new.write_text(text)
    new.rename(path)


def made_again(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def backed_up(path: Path, text: str) -> None:
    """Save as vim does with `backupcopy=no`."""
    backup = path.with_name("backup~")
    path.rename(backup)
    path.write_text(text)
    backup.unlink()


def linked(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    path.unlink()
    os.link(new, path)
    new.unlink()


def exchanged(path: Path, text: str) -> None:
    """RENAME_EXCHANGE: the one rename that moves a mount instead of detaching it."""
    new = path.with_name("new")
    new.write_text(text)
    result = ctypes.CDLL(None).renameat2(-100, os.fsencode(new), -100, os.fsencode(path), 2)
    assert result == 0
    new.unlink()


def often(path: Path, text: str) -> None:
    for _ in range(50):
        renamed(path, text)


WAYS: tuple[Callable[[Path, str], None], ...] = (renamed, made_again, backed_up, linked, exchanged, often)


@pytest.mark.parametrize("folder", [".", "deep/project"])
async def test_a_replaced_file_is_covered_again(root: Path, folder: str) -> None:
    """confinement-14, confinement-44: however it is replaced, the running command neither reads nor changes the new
    file."""
    config, secret = root / folder / ".git" / "config", root / folder / ".env"
    plant = f"add('{folder}/.git/config', '[core]{chr(92)}n fsmonitor = evil')"
    async with sandboxed(root) as place:
        async with running_command(place, root) as command:
            for way in WAYS:
                way(secret, SECRET.format(way.__name__))
                await command.until(f"read('{folder}/.env')", "PermissionError")
                way(config, CONFIG + f"[user]\n\tname = {way.__name__}\n")
                await command.until(f"'{CANARY}' in read('{folder}/.git/config')", "False")
                assert command.ask(f"os.rename('{folder}/.git/config', '{folder}/x')") == "OSError"
                assert command.ask(f"os.unlink('{folder}/.env')") == "OSError"
                assert command.ask(plant) == "None"
                assert config.read_text() == CONFIG + f"[user]\n\tname = {way.__name__}\n"
            git("config", "user.name", "by git", directory=root / folder)
            await command.until(f"'{CANARY}' in read('{folder}/.git/config')", "False")
        assert "evil" not in config.read_text()
        assert f"closed again: {secret}, {config}" in command.remarks
        assert place.sandbox_pool.hidden
        after = await place.run("true")
        assert not after.remarks


async def test_directories_are_covered_again_with_what_is_in_them(root: Path) -> None:
    """confinement-14: a whole repository, its hooks, settings of agents, and entries that the command has moved
    itself."""
    other = root.parent / "other"
    other.mkdir()
    git("init", "-q", directory=other)
    (other / ".git" / "config").write_text(CONFIG)
    config = f"'{CANARY}' in read('.git/config')"
    async with sandboxed(root) as place:
        async with running_command(place, root) as command:
            shutil.rmtree(root / ".git")
            shutil.copytree(other / ".git", root / ".git")
            await command.until(config, "False")
            await command.until("os.rename('.git', 'moved')", "OSError")
            (root / ".git").rename(root.parent / "old")
            (other / ".git").rename(root / ".git")
            await command.until(config, "False")
            git("config", "user.name", "by git", directory=root)  # files that arrive in a directory are watched too
            await command.until(config, "False")
            (root / ".git" / "hooks").rename(root / ".git" / "old hooks")
            (root / ".git" / "hooks").mkdir()
            await command.until("add('.git/hooks/pre-commit', '#!/bin/sh')", "OSError")
            (root / ".git" / "hooks" / "pre-commit").unlink(missing_ok=True)
            assert command.ask("add('.git/hooks/pre-commit', '#!/bin/sh')") == "OSError"
            renamed(root / ".mcp.json", "[]")
            await command.until("add('.mcp.json', 'x')", "OSError")
            (root / "link").symlink_to("editor")
            (root / "link").rename(root / ".zed")
            await command.until("os.rename('.zed', 'x') or os.rename('x', '.zed')", "OSError")
            command.ask("os.rename('deep', 'moved')")
            renamed(root / "moved" / "project" / ".env", SECRET.format("moved"))
            await command.until("read('moved/project/.env')", "PermissionError")
            git("config", "user.name", "by git", directory=root / "moved" / "project")
            await command.until(f"'{CANARY}' in read('moved/project/.git/config')", "False")
        assert "open to it until it ended" not in command.remarks
        assert os.listdir(root / ".git" / "hooks") == []


async def test_what_a_command_makes_itself_stays_its_own(root: Path) -> None:
    """confinement-14: only a name that had a cover gets one; a new secret file or repository, or a copy, does not."""
    async with sandboxed(root) as place, running_command(place, root) as command:
        command.ask("os.mkdir('build') or add('build/key.pem', 'x') or add('build/.env', 'API_TOKEN=x')")
        command.ask("os.rename('deep', 'elsewhere') or os.makedirs('deep/project')")
        command.ask("add('deep/project/.env', 'API_TOKEN=mine')")
        assert command.ask("os.system('git init -q deep/project && git -C deep/project config a.b mine')") == "0"
        renamed(root / ".env", SECRET.format("last"))  # by then all earlier changes have been processed
        await command.until("read('.env')", "PermissionError")
        assert command.ask("read('deep/project/.env')") == "API_TOKEN=mine"
        assert "mine" in command.ask("read('deep/project/.git/config')")
        assert command.ask("read('build/.env')") == "API_TOKEN=x"
        assert command.ask("__import__('shutil').rmtree('deep')") == "None"


async def test_a_flood_of_events_hides_no_change(root: Path) -> None:
    """confinement-14: all covers are checked when the kernel drops events, and during an endless flood of them too."""
    once = "[(add('deep/x', ''), os.rename('deep/x', 'x')) for _ in range(20_000)] and 'done'"
    forever = "while True: os.rename('x', 'deep/x'); os.rename('deep/x', 'x')"
    async with sandboxed(root) as place, running_command(place, root) as command:
        assert command.ask(once) == "done"
        renamed(root / ".env", SECRET.format("once"))
        await command.until("read('.env')", "PermissionError")
        command.ask(f"__import__('subprocess').Popen([sys.executable, '-c', \"import os\\n{forever}\"]) and None")
        renamed(root / ".env", SECRET.format("forever"))
        await command.until("read('.env')", "PermissionError")


def test_without_watches_and_by_the_tools(root: Path) -> None:
    """confinement-14: the user has no inotify instance left; the result reports the covered files."""
    without = ("unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"', "sh")
    command = RemoteCommand(root)
    with peer(root, before=without) as client:
        client.start_session()
        assert "directories are polled" in client.call("get_diagnostics")["content"][0]["text"]
        words = shlex.join([sys.executable, "-c", COMMAND])
        run = facts(client.call("run_command", command=words, wait_seconds=0))["run"]
        command.receive()
        renamed(root / ".env", SECRET.format("new"))
        git("config", "user.name", "by git", directory=root)
        anyio.run(command.until, "read('.env')", "PermissionError")
        anyio.run(command.until, f"'{CANARY}' in read('.git/config')", "False")
        command.end()
        text = client.call("wait_run", run=run, seconds=60)["content"][0]["text"]
    assert f"and closed again: {root}/.env, {root}/.git/config" in text
