"""Control groups of commands, on machines where this user may create one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from coretools.process.fork_server.cgroup import ControlGroup, own_group
from tests.process.test_sandbox_pool import needs_namespaces, sandboxed
from tests.process.tree import until, until_files
from tests.protocol.peer import peer

ABOVE = own_group()

pytestmark = [
    needs_namespaces,
    pytest.mark.skipif(ABOVE is None or not os.access(ABOVE, os.W_OK), reason="needs a writable control group"),
]


def groups(beginning: str = "coretools-") -> set[str]:
    """Names of the control groups with a prefix; other tests may create some at the same time."""
    return {name for name in os.listdir(str(ABOVE)) if name.startswith(beginning)}


def groups_of(server: int) -> set[str]:
    """Names of the groups that hold a descendant of the process."""
    return {name for name in groups() if any(server in ancestors(pid) for pid in members(name))}


def members(name: str) -> list[int]:
    try:
        return [int(pid) for pid in Path(str(ABOVE), name, "cgroup.procs").read_text().split()]
    except OSError:  # removed meanwhile
        return []


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


def handed_down() -> list[str]:
    """Controllers that a control group created here could use."""
    try:
        return Path(str(ABOVE), "cgroup.controllers").read_text().split()
    except OSError:
        return []


@contextmanager
def started_in_a_group(
    script: str, *, tasks: int = 100, memory_bytes: int = 1 << 30
) -> Iterator[tuple[ControlGroup, "subprocess.Popen[bytes]"]]:
    """A shell that runs the script as a member of a new control group."""
    group = ControlGroup(f"{ABOVE}/coretools-test-{os.getpid()}", tasks=tasks, memory_bytes=memory_bytes)
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(["sh", "-c", f"read go; {script}"], stdin=pipe, stderr=pipe) as child:
            group.add(child.pid)
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()
            yield group, child
            group.kill()
    finally:
        group.close()


def test_a_group_is_killed_at_once() -> None:
    """confinement-23: kills every member, whatever its session."""
    group = ControlGroup(f"{ABOVE}/coretools-test-{os.getpid()}", tasks=100, memory_bytes=1 << 30)
    one = "sh -c 'echo up; exec sleep 1000'"
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", f"read go; setsid {one} & {one}; true"], stdin=pipe, stdout=pipe) as child:
        group.add(child.pid)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"go\n")
        child.stdin.close()
        assert [child.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
        assert len(members(os.path.basename(group.path))) == 3
        assert group.kill()
        assert child.wait(60) == -signal.SIGKILL
    group.close()
    assert not os.path.exists(group.path)


def test_what_is_handed_down_is_bounded() -> None:
    """confinement-23: each available controller is used; a missing one does not disable the others."""
    group = ControlGroup(f"{ABOVE}/coretools-test-{os.getpid()}", tasks=100, memory_bytes=1 << 30)
    try:
        assert group.bounds == {name: name in handed_down() for name in ("pids", "memory", "cpu")}
    finally:
        group.close()


@pytest.mark.skipif("pids" not in handed_down(), reason="needs the pids controller in the second hierarchy")
def test_processes_are_bounded_together() -> None:
    """confinement-23: the limit counts processes of all sessions."""
    with started_in_a_group("for i in $(seq 60); do setsid sleep 1000 & done; wait", tasks=20) as (group, child):
        assert child.stderr is not None
        assert b"fork" in child.stderr.readline()
        assert len(members(os.path.basename(group.path))) <= 20


@pytest.mark.skipif("memory" not in handed_down(), reason="needs the memory controller in the second hierarchy")
def test_memory_is_bounded_together() -> None:
    """confinement-23: the member that exceeds the limit is killed."""
    script = f"exec {sys.executable} -c 'bytearray(256 << 20)'"
    with started_in_a_group(script, memory_bytes=64 << 20) as (_, child):
        assert child.wait(60) == -signal.SIGKILL


async def test_commands_are_in_a_group_that_goes_with_them(tmp_path: Path) -> None:
    """confinement-23: it contains the commands of one server, and is removed with it and when another fork server
    takes over."""
    async with sandboxed(tmp_path) as place:
        mine = os.path.basename(place.sandbox_pool.scratch)
        output = await place.sh("cat /proc/self/cgroup")
        assert len(groups(mine)) == 1
        assert "0::/" in output
        (tmp_path / ".env").touch()
        await place.sh("true")
        await until(lambda: place.sandbox_pool._drop_retired() or len(groups(mine)) == 1)
    assert groups(mine) == set()


def test_the_group_of_a_killed_server(tmp_path: Path) -> None:
    """confinement-23: the watchdog removes it."""
    with peer(tmp_path) as client:
        client.start_session()
        client.call("run_command", command="true")
        mine = groups_of(client.process.pid)
        assert len(mine) == 1
        client.process.kill()
    anyio.run(until_files, Path(str(ABOVE)), lambda: not mine & groups())
