"""The start commands of the image, run with a root directory of their own (docs/specs/containers.md)."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import Process
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from coretools.config.commit_author import Author
from coretools.web.auth.hashed_tokens import create_token
from tests.fresh_root import Mounted, missing, words_for
from tests.image import COMPOSE, compose, environment_of, filled, last

USER = 10001
OWNER = 4242
"""Owner of a work tree; no file names this user."""
INSIDE = "/run/secrets/coretools/tokens"

LACKING = missing()
needs_root = pytest.mark.skipif(bool(LACKING), reason=LACKING)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """Directories for a container: an empty one for its root, a repository and a token file of its user."""
    for name in ("root", "work", "secrets"):
        (tmp_path / name).mkdir()
    repository = tmp_path / "work"
    (repository / "a.txt").write_text("one\n")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=repository, check=True, timeout=60)
    for path in (repository, *repository.rglob("*"), tmp_path / "secrets"):
        os.chown(path, USER, USER)
    return tmp_path


def started(target: str, mounted: Path, *arguments: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """The command that the image runs with these arguments and variables."""
    return words_for(
        [*last(target, "ENTRYPOINT").value, *arguments],
        {**environment_of(target), **variables},
        Mounted(at=mounted / "root", work=mounted / "work", secrets=mounted / "secrets"),
        directory=last(target, "WORKDIR").value[0],
    )


async def text_of_call(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, dict(arguments))
    return result.content[0].text if result.content else ""  # type: ignore[union-attr]  # text is all that these send


@needs_root
async def test_the_workstation_serves_one_client_over_its_standard_streams(mounted: Path) -> None:
    """container-15, runs-20: as user 10001, in a root that it cannot change, with git; diagnostics name the tier."""
    words, variables = started("workstation", mounted, "/work")
    server = StdioServerParameters(command=words[0], args=words[1:], env=variables)
    with anyio.fail_after(60):
        async with Client(stdio_client(server)) as client:
            assert await text_of_call(client, "read_file", path="a.txt") == "one\n"
            assert "first" in await text_of_call(client, "git_log")
            assert "created" in await text_of_call(client, "write_file", path="b.txt", content="two\n")
            answer = await text_of_call(
                client, "run_command", command="sh -c 'id -u; touch /usr/x; cat /proc/1/environ'"
            )
            assert re.search(rf"^{USER}$", answer, re.MULTILINE)
            assert "Read-only file system" in answer
            assert "confined in tier: landlock" in await text_of_call(client, "get_diagnostics")
            refused = await text_of_call(client, "run_command", command="true", terminal="80x24")
            assert "no terminal can be made for the command" in refused  # this root has no /dev/pts
            assert "/dev/pts" in refused
    assert (mounted / "work" / "b.txt").stat().st_uid == USER
    assert list((mounted / "root").iterdir()) == []


def started_http(mounted: Path) -> tuple[list[str], dict[str, str]]:
    """The image's command with minimal options, on a free port."""
    return started(
        "http",
        mounted,
        CORETOOLS_HTTP_SERVER__PORT="0",
        CORETOOLS_HTTP_SERVER__HOSTS="localhost:*",
        CORETOOLS_HTTP_SERVER__ALLOW_PLAIN_HTTP="true",
        CORETOOLS_HTTP_AUTH__TOKENS=INSIDE,
    )


@asynccontextmanager
async def served(words: list[str], variables: dict[str, str]) -> AsyncIterator[tuple[Process, int]]:
    """The HTTP server of the image, once it listens."""
    async with await anyio.open_process(words, env=variables, stdin=None, stdout=None) as process:
        try:
            yield process, await port_of(process)
        finally:
            if process.returncode is None:
                # Process 1, and with it its whole namespace: it has another user, so `unshare` does not end it.
                os.kill(first_of(process.pid), signal.SIGKILL)
                await process.wait()


async def port_of(process: Process) -> int:
    """The port that its log names. The rest of the log is not read."""
    assert process.stderr is not None
    text = b""
    async for chunk in process.stderr:
        text += chunk
        if found := re.search(rb"listening on http://0\.0\.0\.0:(\d+)/mcp", text):
            return int(found[1])
    raise AssertionError(text.decode())


