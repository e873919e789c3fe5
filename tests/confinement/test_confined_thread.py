"""ConfinedThread by effect: what a child can touch, what its thread returns, and what stays behind."""

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from coretools.confinement import landlock
from coretools.confinement.confined_thread import POOL_SIZE, ConfinedThread, ConfinedThreadPool
from coretools.confinement.landlock import CHANGE, READ, RUN, Rule
from coretools.errors import CannotStart
from coretools.process import confined_runner
from tests.checkout import TREE
from tests.roots.world import descriptors

pytestmark = pytest.mark.skipif(landlock.abi() < landlock.ABI_REQUIRED, reason="Landlock (Linux 6.2)")

# The confined program is Python, with the right to read everything; each test grants only what it is about.
SYSTEM: tuple[Rule, ...] = (("/", READ),)
LIBRARY: Rule = (sys.base_prefix, READ)


def python_rules() -> tuple[Rule, ...]:
    own = confined_runner.startup_rules(os.path.realpath(sys.executable))
    assert own is not None
    return own


def ran(confined_thread: ConfinedThread, code: str, *words: str | Path) -> str:
    """Return what a confined Python child prints."""
    argv = [sys.executable, "-I", "-S", "-c", code, *map(str, words)]
    completed = confined_thread.run(partial(subprocess.run, argv, capture_output=True, text=True))
    assert isinstance(completed, subprocess.CompletedProcess)
    return completed.stdout.strip() or completed.stderr.strip().rpartition("\n")[2]


@contextmanager
def domain_of(*rules: Rule) -> Iterator[ConfinedThread]:
    with closing(ConfinedThreadPool()) as confined_threads:
        yield confined_threads.get((*python_rules(), *rules))


def test_results_and_exceptions_are_returned(tmp_path: Path) -> None:
    """confined-threads-1: as from a call in this thread."""

    def fail() -> None:
        raise KeyError("of its own kind")

    with domain_of() as confined_thread:
        assert confined_thread.run(threading.get_ident) != threading.get_ident()
        with pytest.raises(KeyError, match="of its own kind"):
            confined_thread.run(fail)
        assert confined_thread.run(lambda: 7) == 7


def test_only_the_confined_thread_is_restricted(tmp_path: Path) -> None:
    """confined-threads-1: the server keeps all its rights."""
    (tmp_path / "file").write_text("content")
    with domain_of() as confined_thread:
        with pytest.raises(PermissionError):
            confined_thread.run((tmp_path / "file").read_text)
        assert (tmp_path / "file").read_text() == "content"
        assert "NoNewPrivs:\t0" in Path("/proc/thread-self/status").read_text()


def test_a_child_has_all_processors_of_the_caller(tmp_path: Path) -> None:
    """confined-threads-10: although its thread wakes on one; also when many start children at once."""
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    mine = sorted(os.sched_getaffinity(0))
    with domain_of(LIBRARY) as confined_thread, ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: ran(confined_thread, code), range(40))) == {str(mine)}
        assert confined_thread.run(lambda: sorted(os.sched_getaffinity(0))) == mine
        with ThreadPoolExecutor(1) as narrow:
            narrow.submit(os.sched_setaffinity, 0, mine[:1]).result()
            assert narrow.submit(ran, confined_thread, code).result() == str(mine[:1])
        assert ran(confined_thread, code) == str(mine)


