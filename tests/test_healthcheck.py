"""The health check of the image, against healthy and unhealthy servers (docs/specs/containers.md)."""

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coretools.servers.healthcheck import fault_of
from tests.checkout import TREE
from tests.image import last


@contextmanager
def answering(status: int, *, seen: list[tuple[str, str | None]], tls: Path | None = None) -> Iterator[int]:
    """A server on loopback that answers every GET with a status, and records path and Host; return its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Host"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def at(port: int, **keys: str) -> dict[str, str]:
    settings = {f"CORETOOLS_HTTP_SERVER__{name.upper()}": value for name, value in keys.items()}
    return {"CORETOOLS_HTTP_SERVER__PORT": str(port), **settings}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (None, "localhost:{port}"),
        ("coretools.example.com,localhost:1", "coretools.example.com"),
        ("coretools.example.com:*", "coretools.example.com:{port}"),
    ],
    ids=["loopback", "first-name", "any-port"],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_running_server_is_healthy(host: str, hosts: str | None, expected: str) -> None:
    """container-16: it is called by one of its names, at an address of this machine."""
    seen: list[tuple[str, str | None]] = []
    with answering(200, seen=seen) as port:
        assert fault_of(at(port, host=host, **({"hosts": hosts} if hosts else {}))) == ""
    assert seen == [("/healthz", expected.format(port=port))]


@pytest.mark.parametrize("status", [421, 500, 503, 302])
def test_any_other_answer_is_unhealthy(status: int) -> None:
    """container-16."""
    with answering(status, seen=[]) as port:
        assert str(status) in fault_of(at(port))


def test_no_server_and_no_answer_are_unhealthy() -> None:
    """container-16."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert f"port {port}" in fault_of(at(port))
    with socket.create_server(("127.0.0.1", 0)) as rude:

        def hang_up() -> None:
            rude.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert "no answer" in fault_of(at(rude.getsockname()[1]))
        thread.join()


def test_an_unreadable_configuration_is_unhealthy() -> None:
    """container-16: the server would not start with it either."""
    assert "PROT" in fault_of({"CORETOOLS_HTTP_SERVER__PROT": "1"})
    assert "/nonexistent.toml" in fault_of({"CORETOOLS_HTTP_CONFIG": "/nonexistent.toml"})


def test_a_server_with_tls_is_called_with_tls(tmp_path: Path) -> None:
    """container-16: its certificate is for a name outside."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coretools.example.com")])
    now = datetime.now(UTC)
    certificate = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=now - timedelta(days=1),
        not_valid_after=now + timedelta(days=1),
    ).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    both = tmp_path / "both.pem"
    both.write_bytes(private + certificate.public_bytes(pem))
    seen: list[tuple[str, str | None]] = []
    with answering(200, seen=seen, tls=both) as port:
        variables = at(port, hosts="coretools.example.com", tls_certificate=str(both), tls_key=str(both))
        assert fault_of(variables) == ""
    assert seen == [("/healthz", "coretools.example.com")]


def test_the_exit_code_of_the_module_reports_the_health(tmp_path: Path) -> None:
    """container-16: as HEALTHCHECK runs it, in a project whose modules have the names of ours, since tools can write
    them."""
    words = [sys.executable, *last("http", "HEALTHCHECK").value[2:]]
    for module in ("coretools/__init__", "coretools/servers/healthcheck", "http/__init__", "tomllib"):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'taken')!r}, 'w').close()\n")
    variables = {"PYTHONPATH": str(TREE)}
    with answering(200, seen=[]) as port:
        assert subprocess.run(words, cwd=tmp_path, env={**at(port), **variables}, timeout=60).returncode == 0
    environment = {**at(port), **variables}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert not (tmp_path / "taken").exists()
    assert done.returncode == 1
    assert done.stderr.startswith("coretools-http: no answer at 127.0.0.1 port")
