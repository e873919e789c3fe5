"""Sockets of commands without namespaces: which work between commands, and which listeners outside are out of reach.

Commands of a real server run under the system call filter of Docker's default profile. Real listeners outside record
whether they were reached.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer


class Server:
    """A server in tier `landlock`, and its root."""

    def __init__(self, root: Path, client: Peer) -> None:
        self.root, self.client = root, client

    def python(self, code: str, *words: str) -> str:
        """Run Python as a command; return its output."""
        command = shlex.join([sys.executable, "-c", code, *words])
        result = self.client.call("run_command", command=command, timeout_seconds=60)
        return str(result["content"][0]["text"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("sockets") / "root"
    root.mkdir()
    with peer(root, before=under_profile()) as client:
        client.start_session()
        if "confined in tier: landlock" not in client.call("get_diagnostics")["content"][0]["text"]:
            pytest.skip("tier landlock is not available here")
        yield Server(root, client)


WORKS = {
    "TCP, blocking": """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        client.sendall(b"x")
        client.shutdown(socket.SHUT_WR)
        assert peer.recv(9) == b"x" and peer.recv(9) == b""
""",
    "TCP, asyncio": """
import asyncio
async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "localhost", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b""
asyncio.run(main())
""",
    "every address": """
import socket
with socket.create_server(("", 0)) as server:
    socket.create_connection(("127.0.0.2", server.getsockname()[1])).close()
""",
    "a free port looked for": """
import socket
with socket.socket() as first:
    first.bind(("127.0.0.1", 0))
    port = first.getsockname()
socket.create_server(port, reuse_port=False).close()
""",
    "a second try": """
import errno, socket
with socket.socket() as first:
    first.bind(("127.0.0.1", 0))
    client = socket.socket()
    assert client.connect_ex(first.getsockname()) == errno.ECONNREFUSED
    first.listen()
    assert client.connect_ex(first.getsockname()) == 0
    assert client.connect_ex(first.getsockname()) == errno.EISCONN
""",
    "not blocking": """
import errno, select, socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
    client.setblocking(False)
    assert client.connect_ex(server.getsockname()) in (0, errno.EINPROGRESS)
    select.select([], [client], [])
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert not client.getblocking()
""",
    "many never connected": """
import socket
for _ in range(1000):
    socket.socket().close()
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
""",
    "a full queue of TCP, whose server takes the last and goes": """
import errno, select, socket, threading
for is_blocking in (True, False):
    server = socket.create_server(("127.0.0.1", 0), backlog=0)
    first, second = socket.create_connection(server.getsockname()), socket.socket()
    second.setblocking(is_blocking)
    thread = threading.Thread(target=second.connect_ex, args=(server.getsockname(),))
    thread.start()
    if not is_blocking:
        thread.join()
        assert select.select([], [second], [], 0.1)[1] == []
    peers = [server.accept()[0], server.accept()[0]]
    server.close()
    thread.join()
    second.setblocking(True)
    peers[1].sendall(b"x")
    assert second.recv(9) == b"x"
""",
    "a Unix socket in the root": """
import os, socket
with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
    server.bind("by-name")
    server.listen()
    client.connect("by-name")
    os.unlink("by-name")
    client.sendall(b"x")
    assert server.accept()[0].recv(9) == b"x"
""",
    "a Unix socket in TMPDIR, through a manager process": """
import multiprocessing
with multiprocessing.get_context("fork").Manager() as manager:
    assert list(manager.list([1])) == [1]
""",
    "a protocol that is none": """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
assert libc.socket(1, 1, -1) == -1 and ctypes.get_errno() == errno.EPROTONOSUPPORT
""",
    "a full queue": """
import socket, threading
with socket.socket(socket.AF_UNIX) as server:
    server.bind("full")
    server.listen(0)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    threads = [threading.Thread(target=client.connect, args=("full",)) for client in clients]
    for thread in threads:
        thread.start()
    for _ in clients:
        server.accept()
    for thread in threads:
        thread.join()
