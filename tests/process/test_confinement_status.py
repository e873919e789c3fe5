"""What a command must not do: each attack is a real command of a real server and is judged by its effect.

Effects: a canary that was read, a file outside that changed, a marker that was created, a process that was signalled,
a listener that was reached. Both tiers are tested, tier `landlock` under the system call filter of a container. What
tier `landlock` leaves open is listed in docs/specs/confinement.md and tested to be open, so that the page stays true.
"""

import os
import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer

CANARY = "canary-7c1f"
PLANTED = "planted-secret-51ab"


class World:
    """A root with a repository, a directory outside, a server for the root, and an unrelated process."""

    def __init__(self, folder: Path, client: Peer, tier: str, other: "subprocess.Popen[bytes]") -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        self.client = client
        self.tier = tier
        self.other = other

    def sh(self, text: str) -> str:
        """Run shell text as a command; return its output."""
        result = self.client.call("run_command", command=shlex.join(["sh", "-c", text]), timeout_seconds=60)
        return str(result["content"][0]["text"])

    def python(self, code: str) -> str:
        """Run Python as a command; return its output."""
        result = self.client.call("run_command", command=shlex.join([sys.executable, "-c", code]), timeout_seconds=60)
        return str(result["content"][0]["text"])


def plant(folder: Path) -> None:
    root, outside = folder / "root", folder / "outside"
    for path in (root / "src", root / ".vscode", outside / "inner"):
        path.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".env").write_text(f"TOKEN={CANARY}")
    (root / "src" / ".env").write_text(f"TOKEN={CANARY}")
    (root / ".vscode" / "tasks.json").write_text("{}")
    (root / "link").symlink_to(outside / "canary")
    (root / "away").symlink_to(outside)
    (outside / "canary").write_text(CANARY)
    (outside / "canary").chmod(0o600)


