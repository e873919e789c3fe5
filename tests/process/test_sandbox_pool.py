"""The sandbox pool: tiers, grants, masked files, limits, and what happens when one of its processes is killed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from coretools.config.limits import Limits
from coretools.config.operator_policy import ConfinementPolicy
from coretools.confinement import landlock
from coretools.confinement.toolchain_grants import ToolchainSources, user_toolchains
from coretools.errors import CannotStart, CoreError, InvalidArguments, Unsupported
from coretools.own_state import SCRATCH_FALLBACKS
from coretools.process.children.streams import TerminalSize
from coretools.process.fork_server import descendants, pool
from coretools.process.fork_server.client import PreforkedProcess
from coretools.process.fork_server.supervised_process import SUPERVISOR_LOST, StandardStreams, spawn_supervised
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import Directory, RootSpec
from coretools.roots.root_set import Roots
from tests.docker_profile import under_profile
from tests.process.tree import alive, children_of, is_alive, until, until_exists, until_exited, until_files
from tests.protocol.peer import command_line, peer, processes_with
from tests.starting import warm

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}

needs_namespaces = pytest.mark.skipif(
    landlock.abi() < landlock.ABI_REQUIRED or subprocess.run(["unshare", "-Ur", "true"], check=False).returncode != 0,
    reason="needs Landlock and user namespaces",
)
pytestmark = needs_namespaces

COMMAND = RunOptions(is_command=True)
PLAIN = ConfinementPolicy()
SHORT = Limits(grace_seconds=0.3)


def is_there(path: str | Path) -> bool:
    return os.path.lexists(path)


def _mode(path: str | Path) -> int:
    return os.stat(path).st_mode & 0o777


class SandboxedRunner:
    """A runner with a sandbox pool, and its directory."""

    def __init__(self, runner: Runner, mine: pool.SandboxPool, roots: Roots) -> None:
        self.runner = runner
        self.sandbox_pool = mine
        self._roots = roots

    async def run(self, *argv: str, directory: str = ".", options: RunOptions = COMMAND) -> Completed:
        with self.opened(directory) as opened:
            return await self.runner.run(argv, cwd=opened, options=options)

    def opened(self, directory: str = ".") -> Directory:
        """A working directory beneath a root."""
        return open_directory(self._roots, directory)

    async def sh(self, text: str, options: RunOptions = COMMAND) -> str:
        """Run shell text; return both outputs."""
        completed = await self.run("sh", "-c", text, options=options)
        return completed.stdout.text() + completed.stderr.text()


@asynccontextmanager
async def sandboxed(
    *folders: Path, policy: ConfinementPolicy = PLAIN, limits: Limits = SHORT, home: Path | None = None, cargo: str = ""
) -> AsyncIterator[SandboxedRunner]:
    environment = ENVIRONMENT | ({"HOME": str(home)} if home else {}) | ({"CARGO_HOME": cargo} if cargo else {})
    specs = [RootSpec(str(folder).removesuffix(":ro"), writable=not str(folder).endswith(":ro")) for folder in folders]
    with Roots(specs, deny=DenyRules(DEFAULT_DENY)) as roots:
        mine = pool.SandboxPool(roots, policy, environment)
        runner = Runner(limits, environment, sandbox_pool=mine)
        try:
            yield SandboxedRunner(runner, mine, roots)
        finally:
            await runner.close()


async def test_the_strongest_tier_is_used(tmp_path: Path) -> None:
    """confinement-1: found by trying; no stronger tier is missing."""
    async with sandboxed(tmp_path) as place:
        holding = await place.runner.prepare()
    assert (holding.tier, holding.missing, holding.is_permitted) == ("full", {}, True)


async def test_commands_start_although_the_home_of_cargo_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confinement-33: a relative CARGO_HOME, and the working directory of the server was removed since its start."""
    root, started = tmp_path / "root", tmp_path / "started"
    root.mkdir()
    started.mkdir()
    monkeypatch.chdir(started)
    started.rmdir()
    async with sandboxed(root, cargo="cargo") as place:
        assert await place.sh("echo here") == "here\n"


def test_a_missing_tier_is_reported(tmp_path: Path) -> None:
    """confinement-1: with the reason, at start and in the diagnostics."""
    with peer(tmp_path, before=under_profile()) as client:
        client.start_session()
        text = client.call("get_diagnostics")["content"][0]["text"]
        assert client.end() == 0
        assert client.process.stderr is not None
        log = client.process.stderr.read().decode()
    assert "commands are confined in tier: landlock" in text
    assert "tier full is not available: unshare: Operation not permitted" in text
    assert "command-view: missing (" in text
    has_signals = landlock.abi() >= landlock.SIGNAL_SCOPE_ABI
    assert ("command-end-at-once: missing (" in text) == (not has_signals and "command-group: missing (" in text)
    assert "commands are confined in tier: landlock; not full: unshare: Operation not permitted" in log