def test_a_child_reads_and_writes_only_what_it_was_granted(tmp_path: Path) -> None:
    """confined-threads-2: by handle, and by path."""
    for name in ("read", "write", "neither"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    handle = os.open(tmp_path / "read", os.O_RDONLY)
    code = "import sys\ntry: print(open(sys.argv[1], sys.argv[2]).read(9) or 'empty')\n"
    code += "except OSError as e: print(e.errno)"
    with domain_of(LIBRARY, (handle, READ), (str(tmp_path / "write"), READ | CHANGE)) as confined_thread:
        os.close(handle)
        assert ran(confined_thread, code, tmp_path / "read" / "file", "r") == "read"
        assert ran(confined_thread, code, tmp_path / "write" / "file", "w+") == "empty"
        refused = str(errno.EACCES)
        assert ran(confined_thread, code, tmp_path / "read" / "file", "r+") == refused
        assert ran(confined_thread, code, tmp_path / "neither" / "file", "r") == refused
        assert ran(confined_thread, code, tmp_path / "neither" / "new", "w") == refused
        assert ran(confined_thread, code, f"/proc/{os.getpid()}/environ", "r") == refused


@pytest.mark.parametrize(
    "family", [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET]
)
def test_a_child_has_no_socket_of_any_family(family: socket.AddressFamily) -> None:
    """confined-threads-2: not even one to itself by address."""
    code = "import socket, sys\ntry: socket.socket(int(sys.argv[1]), 2)\nexcept OSError as e: print(e.errno)"
    with domain_of(*SYSTEM) as confined_thread:
        assert ran(confined_thread, code, str(int(family))) == str(errno.EAFNOSUPPORT)


@pytest.mark.skipif(landlock.abi() < 6, reason="Landlock that confines signals (Linux 6.12)")
def test_a_child_signals_nobody_outside() -> None:
    """confined-threads-2: not even to ask whether a process is there."""
    code = "import os, sys\ntry: os.kill(int(sys.argv[1]), 0)\nexcept OSError as e: print(e.errno)"
    with domain_of(*SYSTEM) as confined_thread:
        assert ran(confined_thread, code, str(os.getpid())) == str(errno.EPERM)


def test_a_child_starts_nothing(tmp_path: Path) -> None:
    """confined-threads-3: no fork for it, and nothing but itself to execute."""
    code = "import os\ntry: os.fork()\nexcept OSError as e: print(e.errno)"
    exec_ = "import os, sys\ntry: os.execv(sys.argv[1], ['x'])\nexcept OSError as e: print(e.errno)"
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    with domain_of(*SYSTEM, (str(tmp_path), READ)) as confined_thread:
        assert ran(confined_thread, code) == str(errno.EPERM)
        for program in ("/bin/sh", str(script), "/usr/bin/env"):
            assert ran(confined_thread, exec_, program) == str(errno.EACCES)


def test_a_child_may_have_threads() -> None:
    """confined-threads-3: they are no processes."""
    code = "import threading\nt = threading.Thread(target=print, args=('ran',)); t.start(); t.join()"
    with domain_of(*SYSTEM) as confined_thread:
        assert ran(confined_thread, code) == "ran"


def test_a_child_has_no_privilege_but_the_one_over_file_modes() -> None:
    """confined-threads-4: and gains none; that one only where the server has it."""
    code = "print([l for l in open('/proc/self/status') if l[:6] in ('CapEff', 'CapPrm', 'NoNewP')])"
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapPrm"))
    kept = int(own.split()[1], 16) & 2
    with domain_of(*SYSTEM) as confined_thread:
        output = ran(confined_thread, code)
    assert output.count(f"{kept:016x}") == 2
    assert "NoNewPrivs:\\t1" in output


def test_equal_rules_share_a_confined_thread(tmp_path: Path) -> None:
    """confined-threads-5: compared by inode; a new directory of the same name is another."""
    rules = ((str(tmp_path / "a"), READ),)
    (tmp_path / "a").mkdir()
    with closing(ConfinedThreadPool()) as confined_threads:
        first = confined_threads.get(rules)
        handle = os.open(tmp_path / "a", os.O_RDONLY)
        assert confined_threads.get(((handle, READ),)) is first
        os.close(handle)
        assert confined_threads.get(((str(tmp_path / "a"), RUN),)) is not first
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "a").mkdir()
        assert confined_threads.get(rules) is not first


def test_confined_threads_end_with_their_owner_and_when_the_pool_is_full(tmp_path: Path) -> None:
    """confined-threads-5: no descriptor and no thread is left; a thread in use ends when it is no longer referenced."""
    before = descriptors()
    threads = _threads()
    with closing(ConfinedThreadPool()) as confined_threads:
        assert confined_threads.is_possible
        referenced = confined_threads.get(())
        for number in range(POOL_SIZE + 1):
            (tmp_path / str(number)).mkdir()
            assert confined_threads.get(((str(tmp_path / str(number)), READ),)).run(lambda: True)
        assert referenced.run(lambda: "still there") == "still there"
        assert len(descriptors()) <= len(before)
        last = confined_threads.get(((str(tmp_path / "1"), READ),))
    referenced.close()
    with pytest.raises(CannotStart):
        last.run(lambda: None)
    _until_threads_are(threads)


def test_a_script_is_not_confined(tmp_path: Path) -> None:
    """confined-threads-6: its interpreter would run anything."""
    (tmp_path / "git").write_text("#!/bin/sh\n")
    (tmp_path / "git").chmod(0o755)
    assert confined_runner.startup_rules(str(tmp_path / "git")) is None
    assert confined_runner.startup_rules(str(tmp_path / "none")) is None
    for broken in (b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 58, b""):
        (tmp_path / "broken").write_bytes(broken)
        assert confined_runner.startup_rules(str(tmp_path / "broken")) is None


def test_a_program_starts_with_the_rules_of_its_libraries() -> None:
    """confined-threads-6: itself, its loader, its libraries."""
    true = os.path.realpath(str(shutil.which("true")))
    rules = confined_runner.startup_rules(true)
    assert rules is not None
    executable = [str(where) for where, rights in rules if rights & landlock.EXECUTE]
    assert executable[0] == true
    assert len(executable) <= 2
    with closing(ConfinedThreadPool()) as confined_threads:
        assert confined_threads.get(rules).run(lambda: subprocess.run([true]).returncode) == 0


def test_without_landlock_confinement_is_not_possible() -> None:
    """confined-threads-7: on a kernel that answers as one without Landlock."""
    code = (
        "from coretools.confinement.confined_thread import ConfinedThreadPool; print(ConfinedThreadPool().is_possible)"
    )
    argv = [sys.executable, "-m", "tests.confinement.without_landlock", sys.executable, "-c", code]
    completed = subprocess.run(argv, cwd=TREE, capture_output=True, text=True, check=True)
    assert completed.stdout == "False\n"


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _until_threads_are(count: int) -> None:
    """Wait until threads have ended; bounded by the time limit of the test."""
    while _threads() > count:
        os.sched_yield()
