"""undo-12 to undo-19: what commands change, taken back through a real server, in tiers full and landlock."""

import fcntl
import hashlib
import os
import random
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer, processes_with

TIERS = ("full", "landlock")
State = dict[str, tuple[object, ...]]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs seccomp notifications")


class Project:
    """A server, its root and its journal."""

    def __init__(self, top: Path, client: Peer) -> None:
        self.top, self.root, self.client = top, top / "root", client
        self.spool = top / "state/coretools/changes/spool"

    def run(self, command: str, **arguments: object) -> dict[str, Any]:
        return self.client.call("run_command", command=command, **arguments)

    def python(self, code: str) -> dict[str, Any]:
        return self.run(shlex.join([sys.executable, "-c", code]))

    def text(self, tool: str, **arguments: object) -> str:
        return str(self.client.call(tool, **arguments)["content"][0]["text"])

    def undo(self, result: dict[str, Any]) -> str:
        return self.text("undo", change=change_of(result))

    def state(self) -> State:
        """Every entry outside git directories with kind, mode, and content and time of files and links."""
        found: State = {}
        for above, directories, files in os.walk(self.root):
            directories[:] = [name for name in directories if name != ".git"]
            for name in directories + files:
                path = os.path.join(above, name)
                status = os.lstat(path)
                what: object = b""
                if stat.S_ISREG(status.st_mode):
                    what = hashlib.sha256(Path(path).read_bytes()).digest(), status.st_mtime_ns
                elif stat.S_ISLNK(status.st_mode):
                    what = os.readlink(path), status.st_mtime_ns
                found[os.path.relpath(path, self.root)] = (status.st_mode, what)
        return found


def change_of(result: dict[str, Any]) -> int:
    (change,) = result["_meta"]["coretools/facts"]["changes"]
    return int(change)


