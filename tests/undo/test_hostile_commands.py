"""undo-16 to undo-20: commands that attack their supervisor, which runs outside their confinement, by effect."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import processes_with
from tests.undo.test_commands import TIERS, Project, served

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs seccomp notifications")

SECRET = b"only the owner may read this"


@pytest.fixture(params=TIERS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    with served(tmp_path, request.param) as found:
        yield found
        assert "2" in found.text("run_command", command="echo $((1+1))")  # it still serves


def _stored(project: Project) -> bytes:
    store = project.spool.parent
    return b"\n".join(path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "log")


def test_no_descriptor_of_the_supervisor_is_within_reach(project: Project) -> None:
    """undo-17: neither the spool nor the roots as they are outside the view."""
    (project.root / "file").write_text("before")
    result = project.python(
        """
import os
open("file", "w").close()  # from now on the supervisor has a log
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("fd", "root", "cwd", "map_files"):
        try:
            entries = os.listdir(f"/proc/{pid}/{name}")
        except OSError:
            continue
        for entry in entries:
            try:
                found.append((pid, os.readlink(f"/proc/{pid}/{name}/{entry}")))
            except OSError:
                pass
print([one for one in found if "changes" in one[1] or "spool" in one[1]])
"""
    )
    assert result["content"][0]["text"].endswith("[]"), result
    denied = project.run(f"ls {shlex.quote(str(project.spool))}; cat {shlex.quote(str(project.spool))}/*/log")
    assert denied["_meta"]["coretools/facts"]["exit_code"] != 0


def test_a_path_that_is_exchanged_never_leads_the_supervisor_outside(project: Project) -> None:
    """undo-18: a directory that is a link to a secret at times, while a thread opens files in it for writing."""
    secret = project.top / "secret"
    secret.mkdir()
    (secret / "file").write_bytes(SECRET)
    (secret / "file").chmod(0o644)
    project.python(
        f"""
import ctypes, os, threading, time
os.mkdir("real"); open("real/file", "w").write("mine")
os.mkdir("p"); open("p/file", "w").write("mine"); os.symlink({str(secret)!r}, "link")
stop = time.monotonic() + 3
def exchange():
    while time.monotonic() < stop:
        os.rename("p", "away"); os.rename("link", "p"); os.rename("p", "link"); os.rename("away", "p")
threads = [threading.Thread(target=exchange)]
for thread in threads: thread.start()
while time.monotonic() < stop:
    for call in (lambda: open("p/file", "r+b").close(), lambda: os.unlink("p/file"), lambda: os.truncate("p/file", 1),
                 lambda: os.rename("p/file", "real/file")):
        try: call()
        except OSError: pass
    try: open("p/file", "w").write("mine")
    except OSError: pass
for thread in threads: thread.join()
"""
    )
    assert SECRET not in _stored(project)
    assert (secret / "file").read_bytes() == SECRET


def test_hidden_files_are_not_copied(tmp_path: Path) -> None:
    """undo-18: a cover has another inode than what it hides."""
    with served(tmp_path, "full") as project:
        (project.root / ".env").write_bytes(b"TOKEN=" + SECRET)
        (project.root / "other").write_text("x")
        project.run(
            "echo x > .env; rm -f .env; mv -f .env y; mv other .env; chmod 777 .env; ln .env z; truncate -s 1 .env"
        )
        assert (project.root / ".env").read_bytes() == b"TOKEN=" + SECRET
        assert SECRET not in _stored(project)


def test_fifos_devices_and_sockets_neither_block_nor_are_read(project: Project) -> None:
    """undo-16, undo-18: the result names what can't be made again."""
    os.mkfifo(project.root / "before")
    result = project.run(
        "mkfifo f; (exec 3<>f; echo x >&3); mv f g; rm g; rm before; echo > /dev/null; exec 4<>/dev/zero;"
        " python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; rm -f sock; echo done",
        timeout_seconds=30,
    )
    assert "done" in result["content"][0]["text"]
    assert "before, which is neither file, directory nor link" in result["content"][0]["text"]


def test_odd_and_long_names_are_taken_back(project: Project) -> None:
    """undo-15: names that are no UTF-8, with line feeds, of 255 bytes, and paths of more than 4,096."""
    names = [b"\xff\xfe", b"a\nb", b"\\ (deleted)", b"x (deleted)", b"n" * 255, b" -rf"]
    for name in names:
        with open(os.fsencode(project.root) + b"/" + name, "wb") as file:
            file.write(name)
    before = project.state()
    result = project.python(
        """
import os
for name in os.listdir(b"."):
    os.rename(name, name[:200] + b"2")
    os.unlink(name[:200] + b"2")
top = os.open(".", os.O_RDONLY)
for _ in range(30):
    os.mkdir("d" * 200); os.chdir("d" * 200)
open("deep", "w").write("x"); os.unlink("deep")
try: open("y" * 5000, "w")
except OSError as error: print(error.errno)
"""
    )
    assert "longer than 4096 bytes" in result["content"][0]["text"], result
    subprocess.run(["rm", "-rf", project.root / ("d" * 200)], check=True)
    project.undo(result)
    assert project.state() == before


