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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import TREE
from tests.docker_profile import under_profile
from tests.protocol.peer import Peer
from tests.variables import NO_LOGIN_SHELL

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

    def __init__(self, top: Path, before: tuple[str, ...]) -> None:
        self.home, self.project = top / "home", top / "project"
        self.marker = self.home / "marker"
        self.before = before
        self.home.mkdir()
        (self.project / ".git").mkdir(parents=True)
        (self.home / "canary").write_text("canary")
        (self.project / "data").write_text("of the root")
        (self.project / "server.py").write_text(SERVER)

    @property
    def plant(self) -> str:
        """Python that leaves the marker."""
        return f"open({str(self.marker)!r}, 'w').write('ran')\n"

    def environment(self, **more: str) -> dict[str, str]:
        fixed = {"HOME": str(self.home), "PATH": os.environ["PATH"], "PYTHONPATH": str(TREE)}
        return {**fixed, "CORETOOLS_ALLOW_UNCONFINED": "1", **NO_LOGIN_SHELL, **more}

    def mine(self, **servers: Any) -> None:
        file = self.home / ".config" / "coretools" / "mcp.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"mcpServers": servers}))

    def theirs(self, **servers: Any) -> None:
        (self.project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def run(self, *words: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.before, *CLI, *words],
            cwd=self.project,
            env=self.environment(**more),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def serve(self, *words: str, **more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.before, *CLI, "serve", "--own", "--root", str(self.project), *words],
            cwd=self.project,
            env=self.environment(**more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture(params=["full", "landlock"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    before = tuple(map(str, under_profile())) if request.param == "landlock" else ()
    found = World(tmp_path, before)
    if f"confined in tier: {request.param}" not in found.run("doctor", "--no-versions").stdout:
        pytest.skip(f"tier {request.param} is not available here")
    return found


def planted(world: World) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield entries of the user that looked for code in the project in earlier versions."""
    project = world.project
    for name in ("planted_module.py", "sitecustomize.py", "json.py", "tool.py", "__main__.py"):
        (project / name).write_text(world.plant)
    scripts = project / "node_modules" / ".bin"
    scripts.mkdir(parents=True)
    for path in (scripts / "planted-server", project / "planted-server"):
        path.write_text(f"#!{sys.executable}\n{world.plant}")
        path.chmod(0o755)
    (project / "package.json").write_text(json.dumps({"name": "p", "scripts": {"start": f"touch {world.marker}"}}))
    (project / "env").write_text(f"PYTHONPATH={project}\nBASH_ENV={project}/env.sh\n")
    (project / "env.sh").write_text(f"touch {world.marker}\n")
    (project / "x.js").write_text(f"require('fs').writeFileSync({str(world.marker)!r}, 'ran')\n")
    python = sys.executable
    yield "module", {"command": python, "args": ["-m", "planted_module"]}
    yield "script", {"command": python, "args": [f"{project}/tool.py"]}
    yield "directory", {"command": python, "args": [str(project)]}
    yield "startup", {"command": python, "args": ["-c", "0"], "env": {"PYTHONPATH": "${workspaceFolder}"}}
    yield "cwd", {"command": python, "args": ["-c", "import planted_module"], "cwd": "${workspaceFolder}"}
    yield "variables", {"command": python, "args": ["-c", "0"], "envFile": "${workspaceFolder}/env"}
    yield "bash", {"command": "bash", "args": ["-c", "true"], "env": {"BASH_ENV": f"{project}/env.sh"}}
    yield "text", {"command": "sh", "args": ["-c", f"cd {project} && ./planted-server"]}
    yield "expanded", {"command": "sh", "args": ["-c", "cd $WHERE; ./planted-server"], "env": {"WHERE": str(project)}}
    yield "search", {"command": "planted-server"}
    yield "wrapped", {"command": "env", "args": ["A=b", f"{project}/planted-server"]}
    yield "npx", {"command": "npx", "args": ["--no-install", "planted-server"]}
    yield "npm", {"command": "npm", "args": ["--prefix", str(project), "start"]}
    yield "node", {"command": "node", "args": ["-e", "0"], "env": {"NODE_OPTIONS": f"--require={project}/x.js"}}
    (world.home / "link.py").symlink_to(project / "tool.py")
    yield "link", {"command": python, "args": [f"{world.home}/link.py"]}
    links = world.home / "links"
    links.mkdir()
    (links / "linked-server").symlink_to(project / "planted-server")
    for launcher in (["env"], ["timeout", "9"], ["nice"], ["sh", "-c", 'exec "$0"']):
        yield f"{launcher[0]} on PATH", {"command": launcher[0], "args": [*launcher[1:], "linked-server"]}
    shebang = world.home / "outside"
    shebang.write_text(f"#!{project}/planted-server\n")
    shebang.chmod(0o755)
    yield "interpreter", {"command": str(shebang)}


def test_what_agents_plant_is_not_run_outside_the_sandbox(world: World) -> None:
    """client-29, upstream-14: modules, scripts, settings and variables in the project, for servers of the user."""
    world.mine(**dict(planted(world)))
    searched = f"{world.home}/links:{world.project}:{world.project}/node_modules/.bin:.::{os.environ['PATH']}"
    found = world.run("mcp", "list", "--connect-timeout", "20", PATH=searched)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("failed") >= 19, found.stdout
    assert not world.marker.exists(), found.stdout
    world.run("mcp", "ping", "script", "--unconfined", "script")
    assert world.marker.exists()  # the attack itself works


def test_our_own_server_and_the_repl_run_no_planted_code(world: World) -> None:
    """client-29, upstream-14: `--upstream`, at the start and when the server is started again."""
    chosen = ("module", "script", "search", "cwd")
    entries = {name: entry for name, entry in planted(world) if name in chosen}
    world.mine(**entries)
    words = [word for name in chosen for word in ("--upstream", name)]
    process = world.serve(*words, PATH=f"{world.project}:{os.environ['PATH']}")
    with ended(process) as peer:
        peer.start_session()
        peer.ask("tools/list")
        assert peer.end() == 0
    world.run("repl", stdin="/mcp\n")
    assert not world.marker.exists()


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[Peer]:
    """Yield the peer of a process, which is killed at the end."""
    try:
        yield Peer(process)
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        process.wait()


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
    for kind, expected in LOOKS.items():
        found = world.run(*line, f"kind={kind}")
        assert found.stdout.strip() == expected, (kind, found.stderr)
    assert world.run(*line, "kind=home", "--unconfined", "it").stdout.strip() == "canary"
    short = Path(tempfile.mkdtemp(prefix="ct", dir="/tmp"))  # for a socket
    runtime = {"XDG_RUNTIME_DIR": str(short)}
    started = world.run("mcp", "start", "it", "--trust-project", **runtime)
    assert started.returncode == 0, started.stderr
    assert world.run(*line, "kind=home", **runtime).stdout.strip() == "refused"
    assert world.run("mcp", "stop", **runtime).returncode == 0
    shutil.rmtree(short)


def test_a_confined_server_works_through_ours(world: World, listening: str) -> None:
    """upstream-14: its tools are offered, and read the root; the home and the network are out of its reach."""
    world.theirs(it=theirs(world, listening))
    assert world.run("mcp", "trust", "it", "--yes").returncode == 0
    assert world.run("mcp", "approve", "it", "--yes").returncode == 0
    with ended(world.serve("--upstream", "it")) as peer:
        peer.start_session()
        for kind, expected in LOOKS.items():
            assert peer.call("look", kind=kind)["content"][0]["text"] == expected, kind
        assert peer.end() == 0


def test_a_killed_client_leaves_nothing_of_a_confined_server(world: World, listening: str) -> None:
    """client-30, client-10: also what left the group of the program."""
    world.theirs(it=theirs(world, listening))
    world.run("mcp", "trust", "it", "--yes")
    world.run("mcp", "approve", "it", "--yes")
    with ended(world.serve("--upstream", "it")) as peer:
        peer.start_session()
        assert peer.call("look", kind="child")["content"][0]["text"] == "started"
        handles = [os.pidfd_open(pid) for pid in with_words("sleep", "1000.25")]
        assert handles
        os.kill(peer.process.pid, signal.SIGKILL)
        for handle in handles:
            assert select.select([handle], [], [], 30)[0]
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
        subprocess.run(
            [*line, sys.executable, "-c", HOLD], stdin=source, stdout=target, stderr=target, check=True, **settings
        )
    assert (given.read_text(), log.read_text()) == ("given\n", "first\ngiven\nsecond\nthird\n")
    assert [(file.stat().st_mode, file.stat().st_mtime > 1) for file in (given, log)] == before
    assert [name for file in (given, log) for name in os.listxattr(file)] == []
    with open("/dev/full", "w") as full:
        ended = subprocess.run([*line, "echo"], stdout=full, stderr=subprocess.PIPE, **settings)
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
