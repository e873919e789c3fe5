"""Our own state beneath a root: agents read, change and use nothing of it, in both tiers (docs/specs/trust.md)."""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coretools.client.approval.decisions import launch_digest
from coretools.client.configuration.server_entries import load_configuration
from tests.checkout import TREE
from tests.client.peers import misbehaving
from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer
from tests.starting import warm

TIERS = {"full": (), "landlock": tuple(under_profile())}

CANARY, OPEN = "canary-5e0c", "canary-5e0d"
"""In our own state, and in the project."""

STATE, CONFIG, CACHE = ".local/state/coretools", ".config/coretools", ".cache/coretools"

OWN = (STATE, CONFIG, CACHE)

ATTACK = """
import glob, json, os, socket, sys
home, work = sys.argv[1:]
request = {
    "do": "start", "name": "evil", "directory": work, "config": work + "/evil.json", "inputs": {}, "samples": False,
    "environment": {"HOME": home, "PATH": os.environ["PATH"]}, "connect_seconds": 5.0, "follows": False,
    "digest": os.environ["DIGEST"], "replaces": True, "confined": [], "unconfined": ["evil"],
}
known = {b"", b"x"}
for above, folders, files in os.walk(home):
    for name in files:
        try:
            known.add(open(os.path.join(above, name), "rb").read()[:200].split(b"\\n")[0])
        except OSError:
            pass
state = home + "/.local/state/coretools/mcp.sock"
os.chdir(work)
for path in (state, os.path.relpath(state), "/proc/self/root" + state, work + "/linked.sock"):
    for secret in known:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(path)
                connection.sendall(secret + b"\\n" + json.dumps(request).encode() + b"\\n")
                print(connection.recv(1000))
        except OSError:
            pass
"""