""",
}


@pytest.mark.parametrize("name", WORKS)
def test_sockets_between_processes_of_a_command(server: Server, name: str) -> None:
    """confinement-8: loopback and Unix sockets work without namespaces and without a granted network."""
    assert server.python(WORKS[name] + "\nprint('works')") == "works"


def test_a_server_in_the_background_is_reached_by_another_command(server: Server) -> None:
    """confinement-8: the commands of one server share a loopback."""
    code = "import socket; s = socket.create_server(('', 0)); print(f'port {s.getsockname()[1]} here', flush=True)"
    code += "; s.accept()"
    started = server.client.call("run_command", command=shlex.join([sys.executable, "-c", code]), wait_seconds=0)
    run = started["_meta"]["coretools/facts"]["run"]
    waited = server.client.call("wait_run", run=run, pattern="here", seconds=60)
    found = re.search(r"port (\d+)", waited["content"][0]["text"])
    assert found is not None, waited
    reach = "import socket, sys; socket.create_connection(('localhost', int(sys.argv[1]))); print('reached')"
    assert server.python(reach, found[1]) == "reached"


FLIP = """
import ctypes, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
theirs = int(sys.argv[1])
own = socket.create_server(("127.0.0.1", 0), backlog=4096)
port = own.getsockname()[1]
address = ctypes.create_string_buffer(struct.pack("=H", 2) + struct.pack("!H", port) + b"\\x7f\\0\\0\\1" + bytes(8))
ports = [struct.pack("!H", own.getsockname()[1]), struct.pack("!H", theirs)]
sys.setswitchinterval(1e-5)
done = False
def flip():
    while not done:
        for port in ports:
            ctypes.memmove(ctypes.addressof(address) + 2, port, 2)
thread = threading.Thread(target=flip)
thread.start()
for _ in range(400):
    client = socket.socket()
    if libc.connect(client.fileno(), address, 16) == 0:
        client.sendall(b"reached")
    client.close()
done = True
thread.join()
print("tried")
"""

OTHER_WAYS = """
import errno, os, socket, struct, sys
port, path = int(sys.argv[1]), sys.argv[2]
there = ("127.0.0.1", port)
def attempt(what, *arguments):
    try:
        what(*arguments)
    except OSError:
        return
    print("went through:", what, arguments)
attempt(socket.socket().connect, there)
attempt(socket.socket().connect, ("0.0.0.0", port))
attempt(socket.socket().sendto, b"reached", 0x20000000, there)
attempt(socket.socket().sendmsg, [b"reached"], [], 0x20000000, there)
client = socket.socket()
client.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
attempt(client.connect, there)
bound = socket.socket()
bound.bind(("127.0.0.1", 0))
attempt(bound.connect, there)
# IPv6, UDP, MPTCP, raw, ping, Unix datagrams, SCTP, netlink, packets.
for words in ("10 1 0", "10 2 0", "2 2 0", "2 1 262", "2 3 1", "2 2 1", "1 2 0", "2 1 132", "16 3 0", "17 3 0"):
    attempt(socket.socket, *map(int, words.split()))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_RAW | socket.SOCK_CLOEXEC):  # unix(7): raw is datagram
    attempt(socket.socketpair, socket.AF_UNIX, kind)
attempt(socket.socketpair, 30, socket.SOCK_STREAM)  # TIPC
for name in (path, "../" + os.path.relpath(path, ".."), "/proc/self/root" + path, "link"):
    if name == "link":
        os.symlink(path, name)
    attempt(socket.socket(socket.AF_UNIX).connect, name)
    attempt(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect, name)
os.unlink("link")
attempt(os.link, path, "linked")
attempt(os.rename, path, "renamed")
attempt(socket.socket(socket.AF_UNIX).connect, "\\0" + sys.argv[3])
one = socket.create_server(("", 0))
for tried in (socket.socket(), one):
    assert tried.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16) == b"lo\\0"
    for value in (b"", b"\\0", b"eth0\\0"):
        attempt(tried.setsockopt, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, value)
    for value in (0, 2, 3):
        attempt(tried.setsockopt, socket.SOL_SOCKET, 62, value)  # SO_BINDTOIFINDEX
    attempt(tried.setsockopt, socket.SOL_SOCKET, socket.SO_MARK, 1)