def test_a_required_tier_that_is_missing(tmp_path: Path) -> None:
    """confinement-11: the server does not start, and reports what is missing."""
    words = [
        *under_profile(),
        sys.executable,
        "-m",
        "coretools.servers.workstation",
        str(tmp_path),
        "--require-tier",
        "full",
    ]
    ended = warm.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 69
    assert "the operator requires tier 'full' for commands, which is unavailable here: full: unshare:" in ended.stderr


@pytest.mark.parametrize("is_allowed", [False, True])
def test_no_tier_at_all(tmp_path: Path, *, is_allowed: bool) -> None:
    """confinement-11: without confinement commands run only when the operator allows tier none by name."""
    before = [*under_profile(), sys.executable, "-m", "tests.confinement.without_landlock"]
    words = ["--allow-unconfined"] if is_allowed else []
    with peer(tmp_path, *words, before=before) as client:
        client.start_session()
        text = client.call("get_diagnostics")["content"][0]["text"]
        result = client.call("run_command", command="sh -c 'setsid sleep 1000 & echo made > marker'")
    assert "commands are confined in tier: none" in text
    assert "command-confinement: missing (" in text
    assert (tmp_path / "marker").exists() == is_allowed
    if is_allowed:
        assert result["_meta"]["coretools/facts"]["tier"] == "none"
        assert result["_meta"]["coretools/facts"]["stragglers_stopped"] == 1
    else:
        assert result["_meta"]["coretools/error"] == "unconfined"
        assert "--allow-unconfined" in result["content"][0]["text"]


