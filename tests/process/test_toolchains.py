"""Toolchains of the user, in homes made for the purpose, with real servers (docs/specs/toolchains.md)."""

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from anyio import to_thread

from coretools.app.assembly import open_assembly
from coretools.config.limits import Limits
from coretools.config.options import with_login_path
from coretools.config.settings import Settings
from coretools.confinement import landlock
from coretools.confinement.command_path import Programs, is_usable, merged_path
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.confinement.toolchain_grants import ToolchainSources, path_links, user_toolchains
from coretools.errors import BadSetting
from coretools.process.login_shell import NO_SHELLS, LoginShell
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root_set import Roots, RootSpec
from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, marker, peer, wait_until_none, wait_until_some

TIERS = {"full": (), "landlock": tuple(under_profile())}

SHELL = next((one.pw_shell.rpartition("/")[2] for one in pwd.getpwall() if one.pw_uid == os.geteuid()), "")
NO_SHELL = SHELL in NO_SHELLS or SHELL not in ("sh", "bash", "dash", "ksh", "zsh")
needs_landlock = pytest.mark.skipif(landlock.abi() < landlock.ABI_REQUIRED, reason="Landlock (Linux 6.2)")
SHORT = "/usr/bin:/bin"
"""PATH of a server that a desktop client starts."""

CANARY = "canary-7c1d"

PROGRAMS = {
    "pyenv": ".pyenv/shims",
    "conda": "miniconda3/bin",
    "nvm": ".nvm/versions/node/v22.1.0/bin",
    "fnm": ".local/share/fnm/aliases/default/bin",
    "volta": ".volta/bin",
    "npm-global": ".npm-global/bin",
    "pnpm": ".local/share/pnpm",
    "bun": ".bun/bin",
    "deno": ".deno/bin",
    "cargo": ".cargo/bin",
    "go": "go/bin",
    "go-release": "sdk/go1.22.1/bin",
    "sdkman": ".sdkman/candidates/maven/current/bin",
    "asdf": ".asdf/shims",
    "mise": ".local/share/mise/shims",
    "rbenv": ".rbenv/shims",
    "dotnet": ".dotnet",
    "local": ".local/bin",
}
"""A program of each toolchain, by the directory in which it is found."""

NAMES = {"dotnet": "dotnet", "pnpm": "pnpm"}
"""Programs that are granted by name."""

SECRETS = (
    *(".cargo/credentials.toml", ".cargo/config.toml", ".m2/settings.xml", ".gradle/gradle.properties", ".npmrc"),
    *(".config/gh/hosts.yml", ".local/share/uv/credentials/credentials.toml", ".dotnet/corefx/cryptography/key"),
    *("miniconda3/.condarc", "miniconda3/pkgs/urls.txt", ".ssh/id_ed25519", ".docker/config.json", ".netrc"),
    *(".aws/credentials", "notes.txt", "work/other/.env", "work/other/main.py", ".asdf/.git/config", ".nvm/.npmrc"),
    *(".sdkman/etc/config", ".local/share/mise/trusted", ".bun/.bunfig.toml", ".local/share/keyrings/login.keyring"),
    # Configuration beside the programs of a toolchain, as package managers read it for one installation.
    *(
        ".nvm/versions/node/v22.1.0/etc/npmrc",
        ".pyenv/versions/3.12.1/pip.conf",
        ".pyenv/versions/3.12.1/envs/x/pip.conf",
    ),
    *(
        ".local/share/pipx/venvs/black/pipx_metadata.json",
        ".local/share/pipx/venvs/black/pip.conf",
        "sdk/go1.22.1/.env",
    ),
    *(
        "miniconda3/envs/x/.condarc",
        "miniconda3/conda-meta/history",
        ".sdkman/candidates/maven/current/conf/settings.xml",
    ),
    *(".pyenv/plugins/x/.git/config", ".rbenv/versions/3.3.0/etc/gemrc"),
    *(".local/share/uv/tools/ruff/uv-receipt.toml", ".rustup/.netrc", ".volta/tools/image/node/22/etc/npmrc"),
    *(".cache/pip/http", ".bash_history", ".volta/hooks.json", ".local/share/pnpm/rc", "go/src/private/main.go"),
)
"""Files of the home beside them that no command may read."""