def first_of(unshare: int) -> int:
    """The pid of the namespace's process 1 as seen from outside."""
    (child,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    return int(child)


def checked(port: int) -> int:
    """The exit code of the image's own check of a server at a port."""
    check = last("http", "HEALTHCHECK").value[2:]
    variables = {**environment_of("http"), "PATH": os.environ["PATH"], "CORETOOLS_HTTP_SERVER__PORT": str(port)}
    return subprocess.run([sys.executable, *check], env=variables, capture_output=True, timeout=60).returncode


@needs_root
async def test_the_http_server_serves_both_eras_and_ends_at_term(mounted: Path) -> None:
    """container-15, container-16, container-11: the image's health check passes; no command reads a token."""
    _, token = create_token(str(mounted / "secrets" / "tokens"), name="ada", role="default")
    os.chown(mounted / "secrets" / "tokens", USER, USER)
    headers = {"Authorization": f"Bearer {token}"}
    with anyio.fail_after(90):
        async with served(*started_http(mounted)) as (process, port):
            assert checked(port) == 0
            for mode in ("auto", "legacy"):
                async with (
                    httpx2.AsyncClient(headers=headers) as http,
                    Client(streamable_http_client(f"http://localhost:{port}/mcp", http_client=http), mode=mode) as one,
                ):
                    assert await text_of_call(one, "read_file", path="a.txt") == "one\n"
                    answer = await text_of_call(one, "run_command", command=f"sh -c 'id -u; cat {INSIDE}'")
                    assert answer.startswith("[exit code 1]\n10001\n"), answer
                    assert "sha256" not in answer
            os.kill(first_of(process.pid), signal.SIGTERM)
            await process.wait()
    assert process.returncode == 128 + signal.SIGTERM
    assert checked(port) == 1


def as_composed(mounted: Path, **given: str) -> tuple[list[str], dict[str, str]]:
    """The command that Compose starts as the service `http`, by the unchanged file; `given` is the content of `.env`.

    Only the port is another one, which is free, with the names that contain it.
    """
    service = compose(given)["services"]["http"]
    variables = {**environment_of("http"), **service["environment"]}
    variables |= {"CORETOOLS_HTTP_SERVER__PORT": "0", "CORETOOLS_HTTP_SERVER__HOSTS": "localhost:*"}
    targets = {volume["target"]: Path(volume["source"]) for volume in service["volumes"]}
    (options,) = {tmpfs.partition(":")[2] for tmpfs in service["tmpfs"]}
    return words_for(
        last("http", "ENTRYPOINT").value,
        {name: filled(value) for name, value in variables.items()},
        Mounted(
            at=mounted / "root",
            work=targets["/work"],
            secrets=targets["/run/secrets/coretools"],
            config=targets["/run/config"],
            tmp_options=options,
            user=int(service["user"].partition(":")[0]),
        ),
        directory=last("http", "WORKDIR").value[0],
    )


@pytest.fixture
def site(mounted: Path) -> tuple[Path, dict[str, str], dict[str, str]]:
    """Directories as documented, with metrics, all owned by one user; the content of `.env`; and the tokens."""
    hashes = str(mounted / "secrets" / "tokens")
    authors = {"ada": Author("Ada", "ada@example.com"), "bob": Author("Bob", "bob@example.com"), "cat": None}
    tokens = {name: create_token(hashes, name=name, role="dev", author=author)[1] for name, author in authors.items()}
    tokens["eve"] = create_token(hashes, name="eve", role="review")[1]
    tokens["prometheus"] = create_token(str(mounted / "secrets" / "metrics"), name="prometheus", role="dev")[1]
    shutil.copytree(COMPOSE.parent / "config", mounted / "config")
    file = mounted / "config" / "coretools.toml"
    file.write_text(file.read_text().replace("# [metrics]\n# tokens", "[metrics]\ntokens"))
    for top in (mounted / "work", mounted / "secrets", mounted / "config"):
        top.chmod(0o755)
        for path in (top, *top.rglob("*")):
            os.chown(path, OWNER, OWNER)
    given = {
        "UID": str(OWNER),
        "GID": str(OWNER),
        "CORETOOLS_WORK": str(mounted / "work"),
        "CORETOOLS_SECRETS": str(mounted / "secrets"),
        "CORETOOLS_CONFIG": str(mounted / "config"),
        "CORETOOLS_UMASK": "007",
    }
    return mounted, given, tokens


@asynccontextmanager
async def connected(port: int, token: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(f"http://localhost:{port}/mcp", http_client=http)) as client,
    ):
        yield client


NAMES = {
    "ada": "Ada <ada@example.com>",
    "bob": "Bob <bob@example.com>",
    "cat": "Development <dev@coretools.invalid>",
}
"""The author of each principal: by the token, else by the role in `config/coretools.toml`."""

PROGRAM = """
import multiprocessing.shared_memory, os, socket, unittest
class Works(unittest.TestCase):
    def test_loopback(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).close()
    def test_semaphores_and_shared_memory(self):
        with multiprocessing.Lock():
            multiprocessing.shared_memory.SharedMemory(create=True, size=1).unlink()
    def test_temporary_files(self):
        import tempfile
        tempfile.NamedTemporaryFile().close()
        tempfile.NamedTemporaryFile(dir="/tmp").close()
    def test_new_files_are_the_groups(self):
        os.close(os.open("made", os.O_CREAT, 0o666))
        self.assertEqual(os.stat("made").st_mode & 0o777, 0o660)
        os.remove("made")
"""


