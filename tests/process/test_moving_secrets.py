"""Attacks on the search for hidden files: commands that move directories while other commands start.

In tier full; judged by effect: whether a command prints a canary.
"""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protocol.peer import Peer, peer

CANARY = "canary-of-a-moved-file"
ROUNDS = 6

MOVER = """
import ctypes, os, sys
way, stop = sys.argv[1:]
exchange = ctypes.CDLL(None).renameat2
open("begun", "w").close()
while not os.path.exists(stop):
    if way == "rename":
        os.rename("a", "z")
        os.rename("z", "a")
    elif way == "between":
        os.rename("a", "q/a")
        os.rename("q/a", "a")
    else:
        if way == "deep":  # what lies deeper is listed again, perhaps through the other directory
            open("a/x/y/new", "w").close()
            os.unlink("a/x/y/new")
        other = b"link" if way == "link" else b"b"
        exchange(-100, b"a", -100, other, 2)
        exchange(-100, b"a", -100, other, 2)
"""
READER = """
import os
for _ in range(100):
    for place in ("a", "b", "z", "q/a", "link"):
        for name in ("/.env", "/x/y/.env"):
            try:
                with open(place + name) as file:
                    print(file.read())
            except OSError:
                pass
"""


def plant(root: Path) -> None:
    for place in ("a/x/y", "b/x/y", "q"):
        (root / place).mkdir(parents=True)
    for name in ("a/.env", "a/x/y/.env"):
        (root / name).write_text(f"TOKEN={CANARY}")
    for name in ("b/.env", "b/x/y/.env"):
        (root / name).touch()
    (root / "link").symlink_to("b")
    (root / "mover.py").write_text(MOVER)
    (root / "reader.py").write_text(READER)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Peer]]:
    root = tmp_path_factory.mktemp("moved")
    plant(root)
    with peer(root) as client:
        client.start_session()
        if "commands are confined in tier: full" not in str(client.call("get_diagnostics")["content"]):
            pytest.skip("needs tier full")
        yield root, client


def run(client: Peer, *argv: str) -> str:
    command = shlex.join([sys.executable, *argv])
    return str(client.call("run_command", command=command, timeout_seconds=60)["content"][0]["text"])


@pytest.mark.parametrize("way", ["rename", "between", "exchange", "deep", "link"])
def test_a_directory_that_moves_while_commands_begin(world: tuple[Path, Peer], way: str) -> None:
    """confinement-45: its hidden files stay hidden from commands that start meanwhile and afterwards."""
    root, client = world
    stop = f"stop-{way}"
    mover = client.call("run_command", command=shlex.join([sys.executable, "mover.py", way, stop]), wait_seconds=0)
    number = mover["_meta"]["coretools/facts"]["run"]
    client.call("run_command", command="sh -c 'until test -e begun; do :; done'", timeout_seconds=60)
    outputs = [run(client, "reader.py") for _ in range(ROUNDS)]
    (root / stop).touch()
    assert "exit code 0" in str(client.call("wait_run", run=number, seconds=60))
    os.unlink(root / "begun")
    outputs.append(run(client, "reader.py"))
    assert not any(CANARY in one for one in outputs), outputs
    assert CANARY in (root / "a" / ".env").read_text()
