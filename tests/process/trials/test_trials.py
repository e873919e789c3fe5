"""Commands on trial: what is listed, kept and discarded, and what is refused (docs/specs/trials.md)."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import anyio
import pytest

from coretools.config.limits import Limits
from tests.docker_profile import under_profile
from tests.process.test_sandbox_pool import needs_namespaces
from tests.process.trials.world import TRIAL, tree, world_in
from tests.protocol.peer import peer

pytestmark = needs_namespaces

MOUNTED = 'mount -t tmpfs none "$ROOT/mounted" && exec "$@"'

MIXED = (
    "echo three >> a.txt; chmod 755 b; mkdir -p n/m; echo new > n/m/f; rm -r d; ln -s a.txt l; rm c && mkdir c;"
    " echo x > c/in; touch -d 2001-01-01 old"
)


def plant(root: Path) -> None:
    root.mkdir(exist_ok=True)
    (root / "a.txt").write_text("one\ntwo\n")
    for name in ("b", "c", "old"):
        (root / name).write_text(name)
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_text("f")
    os.utime(root / "d", ns=(1, 1))


async def test_a_trial_lists_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    """trial-1, trial-2: counts, kinds, permissions, links, a diff; the command itself sees its changes."""
    plant(tmp_path / "root")
    async with world_in(tmp_path) as world:
        before = tree(world.root)
        answer = await world.on_trial(f"{MIXED}; ls")
        assert tree(world.root) == before
        lines = answer.splitlines()
        assert "n" in lines  # printed by ls
        for line in (
            "changed a.txt",
            "changed b (mode 644 to 755)",
            "replaced c/ (was a file)",
            "added c/in",
            "deleted d/ (with 2 entries)",
            "added l (link) to a.txt",
            "added n/",
            "added n/m/",
            "added n/m/f",
            "[1 with nothing but another time]",
            "+three",
        ):
            assert line in lines, line
        assert "would add 5, change 2, replace 1, delete 1, touch 1; nothing is changed yet" in answer


async def test_a_kept_trial_is_what_the_command_would_have_done_and_one_change_that_can_be_undone(
    tmp_path: Path,
) -> None:
    """trial-3"""
    plant(tmp_path / "root")
    shutil.copytree(tmp_path / "root", tmp_path / "plain" / "root", symlinks=True)
    async with world_in(tmp_path) as world, world_in(tmp_path / "plain") as plain:
        before = tree(world.root, times=False)
        now = os.stat(tmp_path).st_mtime_ns
        answer = await world.keep(await world.tried(MIXED))
        assert "5 added, 2 changed, 1 deleted, 1 replaced, 1 touched" in answer
        assert "undo change=1 takes it back" in answer
        await plain.run(MIXED)
        assert tree(world.root, new_from=now) == tree(plain.root, new_from=now)
        assert (world.root / "old").stat().st_mtime < 1e9
        assert world.left() == []
        await world.call("undo", change=1)
        assert tree(world.root, times=False) == before


async def test_a_discarded_trial_leaves_nothing(tmp_path: Path) -> None:
    """trial-4: nor in the root, and a second call finds none."""
    plant(tmp_path / "root")
    async with world_in(tmp_path) as world:
        before = tree(world.root)
        trial = await world.tried(f"{MIXED}; mkdir closed; echo x > closed/x; chmod 0 closed closed/x")
        assert world.left() != []
        assert "discarded" in await world.discard(trial)
        assert tree(world.root) == before
        assert world.left() == []
        for end in (world.keep, world.discard):
            assert "no such trial" in await end(trial)


async def test_a_trial_that_would_change_nothing_is_over_at_once(tmp_path: Path) -> None:
    """trial-1: a file that was opened for writing, or read, is not listed."""
    plant(tmp_path / "root")
    async with world_in(tmp_path) as world:
        answer = await world.on_trial("cat a.txt; : >> a.txt; exit 3")
        assert "exit code 3" in answer
        assert "would change nothing" in answer
        assert world.left() == []


async def test_hard_links(tmp_path: Path) -> None:
    """trial-1, trial-3: new ones are kept; of two that were there only one changes, which the list says."""
    plant(tmp_path / "root")
    os.link(tmp_path / "root" / "c", tmp_path / "root" / "c2")
    async with world_in(tmp_path) as world:
        answer = await world.on_trial("ln a.txt second; mkdir n; echo x > n/x; ln n/x n/y; echo more >> c; mkfifo pipe")
        assert "changed a.txt (links)" in answer
        assert "changed c (under this name only; its other hard links keep the content)" in answer
        assert "added pipe (fifo)" in answer
        trial = TRIAL.search(answer)
        assert trial is not None
        await world.keep(trial[0])
        for one, other in (("a.txt", "second"), ("n/x", "n/y")):
            assert (world.root / one).samefile(world.root / other)
        assert (world.root / "c2").read_text() == "c"
        assert (world.root / "pipe").is_fifo()


@pytest.mark.parametrize("most", [1, 60, 140])
def test_a_server_killed_while_it_keeps_leaves_each_file_as_before_or_after(tmp_path: Path, most: int) -> None:
    """trial-12: and undo takes back what was done."""
    root, environment = tmp_path / "root", {"HOME": str(tmp_path), "XDG_STATE_HOME": ""}
    root.mkdir()
    names = [f"f{number}" for number in range(200)]
    for name in names:
        (root / name).write_text(f"old {name}\n")

    def changed() -> list[str]:
        texts = {name: (root / name).read_text() for name in names}
        assert set(texts.values()) <= {f"{word} {name}\n" for word in ("old", "new") for name in names}
        return [name for name, text in texts.items() if text == f"new {name}\n"]

    with peer(root, "--profile", "all", environment=environment) as client:
        client.start_session()
        answer = client.call("run_command", command="for f in f*; do echo new $f > $f; done", trial=True)
        trial = TRIAL.search(answer["content"][0]["text"])
        assert trial is not None
        client.send("tools/call", {"name": "end_trial", "arguments": {"trial": trial[0], "keep": True}})
        while len(changed()) < most:
            pass
        client.process.kill()
        client.process.wait()
    assert len(changed()) >= most
    with peer(root, "--profile", "all", environment=environment) as client:
        client.start_session()
        undone = client.call("undo", change=1)["content"][0]["text"]
        assert "took back change 1" in undone
        assert "left as they are" not in undone
        assert changed() == []
        assert client.end() == 0


@pytest.mark.parametrize(
    "meanwhile",
    [
        "echo other >> a.txt",
        "echo other > x; mv x a.txt",
        "rm a.txt",
        "chmod 600 a.txt",
        "echo newer > made",
        "mkdir made",
        "echo newer > d/e/newer",
        "rm -r d/e",
        "rm -r w",
        "ln -s d/e made",
    ],
)
async def test_nothing_newer_is_overwritten(tmp_path: Path, meanwhile: str) -> None:
    """trial-5: not even in part; the trial stays, and can be discarded."""
    plant(tmp_path / "root")
    (tmp_path / "root" / "w").mkdir()
    async with world_in(tmp_path) as world:
        trial = await world.tried("echo three >> a.txt; echo x > made; rm -r d; echo x > w/in; rm b")
        await world.run(meanwhile)
        before = tree(world.root)
        answer = await world.keep(trial)
        assert "nothing was kept: changed since the trial began" in answer
        assert tree(world.root) == before
        assert "discarded" in await world.discard(trial)
        assert tree(world.root) == before


async def test_changes_elsewhere_are_no_conflict(tmp_path: Path) -> None:
    """trial-5: also in the same directory."""
    plant(tmp_path / "root")
    async with world_in(tmp_path) as world:
        trial = await world.tried("echo three >> a.txt; echo x > d/made")
        await world.run("echo other > d/other; echo other > b; rm c")
        assert "kept" in await world.keep(trial)
        assert (world.root / "d" / "made").read_text() == "x\n"
        assert (world.root / "d" / "other").read_text() == "other\n"


async def test_two_trials_at_once_are_independent(tmp_path: Path) -> None:
    """trial-6: and of two that change one file the second is a conflict."""
    plant(tmp_path / "root")
    async with world_in(tmp_path) as world:
        found: dict[str, str] = {}

        async def start(name: str) -> None:
            found[name] = await world.tried(f"echo {name} >> a.txt; echo {name} > {name}.new; ls *.new")

        async with anyio.create_task_group() as group:
            group.start_soon(start, "one")
            group.start_soon(start, "other")
        assert "kept" in await world.keep(found["one"])
        assert "nothing was kept" in await world.keep(found["other"])
        assert (world.root / "a.txt").read_text() == "one\ntwo\none\n"
        assert not (world.root / "other.new").exists()
        third = await world.tried("echo third > third.new")
        assert "kept" in await world.keep(third)


async def test_trials_are_bounded(tmp_path: Path) -> None:
    """trial-7: in entries, bytes, number and age. What exceeds a limit is discarded, and the answer says so."""
    plant(tmp_path / "root")
    limits = Limits(trial_entries=20, trial_bytes=1 << 20, trials=2)
    async with world_in(tmp_path, limits=limits) as world:
        before = tree(world.root)
        many = await world.on_trial("for i in $(seq 30); do echo > f$i; done")
        assert "the trial is discarded: it changed too many entries (at most 20 entries" in many
        large = await world.on_trial("head -c 3000000 /dev/urandom > large")
        assert "the trial is discarded: what it wrote is too large" in large
        assert world.left() == []
        assert tree(world.root) == before
        for name in ("one", "other"):
            await world.tried(f"touch {name}")
        assert "busy: 2 trials wait" in await world.on_trial("touch third")
        assert len({path.partition("/")[0] for path in world.left()}) == 1
    assert world.left() == []
    async with world_in(tmp_path, limits=Limits(trial_seconds=1e-9)) as world:
        deep = await world.on_trial('python3 -c \'import os\nfor i in range(2000): os.mkdir("q"); os.chdir("q")\'')
        assert "the trial is discarded: it nested directories deeper than 200" in deep
        assert world.left() == []
        trial = await world.tried("touch new")
        await world.run("true")
        assert "has expired" in await world.keep(trial)
        assert not (world.root / "new").exists()


async def test_what_ends_later_is_refused_on_trial(tmp_path: Path) -> None:
    """trial-8: nothing is started."""
    plant(tmp_path / "root")
    async with world_in(tmp_path) as world:
        assert "invalid-arguments: trial with wait_seconds" in await world.on_trial("touch new", wait_seconds=0)
        assert not (world.root / "new").exists()


async def test_a_cancelled_trial_leaves_nothing(tmp_path: Path) -> None:
    """trial-4"""
    plant(tmp_path / "root")
    async with world_in(tmp_path) as world:
        async with anyio.create_task_group() as group:
            group.start_soon(world.on_trial, "touch new; echo > a.txt; exec sleep 600")
            while not any("sleep 600" in line for line in _commands()):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert world.left() == []
        assert not (world.root / "new").exists()
        assert "timed out" in await world.on_trial("exec sleep 600", timeout_seconds=1)
        assert world.left() == []


def _commands() -> list[str]:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()


async def test_in_a_read_only_root_nothing_runs_on_trial(tmp_path: Path) -> None:
    """trial-9: the answer names the cause and what to do."""
    fixed = tmp_path / "fixed"
    plant(fixed)
    async with world_in(tmp_path, f"{fixed}:ro") as world:
        refused = await world.on_trial("touch /tmp/ran", directory=str(fixed))
        assert refused.startswith("read-only: ")
        assert "run it without trial" in refused
        assert "No such file" in await world.run("ls /tmp/ran", directory=str(fixed))
        await world.keep(await world.tried(f"cat {fixed}/a.txt > copy; echo x >> {fixed}/a.txt"))
        assert (fixed / "a.txt").read_text() == (world.root / "copy").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("place", ["in the root", "elsewhere"])
async def test_without_a_place_for_its_changes_nothing_runs_on_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """trial-9: the state directory lies in a root, or on another file system."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        top = tmp_path if place == "in the root" else Path(memory)
        if place == "elsewhere" and os.stat(memory).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("needs a second file system")
        async with world_in(top if place == "in the root" else tmp_path, state=top / "root" / "state") as world:
            refused = await world.on_trial("touch new")
            assert refused.startswith("unsupported: no trial: "), refused
            assert "nothing was run: run it without trial, or set XDG_STATE_HOME" in refused
            assert not (world.root / "new").exists()