def program(path: Path, text: str) -> Path:
    """A program that prints a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {text}\n")
    path.chmod(0o755)
    return path


def secret(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<password>{CANARY}</password> https://host/t/token-{CANARY}/x\n")
    path.chmod(0o644)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a root `work/project` in it."""
    (tmp_path / "home" / "work" / "project").mkdir(parents=True)
    return tmp_path / "home"


def profile(home: Path, text: str) -> None:
    """What the login shell reads, whichever it is."""
    for name in (".profile", ".bash_profile", ".zprofile"):
        (home / name).write_text(text)


@contextmanager
def served(home: Path, *words: str, tier: str = "full", root: Path | None = None, **environment: str) -> Iterator[Peer]:
    """A server as a desktop client starts it, with this home and a root in it."""
    unset = dict.fromkeys(("CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "GOPATH", "NVM_DIR", "JAVA_HOME"), "")
    ours = {"HOME": str(home), "PATH": SHORT, "XDG_CACHE_HOME": str(home / ".cache"), "CORETOOLS_LOGIN_PATH": "1"}
    variables = {**unset, **ours, **environment}
    with peer(root or home / "work" / "project", *words, environment=variables, before=TIERS[tier]) as client:
        client.start_session()
        yield client


def text_of(client: Peer, command: str) -> str:
    found: str = client.call("run_command", command=command, timeout_seconds=60)["content"][0]["text"]
    return found


VENVS = ("work/venv", "venvs/one", ".virtualenvs/two", "data/three")
"""Virtual environments: beside the root, in the usual directories, and in one that the operator grants."""


def linked_environments(home: Path) -> None:
    """Virtual environments with an interpreter in an unusual place, and secrets beside all of it."""
    interpreter = program(home / "builds/python-3.12/bin/python3.12", "interpreted")
    (home / "builds/python-3.12/lib/python3.12").mkdir(parents=True)
    (home / "builds/python-3.12/lib/python3.12/os.py").touch()
    secret(home / "builds/notes")
    for name in VENVS:
        (home / name / "bin").mkdir(parents=True)
        (home / name / "pyvenv.cfg").touch()
        (home / name / "bin/python").symlink_to(interpreter)
    for name in VENVS[:3]:
        secret(home / name / ".env")
    (home / "policy.toml").write_text(f'[confinement]\nreadable = ["{home}/data"]\n')


@pytest.mark.parametrize("tier", TIERS)
def test_the_programs_of_a_toolchain_run_and_the_secrets_beside_them_stay_closed(home: Path, tier: str) -> None:
    """toolchains-1, toolchains-2, toolchains-3, toolchains-4, toolchains-8, toolchains-19: whatever the PATH is."""
    profile(home, f"touch {home}/started\n")
    linked_environments(home)
    for name, directory in PROGRAMS.items():
        program(home / directory / NAMES.get(name, f"tool-{name}"), f"{name} runs")
    program(home / ".local/share/pipx/venvs/black/bin/black", "pipx runs")
    (home / ".local/share/pipx/venvs/black/lib").mkdir()
    (home / ".local/bin/tool-pipx").symlink_to(home / ".local/share/pipx/venvs/black/bin/black")
    program(home / ".local/share/agent/versions/1.0", "alone runs")
    (home / ".local/bin/tool-alone").symlink_to(home / ".local/share/agent/versions/1.0")
    secret(home / ".local/share/agent/versions/token")
    (home / ".nvm/alias/lts").mkdir(parents=True)
    (home / ".nvm/alias/default").write_text("lts/*\n")
    (home / ".nvm/alias/lts/*").write_text("lts/jod\n")
    (home / ".nvm/alias/lts/jod").write_text("v22.1.0\n")
    program(home / ".nvm/versions/node/v24.0.0/bin/tool-nvm", "wrong")
    rehash = program(home / ".pyenv/shims/tool-rehash", "installed")
    refused = f"pyenv: cannot rehash: {home}/.pyenv/shims isn't writable"
    with rehash.open("a") as file:
        file.write(f'true > {home}/.pyenv/shims/made || {{ echo "{refused}"; exit 1; }}\n')
    for name in (*SECRETS, ".local/share/agent/versions/token"):
        secret(home / name)
    with served(home, "--no-login-path", "--policy", str(home / "policy.toml"), tier=tier) as client:
        wanted = [*PROGRAMS, "pipx", "alone"]
        said = text_of(client, "sh -c '" + "; ".join(NAMES.get(name, f"tool-{name}") for name in wanted) + "'")
        assert said.splitlines() == [f"{name} runs" for name in wanted]
        said = text_of(client, "sh -c '" + "; ".join(f"{home}/{name}/bin/python" for name in VENVS) + "'")
        assert said.splitlines() == ["interpreted"] * len(VENVS)
        closed = [".local/share/agent/versions/token", "builds/notes", *(f"{name}/.env" for name in VENVS[:3])]
        files = " ".join(str(home / name) for name in (*SECRETS, *closed))
        assert CANARY not in text_of(client, f"cat {files}")
        writes = text_of(client, f"sh -c 'for d in {' '.join(PROGRAMS.values())}; do echo x > {home}/$d/made; done'")
        assert "change nothing there" in text_of(client, f"sh -c 'echo x > {home}/go/bin/made; echo y'")
        assert "change nothing there" not in text_of(client, f"sh -c 'echo {home}/go/bin/made; exit 1'")
        assert "what pip installed is there" in text_of(client, "tool-rehash")
        assert "made" not in [path.name for path in home.rglob("made")], writes
        assert not (home / "started").exists()


@pytest.mark.skipif(NO_SHELL, reason="this user has no login shell")
@pytest.mark.parametrize("tier", TIERS)
def test_the_login_shell_decides_which_program_a_command_gets(home: Path, tmp_path: Path, tier: str) -> None:
    """toolchains-5, toolchains-6, toolchains-9: its order, without what others could put there."""
    project = home / "work" / "project"
    program(home / ".nvm/versions/node/v22.1.0/bin/node", "v22.1.0")
    (home / ".nvm/versions/node/v22.1.0/lib").mkdir()
    program(project / "bin/planted", "planted")
    program(home / ".nvm/versions/node/v22.1.0/bin/git", "of the login shell")
    program(project / "venv/bin/installed", "installed")
    (project / "venv/pyvenv.cfg").touch()
    (project / "linked").symlink_to("bin")
    open_to_all = program(tmp_path / "open/bin/planted", "planted").parent
    open_to_all.parent.chmod(0o777)
    (tmp_path / "through").symlink_to(project / "bin")
    entries = [
        *(project / "bin", project / "linked", tmp_path / "through", open_to_all, "bin", "", ".", "/no/such/place"),
        *(home / ".nvm/versions/node/v22.1.0/bin", project / "venv/bin", "$PATH"),
    ]
    profile(home, f'echo noise; export PATH="{":".join(map(str, entries))}"\n')
    with served(home, tier=tier) as client:
        assert text_of(client, "node --version").splitlines()[0] == "v22.1.0"
        assert text_of(client, "installed").splitlines()[0] == "installed"
        assert "not found" in text_of(client, "planted")
        assert text_of(client, "git --version").splitlines()[0] == "of the login shell"
        assert "of the login shell" not in str(client.call("git_status"))


@pytest.mark.parametrize("tier", TIERS)
def test_no_command_can_put_a_git_in_place_of_that_of_the_tools(home: Path, tmp_path: Path, tier: str) -> None:
    """toolchains-9: an activated environment in the project, a link to it, and a directory that is open to all."""
    project = home / "work" / "project"
    subprocess.run(["git", "init", "-q", project], check=True)
    (project / "text").write_text("found here\n")
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/pyvenv.cfg").touch()
    (tmp_path / "linked").symlink_to(project / ".venv/bin")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    folders = [project / ".venv/bin", tmp_path / "linked", tmp_path / "open"]
    path = ":".join(map(str, [*folders, SHORT]))
    planted = f"#!/bin/sh\ntouch {project}/planted\n"
    for name in ("git", "rg"):
        program(tmp_path / "open" / name, "x").write_text(planted)
    with served(home, "--no-login-path", tier=tier, PATH=path) as client:
        for name in ("git", "rg", "bash"):
            client.call("write_file", path=f".venv/bin/{name}", content=planted)
            text_of(client, f"chmod 755 .venv/bin/{name}")
        assert text_of(client, "echo one; echo two").splitlines()[:2] == ["one", "two"]
        assert "text" in str(client.call("git_status"))
        assert "found here" in str(client.call("search_text", pattern="found"))
        assert not (project / "planted").exists()
        text_of(client, "git status")
        assert (project / "planted").exists()  # commands have the PATH of the server


@pytest.mark.skipif(NO_SHELL, reason="this user has no login shell")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("sleep {token} & sleep {token}", "did not answer within 2 s"),
        ("exit 3", "did not print it"),
        ("exec yes", "did not answer within 2 s"),
        ("sleep {token} & head -c 3000000 /dev/zero | tr '\\0' x; PATH=$PATH:{home}", ""),
        ("PATH=$PATH:{home}:/names/$(env | cut -d= -f1 | tr '\\n' /)", ""),
        ("setsid sleep {token} >/dev/null 2>&1 </dev/null & PATH=$PATH:{home}", ""),
        ("trap '' TERM HUP INT; while :; do sleep {token}; done", "did not answer within 2 s"),
        ("printf '\\0\\377\\033[2J\n\n:::\n'; exec 2>&-; PATH=$PATH:{home}:$(printf 'a\001b')", ""),
    ],
    ids=["hangs", "exits", "endless", "floods", "tells", "leaves", "ignores", "garbles"],
)
async def test_whatever_a_login_shell_does_it_ends_with_all_that_it_started(home: Path, text: str, fault: str) -> None:
    """toolchains-5, toolchains-7: in bounded time and memory, and it gets no variable of the server."""
    token = marker()
    profile(home, text.format(token=token, home=home) + "\n")
    server = {"HOME": str(home), "PATH": "/server", "SECRET_TOKEN": "x", "PYTHONPATH": "/x"}
    runner = Runner(Limits(grace_seconds=0.3), {"PATH": SHORT})
    with (
        Roots([RootSpec(str(home / "work" / "project"))], deny=DenyRules(())) as roots,
        closing(ConfinedThreadPool()) as confined_threads,
    ):
        login = LoginShell(roots, server, confined_threads, seconds=2.0)
        try:
            await login.read(runner)
            await login.read(runner)
        finally:
            await runner.close()
    assert await to_thread.run_sync(wait_until_none, token) == []
    assert fault in login.fault
    assert bool(fault) == bool(login.fault)
    assert bool(login.path()) is (not fault)
    if not fault:
        assert str(home) in login.path()
        assert "/server" not in login.path()
    if names := [set(entry.split("/")) for entry in login.path() if entry.startswith("/names/")]:
        assert {"HOME", "PATH"} <= names[0]
        assert names[0].isdisjoint({"SECRET_TOKEN", "PYTHONPATH"})


