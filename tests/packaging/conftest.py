"""Distributions built from this tree, and installers that know no other index than one on this machine.

The installers, the packer of bundles and the wheels come from `.ci/run`; without them these tests are skipped by name.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.checkout import TREE
from tests.clients.conftest import without
from tests.packaging.loopback_index import serving

HERE = Path(__file__).parent
TOOLS = HERE / "python" / "venv" / "bin"
WHEELS = HERE / "python" / "wheels"
MCPB = HERE / "node" / "node_modules" / ".bin" / "mcpb"

EPOCH = "1764288000"
SECONDS = 280
"""For one program: most of the time a busy machine compiles modules that nobody has imported before."""

SLOW_SECONDS = 300

Run = Callable[..., subprocess.CompletedProcess[str]]


def build(version: str, folder: Path, *, tree: Path = TREE, target: str = "") -> list[Path]:
    """Build the source distribution and the wheel, or one of them, of a version; empty: the version of the tree."""
    named = {"SETUPTOOLS_SCM_PRETEND_VERSION": version} if version else {}
    environment = {**os.environ, **named, "SOURCE_DATE_EPOCH": EPOCH}
    words = ("-t", target) if target else ()
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *words],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheel and source distribution of version 1.0, and the wheel of 2.0."""
    folder = tmp_path_factory.mktemp("dist")
    return [*build("1.0", folder / "1"), *build("2.0", folder / "2", target="wheel")]


@pytest.fixture(scope="session")
def wheels() -> Path:
    if not WHEELS.is_dir():
        without("wheels of the dependencies: run .ci/run, or its `pip download`")
    return WHEELS


@pytest.fixture(scope="session")
def tools() -> Path:
    if not (TOOLS / "uv").exists():
        without("installers: install tests/packaging/python/requirements.txt in tests/packaging/python/venv")
    return TOOLS


@pytest.fixture(scope="session")
def mcpb() -> Path:
    if not MCPB.exists():
        without("the packer of MCP bundles: run `npm ci` in tests/packaging/node")
    return MCPB


@pytest.fixture(scope="session")
def index(distributions: list[Path], wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an index with our distributions and the wheels of everything that they need."""
    with serving([*distributions, *wheels.iterdir()], tmp_path_factory.mktemp("index")) as url:
        yield url


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of nobody, with a project in it."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("hello\n")
    return tmp_path


@pytest.fixture
def environment(home: Path, index: str, tools: Path) -> dict[str, str]:
    """Variables of a new user, whose installers ask our index alone."""
    return {
        "HOME": str(home),
        "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_COMPILE": "1",  # what is not imported here is not compiled
        "UV_DEFAULT_INDEX": index,
        "UV_PYTHON": os.path.realpath(sys.executable),
        "UV_PYTHON_DOWNLOADS": "never",
        "PIPX_DEFAULT_PYTHON": os.path.realpath(sys.executable),
    }


@pytest.fixture
def run(home: Path, environment: dict[str, str]) -> Run:
    def run(*words: str | Path, exit_code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=cwd or home / "project",
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        assert done.returncode == exit_code, done
        return done

    return run


async def listed_tools(command: str, args: list[str], environment: dict[str, str]) -> dict[str, bool | None]:
    """Start a server as a client does; return its tools, and whether each is read-only."""
    async with AsyncExitStack() as stack:
        parameters = StdioServerParameters(command=command, args=args, env=environment)
        client = await stack.enter_async_context(Client(parameters))
        tools = (await client.list_tools()).tools
        return {tool.name: tool.annotations and tool.annotations.read_only_hint for tool in tools}