def test_invalid_arguments_fail_as_they_do_without_a_supervisor(project: Project) -> None:
    """undo-18: pointers into nothing, descriptors that are none, paths without an end."""
    result = project.python(
        """
import ctypes, errno, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
found = set()
last = mmap.mmap(-1, 4096); last.write(b"/" * 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(last))
for call in (76, 82, 83, 84, 85, 86, 87, 88, 90, 92, 94, 257, 258, 260, 263, 264, 265, 266, 268, 280, 316, 437, 452):
    for words in ((0, 0, 0), (1, 1, 2), (-100, 8, 1 << 6, 0, 0), (2**63, 2**64 - 1, 2**64 - 1), (address, address, 1),
                  (-100, address, 2**31, 8), (99999, address + 4095, 577, 0, 0x1000)):
        libc.syscall(ctypes.c_long(call), *map(ctypes.c_ulong, (word % 2**64 for word in words)))
        found.add(ctypes.get_errno())
print("survived", errno.EIO in found)
"""
    )
    assert "survived False" in result["content"][0]["text"], result


def test_processes_that_end_in_the_middle_of_their_calls_leave_nothing(project: Project) -> None:
    """undo-14: forty processes change files until they are killed, all at once."""
    for number in range(40):
        (project.root / f"{number}").write_text("before")
    before = project.state()
    result = project.run(
        f": {project.top}; for i in $(seq 0 39);"
        " do (while :; do echo x > $i; rm -f $i; echo y > new$i; mv new$i $i; done) & done;"
        " sleep 1; kill -9 -1",
        timeout_seconds=60,
    )
    if project.state() != before:
        project.undo(result)
    assert project.state() == before
    assert not processes_with(f": {project.top}; for")


def test_changes_beyond_the_limit_of_bytes_go_on_and_are_named(tmp_path: Path) -> None:
    """undo-16."""
    with served(tmp_path, "full", "--limit", "undo_bytes=20000") as project:
        for number in range(5):
            (project.root / f"{number}").write_bytes(b"x" * 8000)
        result = project.run("for i in 0 1 2 3 4; do echo new > $i; done")
        text = project.undo(result)
        assert "the command changed more than 20000 bytes" in result["content"][0]["text"]
        assert "its content was not kept" in text
        sizes = [(project.root / f"{number}").stat().st_size for number in range(5)]
        assert sizes == [8000, 8000, 4, 4, 4]


def test_a_full_store_stops_the_changes(tmp_path: Path) -> None:
    """undo-17: the call gets ENOSPC, and the file stays as it is."""
    state = tmp_path / "state"
    state.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", state], capture_output=True
    ).returncode:
        pytest.skip("needs the right to mount")
    try:
        with served(tmp_path, "full") as project:
            (project.root / "small").write_bytes(b"x")
            (project.root / "large").write_bytes(b"x" * 2_000_000)
            result = project.run("echo new > large; echo new > small; rm large")
            assert "No space left on device" in result["content"][0]["text"]
            assert (project.root / "large").stat().st_size == 2_000_000
            project.undo(result)
            assert (project.root / "small").read_bytes() == b"x"
    finally:
        subprocess.run(["umount", "-l", state], check=True)


def test_a_process_whose_memory_is_closed_is_named(tmp_path: Path) -> None:
    """undo-16: in tier landlock the supervisor has no capability to read it."""
    with served(tmp_path, "landlock") as project:
        result = project.python(
            "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); open('file', 'w').write('x'); print('written')"
        )
        assert "written" in result["content"][0]["text"]
        assert "a process whose memory can't be read" in result["content"][0]["text"]


