"""Package managers with the network limited to named sets, through a real client and server (docs/specs/network.md).

The server runs in a network namespace with an internet of its own (`tests.egress.private_internet`): the registries are
there under their real names, over TLS, and so are the hosts that nothing may reach.
"""

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.egress.private_internet import METADATA, PUBLIC
from tests.process.test_sandbox_pool import needs_namespaces
from tests.protocol.peer import Peer, peer
from tests.tools.internet import Internet

pytestmark = needs_namespaces

LISTED = (
    *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "index.crates.io", "static.crates.io"),
    *("github.com", "rebind.example", "inner.example"),
)
NAMES = {
    **{host: [PUBLIC] for host in (*LISTED, "evil.example", "xgithub.com")},
    "rebind.example": [PUBLIC, METADATA, "127.0.0.1"],
    "inner.example": ["127.0.0.1"],
}
TRUST = ("PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "npm_config_cafile", "CARGO_HTTP_CAINFO", "SSL_CERT_FILE")
"""Variables by which programs trust the certificate of the tests."""


def archive(files: dict[str, str]) -> bytes:
    """Return a compressed tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            file.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def python_pages() -> dict[str, bytes | str]:
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("demo.py", "WORD = 'from the index'\n")
        file.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        file.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("demo-1.0.dist-info/RECORD", "")
    name = "demo-1.0-py3-none-any.whl"
    return {
        "pypi.org/simple/demo/index.html": f'<a href="https://files.pythonhosted.org/{name}">{name}</a>',
        f"files.pythonhosted.org/{name}": wheel.getvalue(),
    }


def npm_pages() -> dict[str, bytes | str]:
    package = {"name": "demo", "version": "1.0.0", "main": "main.js"}
    data = archive({"package/package.json": json.dumps(package), "package/main.js": "module.exports = 'from npm'\n"})
    digest = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    package |= {"dist": {"tarball": "https://registry.npmjs.org/demo/-/demo-1.0.0.tgz", "integrity": digest}}  # type: ignore[dict-item]
    about = {"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": package}}
    return {
        "registry.npmjs.org/demo/index.html": json.dumps(about),
        "registry.npmjs.org/demo/-/demo-1.0.0.tgz": data,
    }


def cargo_pages() -> dict[str, bytes | str]:
    manifest = '[package]\nname = "demo"\nversion = "1.0.0"\nedition = "2018"\n'
    data = archive({"demo-1.0.0/Cargo.toml": manifest, "demo-1.0.0/src/lib.rs": ""})
    about = {"name": "demo", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    return {
        "index.crates.io/config.json": '{"dl": "https://static.crates.io/crates"}',
        "index.crates.io/de/mo/demo": json.dumps(about | {"cksum": hashlib.sha256(data).hexdigest()}),
        "static.crates.io/crates/demo/1.0.0/download": data,
    }


def publish_repository(folder: Path) -> None:
    """Write a repository as a web server without git serves it."""

    def git(*words: str | Path) -> None:
        subprocess.run(["git", "-C", str(folder), *map(str, words)], check=True, capture_output=True)

    folder.mkdir(parents=True)
    git("init", "-q")
    (folder / "read.me").write_text("cloned\n")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    git("clone", "-q", "--bare", ".", "demo.git")
    git("--git-dir", folder / "demo.git", "update-server-info")


CARGO = """
[package]
name = "a"
version = "0.1.0"
edition = "2018"
[lib]
path = "lib.rs"
[dependencies]
demo = "1"
"""
PIP = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "pip", "install", "--no-cache-dir", "--target", "lib", "demo"], check=True)
sys.path.insert(0, "lib")
import demo
print(demo.WORD)
"""


class Place:
    """A server with the network limited to sets and hosts, and the internet around it."""

    def __init__(self, client: Peer, internet: Internet) -> None:
        self._client = client
        self.internet = internet

    def run(self, command: str) -> str:
        result: dict[str, Any] = self._client.call("run_command", command=command, timeout_seconds=120)
        return str(result["content"][0]["text"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, root = tmp_path_factory.mktemp("internet"), tmp_path_factory.mktemp("root")
    internet = Internet(folder, NAMES, python_pages() | npm_pages() | cargo_pages())
    publish_repository(folder / "www" / "github.com" / "demo")
    shutil.copy(internet.certificate, root / "ca.pem")
    for name, text in {"Cargo.toml": CARGO, "lib.rs": "", "install.py": PIP}.items():
        (root / name).write_text(text)
    passed = [word for name in TRUST for word in ("--pass-env", name)]
    allowed = "pypi, npm, crates, github.com, rebind.example, inner.example"
    trust = dict.fromkeys(TRUST, str(root / "ca.pem"))
    with peer(root, "--network", allowed, *passed, environment=trust, before=internet.before) as client:
        client.start_session()
        if "commands are confined in tier: full" not in str(client.call("get_diagnostics")):
            pytest.skip("tier full is not available here")
        yield Place(client, internet)


JOBS = {
    "pip": ("python3 install.py", "from the index", ("pypi.org", "files.pythonhosted.org")),
    "npm": ("npm install demo --no-audit --no-fund --no-save", "added 1 package", ("registry.npmjs.org",)),
    "git": ("git clone https://github.com/demo/demo.git cloned", "Cloning into 'cloned'", ("github.com",)),
    "cargo": ("cargo fetch", "Downloaded demo v1.0.0", ("index.crates.io", "static.crates.io")),
    "curl": ("curl -sS https://github.com/page", "page of github.com", ("github.com",)),
    "curl by http": ("curl -sS http://github.com/page", "page of github.com", ("github.com",)),
    "curl by SOCKS": ("curl -sSx socks5h://127.0.0.1:1023 https://github.com/page", "page of github", ("github.com",)),
    "wget": ("wget -qO- --ca-certificate=ca.pem https://github.com/page", "page of github.com", ("github.com",)),
}


@pytest.mark.parametrize("job", JOBS)
def test_a_package_manager_works_with_its_set_and_no_action_of_the_agent(place: Place, job: str) -> None:
    """network-1, network-5, network-12: real names, default registries, TLS."""
    command, shown, hosts = JOBS[job]
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"needs {command.split()[0]}")
    before = {host: len(place.internet.requests(host)) for host in hosts}
    text = place.run(command)
    if "No module named pip" in text or "rustup" in text:
        pytest.skip("the program is incompletely installed here")
    assert shown in text, text
    assert "[network:" not in text
    for host in hosts:
        assert len(place.internet.requests(host)) > before[host], host
        assert {address for address, _ in place.internet.requests(host)} == {PUBLIC}


UNLISTED = {
    "https": "curl -sS https://evil.example/page",
    "http": "curl -sS http://evil.example/page",
    "SOCKS with the name": "curl -sSx socks5h://127.0.0.1:1023 http://evil.example/page",
    "SOCKS with the address": f"curl -sSx socks5://127.0.0.1:1023 http://{PUBLIC}/page",
    "another Host": "curl -sS -H 'Host: evil.example' http://github.com/page",
    "another server name": "curl -sS --connect-to evil.example:443:github.com:443 https://evil.example/page",
    "a similar name": "curl -sS https://xgithub.com/page",
    "a redirect's target": f"curl -sS http://{METADATA}/page",
    "a listed name at a private address": "curl -sS http://inner.example/page",
    "no proxy": f"curl -sS --noproxy '*' https://github.com/page --resolve github.com:443:{PUBLIC}",
    "another port": "curl -sS http://github.com:8080/page",
    "a name server": f"python3 -c \"import socket; socket.create_connection(('{PUBLIC}', 53), 5)\"",
}


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_nothing_that_is_not_listed_is_reached_or_looked_up(place: Place) -> None:
    """network-3, network-4, network-11, network-13: by what arrives anywhere in the internet."""
    github = len(place.internet.requests("github.com"))
    for what, command in UNLISTED.items():
        text = place.run(command)
        assert ("[network: " in text) == (what not in ("another Host", "no proxy", "a name server")), (what, text)
    assert place.internet.requests("evil.example") == []
    assert place.internet.requests("xgithub.com") == []
    assert place.internet.requests("inner.example") == []
    assert place.internet.addresses() <= {PUBLIC}
    assert not place.internet.looked_up() & {"evil.example", "xgithub.com"}
    assert len(place.internet.requests("github.com")) == github + 1, "the request whose Host was replaced"
    text = place.run("curl -sS https://evil.example/page")
    assert '; the operator allows it with network = [..., "evil.example"] and a restart of the server' in text


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_host_that_resolves_differently_the_second_time_is_refused_then(place: Place) -> None:
    """network-4: the metadata service and loopback, as answers of the name server that the machine uses."""
    assert "page of rebind.example" in place.run("curl -sS http://rebind.example/page")
    for address in (METADATA, "127.0.0.1"):
        text = place.run("curl -sS http://rebind.example/page")
        assert f"leads to an address that is not public (loopback, private, link-local or special): {address}" in text
    assert place.internet.requests("rebind.example") == [(PUBLIC, "80")]
