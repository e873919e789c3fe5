"""ci_restore: what it leaves when it fails, what it installs, and what it does without a network."""

import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coretools.tools.ci.detect import detect
from tests.protocol.peer import Peer, peer
from tests.tools.ci.test_detect import Files, first

DENIED = "[the network is denied to commands; the operator allows it with --network allow"
LOCK = '{"name": "app", "lockfileVersion": 3, "packages": {"": {"name": "app"}}}'


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def client(root: Path) -> Iterator[Peer]:
    with peer(root) as one:
        one.start_session()
        yield one


def state(directory: Path) -> dict[str, str]:
    """Every file beneath a directory, with its content."""
    return {
        str(path.relative_to(directory)): path.read_text(errors="replace") if path.is_file() else "directory"
        for path in sorted(directory.rglob("*"))
    }


def project(root: Path, **scripts: str) -> None:
    """A Node project with installed packages and a partly created virtual environment."""
    (root / "package.json").write_text(json.dumps({"name": "app", "scripts": {"test": "echo", **scripts}}))
    (root / "package-lock.json").write_text(LOCK)
    (root / "node_modules/before").mkdir(parents=True)
    (root / "node_modules/before/index.js").write_text("0")


BREAK = "sh -c 'mkdir .venv; touch .venv/half; echo x > package-lock.json; echo x > uv.lock; exit 3'"
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")


def test_files_of_a_failed_command_are_deleted(root: Path, client: Peer) -> None:
    """ci-21: a partly created environment, and lock files that were changed or written."""
    project(root)
    before = state(root)
    assert "exit code 3" in text_of(client.call("ci_restore", command=BREAK))
    assert state(root) == before


def test_an_environment_that_was_there_stays(root: Path, client: Peer) -> None:
    """ci-21: only what the restore made is removed."""
    (root / ".venv/lib").mkdir(parents=True)
    client.call("ci_restore", command="false")
    assert (root / ".venv/lib").is_dir()


@needs_npm
def test_a_failed_npm_ci_brings_the_packages_back_that_it_deleted(root: Path, client: Peer) -> None:
    """ci-21: npm ci empties node_modules before it begins."""
    project(root, postinstall="test ! -e node_modules/before && exit 7")
    before = state(root)
    assert "exit code 7" in text_of(client.call("ci_restore"))
    assert state(root) == before


@needs_npm
def test_a_restore_that_passes_its_deadline_leaves_nothing(root: Path, client: Peer) -> None:
    """ci-21: it is stopped, then undone."""
    project(root, postinstall="sleep 60")
    before = state(root)
    assert "timed out" in text_of(client.call("ci_restore", timeout_seconds=3))
    assert state(root) == before


def begun(client: Peer, root: Path) -> int:
    """Start a restore that waits after half of its work; return the id of the request."""
    project(root, postinstall="echo > node_modules/half; echo > begun; sleep 60")
    request = client.send("tools/call", {"name": "ci_restore", "arguments": {"project": "package.json"}})
    while not (root / "begun").exists():
        assert client.process.poll() is None
    (root / "begun").unlink()
    return request


@needs_npm
def test_a_cancelled_restore_leaves_nothing(root: Path, client: Peer) -> None:
    """ci-21: whoever cancels it."""
    request = begun(client, root)
    client.notify("notifications/cancelled", {"requestId": request})
    while "under way" in text_of(client.call("ci_build", command="true")):
        pass
    assert (root / "node_modules/before/index.js").exists()
    assert sorted(os.listdir(root)) == ["node_modules", "package-lock.json", "package.json"]


@needs_npm
def test_after_a_kill_the_next_call_puts_the_project_back(root: Path, client: Peer) -> None:
    """ci-21: the kernel releases the lock of a killed server, and the next server recognises the unfinished restore by
    that."""
    begun(client, root)
    with peer(root) as second:
        second.start_session()
        refused = text_of(second.call("ci_test", command="true"))
        assert refused == ".: a restore of it is under way; call again when it has ended"
        client.process.kill()
        client.process.wait()
        while "under way" in text_of(second.call("ci_test", command="true")):
            pass
    assert (root / "node_modules/before/index.js").exists()
    assert sorted(os.listdir(root)) == ["node_modules", "package-lock.json", "package.json"]