CHANGES = """
echo new > {home}/made; echo more >> {home}/kept; : > {home}/kept; rm -f {home}/kept; mv {home}/kept {home}/moved
mkdir {home}/directory; ln -s x {home}/link; ln {home}/kept {home}/hard; mkfifo {home}/fifo; rmdir {home}/empty
truncate -s 0 {home}/kept
{python} -I -S -c "import socket; socket.create_connection(('127.0.0.1', {port}))"
(set -C; : > {home}/lock)
echo unseen >/dev/null
"""
"""What a profile may attempt; nothing of it must happen."""


def content(home: Path) -> dict[str, str | None]:
    """All paths of a home, with the content of its files."""
    return {str(path): path.read_text() if path.is_file() else None for path in sorted(home.rglob("*"))}


@needs_landlock
@pytest.mark.skipif(NO_SHELL, reason="this user has no login shell")
async def test_a_login_shell_changes_nothing_and_tells_its_path_all_the_same(home: Path) -> None:
    """toolchains-20: neither files nor a connection; it has temporary files, which are gone afterwards."""
    (home / "kept").write_text("as it was\n")
    (home / "empty").mkdir()
    settings = Settings(roots=(str(home / "work" / "project"),))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        changes = CHANGES.format(home=home, python=sys.executable, port=listener.getsockname()[1])
        profile(home, f'{changes}\nfile=$(mktemp); echo {home}/bin > "$file"; PATH=$PATH:$(cat "$file")\n')
        before = content(home)
        async with open_assembly(settings, {"HOME": str(home), "PATH": SHORT}) as assembly:
            login = LoginShell(assembly.roots, {"HOME": str(home)}, assembly.confined_threads, seconds=60.0)
            await login.read(assembly.runner)
            assert not os.access(assembly.runner.scratch, os.F_OK)
        assert (login.fault, login.path()[-1]) == ("", f"{home}/bin")
        assert content(home) == before
        with pytest.raises(BlockingIOError):
            listener.accept()


