"""The container profile that other tests use is enforced: by effect, in a real child."""

import errno
import json
import os
import platform
import struct
import subprocess
import sys

import pytest

from tests.checkout import TREE
from tests.docker_profile import ABSENT, LOOKED_INTO, NOBODY, REFUSED, is_supported, program_for

pytestmark = pytest.mark.skipif(not is_supported(), reason="no table of system calls for this platform")

PROBE = """\
import ctypes, json, os, socket, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *[ctypes.c_long(word) for word in words])
    return ctypes.get_errno()
def family(number):
    try:
        socket.socket(number, socket.SOCK_DGRAM).close()
    except OSError as error:
        return error.errno
    return 0
refused, absent, clone, unshare = json.loads(sys.argv[1])
threads = []
thread = threading.Thread(target=threads.append, args=[1])
thread.start(); thread.join()
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(json.dumps({
    'refused': {name: call(number, 0, 0, 0, 0, 0) for name, number in refused.items()},
    'absent': {name: call(number, 0, 0) for name, number in absent.items()},
    'clone': call(clone, 0x10000000 | 17, 0, 0, 0, 0),
    'thread': threads,
    'child': subprocess.run(['true']).returncode,
    'families': {number: family(number) for number in (1, 2, 38, 40)},
    'openat2': call(437, -1, 0, 0, 0),
    'landlock': call(444, 0, 0, 1),
    'pidfd_open': call(434, os.getpid(), 0),
    'ptrace': call({'x86_64': 101, 'aarch64': 117}[os.uname().machine], 99999, 0, 0, 0),
    'status': {name: status[name].split() for name in ('Uid', 'CapEff', 'CapAmb', 'NoNewPrivs', 'Seccomp')},
}))
"""


def test_the_profile_refuses_and_allows_what_dockers_does() -> None:
    """Namespaces, mounts, keys, bpf and io_uring are refused; threads, children, Landlock and openat2 work."""
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    refused = {name: numbers[column] for name, numbers in REFUSED.items() if numbers[column] is not None}
    absent = {name: numbers[column] for name, numbers in ABSENT.items()}
    question = json.dumps([refused, absent, LOOKED_INTO["clone"][column], refused["unshare"]])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.docker_profile",
            "--",
            "/usr/bin/env",
            "-u",
            "PYTHONPATH",
            "python3",
            "-c",
            PROBE,
            question,
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: number for name, number in found["refused"].items() if number != errno.EPERM} == {}
    assert found["absent"] == {"clone3": errno.ENOSYS}
    assert found["clone"] == errno.EPERM
    assert found["thread"] == [1]
    assert found["child"] == 0
    assert found["families"]["1"] == found["families"]["2"] == 0
    assert found["families"]["38"] == found["families"]["40"] == errno.EPERM
    assert found["openat2"] not in (errno.EPERM, errno.ENOSYS)
    assert found["landlock"] != errno.EPERM
    assert found["pidfd_open"] == 0
    assert found["ptrace"] == errno.ESRCH
    status = found["status"]
    assert set(status["Uid"]) == {str(os.getuid() or NOBODY)}
    assert status["CapEff"] == status["CapAmb"] == ["0000000000000000"]
    assert status["NoNewPrivs"] == ["1"]
    assert status["Seccomp"] == ["2"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_stays_inside(machine: str) -> None:
    """For both machines: every jump goes forward to an existing instruction, and a return is last."""
    code = list(struct.iter_unpack("=HBBI", program_for(machine)))
    assert len(code) < 4096
    assert code[-1][0] == 0x06
    for at, (kind, if_true, if_false, _) in enumerate(code):
        if kind & 0x07 == 0x05:
            assert at + 1 + max(if_true, if_false) < len(code)
