"""A linked work tree as root: the whole of git in tools and commands, and nothing else of the repository around it.

The repository lies beside the root, with a token in its configuration, another linked work tree, and files of its own.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import pytest

from coretools.confinement import landlock
from coretools.roots import open_beneath
from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer
from tests.tools.git.world import HOME_CONFIG
from tests.tools.git_secrets import plant as plant_credentials

CANARY = "canary-of-the-main-work-tree"
TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"


@dataclass
class Trees:
    """A repository with two linked work trees."""

    top: Path
    start: str = ""
    """The commit of the linked tree as planted."""

    @property
    def main(self) -> Path:
        return self.top / "main"

    @property
    def root(self) -> Path:
        return self.top / "feature"

    @property
    def other(self) -> Path:
        return self.top / "other"

    def git(self, directory: Path, *words: str) -> str:
        environment = {"HOME": str(self.top / "home"), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", "-C", str(directory), *words], capture_output=True, text=True, check=True, env=environment
        )
        return done.stdout.strip()

    def server(self, *words: str | Path, tier: str = "full", root: Path | None = None) -> AbstractContextManager[Peer]:
        before = under_profile() if tier == "landlock" else ()
        environment = {"HOME": str(self.top / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
        return peer(root or self.root, *words, "--profile", "all", before=before, environment=environment)


def plant(top: Path) -> Trees:
    trees = Trees(top)
    for directory in (top / "home", trees.main):
        directory.mkdir()
    (top / "home" / ".gitconfig").write_text(HOME_CONFIG)
    trees.git(trees.main, "init", "--quiet", "-b", "main")
    (trees.main / "a.txt").write_text("one\n")
    trees.git(trees.main, "add", ".")
    trees.git(trees.main, "commit", "--quiet", "-m", "first")
    (trees.main / "untracked.txt").write_text(CANARY)
    trees.git(trees.main, "worktree", "add", "--quiet", "-b", "feature", "../feature")
    trees.git(trees.main, "worktree", "add", "--quiet", "-b", "other", "../other")
    (trees.other / "untracked.txt").write_text(CANARY)
    trees.git(trees.main, "pack-refs", "--all")
    trees.git(top, "clone", "--quiet", "main", "library")
    trees.git(trees.root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../library", "sub")
    trees.git(trees.root, "commit", "--quiet", "-m", "sub")
    trees.start = trees.git(trees.root, "rev-parse", "HEAD")
    return trees


@dataclass
class Session:
    trees: Trees
    client: Peer
    tier: str

    def answer(self, tool: str, **arguments: object) -> tuple[bool, str]:
        result = self.client.call(tool, **arguments)
        text = "\n".join(part.get("text", "") for part in result["content"])
        return not result.get("isError"), text

    def text(self, tool: str, **arguments: object) -> str:
        is_done, text = self.answer(tool, **arguments)
        assert is_done, f"{tool}: {text}"
        return text

    def run(self, line: str | list[str]) -> str:
        return self.text("run_command", command=line)


@pytest.fixture
def session(served: Session) -> Session:
    """The session, with the work tree and its branch as they were planted."""
    trees = served.trees
    trees.git(trees.root, "switch", "--quiet", "--force", "feature")
    trees.git(trees.root, "reset", "--quiet", "--hard", trees.start)
    trees.git(trees.root, "clean", "--quiet", "-dff")
    trees.git(trees.main, "reset", "--quiet", "--hard", f"{trees.start}~1")
    trees.git(trees.root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--force")
    return served


@pytest.fixture(scope="module", params=["full", "landlock"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    trees = plant(tmp_path_factory.mktemp("trees"))
    with trees.server(tier=request.param) as client:
        client.start_session()
        found = Session(trees, client, request.param)
        diagnostics = found.text("get_diagnostics")
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        assert f"{trees.main}/.git (read and write, for git only" in diagnostics
        yield found


def test_an_operation_that_has_ended_leaves_no_state(session: Session) -> None:
    """git-51: an empty cherry-pick is aborted; nothing of it is left to the next commit."""
    trees = session.trees
    is_done, _ = session.answer("git_cherry_pick", revisions=["HEAD"])
    assert is_done
    assert "in progress" in session.text("git_status")
    session.text("git_continue", action="abort")
    assert "in progress" not in session.text("git_status")
    assert not (trees.main / ".git" / "worktrees" / "feature" / "CHERRY_PICK_HEAD").exists()


def test_tools_have_the_whole_of_git(session: Session) -> None:
    """git-51, git-changes-4, git-changes-21: what an agent does in a work tree, judged by plain git in the main one."""
    trees, root = session.trees, session.trees.root
    (root / "a.txt").write_text("one\ntwo\n")
    assert "M a.txt" in session.text("git_status")
    session.text("git_add", paths=["a.txt"])
    session.text("git_commit", message="second")
    assert "+two" in session.text("git_diff", base="HEAD~1")
    session.text("git_switch", branch="topic", create=True)
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    session.text("git_stash", action="push")
    session.text("git_stash", action="pop")
    assert trees.git(root, "for-each-ref", "refs/stash") == ""
    session.text("git_add", paths=["a.txt"])
    session.text("git_commit", message="third")
    session.text("git_switch", branch="feature")
    (root / "b.txt").write_text("b\n")
    session.text("git_add", paths=["b.txt"])
    session.text("git_commit", message="fourth")
    session.text("git_rebase", upstream="topic")
    session.text("git_bisect", action="start", bad="HEAD", good=["main"])
    session.text("git_bisect", action="good")
    session.text("git_bisect", action="reset")
    session.text("git_bisect", action="start", bad="HEAD", good=["main"])
    assert "first bad" in session.text("git_bisect_run", command="test ! -e b.txt")
    session.text("git_bisect", action="reset")
    assert "branch feature" in session.text("git_status")
    session.text("git_branch", action="upstream", name="feature", upstream="topic")
    assert trees.git(trees.main, "log", "--format=%s", "feature").split() == [
        "fourth",
        "third",
        "second",
        "sub",
        "first",
    ]
    assert trees.git(trees.main, "config", "branch.feature.merge") == "refs/heads/topic"
    session.text("git_branch", action="upstream", name="feature", upstream="")
    session.text("git_branch", action="rename", name="topic", new_name="later")
    session.text("git_branch", action="delete", name="later")
    for name, place in (("main", trees.main), ("other", trees.other)):
        is_done, text = session.answer("git_branch", action="rename", name=name, new_name="taken")
        assert not is_done
        assert "another work tree, [outside the roots]" in text
        assert trees.git(place, "symbolic-ref", "HEAD") == f"refs/heads/{name}"
    session.text("git_branch", action="rename", name="feature", new_name="mine")
    session.text("git_branch", action="rename", name="mine", new_name="feature")
    listed = session.text("git_worktree", action="list")
    assert listed.count("[outside the roots]") == 2
    session.text("git_worktree", action="add", path="inner", branch="inner")
    assert "clean" in session.text("git_status", repository="inner")
    assert str(root / "inner") in trees.git(trees.main, "worktree", "list")
    session.text("git_worktree", action="remove", path="inner")
    assert str(root / "inner") not in trees.git(trees.main, "worktree", "list")
    assert "fourth" in session.text("git_reflog")
    assert "commondir" in session.text("git_trust_report")
    (root / "sub" / "a.txt").write_text("changed\n")
    session.text("git_add", repository="sub", paths=["sub/a.txt"])
    session.text("git_commit", repository="sub", message="in the submodule")


def test_commands_have_git(session: Session) -> None:
    """confinement-51, confinement-42: in tier landlock commands read git, and a root of its own gives the rest."""
    trees = session.trees
    assert "feature" in session.run("git status")
    assert trees.git(trees.root, "log", "-1", "--format=%s") in session.run("git log --oneline")
    assert "first" in session.run("git -C sub log --oneline")
    if session.tier == "full":
        change(session)
        text = session.run("git config user.name Grace && git config core.editor x")
        assert (
            f"share, was changed (git config changes it back): user.name, before: not set ({trees.main}/.git/config)"
            in text
        )
        assert trees.git(trees.other, "config", "user.name") == "Grace"
        assert "share, was changed" not in session.run("git config user.name Grace; git -C sub config user.name Grace")
        assert "user.name, before: Grace (" in session.run("git config --unset user.name")
    else:
        head = trees.git(trees.root, "rev-parse", "HEAD")
        refused = session.run("echo command >> a.txt; git commit -qam command")
        assert "git_commit" in refused
        assert f"{trees.main}/.git as another root" in refused
        assert trees.git(trees.root, "rev-parse", "HEAD") == head
        with trees.server(trees.main / ".git", tier=session.tier) as client:
            client.start_session()
            change(Session(trees, client, session.tier))
    assert str(trees.other) in trees.git(trees.main, "worktree", "list")
    assert trees.git(trees.other, "status", "--short", "--untracked-files=no") == ""


def change(session: Session) -> None:
    """Do in commands what changes references, configuration and entries of work trees."""
    trees = session.trees
    session.run("echo command >> a.txt && git commit -qam command")
    session.run("git switch -qc by-command && echo more >> a.txt && git stash -q && git stash pop -q")
    session.run("git commit -qam more && git switch -q feature && git commit -q --allow-empty -m empty")
    session.run("git rebase -q by-command")
    assert trees.git(trees.main, "log", "-3", "--format=%s", "feature").split() == ["empty", "more", "command"]
    session.run("git branch -u by-command")
    assert trees.git(trees.main, "config", "branch.feature.merge") == "refs/heads/by-command"
    session.run("git branch --unset-upstream && git branch -D by-command")
    session.run("git worktree add -q by-command-too")
    assert "clean" in session.text("git_status", repository="by-command-too")
    session.run("git worktree remove by-command-too && git worktree prune")


def test_nothing_else_is_open(session: Session) -> None:
    """git-51, confinement-51: by effect. No file of another tree is read, no hook, key or entry of one is written."""
    trees = session.trees
    shared = trees.main / ".git"
    own = ("config", "worktrees/other/HEAD", "HEAD", "index", "logs/HEAD", "refs/heads/main")
    trees.git(trees.main, "commit", "--quiet", "--allow-empty", "-m", "of the user")  # what was covered is replaced
    trees.git(trees.main, "update-index", "--force-remove", "a.txt")
    before = {path: path.read_bytes() for path in (shared / name for name in own)}
    config = trees.git(trees.main, "config", "--list", "--local")
    for tool, arguments in (
        ("read_file", {"path": f"{shared}/config"}),
        ("list_directory", {"path": str(shared)}),
        ("search_text", {"pattern": ".", "path": str(shared)}),
        ("write_file", {"path": f"{shared}/hooks/pre-commit", "content": "x"}),
        ("git_status", {"repository": str(shared)}),
        ("git_worktree", {"action": "add", "path": f"{shared}/x", "branch": "x"}),
    ):
        is_done, text = session.answer(tool, **arguments)
        assert not is_done, tool
        assert "outside the roots" in text
    script = (
        f"cat {trees.main}/untracked.txt {trees.other}/untracked.txt {trees.main}/a.txt; ls {trees.main} {trees.other};"
        f" echo x > {shared}/hooks/pre-commit; ln -s /bin/true {shared}/hooks/post-commit; rm -rf {shared}/hooks;"
        f" mv {shared}/hooks {shared}/elsewhere;"
        f" mv {shared}/logs {shared}/logs2; mkdir {shared}/logs; echo forged > {shared}/logs/HEAD;"
        f" git config core.fsmonitor x; git config -f {shared}/config core.hooksPath /tmp;"
        f" for n in HEAD index commondir gitdir config.worktree new; do echo x > {shared}/worktrees/other/$n; done;"
        f" rm -rf {shared}/worktrees/other; mv {shared}/worktrees {shared}/w; git worktree prune;"
        f" cd {shared}; for n in HEAD index logs/HEAD; do echo x > $n; rm $n; echo x > n; mv n $n; done; rm -f n;"
        f" cd {trees.main}; git add -A; git commit -qam x; git checkout -qb x; git reset -q --hard other; git stash;"
        " git symbolic-ref HEAD refs/heads/x; true"
    )
    seen = session.run(f"sh -c '{script}'")
    assert CANARY not in seen
    assert not list((shared / "hooks").glob("p*commit"))
    assert {path: path.read_bytes() for path in before} == before
    if session.tier == "full":
        assert "commands don't change HEAD" in seen
    assert trees.git(trees.main, "config", "--list", "--local") == config
    assert trees.git(trees.other, "log", "-1", "--format=%s") == "first"
    trees.git(trees.main, "reset", "--quiet")


def test_a_pointer_of_an_agent_opens_no_other_repository(session: Session) -> None:
    """git-52: neither in a directory of the root nor, after a new start, at its top."""
    trees = session.trees
    foreign = trees.top / f"foreign-{session.tier}"
    trees.git(trees.main, "clone", "--quiet", "--no-hardlinks", str(trees.main), str(foreign))
    trees.git(foreign, "worktree", "add", "--quiet", "-b", "theirs", str(foreign.parent / f"theirs-{session.tier}"))
    entry = next((foreign / ".git" / "worktrees").iterdir())
    targets: tuple[Path, ...] = (trees.main / ".git/worktrees/other", trees.main / ".git", foreign / ".git", entry)
    module = trees.main / ".git/worktrees/feature/modules/sub"
    (trees.main / ".git/worktrees/other/modules").mkdir(exist_ok=True)
    shutil.copytree(module, trees.main / f".git/worktrees/other/modules/{session.tier}")
    targets += (trees.main / f".git/worktrees/other/modules/{session.tier}",)
    for number, target in enumerate(targets):
        planted = trees.root / f"planted{number}"
        planted.mkdir()
        (planted / ".git").write_text(f"gitdir: {target}\n")
        is_done, text = session.answer("git_log", repository=planted.name)
        assert not is_done
        assert "git is not run" in text
        session.run(f"cd {planted.name} && git commit -q --allow-empty -m planted; rm -r ../{planted.name}")
        shutil.rmtree(planted, ignore_errors=True)
    assert trees.git(trees.other, "log", "-1", "--format=%s") == "first"
    assert "planted" not in trees.git(foreign, "log", "--all", "--format=%s")


@pytest.mark.parametrize("tier", ["full", "landlock"])
def test_commands_read_no_credential_of_the_repository(tier: str, tmp_path: Path) -> None:
    """confinement-41, confinement-47: removed or hidden in tier full; in tier landlock commands are refused."""
    (tmp_path / "home").mkdir()
    canaries = plant_credentials(tmp_path)
    trees = Trees(tmp_path)
    with trees.server(tier=tier, root=tmp_path / "tree") as client:
        client.start_session()
        found = Session(trees, client, tier)
        if f"commands are confined in tier: {tier}" not in found.text("get_diagnostics"):
            pytest.skip(f"tier {tier} is not available here")
        line = f"grep -ras c4n4ry {tmp_path} . --exclude-dir=logs; git config --list; git log -1 --format=%s; id"
        is_done, text = found.answer("run_command", command=line)
        assert canaries.seen_in(text) == []
        assert is_done is (tier == "full")
        assert ("uid=" in text) is (tier == "full")
        answers = [found.answer(tool)[1] for tool in ("git_log", "git_reflog", "git_remote", "git_trust_report")]
        assert canaries.seen_in(str(answers)) == []


def test_a_root_without_its_repository_says_why(tmp_path: Path) -> None:
    """git-53: a folder, a submodule and a pruned work tree, in tools and in commands."""
    trees = plant(tmp_path)
    folder = trees.main / "packages"
    folder.mkdir()
    shutil.rmtree(trees.main / ".git" / "worktrees" / "other")
    roots = {
        folder: f"the root {trees.main}",
        trees.root / "sub": f"the root {trees.root}",
        trees.other: "git worktree add",
    }
    with trees.server(*roots, root=tmp_path / "library") as client:
        client.start_session()
        session = Session(trees, client, "")
        for root, cause in roots.items():
            is_done, text = session.answer("git_status", repository=str(root))
            assert not is_done
            assert cause in text
            assert cause in session.text("run_command", command="git status", directory=str(root))


def test_a_repository_that_is_gone_is_named(tmp_path: Path) -> None:
    """confinement-51: where commands can't start since it was moved, in tier full."""
    trees = plant(tmp_path)
    with trees.server() as client:
        client.start_session()
        session = Session(trees, client, "")
        session.run("true")
        trees.main.rename(tmp_path / "moved")
        (trees.main / ".git").mkdir(parents=True)
        (trees.root / ".env").write_text("TOKEN=x\n")  # what commands see is prepared anew
        is_done, text = session.answer("run_command", command="true")
        tier = session.text("get_diagnostics")
    assert is_done or f"{trees.main}/.git: " in text, text
    assert is_done == ("commands are confined in tier: full" not in tier), text


