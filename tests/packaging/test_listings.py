"""Files that registries and catalogues read, and the workflow of a release (docs/specs/installation.md)."""

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from coretools.distribution import DISTRIBUTION
from tests.checkout import TREE
from tests.test_installation import pins

PACKAGING = TREE / "packaging"
WORKFLOW = TREE / ".github" / "workflows" / "release.yml"
SCHEMA = Path(__file__).parent / "schemas" / "server-2025-12-11.schema.json"
PROJECT = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
BUNDLE = json.loads((PACKAGING / "mcpb" / "manifest.json").read_text())
SERVER = json.loads((TREE / "server.json").read_text())
DOCKER = yaml.safe_load((PACKAGING / "docker" / "server.yaml").read_text())
SMITHERY = yaml.safe_load((TREE / "smithery.yaml").read_text())


def check(*words: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout


def test_a_stamped_server_json_is_valid_and_names_what_was_built(tmp_path: Path) -> None:
    """installation-15: with the official schema, here and as released."""
    for name in (f"{DISTRIBUTION}-1.0.mcpb", "coretools_workstation-1.0-py3-none-any.whl", "requirements.txt"):
        (tmp_path / name).write_text(name)
    stamp = (sys.executable, PACKAGING / "stamp.py", "listings", "1.0", tmp_path)
    subprocess.run(stamp, check=True, timeout=60)
    check("--schemafile", SCHEMA, TREE / "server.json", tmp_path / "server.json")
    stamped = json.loads((tmp_path / "server.json").read_text())
    of_index, of_bundle = stamped["packages"]
    assert (stamped["version"], of_index["version"], of_index["identifier"]) == ("1.0", "1.0", DISTRIBUTION)
    assert of_bundle["identifier"] == f"{REPOSITORY}/releases/download/v1.0/{DISTRIBUTION}-1.0.mcpb"
    assert of_bundle["fileSha256"] == hashlib.sha256(f"{DISTRIBUTION}-1.0.mcpb".encode()).hexdigest()
    formula = (tmp_path / f"{DISTRIBUTION}.rb").read_text()
    assert "0.0.0" not in formula
    for name in ("coretools_workstation-1.0-py3-none-any.whl", "requirements.txt"):
        assert f"/releases/download/v1.0/{name}" in formula
        assert hashlib.sha256(name.encode()).hexdigest() in formula


def test_all_name_the_same_project() -> None:
    """installation-15: the registry looks for its name in the package's description, which is the README."""
    assert f"mcp-name: {SERVER['name']}" in (TREE / "README.md").read_text()
    owner = REPOSITORY.removeprefix("https://github.com/").partition("/")[0]
    assert SERVER["name"] == f"io.github.{owner}/{DISTRIBUTION}"
    assert json.loads((TREE / "glama.json").read_text())["maintainers"] == [owner]
    addresses = [SERVER["repository"]["url"], BUNDLE["repository"]["url"], DOCKER["source"]["project"]]
    assert addresses == [REPOSITORY] * 3
    assert BUNDLE["privacy_policies"] == [PROJECT["urls"]["Privacy"]]
    assert (TREE / "docs" / "privacy.md").exists()
    assert "0.0.0" in (BUNDLE["version"], SERVER["version"])


def test_every_address_of_the_project_has_the_owner_of_pyproject() -> None:
    """installation-15: a move changes one line, and this names the others."""
    pages = [path for name in ("docs", "packaging", ".github") for path in (TREE / name).rglob("*") if path.is_file()]
    pages += [path for path in TREE.glob("*.*") if path.is_file()]
    named: dict[str, set[str]] = {}
    for path in pages:
        text = path.read_bytes().decode("utf-8", "replace")
        for owner in re.findall(r"(?:github\.com/|ghcr\.io/|--repo )([\w-]+)/coretools\b", text):
            named.setdefault(owner, set()).add(path.name)
    assert named.pop(REPOSITORY.split("/")[-2])
    assert named == {}


def test_options_that_forms_set_are_those_of_the_server() -> None:
    """installation-15: a variable that the server does not know would leave a switch without effect."""
    options = (TREE / "coretools" / "config" / "options.py").read_text()
    named = {variable["name"] for variable in SERVER["packages"][0]["environmentVariables"]}
    assert named == set(BUNDLE["server"]["mcp_config"]["env"])
    texts = [SMITHERY["startCommand"]["commandFunction"], json.dumps(DOCKER)]
    found = named.union(*(re.findall(r"CORETOOLS_[A-Z_]+", text) for text in texts))
    assert [name for name in found if f'"{name}"' not in options] == []


def test_the_command_of_smithery_is_ours() -> None:
    """installation-15: its function, run."""
    start = SMITHERY["startCommand"]
    code = f"console.log(JSON.stringify(({start['commandFunction']})({json.dumps(start['exampleConfig'])})))"
    try:
        done = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("Node.js")
    assert json.loads(done.stdout) == {
        "command": "uvx",
        "args": [DISTRIBUTION, "/home/me/project"],
        "env": {"CORETOOLS_READ_ONLY": "false", "CORETOOLS_NETWORK": "deny"},
    }


def test_every_tool_has_a_title_and_says_what_it_may_do() -> None:
    """installation-15: what Claude's directory asks of a listed server."""
    tools = json.loads((TREE / "tests" / "app" / "tools.json").read_text())
    listed: list[dict[str, Any]] = list(tools.values()) if isinstance(tools, dict) else tools
    assert len(listed) > 30
    for tool in listed:
        hints = tool["annotations"]
        assert tool.get("title") or hints.get("title"), tool["name"]
        assert hints.get("readOnlyHint") is True or "destructiveHint" in hints, tool["name"]


def test_the_workflow_is_valid_and_pins_what_it_uses() -> None:
    """installation-16: by the schema of GitHub; no token of the index, rights for each job."""
    check("--builtin-schema", "vendor.github-workflows", WORKFLOW)
    text = WORKFLOW.read_text()
    used = re.findall(r"uses: (\S+)", text)
    assert len(used) >= 5
    assert [use for use in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", use)] == []
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["index"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text


def test_the_packages_of_a_release_are_those_that_the_tests_run_with() -> None:
    """installation-1: packaging/requirements.txt is a part of constraints.txt."""
    tested = {str(pin) for pin, _ in pins().values()}
    released = pins((PACKAGING / "requirements.txt").read_text())
    assert len(released) > 40
    assert {str(pin) for pin, _ in released.values()} - tested == set()
    assert [name for name, (_, hashes) in released.items() if hashes == 0] == []
