"""`coretools new NAME`: write a small project with a server, a command line and CI, which passes its own tests."""

import re
from pathlib import Path

from coretools.cli.common.terminal import print_text
from coretools.errors import AlreadyExists, InputOutput, InvalidArguments

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "@NAME@"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["coretools-workstation[http]"]

[project.optional-dependencies]
test = ["mypy", "pytest>=9"]

[project.scripts]
@NAME@ = "@MODULE@:main"

[tool.hatch.build.targets.wheel]
packages = ["src/@MODULE@"]

[tool.pytest.ini_options]
pythonpath = ["src"]
anyio_mode = "auto"

[tool.mypy]
strict = true
""",
    "README.md": """\
# @NAME@

    pip install -e '.[test]'
    pytest
    @NAME@ greet Ada          # its command line
    @NAME@ serve              # an MCP server on stdio; clients start it so
""",
    "src/@MODULE@/__init__.py": '''\
"""The application: its commands, as an MCP server and as a command line."""

import sys

from coretools import App, Effect, InvalidArguments

app = App("@NAME@", version="0.1.0")


@app.tool(Effect.READ)
def greet(name: str, times: int = 1) -> str:
    """Greet somebody.

    Args:
        name: Whom to greet.
        times: How often, at most 10.
    """
    if not 1 <= times <= 10:
        raise InvalidArguments("times: from 1 to 10")
    return "\\n".join([f"Hello, {name}!"] * times)


def main() -> None:
    """Run one command line; `serve` is the MCP server."""
    sys.exit(app.cli())
''',
    "src/@MODULE@/py.typed": "",
    "tests/conftest.py": '''\
"""The application that the tests are about."""

import pytest

import @MODULE@
from coretools import App

pytest_plugins = ["coretools.application.pytest_plugin"]


@pytest.fixture
def app() -> App:
    """Return the application; `mcp_client` is connected to it."""
    return @MODULE@.app
''',
    "tests/test_commands.py": '''\
"""The commands, as clients and people use them."""

import pytest
from mcp import Client

from coretools import App


async def test_a_client_gets_a_greeting(mcp_client: Client) -> None:
    result = await mcp_client.call_tool("greet", {"name": "Ada", "times": 2})
    assert result.structured_content == {"result": "Hello, Ada!\\nHello, Ada!"}


async def test_a_wrong_argument_is_refused(mcp_client: Client) -> None:
    result = await mcp_client.call_tool("greet", {"name": "Ada", "times": 11})
    assert result.is_error


def test_a_person_gets_a_greeting(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.cli(["greet", "Ada"]) == 0
    assert capsys.readouterr().out == "Hello, Ada!\\n"
''',
    ".github/workflows/test.yaml": """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.13"
      - run: pip install -e '.[test]'
      - run: pytest
      - run: mypy src
""",
}
"""The files of a project by path. `@NAME@` and `@MODULE@` are replaced."""


def new(name: str) -> int:
    """Write the project into a new directory of its name; return 0.

    Raises:
        InvalidArguments: the name can't be that of a distribution and a program.
        AlreadyExists: there is something of this name; it is not touched.
        InputOutput: a file can't be written.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArguments(f"new {name[:80]!r}: a name has a to z, 0 to 9 and -, and begins with a letter")
    directory, module = Path(name), name.replace("-", "_")
    try:
        directory.mkdir()
        for path, text in FILES.items():
            file = directory / path.replace("@MODULE@", module)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("@NAME@", name).replace("@MODULE@", module), encoding="utf-8")
    except FileExistsError:
        raise AlreadyExists(f"{name}: is there already; choose another name") from None
    except OSError as error:
        raise InputOutput(f"{error.filename}: {error.strerror}") from error
    return print_text(f"{name}: written. Next: cd {name} && pip install -e '.[test]' && pytest")