@needs_npm
def test_a_restore_that_succeeds_leaves_what_it_made(root: Path, client: Peer) -> None:
    """ci-21: and no file of its own."""
    project(root, postinstall="mkdir -p node_modules && echo > node_modules/made")
    assert text_of(client.call("ci_restore")).startswith("ok in")
    assert sorted(os.listdir(root)) == ["node_modules", "package-lock.json", "package.json"]
    assert sorted(os.listdir(root / "node_modules")) == ["made"]


def wheel(folder: Path, name: str) -> None:
    """The smallest package that pip installs."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "ANSWER = 42\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


TESTS = "import unittest, needed\nclass T(unittest.TestCase):\n def test_a(self): self.assertEqual(needed.ANSWER, 42)\n"


def test_what_needs_no_network_is_restored_without_one_and_then_tested(root: Path, client: Peer) -> None:
    """ci-20, ci-22: the tool itself finds out whether it needs the network; the group's packages are installed."""
    wheel(root / "wheels", "needed")
    (root / "requirements.txt").write_text("--no-index\n--find-links wheels\n")
    (root / "pyproject.toml").write_text("[dependency-groups]\nbase = ['needed']\ntest = [{include-group = 'base'}]\n")
    (root / "tests").mkdir()
    (root / "tests/test_needed.py").write_text(TESTS)
    result = text_of(client.call("ci_restore"))
    if "No module named" in result or "ensurepip" in result:
        pytest.skip("python3 has no venv here")
    assert result.startswith("ok in"), result
    assert client.call("ci_test")["structuredContent"]["counts"]["passed"] == 1


def test_what_needs_the_network_is_refused_with_the_reason_and_nothing_is_left(root: Path, client: Peer) -> None:
    """ci-20: no environment is created for it, and nothing is tried twice."""
    if "network: denied" not in text_of(client.call("get_diagnostics")):
        pytest.skip("nothing confines commands here")
    (root / "requirements.txt").write_text("--index-url https://nowhere.example/simple\nsix\n")
    result = text_of(client.call("ci_restore"))
    if "No module named" in result or "ensurepip" in result:
        pytest.skip("python3 has no pip here")
    assert DENIED in result
    assert "-m venv" not in result
    assert os.listdir(root) == ["requirements.txt"]


@needs_npm
def test_npm_is_refused_with_the_reason(root: Path, client: Peer) -> None:
    """ci-20: a package that is in no cache."""
    if "network: denied" not in text_of(client.call("get_diagnostics")):
        pytest.skip("nothing confines commands here")
    (root / "package.json").write_text('{"dependencies": {"left-pad": "1.3.0"}}')
    before = state(root)
    assert DENIED in text_of(client.call("ci_restore"))
    assert state(root) == before


def test_groups_that_include_each_other_are_refused(root: Path, client: Peer) -> None:
    """ci-22: by name; nothing is started."""
    (root / "pyproject.toml").write_text(
        "[project]\nname='x'\nversion='1'\n"
        "[dependency-groups]\ntest = [{include-group = 'dev'}]\ndev = [{include-group = 'test'}]\n"
    )
    result = client.call("ci_restore")
    assert text_of(result) == (
        ".: pyproject.toml: dependency groups include each other (test -> dev -> test); give `command`"
    )


