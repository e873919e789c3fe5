"""Rename and hard link between directories in commands, with programs that need them.

In both tiers, tier `landlock` under the system call filter of a container. What must not move is tested in
`test_confinement_status`.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer

GIT = "git -c user.name=a -c user.email=a@b"


class World:
    """A repository with two directories, a read-only root, and a server for both."""

    def __init__(self, folder: Path, client: Peer, tier: str) -> None:
        self.root, self.fixed = folder / "root", folder / "fixed"
        self.tier = tier
        self._client = client

    def sh(self, text: str) -> tuple[bool, str]:
        """Run shell text as a command in the first root; return whether it succeeded, and its output."""
        line = shlex.join(["sh", "-ec", text])
        result = self._client.call("run_command", command=line, directory=str(self.root), timeout_seconds=60)
        return result["_meta"]["coretools/facts"]["exit_code"] == 0, str(result["content"][0]["text"])


def plant(folder: Path) -> None:
    root = folder / "root"
    for path in (root / "a", root / "b", folder / "fixed" / "a", folder / "fixed" / "b"):
        path.mkdir(parents=True)
        (path / f"of-{path.name}").write_text(path.name)
    for words in ("init -q .", "add .", "commit -qm first", "clone -q --bare . bare.git", "worktree add -q tree"):
        subprocess.run([*GIT.split(), *words.split()], cwd=root, check=True, capture_output=True)


@pytest.fixture(params=["full", "landlock"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    plant(tmp_path)
    before = under_profile() if request.param == "landlock" else ()
    with peer(tmp_path / "root", f"{tmp_path / 'fixed'}:ro", before=before) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield World(tmp_path, client, request.param)


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def test_moving_and_linking_across_directories(world: World) -> None:
    """confinement-10: rename(2) and link(2) work between two directories of a root; nothing is copied."""
    inode = (world.root / "a" / "of-a").stat().st_ino
    for code, source, target in (
        (python("import os; os.rename('a/of-a', 'b/renamed')"), "a/of-a", "b/renamed"),
        ("mv b/renamed a/of-a", "b/renamed", "a/of-a"),
        (python("import os; os.replace('a', 'b/a')"), "a", "b/a"),
        ("mv -T b/a a", "b/a", "a"),
        ("mv a z-a; mkdir z; mv z-a z/; mv z/z-a a", "z/z-a", "a"),
    ):
        assert world.sh(code)[0], world.sh(code)
        assert not (world.root / source).exists()
        moved = world.root / target
        assert (moved / "of-a" if moved.is_dir() else moved).stat().st_ino == inode
    assert world.sh(python("import os; os.link('a/of-a', 'b/linked')") + "; ln a/of-a b/linked-too")[0]
    assert {(world.root / "b" / name).stat().st_ino for name in ("linked", "linked-too")} == {inode}


def test_git_moves_between_directories(world: World) -> None:
    """confinement-10: `git mv`, a push to a bare repository beneath the root, a moved worktree."""
    for text in (
        "git mv a/of-a b/moved && test -f b/moved",
        f"{GIT} commit -qm second && git push -q ./bare.git HEAD:refs/heads/pushed",
        'test "$(git -C bare.git rev-parse pushed)" = "$(git rev-parse HEAD)"',
        "mkdir trees && git worktree move tree trees/moved && git -C trees/moved status",
    ):
        is_ok, output = world.sh(text)
        assert is_ok, f"{text}: {output}"


def test_worktrees_are_added_and_removed(world: World) -> None:
    """confinement-6: their `.git` file can be removed, unlike that of a submodule."""
    for text in (
        "git worktree add -q ../root/trees/one",
        "git worktree add -q trees/two; touch trees/two/untracked",
        "git worktree remove trees/one && test ! -e trees/one",
        "git worktree remove --force trees/two && test ! -e trees/two",
        "git worktree remove tree && test $(git worktree list | wc -l) = 1",
        "rm -rf trees && test ! -e trees",
        f"{GIT} -c protocol.file.allow=always submodule --quiet add ./bare.git part; test -f part/.git",
    ):
        is_ok, output = world.sh(text)
        assert is_ok, f"{text}: {output}"
    before = (world.root / "part" / ".git").read_text()
    is_ok, output = world.sh("echo 'gitdir: ../a' > part/.git || rm part/.git || mv b/of-b part/.git")
    if world.tier == "full":
        assert not is_ok
        assert (world.root / "part" / ".git").read_text() == before


@pytest.mark.skipif(shutil.which("node") is None, reason="node")
def test_node_renames_across_directories(world: World) -> None:
    """confinement-10: `renameSync`, with which its package managers install."""
    code = "require('fs').renameSync('a/of-a', 'b/of-node')"
    is_ok, output = world.sh(shlex.join(["node", "-e", code]))
    assert is_ok, output
    assert sorted(os.listdir(world.root / "b")) == ["of-b", "of-node"]


def test_a_read_only_root_is_not_moved_in(world: World) -> None:
    """confinement-15: nothing moves in or out, and nothing is linked from or to it."""
    fixed = world.fixed
    for text in (
        f"mv {fixed}/a/of-a {fixed}/b/moved",
        f"mv {fixed}/a/of-a a/moved",
        f"mv a/of-a {fixed}/b/moved",
        f"ln {fixed}/a/of-a a/linked",
        f"ln a/of-a {fixed}/b/linked",
        f"mv {fixed}/a {fixed}/b/",
        python(f"import os; os.rename('{fixed}/a', '{fixed}/b/a')"),
        python(f"import os; os.link('{fixed}/a/of-a', 'b/linked')"),
    ):
        assert not world.sh(text)[0], text
    left = sorted(str(path.relative_to(fixed)) for path in fixed.rglob("*"))
    assert left == ["a", "a/of-a", "b", "b/of-b"]
    assert (world.root / "a" / "of-a").read_text() == "a"
    assert not (world.root / "b" / "linked").exists()
