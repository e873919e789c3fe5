"""Runs a program in a network namespace with an internet of its own: a name server, and one web server for all hosts.

    python -m tests.egress.private_internet FOLDER -- PROGRAM [ARGUMENT ...]

The program resolves names as on any machine, with a resolv.conf that names the server here. `FOLDER/names.json` maps a
host to addresses: each look-up takes the next one, and the last one is repeated. `FOLDER/www/HOST` has the pages, on
ports 80 and 443 with `FOLDER/certificate.pem`. `FOLDER/log` gets a line for each look-up and request. Nothing needs
privileges; every address is on the loopback device of the namespace.
"""

import ctypes
import fcntl
import http.server
import json
import os
import signal
import socket
import socketserver
import ssl
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from coretools.confinement import namespaces, syscalls

PUBLIC = "11.0.0.1"
"""An address that is public; in the namespace all of 11.0.0.0/8 is its loopback device."""

METADATA = "169.254.169.254"

_SET_ADDRESS, _SET_FLAGS, _UP_AND_RUNNING = 0x8916, 0x8914, 0x41
"""SIOCSIFADDR, SIOCSIFFLAGS, IFF_UP | IFF_RUNNING."""

_BIND_MOUNT = 0x1000
_ADDRESS_FOUND, _NO_DATA, _NO_SUCH_NAME = 0x8180, 0x8180, 0x8183
_IPV4_RECORD = 1


def main() -> int:
    folder, words, identity = Path(sys.argv[1]), sys.argv[3:], (os.geteuid(), os.getegid())
    syscalls.unshare(namespaces.NEW_USERS | namespaces.NEW_MOUNTS | namespaces.NEW_NETWORK)
    user, group = identity
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text)
    _open_loopback()
    _bind("nameserver 127.0.0.1\n", folder / "resolv.conf", "/etc/resolv.conf")
    _bind("hosts: files dns\n", folder / "nsswitch.conf", "/etc/nsswitch.conf")
    internet = _Internet(folder)
    pid = os.fork()
    if pid == 0:
        syscalls.set_parent_death_signal(signal.SIGKILL)
        os.execvp(words[0], words)  # the program of the test
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    internet.serve()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _open_loopback() -> None:
    with socket.socket() as one:
        fcntl.ioctl(one, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))
        for number, address in enumerate((PUBLIC, METADATA)):
            name = f"lo:{number}".encode()
            request = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(one, _SET_ADDRESS, request)


def _bind(text: str, source: Path, target: str) -> None:
    if not os.path.exists(target):
        return
    source.write_text(text)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(source), os.fsencode(os.path.realpath(target)), None, _BIND_MOUNT, None):
        raise OSError(ctypes.get_errno(), f"can't mount over {target}")


class _Internet:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses: dict[str, list[str]] = json.loads((folder / "names.json").read_text())
        self._log = open(folder / "log", "a", encoding="utf-8", buffering=1)  # noqa: SIM115  # as long as the process
        self._lock = threading.Lock()
        internet = self

        class Pages(_Pages):
            def __init__(self, *words: Any) -> None:
                super().__init__(*words, internet=internet)

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        plain, encrypted = _WebServer(("0.0.0.0", 80), Pages), _WebServer(("0.0.0.0", 443), Pages)
        encrypted.context = context
        self._servers = (plain, encrypted)
        self._names = socket.socket(type=socket.SOCK_DGRAM)
        self._names.bind(("127.0.0.1", 53))

    def serve(self) -> None:
        for one in (*(server.serve_forever for server in self._servers), self._answer_look_ups):
            threading.Thread(target=one, daemon=True).start()

    def log(self, *words: str) -> None:
        with self._lock:
            self._log.write(" ".join(words) + "\n")

    def _answer_look_ups(self) -> None:
        while True:
            query, client = self._names.recvfrom(4096)
            self._names.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii"))
            at += 1 + query[at]
        question, name = query[12 : at + 5], ".".join(labels).lower()
        known = self.addresses.get(name)
        wanted = int.from_bytes(query[at + 1 : at + 3], "big")
        self.log("dns", name)
        if known is None or wanted != _IPV4_RECORD:
            flags = _NO_SUCH_NAME if known is None else _NO_DATA
            return query[:2] + struct.pack(">5H", flags, 1, 0, 0, 0) + question
        address = known.pop(0) if len(known) > 1 else known[0]
        record = struct.pack(">HHHIH4s", 0xC00C, _IPV4_RECORD, 1, 0, 4, socket.inet_aton(address))
        return query[:2] + struct.pack(">5H", _ADDRESS_FOUND, 1, 1, 0, 0) + question + record


class _WebServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context is not None:
            request.settimeout(60)
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that does not trust the certificate shows in its own output."""


class _Pages(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *words: Any, internet: _Internet) -> None:
        self._internet = internet
        super().__init__(*words)

    def translate_path(self, path: str) -> str:
        host = self.headers.get("Host", "").partition(":")[0]
        address, port = self.connection.getsockname()
        self._internet.log("http", address, str(port), host, path)
        place = self._internet.folder / "www" / host / urlsplit(path).path.strip("/")
        return str(place / "index.html" if place.is_dir() else place)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Nothing: the log of look-ups and requests has it."""


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
