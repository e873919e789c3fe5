"""Tools and commands see the same of git's credentials: nothing. Judged by canaries in a generated repository."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.process.ripgrep import PACKAGE
from tests.docker_profile import under_profile
from tests.protocol.peer import ENVELOPE, Peer, peer
from tests.tools.git_secrets import CANARY, Canaries, git, plant

TIERS = {"full": (), "landlock": tuple(under_profile())}
ALLOW = "--allow-git-credentials"


def tier_of(client: Peer) -> str:
    found = re.search(r"commands are confined in tier: (\w+)", str(client.call("get_diagnostics")["content"]))
    return found[1] if found else ""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Canaries]:
    top = tmp_path_factory.mktemp("root")
    return top, plant(top)


def files_in(top: Path) -> list[str]:
    """All files but git's objects, which tools read for nobody."""
    found = [path for path in sorted(top.rglob("*")) if path.is_file() and "objects" not in path.parts]
    return [str(path.relative_to(top)) for path in found]


@pytest.fixture(params=["commands", "no commands", "no commands, walk"])
def reader(request: pytest.FixtureRequest, planted: tuple[Path, Canaries], tmp_path: Path) -> Iterator[Peer]:
    """A server that scans the roots for commands, or one that never does, also without ripgrep."""
    words = () if request.param == "commands" else ("--profile", "read")
    environment = {}
    if "walk" in request.param:
        (tmp_path / "git").symlink_to("/usr/bin/git")
        environment["PATH"] = str(tmp_path)
        # Found before the installed package of that name, and without a program.
        empty = tmp_path / "modules" / f"{PACKAGE.replace('-', '_')}-0.dist-info"
        empty.mkdir(parents=True)
        (empty / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0\n")
        environment["PYTHONPATH"] = str(empty.parent)
    with peer(planted[0], *words, environment=environment) as client:
        client.start_session()
        yield client


def test_no_file_tool_shows_a_credential_of_git(reader: Peer, planted: tuple[Path, Canaries]) -> None:
    """secret-files-10: not of any file of any repository, whichever way it is read."""
    top, canaries = planted
    shown: dict[str, list[str]] = {}
    for name in files_in(top):
        edits = [{"old_text": CANARY, "new_text": "x"}]
        near = [{"old_text": f"url = https://user:{CANARY}", "new_text": "x"}]
        answers = [
            reader.ask("tools/call", {"name": tool, "arguments": {"path": name, **arguments}})
            for tool, arguments in (
                ("read_file", {}),
                ("read_file", {"head": 3}),
                ("read_file", {"tail": 3}),
                ("read_file", {"offset": "1@0"}),
                ("search_text", {"pattern": "."}),
                ("edit_file", {"edits": edits, "dry_run": True}),
                ("edit_file", {"edits": near, "dry_run": True}),
            )
        ]
        answers.append(reader.ask("resources/read", {"uri": f"coretools://files/{name}"}))
        shown[name] = canaries.seen_in(str(answers))
    for tool, arguments in (
        *(("search_text", {"pattern": CANARY, "path": path, "include_ignored": True}) for path in (".", "bare.git")),
        *(("search_text", {"pattern": CANARY, "path": path, "context": 3}) for path in ("project/.git", "apart")),
        ("git_diff", {"repository": "project"}),
        ("git_trust_report", {"repository": "project"}),
        ("git_reflog", {"repository": "tree"}),
        ("git_reflog", {"repository": "tree", "branch": "pulled"}),
        ("git_status", {"repository": "project"}),
        ("git_remote", {"repository": "project", "action": "list"}),
    ):
        answer = str(reader.ask("tools/call", {"name": tool, "arguments": arguments}))
        shown[f"{tool} {arguments}"] = canaries.seen_in(answer)
    assert {what: places for what, places in shown.items() if places} == {}
    text = str(reader.call("read_file", path="project/.git/HEAD"))
    assert "refs/heads/main" in text


def test_commands_in_tier_full_see_no_credential_of_git(planted: tuple[Path, Canaries]) -> None:
    """confinement-41: in no file, except for the reflogs, which git itself appends to."""
    top, canaries = planted
    with peer(top) as client:
        client.start_session()
        if tier_of(client) != "full":
            pytest.skip("needs tier full")
        client.call("run_command", command="true")
        (top / "more").touch()  # another hard link is found when its directory is listed next
        script = (
            f"grep -rasH {CANARY} . --exclude-dir=logs;"
            " for d in project bare.git work linked moved tree project/libs/sub; do"
            " git -C $d config --list; git -C $d remote -v; git -C $d log -1 --format=%s; done"
        )
        answer = str(client.call("run_command", command=shlex.join(["sh", "-c", script])))
        assert canaries.seen_in(answer) == []
        assert "https://host.example/x (fetch)" in answer
        # Not because git can't read them.
        assert "unable to access" not in answer
        assert "bad config" not in answer


def test_a_hidden_credential_stays_hidden_when_git_no_longer_reads_it(tmp_path: Path) -> None:
    """confinement-41: a command can disguise a bare repository, or edit what includes a file; secret-files-6."""
    plant_one(tmp_path)
    canaries = Canaries()
    (tmp_path / "middle").write_text("[include]\n\tpath = inner\n")
    (tmp_path / "inner").write_text(f"[mine]\n\ttoken = {canaries.token('inner')}\n")
    git("config", "include.path", "../middle", directory=tmp_path)
    git("init", "-q", "--bare", "bare", directory=tmp_path)
    git("config", "remote.o.url", canaries.address("bare"), directory=tmp_path / "bare")
    (tmp_path / "bare" / "remotes").mkdir()
    (tmp_path / "bare" / "remotes" / "old").write_text(f"URL: {canaries.address('old')}\n")
    with peer(tmp_path) as client:
        client.start_session()
        if tier_of(client) != "full":
            pytest.skip("needs tier full")
        for command in (
            "rm bare/HEAD; mkdir bare/remotes/.git; echo > middle",
            "mv bare moved; cat inner moved/config",
        ):
            client.call("run_command", command=shlex.join(["sh", "-c", command]))
        answers = [client.call("run_command", command="grep -rs . .")]
        names = ("inner", "moved/config", "moved/remotes/old")
        answers += [client.ask("tools/call", {"name": "read_file", "arguments": {"path": name}}) for name in names]
        assert canaries.seen_in(str(answers)) == []


def plant_one(top: Path, url: str = "https://bob@host.example/x") -> None:
    git("init", "-q", "-b", "main", directory=top)
    git("remote", "add", "origin", url, directory=top)
    git("config", "credential.helper", "store", directory=top)
    git("config", "user.signingKey", "3AA5C34371567BD2", directory=top)


def refused(client: Peer, command: str = "touch ran") -> str:
    """The refusal of a command; empty if it ran."""
    result = client.call("run_command", command=command)
    return str(result["content"][0]["text"]) if result["_meta"].get("coretools/error") == "unconfined" else ""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    plant_one(root)
    return root


def require_landlock(client: Peer) -> None:
    if tier_of(client) != "landlock":
        pytest.skip("tier landlock is not available here")


PLACES = {
    "the URL of a remote": ("config", "remote.origin.url", "https://u:{}@host.example/x"),
    "a token in place of a user": ("config", "remote.origin.url", "https://{}@host.example/x"),
    "the header of a checkout action": ("config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic {}"),
    "a subsection": ("config", "url.https://u:{}@host.example/.insteadOf", "x:"),
    "a helper": ("config", "credential.helper", "!f() {{ echo password={}; }}; f"),
    "a backup": ("config.bak", "remote.origin.url", "https://u:{}@host.example/x"),
    "an included file": ("../team.inc", "my.token", "{}"),
    "a password for ssh": ("config", "core.sshCommand", "sshpass -v -p {} ssh -p 22"),
    "a token as the user name": ("config", "credential.username", "{}"),
}


@pytest.mark.parametrize("place", PLACES)
def test_no_command_starts_in_tier_landlock_while_it_could_read_a_credential_of_git(project: Path, place: str) -> None:
    """confinement-47: the refusal names file and setting, and its own git command ends it."""
    name, key, value = PLACES[place]
    token = f"{CANARY}00Zz0123456789abcdef"
    file = project / ".git" / name
    with peer(project, before=TIERS["landlock"]) as client:
        client.start_session()
        require_landlock(client)
        assert refused(client) == ""
        assert (project / "ran").exists()
        (project / "ran").unlink()
        git("config", "include.path", "../team.inc", directory=project)
        git("config", "--file", str(file), key.format(token), value.format(token), directory=project)
        answer = refused(client, "touch ran; cat .git/*")
        assert not (project / "ran").exists()
        assert os.path.relpath(file, project) in answer
        assert ALLOW in answer
        diagnostics = str(client.call("get_diagnostics"))
        assert "commands are refused here" in diagnostics
        assert CANARY not in answer + diagnostics
        assert "branch main" in str(client.call("git_status"))
        command = re.search(r"Take it out \((git config --file [^;)]*)", answer)
        assert command is not None
        words = shlex.split(command[1])
        if words[-1] == "--edit":  # its key can't be named
            file.write_text("[core]\n\trepositoryformatversion = 0\n")
        else:
            assert words[:2] == ["git", "config"]
            subprocess.run(words, check=True)
        assert refused(client) == ""
        assert (project / "ran").exists()


STORED = {
    ".git-credentials": "https://u:{}@host.example\n",
    ".git-credentials.bak": "https://u:{}@host.example\n",
    "kept": "https://u:{}@host.example\n",
    "own": "https://u:{}@host.example\n",
    ".git/jar": "# Netscape HTTP Cookie File\n.host.example\tTRUE\t/\tTRUE\t0\to\t{}\n",
    "headers": "Set-Cookie: o={}\n",
}
"""Files in which git keeps credentials: by their names, or because a configuration names them."""


@pytest.mark.parametrize("tier", TIERS)
def test_files_in_which_git_keeps_credentials_are_closed(project: Path, tier: str) -> None:
    """confinement-41, confinement-47, secret-files-10: to tools and to commands, which are refused in tier landlock."""
    git("config", "credential.https://a.example.helper", "store --file=kept", directory=project)
    git("config", "credential.helper", f"!git credential-store --file '{project}/own'", directory=project)
    git("config", "http.cookieFile", "jar", directory=project)
    git("config", "http.https://a.example.cookieFile", "headers", directory=project)
    canaries = Canaries()
    with peer(project, before=TIERS[tier]) as client:
        client.start_session()
        if tier_of(client) != tier:
            pytest.skip(f"tier {tier} is not available here")
        assert refused(client, "cat kept; touch ran") == ""
        for name, text in STORED.items():
            (project / name).write_text(text.format(canaries.token(name)))
            answer = str(client.call("run_command", command="grep -rs . . ; touch ran"))
            shown = str(client.ask("tools/call", {"name": "read_file", "arguments": {"path": name}}))
            assert canaries.seen_in(answer + shown) == []
            if tier == "landlock":
                assert f"a credential for git in {name}; " in answer
                assert f"edit or delete {project}/{name}" in answer
                (project / name).unlink()
        if tier == "landlock":
            assert refused(client) == ""
            (project / ".git" / "config").chmod(0)
            assert "for git in .git/config; " in refused(client, "chmod 600 .git/config")


def test_the_operator_may_allow_commands_to_read_credentials_of_git(project: Path) -> None:
    """confinement-47, confinement-48: then they run, and the diagnostics go on naming the file."""
    plant_in = PLACES["the header of a checkout action"]
    token = f"{CANARY}00Zz0123456789abcdef"
    git("config", plant_in[1], plant_in[2].format(token), directory=project)
    (project / ".env").write_text("TOKEN=x\n")
    with peer(project, ALLOW, before=TIERS["landlock"]) as client:
        client.start_session()
        require_landlock(client)
        assert token in str(client.call("run_command", command="cat .git/config"))
        diagnostics = str(client.call("get_diagnostics")["content"])
    assert "commands are refused here" not in diagnostics
    assert "secrets that commands can read in this tier: 2: .env (it holds values of environment" in diagnostics
    assert ".git/config (it holds a credential for git: http.https://github.com/.extraheader)" in diagnostics


def test_in_tier_full_commands_run_beside_a_credential_of_git(project: Path) -> None:
    """confinement-47: there they do not see it, and the start log names nothing."""
    git("config", "remote.origin.url", f"https://u:{CANARY}00Zz0123456789abcdef@host.example/x", directory=project)
    with peer(project) as client:
        client.start_session()
        if tier_of(client) != "full":
            pytest.skip("needs tier full")
        answer = str(client.call("run_command", command="cat .git/config"))
        assert "host.example/x" in answer
        assert CANARY not in answer
        assert "commands are refused here" not in str(client.call("get_diagnostics"))


def test_a_published_credential_refuses_nothing(project: Path) -> None:
    """confinement-47: test data that is in git's index is in everybody's clone; secret-files-5."""
    data = project / "tests" / "data" / "repository"
    git("init", "-q", "--bare", str(data), directory=project)
    address = f"https://u:{CANARY}00Zz0123456789abcdef@host.example/x"
    git("config", "--file", "config", "remote.o.url", address, directory=data)
    git("add", "-f", "tests", directory=project)
    with peer(project, before=TIERS["landlock"]) as client:
        client.start_session()
        require_landlock(client)
        assert refused(client) == ""
        git("reset", "-q", directory=project)
        assert "tests/data/repository/config: remote.o.url" in refused(client)


def test_the_instructions_and_the_log_name_the_refusal(project: Path) -> None:
    """confinement-48: before the first command."""
    git("config", "remote.origin.url", f"https://u:{CANARY}00Zz0123456789abcdef@host.example/x", directory=project)
    with peer(project, before=TIERS["landlock"]) as client:
        call = {"name": "get_diagnostics", "arguments": {}, "_meta": ENVELOPE}
        if "confined in tier: landlock" not in str(client.ask("tools/call", call)):
            pytest.skip("tier landlock is not available here")
        instructions = client.ask("server/discover", {"_meta": ENVELOPE})["result"]["instructions"]
        client.end()
        assert client.process.stderr is not None
        log = client.process.stderr.read().decode()
    assert "commands are refused here: they could read a credential for git in .git/config" in log
    assert "Commands are refused: they could read a credential of git." in instructions
    assert CANARY not in log + instructions
