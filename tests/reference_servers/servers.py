"""The servers of others: how each is started, over stdio by our client, over HTTP here and on a free port."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import without

HERE = Path(__file__).parent
NODE_MODULES = HERE / "node" / "node_modules"
PYTHON = HERE / "python" / "venv" / "bin"

EVERYTHING = NODE_MODULES / "@modelcontextprotocol/server-everything/dist/index.js"
TYPESCRIPT_EXAMPLE = NODE_MODULES / "@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js"
FASTMCP = HERE / "fastmcp_server.py"

LISTENING = "0A"
"""State of a socket in /proc/net/tcp (proc_pid_net(5))."""


@pytest.fixture(scope="session")
def node() -> str:
    """The Node.js of the reference servers."""
    if not EVERYTHING.exists():
        without("npm reference servers: run `npm ci` in tests/reference_servers/node")
    return str(NODE_MODULES / ".bin" / "node")


@pytest.fixture(scope="session")
def python() -> str:
    """The Python of the reference servers."""
    if not (PYTHON / "fastmcp").exists():
        without(
            "PyPI reference servers: run `python3 -m venv venv && venv/bin/pip install --no-deps -r requirements.txt`"
            " in tests/reference_servers/python"
        )
    if sys.platform != "linux":
        without("/proc, which says on which port a server of others listens")
    return str(PYTHON / "python")


def local_servers(node: str, python: str, folder: Path, repository: Path) -> dict[str, Any]:
    """Return the entries of the servers over stdio; `folder` is given to the file server, and keeps the memory."""
    scoped = NODE_MODULES / "@modelcontextprotocol"
    return {
        "everything": {"command": node, "args": [str(EVERYTHING), "stdio"]},
        "filesystem": {"command": node, "args": [str(scoped / "server-filesystem/dist/index.js"), str(folder)]},
        "memory": {
            "command": node,
            "args": [str(scoped / "server-memory/dist/index.js")],
            "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
        },
        "git": {"command": str(PYTHON / "mcp-server-git"), "args": ["--repository", str(repository)]},
        "fetch": {"command": str(PYTHON / "mcp-server-fetch"), "args": ["--ignore-robots-txt", "--allow-private-ips"]},
        "fastmcp": {"command": python, "args": [str(FASTMCP)]},
    }


@contextmanager
def remote_servers(node: str, python: str) -> Iterator[dict[str, Any]]:
    """Start the servers over HTTP and yield their entries."""
    with (
        _listening([node, str(EVERYTHING), "streamableHttp"], "listening on") as everything,
        _listening([node, str(EVERYTHING), "sse"], "running on") as everything_sse,
        _listening([node, str(TYPESCRIPT_EXAMPLE)], "listening on") as example,
        _listening([python, str(FASTMCP), "http"], "running on http") as fastmcp,
    ):
        yield {
            "everything-http": {"type": "http", "url": f"http://127.0.0.1:{everything}/mcp"},
            "everything-sse": {"type": "sse", "url": f"http://127.0.0.1:{everything_sse}/sse"},
            "typescript-http": {"type": "http", "url": f"http://127.0.0.1:{example}/mcp"},
            "fastmcp-http": {"type": "http", "url": f"http://127.0.0.1:{fastmcp}/mcp"},
        }


@contextmanager
def _listening(argv: Sequence[str], announcement: str) -> Iterator[int]:
    """Start a server that takes any free port, and yield the port."""
    environment = {**os.environ, "PORT": "0", "MCP_PORT": "0", "MCP_AUTH_PORT": "0", "NO_COLOR": "1"}
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            seen = []
            for line in process.stdout:
                seen.append(line)
                if announcement in line.lower():
                    break
            else:
                pytest.fail(f"{argv}: {''.join(seen)}")
            yield _port_of(process.pid)
        finally:
            process.kill()


def _port_of(pid: int) -> int:
    """Return the port on which a process listens."""
    own = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENING and f"socket:[{inode}]" in own:
                return int(local.rpartition(":")[2], 16)
    pytest.fail(f"process {pid} listens on no port")