@pytest.mark.parametrize(
    "before", [under_profile(), ("unshare", "-rm", "sh", "-c", MOUNTED, "sh")], ids=["tier", "mount"]
)
def test_where_no_trial_is_possible_nothing_runs(tmp_path: Path, before: tuple[str, ...]) -> None:
    """trial-9: in another tier, and with a mount beneath the root."""
    root = tmp_path / "root"
    (root / "mounted").mkdir(parents=True)
    environment = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": "", "ROOT": str(root)}
    with peer(root, "--profile", "all", environment=environment, before=before) as client:
        client.start_session()
        refused = client.call("run_command", command="touch new", trial=True)
        text = refused["content"][0]["text"]
        assert refused["isError"], text
        assert "run it without trial" in text
        assert ("tier landlock" if "unshare" not in before else f"{root}/mounted is mounted in the root") in text
        assert client.call("run_command", command="ls new")["content"][0]["text"].startswith("[exit code 2]")
        client.end()


async def test_git_configuration_is_named_only_if_it_was_changed(tmp_path: Path) -> None:
    """trial-1: the copy that a command sees of it is not what it changed."""
    await anyio.run_process(["git", "init", "-q", tmp_path / "root"])
    async with world_in(tmp_path) as world:
        assert "git's configuration" not in await world.on_trial("echo x > a")
        assert "git's configuration" in await world.on_trial("git config color.ui always")


def test_the_first_call_can_be_a_trial_and_times_and_modes_are_taken_back(tmp_path: Path) -> None:
    """trial-1, trial-4: also while the login shell of the user is still being asked."""
    root = tmp_path / "root"
    plant(root)
    before = tree(root)
    with peer(root, environment={"XDG_STATE_HOME": str(tmp_path / "state")}) as client:
        client.start_session()
        tried = client.call("run_command", command="touch -d @5 a.txt; chmod 700 d", trial=True)
        trial = tried["_meta"]["coretools/facts"]["trial"]
        kept = client.call("end_trial", trial=trial, keep=True)
        assert tree(root) != before
        client.call("undo", change=kept["_meta"]["coretools/facts"]["change"])
        assert tree(root) == before
