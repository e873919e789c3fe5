"""Tool chains that write to a home: cargo's beside downloaded files, and Java's temporary files.

Real programs; the registry is a server on loopback.
"""

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import peer

TIERS = {"full": (), "landlock": tuple(under_profile())}

NO_CARGO = shutil.which("cargo") is None
NO_JAVA = shutil.which("java") is None


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server without request log."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def crate(folder: Path, name: str, manifest: str, code: str) -> Path:
    """A Rust package with one file."""
    (folder / "src").mkdir(parents=True)
    head = f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n'
    (folder / "Cargo.toml").write_text(head + manifest)
    (folder / "src" / ("main.rs" if "main" in code else "lib.rs")).write_text(code)
    return folder


@pytest.fixture
def cargo(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a user with a home for cargo; the root needs a package from a registry."""
    home, site = tmp_path / "user", tmp_path / "site"
    home.mkdir()
    chain = os.environ.get("RUSTUP_HOME") or os.path.expanduser("~/.rustup")
    variables = {"HOME": str(home), "CARGO_HOME": str(home / ".cargo"), "RUSTUP_HOME": chain}
    started = {**os.environ, **variables}
    needed = crate(tmp_path / "needed", "needed", "", "pub fn seven() -> i32 { 7 }\n")
    subprocess.run(["cargo", "package", "-q", "--no-verify", "--allow-dirty"], cwd=needed, env=started, check=True)
    packed = (needed / "target" / "package" / "needed-0.1.0.crate").read_bytes()
    (site / "ne" / "ed").mkdir(parents=True)
    (site / "packed").mkdir()
    (site / "packed" / "needed").write_bytes(packed)
    entry = {"name": "needed", "vers": "0.1.0", "deps": [], "features": {}, "yanked": False}
    (site / "ne" / "ed" / "needed").write_text(json.dumps(entry | {"cksum": hashlib.sha256(packed).hexdigest()}) + "\n")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        (site / "config.json").write_text(json.dumps({"dl": f"{address}/packed/{{crate}}"}))
        root = crate(
            tmp_path / "root",
            "needs",
            '[dependencies]\nneeded = { version = "0.1", registry = "ours" }\n',
            'fn main() { println!("{}", needed::seven()) }\n',
        )
        (root / ".cargo").mkdir()
        (root / ".cargo" / "config.toml").write_text(f'[registries.ours]\nindex = "sparse+{address}/"\n')
        try:
            subprocess.run(["cargo", "fetch", "-q"], cwd=root, env=started, check=True)
            yield variables
        finally:
            server.shutdown()


@pytest.mark.skipif(NO_CARGO, reason="cargo is not installed")
@pytest.mark.parametrize("tier", TIERS)
def test_cargo_uses_the_users_downloads(tmp_path: Path, cargo: dict[str, str], tier: str) -> None:
    """confinement-33: without a network, and the user's home is unchanged."""
    before = sorted(str(path) for path in (tmp_path / "user").rglob("*"))
    with peer(
        tmp_path / "root", environment=cargo | {"XDG_STATE_HOME": str(tmp_path / "state")}, before=TIERS[tier]
    ) as client:
        client.start_session()
        answer = client.call("run_command", command="cargo run -q --offline", timeout_seconds=60)
        assert answer["content"][0]["text"].splitlines()[-1] == "7"
    assert sorted(str(path) for path in (tmp_path / "user").rglob("*")) == before


@pytest.mark.skipif(NO_CARGO, reason="cargo is not installed")
@pytest.mark.parametrize("tier", TIERS)
def test_cargo_downloads_to_a_home_of_its_own(tmp_path: Path, cargo: dict[str, str], tier: str) -> None:
    """confinement-33: with a granted network it creates directories and locks in a home of its own."""
    for name in ("index", "cache", "src"):
        folder = tmp_path / "user" / ".cargo" / "registry" / name
        shutil.rmtree(folder)
        folder.mkdir()
    with peer(tmp_path / "root", "--network", "allow", environment=cargo, before=TIERS[tier]) as client:
        client.start_session()
        answer = client.call("run_command", command="cargo run -q", timeout_seconds=60)
        assert answer["content"][0]["text"].splitlines()[-1] == "7"


JAVA = """
class Places {
    public static void main(String[] words) throws Exception {
        System.out.println(java.io.File.createTempFile("abc", "d").getParent().equals(System.getenv("TMPDIR")));
        System.out.println(new java.io.File(System.getProperty("user.home"), "made").mkdir());
    }
}
"""


@pytest.mark.skipif(NO_JAVA, reason="java is not installed")
@pytest.mark.parametrize("tier", TIERS)
def test_java_has_temporary_files_and_a_home(tmp_path: Path, tier: str) -> None:
    """confinement-33: Java uses neither TMPDIR nor HOME."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "Places.java").write_text(JAVA)
    with peer(root, before=TIERS[tier]) as client:
        client.start_session()
        answer = client.call("run_command", command="java Places.java", timeout_seconds=60)
        assert answer["content"][0]["text"].splitlines()[:2] == ["true", "true"]