@needs_landlock
@pytest.mark.skipif(NO_SHELL, reason="this user has no login shell")
def test_a_killed_server_leaves_no_lock_of_its_login_shell(home: Path, tmp_path: Path) -> None:
    """toolchains-20: a version manager's lock would stop every later login; no process and no file is left."""
    token = marker()
    profile(home, f"(set -C; : > {home}/lock); echo x > {home}/made; mktemp; sleep {token}\n")
    (tmp_path / "temporary").mkdir()
    before = content(home)
    with served(home, TMPDIR=str(tmp_path / "temporary")) as client:
        client.send("tools/call", {"name": "run_command", "arguments": {"command": "true"}})
        wait_until_some(token)
        client.process.kill()
        assert wait_until_none(token) == []
        assert wait_until_none(f"{tmp_path}/temporary") == []  # the watchdog, which is told of that directory
    assert content(home) == before
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.skipif(NO_SHELL, reason="this user has no login shell")
def test_the_default_version_of_a_version_manager_precedes_the_programs_of_the_system(home: Path) -> None:
    """toolchains-6: managers are set up for interactive shells; without a default, and by itself, nothing precedes."""
    profile(home, "PATH=$PATH:/no/such\n")
    program(home / ".nvm/versions/node/v22.1.0/bin/sort", "chosen")
    program(home / ".rbenv/shims/uniq", "not chosen")
    (home / ".nvm/alias").mkdir()
    (home / ".nvm/alias/default").write_text("22\n")
    with served(home) as client:
        assert text_of(client, "sort --version").splitlines()[0] == "chosen"
        assert "not chosen" not in text_of(client, "uniq --version")
    with served(home, "--no-login-path") as client:
        assert "chosen" not in text_of(client, "sort --version")