@pytest.fixture(scope="module", params=["full", "landlock"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("holding")
    plant(folder)
    before = under_profile() if request.param == "landlock" else ()
    planted = {"SERVER_TOKEN": PLANTED, "AWS_SECRET_ACCESS_KEY": PLANTED}
    other = subprocess.Popen(["sleep", "1000"])
    try:
        with peer(folder / "root", environment=planted, before=before) as client:
            client.start_session()
            diagnostics = client.call("get_diagnostics")["content"][0]["text"]
            if f"commands are confined in tier: {request.param}" not in diagnostics:
                pytest.skip(f"tier {request.param} is not available here")
            yield World(folder, client, request.param, other)
    finally:
        other.kill()
        other.wait()


READS = {
    "absolute": "cat {outside}/canary",
    "dots": "cat ../outside/canary; cat src/../../outside/canary",
    "link there": "cat link away/canary",
    "link made": "ln -sf {outside}/canary made && cat made",
    "hard link": "ln {outside}/canary hard && cat hard",
    "root of self": "cat /proc/self/root{outside}/canary",
    "root of others": "for p in /proc/[0-9]*; do cat $p/root{outside}/canary $p/cwd/../outside/canary; done",
    "root of the server": "cat /proc/{server}/root{outside}/canary",
    "descriptors of others": "for p in /proc/[0-9]*; do cat $p/fd/*/../outside/canary; done",
    "find": "find / -name canary -exec cat {{}} +",
    "copy": "cp {outside}/canary copied; cat copied",
    "archive": "tar cf - {outside}",
    "rename": "mv {outside} here; cat here/canary",
    "own namespace": "unshare -Urm sh -c 'mount --bind {outside} src; cat src/canary'",
    "mount": "mount --bind {outside} src; cat src/canary",
    "chroot": "chroot / cat {outside}/canary",
    "environment": "env; cat /proc/*/environ /proc/{server}/environ",
    "shadow": "cat /etc/shadow | sed s/.*/" + CANARY + "/",
    "git elsewhere": "git diff --no-index /dev/null {outside}/canary",
}


@pytest.mark.parametrize("name", READS)
def test_nothing_outside_is_read(world: World, name: str) -> None:
    """confinement-3: not by any spelling, link, directory of /proc or namespace."""
    text = READS[name].format(outside=world.outside, server=world.client.process.pid)
    output = world.sh(f"({text}) 2>/dev/null")
    assert CANARY not in output
    assert PLANTED not in output


CHANGES = {
    "create": "echo x > {outside}/made",
    "overwrite": "echo x > {outside}/canary",
    "append by link": "echo x >> link; echo x > away/made",
    "truncate": "truncate -s 0 {outside}/canary",
    "delete": "rm -rf {outside}",
    "rename out": "mv src/.env {outside}/made",
    "link out": "ln .git/HEAD {outside}/made; ln -s x {outside}/made; mkdir {outside}/made; mkfifo {outside}/made",
    "exchange": "mv -T --no-clobber {outside}/inner src/inner",
    "processes": "for p in /proc/[0-9]*; do echo x > $p/root{outside}/made; echo x > $p/cwd/../outside/made; done",
    "system": "echo x > /etc/made; echo x > /usr/made; rm -f /etc/hostname",
}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_outside_is_changed(world: World, name: str) -> None:
    """confinement-3: not created, written, truncated, deleted, moved or linked."""
    world.sh(f"({CHANGES[name].format(outside=world.outside)}) 2>/dev/null")
    assert sorted(os.listdir(world.outside)) == ["canary", "inner"]
    assert (world.outside / "canary").read_text() == CANARY
    assert not Path("/etc/made").exists()
    assert not Path("/usr/made").exists()
    assert Path("/etc/hostname").exists()


def test_metadata_outside(world: World) -> None:
    """confinement-4: tier full protects modes and times of files outside; tier landlock does not."""
    os.utime(world.outside / "canary", (1, 1))
    world.sh(f"chmod 777 {world.outside}/canary; touch -d @5 {world.outside}/canary")
    status = (world.outside / "canary").stat()
    is_same = (status.st_mode & 0o777, status.st_mtime) == (0o600, 1)
    (world.outside / "canary").chmod(0o600)
    assert is_same == (world.tier == "full")


DENIED = {
    "cat": "cat .env src/.env",
    "copy": "cp .env a; cp -r src b; cat a b/.env",
    "rename": "mv .env c; cat c; mv src d; cat d/.env; mv d src",
    "hard link": "ln .env e; cat e",
    "mode": "chmod 644 .env; cat .env",
    "git": "git add -f .env; git show :.env; git hash-object -w .env; git diff --no-index /dev/null .env",
    "unmount": "umount .env; cat .env",
    "archive": "tar cf - .",
}


@pytest.mark.parametrize("name", DENIED)
def test_denied_files(world: World, name: str) -> None:
    """confinement-5: in tier full no command reads a file that holds a secret; the file itself is unchanged."""
    if world.tier != "full":
        pytest.skip("needs tier full: Landlock cannot revoke a part of a grant")
    output = world.sh(f"({DENIED[name]}) 2>/dev/null")
    assert CANARY not in output
    assert (world.root / ".env").read_text() == f"TOKEN={CANARY}"
    assert (world.root / "src" / ".env").read_text() == f"TOKEN={CANARY}"


def test_what_the_weaker_tier_leaves_open(world: World) -> None:
    """confinement-5, confinement-6: beneath a root, as docs/specs/confinement.md says of tier `landlock`."""
    if world.tier == "full":
        pytest.skip("tests a machine without tier full")
    assert CANARY in world.sh("cat .env")
    world.sh("printf x > .git/hooks/post-merge")
    hook = world.root / ".git" / "hooks" / "post-merge"
    assert hook.read_text() == "x"
    hook.unlink()


CONTROL = {
    "hook": "printf x > .git/hooks/pre-commit; cp /bin/true .git/hooks/post-checkout",
    "hooks away": "mv .git/hooks x; mkdir .git/hooks; rm -rf .git/hooks",
    "hooks by link": "ln -sfn /tmp .git/hooks; rmdir .git/hooks",
    "git away": "mv .git y; mkdir -p .git/hooks; printf x > .git/hooks/pre-commit",
    "config": "git config core.fsmonitor x; git config a.b c; mv /tmp .git/config; rm .git/config",
    "config emptied": "printf x >> .git/config; cp /dev/null .git/config",
    "editor": "printf x > .vscode/tasks.json; rm -rf .vscode; mv .vscode z; printf x > .vscode/more",
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_files(world: World, name: str) -> None:
    """confinement-6: hooks, configuration and editors' settings cannot be changed, replaced or moved in tier full."""
    if world.tier != "full":
        pytest.skip("needs tier full: Landlock cannot revoke a part of a grant")
    before = sorted(os.listdir(world.root / ".git" / "hooks")), (world.root / ".git" / "config").read_bytes()
    world.sh(f"({CONTROL[name]}) 2>/dev/null")
    assert (sorted(os.listdir(world.root / ".git" / "hooks")), (world.root / ".git" / "config").read_bytes()) == before
    assert (world.root / ".vscode" / "tasks.json").read_text() == "{}"
    assert os.listdir(world.root / ".vscode") == ["tasks.json"]


TRACE = """
import ctypes, sys
libc = ctypes.CDLL(None)
for pid in map(int, sys.argv[1:]):
    print("traced" if libc.ptrace(16, pid, 0, 0) == 0 else "denied")
"""


TRACE_EXIT = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
for request, options in ((0x4206, 0x40), (0x4206, 0x41), (0x4206, 0), (0x4200, 0x40), (0x4200, 0x1)):
    child = os.fork()
    if child == 0:
        signal.pause()
    if request == 0x4200:
        libc.ptrace(16, child, 0, 0)
        os.waitpid(child, 0)
    print(libc.ptrace(request, child, 0, options), end=" ")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
"""PTRACE_SEIZE and PTRACE_SETOPTIONS, with PTRACE_O_TRACEEXIT and without."""


def test_processes_that_could_not_be_killed(world: World) -> None:
    """confinement-24: two processes that trace each other with PTRACE_O_TRACEEXIT could not be killed; other tracing
    works."""
    assert world.sh(shlex.join([sys.executable, "-c", TRACE_EXIT])).split() == ["-1", "-1", "0", "-1", "0"]


LIMIT = """
import resource, sys
for pid in map(int, sys.argv[1:]):
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))
    except OSError as error:
        print(error)
"""


def test_limits_of_processes_outside(world: World) -> None:
    """confinement-7: commands cannot change their limits."""
    before = resource.prlimit(world.other.pid, resource.RLIMIT_NOFILE)
    world.sh(f"{shlex.join([sys.executable, '-c', LIMIT])} {world.other.pid} {world.client.process.pid}")
    assert resource.prlimit(world.other.pid, resource.RLIMIT_NOFILE) == before
    assert world.sh("echo on") == "on"


def test_processes_outside(world: World) -> None:
    """confinement-7: commands cannot signal or trace them, neither by pid nor with kill(-1)."""
    pids = f"{world.other.pid} {world.client.process.pid} {os.getpid()}"
    world.sh(f"for n in KILL TERM STOP USR1; do kill -$n {pids} $PPID 1; kill -$n -1; done; true")
    output = world.sh(f"{shlex.join([sys.executable, '-c', TRACE])} {pids}")
    assert "traced" not in output
    assert world.other.poll() is None
    assert world.sh("echo on") == "on"


REACH = """
import socket, sys
tcp, udp, path, name = sys.argv[1:]
for family, kind, address in (
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(tcp))),
    (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(udp))),
    (socket.AF_UNIX, socket.SOCK_STREAM, path),
    (socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + name),
):
    try:
        with socket.socket(family, kind) as channel:
            channel.settimeout(1)
            channel.connect(address)
            channel.send(b"reached")
    except OSError as error:
        print(error)
for family, kind in ((17, socket.SOCK_RAW), (38, 5), (40, 1), (15, 3)):
    try:
        socket.socket(family, kind).close()
        print("opened", family)
    except OSError:
        pass
"""


def test_sockets(world: World, tmp_path: Path) -> None:
    """confinement-8: no listener outside is reached: TCP, UDP, a Unix socket by path, an abstract one."""
    path, name = str(tmp_path / "socket"), f"coretools-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        by_path.bind(path)
        abstract.bind(f"\0{name}")
        for channel in (by_path, abstract):
            channel.listen()
        words = [str(tcp.getsockname()[1]), str(udp.getsockname()[1]), path, name]
        output = world.sh(shlex.join([sys.executable, "-c", REACH, *words]))
        assert "opened" not in output
        for channel in (tcp, by_path, abstract):
            channel.setblocking(False)
            with pytest.raises(BlockingIOError):
                channel.accept()
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            udp.recv(100)


LOOPBACK = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as client:
        print("connected")
"""


def test_a_loopback_of_its_own(world: World) -> None:
    """confinement-8: a project's tests that connect to themselves work in both tiers."""
    assert world.python(LOOPBACK) == "connected"


CALLS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"unshare": (272, 0x10000000), "setns": (308, 0, 0), "bpf": (321, 0, 0, 0), "keyctl": (250, 0, -3, 0),
           "io_uring_setup": (425, 1, 0), "clone3": (435, 0, 0), "open_by_handle_at": (304, 0, 0, 0),
           "process_vm_readv": (310, 1, 0, 0, 0, 0, 0), "perf_event_open": (298, 0, 0, 0, 0, 0)}
for name, (number, *arguments) in numbers.items():
    result = libc.syscall(number, *arguments)
    print(name, result, os.strerror(ctypes.get_errno()))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs the numbers of x86-64")
def test_system_calls(world: World) -> None:
    """confinement-9: calls that bypass the other layers are refused, or answered as by a kernel without them."""
    lines = world.python(CALLS).splitlines()
    assert len(lines) == 9
    for line in lines:
        assert " -1 " in line
        assert line.endswith(("Operation not permitted", "Function not implemented"))


SETTINGS = """
import os, sys
for top, _, names in os.walk("/proc/sys/kernel"):
    for name in (*names, "../vm/drop_caches", "../../sysrq-trigger", "../../irq/default_smp_affinity"):
        try:
            os.close(os.open(os.path.join(top, name), os.O_WRONLY))
            print("open", top, name)
        except OSError:
            pass
"""


def test_settings_of_the_machine(world: World) -> None:
    """confinement-9: files of /proc/sys and /sys cannot be opened for writing, even by a server of user 0."""
    assert world.python(SETTINGS) == "[exit code 0, no output]"


def test_what_a_command_is_for_works(world: World) -> None:
    """confinement-10: a command reads and writes the root, has a home and temporary files, and runs programs."""
    output = world.sh(
        "echo a > mine && cat mine && rm mine && touch $HOME/x $TMPDIR/y && git log --oneline 2>&1 | tail -1; "
        "echo b > /dev/null; head -c 3 /dev/urandom | wc -c; id -u; cat /proc/self/comm; sh -c 'exit 3'; echo $?"
    )
    assert output.splitlines()[0] == "a"
    assert output.splitlines()[-3:] == [str(os.geteuid()), "cat", "3"]


def test_the_tier_is_reported(world: World) -> None:
    """confinement-2: in the metadata of each result."""
    facts = world.client.call("run_command", command="true")["_meta"]["coretools/facts"]
    assert facts["tier"] == world.tier
