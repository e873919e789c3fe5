"""Real git servers on loopback: smart HTTP by `git http-backend` with Basic authentication, and `git daemon`."""

import base64
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class GitHttpServer:
    """Serves the repositories beneath a directory; `answers` replace those of git, by path.

    One whose Content-Length is larger than its data, or with the status 0, does not end before the client does.
    """

    top: Path
    token: str = ""
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def backend_path() -> str:
    found = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{found}/git-http-backend"


def _handler(server: GitHttpServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(_body(self))

        def _answer(self, body: bytes) -> None:
            parts = urlsplit(self.path)
            server.requests.append(f"{self.command} {parts.path}")
            if parts.path in server.answers:
                status, headers, data = server.answers[parts.path]
                self._send(status, headers, data)
            elif server.token and self.headers.get("Authorization") != _basic(server.token):
                self._send(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"no")
            else:
                self._send(*_backend(server, self, parts.path, parts.query, body))

        def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
            sent = {"Content-Length": str(len(data)), "Connection": "close", **headers}
            head = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
            self.wfile.write("\r\n".join(head).encode() + data if status else b"")
            if not status or int(sent["Content-Length"]) > len(data):
                self.rfile.read(1)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            return

    return Handler


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding") != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    pieces = []
    while size := int(request.rfile.readline().strip(), 16):
        pieces.append(request.rfile.read(size))
        request.rfile.readline()
    return b"".join(pieces)


def _basic(token: str) -> str:
    return "Basic " + base64.b64encode(f"git:{token}".encode()).decode()


def _backend(
    server: GitHttpServer, request: BaseHTTPRequestHandler, path: str, query: str, body: bytes
) -> tuple[int, dict[str, str], bytes]:
    variables = {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(server.top),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_CONFIG_KEY_1": "http.receivepack",
        "GIT_CONFIG_VALUE_1": "true",
        "REQUEST_METHOD": request.command,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "HTTP_GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REMOTE_USER": "git",
        "REMOTE_ADDR": "127.0.0.1",
    }
    output = subprocess.run([backend_path()], input=body, env=variables, capture_output=True, check=False).stdout
    head, _, data = output.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
    return int(headers.pop("Status", "200").split()[0]), headers, data


def self_signed(top: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1; return the file with its key, and the one that clients may trust."""
    both, public = top / "certificate.pem", top / "authority.pem"
    words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    files = ("-keyout", str(both), "-out", str(public), "-subj", "/CN=git", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(["openssl", *words, *files], check=True, capture_output=True)
    with both.open("a") as file:
        file.write(public.read_text())
    return both, public


@contextmanager
def git_http_server(top: Path, token: str = "", certificate: Path | None = None) -> Iterator[GitHttpServer]:
    """Serve by http, or by https with a certificate and its key in one file."""
    server = GitHttpServer(top, token)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        httpd.socket = context.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
    server.port = httpd.server_address[1]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@contextmanager
def git_daemon(top: Path) -> Iterator[int]:
    """Serve repositories by `git daemon`, started for each connection (`--inetd`); yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, top), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _accept(listener: socket.socket, top: Path) -> None:
    options = ("--inetd", "--export-all", "--enable=receive-pack", f"--base-path={top}")
    safe = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client:
            environment = {"PATH": os.environ["PATH"], **safe}
            subprocess.Popen(["git", "daemon", *options], stdin=client, stdout=client, env=environment).wait()


def sshd_path() -> str | None:
    """The ssh server of this machine, which need not be in the PATH of an ordinary user."""
    return shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class SshServer:
    """A real sshd for one user, and an agent with the key that it accepts."""

    port: int
    known_hosts: Path
    agent: Path


@contextmanager
def ssh_server(top: Path) -> Iterator[SshServer]:
    """Serve ssh, one sshd for each connection (`-i`); the caller has checked that there is one."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(top / name)], check=True)
    shutil.copy(top / "user.pub", top / "accepted")
    lines = {
        "HostKey": top / "host",
        "AuthorizedKeysFile": top / "accepted",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PidFile": "none",
    }
    (top / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(top / "agent")], stdout=subprocess.PIPE)
    try:
        assert agent.stdout is not None
        agent.stdout.readline()  # written when the socket is there
        environment = {**os.environ, "SSH_AUTH_SOCK": str(top / "agent")}
        subprocess.run(["ssh-add", "-q", str(top / "user")], env=environment, check=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            words = (str(sshd_path()), "-i", "-e", "-f", str(top / "sshd_config"))
            thread = threading.Thread(target=_serve, args=(listener, words, top / "sshd.log"), daemon=True)
            thread.start()
            port = listener.getsockname()[1]
            (top / "known_hosts").write_text(f"[127.0.0.1]:{port} {(top / 'host.pub').read_text()}")
            yield SshServer(port, top / "known_hosts", top / "agent")
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    finally:
        agent.terminate()
        agent.communicate()


def _serve(listener: socket.socket, words: tuple[str, ...], log: Path) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, log.open("ab") as errors:
            subprocess.Popen(words, stdin=client, stdout=client, stderr=errors).wait()
