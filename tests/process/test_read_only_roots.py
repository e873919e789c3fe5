"""A read-only root beneath a writable one: commands change nothing in it, in both tiers (confinement-36)."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.confinement.allowed_paths import MAX_ENTRIES, without_read_only_roots
from coretools.confinement.landlock import CHANGE, RUN, EntryGrants
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer

ROOTS = ("ro", "../q/ro", "x/ro")
"""Read-only roots, relative to the writable root: directly in it, in a directory that the operator opened for writing,
and deeper."""


class World:
    """Two read-only roots in a writable one, and a server for them."""

    def __init__(self, top: Path, client: Peer, tier: str) -> None:
        self.top, self.client, self.tier = top, client, tier

    def sh(self, text: str, *, tool: str = "run_command", directory: str = ".") -> tuple[bool, str]:
        """Run shell text as a command; return whether it succeeded, and the text of the result."""
        line = shlex.join(["sh", "-ec", text])
        result = self.client.call(tool, command=line, directory=str(self.top / directory))
        facts = result.get("_meta", {}).get("coretools/facts", {})
        return facts.get("exit_code") == 0, str(result["content"][0]["text"])

    def bring_back(self) -> None:
        """Undo a rename of the directory above a root, which tier full allows: the root is gone then, and nothing
        changes it."""
        for place in ("y", "a/x"):
            if (self.top / place / "ro").exists():
                assert self.tier == "full"
                self.sh(f"echo x > {place}/ro/f; echo x > {place}/ro/new")
                self.sh("git init -q; git init -q b; echo x > new")  # so that the next mount namespace is a new one
                self.sh(f"echo x > {place}/ro/f; echo x > {place}/ro/new")
                self.client.call("write_file", path=f"{place}/ro/f", content="x")
                os.rename(self.top / place, self.top / "x")

    def state(self) -> dict[str, tuple[int, bytes]]:
        """The read-only roots: inodes and content."""
        found = {}
        for name in (*ROOTS, "git/.git"):
            for path in sorted([self.top / name, *(self.top / name).rglob("*")]):
                content = path.read_bytes() if path.is_file() else b""
                found[str(path)] = (path.stat().st_ino, content)
        return found


@pytest.fixture(scope="module", params=["full", "landlock"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    top = tmp_path_factory.mktemp("nested") / "p"
    for name in (*ROOTS, "ro/d", "a", "b", "x/other", "../q/beside"):
        (top / name).mkdir(parents=True)
        (top / name / "f").write_text(name)
    (top / "f").write_text("top")
    (top / "to-ro").symlink_to("ro")
    (top / "a" / "to-ro").symlink_to(top / "ro")
    (top / "to-etc").symlink_to("/var")
    policy = top.parent / "policy.toml"
    policy.write_text(f'[confinement]\nwritable = ["{top.parent / "q"}"]\n')
    before = under_profile() if request.param == "landlock" else ()
    subprocess.run(["git", "init", "-q", str(top / "git")], check=True)
    with peer(top, *(f"{top / name}:ro" for name in (*ROOTS, "git/.git")), "--policy", policy, before=before) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield World(top, client, request.param)


ATTACKS = """
echo x > RO/new; mkdir RO/dir; ln -s x RO/link; mkfifo RO/fifo
echo x > RO/f; echo x >> RO/f; truncate -s 0 RO/f; cp a/f RO/f; sed -i s/r/x/ RO/f
rm -rf RO/f RO; rmdir RO; find RO -delete
mv RO/f RO/g; mv RO/f a/stolen; mv a/f RO/given; mv b RO/
mv RO a/ro; mv -T RO other; mv -T --exchange RO a
ln RO/f a/linked && echo x > a/linked; ln a/f RO/linked
echo x > to-ro/new; echo x > a/to-ro/f; ln -sfn $PWD/RO a/made; echo x > a/made/f
echo x > /proc/self/cwd/RO/f; echo x > /proc/self/root$PWD/RO/f
cd RO; echo x > f; echo x > n; exec 3<.; echo x > /dev/fd/3/f; echo x > /proc/self/fd/3/n
unshare -Urm sh -c 'mount --bind RO a && echo x > a/f'
git init -q RO; git -C RO init -q; git --git-dir=RO/g init -q; git init -q --separate-git-dir=RO/h a
PYTHON a/by-calls.py RO
mv x a/x && echo x > a/x/ro/f
mv x y && echo x > y/ro/f
""".strip().splitlines()


BY_CALLS = """
import ctypes, os, socket, sys
top, libc = sys.argv[1], ctypes.CDLL(None)
def unnamed():
    made = os.open("a", os.O_TMPFILE | os.O_WRONLY)
    os.link(f"/proc/self/fd/{made}", f"{top}/t")
