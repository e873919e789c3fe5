"""Commands that reach listed hosts only: in real namespaces, through the server's proxy, by effect."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from coretools.config.operator_policy import ConfinementPolicy
from coretools.egress.allow_list import AllowList
from coretools.egress.connector import Connector
from coretools.egress.environment import PORT
from coretools.egress.proxy import EgressGateway
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root_set import Roots, RootSpec
from tests.process.test_sandbox_pool import ENVIRONMENT, SHORT, SandboxedRunner, needs_namespaces
from tests.process.tree import until

pytestmark = needs_namespaces


class Page(BaseHTTPRequestHandler):
    """Answers every request with a word."""

    def do_GET(self) -> None:
        self.server.hosts.append(self.headers["Host"])  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"page")

    def log_message(self, *_: object) -> None:
        """Nothing: the test looks at `hosts`."""


@pytest.fixture
def site() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        server.hosts = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def nowhere(name: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@asynccontextmanager
async def limited(folder: Path, *entries: str) -> AsyncIterator[SandboxedRunner]:
    policy = ConfinementPolicy(network=entries)
    gateway = EgressGateway(Connector(AllowList.parse(entries), resolver=nowhere))
    with Roots([RootSpec(str(folder))], deny=DenyRules(DEFAULT_DENY)) as roots:
        pool = SandboxPool(roots, policy, ENVIRONMENT, gateway=gateway)
        runner = Runner(SHORT, ENVIRONMENT, sandbox_pool=pool)
        try:
            yield SandboxedRunner(runner, pool, roots)
        finally:
            await runner.close()


PYTHON = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"


async def test_a_command_reaches_a_listed_host_and_no_other(tmp_path: Path, site: ThreadingHTTPServer) -> None:
    """network-13: by name through the proxy; the result names what was refused, and the key that allows it."""
    port = site.server_address[1]
    async with limited(tmp_path, f"good.example:{port}", f"127.0.0.1:{port}") as place:
        done = await place.run("python3", "-c", PYTHON, f"http://good.example:{port}/")
        assert (done.stdout.text(), done.remarks, done.tier) == ("page\n", (), "full")
        assert site.hosts == [f"good.example:{port}"]  # type: ignore[attr-defined]
        bad = await place.run("python3", "-c", PYTHON, f"http://evil.example:{port}/")
        assert bad.exit_code == 1
        (said,) = bad.remarks
        assert said.startswith(f"network: evil.example:{port} is not in the operator's list of hosts; ")
        assert f'the operator allows it with network = [..., "evil.example:{port}"] and a restart of' in said
        assert "is not in the operator's list of hosts" in bad.stderr.text()
        again = await place.run("python3", "-c", PYTHON, f"http://good.example:{port}/")
        assert again.remarks == (), "a refusal belongs to the command that met it"
        assert len(site.hosts) == 2  # type: ignore[attr-defined]


DIRECT = """
import errno, socket, sys
port, proxy = int(sys.argv[1]), int(sys.argv[2])
def tried(act):
    try:
        return act()
    except OSError as error:
        return errno.errorcode[error.errno]
def connected(family, kind, address, protocol=0):
    with socket.socket(family, kind, protocol) as one:
        one.settimeout(5)
        one.connect(address)
        return one.send(b"GET / HTTP/1.0\\r\\n\\r\\n")
def bound(family, host):
    with socket.socket(family) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind((host, proxy))
def fast_open():
    with socket.socket() as one:
        return one.sendto(b"x", socket.MSG_FASTOPEN, ("192.0.2.1", port))