async def work(client: Client, name: str) -> None:
    """Typical calls of one principal in a work tree of its own."""
    await text_of_call(client, "run_command", command=f"git worktree add -q -b {name} {name}")
    assert "created" in await text_of_call(client, "write_file", path=f"{name}/test_it.py", content=PROGRAM)
    assert (
        "ran 4 tests"
        in (await text_of_call(client, "run_command", command="python3 -m unittest", directory=name)).lower()
    )
    assert "staged 1" in await text_of_call(client, "git_add", repository=name, paths=[f"{name}/test_it.py"])
    assert "committed" in await text_of_call(client, "git_commit", repository=name, message="by tool")
    for command in (
        "git commit -q --allow-empty -m 'by command'",
        "sh -c 'echo >>a.txt; git stash -q; git stash pop -q; git checkout -q a.txt'",
        "git rebase -q HEAD~1",
        f"git worktree add -q -b {name}-more sub",
        "git worktree remove sub",
    ):
        assert "[exit code 0" in await text_of_call(client, "run_command", command=command, directory=name), command
    assert "commits are pushed by a person" in await text_of_call(
        client, "run_command", command="git push", directory=name
    )


@needs_root
async def test_a_team_works_with_the_unchanged_compose_file(
    site: tuple[Path, dict[str, str], dict[str, str]],
) -> None:
    """container-19: as the owner of the tree, a user whom no file names; each principal with its own author name, by
    the policy. Of another's process a command sees the arguments and nothing else."""
    mounted, given, tokens = site
    with anyio.fail_after(120):
        async with served(*as_composed(mounted, **given)) as (_, port):
            async with anyio.create_task_group() as tasks:
                for name in ("ada", "bob", "cat"):
                    tasks.start_soon(worked, port, tokens[name], name)
            async with connected(port, tokens["ada"]) as ada, connected(port, tokens["bob"]) as bob:
                await see_only_arguments(ada, bob)
            assert [await metrics_status(port, tokens[name]) for name in ("prometheus", "ada")] == [200, 401]
            async with connected(port, tokens["eve"]) as eve:
                assert await text_of_call(eve, "read_file", path="a.txt") == "one\n"
                assert not {"write_file", "git_commit", "run_command"} & {
                    tool.name for tool in (await eve.list_tools()).tools
                }
    for name, author in NAMES.items():
        assert last_commits(mounted / "work", name) == [f"{author}|{author}|by {way}" for way in ("command", "tool")]
    made = (mounted / "work" / "ada" / "test_it.py").stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (OWNER, OWNER, 0o660)


MEDDLE = """
import os, signal
def outcome(attempt):
    try:
        return attempt()
    except PermissionError:
        return "refused"
for pid in filter(str.isdecimal, os.listdir("/proc")):
    words = outcome(lambda: open(f"/proc/{pid}/cmdline").read().split(chr(0)))
    if "confidential" in words:
        tries = (
            lambda: os.kill(int(pid), signal.SIGKILL),
            lambda: open(f"/proc/{pid}/environ").read(),
            lambda: open(f"/proc/{pid}/mem", "rb"),
            lambda: os.readlink(f"/proc/{pid}/fd/1"),
            lambda: open(f"/proc/{pid}/fd/1"),
        )
        print("seen", {outcome(attempt) for attempt in tries})
"""


async def see_only_arguments(ada: Client, bob: Client) -> None:
    """Reach for a process of one principal in a command of another one (confinement-7)."""
    sleeping = ["python3", "-c", "import time; print('ready', flush=True); time.sleep(300)", "confidential"]
    run = (await text_of_call(ada, "run_command", command=sleeping, wait_seconds=0)).split()[0].strip("[")
    assert "ready" in await text_of_call(ada, "wait_run", run=run, pattern="ready", seconds=60)
    met = (await text_of_call(bob, "run_command", command=["python3", "-c", MEDDLE])).splitlines()
    assert met, "the process was not seen"
    assert set(met) == {"seen {'refused'}"}
    assert "running" in await text_of_call(ada, "list_runs")
    await text_of_call(ada, "stop_run", run=run)


async def metrics_status(port: int, token: str) -> int:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60) as http:
        return (await http.get(f"http://localhost:{port}/metrics")).status_code


def last_commits(repository: Path, branch: str) -> list[str]:
    command = ["git", "-c", "safe.directory=*", "log", "-2", "--format=%an <%ae>|%cn <%ce>|%s", f"refs/heads/{branch}"]
    return subprocess.check_output(command, cwd=repository, text=True, timeout=60).splitlines()


async def worked(port: int, token: str, name: str) -> None:
    async with connected(port, token) as client:
        await work(client, name)