@pytest.mark.skipif(NO_SHELL, reason="this user has no login shell")
@pytest.mark.parametrize("tier", TIERS)
def test_toolchains_in_a_home_that_is_a_root_replace_no_program(home: Path, tier: str) -> None:
    """toolchains-6, trust-5: commands may write there: only programs of other names are found, and no profile runs."""
    profile(home, f"PATH={home}/.local/bin:{home}/work/project/bin:$PATH\n")
    program(home / ".local/bin/tool-local", "local runs")
    program(home / ".nvm/versions/node/v22.1.0/bin/tool-nvm", "nvm runs")
    for place in (".local/bin", ".nvm/versions/node/v22.1.0/bin", "work/project/bin"):
        program(home / place / "sort", "planted")
    program(home / "work/project/bin/tool-project", "project runs")
    with served(home, tier=tier, root=home) as client:
        said = text_of(client, "sh -c 'tool-local; tool-nvm; tool-project; sort --version'")
        if tier == "landlock":  # which can't hide our own state in a home
            assert "commands are refused in tier landlock" in said
            return
        assert said.splitlines()[:2] == ["local runs", "nvm runs"]
        assert "planted" not in said
        assert "project runs" not in said


def test_only_servers_that_a_desktop_client_starts_read_the_login_shell() -> None:
    """toolchains-8: a flag and a variable switch it off; the HTTP server has no such option."""
    settings = Settings(roots=("/",))
    assert not settings.reads_login_path
    assert with_login_path(settings, {}).reads_login_path
    assert not with_login_path(settings, {}, is_off=True).reads_login_path
    assert not with_login_path(settings, {"CORETOOLS_LOGIN_PATH": "0"}).reads_login_path
    with pytest.raises(BadSetting, match="CORETOOLS_LOGIN_PATH=maybe"):
        with_login_path(settings, {"CORETOOLS_LOGIN_PATH": "maybe"})


def test_a_link_in_a_root_grants_nothing(home: Path) -> None:
    """toolchains-3: commands can make links, and virtual environments, in a root."""
    (home / "private/bin").mkdir(parents=True)
    (home / "private/lib/python3.12").mkdir(parents=True)
    (home / "private/lib/python3.12/os.py").touch()
    program(home / "private/bin/python3", "x")
    venv = home / "work/project/.venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    (venv / "bin/python").symlink_to(home / "private/bin/python3")
    sources = ToolchainSources(
        environment={"PATH": f"{venv}/bin:{SHORT}"}, home=str(home), roots=[str(home / "work/project")]
    )
    found = user_toolchains(sources)
    assert [grant.path for grant in found.grants if grant.path.startswith(str(home))] == []
    assert found.path == f"{venv}/bin:{SHORT}"