async def test_network_opened_by_the_operator(tmp_path: Path) -> None:
    """confinement-12: a listener of the machine is reached only when the operator opens the network."""
    reach = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2).send(b'x')"
    for access in ("deny", "allow"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            async with sandboxed(tmp_path, policy=ConfinementPolicy(network=access)) as place:
                ended = await place.run(sys.executable, "-c", reach, str(server.getsockname()[1]))
            assert ended.ok == (access == "allow")


async def test_paths_opened_by_the_operator(tmp_path: Path) -> None:
    """confinement-13: for reading, or for writing too; nothing beside them."""
    for name in ("root", "readable", "given", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    policy = ConfinementPolicy(readable=(str(tmp_path / "readable"),), writable=(str(tmp_path / "given"),))
    async with sandboxed(tmp_path / "root", policy=policy) as place:
        output = await place.sh(
            f"cd {tmp_path}; cat readable/file given/file hidden/file; echo x > readable/new; echo x > given/new; ls"
        )
    assert output.startswith("readablegiven")
    assert "hidden" not in output.replace("hidden/file", "")
    assert not is_there(tmp_path / "readable" / "new")
    assert is_there(tmp_path / "given" / "new")


async def test_a_replaced_path_of_the_operator_is_read(tmp_path: Path) -> None:
    """confinement-34: a file, and a directory."""
    (tmp_path / "root").mkdir()
    readable, folder = tmp_path / "readable", tmp_path / "folder"
    async with sandboxed(tmp_path / "root", policy=ConfinementPolicy(readable=(str(readable), str(folder)))) as place:
        for text in ("first", "second"):
            (tmp_path / "fresh").mkdir()
            (tmp_path / "fresh" / "file").write_text(text)
            (tmp_path / "file").write_text(text)
            (tmp_path / "file").replace(readable)
            if folder.exists():
                folder.rename(tmp_path / "old")
            (tmp_path / "fresh").rename(folder)
            assert await place.sh(f"cat {readable} {folder}/file") == 2 * text


async def test_what_becomes_denied_is_masked(tmp_path: Path) -> None:
    """confinement-14: for the next command, whether it was created, replaced or moved; other files are not."""
    (tmp_path / "deep").mkdir()
    async with sandboxed(tmp_path) as place:
        assert "No such file" in await place.sh("cat .env deep/.env")
        (tmp_path / ".env").write_text("TOKEN=canary")
        assert "canary" not in await place.sh("cat .env")
        (tmp_path / "other").write_text("TOKEN=canary 2")
        assert "canary 2" in await place.sh("cat other")
        (tmp_path / "other").replace(tmp_path / ".env")
        assert "canary" not in await place.sh("cat .env")
        (tmp_path / ".env").rename(tmp_path / "deep" / ".env")
        assert "canary" not in await place.sh("cat deep/.env")


async def test_a_hidden_file_that_is_made_again_is_masked(tmp_path: Path) -> None:
    """confinement-14: also when it reuses the inode number of the old one, whose cover was removed with it."""
    async with sandboxed(tmp_path) as place:
        for turn in range(5):
            (tmp_path / ".env").write_text(f"TOKEN=canary {turn}")
            assert "canary" not in await place.sh("cat .env")
            (tmp_path / ".env").unlink()


async def test_a_repository_that_is_made_again_is_fixed(tmp_path: Path) -> None:
    """confinement-14: its control files become read-only again."""
    async with sandboxed(tmp_path) as place:
        for _ in range(5):
            await anyio.run_process(["git", "init", "-q", str(tmp_path)])
            await place.sh("printf x >> .git/config; rm .git/config; mv .git elsewhere")
            assert "bare = false" in (tmp_path / ".git" / "config").read_text()
            assert not (tmp_path / ".git" / "config").read_text().endswith("x")
            shutil.rmtree(tmp_path / ".git")


async def test_a_hidden_file_that_was_renamed_stays_hidden(tmp_path: Path) -> None:
    """confinement-25: whoever renamed it, into whatever directory."""
    (tmp_path / ".env").write_text("TOKEN=canary")
    (tmp_path / "deep").mkdir()
    async with sandboxed(tmp_path) as place:
        assert "canary" not in await place.sh("cat .env")
        (tmp_path / ".env").rename(tmp_path / "deep" / "notes.txt")
        assert "canary" not in await place.sh("cat deep/notes.txt")
        (tmp_path / "deep").rename(tmp_path / "elsewhere")
        assert "canary" not in await place.sh("cat elsewhere/notes.txt")


async def test_a_hidden_file_stays_hidden_in_a_git_directory(tmp_path: Path) -> None:
    """confinement-25: a command or a user may move it to a directory where file names are not checked for secrets."""
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    for name in (".env", ".env.local"):
        (tmp_path / name).write_text("TOKEN=canary")
    async with sandboxed(tmp_path) as place:
        assert "canary" not in await place.sh("cat .env .env.local")
        await place.sh("mv .env .git/objects/moved; mv .env.local notes")
        assert "canary" not in await place.sh("cat .git/objects/moved .env notes .env.local")
        for name in (".env", ".env.local"):
            if is_there(tmp_path / name):
                (tmp_path / name).rename(tmp_path / ".git" / "objects" / name.lstrip("."))
        assert "canary" not in await place.sh("cat .git/objects/*")


async def test_what_is_hidden_by_its_directory_stays_hidden_when_that_is_moved(tmp_path: Path) -> None:
    """confinement-25: a command that moves `.docker` opens neither `config.json` nor the files of `.ssh`."""
    for path in (".docker/config.json", "old/.ssh/plain.txt"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text('{"auth": "canary"}')
    async with sandboxed(tmp_path) as place:
        assert "canary" not in await place.sh("cat .docker/config.json")
        (tmp_path / ".docker").rename(tmp_path / "d2")
        (tmp_path / "old" / ".ssh").rename(tmp_path / "s2")
        output = await place.sh("cat d2/config.json s2/plain.txt")
        assert "canary" not in output
        await place.sh("mv d2 d3")
        assert "canary" not in await place.sh("cat d3/config.json d2/config.json")


async def test_a_new_file_with_the_inode_of_a_hidden_one_is_open(tmp_path: Path) -> None:
    """confinement-25: a reused inode number hides nothing."""
    async with sandboxed(tmp_path) as place:
        for _ in range(20):
            (tmp_path / ".env").write_text("TOKEN=canary")
            inode = (tmp_path / ".env").stat().st_ino
            assert "canary" not in await place.sh("cat .env")
            (tmp_path / ".env").unlink()
            (tmp_path / "new").write_text("plain")
            assert await place.sh("cat new") == "plain"
            is_given_again = (tmp_path / "new").stat().st_ino == inode
            (tmp_path / "new").unlink()
            if is_given_again:
                return
    pytest.skip("this file system does not reuse an inode number at once")


async def test_commands_that_wait_share_a_scan(tmp_path: Path) -> None:
    """confinement-27: one scan that starts after all of them asked serves them all."""
    async with sandboxed(tmp_path) as place:
        await place.runner.prepare()
        before = place.sandbox_pool.scans

        async def take() -> None:
            (await place.sandbox_pool.take_process()).close()

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(take)
        assert place.sandbox_pool.scans == before + 1
        await take()
        assert place.sandbox_pool.scans == before + 2


async def test_a_long_scan_lets_others_go_on(tmp_path: Path) -> None:
    """confinement-27: other tasks of the event loop run between its parts."""
    for number in range(3000):
        (tmp_path / str(number)).mkdir()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with sandboxed(tmp_path) as place, anyio.create_task_group() as tasks:
        await place.runner.prepare()
        for number in range(3000):
            (tmp_path / str(number) / "new").mkdir()
        tasks.start_soon(count)
        await anyio.lowlevel.checkpoint()
        seen = turns
        (await place.sandbox_pool.take_process()).close()
        assert turns >= seen + 5
        tasks.cancel_scope.cancel()


async def test_a_running_command_outlives_a_new_view(tmp_path: Path) -> None:
    """confinement-14: running commands continue, and end with the runner."""
    async with sandboxed(tmp_path) as place, anyio.create_task_group() as tasks:
        tasks.start_soon(place.sh, "echo up > up; while [ ! -e go ]; do sleep 0.01; done; echo done > done")
        await until_exists(tmp_path / "up")
        (tmp_path / ".env").write_text("TOKEN=canary")
        assert "canary" not in await place.sh("cat .env")
        (tmp_path / "go").touch()
        await until_exists(tmp_path / "done")


async def test_settings_that_a_command_makes(tmp_path: Path) -> None:
    """confinement-6: nothing can prevent a command from creating new ones; its result reports them."""
    (tmp_path / ".idea").mkdir()
    async with sandboxed(tmp_path) as place:
        ended = await place.run("mkdir", ".vscode")
        assert ended.changed_control_files == (f"{tmp_path}/.vscode",)
        assert (await place.run("touch", ".vscode/tasks.json")).exit_code == 1
        assert (await place.run("mkdir", "src")).changed_control_files == ()


async def test_a_read_only_root(tmp_path: Path) -> None:
    """confinement-15: commands run in it and cannot change it, nor its modes and times."""
    for name in ("root", "fixed"):
        (tmp_path / name).mkdir()
    (tmp_path / "fixed" / "file").write_text("content")
    (tmp_path / "fixed" / "file").chmod(0o644)
    async with sandboxed(tmp_path / "root", Path(f"{tmp_path / 'fixed'}:ro")) as place:
        ended = await place.run(
            "sh",
            "-c",
            "cat file; echo x > file; rm file; chmod 777 file; echo x > new",
            directory=str(tmp_path / "fixed"),
        )
    assert ended.stdout.text() == "content"
    assert os.listdir(tmp_path / "fixed") == ["file"]
    assert _mode(tmp_path / "fixed" / "file") == 0o644


async def test_home_and_temporary_files(tmp_path: Path) -> None:
    """confinement-16: the home is empty at first; it and /tmp are shared by the commands and deleted at the end."""
    async with sandboxed(tmp_path) as place:
        output = await place.sh("find ~ -maxdepth 1 -type f; echo 1 > ~/kept; echo 2 > /tmp/kept; echo 3 > $TMPDIR/t")
        assert output == ""
        assert await place.sh("cat ~/kept /tmp/kept /tmp/t") == "1\n2\n3\n"
        scratch = place.sandbox_pool.scratch
        assert _mode(scratch) == 0o700
    assert not is_there(scratch)
    assert not is_there(f"{ENVIRONMENT['HOME']}/kept")


def test_scratch_of_a_killed_server(tmp_path: Path) -> None:
    """confinement-16: the watchdog removes it too."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "root").mkdir()
    with peer(tmp_path / "root", environment={"TMPDIR": str(temporary)}) as client:
        client.start_session()
        client.call("run_command", command="sh -c 'mkdir -p /tmp/a/b; echo x > /tmp/a/b/c'")
        assert len(list(temporary.iterdir())) == 2  # the other one is for git
        client.process.kill()
    anyio.run(until_files, temporary, lambda: not list(temporary.iterdir()))


async def test_a_file_that_grows_too_large(tmp_path: Path) -> None:
    """confinement-17: SIGXFSZ ends its writer at the limit."""
    async with sandboxed(tmp_path, policy=ConfinementPolicy(file_bytes=65536)) as place:
        ended = await place.run("dd", "if=/dev/zero", "of=big", "bs=4096", "count=100")
    assert ended.signal == "SIGXFSZ"
    assert (tmp_path / "big").stat().st_size == 65536


async def test_a_process_that_takes_too_much_memory(tmp_path: Path) -> None:
    """confinement-17: further allocations fail."""
    hog = "a = bytearray(200 << 20)"
    async with sandboxed(tmp_path, policy=ConfinementPolicy(memory_bytes=100 << 20)) as place:
        ended = await place.run(sys.executable, "-c", hog)
    assert "MemoryError" in ended.stderr.text()


BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


async def test_a_command_of_too_many_processes(tmp_path: Path) -> None:
    """confinement-17: the whole command is ended, and its result gives the reason; the next command runs."""
    async with sandboxed(tmp_path, policy=ConfinementPolicy(processes=40)) as place:
        ended = await place.run(sys.executable, "-c", BOMB, "bomb-8a1c")
        assert ended.stopped_for == "too many processes"
        assert ended.stragglers_stopped >= 40
        assert await place.sh("echo on") == "on\n"
    assert processes_with("bomb-8a1c") == []


@pytest.mark.parametrize(
    ("argv", "error", "words"),
    [
        (("no-such-program",), CannotStart, "not found in PATH"),
        (("./no-such-program",), CannotStart, "no such program"),
        (("/etc",), CannotStart, "is a directory"),
        (("./folder",), CannotStart, "is a directory"),
        (("./plain",), CannotStart, "is not executable"),
        (("./lost",), CannotStart, "the interpreter that its first line names"),
        (("./formless",), CannotStart, "has no #! line"),
        (("true", "x" * 200_000), CannotStart, "argument list too long"),
        (("true", "a\0b"), InvalidArguments, "NUL"),
    ],
)
async def test_programs_that_can_not_be_started(
    tmp_path: Path, argv: tuple[str, ...], error: type[CoreError], words: str
) -> None:
    """confinement-18: each with its reason, and the attempt leaves nothing behind."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    for name, text in (("lost", "#!/no/such/interpreter\n"), ("formless", "\x01\x02")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    async with sandboxed(tmp_path) as place:
        with pytest.raises(error, match=words):
            await place.run(*argv)
        assert await place.sh("echo on") == "on\n"


async def test_a_program_out_of_sight(tmp_path: Path) -> None:
    """confinement-18: the error distinguishes a program that exists but is not readable for commands, and names the
    option."""
    (tmp_path / "root").mkdir()
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    async with sandboxed(tmp_path / "root") as place:
        with pytest.raises(CannotStart, match="which is hidden from commands; the operator can grant it"):
            await place.run(str(program))


async def test_a_removed_directory(tmp_path: Path) -> None:
    """confinement-18: the command is refused."""
    (tmp_path / "folder").mkdir()
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as roots:
        runner = Runner(Limits(), ENVIRONMENT, sandbox_pool=pool.SandboxPool(roots, ConfinementPolicy(), ENVIRONMENT))
        with open_directory(roots, "folder") as opened:
            (tmp_path / "folder").rmdir()
            with pytest.raises(CannotStart, match="the working directory is gone"):
                await runner.run(("true",), cwd=opened, options=RunOptions(is_command=True))
        await runner.close()


async def test_a_directory_that_was_exchanged(tmp_path: Path) -> None:
    """confinement-18: another directory of the same name is not used instead."""
    (tmp_path / "folder").mkdir()
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as roots:
        runner = Runner(Limits(), ENVIRONMENT, sandbox_pool=pool.SandboxPool(roots, ConfinementPolicy(), ENVIRONMENT))
        with open_directory(roots, "folder") as opened:
            (tmp_path / "folder").rename(tmp_path / "away")
            (tmp_path / "folder").mkdir()
            with pytest.raises(CannotStart, match="can't be the working directory"):
                await runner.run(("touch", "made"), cwd=opened, options=RunOptions(is_command=True))
        await runner.close()
    assert not is_there(tmp_path / "away" / "made")
    assert not is_there(tmp_path / "folder" / "made")


async def test_the_end_at_any_moment_of_the_preparation(tmp_path: Path) -> None:
    """confinement-46: it stops before its descriptors are closed; no process, descriptor or directory is left."""
    for number in range(1500):  # so that a scan takes many turns of the event loop
        (tmp_path / f"{number}").mkdir()
    descriptors, children = len(os.listdir("/proc/self/fd")), children_of(os.getpid())
    moments: dict[str, Callable[[pool.SandboxPool], object]] = {
        "before": lambda _: True,
        "scan": lambda mine: mine.scans,
        "start of the fork server": lambda _: len(children_of(os.getpid()) - children) > 1,
        "scan for control files": lambda mine: mine.tier,
    }
    for moment, is_reached in moments.items():
        async with sandboxed(tmp_path) as place, anyio.create_task_group() as tasks:
            tasks.start_soon(place.runner.prepare)
            await until(partial(is_reached, place.sandbox_pool))
            await place.runner.close()
            scans = place.sandbox_pool.scans
            await place.runner.prepare()
            assert place.sandbox_pool.scans == scans, f"{moment}: a scan goes on with closed descriptors"
            assert not is_there(place.sandbox_pool.scratch), moment
            assert children_of(os.getpid()) == children, moment
        assert len(os.listdir("/proc/self/fd")) <= descriptors, moment


@pytest.mark.parametrize("how", ["asked for", "given back"])
async def test_a_command_that_comes_while_the_fork_server_ends_is_dropped(tmp_path: Path, how: str) -> None:
    """confinement-20: the end of the server closes it from another thread; the request neither waits nor leaks a
    descriptor."""
    async with sandboxed(tmp_path) as place:
        await place.runner.prepare()
        client = place.sandbox_pool._client
        assert client is not None

        class Late(deque[PreforkedProcess]):
            def append(self, process: PreforkedProcess) -> None:
                client.close()  # at the worst moment: the end has just checked, and found none
                super().append(process)

        process = client.take()
        client._waiting = Late(client._waiting)
        if how == "given back":
            client.take_back(process)
        else:
            client.take().close()
            client.fill()
            process.close()
        assert not client._waiting
        assert (process.control.fileno(), process.requests.fileno()) == (-1, -1)


async def test_a_fork_server_that_takes_a_moment_to_end_is_no_error(tmp_path: Path) -> None:
    """confinement-19: one that was given up, and still runs when the next command starts."""
    async with sandboxed(tmp_path) as place:
        await place.runner.prepare()
        client = place.sandbox_pool._client
        assert client is not None
        [outside] = fork_servers(place)
        os.kill(outside, signal.SIGSTOP)
        client.close()
        assert (client.is_alive, client.is_gone) == (False, False)
        assert [await place.sh("echo on"), await place.sh("echo on")] == ["on\n", "on\n"]
        os.kill(outside, signal.SIGCONT)


def fork_servers(place: SandboxedRunner) -> list[int]:
    """The processes of the fork server of this pool."""
    client = place.sandbox_pool._client  # the pool does not publish the pid that the test kills
    assert client is not None
    return [client._process.pid]


async def test_a_fork_server_that_was_ended(tmp_path: Path) -> None:
    """confinement-19: its commands end with it, and the next command gets a new one."""
    token = f"1001.{os.getpid():09}"
    async with sandboxed(tmp_path) as place:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(place.sh, f"{_slow(token)}; sleep {token}")
            await until(lambda: _sleeping(token) and is_there(tmp_path / "up"))
            heavy = _heavy(token)
            for pid in fork_servers(place):
                os.kill(pid, signal.SIGKILL)
        assert (processes_with(token), is_alive(heavy)) == ([], False)
        assert await place.sh("echo on") == "on\n"


async def test_process_1_of_the_view_was_ended(tmp_path: Path) -> None:
    """confinement-19: a command runs right after it, although the process outside may not have noticed yet."""
    async with sandboxed(tmp_path) as place:
        await place.runner.prepare()
        for _ in range(5):
            [outside] = fork_servers(place)
            [first] = descendants.children(outside)
            os.kill(first, signal.SIGKILL)
            await until_exited(alive(first))
            assert await place.sh("echo on") == "on\n"


async def test_a_supervisor_that_was_ended(tmp_path: Path) -> None:
    """confinement-19: its command ends, with all descendants, and reports it; others continue."""
    token = f"1000.{os.getpid():09}"
    async with sandboxed(tmp_path) as place:
        ended: list[Completed] = []

        async def watch() -> None:
            ended.append(await place.run("sh", "-c", f"{_slow(token)}; sleep {token}"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await until(lambda: _sleeping(token) and is_there(tmp_path / "up"))
            heavy = _heavy(token)
            os.kill(_parent_of_shell(token), signal.SIGKILL)
        assert (processes_with(token), is_alive(heavy)) == ([], False)
        assert ended[0].stopped_for
        assert await place.sh("echo on") == "on\n"


async def test_a_command_that_ran_is_not_started_again(tmp_path: Path) -> None:
    """confinement-19: a busy server sees its start only when its supervisor has already been ended."""
    token = f"1001.5{os.getpid():09}"
    async with sandboxed(tmp_path) as place:
        await place.runner.prepare()
        process = await place.sandbox_pool.take_process()
        with place.opened() as cwd:
            argv = ("sh", "-c", f"sleep {token}; true")
            child = spawn_supervised(process, argv, cwd=cwd, environment=ENVIRONMENT, standard=StandardStreams())
        while not _sleeping(token):  # without `await`: the server is busy meanwhile
            os.sched_yield()
        supervisor = _parent_of_shell(token)
        os.kill(supervisor, signal.SIGKILL)
        while is_alive(supervisor):
            os.sched_yield()
        assert await child.failure() is None
        await child.wait()
        assert await child.finish() == 0
        assert child.stopped_for == SUPERVISOR_LOST
        child.close()


def _slow(token: str) -> str:
    """Shell text that starts a process whose exit takes a moment, because it has much memory to free.

    `_heavy` finds its pid as seen from outside: while it exits it has no command line.
    """
    code = "import signal; m = b'x' * (256 << 20); open('up', 'w'); signal.pause()"
    return f"""setsid {sys.executable} -c "{code}" {token} > /dev/null 2>&1 & true"""


def _heavy(token: str) -> int:
    [pid] = [pid for pid in processes_with(token) if command_line(pid).startswith(sys.executable)]
    return pid


def _parent_of_shell(token: str) -> int:
    """The supervisor of the command whose shell text contains the token."""
    [shell] = [pid for pid in processes_with(token) if command_line(pid).startswith("sh ")]
    return int(Path(f"/proc/{shell}/stat").read_text().rpartition(")")[2].split()[1])


def _sleeping(token: str) -> list[int]:
    """The processes that have executed their program; before that they look like their parent."""
    return [pid for pid in processes_with(token) if command_line(pid).startswith("sleep")]


async def test_many_at_once(tmp_path: Path) -> None:
    """confinement-21: 200 concurrent commands are all answered, and all descriptors are closed."""
    async with sandboxed(tmp_path) as place:
        await place.sh("true")
        before = len(os.listdir("/proc/self/fd"))
        outputs: list[str] = []

        async def one(number: int) -> None:
            outputs.append(await place.sh(f"echo {number}"))

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number)
        assert sorted(map(int, outputs)) == list(range(200))
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before + 8)


async def test_a_terminal(tmp_path: Path) -> None:
    """confinement-22: the program gets a terminal of its own, with a size and the interrupt key."""
    options = RunOptions(is_command=True, terminal=TerminalSize(rows=30, columns=90), timeout_seconds=20)
    async with sandboxed(tmp_path) as place:
        output = await place.sh("test -t 0 && stty size && echo ok > /dev/tty && ps -o tty= -p $$", options)
    lines = output.split()
    assert lines[:3] == ["30", "90", "ok"]


async def test_output_in_no_encoding_and_closed_outputs(tmp_path: Path) -> None:
    """confinement-18: undecodable bytes are replaced; a program that closes its outputs is waited for."""
    async with sandboxed(tmp_path) as place:
        assert "�" in await place.sh(r"printf '\377\376'")
        ended = await place.run("sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 3")
    assert ended.exit_code == 3


def test_a_read_only_root_without_confinement(tmp_path: Path) -> None:
    """confinement-15: in tier none nothing runs there, whatever else the operator allows."""
    (tmp_path / "root").mkdir()
    with peer(
        f"{tmp_path / 'root'}:ro",
        "--allow-unconfined",
        before=[*under_profile(), sys.executable, "-m", "tests.confinement.without_landlock"],
    ) as client:
        client.start_session()
        result = client.call("run_command", command="touch made")
    assert result["_meta"]["coretools/error"] == "read-only"
    assert not list((tmp_path / "root").iterdir())


def test_a_root_that_was_replaced(tmp_path: Path) -> None:
    """confinement-3: also in tier landlock the directory is granted that was opened, not the one that has its path
    now."""
    root = tmp_path / "root"
    root.mkdir()
    with peer(root, before=under_profile()) as client:
        client.start_session()
        root.rename(tmp_path / "moved")
        root.mkdir()
        (root / "canary").write_text("canary-5e1b")
        result = client.call("run_command", command=f"sh -c 'touch made; cat canary {root}/canary'")
    assert "canary-5e1b" not in result["content"][0]["text"]
    assert not is_there(root / "made")


async def test_no_place_for_temporary_files(tmp_path: Path) -> None:
    """confinement-18: commands are refused with the reason; other children run."""
    for every_place in ((tempfile.gettempdir(), *SCRATCH_FALLBACKS), ("/",)):
        async with sandboxed(tmp_path, policy=replace(PLAIN, writable=every_place)) as place:
            with pytest.raises(Unsupported, match="no directory for the temporary files of commands"):
                await place.run("true")
            assert (await place.run("true", options=RunOptions())).ok


def test_temporary_files_are_out_of_reach(tmp_path: Path) -> None:
    """confinement-16: they are never beneath a root, wherever TMPDIR points: a command could replace them there."""
    for name, is_used in (("beside", True), ("root", False)):
        root, temporary = tmp_path / name / "root", tmp_path / name / name
        for directory in (root, temporary):
            directory.mkdir(parents=True, exist_ok=True)
        with peer(root, environment={"TMPDIR": str(temporary)}) as client:
            client.start_session()
            assert not client.call("run_command", command="true").get("isError")
            assert bool(os.listdir(temporary)) is is_used, name


async def test_commands_do_not_control_the_path_to_a_root(tmp_path: Path) -> None:
    """confinement-3, confinement-16: a root beneath the home, which a command fills with links before the next view;
    what contains the root is read-only, since nothing written there would stay."""
    project, outside = tmp_path / "home" / "code" / "of" / "project", tmp_path / "outside"
    inner = project.parent / "group" / "inner"
    for path in (project, inner, outside):
        path.mkdir(parents=True)
    (project / "file").write_text("content")
    async with sandboxed(project, inner, home=tmp_path / "home") as place:
        output = await place.sh(
            f"cd ~ && mv code code2 && ln -s {outside} code && echo A=1 > code2/of/project/.env && echo done"
        )
        assert output == "done\n"
        assert await place.sh("cat file") == "content"
        assert await place.sh(f"echo x > {inner}/x && echo x > ~/x && echo x > ~/code/x; ls ..") == "group\nproject\n"
        assert (inner / "x").is_file()
        for line in ("> ../x", "mkdir ../x", "mv ../group ../x", f"> {inner}/../x", "mv ~/code/of ~/code/x"):
            assert "refused" in await place.sh(f"sh -c '{line}' 2> /dev/null || echo refused"), line
    assert os.listdir(outside) == []


async def test_a_tier_in_use_is_not_replaced_by_a_weaker_one(tmp_path: Path) -> None:
    """confinement-1: when tier full cannot be set up again, commands are refused, not confined by a weaker tier."""
    (tmp_path / ".env").write_text("TOKEN=canary")
    async with sandboxed(tmp_path) as place:
        await place.run("true")
        home, away = f"{place.sandbox_pool.scratch}/home", f"{place.sandbox_pool.scratch}/away"
        os.rename(home, away)
        os.mkdir(home)
        for pid in fork_servers(place):
            os.kill(pid, signal.SIGKILL)
            await until_exited(alive(pid))
        with pytest.raises(Unsupported, match="was replaced"):
            await place.run("cat", ".env")
        os.rmdir(home)
        os.rename(away, home)
        assert "canary" not in await place.sh("cat .env")
        assert place.sandbox_pool.tier == "full"


HIDE = {
    "closed": ("chmod 0 src", "chmod 700 src; cat src/.env"),
    "not listed": ("chmod 300 src", "cat src/.env"),
    "deep": (
        "n=$(printf 'x%.0s' $(seq 200)); for i in $(seq 22); do mkdir $n && cd -P $n; done; mv {root}/src src",
        "n=$(printf 'x%.0s' $(seq 200)); while [ -d $n ]; do cd -P $n || break; done; cat src/.env",
    ),
}


@pytest.mark.parametrize("name", HIDE)
async def test_a_directory_that_can_not_be_scanned_is_closed(tmp_path: Path, name: str) -> None:
    """confinement-5: a directory that a command makes unreadable for the scan is closed as a whole to the next
    command."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / ".env").write_text("TOKEN=canary")
    hide, read = HIDE[name]
    async with sandboxed(tmp_path) as place:
        await place.sh(hide.format(root=tmp_path))
        assert "canary" not in await place.sh(read)


async def test_files_that_make_git_run_code_are_reported(tmp_path: Path) -> None:
    """confinement-6: files of a git directory that redirect git, and a new repository itself."""
    async with sandboxed(tmp_path) as place:
        assert (await place.run("git", "init", "-q")).changed_control_files == (f"{tmp_path}/.git",)
        ended = await place.run("sh", "-c", "echo '[core]' > .git/config.worktree")
        assert ended.changed_control_files == (f"{tmp_path}/.git/config.worktree",)


def test_a_home_is_no_tool_chain(tmp_path: Path) -> None:
    """confinement-16: a PATH entry `bin` of a home grants nothing above it, nor does a link into a project."""
    for name in ("home/bin", "home/lib", "home/.ssh", "work/bin", "work/lib", "work/.git", "chain/bin", "chain/lib"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work" / "bin" / "run").touch()
    (tmp_path / "home" / "bin" / "run").symlink_to(tmp_path / "work" / "bin" / "run")
    folders = [str(tmp_path / name / "bin") for name in ("home", "chain")]
    sources = ToolchainSources(environment={"PATH": os.pathsep.join(folders)}, home="/nonexistent")
    paths = [grant.path for grant in user_toolchains(sources).grants if grant.path.startswith(str(tmp_path))]
    assert paths == [str(tmp_path / "chain"), str(tmp_path / "home" / "bin")]


async def test_a_cancel_at_any_moment_of_a_start(tmp_path: Path) -> None:
    """confinement-20: leaves no command that starts nevertheless."""
    token = f"1000.7{os.getpid():09}"
    async with sandboxed(tmp_path) as place:
        await place.run("true")
        for step in range(80):
            with anyio.move_on_after(step * 0.0002):
                await place.run("sleep", token)
        await until_exited(lambda: processes_with(token))
        assert await place.sh("echo on") == "on\n"
