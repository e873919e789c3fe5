"""Local servers of others: what agents plant is not run outside, and a confined one is held (docs/specs/client.md).

Each attack leaves a marker where only an unconfined process can write.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import TREE
from tests.docker_profile import under_profile
from tests.protocol.peer import connected
from tests.starting import warm
from tests.variables import NO_LOGIN_SHELL

COLD = {"PYTHONSAFEPATH": "1"}
"""Python starts anew: what it imports at its start is a part of the test."""
CLI = (sys.executable, "-P", "-m", "coretools.cli.main")
SERVER = r"""
import json, os, socket, subprocess, sys, urllib.request
def look(kind):
    try:
        if kind == "network":
            socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 2).close()
            return "reached"
        if kind == "child":
            subprocess.Popen(["sleep", "1000.25"], start_new_session=True)
            return "started"
        if kind == "write":
            open("written", "w").write("x")
            return "written"
        if kind == "each":
            return json.dumps({one: look(one) for one in ("root", "write", "home", "network")})
        return open({"root": "data", "home": os.environ["CANARY"]}[kind]).read()
    except OSError as error:
        return "refused"
tools = [{"name": "look", "inputSchema": {"type": "object", "properties": {"kind": {"type": "string"}}}}]
for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message.get("method")
    if number is None:
        continue
    reply = {"error": {"code": -32601, "message": "unknown"}}
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "theirs", "version": "1"}
        reply = {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
    elif method == "tools/list":
        reply = {"result": {"tools": tools}}
    elif method == "tools/call":
        text = look(message["params"]["arguments"]["kind"])
        reply = {"result": {"content": [{"type": "text", "text": text}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": number, **reply}), flush=True)
"""


class World:
    """A home with a canary, and a project that agents can write."""

    def __init__(self, top: Path, before: tuple[str, ...], project: str = "my project") -> None:
        self.home, self.project = top / "home", top / project
        self.marker = self.home / "marker"
        self.before = before
        self.home.mkdir()
        (self.project / ".git").mkdir(parents=True)
        (self.home / "canary").write_text("canary")
        (self.project / "data").write_text("of the root")
        (self.project / "server.py").write_text(SERVER)

    def environment(self, **more: str) -> dict[str, str]:
        fixed = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "CORETOOLS_"))}
        fixed |= {"HOME": str(self.home), "PYTHONPATH": str(TREE)}
        return {**fixed, "CORETOOLS_ALLOW_UNCONFINED": "1", **NO_LOGIN_SHELL, **more}

    def mine(self, **servers: Any) -> None:
        file = self.home / ".config" / "coretools" / "mcp.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"mcpServers": servers}))

    def theirs(self, **servers: Any) -> None:
        (self.project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def run(self, *words: str, stdin: str = "", at: str = ".", **more: str) -> subprocess.CompletedProcess[str]:
        return warm.run(
            [*self.before, *CLI, *words],
            cwd=self.project / at,
            env=self.environment(**more),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def serve(self, *words: str, **more: str) -> subprocess.Popen[bytes]:
        return warm.Popen(
            [*self.before, *CLI, "serve", "--own", "--root", str(self.project), *words],
            cwd=self.project,
            env=self.environment(**more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


TIERS: dict[str, bool] = {}
"""Whether a tier is available here, which is the same for all tests."""


@pytest.fixture(params=["full", "landlock"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    before = tuple(map(str, under_profile())) if request.param == "landlock" else ()
    found = World(tmp_path, before)
    if request.param not in TIERS:
        TIERS[request.param] = found.run("confine", "--require-tier", request.param, "--", "true").returncode == 0
    if not TIERS[request.param]:
        pytest.skip(f"tier {request.param} is not available here")
    return found


PLANT = "import os\nopen(os.environ['MARKER'], 'w').close()\n"


def plant(world: World) -> None:
    """Write code into the project, and what leads there from the home. It creates the file that MARKER names."""
    project, home = world.project, world.home
    for name in ("planted_module.py", "sitecustomize.py", "json.py", "tool.py", "__main__.py"):
        (project / name).write_text(PLANT)
    scripts = project / "node_modules" / ".bin"
    scripts.mkdir(parents=True)
    for path in (scripts / "planted-server", project / "planted-server"):
        executable(path, f"#!{sys.executable}\n{PLANT}")
    (project / "package.json").write_text(json.dumps({"name": "p", "scripts": {"start": 'touch "$MARKER"'}}))
    (project / "Makefile").write_text('start:\n\ttouch "$(MARKER)"\n')
    subprocess.run(["git", "init", "-q", project], check=True)
    with (project / ".git" / "config").open("a") as file:
        file.write('[alias]\n\tplanted = "!touch \\"$MARKER\\""\n')
    (project / "env").write_text(f"PYTHONPATH={project}\nBASH_ENV={project}/env.sh\n")
    (project / "env.sh").write_text('touch "$MARKER"\n')
    (project / "x.js").write_text("require('fs').writeFileSync(process.env.MARKER, 'ran')\n")
    (project / "sub" / ".git").mkdir(parents=True)
    (home / "link.py").symlink_to(project / "tool.py")
    (home / "linked").symlink_to(project)
    (home / "links").mkdir()
    (home / "links" / "linked-server").symlink_to(project / "planted-server")
    (home / "tools").mkdir()
    (home / "tools" / "helpers").symlink_to(project)
    (home / "tools" / "server.py").write_text("import helpers.planted_module\n")
    executable(home / "interpreter", f"#!{home}/linked/planted-server\n")
    executable(home / "options", f"#!/usr/bin/env -S -u FOO {home}/linked/planted-server\n")
    executable(home / "browser", '#!/bin/sh\n"$PLAYWRIGHT_BROWSERS_PATH"/planted-server\n')


COMPUTED = "import os; os.chdir('/'); os.execl(os.environ['HOME'] + '/linked/planted-server', 'x')"


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def planted(world: World) -> dict[str, Any]:
    """Return entries of the user that run the planted code when they are not confined."""
    project, home, python = str(world.project), str(world.home), sys.executable
    escaped = project.replace(" ", "\\ ")

    def shell(text: str, **env: str) -> dict[str, Any]:
        return {"command": "sh", "args": ["-c", text], "env": env}

    entries: dict[str, dict[str, Any]] = {
        "script": {"command": python, "args": [f"{project}/tool.py"]},
        "directory": {"command": python, "args": [project]},
        "startup": {"command": python, "args": ["-c", "0"], "env": {"PYTHONPATH": "${workspaceFolder}"}},
        "cwd": {"command": python, "args": ["-c", "import planted_module"], "cwd": "${workspaceFolder}"},
        "variables": {"command": python, "args": ["-c", "0"], "envFile": "${workspaceFolder}/env"},
        "bash": {"command": "bash", "args": ["-c", "true"], "env": {"BASH_ENV": f"{project}/env.sh"}},
        "quoted": shell(f"'{project}/planted-server'"),
        "escaped": shell(f"{escaped}/planted-server"),
        "concatenated": shell(f"cd {escaped[:-2]}'ct' && ./planted-server"),
        "relative": shell("cd; cd ..; cd 'my project'; ./planted-server"),
        "nested": shell(f"sh -c \"cd '{project}' && ./planted-server\""),
        "expanded": shell('cd "$WHERE"; ./planted-server', WHERE=project),
        "computed": {"command": python, "args": ["-c", COMPUTED]},
        "alias": {"command": "git", "args": ["-c", "alias.x=!~/linked/planted-server", "x"]},
        "home": shell("cd ~/linked && ./planted-server"),
        "wrapped": {"command": "env", "args": ["A=b", f"{project}/planted-server"]},
        "one-word": {"command": "env", "args": ["-S", f"{python} '{project}/tool.py'"]},
        "npm": {"command": "npm", "args": ["--prefix", project, "start"]},
        "ionice": {"command": "ionice", "args": ["-c3", python, project]},
        "flock": {"command": "flock", "args": [f"{home}/lock", python, project]},
        "setpriv": {"command": "setpriv", "args": ["--no-new-privs", python, project]},
        "make": {"command": "make", "args": ["-sC", project, "start"]},
        "make-in-one": {"command": "make", "args": [f"-sC{home}/linked", "start"]},
        "git": {"command": "git", "args": ["-C", project, "planted"]},
        "node": {"command": "node", "args": ["-e", "0"], "env": {"NODE_OPTIONS": f"--require={home}/linked/x.js"}},
        "browser": {"command": f"{home}/browser", "env": {"PLAYWRIGHT_BROWSERS_PATH": project}},
        "link": {"command": python, "args": [f"{home}/link.py"]},
        "beside": {"command": python, "args": [f"{home}/tools/server.py"]},
        "interpreter": {"command": f"{home}/interpreter"},
        "options": {"command": f"{home}/options"},
        "module": {"command": python, "args": ["-m", "linked"]},
        "submodule": {"command": python, "args": ["-m", "linked.planted_module"]},
        "search": {"command": "planted-server"},
    }
    for launcher in (["env"], ["timeout", "9"], ["nice"], ["sh", "-c", 'exec "$0"']):
        entries[f"{launcher[0]}-on-path"] = {"command": launcher[0], "args": [*launcher[1:], "linked-server"]}
    return {
        name: {**entry, "env": {**entry.get("env", {}), "MARKER": f"{home}/marker-{name}"}}
        for name, entry in entries.items()
        if name == "search" or shutil.which(entry["command"])
    }


def ran(world: World) -> set[str]:
    """Return the names of the entries whose planted code ran outside the sandbox."""
    return {path.name.removeprefix("marker-") for path in world.home.glob("marker-*")}


LISTED = ("mcp", "list", "--connect-timeout", "60")


def searched(world: World) -> str:
    return f"{world.home}/links:{world.project}:{world.project}/node_modules/.bin:.::{os.environ['PATH']}"


def test_what_agents_plant_runs_where_nothing_is_confined(tmp_path: Path) -> None:
    """client-29: each attack of the next test works."""
    world = World(tmp_path, ())
    plant(world)
    entries = planted(world)
    world.mine(**entries)
    world.run(*LISTED, PATH=searched(world), CORETOOLS_UNCONFINED=";".join(entries))
    assert ran(world) == entries.keys()


def test_what_agents_plant_is_not_run_outside_the_sandbox(world: World) -> None:
    """client-29: whatever way an entry of the user leads to the project."""
    plant(world)
    entries = planted(world)
    world.mine(**entries)
    found = world.run(*LISTED, PATH=searched(world))
    assert found.returncode == 0, found.stderr
    assert found.stdout.count(" failed  stdio ") == len(entries), found.stdout
    assert ran(world) == set()
    world.run("mcp", "ping", "script", at="sub", **COLD)  # where a planted .git makes the project appear smaller
    assert ran(world) == set()


def test_our_own_server_and_the_repl_run_no_planted_code(world: World) -> None:
    """client-29, upstream-14: `--upstream`, at the start and when the server is started again."""
    plant(world)
    entries = {name: entry for name, entry in planted(world).items() if name in ("module", "script", "search", "cwd")}
    world.mine(**entries)
    words = [word for name in entries for word in ("--upstream", name)]
    process = world.serve(*words, PATH=f"{world.project}:{os.environ['PATH']}")
    with connected(process) as peer:
        peer.start_session()
        peer.ask("tools/list")
        assert peer.end() == 0
    world.run("repl", stdin="/mcp\n", **COLD)
    assert ran(world) == set()


USUAL = ("mcp", "call", "--yes", "--output", "text")


def test_usual_servers_of_the_user_work(world: World, tmp_path: Path) -> None:
    """client-29: in the home with all rights, unless the project is named; then the error says what gives them."""
    server = world.home / "server.py"
    server.write_text(SERVER)
    script = "import os, sys; os.chdir(sys.argv[1]); exec(open(sys.argv[2]).read())"
    env = {"CANARY": str(world.home / "canary")}
    world.mine(
        mine={"command": sys.executable, "args": ["server.py"], "env": env},
        data={"command": sys.executable, "args": ["-c", script, str(world.project), str(server)], "env": env},
        above={
            "command": sys.executable,
            "args": [f"{world.project}/server.py"],
            "cwd": str(tmp_path),
            "env": env,
        },
    )
    assert world.run(*USUAL, "mine", "look", "kind=home").stdout.strip() == "canary"
    assert world.run(*USUAL, "above", "look", "kind=root").stdout.strip() == "of the root"
    refused = world.run(*USUAL, "data", "look", "kind=root")
    assert f"{world.project} can be changed by tools or commands" in refused.stderr
    assert "--unconfined data gives it all your rights" in refused.stderr
    assert world.run(*USUAL, "data", "look", "kind=root", "--unconfined", "data").stdout.strip() == "of the root"


def test_a_name_of_no_server_is_refused(tmp_path: Path) -> None:
    """client-30, upstream-14: in the REPL as elsewhere; a variable serves all lines, and may name others."""
    world = World(tmp_path, ())
    world.mine(it={"command": "true"})
    for line in (("mcp", "list", "--confine", "tpyo=npm"), ("repl", "--unconfined", "tpyo")):
        found = world.run(*line)
        assert found.returncode != 0
        assert "no server 'tpyo' is configured" in found.stderr
    assert world.run("repl", CORETOOLS_UNCONFINED="another").returncode == 0


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


def theirs(world: World, port: str) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": ["server.py"],
        "env": {"PORT": port, "CANARY": str(world.home / "canary")},
    }


LOOKS = {"root": "of the root", "write": "written", "home": "refused", "network": "refused"}


def test_a_server_of_the_project_is_confined(world: World, listening: str) -> None:
    """client-30: by `coretools mcp call` and in the background; `--unconfined` gives it the user's rights."""
    world.theirs(it=theirs(world, listening))
    line = ("mcp", "call", "it", "look", "--yes", "--trust-project", "--output", "text")
    found = world.run(*line, "kind=each")
    assert json.loads(found.stdout) == LOOKS, found.stderr
    assert world.run(*line, "kind=home", "--unconfined", "it").stdout.strip() == "canary"
    short = Path(tempfile.mkdtemp(prefix="ct", dir="/tmp"))  # for a socket
    runtime = {"XDG_RUNTIME_DIR": str(short)}
    started = world.run("mcp", "start", "it", "--trust-project", **runtime)
    assert started.returncode == 0, started.stderr
    assert world.run(*line, "kind=home", **runtime).stdout.strip() == "refused"
    assert world.run("mcp", "stop", **runtime).returncode == 0
    subprocess.run(["rm", "-r", "-f", short], check=True)  # the process that was stopped removes its socket meanwhile


def test_a_confined_server_works_through_ours(world: World, listening: str) -> None:
    """upstream-14: its tools are offered, and read the root; the home and the network are out of its reach."""
    world.theirs(it=theirs(world, listening))
    assert world.run("mcp", "trust", "it", "--yes").returncode == 0
    assert world.run("mcp", "approve", "it", "--yes").returncode == 0
    with connected(world.serve("--upstream", "it")) as peer:
        peer.start_session()
        assert json.loads(peer.call("look", kind="each")["content"][0]["text"]) == LOOKS
        assert peer.end() == 0


def test_a_killed_client_leaves_nothing_of_a_confined_server(world: World, listening: str) -> None:
    """client-30, client-10: also what left the group of the program."""
    world.theirs(it=theirs(world, listening))
    world.run("mcp", "trust", "it", "--yes")
    world.run("mcp", "approve", "it", "--yes")
    with connected(world.serve("--upstream", "it")) as peer:
        peer.start_session()
        assert peer.call("look", kind="child")["content"][0]["text"] == "started"
        handles = [os.pidfd_open(pid) for pid in with_words("sleep", "1000.25")]
        assert handles
        os.kill(peer.process.pid, signal.SIGKILL)
        for handle in handles:
            assert select.select([handle], [], [], 60)[0]
            os.close(handle)


def with_words(*words: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().split(b"\0")[:-1] == [word.encode() for word in words]:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_project_may_be_named_like_a_root_with_rights(tmp_path: Path) -> None:
    """client-30: `x:rw` is the project's name here, and no right to its neighbour `x`."""
    world = World(tmp_path, (), "x:rw")
    (tmp_path / "x").mkdir()
    script = "cat data; touch written; touch ../x/written"
    assert world.run("confine", "--", "sh", "-c", script).stdout == "of the root"
    world.theirs(it={"command": "sh", "args": ["-c", script]})
    world.run("mcp", "ping", "it", "--trust-project")
    assert [path.name for path in tmp_path.glob("*/written")] == ["written"]
    assert (world.project / "written").exists()


def test_a_program_is_run_on_its_callers_streams(world: World) -> None:
    """cli-19: with its exit code; it sees the roots, and nothing of the home."""
    script = f"cat; cat data; cat {world.home}/canary; exit 3"
    found = world.run("confine", "--", "sh", "-c", script, stdin="in\n")
    assert (found.stdout, found.returncode) == ("in\nof the root", 3)
    assert world.run("confine", "--root", f"{world.project}:ro", "--", "touch", "new").returncode != 0
    assert not (world.project / "new").exists()
    assert world.run("confine", "--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    assert world.run("confine", "--", "no-such-program").returncode == 127


HOLD = """
import fcntl, os
for number in (0, 1):
    for change in (
        lambda: os.fchmod(number, 0o4777),
        lambda: os.utime(number, (1, 1)),
        lambda: os.setxattr(number, "user.planted", b"x"),
        lambda: fcntl.fcntl(number, fcntl.F_SETFL, 0),
        lambda: os.ftruncate(number, 0),
    ):
        try:
            change()
        except OSError:
            pass
os.write(1, os.read(0, 9))
os.write(2, b"second\\n")
os.write(1, b"third\\n")
"""


def test_a_file_that_is_redirected_to_a_program_is_out_of_its_reach(world: World) -> None:
    """cli-20: it reads and appends, and changes neither mode, times and attributes nor what is there."""
    given, log = world.home / "given", world.home / "log"
    given.write_text("given\n")
    log.write_text("first\n")
    before = [(file.stat().st_mode, file.stat().st_mtime > 1) for file in (given, log)]
    line = [*world.before, *CLI, "confine", "--"]
    settings: dict[str, Any] = {"cwd": world.project, "env": world.environment()}
    with given.open() as source, log.open("a") as target:
        hold = [*line, sys.executable, "-c", HOLD]
        warm.run(hold, stdin=source, stdout=target, stderr=target, check=True, timeout=60, **settings)
    assert (given.read_text(), log.read_text()) == ("given\n", "first\ngiven\nsecond\nthird\n")
    assert [(file.stat().st_mode, file.stat().st_mtime > 1) for file in (given, log)] == before
    assert [name for file in (given, log) for name in os.listxattr(file)] == []
    with open("/dev/full", "w") as full:
        ended = warm.run([*line, "echo"], stdout=full, stderr=subprocess.PIPE, timeout=60, **settings)
    assert ended.returncode == 74
    assert b"standard output can't be written: No space left" in ended.stderr


def test_a_server_that_must_be_confined_is_not_started_without_a_sandbox(tmp_path: Path) -> None:
    """client-30: the error names the option; what the policy allows to commands does not count."""
    world = World(tmp_path, (sys.executable, "-m", "tests.confinement.without_landlock"))
    world.theirs(it={"command": "touch", "args": [str(world.marker)]})
    found = world.run("mcp", "ping", "it", "--trust-project")
    assert found.returncode == 69
    assert "can't be confined on this machine" in found.stdout
    assert "--unconfined it" in found.stdout
    assert not world.marker.exists()