class World:
    """A home with state in it, and perhaps a background process."""

    def __init__(self, home: Path) -> None:
        self.home, self.work = home, home / "project"
        self.marker = self.work / "marker"
        self.work.mkdir()
        (self.work / "file").write_text(OPEN)
        self.environment = {**dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), "")}
        self.environment |= {"HOME": str(home), "XDG_RUNTIME_DIR": "", "PYTHONPATH": str(TREE)}

    def fill(self) -> None:
        for name in OWN:
            (self.home / name / "deep").mkdir(parents=True, mode=0o700)
            (self.home / name / "deep" / "token.json").write_text(CANARY)
            (self.home / name / "mcp-decisions.json").write_text("{}")
        servers = {"ok": misbehaving("ok") | {"env": {"SECRET": CANARY}}}
        (self.home / CONFIG / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        evil = {"command": "/usr/bin/touch", "args": [str(self.marker)]}
        (self.work / "evil.json").write_text(json.dumps({"mcpServers": {"evil": evil}}))
        (self.work / "attack.py").write_text(ATTACK)

    def client(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return warm.run(
            [sys.executable, "-m", "coretools.cli.main", "mcp", *words],
            env={**os.environ, **self.environment},
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def digest(self) -> str:
        """What a request has to name; it is no secret."""
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        entry = load_configuration(str(self.work), environment, file=str(self.work / "evil.json")).find("evil")
        assert entry is not None
        return launch_digest(entry, environment)

    def content(self) -> dict[str, tuple[int, bytes]]:
        """Inodes and content of everything that is ours, by path without links, and of the directories above.

        Not of the journal for undo, which the server writes (tests/undo).
        """
        found = {}
        for name in (*OWN, ".local", ".local/state", ".config", ".cache"):
            top = self.home / name
            for path in [top, *(sorted(top.rglob("*")) if name in OWN else ())]:
                if path.is_relative_to(self.home / STATE / "changes"):
                    continue
                is_file = path.is_file() and not path.name.endswith((".log", ".lock"))
                found[os.path.realpath(path)] = (path.stat().st_ino, path.read_bytes() if is_file else b"")
        return found


@contextmanager
def a_home() -> Iterator[World]:
    home = Path(tempfile.mkdtemp(prefix="cs", dir="/tmp"))
    try:
        yield World(home)
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", str(home)], check=True)  # commands copied directories without rights
        shutil.rmtree(home)


@pytest.fixture
def world() -> Iterator[World]:
    with a_home() as world:
        yield world


@contextmanager
def served(world: World, tier: str, *words: str) -> Iterator[Peer]:
    with peer(*words, environment=world.environment, before=TIERS[tier]) as client:
        client.start_session()
        report = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {tier}" not in report:
            pytest.skip(f"tier {tier} is not available here")
        yield client


def text_of(result: dict[str, object]) -> str:
    return json.dumps(result)


def run(client: Peer, line: str, directory: Path) -> str:
    return text_of(client.call("run_command", command=shlex.join(["sh", "-c", line]), directory=str(directory)))


@pytest.fixture
def background(world: World) -> Iterator[World]:
    world.fill()
    started = world.client("start")
    assert started.returncode == 0, started.stderr
    yield world
    world.client("stop")
    with (world.home / STATE / "mcp.sock.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until the process has exited; it deletes its socket before


TIER = pytest.mark.parametrize("tier", TIERS)
RIGHTS = pytest.mark.parametrize("rights", ["rw", "ro"])


def roots(world: World, rights: str) -> list[str]:
    """The home; read-only beside a writable root in it."""
    return [str(world.home)] if rights == "rw" else [str(world.work), f"{world.home}:ro"]


@TIER
@RIGHTS
def test_no_command_starts_a_program_through_the_socket_of_the_background(
    background: World, tier: str, rights: str
) -> None:
    """trust-24, client-24: with everything that it can read, by every path to the socket."""
    world = background
    os.link(world.home / STATE / "mcp.sock", world.work / "linked.sock")
    attack = [sys.executable, "attack.py", str(world.home), str(world.work)]
    environment = {**os.environ, "DIGEST": world.digest()}
    with served(world, tier, *roots(world, rights)) as client:
        line = f"DIGEST={environment['DIGEST']} {shlex.join(attack)}"
        for tool in ("run_command", "ci_build"):
            client.call(tool, command=shlex.join(["sh", "-c", line]), directory=str(world.work))
        assert not world.marker.exists()
    # The same program, with the files that it could not read.
    subprocess.run(attack, cwd=world.work, env=environment, check=True)
    assert world.marker.exists()


READS = """
cat HOME/STATE/deep/token.json HOME/.config/coretools/mcp.json HOME/.cache/coretools/deep/token.json
cat HOME/*/*/*/*/* HOME/.*/*/*/* HOME/.*/*/*/*/* 2>&1
cp -r HOME/.local work-copy; tar c -C HOME .local .config .cache | tr -d 'x'
cd HOME/.local/state && cat coretools/deep/token.json; cat /proc/self/cwd/coretools/deep/token.json
mv HOME/.local/state/coretools taken; cat taken/deep/token.json
ln HOME/STATE/deep/token.json linked; cat linked; ln -s HOME/STATE by-link; cat by-link/deep/token.json
cat by-hand/deep/token.json; mkdir m; mount --bind HOME/.local m; cat m/state/coretools/deep/token.json
mkdir m; unshare -Urm sh -c 'mount --bind HOME/.local m; cat m/state/coretools/deep/token.json'
""".strip()

CHANGES = """
echo x > HOME/STATE/mcp-decisions.json; touch HOME/STATE/made; mkdir HOME/.config/coretools/made
rm -rf HOME/.local HOME/.config HOME/.cache; find HOME/.local HOME/.config -delete
mv HOME/.local HOME/.old; mkdir -p HOME/STATE; echo forged > HOME/STATE/mcp-decisions.json
mv HOME/.local/state HOME/.local/old; mkdir -p HOME/STATE; echo forged > HOME/STATE/mcp-decisions.json
mv -T --exchange HOME/.config HOME/project; mv HOME/.config HOME/.other; mkdir -p HOME/.config/coretools
ln -sfn /tmp HOME/.local/state; ln -sfnT HOME/project HOME/STATE; rmdir HOME/STATE HOME/.config/coretools
mkdir -p planted/coretools; mv -T planted HOME/.local/state; mv -T planted HOME/.config; mv planted/coretools HOME/STATE
""".strip()


SHOW = "2>&1 | grep -ao 'canary-5e0[cd]'; true"
"""Shows what was read; names no canary itself, because an answer may repeat the command."""


def lines_of(world: World, text: str) -> list[str]:
    return text.replace("STATE", STATE).replace("HOME", str(world.home)).splitlines()


@TIER
@RIGHTS
@pytest.mark.parametrize("is_there", [True, False])
def test_commands_neither_read_nor_change_it(world: World, tier: str, rights: str, *, is_there: bool) -> None:
    """trust-20, trust-21, trust-22: also what is not there yet, and the directories above it."""
    if is_there:
        world.fill()
        (world.work / "by-hand").symlink_to(world.home / STATE)
    with served(world, tier, *roots(world, rights)) as client:
        before = world.content() if rights == "rw" or is_there else {}
        reads = "\n".join(f"({line})" for line in lines_of(world, READS))
        # The next command, with its own view, finds no copy either.
        for text in (f"{reads}\n(cat file)", f"find {world.home} -type f -exec cat {{}} +"):
            shown = run(client, f"{{ {text}\n}} {SHOW}", world.work)
            assert (OPEN in shown) == (tier == "full")  # the other refuses all commands
            assert CANARY not in shown
        for line in lines_of(world, CHANGES):  # each against the view that the one before led to
            run(client, f"({line}) 2>/dev/null", world.work)
        assert not before or world.content() == before
        assert not any((world.home / name / "mcp-decisions.json").exists() for name in OWN) or is_there
        answer = client.call("run_command", command="echo done", directory=str(world.work))
        if tier == "landlock":  # nothing hides it there
            assert answer["isError"]
            assert all(word in text_of(answer) for word in (STATE, str(world.home), "XDG_STATE_HOME"))
        else:
            assert "done" in text_of(answer)


@TIER
def test_scratch_directories_stay_closed_when_what_is_above_them_is_renamed(world: World, tier: str) -> None:
    """trust-20, trust-21: those of another server, whose temporary directory lies in a root, as ours does."""
    deep, scratch = world.work / "deep", f"tmp/coretools-{'0a' * 8}"
    (deep / scratch).mkdir(parents=True, mode=0o700)
    (deep / scratch / "file").write_text(CANARY)
    world.environment["TMPDIR"] = str(deep / "tmp")
    with served(world, tier, str(world.work)) as client:
        seen = [run(client, line, world.work) for line in ("mv deep moved", "mv deep/tmp deep/moved")]
        for source, destination in ((deep / "tmp", deep / "moved"), (deep, world.work / "moved")):
            client.call("move_path", source=str(source), destination=str(destination))
        for name in (f"moved/{scratch}", f"deep/moved/{scratch[4:]}", f"deep/{scratch}"):
            seen += [text_of(client.call("read_file", path=str(world.work / name / "file")))]
            seen += [run(client, f"cat {name}/file", world.work)]
        assert CANARY not in text_of({"seen": seen})
        assert (deep / scratch / "file").exists()
        run(client, "touch deep/tmp/mine deep/mine", world.work)
        assert (deep / "tmp" / "mine").exists() == (deep / "mine").exists() == (tier == "full")


@RIGHTS
def test_no_tool_reads_or_changes_it(world: World, rights: str) -> None:
    """trust-20, trust-21: neither by its path, by a link to it, in another case nor by a search or by git."""
    world.fill()
    subprocess.run(["git", "init", "-q", str(world.home)], check=True)
    git = ["git", "-C", str(world.home), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    tree = world.work / "tree"
    (tree / STATE).mkdir(parents=True)
    (tree / STATE / "mcp-decisions.json").write_text("forged")
    subprocess.run([*git, f"--work-tree={tree}", "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "1"], check=True)
    subprocess.run([*git, "branch", "forged"], check=True)
    subprocess.run([*git, "rm", "-rq", "--cached", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "2"], check=True)
    shutil.rmtree(tree)
    (world.work / "link").symlink_to(world.home / STATE)
    paths = [str(world.home / name) for name in OWN] + [str(world.work / "link"), str(world.home / STATE.upper())]
    before = world.content()
    with peer(*roots(world, rights), environment=world.environment) as client:
        client.start_session()
        seen = []
        for path in paths:
            for name in ("deep/token.json", "mcp-decisions.json", "mcp.json", "made/new"):
                file = f"{path}/{name}"
                seen += [client.call("read_file", path=file), client.call("file_exists", path=file)]
                seen += [client.call("write_file", path=file, content="forged")]
                client.call("edit_file", path=file, edits=[{"old": "{}", "new": "forged"}])
                client.call("move_path", source=str(world.work / "file"), destination=file, overwrite=True)
                client.call("move_path", source=file, destination=str(world.work / "taken"))
                client.call("delete_file", path=file)
                seen.append(client.ask("resources/read", {"uri": f"coretools://files/{file}"}))
            seen += [
                client.call("list_directory", path=path),
                client.call("search_files", pattern="*.json", path=path),
            ]
            seen.append(client.call("git_add", paths=[f"{path}/deep/token.json"], repository=str(world.home)))
            client.call("delete_directory", path=path)
            template = {"type": "ref/resource", "uri": "coretools://files/{+path}"}
            argument = {"name": "path", "value": f"{path}/deep/"}
            seen.append(client.ask("completion/complete", {"ref": template, "argument": argument}))
        for name in (".local", ".local/state", ".config", ".cache"):
            client.call("delete_directory", path=str(world.home / name))
            client.call("move_path", source=str(world.home / name), destination=str(world.home / "moved"))
            client.call("move_path", source=str(world.work), destination=str(world.home / name), overwrite=True)
        seen.append(client.call("search_text", pattern="5e0c", path=str(world.home), include_ignored=True))
        for tool, words in (
            ("git_switch", {"branch": "forged"}),
            ("git_restore", {"paths": ["."], "revision": "forged"}),
            ("git_reset", {"revision": "forged", "mode": "hard"}),
        ):
            client.call(tool, repository=str(world.home), **words)
        seen.append(client.call("git_diff", repository=str(world.home)))
    assert CANARY not in json.dumps(seen)
    assert "token.json" not in json.dumps([one for one in seen if "completion" in json.dumps(one)])
    after = {path: found for path, found in world.content().items() if "/.git/" not in path}
    assert after == before


def test_a_bind_mount_of_it_in_a_root_is_closed_too(world: World) -> None:
    """trust-20, trust-21: its directories above can't be replaced there either."""
    world.fill()
    bound = world.work / "bound"
    bound.mkdir()
    mount = f'mount --bind {world.home}/.local {bound} && exec "$@"'
    before = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs mounts in a user namespace")
    content = world.content()
    with peer(world.work, environment=world.environment, before=before) as client:
        client.start_session()
        seen = run(client, "ls bound; cat bound/state/coretools/deep/token.json; grep -r 5e0c .", world.work)
        assert "state" in seen  # it is mounted
        assert CANARY not in seen
        run(client, "cd bound; mv state old; mkdir -p state/coretools; echo forged > state/coretools/x", world.work)
        file = f"{bound}/state/coretools/deep/token.json"
        assert CANARY not in text_of(client.call("read_file", path=file))
        client.call("write_file", path=file, content="forged")
        client.call("delete_directory", path=f"{bound}/state")
    assert world.content() == content


def leading_out(link: Path) -> None:
    """A link in the home to a directory outside it, in which our own state would be."""
    outside = link.parent.parent / f"{link.parent.name}-outside"
    (outside / "coretools").mkdir(parents=True)
    link.symlink_to(outside)


PLACES = {
    "a link in the root": lambda world: (world.home / ".local").symlink_to(world.home / "project"),
    "a link out of the root": lambda world: leading_out(world.home / ".config"),
    "a file in its place": lambda world: (world.home / ".config").write_text(""),
    "in a git directory": lambda world: world.environment.update(XDG_STATE_HOME=str(world.home / ".git")),
}


def started(world: World, *words: str, tier: str = "full") -> "subprocess.CompletedProcess[str]":
    """Start a server, which ends with its input."""
    return warm.run(
        [*TIERS[tier], sys.executable, "-m", "coretools.servers.workstation", *words],
        env={**os.environ, **world.environment},
        input="",
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("place", PLACES)
def test_what_cannot_be_closed_is_refused_at_the_start(world: World, place: str) -> None:
    """trust-23: the sentence names our directory, the root and the variable."""
    PLACES[place](world)
    ended = started(world, str(world.home))
    assert ended.returncode == 78
    assert all(word in ended.stderr for word in (str(world.home), "coretools", "XDG_"))
    assert started(world, str(world.work)).returncode == 0
    assert started(world, f"{world.home}:ro").returncode == 0


@pytest.mark.parametrize("key", ["readable", "writable"])
def test_a_grant_or_a_root_that_is_our_state_is_refused(world: World, key: str, tmp_path: Path) -> None:
    """trust-23: a grant that contains or lies in it, and a root in it."""
    world.fill()
    policy = tmp_path / "policy.toml"
    for granted in (world.home / ".local", world.home / STATE / "deep"):
        policy.write_text(f'[confinement]\n{key} = ["{granted}"]\n')
        ended = started(world, str(world.work), "--policy", str(policy))
        assert ended.returncode == 78
        assert str(world.home / STATE) in ended.stderr
    for root in (STATE, f"{STATE}/deep", CONFIG, CACHE):
        assert started(world, str(world.home / root)).returncode == 78, root


def test_a_required_tier_that_exposes_it_is_refused_at_the_start(world: World) -> None:
    """trust-22: nobody asked for a server that runs no commands."""
    ended = started(world, str(world.home), "--require-tier", "landlock", tier="landlock")
    assert ended.returncode
    assert "XDG_STATE_HOME" in ended.stderr
    assert started(world, str(world.work), "--require-tier", "landlock", tier="landlock").returncode == 0
