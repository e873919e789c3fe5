"""`landlock.confine_signals` by effect, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from coretools.confinement import landlock
from tests.checkout import TREE

pytestmark = pytest.mark.skipif(landlock.abi() < landlock.SIGNAL_SCOPE_ABI, reason="needs Landlock ABI 6 (Linux 6.12)")

PROGRAM = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from coretools.confinement import landlock
outsider, ended = os.getppid(), os.fork()
if ended == 0:
    os._exit(0)
os.waitpid(ended, 0)
print(landlock.confine_signals(ended))
os.kill(outsider, 0)
print(landlock.confine_signals(outsider))
children = [os.fork() for _ in range(2)]
if 0 in children:
    os.setsid()
    signal.pause()
try:
    os.kill(outsider, 0)
except PermissionError:
    # The next signal must reach no other process.
    os.kill(-1, signal.SIGKILL)
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
print(open(sys.argv[2]).read())
"""


def test_signals_stay_inside(tmp_path: Path) -> None:
    """confinement-20: signals reach all processes started since at once, and no others; nothing else is restricted."""
    (tmp_path / "file").write_text("content")
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        argv = [sys.executable, "-I", "-c", PROGRAM, str(TREE), str(tmp_path / "file")]
        lines = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
        assert lines == ["False", "True", "[-9, -9]", "content"]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