LISTENER = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
allow = ctypes.create_string_buffer(b"\\x06\\0\\0\\0\\0\\0\\xff\\x7f", 8)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(1, ctypes.addressof(allow))
print("listener", libc.syscall(317, 1, 8, ctypes.byref(program)) >= 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
def test_without_undo_the_filter_is_as_before(tmp_path: Path) -> None:
    """undo-20: a program can install a filter with a listener, and nothing is recorded."""
    for words, expected in (((), "listener False"), (("--no-undo",), "listener True")):
        with served(tmp_path, "full", *words) as project:
            assert expected in project.python(LISTENER)["content"][0]["text"]
            result = project.run("echo x > file")
            assert ("changes" in result["_meta"]["coretools/facts"]) == (not words)
            (project.root / "file").unlink()


def test_a_command_without_confinement_is_not_recorded_which_is_said(tmp_path: Path) -> None:
    """undo-16: once."""
    before = [*under_profile(), sys.executable, "-m", "tests.confinement.without_landlock"]
    with served(tmp_path, "none", "--allow-unconfined", before=before) as project:
        first, second = (project.run("echo x >> file")["content"][0]["text"] for _ in range(2))
        assert "undo can't take back what commands change" in first
        assert "undo" not in second


def test_a_repository_that_was_deleted_comes_back_and_one_that_stays_is_left(project: Project) -> None:
    """undo-19: in tier full commands can't delete one."""
    repository = project.root / "inner/repository"
    subprocess.run(["git", "init", "-q", repository], check=True)
    if "confined in tier: landlock" in project.text("get_diagnostics"):
        result = project.run("rm -rf inner")
        assert not repository.exists()
        project.undo(result)
        subprocess.run(["git", "-C", repository, "status"], check=True, capture_output=True)
    quiet = project.run("cd inner/repository && git config --get x; git symbolic-ref HEAD refs/heads/other")
    assert "changes" not in quiet["_meta"]["coretools/facts"]
    result = project.run("cd inner/repository && git symbolic-ref HEAD refs/heads/third; echo x > ../new")
    assert "unchanged" not in project.undo(result)
    assert (project.root / "inner/repository/.git/HEAD").read_text() == "ref: refs/heads/third\n"


def test_what_a_command_closes_by_its_mode_fails_no_record(tmp_path: Path) -> None:
    """undo-12, undo-16: an ordinary user can't read it afterwards; the record of the others is taken all the same."""
    with served(tmp_path, "landlock") as project:
        (project.root / "gone").mkdir()
        (project.root / "closed").mkdir()
        for name in ("unreadable", "removed", "gone/file", "closed/file"):
            (project.root / name).write_text("before")
        before = project.state()
        result = project.run(
            "chmod 000 unreadable removed; rm -f removed; rm -r gone; mkdir gone; echo x > gone/new;"
            " echo new > closed/file; chmod 000 gone closed"
        )
        text = result["content"][0]["text"] + project.undo(result)
        assert "gone/new: Permission denied" in text
        assert "closed/file: was changed since" in text
        changed = {name for name, state in project.state().items() if before.get(name) != state}
        assert changed == {"gone/new", "closed/file"}
        assert not list(project.spool.iterdir())


def test_the_holes_of_a_file_count_nothing_and_stay_holes(tmp_path: Path) -> None:
    """undo-8, undo-15: one large sparse file neither empties the journal nor fills the disk, whatever its size."""
    with served(tmp_path, "full") as project:
        with open(project.root / "sparse", "wb") as file:
            file.truncate(1 << 40)
            file.seek(5 << 30)
            file.write(b"data")
        (project.root / "small").write_bytes(b"before")
        project.run("echo new > small")
        result = project.run("printf x | dd of=sparse bs=1 conv=notrunc status=none")
        assert "echo new > small" in project.text("list_changes")
        project.undo(result)
        with open(project.root / "sparse", "rb") as file:
            assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == 5 << 30
            assert os.pread(file.fileno(), 4, 5 << 30) == b"data"
            assert os.fstat(file.fileno()).st_size == 1 << 40


def test_a_lease_that_another_program_breaks_does_not_end_the_command(project: Project) -> None:
    """undo-15: the supervisor gets SIGIO then, whose default action ends a process."""
    started = project.run("echo here; read line; echo x > made; echo done", stdin="", wait_seconds=0)
    run = started["_meta"]["coretools/facts"]["run"]
    project.client.call("wait_run", run=run, pattern="here", seconds=20)
    (command,) = processes_with("read line; echo x > made")
    supervisor = int(Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGIO)
    project.client.call("write_run", run=run, text="go\n", end=True)
    ended = project.client.call("wait_run", run=run, seconds=20)
    assert "exit code 0" in ended["content"][0]["text"], ended


def test_a_message_that_comes_while_a_file_is_copied_is_received_once(tmp_path: Path) -> None:
    """undo-15: the server sends one to each command after 30 ms; the supervisor waited for another one for ever."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as state,  # another file system: copied in pieces of 1 MiB
        served(tmp_path, "full", environment={"XDG_STATE_HOME": state}) as project,
    ):
        for _ in range(5):
            for number in range(40):
                (project.root / f"{number}").write_bytes(b"x" * 1_500_000)
            project.run("for i in $(seq 0 39); do echo new > $i; done")
        assert (project.root / "0").read_text() == "new\n"


def test_a_record_of_long_paths_is_bounded_and_its_rows_count(tmp_path: Path) -> None:
    """undo-8, undo-16: it holds no contents, but the server reads it as a whole, and the journal keeps its rows."""
    with served(tmp_path, "full") as project:
        result = project.python(
            """
import os
for _ in range(14): os.mkdir("d" * 250); os.chdir("d" * 250)
os.mkdir("a")
for _ in range(2600): os.rename("a", "b"); os.rename("b", "a")
"""
        )
        assert "or 67108864 bytes of their paths" in result["content"][0]["text"], result
        held = project.text("list_changes").split("[the journal has ")[1].split(" bytes")[0]
        assert int(held) > 1_000_000


def test_a_file_with_several_names_has_its_former_content_under_each(project: Project) -> None:
    """undo-15, undo-16: also if the last name is removed after a write to another; names that stay are mentioned."""
    (project.root / "one").write_text("before")
    os.link(project.root / "one", project.root / "two")
    before = project.state()
    project.undo(project.run("echo new > one; rm one two"))
    assert project.state() == before
    (project.root / "two").unlink()
    os.link(project.root / "one", project.root / "two")
    result = project.run("echo new > one")
    assert "the other names of one" in result["content"][0]["text"]
    project.undo(result)
    assert ((project.root / "one").read_text(), (project.root / "two").read_text()) == ("before", "new\n")


def test_undo_changes_nothing_in_a_read_only_root_that_lies_in_another(tmp_path: Path) -> None:
    """undo-10: a command tries to write there, a person does it while the command runs."""
    inner = tmp_path / "root/inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("before")
    with served(tmp_path, "full", f"{inner}:ro") as project:
        started = project.run("echo x > inner/file; echo x > made; echo here; read line", stdin="", wait_seconds=0)
        run = started["_meta"]["coretools/facts"]["run"]
        project.client.call("wait_run", run=run, pattern="here", seconds=20)
        (inner / "file").write_text("of the person")
        project.client.call("write_run", run=run, text="go\n", end=True)
        project.client.call("wait_run", run=run, seconds=20)
        change = int(project.text("list_changes").split("\t")[0])
        text = project.text("undo", change=change)
        assert "removed made" in text
        assert "inner is read-only" in text
        assert (inner / "file").read_text() == "of the person"


def test_a_record_that_another_server_took_is_said(tmp_path: Path) -> None:
    """undo-12, undo-14: a server that starts takes whatever has no supervisor."""
    with served(tmp_path, "full") as project:
        started = project.run("echo x > made; echo here; read line", stdin="", wait_seconds=0)
        run = started["_meta"]["coretools/facts"]["run"]
        project.client.call("wait_run", run=run, pattern="here", seconds=20)
        (record,) = project.spool.iterdir()
        record.rename(tmp_path / "taken")
        project.client.call("write_run", run=run, text="go\n", end=True)
        ended = project.client.call("wait_run", run=run, seconds=20)
        assert "what it changed is in list_changes" in ended["content"][0]["text"]


def test_a_removed_file_that_is_written_to_by_its_descriptor_is_not_restored(project: Project) -> None:
    """undo-9: nor kept, whatever became of it. A descriptor of the command itself is another matter: it was copied."""
    for name in ("same", "grown", "own"):
        (project.root / name).write_text("before")
    with open(project.root / "same", "r+b", 0) as same, open(project.root / "grown", "ab", 0) as grown:
        started = project.run(
            "exec 3<>own; rm same grown own; printf after! >&3; echo here; read line", stdin="", wait_seconds=0
        )
        run = started["_meta"]["coretools/facts"]["run"]
        project.client.call("wait_run", run=run, pattern="here", seconds=20)
        same.write(b"after!")
        grown.write(b"x" * 9_000_000)
        project.client.call("write_run", run=run, text="go\n", end=True)
        ended = project.client.call("wait_run", run=run, seconds=20)["content"][0]["text"]
    assert "same: a program that had it open" in ended
    assert "grown: a program that had it open" in ended
    undone = project.text("undo", change=int(project.text("list_changes").split("\t")[0]))
    assert "same: its content was not kept" in undone
    assert os.listdir(project.root) == ["own"]
    assert (project.root / "own").read_text() == "before"
    assert len(_stored(project)) < 1_000_000