def _git(root: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def _fill(root: Path, chance: random.Random) -> None:
    """A repository with two branches, ignored and untracked files, links, modes, binary files, an empty directory."""
    _git(root, "init", "-q", "-b", "main")
    for name in ("src/a", "src/deep/er", "lib", "data"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            (root / name / f"{number}.txt").write_bytes(chance.randbytes(chance.choice([0, 20, 9000])))
    (root / "Makefile").write_text("all: out/x\nout/x: src/a/0.txt\n\tmkdir -p out; cp src/a/0.txt out/x; date > log\n")
    (root / ".gitignore").write_text("ignored/\nout/\n")
    _git(root, "add", ".")
    _git(root, "commit", "-qm", "one")
    _git(root, "checkout", "-q", "-b", "other")
    (root / "src/a/0.txt").write_text("of the other branch")
    _git(root, "rm", "-q", "lib/1.txt")
    _git(root, "commit", "-qam", "two")
    _git(root, "checkout", "-q", "main")
    for name in ("ignored", "empty"):
        (root / name).mkdir()
    (root / "ignored/file").write_bytes(chance.randbytes(100))
    (root / "untracked").write_text("untracked")
    (root / "data/0.txt").chmod(0o600)
    (root / "data/run").write_text("#!/bin/sh\n")
    (root / "data/run").chmod(0o755)
    (root / "link").symlink_to("src")
    (root / "dangling").symlink_to("nowhere")
    (root / "lib/2.txt").write_text("changed, not committed")


@pytest.fixture(params=TIERS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    with served(tmp_path, request.param) as found:
        yield found


@contextmanager
def served(
    top: Path, tier: str, *words: str, environment: dict[str, str] | None = None, before: Sequence[str] = ()
) -> Iterator[Project]:
    """A server in a tier, with a journal of its own."""
    (top / "root").mkdir(exist_ok=True)
    before = under_profile() if tier == "landlock" else before
    variables = {"XDG_STATE_HOME": str(top / "state"), **(environment or {})}
    with peer(top / "root", *words, before=before, environment=variables) as client:
        client.start_session()
        found = Project(top, client)
        if f"confined in tier: {tier}" not in found.text("get_diagnostics"):
            pytest.skip(f"tier {tier} is not available here")
        yield found


def test_a_clean_and_a_removal_are_taken_back_by_one_call(project: Project) -> None:
    """undo-12: and the same of the file tool beside it."""
    _fill(project.root, random.Random(1))
    before = project.state()
    result = project.run("git clean -fdx; rm -rf src")
    assert "undo change=" in result["content"][0]["text"]
    assert not (project.root / "src").exists()
    assert not (project.root / "untracked").exists()
    assert "left as they are" not in project.undo(result)
    assert project.state() == before
    deleted = project.client.call("delete_directory", path="data")
    assert not (project.root / "data").exists(), deleted
    project.text("undo", change=int(deleted["_meta"]["coretools/facts"]["change"]))
    assert project.state() == before
    assert list(project.spool.iterdir()) == []


def test_a_command_is_one_change_and_undo_can_be_undone(project: Project) -> None:
    """undo-12: list_changes shows it with counts and diffs; restore takes it back to a checkpoint."""
    for name in ("kept", "gone", "old"):
        (project.root / name).write_text(f"{name}\n")
    result = project.run("echo two >> kept; rm gone; mkdir new; echo x > new/x; mv old moved; touch t; rm t")
    after = project.state()
    change = change_of(result)
    listed = project.text("list_changes")
    assert f"{change}\t" in listed
    assert "1 changed, 1 deleted, 2 created, 1 moved" in listed
    assert "echo two >> kept" in listed
    details = project.text("list_changes", change=change)
    assert "deleted gone" in details
    assert "t\n" not in details.splitlines()
    project.undo(result)
    assert (project.root / "kept").read_text() == "kept\n"
    assert sorted(os.listdir(project.root)) == ["gone", "kept", "old"]
    project.text("undo", change=change + 1)
    assert project.state() == after


def test_newer_content_is_never_overwritten(project: Project) -> None:
    """undo-2, undo-3: also not what was put into a directory that the command made."""
    for name in ("one", "two"):
        (project.root / name).write_text("before\n")
    result = project.run("echo after > one; echo after > two; mkdir made; echo x > made/x")
    (project.root / "one").write_text("newer\n")
    (project.root / "made/mine").write_text("mine\n")
    text = project.undo(result)
    assert "one: was changed since" in text
    assert "made: has entries that were made later" in text
    assert (project.root / "one").read_text() == "newer\n"
    assert (project.root / "two").read_text() == "before\n"
    assert os.listdir(project.root / "made") == ["mine"]


def test_an_edit_by_a_tool_while_a_command_runs_is_not_taken_back_with_it(project: Project) -> None:
    """undo-13."""
    (project.root / "file").write_text("one\n")
    started = project.run("echo two > file; echo here; read line; echo x > made", stdin="", wait_seconds=0)
    run = started["_meta"]["coretools/facts"]["run"]
    project.client.call("wait_run", run=run, pattern="here", seconds=20)
    project.client.call("write_file", path="file", content="three\n")
    project.client.call("write_run", run=run, text="go\n", end=True)
    ended = project.client.call("wait_run", run=run, seconds=20)
    assert "file, which a tool changed while the command ran" in ended["content"][0]["text"]
    change = int(project.text("list_changes").split("\t")[0])
    assert "removed made" in project.text("undo", change=change)
    assert (project.root / "file").read_text() == "three\n"


def test_what_a_cancelled_or_killed_command_changed_is_taken_back(project: Project) -> None:
    """undo-14: a deadline, and a command that kills its supervisor's child itself."""
    (project.root / "file").write_text("before\n")
    before = project.state()
    started = project.run("echo after > file; echo here; sleep 60", stdin="", wait_seconds=0)
    run = started["_meta"]["coretools/facts"]["run"]
    project.client.call("wait_run", run=run, pattern="here", seconds=20)
    result = project.client.call("stop_run", run=run)
    assert (project.root / "file").read_text() == "after\n"
    project.undo(result)
    assert project.state() == before
    result = project.run("echo after > file; kill -9 $$")
    project.undo(result)
    assert project.state() == before


def test_what_was_changed_when_the_server_was_killed_is_taken_back_by_the_next(tmp_path: Path) -> None:
    """undo-14: the record is read by the next server."""
    for tier in TIERS:
        top = tmp_path / tier
        (top / "root").mkdir(parents=True)
        (top / "root/file").write_text("before\n")
        with served(top, tier) as project:
            before = project.state()
            command = "rm file; echo x > made; echo here; sleep 60"
            started = project.run(command, stdin="", wait_seconds=0)
            project.client.call("wait_run", run=started["_meta"]["coretools/facts"]["run"], pattern="here", seconds=20)
            project.client.process.send_signal(signal.SIGKILL)
            project.client.process.wait()
            _wait_until_unlocked(project.spool)
        with served(top, tier) as project:
            listed = project.text("list_changes")
            assert command in listed
            project.text("undo", change=int(listed.split("\t")[0]))
            assert project.state() == before


def test_a_record_is_left_to_the_server_of_its_command_as_long_as_that_lives(tmp_path: Path) -> None:
    """undo-14: another one that starts when the command has just ended does not take it."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file").write_text("before\n")
    with served(tmp_path, "full") as project:
        started = project.run("rm file; echo here; read line", stdin="", wait_seconds=0)
        run = started["_meta"]["coretools/facts"]["run"]
        project.client.call("wait_run", run=run, pattern="here", seconds=20)
        leader = next(iter(processes_with("rm file; echo here; read line")))
        project.client.process.send_signal(signal.SIGSTOP)
        os.kill(int(leader), signal.SIGKILL)
        _wait_until_unlocked(project.spool)
        with served(tmp_path, "full") as other:
            assert other.text("list_changes") == "[no recorded change]"
        project.client.process.send_signal(signal.SIGCONT)
        ended = project.client.call("wait_run", run=run, seconds=20)
        project.undo(ended)
        assert (project.root / "file").read_text() == "before\n"


def _wait_until_unlocked(spool: Path) -> None:
    """Wait until the supervisor of the only record has ended."""
    (record,) = spool.iterdir()
    with open(record / "log", "rb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)


def test_a_journal_on_another_file_system_copies_and_says_so_beforehand(tmp_path: Path) -> None:
    """undo-21."""
    if os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("needs a second file system, /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as state:
        environment = {"XDG_STATE_HOME": state}
        with served(tmp_path, "full", "--profile", "all", environment=environment) as project:
            for text in (project.text("get_diagnostics"), project.text("checkpoint", name="here")):
                assert "but not files of more than" in text
                assert f"that commands delete in {project.root}" in text
            (project.root / "file").write_text("content\n")
            project.undo(project.run("rm file"))
            assert (project.root / "file").read_text() == "content\n"
        with served(tmp_path, "full", "--no-undo", environment=environment) as project:
            assert "because of --no-undo" in project.text("get_diagnostics")


COMMANDS = (
    "git checkout -q other",
    "git checkout -q other && git checkout -q main",
    "git checkout -- .",
    "git clean -fdxq",
    "git stash -q",
    "git stash -q -u && git stash pop -q",
    "git reset -q --hard other",
    "git rm -rqf lib",
    "git mv src/a moved",
    "sed -i s/a/b/ Makefile data/*.txt",
    "rm -rf src lib",
    "rm -rf data && mkdir data && echo x > data/new",
    "rm -rf .git/no src/deep; mkdir -p src/deep/er/new",
    "mv src renamed",
    "mv src/deep data/ && mv data/deep/er lib/",
    "mv src/a/0.txt src/a/1.txt",
    "mv lib swap && mv data lib && mv swap data",
    "mv -T lib/0.txt untracked; mv link l2",
    "mv src renamed; rm -rf renamed/a",
    "mv src renamed; rm -rf renamed; mkdir src",
    "cp -a src copy && rm -rf src && mv copy src; mv src/a data/ && mkdir src/a && touch src/a/0.txt",
    "chmod 700 lib; mv data renamed; rm -r lib",
    "chmod 500 lib; mv data renamed; chmod 700 lib; rm -r lib renamed",
    "rm untracked; mkdir untracked; mv src s; rm -r untracked; touch untracked",
    "echo new > lib/0.txt; mv lib renamed; mkdir lib; echo x > lib/0.txt; rm -r lib",
    "mv lib a; for i in 1 2 3; do mv a b; echo $i > b/$i; mv b a; done; mkdir lib; mv a lib/; rm lib/a/0.txt",
    "make -s",
    "make -s && make -s && rm -rf out",
    "tar cf all.tar src data && rm -rf src && tar xf all.tar && rm all.tar",
    "tar czf all.tgz src; tar xzf all.tgz -C empty",
    "cp -a src copy && rm -rf src && mv copy src",
    "cp -rf lib/. data/",
    "cp --remove-destination lib/2.txt link",
    "chmod -R u-w lib; chmod 700 data; chmod -R go-r src",
    "chmod 500 data; chmod 700 data; rm -rf data",
    "touch -d 2001-01-01 src/a/*.txt untracked",
    "ln -f lib/2.txt hard; echo changed >> hard",
    "ln -s other2 s; ln -sfn lib link; rm dangling",
    "truncate -s 5 src/a/2.txt; truncate -s 100000 lib/2.txt",
    "dd if=/dev/zero of=data/1.txt bs=7 count=3 conv=notrunc status=none",
    "echo more >> untracked; echo all > untracked; rm untracked; echo again > untracked",
    'python3 -c \'open("data/2.txt", "r+b").write(b"xyz")\'',
    'python3 -c \'import os; os.rename("src", "s"); os.mkdir("src"); os.rename("s", "src/s")\'',
    "find . -name \\*.txt -not -path './.git/*' -delete",
    "mkfifo fifo; rm -rf empty; touch empty",
    "rm -rf src && echo file > src",
    "rm untracked && mkdir untracked && touch untracked/x",
    "exec 3>>untracked; echo x >&3; exec 4<>data/0.txt; echo y >&4; echo z > /proc/self/fd/4",
    "true; ls -la; git status; git log -1",
    "git -c user.name=a -c user.email=a@b commit -qam all",
    "cd src && rm -rf a && cd deep && mv er ../../er2",
    "install -m 755 lib/0.txt data/run; install -D lib/0.txt n/e/w/file",
)
"""Commands of real tools."""


@pytest.mark.parametrize("tier", TIERS)
def test_random_commands_are_taken_back_byte_for_byte(tmp_path: Path, tier: str) -> None:
    """undo-12, undo-15: each command, and sequences of them, as one change."""
    chance = random.Random(tier)
    _fill_once(tmp_path / "root", chance)
    with served(tmp_path, tier) as project:
        lines = [*COMMANDS, *("; ".join(chance.sample(COMMANDS, 3)) for _ in range(12))]
        for line in lines:
            before = project.state()
            result = project.run(line)
            changes = result["_meta"]["coretools/facts"].get("changes")
            text = project.undo(result) if changes else ""
            # The state of git stays as the command left it.
            assert project.state() == before, (line, result, text)
            _restore_git(project.root)
            _reset(project.root, before, project)


def _fill_once(root: Path, chance: random.Random) -> None:
    root.mkdir()
    _fill(root, chance)
    subprocess.run(["cp", "-a", root / ".git", root.parent / "git"], check=True)


def _restore_git(root: Path) -> None:
    subprocess.run(["rm", "-rf", root / ".git"], check=True)
    subprocess.run(["cp", "-a", root.parent / "git", root / ".git"], check=True)


def _reset(root: Path, before: State, project: Project) -> None:
    assert project.state() == before, root