print("tried")
"""


@pytest.mark.parametrize("code", [FLIP, OTHER_WAYS], ids=["address exchanged", "other ways"])
def test_listeners_of_the_machine_are_out_of_reach(server: Server, code: str, tmp_path: Path) -> None:
    """confinement-8: neither by an address that changes during the check, nor by another call that connects."""
    path, name = str(tmp_path / "socket"), f"coretools-sockets-{os.getpid()}"
    reached = []

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                reached.append(listener.accept())
            except OSError:
                return

    listeners = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    listeners[1].bind(path)
    listeners[2].bind(f"\0{name}")
    threads = [threading.Thread(target=accept, args=(listener,)) for listener in listeners]
    for listener, thread in zip(listeners, threads, strict=True):
        listener.listen()
        thread.start()
    try:
        output = server.python(code, str(listeners[0].getsockname()[1]), path, name)
    finally:
        for listener, thread in zip(listeners, threads, strict=True):
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join()
    assert output == "tried"
    assert reached == []


PENDING = """
import os, socket
with socket.socket() as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    clients = [socket.socket() for _ in range(4)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(server.getsockname())
    port = server.getsockname()[1]
print(f"port {port} free", flush=True)
for client in clients:
    client.settimeout(10)
    try:
        client.sendall(b"reached")
        client.recv(9)
    except OSError:
        pass
"""


def test_a_connection_that_waits_does_not_go_to_the_next_listener(server: Server) -> None:
    """confinement-8: a connect that waits for a command's full queue does not reach a listener that then takes the
    port."""
    started = server.client.call("run_command", command=shlex.join([sys.executable, "-c", PENDING]), wait_seconds=0)
    run = started["_meta"]["coretools/facts"]["run"]
    waited = server.client.call("wait_run", run=run, pattern="free", seconds=60)
    found = re.search(r"port (\d+)", waited["content"][0]["text"])
    assert found is not None, waited
    with socket.create_server(("127.0.0.1", int(found[1]))) as listener:
        server.client.call("wait_run", run=run, seconds=60)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_an_address_outside(server: Server) -> None:
    """confinement-8: the error is the one of a machine without a network."""
    code = "import socket; socket.create_connection(('192.0.2.1', 80))"
    assert "Network is unreachable" in server.python(code)


def test_a_call_that_waits_for_its_socket_ends_with_its_command(server: Server) -> None:
    """confinement-20: a connect that never completes blocks neither the command's end nor its supervisor."""
    code = """
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("waits")
server.listen(0)
for _ in range(3):
    socket.socket(socket.AF_UNIX).connect("waits")
"""
    command = shlex.join([sys.executable, "-c", code])
    result = server.client.call("run_command", command=command, timeout_seconds=1)
    assert "timed out" in result["content"][0]["text"]
    (server.root / "waits").unlink()
    assert server.python("print('on')") == "on"


def test_a_granted_network(tmp_path: Path) -> None:
    """confinement-12: reaches the machine's TCP and UDP listeners, and no Unix socket outside."""
    root = tmp_path / "root"
    root.mkdir()
    path = str(tmp_path / "socket")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as by_path,
        peer(root, "--network", "allow", before=under_profile()) as client,
    ):
        udp.bind(("127.0.0.1", 0))
        by_path.bind(path)
        by_path.listen()
        client.start_session()
        granted = Server(root, client)
        for name in ("TCP, asyncio", "a Unix socket in the root", "a second try"):
            assert granted.python(WORKS[name] + "\nprint('works')") == "works"
        code = """
import socket, sys
tcp, udp, path = sys.argv[1:]
socket.create_connection(("127.0.0.1", int(tcp))).close()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    for _ in range(3):
        one.connect(("127.0.0.1", int(udp)))
        one.send(b"x")
try:
    socket.socket(socket.AF_UNIX).connect(path)
except OSError as error:
    print(error)
"""
        output = granted.python(code, str(tcp.getsockname()[1]), str(udp.getsockname()[1]), path)
        assert output == "[Errno 13] Permission denied"
        tcp.settimeout(5)
        tcp.accept()[0].close()
        udp.settimeout(5)
        assert udp.recv(9) == b"x"


HUNG = """
import ctypes, os, shlex, sys
from pathlib import Path
from tests.docker_profile import under_profile
from tests.protocol.peer import peer

top = Path(sys.argv[1])
libc = ctypes.CDLL(None)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
if libc.mount(b"none", str(top / "hung").encode(), b"fuse", 0, options.encode()) != 0:
    sys.exit("no FUSE here")
os.symlink(top / "hung", top / "root" / "link")
with peer(top / "root", before=under_profile()) as client:
    client.start_session()
    for path in (top / "hung" / "socket", "link/socket", "link", "link/../root/link/x"):
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
        command = shlex.join([sys.executable, "-c", code])
        answer = client.call("run_command", command=command, timeout_seconds=60)
        print("Permission denied" in answer["content"][0]["text"])
os.close(device)
"""


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs FUSE")
def test_a_file_system_that_does_not_answer_blocks_no_other_command(tmp_path: Path) -> None:
    """confinement-8: nothing serves this FUSE mount, so every access blocks until it is unmounted."""
    for name in ("root", "hung"):
        (tmp_path / name).mkdir()
    argv = ["unshare", "-Urm", sys.executable, "-c", HUNG, str(tmp_path)]
    completed = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    if completed.returncode != 0 and ("unshare" in completed.stderr or "no FUSE" in completed.stderr):
        pytest.skip("needs user namespaces and FUSE in them")
    assert completed.stdout.split() == ["True"] * 4, completed.stderr
