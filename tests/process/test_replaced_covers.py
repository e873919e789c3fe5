"""Covered files that somebody outside replaces while a command goes on: by effect, from the command's side."""

import ctypes
import json
import os
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from coretools.process.runner import Completed
from tests.process.test_sandbox_pool import Place, kept, needs_view
from tests.process.tree import PATIENCE_SECONDS, until
from tests.protocol.peer import peer
from tests.protocol.test_jobs import facts

pytestmark = needs_view

CANARY = "c4n4ry-0f-a-t0ken"
SECRET = f"API_TOKEN={CANARY}-{{}}\n"
CONFIG = f'[core]\n\trepositoryformatversion = 0\n[remote "origin"]\n\turl = https://user:{CANARY}@host.example/x.git\n'

COMMAND = """
import json, os, sys
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
with open('asked') as asked, open('said', 'w') as said:
    said.write('0' + chr(10))
    said.flush()
    for line in asked:
        said.write(json.dumps(attempt(json.loads(line))) + chr(10))
        said.flush()
"""
"""Goes on until its input ends, and does what it is told."""


class Talk:
    """With a command that goes on."""

    def __init__(self, root: Path) -> None:
        for name in ("asked", "said"):
            os.mkfifo(root / name)
        # For both, or it would wait for the command.
        self._asked, self._said = (os.open(root / name, os.O_RDWR) for name in ("asked", "said"))
        self.ended: Completed | None = None

    def ask(self, words: str) -> str:
        """What a Python expression comes to there, or the kind of error."""
        os.write(self._asked, json.dumps(words).encode() + b"\n")
        return str(self.listen())

    def listen(self) -> object:
        """What it says next; first that it is there."""
        data = b""
        while not data.endswith(b"\n"):
            assert select.select([self._said], [], [], PATIENCE_SECONDS)[0], "it says nothing"
            data += os.read(self._said, 65536)
        return json.loads(data)

    def end(self) -> None:
        """Have the command end."""
        os.close(self._asked)
        os.close(self._said)

    async def until(self, words: str, *answers: str) -> None:
        """Ask until that is the answer."""
        await until(lambda: self.ask(words) in answers)

    @property
    def remarks(self) -> str:
        """What its result says."""
        assert self.ended is not None
        return " ".join(self.ended.remarks)


@asynccontextmanager
async def going_on(place: Place, root: Path) -> AsyncIterator[Talk]:
    """A command that goes on, until the end of this."""
    talk = Talk(root)
    async with anyio.create_task_group() as group:

        async def run() -> None:
            talk.ended = await place.run(sys.executable, "-c", COMMAND)

        group.start_soon(run)
        try:
            await anyio.to_thread.run_sync(talk.listen)
            yield talk
        finally:
            talk.end()


