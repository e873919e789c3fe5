"""Connections and their descriptors (docs/specs/validation.md), in processes with their own limits."""

import os
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.process.tree import until
from tests.web.http_server_peer import http_server

SCRIPT = """
import resource, sys
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from coretools.web.connection.descriptors import usable_slots, accept_backlog
slots = usable_slots(connections)
print(slots, resource.getrlimit(resource.RLIMIT_NOFILE)[0], accept_backlog(slots))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "slots", "now", "taken"),
    [
        (256, 8192, 2048, 3072, 128),
        (4096, 8192, 2048, 4096, 128),
        (256, 2500, 1476, 2500, 128),
        (256, 1024, 512, 1024, 64),
        (64, 64, 32, 64, 4),
    ],
)
def test_connections_leave_descriptors_for_calls(soft: int, hard: int, slots: int, now: int, taken: int) -> None:
    """validation-4: the soft limit is raised where possible; otherwise there are fewer slots."""
    words = (str(soft), str(hard), "2048")
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(slots), str(now), str(taken)]
    assert ("limits.connections" in done.stderr) == (slots < 2048)


async def test_many_that_connect_at_once_use_up_no_descriptors(tmp_path: Path) -> None:
    """validation-4: all of them wait in the kernel's queue; none is logged, the next is served."""
    with http_server(tmp_path, "--root", tmp_path, descriptors=64) as server, ExitStack() as stack:
        address = ("127.0.0.1", int(urlsplit(server.url).port or 0))
        asking = stack.enter_context(selectors.DefaultSelector())
        server.process.send_signal(signal.SIGSTOP)
        for _ in range(200):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(address)
            asking.register(one, selectors.EVENT_READ)
        server.process.send_signal(signal.SIGCONT)
        # The order in which the kernel hands them over is unspecified; so many get no slot.
        while len(asking.get_map()) > 32:
            answered = asking.select(30)
            assert answered
            for key, _ in answered:
                assert os.read(key.fd, 100).startswith(b"HTTP/1.1 503 ")
                asking.unregister(key.fileobj)
        stack.close()
        await until(lambda: _is_alive(address))
        assert "system resource" not in server.log.read_text()


def _is_alive(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, 30) as asking:
        asking.sendall(b"GET /healthz HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (address[0].encode(), address[1]))
        return asking.recv(100).startswith(b"HTTP/1.1 200 ")