for call in (
    lambda: socket.socket(socket.AF_UNIX).bind(f"{top}/s"),
    lambda: libc.renameat2(-100, b"a/f", -100, f"{top}/f".encode(), 2),
    lambda: os.open(f"/proc/self/fd/{os.open(f'{top}/f', os.O_RDONLY)}", os.O_WRONLY | os.O_TRUNC),
    lambda: os.open(top, os.O_TMPFILE | os.O_WRONLY),
    unnamed,
):
    try:
        call()
    except OSError:
        pass
"""


def test_a_read_only_root_is_not_changed(world: World) -> None:
    """confinement-36, confinement-15: neither writes, renames, links nor mounts change it, whatever the command."""
    before = world.state()
    (world.top / "a" / "by-calls.py").write_text(BY_CALLS)
    for ro in ROOTS:
        lines = [line.replace("RO", ro).replace("PYTHON", sys.executable) for line in ATTACKS]
        for script in ("; ".join(f"({line})" for line in lines[:-2]), *lines[-2:]):
            for tool in ("run_command", "ci_build") if ro == "ro" else ("run_command",):
                world.sh(f"set +e; ({script}) 2>/dev/null", tool=tool)
                world.bring_back()
                assert world.state() == before, (script, tool)
    assert (world.top / "a" / "f").exists()


def test_entries_beside_it_are_written(world: World) -> None:
    """confinement-36: all other entries, new files in them, and entries created since the previous command."""
    (world.top / "came").mkdir()
    (world.top / "came.txt").write_text("x")
    for text in (
        "echo 1 > f; echo 1 > a/new; mkdir -p a/deep/er; mv a/new b/moved; ln b/moved a/linked; rm -r a/deep",
        "echo 1 > x/other/n; mv b/moved x/other/moved; rm x/other/moved",
        "echo 1 > came/new; echo 1 > came.txt; rm came/new",
        "cat ro/f x/ro/f ../q/ro/f; echo 1 > ../q/beside/new",
    ):
        is_ok, output = world.sh(text)
        assert is_ok, output
    assert (world.top / "f").read_text() == (world.top / "came.txt").read_text() == "1\n"


def test_a_git_directory_that_is_a_read_only_root(world: World) -> None:
    """confinement-36: git reads it, and changes nothing in it."""
    before = world.state()
    (world.top / "git" / "f").write_text("x")
    assert world.sh("git -C git status && git -C git config --get core.bare")[0]
    world.sh("set +e; git -C git add f; git -C git config user.name x; git -C git symbolic-ref HEAD refs/heads/x")
    assert world.state() == before


def test_links_beside_it_lead_nowhere_new(world: World) -> None:
    """confinement-3: an entry that is a link grants no access to its target."""
    marker = Path("/var/coretools-marker")
    world.sh(f"echo x > to-etc/{marker.name}")
    is_there = marker.exists()
    marker.unlink(missing_ok=True)
    assert not is_there


def test_what_can_not_be_granted_is_reported(world: World) -> None:
    """confinement-36: in tier landlock nothing can be created directly in the directories above; the result gives the
    reason."""
    is_ok, output = world.sh("echo x > new")
    assert is_ok == (world.tier == "full")
    assert (world.top / "new").exists() == is_ok
    is_reported = "can't create, delete or rename entries directly in" in output
    assert is_reported == (world.tier == "landlock")
    diagnostics = world.client.call("get_diagnostics")["content"][0]["text"]
    assert (f"new entries directly in {world.top}" in diagnostics) == (world.tier == "landlock")


def test_a_part_of_a_very_large_directory_is_granted(tmp_path: Path) -> None:
    """confinement-36: the limit of entries; the read-only root is not among them."""
    (tmp_path / "a-root").mkdir()
    for number in range(MAX_ENTRIES + 1):
        (tmp_path / f"f{number}").touch()
    with Roots([RootSpec(str(tmp_path)), RootSpec(f"{tmp_path}/a-root", writable=False)], deny=DenyRules(())) as roots:
        whole, entries = without_read_only_roots([(str(tmp_path), RUN | CHANGE)], roots)
    assert whole == (str(tmp_path), RUN)
    assert isinstance(entries, EntryGrants)
    assert len(entries.names) == MAX_ENTRIES - 1
    assert "a-root" not in entries.names
