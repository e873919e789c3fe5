"""The MCPB bundle, made by the official packer and started as its form says (docs/specs/installation.md)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.checkout import TREE
from tests.packaging.conftest import Run, listed_tools

EXPAND = """
import { getMcpConfigForManifest } from "@anthropic-ai/mcpb";
const [manifest, extensionPath, userConfig] = JSON.parse(process.argv[2]);
const options = { manifest, extensionPath, userConfig, systemDirs: {}, mcpConfig: {}, pathSeparator: "/" };
console.log(JSON.stringify((await getMcpConfigForManifest(options)) ?? null));
"""


@pytest.fixture
def unpacked(home: Path, run: Run, mcpb: Path) -> Path:
    """The bundle of version 1.0, packed and unpacked again."""
    run(sys.executable, TREE / "packaging" / "stamp.py", "bundle", "1.0", home / "bundle")
    run(mcpb, "pack", home / "bundle", home / "coretools.mcpb")
    run(mcpb, "unpack", home / "coretools.mcpb", home / "unpacked")
    return home / "unpacked"


def expanded(unpacked: Path, mcpb: Path, form: dict[str, Any]) -> dict[str, Any] | None:
    """The command line that the packer's own library makes of the form; None while a required field is empty."""
    manifest = json.loads((unpacked / "manifest.json").read_text())
    done = subprocess.run(
        ["node", "--input-type=module", "-", json.dumps([manifest, str(unpacked), form])],
        input=EXPAND,
        cwd=mcpb.parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: dict[str, Any] | None = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_form_becomes_roots_and_switches(unpacked: Path, mcpb: Path) -> None:
    """installation-14: several directories, read-only, network; without a directory nothing starts."""
    assert expanded(unpacked, mcpb, {}) is None
    config = expanded(unpacked, mcpb, {"roots": ["/a b", "/c"], "read_only": True, "network": "pypi,npm"})
    assert config is not None
    assert config["args"][-2:] == ["/a b", "/c"]
    assert config["env"] == {"CORETOOLS_READ_ONLY": "true", "CORETOOLS_NETWORK": "pypi,npm"}


def test_the_bundle_starts_a_server_with_what_uv_installs(
    unpacked: Path, mcpb: Path, home: Path, environment: dict[str, str]
) -> None:
    """installation-14: by effect: only read-only tools, the version of the bundle."""
    # uv locks for every system and Python that the bundle is for; our index has the wheels of this one alone.
    project = unpacked / "pyproject.toml"
    here = f"sys_platform == '{sys.platform}' and python_version == '{sys.version_info[0]}.{sys.version_info[1]}'"
    lines = [
        f'environments = ["{here}"]' if "environments" in line else line for line in project.read_text().splitlines()
    ]
    project.write_text("\n".join(lines))
    config = expanded(unpacked, mcpb, {"roots": [str(home / "project")], "read_only": True})
    assert config is not None
    tools = anyio.run(listed_tools, config["command"], config["args"], {**environment, **config["env"]})
    assert tools["read_file"]
    assert set(tools.values()) == {True}
    (package,) = (unpacked / ".venv").glob("lib/python*/site-packages/coretools_workstation-*.dist-info")
    assert package.name == "coretools_workstation-1.0.dist-info"