@pytest.mark.parametrize("tier", TIERS)
def test_a_directory_above_a_root_on_path_leaves_the_root_writable(home: Path, tier: str) -> None:
    """toolchains-3: it is granted in parts where a secret lies in it, and none of them beneath the root."""
    root = home / "work/project"
    (root / "file").write_text("one\n")
    secret(root / ".npmrc")
    program(home / "work/tool", "tool runs")
    with served(home, tier=tier, PATH=f"{home}/work:{SHORT}") as client:
        assert "tool runs" in text_of(client, "sh -c 'echo two >> file; mkdir new; echo three > new/file; tool'")
    assert (root / "file").read_text() == "one\ntwo\n"
    assert (root / "new/file").exists()


@pytest.mark.parametrize("name", [".ssh", ".config/gh", ".kube", ".docker", ".cargo", ".m2", ".local/share", ""])
def test_path_and_links_never_grant_credentials(home: Path, name: str) -> None:
    """toolchains-4: neither a directory of credentials nor one that contains some, however it is named."""
    place = home / name
    program(place / "bin/run", "x")
    (place / "lib").mkdir(exist_ok=True)
    for one in SECRETS:
        secret(home / one)
    (home / ".local/bin").mkdir(exist_ok=True)
    (home / ".local/bin/run").symlink_to(place / "bin/run")
    (home / "tools").symlink_to(place)
    (home / ".volta").mkdir(exist_ok=True)
    (home / ".volta/bin").symlink_to(home / ".ssh")
    environment = {"PATH": f"{place}/bin:{home}/tools/bin:{home}/.local/bin"}
    found = user_toolchains(ToolchainSources(environment=environment, home=str(home), login_path=[str(place / "bin")]))
    readable = [one for one in SECRETS if any(f"{home}/{one}".startswith(f"{grant.path}/") for grant in found.grants)]
    assert readable == []


def test_path_of_commands_keeps_the_order_of_who_started_the_server(tmp_path: Path) -> None:
    """toolchains-6: additions of the starter, the login shell, the rest; found directories replace no program."""
    names = [str(tmp_path / name) for name in ("venv", "login", "found")]
    for name in names:
        os.mkdir(name, 0o755)
    venv, login, found = names
    programs = Programs(others=(found, login))
    merged = merged_path(f"{venv}:/usr/bin:/bin", [login, "/usr/bin"], programs, roots=())
    assert merged == f"{venv}:{login}:/usr/bin:/bin:{found}"
    chosen = Programs(chosen=(found, login))
    assert merged_path("/usr/bin", [login, "/usr/bin"], chosen, roots=()) == f"{login}:{found}:/usr/bin"
    assert merged_path(f"{found}:/bin", ["/usr/bin", login], chosen, roots=()) == f"{found}:/usr/bin:{login}:/bin"
    assert merged_path("/usr/bin", [], chosen, roots=()) == f"/usr/bin:{found}:{login}"
    assert merged_path(f"/usr/bin:{venv}", [], Programs(), roots=()) == f"/usr/bin:{venv}"
    assert merged_path("", ["relative", "/no/such"], Programs(), roots=()) == ""
    inner = tmp_path / "venv" / "bin"
    inner.mkdir()
    for mode, usable in ((0o755, True), (0o777, False), (0o1777, False)):
        inner.chmod(mode)
        assert is_usable(str(inner), ()) is usable
    inner.chmod(0o755)
    (tmp_path / "venv").chmod(0o777)
    assert not is_usable(str(inner), ())
    assert not is_usable(f"{venv}/bin\nx", ())


def test_links_on_path_that_lie_in_a_granted_directory_are_not_made_again(tmp_path: Path) -> None:
    """toolchains-2: `candidates/java/current` is a link within what is mounted."""
    (tmp_path / "java/17/bin").mkdir(parents=True)
    (tmp_path / "java/current").symlink_to("17")
    (tmp_path / "outer").symlink_to("java/17")
    path = f"{tmp_path}/java/current/bin:{tmp_path}/outer/bin"
    assert path_links(path, [f"{tmp_path}/java"]) == [(f"{tmp_path}/outer/bin", f"{tmp_path}/java/17/bin")]
