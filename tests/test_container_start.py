"""The start commands of the image, run as it would run them, in a root of its own (docs/specs/containers.md)."""

import os
import re
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

from coretools.serving.web.auth.hashed_tokens import create_token
from tests.fresh_root import missing, words_for
from tests.image import environment_of, last

USER = 10001
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
    """What the image would run with these arguments and variables."""
    return words_for(
        [*last(target, "ENTRYPOINT").value, *arguments],
        {**environment_of(target), **variables},
        at=mounted / "root",
        work=mounted / "work",
        secrets=mounted / "secrets",
        directory=last(target, "WORKDIR").value[0],
    )


async def said(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, dict(arguments))
    return result.content[0].text if result.content else ""  # type: ignore[union-attr]  # text is all that these send


@needs_root
async def test_the_workstation_serves_one_client_over_its_standard_streams(mounted: Path) -> None:
    """container-15: as user 10001, in a root that it can't change, with git and a confinement that is told."""
    words, variables = started("workstation", mounted, "/work")
    server = StdioServerParameters(command=words[0], args=words[1:], env=variables)
    with anyio.fail_after(60):
        async with Client(stdio_client(server)) as client:
            assert await said(client, "read_file", path="a.txt") == "one\n"
            assert "first" in await said(client, "git_log")
            assert "created" in await said(client, "write_file", path="b.txt", content="two\n")
            answer = await said(client, "run_command", command="sh -c 'id -u; touch /usr/x; cat /proc/1/environ'")
            assert re.search(rf"^{USER}$", answer, re.MULTILINE)
            assert "Read-only file system" in answer
            assert "held in tier: landlock" in await said(client, "get_diagnostics")
    assert (mounted / "work" / "b.txt").stat().st_uid == USER
    assert list((mounted / "root").iterdir()) == []


@asynccontextmanager
async def served(mounted: Path) -> AsyncIterator[tuple[Process, int]]:
    """The HTTP server of the image on a free port, once it listens."""
    words, variables = started(
        "http",
        mounted,
        CORETOOLS_HTTP_SERVER__PORT="0",
        CORETOOLS_HTTP_SERVER__HOSTS="localhost:*",
        CORETOOLS_HTTP_SERVER__ALLOW_PLAIN_HTTP="true",
        CORETOOLS_HTTP_AUTH__TOKENS=INSIDE,
    )
    async with await anyio.open_process(words, env=variables, stdin=None, stdout=None) as process:
        try:
            yield process, await port_of(process)
        finally:
            if process.returncode is None:
                process.kill()  # `unshare` takes the whole namespace of processes with it


async def port_of(process: Process) -> int:
    """Where it says that it listens. Nobody reads on: what a log's reader does not take is dropped."""
    assert process.stderr is not None
    text = b""
    async for chunk in process.stderr:
        text += chunk
        if found := re.search(rb"listening on http://0\.0\.0\.0:(\d+)/mcp", text):
            return int(found[1])
    raise AssertionError(text.decode())


def first_of(unshare: int) -> int:
    """The number that process 1 of the namespace has outside of it."""
    (child,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    return int(child)


def checked(port: int) -> int:
    """The exit code of the image's own check of a server at a port."""
    check = last("http", "HEALTHCHECK").value[2:]
    variables = {**environment_of("http"), "PATH": os.environ["PATH"], "CORETOOLS_HTTP_SERVER__PORT": str(port)}
    return subprocess.run([sys.executable, *check], env=variables, capture_output=True, timeout=60).returncode


@needs_root
async def test_the_http_server_serves_both_eras_and_ends_when_told(mounted: Path) -> None:
    """container-15, container-16, container-11: the check of the image says that it lives; no command reads a token."""
    _, token = create_token(str(mounted / "secrets" / "tokens"), name="ada", role="default")
    os.chown(mounted / "secrets" / "tokens", USER, USER)
    headers = {"Authorization": f"Bearer {token}"}
    with anyio.fail_after(90):
        async with served(mounted) as (process, port):
            assert checked(port) == 0
            for mode in ("auto", "legacy"):
                async with (
                    httpx2.AsyncClient(headers=headers) as http,
                    Client(streamable_http_client(f"http://localhost:{port}/mcp", http_client=http), mode=mode) as one,
                ):
                    assert await said(one, "read_file", path="a.txt") == "one\n"
                    answer = await said(one, "run_command", command=f"sh -c 'id -u; cat {INSIDE}'")
                    assert answer.startswith("[exit code 1]\n10001\n"), answer
                    assert "sha256" not in answer
            os.kill(first_of(process.pid), signal.SIGTERM)
            await process.wait()
    assert process.returncode == 128 + signal.SIGTERM
    assert checked(port) == 1