V4, V6, TCP, UDP, MPTCP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM, 262
print(tried(lambda: connected(V4, TCP, ("127.0.0.1", port))))
print(tried(lambda: connected(V4, TCP, ("192.0.2.1", port))))
print(tried(lambda: connected(V6, TCP, ("2001:db8::1", port))))
print(tried(lambda: connected(V4, UDP, ("192.0.2.1", 53))))
print(tried(lambda: connected(V4, TCP, ("192.0.2.1", port), MPTCP)))
print(tried(lambda: connected(V4, TCP, ("127.0.0.1", port), MPTCP)))
print(tried(fast_open))
print(tried(lambda: bound(V4, "127.0.0.1")))
print(tried(lambda: bound(V4, "0.0.0.0")))
print(tried(lambda: bound(V6, "::")))
print(tried(lambda: connected(V4, socket.SOCK_RAW, ("192.0.2.1", 0), 1)))
"""
WAYS = (
    *("ECONNREFUSED", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH", "ECONNREFUSED", "ENETUNREACH"),
    *("EACCES", "EACCES", "EACCES", "EPERM"),
)


async def test_there_is_no_way_beside_the_proxy_and_nobody_can_take_its_place(
    tmp_path: Path, site: ThreadingHTTPServer
) -> None:
    """network-13: loopback is the commands' own, nothing else has a route, and the port is out of reach."""
    async with limited(tmp_path, "good.example") as place:
        done = await place.run("python3", "-c", DIRECT, str(site.server_address[1]), str(PORT))
        assert tuple(done.stdout.text().split()) == WAYS, done.stderr.text()
        assert site.hosts == []  # type: ignore[attr-defined]


JAVA = """
import java.net.URI; import java.net.http.*;
class Fetch { public static void main(String[] words) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(words[0])).build();
    System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body()); } }
"""
CLIENTS = {
    "curl": ["curl", "-sS", "http://good.example:{port}/"],
    "curl in a tunnel": ["curl", "-sSp", "http://good.example:{port}/"],
    "java": ["java", "Fetch.java", "http://good.example:{port}/"],
    "node": ["node", "-e", "fetch('http://good.example:{port}/').then(r => r.text()).then(console.log)"],
}


def has_client(program: str) -> bool:
    """Whether a program is there that uses the proxy; Node does from 24 on."""
    if program == "node" and shutil.which("node"):
        return int(subprocess.check_output(["node", "-p", "process.versions.node"]).split(b".")[0]) >= 24
    return shutil.which(program) is not None


async def test_clients_find_the_proxy_by_themselves(tmp_path: Path, site: ThreadingHTTPServer) -> None:
    """network-12: those that are here; package managers are in tests/tools/test_network_by_set.py."""
    port = site.server_address[1]
    (tmp_path / "Fetch.java").write_text(JAVA)
    present = {name: argv for name, argv in CLIENTS.items() if has_client(argv[0])}
    if not present:
        pytest.skip("needs curl, Java, or Node 24")
    async with limited(tmp_path, f"good.example:{port}", f"127.0.0.1:{port}") as place:
        for name, argv in present.items():
            site.hosts.clear()  # type: ignore[attr-defined]
            done = await place.run(*(word.replace("{port}", str(port)) for word in argv))
            said = done.stdout.text() + done.stderr.text()
            assert set(site.hosts) == {f"good.example:{port}"}, (name, said)  # type: ignore[attr-defined]
            assert done.remarks == (), name


async def test_the_proxy_ends_with_its_view_and_leaves_no_descriptor(tmp_path: Path, site: ThreadingHTTPServer) -> None:
    """network-10, network-13: after a fork server that was killed the next one has a proxy too."""
    port = site.server_address[1]
    async with limited(tmp_path, f"good.example:{port}", f"127.0.0.1:{port}") as place:
        url = f"http://good.example:{port}/"
        assert (await place.run("python3", "-c", PYTHON, url)).exit_code == 0
        client = place.sandbox_pool._client
        assert client is not None
        assert client.proxy is not None
        client.kill_all()
        await until(lambda: not client.is_alive)
        assert (await place.run("python3", "-c", PYTHON, url)).exit_code == 0
        assert client.proxy.is_closed
        assert place.sandbox_pool._client is not client
        last = place.sandbox_pool._client
    assert last is not None
    assert last.proxy is not None
    assert last.proxy.is_closed
