"""A clone with history to serve, and the Node clients, if they are installed."""

import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

NODE_FOLDER = Path(__file__).parent / "node"

COMMITS = (
    ("start the project", {"greeting.py": 'print("Hello")\n', "README.md": "# Greeting\n"}),
    ("say it in a function", {"greeting.py": 'def greeting():\n    return "Hello"\n'}),
    ("greet by name", {"greeting.py": 'def greeting(name):\n    return f"Hello, {name}"\n'}),
    (
        "test it",
        {
            "test_greeting.py": "import unittest\n\nfrom greeting import greeting\n\n\n"
            "class Greeting(unittest.TestCase):\n"
            "    def test_it_names_the_guest(self):\n"
            '        self.assertIn("Ada", greeting("Ada"))\n'
        },
    ),
)


def git(directory: Path, *words: str) -> None:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "init.defaultBranch=main")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *identity, *words], cwd=directory, env=environment, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a small project, four commits deep."""
    return cloned(tmp_path)


def cloned(folder: Path) -> Path:
    """A clone of a small project, in a folder of its own beside its origin."""
    origin = folder / "origin"
    origin.mkdir()
    git(origin, "init")
    for subject, files in COMMITS:
        for name, text in files.items():
            (origin / name).write_text(text)
        git(origin, "add", "--all")
        git(origin, "commit", "-m", subject)
    git(folder, "clone", str(origin), "clone")
    return folder / "clone"


@pytest.fixture(scope="session")
def node() -> Path:
    """The Node.js that comes with the client packages."""
    program = NODE_FOLDER / "node_modules" / ".bin" / "node"
    if not program.exists():
        without("npm client packages: run `npm ci` in tests/clients/node")
    return program


def without(feature: str) -> NoReturn:
    """Skip with the feature's name; fail where the checks are mandatory, as in CI."""
    if os.environ.get("CLIENT_CHECKS") == "required":
        pytest.fail(feature)
    pytest.skip(feature)
