"""Links and redirects that a command leaves in git directories, for the user's own git to follow (confinement-53)."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.process.fork_server.redirect_guard import MAX_NAMED
from tests.docker_profile import under_profile
from tests.protocol.peer import peer, wait_until_none
from tests.tools.git.test_linked_roots import Session, Trees, plant
from tests.tools.git.world import HOME_CONFIG

CANARY = "of the user\n"
COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m")


class World(Trees):
    """`own` is a root, `feature` a linked work tree of `main` and a root, `mono/api` a folder and a root."""

    @property
    def canary(self) -> Path:
        return self.top / "canary"

    @property
    def marker(self) -> Path:
        return self.top / "marker"

    def repositories(self, tier: str) -> list[Path]:
        """Work trees of the user whose git directory commands can write to."""
        own = self.top / "own"
        return [own] if tier == "landlock" else [own, self.main, self.top / "mono"]


def fresh(world: World) -> None:
    world.canary.write_text(CANARY)
    world.marker.unlink(missing_ok=True)


@pytest.fixture(scope="module", params=["full", "landlock"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    trees = World(plant(tmp_path_factory.mktemp("redirects")).top)
    (trees.top / "home" / ".gitconfig").write_text(HOME_CONFIG)
    for name in ("own", "mono"):
        (trees.top / name / "api").mkdir(parents=True)
        trees.git(trees.top / name, "init", "-q", "-b", "main")
        trees.git(trees.top / name, *COMMIT, "first")
        trees.git(trees.top / name, *COMMIT, "second")
        trees.git(trees.top / name, "branch", "topic", "HEAD~1")
    trees.git(trees.top / "own", "init", "-q", "calm")
    trees.git(trees.top / "own" / "calm", *COMMIT, "first")
    # What the user has made is left alone.
    (trees.top / "own" / ".git" / "of-the-user").symlink_to("nowhere")
    words = (trees.root, trees.top / "mono" / "api", "--git-above", "--profile", "all")
    before = under_profile() if request.param == "landlock" else ()
    environment = {"HOME": str(trees.top / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    with peer(trees.top / "own", *words, before=before, environment=environment) as client:
        client.start_session()
        found = Session(trees, client, request.param)
        if f"commands are confined in tier: {request.param}" not in found.text("get_diagnostics"):
            pytest.skip(f"tier {request.param} is not available here")
        yield found


def use(world: World, tree: Path) -> None:
    """What a person does with plain git."""
    path = {"HOME": str(world.top / "home"), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (
        ("status", "--short"),
        (*COMMIT, "of the user"),
        ("tag", "-f", "-a", "-m", "x", "t"),
        ("fetch", "-q", ".", "topic"),
        ("branch", "-f", "topic", "HEAD"),
        ("notes", "add", "-f", "-m", "x"),
        ("stash", "list"),
        ("pack-refs", "--all"),
        ("gc", "-q"),
        ("commit-graph", "write", "--reachable"),
    ):
        subprocess.run(["git", "-C", str(tree), *words], env=path, check=False, capture_output=True, timeout=60)


NAMES = (
    *("COMMIT_EDITMSG", "FETCH_HEAD", "SQUASH_MSG", "TAG_EDITMSG", "NOTES_EDITMSG", "EDIT_DESCRIPTION", "gc.pid"),
    *("logs/HEAD", "logs/refs/heads/main", "logs/refs/heads/topic", "objects/info/commit-graph", "info/new", "any"),
    *("rebase-merge/message", "sequencer/todo", "worktrees/new/COMMIT_EDITMSG", "modules/a/b/COMMIT_EDITMSG"),
)


def test_links_are_removed(session: Session) -> None:
    """confinement-53: git of the user writes through none, and the result names each; links of before stay."""
    world = session.trees
    assert isinstance(world, World)
    fresh(world)
    for tree in world.repositories(session.tier):
        planted = [name for name in NAMES if (tree, name) != (world.main, "logs/HEAD")]  # read-only: confinement-51
        line = (
            f"cd {tree}/.git; for n in {' '.join(planted)}; do mkdir -p $(dirname $n); ln -sfn {world.canary} $n; done"
        )
        text = session.run(f"sh -c '{line}'")
        assert text.count(f" (a link to {world.canary})") == MAX_NAMED
        assert f" and {len(planted) - MAX_NAMED} more" in text
        assert not any((tree / ".git" / name).is_symlink() for name in NAMES)
        use(world, tree)
        assert world.canary.read_text() == CANARY, tree
    assert (world.top / "own" / ".git" / "of-the-user").is_symlink()


def test_links_to_the_configuration_and_as_directories_are_removed(session: Session) -> None:
    """confinement-53: text of the agent does not get into the configuration, nor a reflog into another directory."""
    world = session.trees
    assert isinstance(world, World)
    fresh(world)
    (world.top / "away").mkdir()
    for tree in world.repositories(session.tier):
        before = (tree / ".git" / "config").read_text()
        session.run(f"sh -c 'cd {tree}/.git && ln -sf config COMMIT_EDITMSG && ln -sf config TAG_EDITMSG'")
        text = session.run(f"sh -c 'cd {tree}/.git && mv logs $TMPDIR/$$ && ln -s {world.top}/away logs'")
        assert ("cannot remove" if tree == world.main else "removed from git directories") in text
        use(world, tree)
        assert (tree / ".git" / "config").read_text() == before
        assert not any((world.top / "away").iterdir())


def test_directories_that_are_closed_to_the_server_are_searched(session: Session) -> None:
    """confinement-53: git opens files by name where nobody can list or remove them."""
    world = session.trees
    assert isinstance(world, World)
    fresh(world)
    for tree in world.repositories(session.tier):
        logs = f"{tree}/.git/logs"
        session.run(f"sh -c 'mkdir -p {logs}; ln -sf {world.canary} {logs}/HEAD; chmod 111 {logs}'")
        assert not (tree / ".git" / "logs" / "HEAD").is_symlink()
        use(world, tree)
        assert world.canary.read_text() == CANARY
        Path(logs).chmod(0o755)


def test_a_repository_that_is_moved_meanwhile_is_the_same(session: Session) -> None:
    """confinement-53: a link planted while it was elsewhere is removed too."""
    own = session.trees.top / "own"
    session.trees.git(own, "init", "-q", "moving")
    (own / "moving" / ".git" / "kept").symlink_to("nowhere")
    session.run("true")
    session.run(f"sh -c 'cd {own}; mv moving away; ln -s nowhere away/.git/TAG_EDITMSG'")
    session.run(f"sh -c 'cd {own}; mv away moving'")
    assert (own / "moving" / ".git" / "kept").is_symlink()
    assert not (own / "moving" / ".git" / "TAG_EDITMSG").is_symlink()


def test_redirecting_files_are_undone(session: Session) -> None:
    """confinement-53: a common directory, and a configuration of one work tree that starts a program."""
    world = session.trees
    assert isinstance(world, World)
    for tree in world.repositories(session.tier):
        fresh(world)
        roots = {world.main: world.root, world.top / "mono": world.top / "mono" / "api"}
        evil = roots.get(tree, tree) / "evil"
        monitor = f"touch {world.marker}"
        session.run(f"""sh -c 'git init -q {evil}; git -C {evil} config core.fsmonitor "{monitor}"'""")
        text = session.run(f"sh -c 'echo {evil}/.git > {tree}/.git/commondir'")
        assert "removed from git directories" in text
        assert "commondir" in text
        use(world, tree)
        assert not world.marker.exists(), tree
        text = session.run(f"""sh -c 'git config -f {tree}/.git/config.worktree core.fsmonitor "{monitor}"'""")
        assert "they are comments there now" in text
        world.git(tree, "sparse-checkout", "init", "--no-cone")
        use(world, tree)
        assert not world.marker.exists(), tree


def test_what_a_cancelled_command_left_is_undone(session: Session) -> None:
    """confinement-53: also what a run leaves that is stopped, while other commands start and end."""
    world = session.trees
    assert isinstance(world, World)
    fresh(world)
    tree = world.top / "own"
    link = tree / ".git" / "COMMIT_EDITMSG"
    line = f"cd {tree}/.git; while :; do ln -sf {world.canary} COMMIT_EDITMSG; sleep 0.01; done"
    run = session.client.call("run_command", command=f"sh -c '{line}'", wait_seconds=0)["_meta"]["coretools/facts"]
    for _ in range(3):
        session.run("true")
    session.client.call("stop_run", run=run["run"])
    wait_until_none(line)
    session.run("true")
    assert not link.is_symlink()
    use(world, tree)
    assert world.canary.read_text() == CANARY


def test_ordinary_work_is_left_alone(session: Session) -> None:
    """confinement-53: git in commands makes no such link, and links beside git's own files stay."""
    world = session.trees
    assert isinstance(world, World)
    tree = world.top / "own" / "calm"
    git = "git -c user.name=a -c user.email=a@b"
    text = session.run(
        f"sh -ec 'cd {tree}; echo x > f; git add f; {git} commit -qm f; echo y > f; {git} stash -q; {git} stash pop -q;"
        f" {git} commit -qam g; {git} rebase -q --force-rebase HEAD~1; git worktree add -q inner; git gc -q;"
        f" git worktree remove inner; mkdir -p .git/tmp/subrepo; ln -s x .git/tmp/subrepo/link; ln -s f link'"
    )
    assert "removed from git directories" not in text
    assert (tree / ".git" / "tmp" / "subrepo" / "link").is_symlink()
    assert (tree / "link").is_symlink()
