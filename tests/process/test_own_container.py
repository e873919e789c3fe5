"""What a server with a container of its own gives its commands, and the remarks on closed places without one."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.confinement import memory
from tests.checkout import TREE
from tests.docker_profile import under_profile
from tests.process.test_command_sockets import Server
from tests.protocol.peer import peer


def serve(folder: Path, *flags: str, temporary: str) -> Iterator[Server]:
    root = folder / "root"
    root.mkdir()
    with peer(root, *flags, before=under_profile(), environment={"TMPDIR": temporary}) as client:
        client.start_session()
        if "confined in tier: landlock" not in client.call("get_diagnostics")["content"][0]["text"]:
            pytest.skip("tier landlock is not available here")
        yield Server(root, client)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a container of its own, whose temporary files are in another directory."""
    here = TREE.resolve()
    if here.is_relative_to("/tmp") or here.is_relative_to("/var/tmp"):
        pytest.skip("needs a checkout outside /tmp and /var/tmp")
    with tempfile.TemporaryDirectory(prefix=".own-container-", dir=here) as apart:
        yield from serve(tmp_path_factory.mktemp("container"), "--own-container", temporary=apart)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("plain")
    yield from serve(folder, temporary=str(folder))


SEMAPHORES = """
import multiprocessing
from multiprocessing.shared_memory import SharedMemory
multiprocessing.Lock()
shared = SharedMemory(create=True, size=9)
shared.close()
shared.unlink()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, 2]) == [1, 2]
"""
TEMPORARY = """
import os, tempfile
with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    open(folder + "/file", "w").close()
"""
TERMINAL = """
import os, pty
terminal, controller = pty.openpty()
os.write(controller, b"x")
assert os.read(terminal, 9) == b"x" and os.ttyname(controller)
"""
UDP = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
SIGNAL = "import os; os.execlp('sh', 'sh', '-c', 'kill $PPID')"


@pytest.mark.parametrize("code", [SEMAPHORES, TEMPORARY, TERMINAL], ids=["semaphores", "temporary", "terminal"])
def test_a_container_of_its_own(container: Server, code: str) -> None:
    """confinement-30: its shared memory, temporary files and terminals belong to the commands."""
    assert container.python(code + "\nprint('works')") == "works"


def test_temporary_files_of_the_server_stay_apart(container: Server) -> None:
    """confinement-30: TMPDIR and home are not in a directory that all roles of the container share."""
    output = container.python("import os; print(os.environ['TMPDIR'], os.environ['HOME'])")
    assert not any(path.startswith(("/tmp/", "/dev/shm/", "/var/tmp/")) for path in output.split())


MET = {
    "semaphores": (SEMAPHORES, "semaphores and shared memory (/dev/shm) are closed"),
    "temporary": (TEMPORARY, "the directory /tmp is closed to commands in tier landlock: use $TMPDIR"),
    "terminal": (TERMINAL, "programs can't make terminals in tier landlock"),
    "UDP": (UDP, "in tier landlock commands have TCP over IPv4 on loopback and Unix stream sockets"),
    "signal": (SIGNAL, "a command can't signal processes of another run: stop_run ends a run"),
}


@pytest.mark.parametrize("name", MET)
def test_a_result_names_the_closed_place_that_a_command_met(plain: Server, name: str) -> None:
    """confinement-31: in one sentence; the directory that contains TMPDIR is not called closed."""
    code, sentence = MET[name]
    output = plain.python(code)
    assert sentence in output
    assert output.count("tier landlock") + output.count("another run") == 1


def test_a_relative_path_beneath_the_closed_directory_is_explained(plain: Server) -> None:
    """confinement-31: bash names only the file; from a root in /tmp a program may name it by `..`."""
    lines = ["cd /tmp && echo x > made", *(["ls .."] if plain.root.is_relative_to("/tmp") else [])]
    for line in lines:
        result = plain.client.call("run_command", command=line)
        assert "the directory /tmp is closed to commands in tier landlock: use $TMPDIR" in result["content"][0]["text"]


def test_a_command_that_succeeds_gets_no_remark(plain: Server) -> None:
    """confinement-31: whatever it prints."""
    assert plain.python("print('Address family not supported')") == "Address family not supported"


def test_diagnostics_name_what_is_closed(plain: Server) -> None:
    """confinement-31: and no false reason: without namespaces there is no search for hidden files."""
    text = plain.client.call("get_diagnostics")["content"][0]["text"]
    assert "closed to commands in this tier: UDP and IPv6" in text
    assert "too many directories" not in text


def test_a_fork_server_that_failed_leaves_no_dead_process(plain: Server) -> None:
    """confinement-1: the process that tried the unavailable tier was waited for."""
    plain.python("pass")
    children = Path(f"/proc/{plain.client.process.pid}/task/{plain.client.process.pid}/children")
    states = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children.read_text().split()
    ]
    assert "Z" not in states


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_own_top", [True, False], ids=["own group on top", "path of the machine"])
def test_memory_is_that_of_the_control_group(tmp_path: Path, version: int, is_own_top: bool) -> None:
    """confinement-17: the smallest limit among the ancestors counts, in both cgroup versions and however the group is
    mounted."""
    name, kind = ("memory.limit_in_bytes", "cgroup") if version == 1 else ("memory.max", "cgroup2")
    top = tmp_path / "hierarchy"
    (top / "inner").mkdir(parents=True)
    (top / name).write_text("300000000\n")
    (top / "inner" / name).write_text("9223372036854771712\n" if version == 1 else "max\n")
    group, root = ("/docker/x/inner", "/docker/x") if is_own_top else ("/inner", "/")
    line = f"4:memory:{group}\n0::/elsewhere\n" if version == 1 else f"1:name=systemd:/\n0::{group}\n"
    (tmp_path / "cgroup").write_text(line)
    other = "30 23 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    (tmp_path / "mountinfo").write_text(f"{other}35 31 0:32 {root} {top} rw - {kind} {kind} rw,memory\n")
    assert memory.memory_bytes(str(tmp_path)) == 300_000_000


def test_memory_of_this_machine() -> None:
    """confinement-17: without a limit, the machine's memory."""
    assert 0 < memory.memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_bound_of_a_real_control_group() -> None:
    """confinement-17: read from the kernel's files."""
    groups = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line.split(":")[2] for line in groups if ":memory:" in line), "/none")
    group = Path(f"/sys/fs/cgroup/memory{own}/coretools-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("needs a writable control group of version 1")
    try:
        (group / "memory.limit_in_bytes").write_text(str(512 * 1024**2))
        code = "from coretools.confinement.memory import memory_bytes; print(memory_bytes())"
        join = f"echo $$ > {group}/cgroup.procs && exec {shlex.join([sys.executable, '-c', code])}"
        assert subprocess.run(["sh", "-c", join], check=True, capture_output=True).stdout.split() == [b"536870912"]
    finally:
        group.rmdir()