def git(*words: str, directory: Path) -> None:
    subprocess.run(("git", *words), cwd=directory, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """With everything that has a cover, at the top and in a repository further down."""
    top = tmp_path / "root"
    for folder in (top, top / "deep" / "project"):
        folder.mkdir(parents=True, exist_ok=True)
        git("init", "-q", directory=folder)
        (folder / ".git" / "config").write_text(CONFIG)
        (folder / ".env").write_text(SECRET.format(0))
    (top / ".mcp.json").write_text("{}")
    return top


def renamed(path: Path, text: str) -> None:
    """As most programs save."""
    new = path.with_name("new")
    new.write_text(text)
    new.rename(path)


def made_again(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def backed_up(path: Path, text: str) -> None:
    """As vim saves with `backupcopy=no`."""
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
    """The one rename that detaches no mount, but moves it."""
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
    """confinement-14, confinement-44: in whatever way it is replaced. The run neither reads nor changes the new one."""
    config, secret = root / folder / ".git" / "config", root / folder / ".env"
    plant = f"add('{folder}/.git/config', '[core]{chr(92)}n fsmonitor = evil')"
    async with kept(root) as place:
        async with going_on(place, root) as talk:
            for way in WAYS:
                way(secret, SECRET.format(way.__name__))
                await talk.until(f"read('{folder}/.env')", "PermissionError")
                way(config, CONFIG + f"[user]\n\tname = {way.__name__}\n")
                await talk.until(f"'{CANARY}' in read('{folder}/.git/config')", "False")
                assert talk.ask(f"os.rename('{folder}/.git/config', '{folder}/x')") == "OSError"
                assert talk.ask(f"os.unlink('{folder}/.env')") == "OSError"
                assert talk.ask(plant) == "None"
                assert config.read_text() == CONFIG + f"[user]\n\tname = {way.__name__}\n"
            git("config", "user.name", "by git", directory=root / folder)
            await talk.until(f"'{CANARY}' in read('{folder}/.git/config')", "False")
        assert "evil" not in config.read_text()
        assert f"closed again: {secret}, {config}" in talk.remarks
        assert place.sandbox_pool.hidden
        after = await place.run("true")
        assert not after.remarks


async def test_directories_are_covered_again_with_what_is_in_them(root: Path) -> None:
    """confinement-14: a whole repository, its hooks, settings of agents, and what the command has moved itself."""
    other = root.parent / "other"
    other.mkdir()
    git("init", "-q", directory=other)
    (other / ".git" / "config").write_text(CONFIG)
    config = f"'{CANARY}' in read('.git/config')"
    async with kept(root) as place:
        async with going_on(place, root) as talk:
            shutil.rmtree(root / ".git")
            shutil.copytree(other / ".git", root / ".git")
            await talk.until(config, "False")
            await talk.until("os.rename('.git', 'moved')", "OSError")
            (root / ".git").rename(root.parent / "old")
            (other / ".git").rename(root / ".git")
            await talk.until(config, "False")
            git("config", "user.name", "by git", directory=root)  # what came in a directory is watched too
            await talk.until(config, "False")
            (root / ".git" / "hooks").rename(root / ".git" / "old hooks")
            (root / ".git" / "hooks").mkdir()
            await talk.until("add('.git/hooks/pre-commit', '#!/bin/sh')", "OSError")
            (root / ".git" / "hooks" / "pre-commit").unlink(missing_ok=True)
            assert talk.ask("add('.git/hooks/pre-commit', '#!/bin/sh')") == "OSError"
            renamed(root / ".mcp.json", "[]")
            await talk.until("add('.mcp.json', 'x')", "OSError")
            talk.ask("os.rename('deep', 'moved')")
            renamed(root / "moved" / "project" / ".env", SECRET.format("moved"))
            await talk.until("read('moved/project/.env')", "PermissionError")
            git("config", "user.name", "by git", directory=root / "moved" / "project")
            await talk.until(f"'{CANARY}' in read('moved/project/.git/config')", "False")
        assert "open to it until it ended" not in talk.remarks
        assert os.listdir(root / ".git" / "hooks") == []


async def test_what_a_command_makes_itself_stays_its_own(root: Path) -> None:
    """confinement-14: only a name that had a cover gets one; a new secret file, repository or copy of them is not."""
    async with kept(root) as place, going_on(place, root) as talk:
        talk.ask("os.mkdir('build') or add('build/key.pem', 'x') or add('build/.env', 'API_TOKEN=x')")
        talk.ask("os.rename('deep', 'elsewhere') or os.makedirs('deep/project')")
        talk.ask("add('deep/project/.env', 'API_TOKEN=mine')")
        assert talk.ask("os.system('git init -q deep/project && git -C deep/project config a.b mine')") == "0"
        renamed(root / ".env", SECRET.format("last"))  # by then all that came before was looked at
        await talk.until("read('.env')", "PermissionError")
        assert talk.ask("read('deep/project/.env')") == "API_TOKEN=mine"
        assert "mine" in talk.ask("read('deep/project/.git/config')")
        assert talk.ask("read('build/.env')") == "API_TOKEN=x"
        assert talk.ask("__import__('shutil').rmtree('deep')") == "None"


async def test_a_flood_of_events_hides_no_change(root: Path) -> None:
    """confinement-14: when the kernel drops events all covers are looked at, and while there is no end of them too."""
    once = "[(add('deep/x', ''), os.rename('deep/x', 'x')) for _ in range(20_000)] and 'done'"
    forever = "while True: os.rename('x', 'deep/x'); os.rename('deep/x', 'x')"
    async with kept(root) as place, going_on(place, root) as talk:
        assert talk.ask(once) == "done"
        renamed(root / ".env", SECRET.format("once"))
        await talk.until("read('.env')", "PermissionError")
        talk.ask(f"__import__('subprocess').Popen([sys.executable, '-c', \"import os\\n{forever}\"]) and None")
        renamed(root / ".env", SECRET.format("forever"))
        await talk.until("read('.env')", "PermissionError")


def test_without_watches_and_by_the_tools(root: Path) -> None:
    """confinement-14: where the user has no inotify instance left; what a client reads of it."""
    without = ("unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"', "sh")
    talk = Talk(root)
    with peer(root, before=without) as client:
        client.start_session()
        assert "directories are polled" in client.call("get_diagnostics")["content"][0]["text"]
        words = shlex.join([sys.executable, "-c", COMMAND])
        run = facts(client.call("run_command", command=words, wait_seconds=0))["run"]
        talk.listen()
        renamed(root / ".env", SECRET.format("new"))
        git("config", "user.name", "by git", directory=root)
        anyio.run(talk.until, "read('.env')", "PermissionError")
        anyio.run(talk.until, f"'{CANARY}' in read('.git/config')", "False")
        talk.end()
        said = client.call("wait_run", run=run, seconds=60)["content"][0]["text"]
    assert f"and closed again: {root}/.env, {root}/.git/config" in said
