"""A server without tokens, and who may call it (docs/specs/authentication.md): real proxies, real other users."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from coretools.web.auth.local_caller import is_of_this_user
from tests.web.http_mcp_client import ACCEPT
from tests.web.http_server_peer import HttpServer, http_server
from tests.web.mcp_peer import enveloped, request, routing
from tests.web.replicas.balanced import haproxy

NOBODY = 65534

PROXY = """
global
    {user}
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend proxy
    bind fd@{descriptor}
    {extra}
    http-request set-header Host {host}
    default_backend coretools
backend coretools
    server coretools {host}
"""
"""As `proxy_pass http://127.0.0.1:8765`, with the Host of the server."""


def written_by(url: str, path: Path, *, version: bytes = b"HTTP/1.1", user: int | None = None) -> tuple[int, bool]:
    """Call `write_file` as another process; return the status and whether the file was written."""
    body = request("tools/call", {"name": "write_file", "arguments": {"path": path.name, "content": "here\n"}})
    headers = {**ACCEPT, **routing(body), "Content-Type": "application/json"}
    sent = httpx2.Request("POST", url, json=enveloped(body), headers=headers)
    host, port = url.split("/")[2].split(":")
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in sent.headers.raw if name != b"Connection")
    data = b"POST /mcp " + version + b"\r\nConnection: close\r\n" + lines + b"\r\n" + sent.read()
    script = (
        "import socket, sys\n"
        "with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:\n"
        "    peer.sendall(sys.stdin.buffer.read())\n"
        "    sys.stdout.buffer.write(peer.makefile('rb').read())\n"
    )
    python = "/usr/bin/python3"
    done = subprocess.run([python, "-c", script, host, port], input=data, capture_output=True, user=user, check=True)
    was_written = path.exists()
    path.unlink(missing_ok=True)
    return int(done.stdout.split()[1]), was_written


@contextmanager
def served(folder: Path, *words: str, **variables: str) -> Iterator[tuple[HttpServer, Path, str]]:
    """A server, a path beneath its root, and its address."""
    root = folder / "root"
    root.mkdir(exist_ok=True)
    with http_server(folder, "--root", root, *words, environment=variables) as server:
        yield server, root / "marker", server.url.split("/")[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")
def test_nobody_behind_a_reverse_proxy_calls_a_server_without_tokens(tmp_path: Path) -> None:
    """auth-34, auth-35: neither when the proxy says what it forwards nor when it is another user's and hides it."""
    with served(tmp_path) as (server, marker, host), ExitStack() as proxies:
        forwarding, hiding = (
            f"http://127.0.0.1:{proxies.enter_context(haproxy(tmp_path, text))}/mcp"
            for text in (
                lambda fd, _: PROXY.format(user="", descriptor=fd, extra="option forwardfor", host=host),
                lambda fd, _: PROXY.format(user="uid 65534", descriptor=fd, extra="", host=host),
            )
        )
        assert written_by(server.url, marker) == (200, True)
        assert written_by(forwarding, marker) == (403, False)
        assert written_by(hiding, marker) == (403, False)
        assert written_by(server.url, marker, version=b"HTTP/1.0") == (403, False)  # as nginx forwards
        assert written_by(server.url, marker, user=NOBODY) == (403, False)
        refused = [line["refused"] for line in server.lines if line.get("refused")]
        warned = [line["message"] for line in server.lines if line["level"] == "warning"]
    assert refused == ["not-local"] * 4
    assert [f"processes of user {os.geteuid()} on this machine may call" in one for one in warned] == [True], warned


def test_a_connection_that_its_process_has_closed_belongs_to_nobody() -> None:
    """auth-35: the kernel reports user 0 for it, which is the server's own in a container."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((host, 0), family=family) as accepting:
            with socket.create_connection(accepting.getsockname()[:2]) as client:
                accepted, _ = accepting.accept()
                scope = {"client": client.getsockname()[:2], "server": accepting.getsockname()[:2]}
                assert is_of_this_user(scope)
                client.shutdown(socket.SHUT_WR)
                assert is_of_this_user(scope)
            assert not is_of_this_user(scope)
            accepted.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")
def test_anonymous_access_is_declared_in_a_configuration(tmp_path: Path) -> None:
    """auth-33, auth-36: an empty file, or any variable, is a configuration; the start ends with the two choices."""
    empty = tmp_path / "http.toml"
    empty.touch()
    for words, variables in ((("--config", str(empty)), {}), ((), {"CORETOOLS_HTTP_LIMITS__SESSIONS": "9"})):
        with pytest.raises(AssertionError, match=r'auth\.anonymous = "user"'), served(tmp_path, *words, **variables):
            pass
    empty.write_text("[auth]\nanonymous = 'machine'\n")
    with served(tmp_path, "--config", str(empty)) as (server, marker, _):
        assert written_by(server.url, marker, user=NOBODY) == (200, True)
        assert "every process on this machine may call" in server.log.read_text()
