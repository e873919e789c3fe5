"""Files of /etc that are replaced while a server runs, as `useradd`, `ldconfig` and network managers do.

The server gets an /etc of its own in a mount namespace; the test changes it from outside. In both tiers.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer

SPACES = ("unshare", *(() if os.geteuid() == 0 else ("-r",)), "--mount", "--propagation", "private")
BOUND = 'mount --bind "$1" /etc; shift; exec "$@"'
COPIED = ("ld.so.cache", "ld.so.conf", "alternatives", "group", "nsswitch.conf", "localtime")
CANARY = "canary-2f9a"

pytestmark = pytest.mark.skipif(
    subprocess.run([*SPACES, "true"], check=False, capture_output=True).returncode != 0, reason="mount namespaces"
)


class World:
    """A server whose /etc is a directory of the test."""

    def __init__(self, etc: Path, client: Peer) -> None:
        self.etc = etc
        self._client = client

    def sh(self, text: str) -> str:
        """Run shell text as a command; return its output."""
        result = self._client.call("run_command", command=shlex.join(["sh", "-c", text]), timeout_seconds=30)
        return str(result["content"][0]["text"])

    def replace(self, name: str, text: str) -> None:
        """Write a new file and rename it over the old one."""
        fresh = self.etc / f"{name}+"
        fresh.write_text(text)
        fresh.chmod(0o644)
        fresh.rename(self.etc / name)


def plant(etc: Path, target: Path) -> None:
    (etc / "ssl" / "private").mkdir(parents=True)
    target.mkdir()
    for name in COPIED:
        if (source := Path("/etc", name)).exists():
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, etc / name, **({"symlinks": True} if source.is_dir() else {}))
    (etc / "passwd").write_text("me:x:0:0::/:/bin/sh\n")
    for name in ("shadow", "ssl/private/key", "ssl/openssl.cnf"):
        (etc / name).write_text(CANARY)
    (target / "resolv.conf").write_text("before\n")
    (etc / "resolv.conf").symlink_to(target / "resolv.conf")


@pytest.fixture(params=["full", "landlock"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    etc, root = tmp_path / "etc", tmp_path / "root"
    plant(etc, tmp_path / "target")
    root.mkdir()
    before = [*SPACES, "sh", "-ec", BOUND, "sh", str(etc), *(under_profile() if request.param == "landlock" else ())]
    with peer(root, before=before) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield World(etc, client)


def test_what_is_replaced_in_etc_can_be_read(world: World) -> None:
    """confinement-34: by the next command: a new user, another resolver, a library cache, a new file."""
    assert "me:x" in world.sh("cat /etc/passwd; whoami")
    for user in ("first", "second", "third"):
        world.replace("passwd", f"{user}:x:0:0::/:/bin/sh\n")
        assert world.sh("whoami; cat /etc/passwd").startswith(f"{user}\n{user}:x")
    world.replace("../target/resolv.conf", "after\n")
    assert world.sh("cat /etc/resolv.conf") == "after"
    world.replace("made.conf", "made")
    assert world.sh("cat /etc/made.conf") == "made"
    world.replace("ssl/openssl.cnf", "of another version")
    assert world.sh("cat /etc/ssl/openssl.cnf") == "of another version"
    (world.etc / "ssl").rename(world.etc / "tls")
    (world.etc / "ssl").mkdir()
    world.replace("ssl/openssl.cnf", "in another directory")
    assert world.sh("cat /etc/ssl/openssl.cnf") == "in another directory"


def test_secrets_stay_closed_when_they_are_replaced(world: World) -> None:
    """confinement-3: a new entry with the name of a secret is not granted either."""
    for name in ("shadow", "ssl/private/key", "gshadow"):
        world.replace(name, CANARY)
        world.replace("passwd", f"{name.replace('/', '-')}:x:0:0::/:/bin/sh\n")
        output = world.sh(f"cat /etc/{name}; tar cf - /etc/{name}")
        assert CANARY not in output
        assert "ermission denied" in output
