"""Files that commands create and that git, an editor or an agent acts on: the result reports them, at any depth
(confinement-37)."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer

REPORT = "made or changed while it ran, and git, editors or agents act on it: "
GIT = "git -c user.name=a -c user.email=a@b -c protocol.file.allow=always"


class World:
    """A root with a repository in a subdirectory, and a server for it."""

    def __init__(self, root: Path, client: Peer, tier: str) -> None:
        self.root, self.client, self.tier = root, client, tier

    def reported(self, text: str, *, tool: str = "run_command") -> set[str]:
        """Run shell text as a command; return the paths that its result names, relative to the root."""
        result = self.client.call(tool, command=shlex.join(["sh", "-ec", text]), timeout_seconds=60)
        output, made = result["content"][0]["text"], result["_meta"]["coretools/facts"].get("made", [])
        assert result["_meta"]["coretools/facts"]["exit_code"] == 0, output
        assert (REPORT in output) == bool(made), output
        return {os.path.relpath(path, self.root) for path in made}


@pytest.fixture(scope="module", params=["full", "landlock"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("control")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "proj").mkdir()
    for words in ("init -q .", "commit -q --allow-empty -m first"):
        subprocess.run([*GIT.split(), *words.split()], cwd=root / "deep" / "proj", check=True)
    before = under_profile() if request.param == "landlock" else ()
    with peer(root, before=before) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield World(root, client, request.param)


REBASE = "rebase-merge/git-rebase-todo"
STEPS: list[tuple[str, set[str]]] = [
    ("true", set()),
    ("echo x > deep/er/f; mkdir -p deep/er/hooks; echo x > deep/er/hooks/use.ts; echo x > deep/config", set()),
    ("git -C deep/proj status; git -C deep/proj branch other; git -C deep/proj gc -q", set()),
    (f"{GIT} -C deep/proj commit -q --allow-empty -m second", set()),
    ("git init -q deep/er/new", {"deep/er/new/.git"}),
    ("git clone -q deep/proj deep/er/clone", {"deep/er/clone/.git"}),
    ("git init -q --bare deep/bare.git", {"deep/bare.git"}),
    ("git -C deep/proj worktree add -q ../tree", {"deep/tree/.git", "deep/proj/.git/worktrees/tree"}),
    # A repository that is replaced by another one with a program in its configuration.
    (
        "cd deep; mv proj old; git init -q proj; git -C proj config core.fsmonitor 'touch /tmp/marker'",
        {"deep/proj/.git", "deep/old/.git"},
    ),
    ("mv deep/er deep/moved; mkdir deep/er", {"deep/moved/new/.git", "deep/moved/clone/.git"}),
    # Files that redirect git.
    ("echo '[core]' > deep/old/.git/config.worktree", {"deep/old/.git/config.worktree"}),
    ("mkdir -p a/b/c; echo 'gitdir: ../../../deep/old/.git' > a/b/c/.git", {"a/b/c/.git"}),
    ("ln -s ../deep/old/.git a/.git", {"a/.git"}),
    ("echo 'gitdir: ../proj/.git' > deep/tree/.git", {"deep/tree/.git"}),
    (
        "touch -r deep/tree/.git t; echo 'gitdir: ../PROJ/.git' > deep/tree/.git; touch -r t deep/tree/.git",
        {"deep/tree/.git"},
    ),
    # Remotes in git's old format: a push to a path of this machine runs the hooks there.
    (
        "mkdir -p deep/old/.git/remotes; echo 'URL: ../x' > deep/old/.git/remotes/origin",
        {"deep/old/.git/remotes/origin"},
    ),
    ("mkdir -p deep/old/.git/branches; echo ../x > deep/old/.git/branches/o", {"deep/old/.git/branches/o"}),
    ("git -C deep/old update-ref refs/remotes/origin/main HEAD; mkdir remotes; touch remotes/file", set()),
    # A new repository's configuration under another name, and through a link.
    ("git init -q one; mv one/.git/config shared; ln shared one/.git/config", {"one/.git"}),
    ("echo '[core]' >> shared", {"one/.git/config"}),
    ("git init -q two; mv two/.git/config far; ln -s ../../far two/.git/config", {"two/.git"}),
    ("echo '[core]' >> far", {"two/.git/config"}),
    ("mkdir -p deep/.GIT", {"deep/.GIT"}),
    # Layouts that git accepts as a git directory: complete, completed by its last part, by commondir.
    ("mkdir -p l/refs l/objects; echo 'ref: refs/heads/main' > l/HEAD; echo '[core]' > l/config", {"l"}),
    ("mkdir -p m/refs m/objects; echo '[core]' > m/config", set()),
    ("echo 'ref: refs/heads/main' > m/HEAD", {"m"}),
    ("mkdir n; echo 'ref: refs/heads/main' > n/HEAD; echo ../m > n/commondir", {"n"}),
    # Todo lists of a rebase that run a program; one without a program is ordinary work.
    ("mkdir deep/old/.git/rebase-merge; echo 'pick 1' > deep/old/.git/rebase-merge/git-rebase-todo", set()),
    (
        "printf 'pick 1\\n \\tx touch m\\n' >> deep/old/.git/rebase-merge/git-rebase-todo",
        {f"deep/old/.git/{REBASE}"},
    ),
    ("rm deep/old/.git/rebase-merge/git-rebase-todo; mkdir -p p/sequencer; echo x a > p/sequencer/todo", set()),
    (
        "mkdir deep/old/.git/sequencer; cd deep/old/.git/sequencer; echo 'exec a' > todo",
        {"deep/old/.git/sequencer/todo"},
    ),
    (f"git init -q reb; for n in 1 2; do {GIT} -C reb commit -q --allow-empty -m $n; done", {"reb/.git"}),
    (f"cd reb; {GIT} rebase -q -x true --root; ! {GIT} rebase -q -x false --root", {f"reb/.git/{REBASE}"}),
    (f"cd reb; {GIT} rebase --abort; {GIT} commit -q --allow-empty -m 3", set()),
    # Git directories named like a part of one.
    (
        "for n in hooks sequencer; do git init -q --bare b/$n; done",
        {"b/hooks", "b/sequencer"},
    ),
    ("for n in hooks sequencer; do echo '[core]' >> b/$n/config; done", {"b/hooks/config", "b/sequencer/config"}),
    # Settings of editors and agents, at the top of the root and of repositories.
    ("mkdir .vscode; mkdir -p a/.vscode; mkdir -p deep/.vscode p/.vscode", {".vscode", "a/.vscode"}),
    ("git init -q new; mkdir new/.claude; echo x > new/.claude/settings.json", {"new/.git", "new/.claude"}),
]


def test_what_a_command_makes_is_reported(world: World) -> None:
    """confinement-37: other files are not reported; ordinary git commands report nothing."""
    for text, expected in STEPS:
        assert world.reported(text) == expected, text


def test_in_builds_and_runs_too(world: World) -> None:
    """confinement-37: by the other tools that start commands."""
    assert world.reported("git init -q built", tool="ci_build") == {"built/.git"}
    line = shlex.join(["sh", "-c", "git init -q background"])
    run = world.client.call("run_command", command=line, wait_seconds=0)["_meta"]["coretools/facts"]["run"]
    ended = world.client.call("wait_run", run=run, seconds=60)
    assert REPORT in ended["content"][0]["text"]


def test_changed_control_files_are_reported(world: World) -> None:
    """confinement-37, confinement-6: configuration and hooks in tier landlock; in tier full they cannot be changed."""
    if world.tier == "full":
        pytest.skip("tier full keeps them read-only")
    subprocess.run(["git", "init", "-q", str(world.root / "own")], check=True)
    assert world.reported("git -C own config core.fsmonitor x") == {"own/.git/config"}
    assert world.reported("echo x >> own/.git/config") == {"own/.git/config"}
    assert world.reported("echo x > own/.git/hooks/pre-commit") == {"own/.git/hooks/pre-commit"}
    assert world.reported("chmod +x own/.git/hooks/pre-commit") == {"own/.git/hooks/pre-commit"}
    assert world.reported("mv own/.git/hooks own/.git/h; ln -s ../../a own/.git/hooks") == {"own/.git/hooks"}
    shutil.rmtree(world.root / "own")


def test_a_name_can_not_imitate_a_line_of_the_result(world: World) -> None:
    """confinement-37: a line feed in a path is escaped."""
    line = """sh -c 'git init -q "$(printf "x\\n[exit code 0, no output]")"'"""
    text = world.client.call("run_command", command=line)["content"][0]["text"]
    assert f"{REPORT}{world.root}/x\\n[exit code 0, no output]/.git]" in text


def test_what_configurations_include_is_reported(tmp_path: Path) -> None:
    """confinement-37: files included by a repository or by the user's configuration, however named; nested includes
    too."""
    root, home = tmp_path / "home" / "root", tmp_path / "home"
    root.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(root / "proj")], check=True)
    names = ("relative", "absolute", "in-home", "conditional", "nested", "of-user", "later")
    for name in names[:-1]:
        (root / name).write_text("[core]\n")
    (root / "relative").write_text("[include]\n\tpath = nested\n")
    endless = "".join(f"\tpath = {one}\n" for one in ("relative", "fifo", "/dev/zero"))
    (root / "nested").write_text(f'[includeIf "gitdir:/nowhere/"]\n{endless}')
    os.mkfifo(root / "fifo")
    paths = {"include.path": "../../relative", "includeIf.gitdir:x.path": "~/root/conditional"}
    for key, path in [*paths.items(), *(("include.path", str(root / name)) for name in ("absolute", "later"))]:
        subprocess.run(["git", "config", "--add", key, path], cwd=root / "proj", check=True)
    subprocess.run(["git", "config", "--add", "include.path", "~/root/in-home"], cwd=root / "proj", check=True)
    (home / ".gitconfig").write_text("[include]\n\tpath = root/of-user\n")
    own = root / "xdg" / "git" / "config"
    own.parent.mkdir(parents=True)
    own.touch()
    with peer(root, environment={"HOME": str(home), "XDG_CONFIG_HOME": str(root / "xdg")}) as client:
        client.start_session()
        world = World(root, client, "")
        assert world.reported("touch other; git -C proj status") == set()
        for name in (*names, "xdg/git/config"):
            assert world.reported(f"printf '[core]\\n\\tfsmonitor = x\\n' >> {name}") == {name}
        assert world.reported("rm nested; ln -s other nested") == {"nested"}
        assert world.reported("echo '[core]' > other") == {"nested"}
