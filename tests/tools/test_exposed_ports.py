"""A server that a command runs, opened by a browser outside its namespace (`expose`), by effect."""

import http.client
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from coretools.config.policy_file import read_policy
from coretools.egress.exposed_ports import MAX_CONNECTIONS
from coretools.errors import BadSetting
from tests.docker_profile import under_profile
from tests.process.test_sandbox_pool import needs_namespaces
from tests.process.tree import until
from tests.protocol.peer import Peer, peer

SERVER = """
import http.server, socket, sys
host, port, word = sys.argv[1], int(sys.argv[2]), sys.argv[3]
class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        script = "<script>fetch('/data').then(r => r.text()).then(t => a.textContent = 'read ' + t)</script>"
        text = word if self.path == "/data" else "<p id=a>empty</p>" + script
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
server = Server((host, port), Pages)
print("listens", flush=True)
server.serve_forever()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def start(client: Peer, host: str, port: int, word: str) -> str:
    """Start the server as a run, and return its id when it listens."""
    started = client.call("run_command", command=["python3", "-c", SERVER, host, str(port), word], wait_seconds=0)
    run = started["_meta"]["coretools/facts"]["run"]
    assert "matched" in text_of(client.call("wait_run", run=run, pattern="listens", seconds=30))
    return str(run)


def fetched(port: int, host: str = "127.0.0.1") -> str:
    """Return what is served to a client outside the namespace; empty if there is no response."""
    with closing(http.client.HTTPConnection(host, port, timeout=30)) as connection:
        try:
            connection.request("GET", "/data")
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return ""


@contextmanager
def serving(folder: Path, *ports: int, tier: str = "full") -> Iterator[Peer]:
    root, policy = folder / "root", folder / "policy.toml"
    root.mkdir(exist_ok=True)
    policy.write_text(f"[confinement]\nexpose = {list(ports)}\n")
    with peer(root, "--policy", policy, before=under_profile() if tier == "landlock" else ()) as client:
        client.start_session()
        if f"commands are confined in tier: {tier}" not in text_of(client.call("get_diagnostics")):
            pytest.skip(f"tier {tier} is not available here")
        yield client


@pytest.fixture(scope="module")
def exposing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Path, int]]:
    """A server that exposes a port, its folder, and the port."""
    folder, port = tmp_path_factory.mktemp("exposing"), free_port()
    with serving(folder, port) as client:
        yield client, folder, port
        assert client.end() == 0
    with socket.create_server(("127.0.0.1", port)):
        """The port is free again."""


@needs_namespaces
def test_a_server_of_a_command_is_reached_on_its_exposed_port_and_on_no_other(
    exposing: tuple[Peer, Path, int],
) -> None:
    """network-17, network-18, network-19: over IPv4 and IPv6; the last view comes first."""
    client, folder, port = exposing
    other = free_port()
    assert f"; exposed on loopback: {port}\n" in text_of(client.call("get_diagnostics"))
    first = start(client, "127.0.0.1", port, "first")
    unexposed = start(client, "127.0.0.1", other, "not exposed")
    assert fetched(port) == "first"
    assert fetched(port, "::1") in ("first", ""), "where there is IPv6"
    assert fetched(other) == ""

    (folder / "root" / ".env").write_text("SECRET=1\n")  # hidden: the next command has another view
    client.call("run_command", command="true")
    assert fetched(port) == "first", "a view that goes on keeps its port"
    second = start(client, "::1", port, "second")
    assert fetched(port) == "second"
    client.call("stop_run", run=first)
    assert fetched(port) == "second"
    for run in (second, unexposed):
        client.call("stop_run", run=run)


@needs_namespaces
async def test_clients_that_find_nobody_or_are_too_many_harm_nobody(exposing: tuple[Peer, Path, int]) -> None:
    """network-20: a reset where nothing listens, and for those beyond the limit; then the next one is served."""
    client, _, port = exposing
    client.call("run_command", command="true")
    assert fetched(port) == ""
    run = start(client, "127.0.0.1", port, "served")
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_CONNECTIONS + 20)]
    for one in idle:
        one.close()
    await until(lambda: fetched(port) == "served")
    client.call("stop_run", run=run)
    assert fetched(port) == ""
    assert text_of(client.call("run_command", command="echo goes on")) == "goes on"


@needs_namespaces
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_outside_opens_a_page_that_fetches_from_the_server(
    exposing: tuple[Peer, Path, int], tmp_path: Path
) -> None:
    """network-17"""
    client, _, port = exposing
    run = start(client, "127.0.0.1", port, "from the view")
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        [*words, f"--user-data-dir={tmp_path / 'profile'}", f"http://localhost:{port}/"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    client.call("stop_run", run=run)
    assert "read from the view" in done.stdout, done.stderr


@needs_namespaces
def test_a_port_that_another_program_has_is_exposed_once_it_is_free(tmp_path: Path) -> None:
    """network-20: the server starts, and the log says why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(tmp_path, port) as client:
            start(client, "127.0.0.1", port, "inside")
            taken.close()
            client.call("run_command", command="true")
            assert fetched(port) == "inside"
            client.end()
            assert client.process.stderr is not None
            log = client.process.stderr.read().decode()
    assert log.count(f"port {port} is not exposed: ") == 1


def test_in_tier_landlock_commands_listen_on_the_machine_itself(tmp_path: Path) -> None:
    """network-21: with or without the key, on IPv4."""
    port = free_port()
    with serving(tmp_path, port, tier="landlock") as client:
        assert "exposed" not in text_of(client.call("get_diagnostics"))
        start(client, "127.0.0.1", port, "direct")
        assert fetched(port) == "direct"


@pytest.mark.parametrize("ports", ["[80]", "[1023]", "[65536]", f"{list(range(2000, 2021))}", '["5173"]', "5173"])
def test_ports_that_cannot_be_meant_are_refused_at_start(tmp_path: Path, ports: str) -> None:
    """network-17"""
    path = tmp_path / "policy.toml"
    path.write_text(f"[confinement]\nexpose = {ports}\n")
    with pytest.raises(BadSetting, match="expose"):
        read_policy(str(path), {})
