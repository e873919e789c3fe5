"""What is closed to commands is closed to commands on trial, and to what is kept of them (docs/specs/trials.md)."""

import os
import signal
import stat
import subprocess
from pathlib import Path

from tests.process.test_sandbox_pool import needs_namespaces
from tests.process.trials.world import TRIAL, tree, world_in
from tests.protocol.peer import peer

pytestmark = needs_namespaces

SECRET = "API_TOKEN=c4n4ry-0f-a-secret-value\n"


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@host.example")
    return subprocess.run(
        ["git", *identity, *words],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": "/"},
    ).stdout


def repository(root: Path) -> None:
    root.mkdir(exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    (root / "a.txt").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")


async def test_hidden_files_and_fixed_settings_are_as_closed_as_outside(tmp_path: Path) -> None:
    """trial-10: whatever the command tries; what it could not change is not changed by keeping it either."""
    root = tmp_path / "root"
    repository(root)
    (root / ".env").write_text(SECRET)
    (root / ".vscode").mkdir()
    (root / ".vscode" / "settings.json").write_text("{}")
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    attempt = (
        "cat .env; cp .env copy; cp -a .env copy2; ln .env link; mv .env moved; rm -f .env; rm -rf .vscode;"
        " echo x > .vscode/settings.json; echo x > .git/hooks/pre-commit; mv .git other; rm -rf .git/hooks;"
        " printf '[core]\\n\\tfsmonitor = /tmp/evil\\n' >> .git/config; echo done"
    )
    async with world_in(tmp_path) as world:
        before = tree(root)
        answer = await world.on_trial(attempt)
        assert "canary" not in answer
        assert "c4n4ry" not in answer
        trial = TRIAL.search(answer)
        assert trial is not None
        kept = await world.keep(trial[0])
        after = tree(root, times=False)
        for path in (".env", ".vscode/settings.json", ".git/config"):
            assert after[path][:3] == before[path][:3], kept
        assert not (hooks / "pre-commit").exists()
        assert "fsmonitor" not in (root / ".git" / "config").read_text()
        assert not any("c4n4ry" in path.read_text(errors="replace") for path in root.glob("copy*"))


async def test_git_works_on_trial_and_its_configuration_is_carried_over_when_kept(tmp_path: Path) -> None:
    """trial-3, trial-10: a commit, a branch, and settings that start no program; discarded, nothing of it is left."""
    root = tmp_path / "root"
    repository(root)
    work = (
        "git checkout -q -b topic; echo two >> a.txt;"
        " git -c user.name=A -c user.email=a@host.example commit -qam second;"
        " git config branch.topic.description words; git config core.fsmonitor /tmp/evil; git status --short"
    )
    async with world_in(tmp_path) as world:
        before = tree(root)
        answer = await world.on_trial(work)
        assert "git's configuration" in answer
        trial = TRIAL.search(answer)
        assert trial is not None
        await world.discard(trial[0])
        assert tree(root) == before
        assert git(root, "branch", "--show-current") == "main\n"
        await world.run("true")
        assert "description" not in (root / ".git" / "config").read_text()
        kept = await world.keep(await world.tried(work))
        assert "core.fsmonitor" in kept  # named, and not carried over
        assert git(root, "log", "-1", "--format=%s", "topic") == "second\n"
        assert git(root, "config", "branch.topic.description") == "words\n"
        assert git(root, "status", "--porcelain") == ""
        assert "fsmonitor" not in (root / ".git" / "config").read_text()
        git(root, "fsck", "--strict")


async def test_links_in_git_directories_are_undone_when_kept(tmp_path: Path) -> None:
    """trial-10: as after a command (confinement-53)."""
    root, victim = tmp_path / "root", tmp_path / "victim"
    repository(root)
    victim.write_text("mine\n")
    async with world_in(tmp_path) as world:
        kept = await world.keep(await world.tried(f"rm -f .git/COMMIT_EDITMSG; ln -s {victim} .git/COMMIT_EDITMSG"))
        assert "COMMIT_EDITMSG" in kept
        assert not (root / ".git" / "COMMIT_EDITMSG").is_symlink()


async def test_new_repositories_and_settings_are_named_when_kept(tmp_path: Path) -> None:
    """trial-10: as after a command (confinement-37)."""
    async with world_in(tmp_path) as world:
        kept = await world.keep(await world.tried("git init -q sub; mkdir .vscode; echo '{}' > .vscode/tasks.json"))
        assert "git, editors or agents act on it" in kept
        assert "sub" in kept
        assert ".vscode" in kept


async def test_keeping_follows_no_link_out_of_the_root(tmp_path: Path) -> None:
    """trial-11: neither one of the trial nor one that has replaced a directory since."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "d").mkdir(parents=True)
    (root / "d" / "old").write_text("old")
    outside.mkdir()
    (outside / "old").write_text("mine")
    async with world_in(tmp_path) as world:
        first = await world.tried("echo x > d/new; rm d/old")
        (root / "d").rename(root / "e")
        (root / "d").symlink_to(outside)
        assert "nothing was kept" in await world.keep(first)
        assert sorted(os.listdir(outside)) == ["old"]
        (root / "d").unlink()
        (root / "e").rename(root / "d")
        second = await world.tried(f"mv d e; ln -s {outside} d; echo x > e/in; echo y > d/out; true")
        assert "kept" in await world.keep(second)
        assert os.readlink(root / "d") == str(outside)
        assert (outside / "old").read_text() == "mine"
        assert sorted(os.listdir(outside)) == ["old"]


async def test_special_permissions_and_attributes_are_not_kept(tmp_path: Path) -> None:
    """trial-11: set-user-ID and set-group-ID, and what an overlay would read as its own."""
    program = (
        "import os; os.mkdir('o'); os.setxattr('o', 'user.overlay.opaque', b'y'); open('w', 'w').close();"
        "os.setxattr('w', 'user.overlay.whiteout', b'y'); os.setxattr('w', 'user.mine', b'1')\n"
        "try: os.mknod('gone', 0o020000, 0)\nexcept OSError: print('refused')"
    )
    async with world_in(tmp_path) as world:
        answer = await world.on_trial(f'cp /bin/true s; chmod 6755 s; python3 -c "{program}"')
        assert "refused" in answer
        assert "added s (mode 6755) (set-user-ID and set-group-ID are not kept)" in answer
        trial = TRIAL.search(answer)
        assert trial is not None
        await world.keep(trial[0])
        assert stat.S_IMODE((world.root / "s").stat().st_mode) == 0o755
        assert os.listxattr(world.root / "o") == []
        assert os.listxattr(world.root / "w") == ["user.mine"]
        (world.root / "o" / "below").write_text("x")
        assert "below" in await world.on_trial("ls o")


async def test_the_layers_are_closed_to_the_command(tmp_path: Path) -> None:
    """trial-10: neither the state directory nor the root beneath the overlay can be found."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    async with world_in(tmp_path) as world:
        answer = await world.on_trial(
            f"ls {world.state} {tmp_path}; ls -l /proc/self/fd; echo two > a.txt; cat /proc/self/mountinfo > mounts;"
            " for p in /proc/[0-9]*/root/../..; do ls $p; done 2>/dev/null; find / -name upper -maxdepth 6 2>/dev/null"
        )
        assert str(world.state) not in "\n".join(
            line for line in answer.splitlines() if "No such file" not in line and "mounts" not in line
        )
        assert (root / "a.txt").read_text() == "one\n"


async def test_two_roots_and_a_nested_one_are_each_their_own(tmp_path: Path) -> None:
    """trial-3: changes in every root are listed and kept in it; a root in another is not deleted with it."""
    other = tmp_path / "other"
    inner = tmp_path / "root" / "sub" / "inner"
    inner.mkdir(parents=True)
    other.mkdir()
    (other / "o").write_text("o")
    async with world_in(tmp_path, str(other), str(inner)) as world:
        before = tree(world.root), tree(other)
        trial = await world.tried(f"echo 1 > a; echo 2 > {other}/b; echo 3 > {inner}/c; rm {other}/o; rm -rf sub")
        assert (tree(world.root), tree(other)) == before
        assert "kept" in await world.keep(trial)
        assert (world.root / "a").read_text() == "1\n"
        assert sorted(os.listdir(other)) == ["b"]
        assert inner.is_dir()


async def test_a_linked_work_tree_commits_on_trial(tmp_path: Path) -> None:
    """trial-3, trial-10: the repository outside the roots is overlaid and kept too."""
    main, root = tmp_path / "main", tmp_path / "root"
    repository(main)
    git(main, "worktree", "add", "-q", "-b", "topic", str(root))
    commit = (
        "echo two >> a.txt; git -c user.name=A -c user.email=a@host.example commit -qam second; git log --format=%s"
    )
    async with world_in(tmp_path) as world:
        before = tree(main), tree(root)
        first = await world.on_trial(commit)
        assert "second" in first
        assert (tree(main), tree(root)) == before
        trial = TRIAL.search(first)
        assert trial is not None
        assert "kept" in await world.keep(trial[0])
        assert git(main, "log", "-1", "--format=%s", "topic") == "second\n"
        assert git(root, "status", "--porcelain") == ""
        git(main, "fsck", "--strict")


def test_nothing_is_left_by_a_server_that_is_killed(tmp_path: Path) -> None:
    """trial-4, trial-7: what a killed server left is removed by the next trial; an ended one leaves nothing."""
    root, home = tmp_path / "root", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    trials = home / ".local" / "state" / "coretools" / "trials"
    environment = {"HOME": str(home), "XDG_STATE_HOME": ""}
    line = "mkdir d; echo x > d/x; chmod 0 d; echo y > y"
    with peer(root, "--profile", "all", environment=environment) as client:
        client.start_session()
        assert "would add 3" in client.call("run_command", command=line, trial=True)["content"][0]["text"]
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
    (left,) = trials.iterdir()
    assert list(root.iterdir()) == []
    with peer(root, "--profile", "all", environment=environment) as client:
        client.start_session()
        assert "would add 3" in client.call("run_command", command=line, trial=True)["content"][0]["text"]
        assert not left.exists()
        assert len(list(trials.iterdir())) == 1
        assert client.end() == 0
    assert list(trials.iterdir()) == []
    assert list(root.iterdir()) == []