PIP = ".venv/bin/python -m pip install"
PACKAGE = "[project]\nname = 'x'\nversion = '1'\n"
GROUPS = (
    "[dependency-groups]\ntests = ['pytest', {include-group = 'more'}]\nmore = ['trio', '--evil']\ndocs = ['sphinx']\n"
)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"pyproject.toml": PACKAGE + GROUPS}, f"{PIP} pytest trio -e .", id="group"),
        pytest.param({"pyproject.toml": GROUPS}, f"{PIP} pytest trio", id="groups of what is no package"),
        pytest.param(
            {"pyproject.toml": PACKAGE + "[project.optional-dependencies]\nTesting = ['pytest']\nfast = ['c']\n"},
            f"{PIP} -e .[Testing]",
            id="extra",
        ),
        pytest.param(
            {"setup.py": "", "setup.cfg": "[options.extras_require]\ndev = pytest\n"},
            f"{PIP} -e .[dev]",
            id="extra of setup.cfg",
        ),
        pytest.param(
            {"pyproject.toml": PACKAGE, "requirements": "", "requirements/tests.txt": "pytest"},
            f"{PIP} -r requirements/tests.txt -e .",
            id="list in a folder",
        ),
        pytest.param(
            {
                "pyproject.toml": PACKAGE,
                "tox.ini": "[testenv]\ndeps =\n    pytest>=7\n    py311: trio\n    {[x]deps}\n",
            },
            f"{PIP} pytest>=7 trio -e .",
            id="tox",
        ),
        pytest.param(
            {"pyproject.toml": PACKAGE + "[tool.hatch.envs.test]\ndependencies = ['pytest', 'trio']\n"},
            f"{PIP} pytest trio -e .",
            id="hatch",
        ),
        pytest.param(
            {"pyproject.toml": PACKAGE, "tests": "", "tests/test_a.py": "def test_a(): pass"},
            f"{PIP} -e . pytest",
            id="pytest, which nothing names",
        ),
        pytest.param({"pyproject.toml": PACKAGE}, f"{PIP} -e .", id="no tests"),
    ],
)
def test_what_the_tests_need_is_installed(files: dict[str, str], expected: str) -> None:
    """ci-22: from the first file that names it."""
    assert first(files, "restore") == f"python3 -m venv .venv; {expected}"


def test_the_check_without_a_network_is_not_followed_by_a_rehash_of_pyenv() -> None:
    """ci-20: pyenv's `python3` matches this pattern, and its rehash fails in the sandbox."""
    [system] = detect(Files({"requirements.txt": "six"}))
    assert "install" in system.probe
    assert not re.search(r"\s-m\spip\s", " ".join(system.probe))


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        ("uv.lock", "uv sync --extra test --group tests"),
        ("poetry.lock", "poetry install --extras test"),
        ("pdm.lock", "pdm install --group test"),
    ],
)
def test_tools_with_a_lock_file_install_them_too(lock: str, expected: str) -> None:
    """ci-22: with their own arguments."""
    text = PACKAGE + GROUPS + "[project.optional-dependencies]\ntest = ['pytest']\n"
    assert first({"pyproject.toml": text, lock: ""}, "restore") == expected


@pytest.mark.parametrize(
    ("files", "named", "expected"),
    [
        ({"dn.sln": "", "a.csproj": "", "b.csproj": ""}, "b.csproj", "dotnet test b.csproj --nologo"),
        ({"package.json": '{"scripts": {"test": "x"}}', "setup.py": ""}, "package.json", "npm run test"),
        ({"Cargo.toml": "", "pyproject.toml": PACKAGE}, "Cargo.toml", "cargo test --no-fail-fast"),
        ({"pom.xml": "", "Makefile": "test:\n"}, "Makefile", "make test"),
    ],
)
def test_a_file_of_the_project_may_be_named(files: dict[str, str], named: str, expected: str) -> None:
    """ci-23: it decides which build system is used, and for .NET which project."""
    [system] = detect(Files(files), named)
    assert " ".join(system.test[0][0]) == expected


def test_a_file_that_is_no_project_is_refused(root: Path, client: Peer) -> None:
    """ci-23: with the error for a directory."""
    (root / "a.txt").write_text("")
    result = client.call("ci_test", project="a.txt")
    assert result["_meta"]["coretools/error"] == "wrong-type"
    (root / "Makefile").write_text("test:\n\t@echo ran here\n")
    assert "ran here" in text_of(client.call("ci_test", project="Makefile"))
