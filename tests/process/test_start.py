"""How a child is started, and the errors when it cannot be (docs/specs/process.md)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coretools.errors import CannotStart, InvalidArguments
from coretools.process.children.spawn import CWD_BY_HANDLE
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.roots.root import Directory
from tests.checkout import TREE

NEEDS_HANDLES = pytest.mark.skipif(not CWD_BY_HANDLE, reason="needs cwd-by-handle")


def program(path: Path, text: str = "#!/bin/sh\necho from $0\n", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("word", ["", " ", "a b", "$HOME", "*", "`id`", "'", '"', "\\", "\n", "é漢", "-x", "\udcff"])
async def test_arguments_arrive_unchanged(runner: Runner, here: Directory, word: str) -> None:
    """process-1: argv, never a shell; bytes that are no UTF-8 included."""
    completed = await runner.run(["printf", "%s", "<" + word + ">"], cwd=here)
    assert completed.stdout.head == b"<" + os.fsencode(word) + b">"
    assert completed.argv == ("printf", "%s", "<" + word + ">")


async def test_the_program_is_looked_up_in_the_path_of_the_child(
    runner: Runner, here: Directory, tmp_path: Path
) -> None:
    """process-6: not in the server's."""
    program(tmp_path / "inner" / "only-there")
    with pytest.raises(CannotStart):
        await runner.run(["only-there"], cwd=here)
    options = RunOptions(environment={"PATH": f"/nowhere:{tmp_path}/inner:/usr/bin:/bin"})
    completed = await runner.run(["only-there"], cwd=here, options=options)
    assert completed.stdout.text() == f"from {tmp_path}/inner/only-there\n"


async def test_a_relative_program_lies_beneath_the_working_directory(
    runner: Runner, here: Directory, tmp_path: Path
) -> None:
    """process-6: `./build.sh` is the file in that directory."""
    program(tmp_path / "build.sh")
    assert (await runner.run(["./build.sh"], cwd=here)).stdout.text() == "from ./build.sh\n"


@NEEDS_HANDLES
async def test_the_working_directory_is_the_one_that_was_opened(
    runner: Runner, here: Directory, tmp_path: Path
) -> None:
    """process-7: entered by descriptor, whatever is at its path by then."""
    (tmp_path / "mine").write_text("")
    moved = tmp_path.parent / (tmp_path.name + "-moved")
    os.rename(tmp_path, moved)
    os.symlink("/", tmp_path)
    completed = await runner.run(["sh", "-c", "ls; pwd -P"], cwd=here)
    assert completed.stdout.text() == f"mine\n{moved}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such-program"], "not found in PATH"),
        (["./no-such-program"], "no such program (working directory: .)"),
        (["/no/such/program"], "no such program"),
        ([""], "(empty name)"),
        (["."], "is a directory"),
        (["./folder"], "is a directory"),
        (["/"], "is a directory"),
        (["./plain.txt"], "not executable"),
        (["./no-interpreter"], "no #! line"),
        (["./lost-interpreter"], "interpreter"),
        (["plain.txt"], "write ./plain.txt"),
        (["A=1", "make"], "`env`"),
        (["true", "x" * 300_000], "argument list too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_program_that_can_not_be_started_is_refused_with_the_reason(
    runner: Runner, here: Directory, tmp_path: Path, words: list[str], message: str
) -> None:
    """process-8: the error says what is wrong, and what would work."""
    (tmp_path / "folder").mkdir()
    program(tmp_path / "plain.txt", "text", mode=0o644)
    program(tmp_path / "no-interpreter", "echo hello\n")
    program(tmp_path / "lost-interpreter", "#!/no/such/interpreter\n")
    with pytest.raises(CannotStart) as refused:
        await runner.run(words, cwd=here)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 300
    assert runner.running == 0


@NEEDS_HANDLES
async def test_a_working_directory_that_is_gone_is_refused(runner: Runner, here: Directory, tmp_path: Path) -> None:
    """process-8: a removed directory can still be entered by descriptor, but nothing works in it."""
    os.rmdir(tmp_path)
    with pytest.raises(CannotStart, match="working directory is gone"):
        await runner.run(["true"], cwd=here)
    os.mkdir(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user without CAP_DAC_OVERRIDE")
async def test_a_working_directory_that_can_not_be_entered_is_refused(
    runner: Runner, here: Directory, tmp_path: Path
) -> None:
    """process-8: permissions may have changed since it was opened."""
    os.chmod(tmp_path, 0o000)
    with pytest.raises(CannotStart, match="can't be the working directory"):
        await runner.run(["true"], cwd=here)
    os.chmod(tmp_path, 0o755)


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        ([], {}),
        (["a\0b"], {}),
        (["true", "a\0b"], {}),
        (["true", "\ud800"], {}),
        (["true"], {"A": "a\0b"}),
        (["true"], {"A=B": "c"}),
        (["true"], {"": "c"}),
    ],
)
async def test_arguments_that_execve_rejects_are_refused(
    runner: Runner, here: Directory, words: list[str], environment: dict[str, str]
) -> None:
    """process-9: before anything is started."""
    with pytest.raises(InvalidArguments):
        await runner.run(words, cwd=here, options=RunOptions(environment=environment))
    assert runner.running == 0


