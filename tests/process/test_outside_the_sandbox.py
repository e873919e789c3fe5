"""Programs and files that the server uses outside the sandbox, and what agents plant there (docs/specs/trust.md).

Each attack is judged by its effect: whether the planted program ran, or the file of the user could be read.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import TREE, Peer, peer

TIERS = {"full": (), "landlock": tuple(under_profile())}
CANARY = "canary-41d9"

pytestmark = pytest.mark.parametrize("tier", TIERS)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a repository `project`, which is the root."""
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", project], check=True)
    (project / "file").write_text("text\n")
    return tmp_path / "home"


def plant(file: Path, marker: Path) -> Path:
    """A program that leaves a marker and then does what git does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'#!/bin/sh\necho ran >> {marker}\nexec {shutil.which("git")} "$@"\n')
    file.chmod(0o755)
    return file


@contextmanager
def served(home: Path, tier: str, *words: object, **environment: str) -> Iterator[Peer]:
    unset = dict.fromkeys(("GIT_CONFIG_GLOBAL", "GNUPGHOME", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME"), "")
    variables = {k: v for k, v in {"HOME": str(home), **unset, **environment}.items() if v or k != "GIT_CONFIG_GLOBAL"}
    with peer(*map(str, words or (home / "project",)), environment=variables, before=TIERS[tier]) as client:
        client.start_session()
        yield client


def text(result: dict[str, Any]) -> str:
    said: str = result["content"][0]["text"]
    return said


def test_a_program_that_agents_can_change_is_passed_over(home: Path, tmp_path: Path, tier: str) -> None:
    """trust-3, trust-7: by its directory, and by a link to it; where there is no other one, the refusal names it."""
    marker, apart = tmp_path / "marker", tmp_path / "bin"
    planted = plant(home / "project" / "bin" / "git", marker)
    apart.mkdir()
    (apart / "git").symlink_to(planted)
    for folder in (planted.parent, apart, home):
        with served(home, tier, PATH=f"{folder}:{os.environ['PATH']}") as client:
            assert "file" in text(client.call("git_status"))
    with served(home, tier, PATH=str(apart)) as client:
        refused = text(client.call("git_status"))
        assert f"leads through {planted.parent}" in refused
        assert "--trust" in refused
    assert not marker.exists()
    with served(home, tier, home / "project", "--trust", home / "project" / "bin", PATH=str(apart)) as client:
        assert "file" in text(client.call("git_status"))


def test_git_is_configured_by_no_file_that_agents_can_change(home: Path, tmp_path: Path, tier: str) -> None:
    """trust-4: with the home as the root, or a file of it that is included: no program, and no file of the user."""
    marker = tmp_path / "marker"
    program = plant(home / "project" / "tool", marker)
    secret = tmp_path / "key"
    secret.write_text(CANARY)
    hostile = f"[core]\n\texcludesFile = {secret}\n\tfsmonitor = {program}\n[gpg]\n\tprogram = {program}\n"
    harmless = "[user]\n\tname = Ada\n\temail = ada@example.com\n"
    config = home / ".gitconfig"
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[roots."{home}".git]\nsigning = true\n[roots."{home}/project".git]\nsigning = true\n')
    policy.chmod(0o644)
    (home / "project" / "included").write_text(hostile)
    for root, settings in (
        (home, hostile + harmless),
        (home / "project", f"[include]\n\tpath = {home}/project/included\n{harmless}"),
        (home / "project", f"[gpg]\n\tprogram = {program}\n{harmless}"),
    ):
        config.write_text(settings)
        (home / "project" / "file").write_text(settings)
        with served(home, tier, root, "--policy", policy) as client:
            name, where = ("file", {}) if root != home else ("project/file", {"repository": "project"})
            client.call("git_add", paths=[name], **where)
            committed = text(client.call("git_commit", message="first", **where))
            read = text(client.call("run_command", command="cat /.git-user/* $HOME/.gitconfig; git config -l; true"))
            assert CANARY not in read
            if root == home:  # not signed: the repository is no root, and no grant covers it
                assert "Ada" in text(client.call("git_log", **where)), committed
            else:
                assert "could not be signed" in committed
    assert not marker.exists()


def test_the_login_shell_runs_nothing_that_agents_can_change(home: Path, tmp_path: Path, tier: str) -> None:
    """trust-5: neither a profile in a root nor a file in a root that a profile reads."""
    other = tmp_path / "usual"
    other.mkdir()
    shutil.copy("/bin/true", other / "usual-program")
    (home / "project" / "env.sh").write_text(f"PATH=$PATH:{tmp_path}/leak\n")
    (tmp_path / "leak").mkdir()
    for name in (".profile", ".bash_profile", ".zprofile"):
        (home / name).write_text(f". {home}/project/env.sh\nPATH=$PATH:{other}\n")
    with served(home, tier, home / "project", CORETOOLS_LOGIN_PATH="1") as client:
        assert f"{tmp_path}/leak" not in text(client.call("run_command", command="echo $PATH"))
    with served(home, tier, home, CORETOOLS_LOGIN_PATH="1") as client:
        assert str(other) not in text(client.call("run_command", command="echo $PATH"))


@pytest.mark.parametrize("way", ["modules", "with", "known_hosts", "ca_file", "policy"])
def test_a_server_does_not_start_with_files_that_agents_can_change(
    home: Path, tmp_path: Path, tier: str, way: str
) -> None:
    """trust-6: its own modules, plugins, and the operator's files; the refusal names the file."""
    root, marker = home / "project", tmp_path / "marker"
    (root / "planted.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (root / "sitecustomize.py").write_text("")
    policy = tmp_path / "policy.toml"
    rules = {
        "known_hosts": f'[[remote]]\nurl = "ssh://git@a.example/**"\nknown_hosts = "{root}/hosts"\n',
        "ca_file": f'[[remote]]\nurl = "https://a.example/**"\nca_file = "{root}/ca.pem"\n',
    }
    policy.write_text(rules.get(way, ""))
    policy.chmod(0o644)
    if way == "policy":
        policy = root / "policy.toml"
        policy.write_text("")
        policy.chmod(0o644)
    words = ["--policy", str(policy)] if way in ("known_hosts", "ca_file", "policy") else []
    command = [*TIERS[tier], sys.executable, "-m"]
    if way == "with":
        command += [
            "coretools.cli.main",
            "serve",
            "--own",
            "--with",
            f"{root}/planted.py:registry",
            "--root",
            str(root),
        ]
    else:
        command += ["servers.workstation", str(root), *words]
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(TREE)}
    if way == "modules":
        environment["PYTHONPATH"] += f":{root}"
    done = subprocess.run(
        command, input="", capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 78, done.stderr
    assert f"lies in the writable root {root}" in done.stderr
    assert not marker.exists()