@pytest.mark.skipif(landlock.abi() < landlock.ABI_REQUIRED, reason="Landlock (Linux 6.2)")
@pytest.mark.parametrize("tool", ["git_stash", "git_bisect"])
def test_no_checkout_writes_into_the_shared_directory(tmp_path: Path, tool: str) -> None:
    """git-30: another process swaps a directory of the work tree with a link to the hooks while git writes files."""
    trees = plant(tmp_path)
    root, hooks = trees.root, trees.main / ".git" / "hooks"
    names = [f"d/{number}" for number in range(40)]
    commits = []
    for text in ("one\n", "two\n", "three\n"):
        for name in names:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        trees.git(root, "add", "d")
        trees.git(root, "commit", "--quiet", "-m", text.strip())
        commits.append(trees.git(root, "rev-parse", "HEAD"))
    for name in names:
        (root / name).write_text("stashed\n")
    stash = trees.git(root, "stash", "create")
    before = sorted(os.listdir(hooks))
    calls: dict[str, dict[str, object]] = {
        "git_stash": {"action": "pop", "stash": stash},
        "git_bisect": {"action": "start", "bad": commits[2], "good": [commits[0]]},
    }
    with trees.server() as client:
        client.start_session()
        for _ in range(10):
            for name in ("d", "link"):
                path = root / name
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                path.unlink(missing_ok=True)
            trees.git(root, "switch", "--quiet", "--force", "feature")
            (root / "link").symlink_to(hooks)
            with exchanged(root):
                client.call(tool, **calls[tool])
                if tool == "git_bisect":
                    client.call(tool, action="reset")
            assert sorted(os.listdir(hooks)) == before


@contextmanager
def exchanged(root: Path) -> Iterator[None]:
    """Exchange `d` and `link` in a loop, where both are there: git removes a link that it comes upon."""
    is_over = Event()

    def exchange() -> None:
        handle = os.open(root, os.O_RDONLY)
        while not is_over.is_set():
            with suppress(OSError):
                open_beneath.rename(handle, "d", handle, "link", flags=2)  # RENAME_EXCHANGE
        os.close(handle)

    thread = Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
