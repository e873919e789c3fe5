"""Programs and files that the server uses outside the sandbox, and what agents plant there (docs/specs/trust.md).

Each attack is judged by its effect: whether the planted program ran, or the file of the user could be read.
"""

import json
import os
import shlex
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
from tests.starting import warm
from tests.tools.git.git_servers import git_http_server

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


def test_the_program_that_signs_finds_nothing_of_the_work_tree(home: Path, tmp_path: Path, tier: str) -> None:
    """trust-3, git-user-14: Python adds its working directory to the modules of `-c` and `-m`."""
    marker, signer = tmp_path / "marker", tmp_path / "signer"
    (home / "project" / "planted.py").write_text(f"open({str(marker)!r}, 'w')\n")
    signer.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import planted"\n')
    signer.chmod(0o755)
    (home / ".gitconfig").write_text(f"[user]\n\tname = Ada\n\temail = ada@example.com\n[gpg]\n\tprogram = {signer}\n")
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[roots."{home}/project".git]\nsigning = true\n')
    policy.chmod(0o644)
    with served(home, tier, home / "project", "--policy", policy) as client:
        client.call("git_add", paths=["file"])
        refused = text(client.call("git_commit", message="first"))
    assert "No module named 'planted'" in refused
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
        command += ["coretools.servers.workstation", str(root), *words]
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(TREE)}
    if way == "modules":
        environment["PYTHONPATH"] += f":{root}"
    start = subprocess.run if way == "modules" else warm.run  # Python reads PYTHONPATH when it starts
    done = start(command, input="", capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)
    assert done.returncode == 78, done.stderr
    assert f"lies in the writable root {root}" in done.stderr
    assert not marker.exists()


def test_no_credential_helper_runs_anything_that_agents_can_change(home: Path, tmp_path: Path, tier: str) -> None:
    """trust-4, trust-10: by any shell text, or a file of the configuration; what is vouched for is used."""
    root, apart, marker, scratch = home / "project", tmp_path / "apart", tmp_path / "apart" / "ran", tmp_path / "tmp"
    script = f"#!/bin/sh\necho $0 >> {marker}\necho username=git\necho password={CANARY}\n"
    for directory in (apart, scratch, root / "a b"):
        directory.mkdir()
    planted = [apart / "helper", root / "helper", root / "a b" / "helper", root / "vouched"]
    for file in planted:
        file.write_text(script)
        file.chmod(0o755)
    (apart / "git-credential-linked").symlink_to(root / "helper")
    (root / "link").symlink_to(apart / "helper")
    (root / "include").write_text(f"[credential]\n\thelper = {apart}/helper\n")
    shell = {
        "a word": f"!{root}/helper",
        "a program": str(root / "helper"),
        "a quoted space": f"!'{root}/a b/helper'",
        "a relative path": f"!cd {home} && ./project/helper",
        "a variable": f"!d={home}; exec $d/project/helper",
        "another text": f"!eval $(cat {root}/line)",
        "a link on PATH": "linked",
        "a file of another process": f"!p=$$; /proc/$p/root{root}/helper",
        "the temporary files of commands": str(root / "link"),
    }
    (root / "line").write_text(f"{apart}/helper")
    files = {
        "an include": f"[include]\n\tpath = {root}/include\n",
        "a missing include": f"[include]\n\tpath = {root}/missing\n[credential]\n\thelper = {apart}/helper\n",
        "a condition": f'[includeIf "gitdir:/x"]\n\tpath = {root}/missing\n[credential]\n\thelper = {apart}/helper\n',
    }
    policy = tmp_path / "policy.toml"
    bare = tmp_path / "srv" / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", bare], check=True)
    config = home / ".gitconfig"
    with git_http_server(bare.parent, CANARY) as server:
        policy.write_text(f'[[remote]]\nurl = "{server.url}/**"\ncredentials = "helper"\n')
        url = f"{server.url}/origin.git"
        subprocess.run(["git", "-C", root, "remote", "add", "origin", url], check=True)
        words = (root, "--policy", policy, "--trust", root / "vouched")
        environment = {"PATH": f"{apart}:{os.environ['PATH']}", "TMPDIR": str(scratch), "GIT_CONFIG_NOSYSTEM": "1"}
        with served(home, tier, *words, **environment) as client:
            client.call("run_command", command=["sh", "-c", f"cp {root}/helper $TMPDIR/helper"])
            temporary = next(path for path in scratch.glob("coretools-*/*/helper"))
            (root / "link").unlink()
            (root / "link").symlink_to(temporary)
            texts = {what: f"[credential]\n\thelper = {json.dumps(text)}\n" for what, text in shell.items()} | files
            for what, text_of_file in texts.items():
                config.write_text(text_of_file)
                answer = text(client.call("git_fetch"))
                assert str(root) in answer, what
                assert "--trust" in answer, what
                assert not marker.exists(), what
            config.unlink()
            config.symlink_to(root / "include")
            assert str(root) in text(client.call("git_fetch"))
            assert not marker.exists()
            config.unlink()
            reach = f"import socket, tempfile; socket.create_connection(('127.0.0.1', {server.port}))"
            uses = shlex.join([sys.executable, "-c", f"{reach}; tempfile.TemporaryFile()"])
            for helper in (str(apart / "helper"), f"!{uses} && {apart}/helper", str(root / "vouched")):
                marker.write_text("")
                config.write_text(f"[credential]\n\thelper = {json.dumps(helper)}\n")
                assert "credential" not in text(client.call("git_fetch")), helper
                assert helper.rpartition("/")[2] in marker.read_text()
