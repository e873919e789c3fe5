"""Settings of editors and agents, and commands: what they can't change, and what their results name (confinement-6)."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer

FILES = (
    ".vscode/tasks.json",
    ".mcp.json",
    ".github/hooks/run.json",
    "all.code-workspace",
    "project/.vscode/tasks.json",
    "project/.mcp.json",
    "own/zed/tasks.json",
)
"""Existing settings: at the top of the root, of a repository in it, and where a link leads."""

IN_LINKED_TREE = "tree/.claude/settings.json"

ATTACKS = """
for f in {files}; do
    echo evil > $f; echo evil >> $f; cp /etc/hostname $f; ln -sfn /etc/hostname $f; mv $f $f.old; rm -f $f
    d=$(dirname $f); if [ $d != . -a $d != project ]; then
        echo evil > $d/new.json; mv $d $d.old; rm -rf $d; ln -sfn /tmp $d
    fi
done
mv .github old; mv own old; rm -rf .github own; mkdir -p .github/hooks own/zed
for f in {files}; do mkdir -p $(dirname $f); echo evil > $f; done
rm -f .zed; mv .zed .old; ln -sfn /tmp .zed; mkdir .zed; echo evil > .zed/tasks.json
true
"""


class World:
    """A root with settings, and a server for it."""

    def __init__(self, root: Path, client: Peer, tier: str) -> None:
        self.root, self.client, self.tier = root, client, tier

    def run(self, text: str) -> tuple[str, set[str]]:
        """Run shell text as a command; return what it shows, and the paths that it names, relative to the root."""
        result = self.client.call("run_command", command=shlex.join(["sh", "-c", text]))
        made = result["_meta"]["coretools/facts"].get("made", [])
        return result["content"][0]["text"], {os.path.relpath(path, self.root) for path in made}

    def state(self, *names: str) -> dict[str, str]:
        return {name: (self.root / name).read_text() for name in names or FILES}


def git(directory: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=directory, check=True)


@pytest.fixture(params=["full", "landlock"])
def tier(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def world(tier: str, tmp_path: Path) -> Iterator[World]:
    yield from opened(tier, tmp_path)


def opened(tier: str, root: Path, *flags: str) -> Iterator[World]:
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    (root / ".zed").symlink_to("own/zed")
    git(root / "project", "init", "-q", "-b", "main", ".")
    git(root / "project", "commit", "-q", "--allow-empty", "-m", "first")
    git(root / "project", "worktree", "add", "-q", "-b", "other", "../tree")
    (root / IN_LINKED_TREE).parent.mkdir()
    (root / IN_LINKED_TREE).write_text("{}")
    with peer(root, *flags, before=under_profile() if tier == "landlock" else ()) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {tier}" not in diagnostics:
            pytest.skip(f"tier {tier} is not available here")
        yield World(root, client, tier)


def test_a_command_can_not_change_existing_settings(world: World) -> None:
    """confinement-6, editor-settings-6: not replaced, moved, deleted or extended in tier full; in tier landlock the
    result names them."""
    before = world.state()
    made = world.run(ATTACKS.format(files=" ".join(FILES)))[1]
    if world.tier == "full":
        assert world.state() == before
        assert (world.root / ".zed").readlink() == Path("own/zed")
        assert made == set()
    else:
        settings = (".vscode", ".mcp.json", ".github/hooks", "all.code-workspace", ".zed")
        assert made >= {*settings, "project/.vscode", "project/.mcp.json"}


def test_a_change_of_one_file_is_named(world: World) -> None:
    """confinement-37, editor-settings-6: in tier landlock, and in a linked work tree, which is removable, in both."""
    expected = {IN_LINKED_TREE} if world.tier == "full" else {".vscode/tasks.json", IN_LINKED_TREE}
    text, made = world.run(f"echo x > .vscode/tasks.json; echo x > {IN_LINKED_TREE}")
    assert made == expected
    assert ("--allow-editor-settings" in text) == (world.tier == "full")
    world.run("git -C project worktree remove --force ../tree")
    assert not (world.root / "tree").exists()


def test_new_settings_are_fixed_for_the_next_command(world: World) -> None:
    """confinement-6: of a repository that a command created, too."""
    assert world.run("git init -q new; mkdir new/.roo; echo x > new/.roo/mcp.json")[1] == {"new/.git", "new/.roo"}
    world.run("echo y > new/.roo/mcp.json")
    assert world.state("new/.roo/mcp.json") == {"new/.roo/mcp.json": "x\n" if world.tier == "full" else "y\n"}


def test_the_operator_can_allow_changes(tmp_path: Path) -> None:
    """editor-settings-7: to commands by the same setting as to tools; the result names what was changed."""
    for world in opened("full", tmp_path, "--allow-editor-settings"):
        made = world.run(f"for f in {' '.join(FILES)}; do echo y > $f; done")[1]
        assert world.state() == dict.fromkeys(FILES, "y\n")
        assert made == set(FILES) - {"own/zed/tasks.json"}