SERVER_WITH_FEW_DESCRIPTORS = """
import os, resource
from pathlib import Path
import anyio
from coretools.errors import InputOutput
from coretools.process.runner import Runner
from coretools.config.limits import Limits
from tests.process.tree import opened

def children_of(task):
    return Path(f"/proc/self/task/{task}/children").read_text().split()

async def main():
    here = opened(".")
    runner = Runner(Limits(), {"PATH": os.environ["PATH"]})
    await runner.run(["true"], cwd=here)
    ended, refused = [], []
    used = len(os.listdir("/proc/self/fd"))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    async def one():
        try:
            ended.append((await runner.run(["sleep", "0.2"], cwd=here)).ok)
        except InputOutput:
            refused.append(True)

    for few in range(4, 16):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + few, hard))
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, hard))
    children = [pid for task in os.listdir("/proc/self/task") for pid in children_of(task)]
    print(len(ended) + len(refused), all(ended), len(refused) > 0)
    print(len(os.listdir("/proc/self/fd")) - used, len(children), runner.running)
    await runner.close()

anyio.run(main)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to count")
def test_a_server_without_descriptors_refuses_and_goes_on() -> None:
    """process-8: at whichever descriptor of a start they run out, none leaks and no child is left behind."""
    arguments = [sys.executable, "-c", SERVER_WITH_FEW_DESCRIPTORS]
    server = subprocess.run(arguments, cwd=TREE, capture_output=True, check=True)
    # One child remains: the watchdog.
    assert server.stdout.decode().splitlines() == ["120 True True", "0 1 0"]


SERVER_THAT_IGNORES_ITS_CHILDREN = """
import os, signal
import anyio
from coretools.process.runner import Runner
from coretools.config.settings import Limits
from tests.process.tree import opened

async def main():
    here = opened(".")
    runner = Runner(Limits(), {"PATH": os.environ["PATH"]})
    completed = await runner.run(["sh", "-c", "echo said; exit 3"], cwd=here)
    print(completed.stdout.text().strip(), completed.exit_code, completed.signal, completed.ok)
    await runner.close()

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
anyio.run(main)
"""


def test_a_server_started_with_sigchld_ignored_still_answers() -> None:
    """process-11: the kernel keeps no exit codes then; the result has none instead of a guess."""
    arguments = [sys.executable, "-c", SERVER_THAT_IGNORES_ITS_CHILDREN]
    server = subprocess.run(arguments, cwd=TREE, capture_output=True, check=True)
    assert server.stdout == b"said None None False\n"


async def test_a_child_inherits_nothing_of_the_server(runner: Runner, here: Directory) -> None:
    """process-10: three descriptors, a session and process group of its own, no terminal."""
    # The last descriptor is that of the listing itself.
    descriptors = "print(*sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    code = f"import os; {descriptors}; print(os.getsid(0), os.getpgid(0), os.getpid())"
    completed = await runner.run([sys.executable, "-I", "-S", "-c", code], cwd=here)
    descriptors, identity = completed.stdout.text().splitlines()
    session, group, pid = identity.split()
    assert descriptors == "0 1 2"
    assert session == group == pid


async def test_standard_input_is_empty_unless_given(runner: Runner, here: Directory) -> None:
    """process-2: a child that reads gets end-of-file at once, never the server's own input."""
    assert (await runner.run(["cat"], cwd=here)).ok
    completed = await runner.run(["cat"], cwd=here, options=RunOptions(stdin=b"fed\0bytes"))
    assert completed.stdout.head + completed.stdout.tail == b"fed\0bytes"
    assert (await runner.run(["cat"], cwd=here, options=RunOptions(stdin=b""))).ok


async def test_ten_megabytes_are_fed_while_the_output_is_read(runner: Runner, here: Directory) -> None:
    """process-2: neither pipe blocks the other."""
    data = bytes(range(256)) * 40_000
    completed = await runner.run(["cat"], cwd=here, options=RunOptions(stdin=data, keep_bytes=len(data)))
    assert completed.stdout.head + completed.stdout.tail == data


@pytest.mark.parametrize("words", [["true"], ["sh", "-c", "exec <&-; sleep 0.1"], ["head", "-c", "1"]])
async def test_a_child_need_not_read_what_it_is_fed(runner: Runner, here: Directory, words: list[str]) -> None:
    """process-2: the rest is dropped, and the run ends with the child."""
    completed = await runner.run(words, cwd=here, options=RunOptions(stdin=b"x" * 10_000_000))
    assert completed.ok
