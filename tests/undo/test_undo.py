"""What undo refuses, survives and hides (docs/specs/undo.md)."""

import gc
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from coretools.errors import CoreError, DeniedPath, InputOutput, NotFound, TooLarge
from coretools.tools.filesystem.edits import Edit
from coretools.undo.change import Bounds
from coretools.undo.journal import FORMAT
from tests.checkout import TREE
from tests.protocol.peer import peer
from tests.starting import warm
from tests.undo.world import World

CANARY = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_newer_content_stays_and_is_shown(world: World) -> None:
    """undo-2: file by file; what nobody touched is taken back."""
    for name in ("a", "b"):
        (world.root / name).write_text("old\n")
    (world.root / "gone").write_text("old\n")
    with world.recorder.operation("edit_files", "a, b"):
        for name in ("a", "b", "gone"):
            world.files.edit_file(name, [Edit(old="old", new="new")])
    (world.root / "b").write_text("newer\n")
    (world.root / "gone").unlink()
    change = world.recorder.journal.changes("", [str(world.root)])[0].id
    text = world.undo.undo(change=change).text()
    assert (world.root / "a").read_text() == "old\n"
    assert (world.root / "b").read_text() == "newer\n"
    assert not (world.root / "gone").exists()
    assert "b: was changed since" in text
    assert "-old\n+newer" in text
    assert "gone: is gone since" in text
    assert "undo paths" not in text


def test_later_files_stay(world: World) -> None:
    """undo-3: in a directory that an undo would remove."""
    world.files.write_file("d/e/f", "x", create_parents=True)
    (world.root / "d" / "later").write_text("later")
    text = world.undo.undo(change=1).text()
    assert "d: has entries that were made later" in text
    assert world.state().keys() == {"d", "d/later"}


def test_a_dry_run_changes_nothing_and_paths_choose(world: World) -> None:
    """undo-11: some paths of a change, or everything since a checkpoint."""
    for name in ("a", "b"):
        (world.root / name).write_text(name)
    world.undo.checkpoint("start")
    world.files.delete_file("a")
    world.files.delete_file("b")
    before = world.state()
    assert "would take back 2 changes since start: restored b, a" in world.undo.undo(since="start", dry_run=True).text()
    assert world.state() == before
    assert "restored b, a" in world.undo.undo(since=1, paths=["."], dry_run=True).text()
    world.undo.undo(since=1, paths=["b"])
    assert world.state().keys() == {"b"}
    world.undo.restore("start")
    assert world.state().keys() == {"a", "b"}
    with pytest.raises(NotFound, match="there are: start"):
        world.undo.undo(since="never")
    with pytest.raises(NotFound, match="list_changes"):
        world.undo.undo(change=99)


def test_a_content_that_is_not_as_it_was_is_not_restored(world: World) -> None:
    """undo-9: missing, cut, or written to by a program that had the file open."""
    for name in ("gone", "cut", "held"):
        (world.root / name).write_text("content")
    with (world.root / "held").open("a") as held:
        for name in ("gone", "cut", "held"):
            world.files.delete_file(name)
        held.write("more")
    contents = {one.path: one.content for number in (1, 2, 3) for one in world.recorder.journal.entries(number)}
    (world.store / "contents" / contents["gone"]).unlink()
    os.truncate(world.store / "contents" / contents["cut"], 3)
    texts = [world.undo.undo(change=number).text() for number in (1, 2, 3)]
    assert world.state() == {}
    assert not any("restored" in text for text in texts)
    assert "no longer in the journal" in texts[0]
    assert all("damaged" in text for text in texts[1:])


def test_a_change_that_cannot_be_recorded_is_not_made(world: World, tmp_path: Path) -> None:
    """undo-6: a damaged database, by effect."""
    (world.root / "a").write_text("old")
    world.files.write_file("b", "x")
    journal = world.recorder.journal
    for path in world.store.glob("journal.sqlite*"):
        path.write_bytes(b"no database" * 1000)
    for attempt in (
        lambda: world.files.write_file("a", "new", overwrite=True),
        lambda: world.files.delete_file("a"),
        lambda: world.files.move_path("a", "c"),
        lambda: world.files.create_directory("d"),
    ):
        with pytest.raises(InputOutput, match="--no-undo"):
            attempt()
    assert world.state().keys() == {"a", "b"}
    assert (world.root / "a").read_text() == "old"
    assert journal.directory == str(world.store)
    other = World(tmp_path)
    with pytest.raises(InputOutput, match="--no-undo"):
        other.files.write_file("c", "x")
    other.close()
    gc.collect()  # Python 3.13 warns of a database that nobody has closed, and a warning fails the test


def test_a_journal_of_a_newer_version_is_named_and_left_alone(tmp_path: Path) -> None:
    """installation-12: one from before formats were kept is read on; of a newer one nothing is changed."""
    world = World(tmp_path)
    world.files.write_file("a", "x")
    world.close()
    database = world.store / "journal.sqlite"

    def format_of(number: int | None = None) -> int:
        with closing(sqlite3.connect(database)) as connection:
            if number is not None:
                connection.execute(f"PRAGMA user_version={number}")
            return int(connection.execute("PRAGMA user_version").fetchone()[0])

    assert format_of() == FORMAT
    format_of(0)
    older = World(tmp_path)
    assert older.undo.undo(change=1).kept == []
    older.close()
    assert format_of() == FORMAT
    format_of(FORMAT + 1)
    newer = World(tmp_path)
    with pytest.raises(InputOutput, match=rf"newer version of coretools \(format {FORMAT + 1}.*--no-undo"):
        newer.files.write_file("b", "x")
    newer.close()
    assert not (world.root / "b").exists()
    assert format_of() == FORMAT + 1
    gc.collect()  # as above


def test_the_journal_stays_within_its_bounds(tmp_path: Path) -> None:
    """undo-8: the oldest changes go first, with their contents; what is larger than the journal is refused."""
    bounds = Bounds(size=100_000, days=14, changes=20)
    world = World(tmp_path, bounds=bounds)
    for number in range(50):
        world.files.write_file("a", f"{number}" * 4000, overwrite=True)
        size = sum(path.stat().st_size for path in (world.store / "contents").iterdir())
        assert size <= bounds.size
    assert len(world.recorder.journal.changes("", [str(world.root)])) <= 20
    (world.root / "d").mkdir()
    for number in range(9):
        (world.root / "d" / f"f{number}").write_bytes(bytes(10_000))
    world.files.delete_directory("d")  # leaves no room for what came before it
    assert sum(path.stat().st_size for path in (world.store / "contents").iterdir()) <= bounds.size
    world.undo.undo(change=world.recorder.journal.changes("", [str(world.root)])[0].id)
    assert len(list((world.root / "d").iterdir())) == 9
    (world.root / "d" / "large").write_bytes(bytes(200_000))
    with pytest.raises(TooLarge, match="permanent=true"):
        world.files.delete_directory("d")
    assert (world.root / "d" / "large").exists()
    world.files.delete_directory("d", permanent=True)
    world.undo.forget_changes(older_than_days=0)
    assert world.recorder.journal.size() == (0, 0)
    assert not list((world.store / "contents").iterdir())
    world.close()


def test_changes_of_other_projects_are_not_listed(tmp_path: Path) -> None:
    """undo-7: the servers of a user share the journal, and each shows what is in its roots."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = World(tmp_path / "one"), World(tmp_path / "two")
    two.store = one.store
    one.files.write_file("a", "of one")
    two.files.write_file("b", "of two")
    assert re.findall(r"\twrite_file\t(\w)", two.undo.list_changes().text()) == ["b"]
    with pytest.raises(NotFound, match="none in these roots"):
        two.undo.undo(change=1)
    assert two.undo.undo(since=2).kept == []
    assert one.state().keys() == {"a"}
    one.close()
    two.close()


def test_a_journal_in_use_ends_no_call_late(tmp_path: Path) -> None:
    """undo-6: neither another process that keeps the database, nor calls that wait for it, hold a change for ever."""
    world = World(tmp_path, busy_seconds=0.2)
    world.files.write_file("a", "old")
    with closing(sqlite3.connect(world.store / "journal.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(4) as threads:
            attempts = [threads.submit(world.files.write_file, "a", "new", overwrite=True) for _ in range(4)]
        assert all("can't be used" in str(attempt.exception()) for attempt in attempts)
        assert (world.root / "a").read_text() == "old"
    world.files.write_file("a", "new", overwrite=True)
    world.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs user 0, to mount a small file system")
def test_a_full_disk_of_the_journal_is_named(tmp_path: Path) -> None:
    """undo-6: the file is as it was, and a change that fits is made."""
    (tmp_path / "root").mkdir()
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "root" / "large").write_bytes(bytes(900_000))
    (tmp_path / "root" / "small").write_text("old")
    mounting = 'mount -t tmpfs -o size=400k,mode=700 none "$XDG_STATE_HOME" && exec "$@"'
    before = ("unshare", "-m", "sh", "-c", mounting, "-")
    with peer(tmp_path / "root", before=before, environment={"XDG_STATE_HOME": str(tmp_path / "state")}) as client:
        client.start_session()
        for tool, arguments in (("write_file", {"content": "new", "overwrite": True}), ("delete_file", {})):
            answer = client.call(tool, path="large", **arguments)
            assert answer["isError"]
            assert "the journal for undo" in answer["content"][0]["text"]
            assert "--no-undo" in answer["content"][0]["text"]
        assert not client.call("write_file", path="small", content="new", overwrite=True)["isError"]
    assert (tmp_path / "root" / "large").stat().st_size == 900_000
    assert (tmp_path / "root" / "small").read_text() == "new"


def test_a_damaged_entry_is_an_error(world: World) -> None:
    """undo-6."""
    world.files.write_file("a", "old")
    assert world.recorder.journal.size()[0] == 1
    with closing(sqlite3.connect(world.store / "journal.sqlite", isolation_level=None)) as other:
        other.execute("UPDATE entries SET before = '[1]'")
    with pytest.raises(InputOutput, match="can't be used"):
        world.undo.undo(change=1)


def test_a_content_whose_entry_is_still_to_come_stays(world: World, tmp_path: Path) -> None:
    """undo-5: one server forgets what no entry has, while another has just kept a content."""
    world.files.write_file("a", "old")
    kept = world.store / "contents" / "0123"
    kept.write_bytes(b"kept a moment ago")
    other = World(tmp_path)
    other.undo.forget_changes()
    assert kept.exists()
    other.close()


def test_a_cancelled_undo_goes_on_later(tmp_path: Path) -> None:
    """undo-5: the client cancels, and asks again: everything is as before, and the journal says so."""
    top = tmp_path / "project"
    (top / "d").mkdir(parents=True)
    for number in range(300):
        (top / "d" / f"f{number}").write_text(f"{number}")
    with peer(top, environment={"XDG_STATE_HOME": str(tmp_path / "state")}) as client:
        client.start_session()
        client.call("delete_directory", path="d")
        asked = client.send("tools/call", {"name": "undo", "arguments": {"change": 1}})
        client.notify("notifications/cancelled", {"requestId": asked})
        client.call("undo", change=1)
        listed = client.call("list_changes")["content"][0]["text"]
    assert sorted(path.name for path in (top / "d").iterdir()) == sorted(f"f{number}" for number in range(300))
    assert re.search(r"\tdelete_directory\td\t301 deleted \(taken back by \d+\)", listed), listed


def test_another_file_system_copies(tmp_path: Path) -> None:
    """undo-8: where nothing can be linked, as far as the limit allows."""
    shared = Path("/dev/shm")
    if shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system, /dev/shm")
    world = World(tmp_path, most_copied=1000)
    world.store = shared / f"undo-{os.getpid()}-{tmp_path.name}"
    try:
        (world.root / "small").write_bytes(b"s" * 1000)
        (world.root / "large").write_bytes(b"l" * 1001)
        (world.root / "small-copy").write_bytes(b"s")
        world.files.delete_file("small")
        with pytest.raises(TooLarge):
            world.files.delete_file("large")
        with pytest.raises(TooLarge):
            world.files.move_path("small-copy", "large", overwrite=True)
        assert world.state().keys() == {"large", "small-copy"}
        assert len(world.recorder.journal.changes("", [str(world.root)])) == 1
        world.undo.undo(change=1)
        assert (world.root / "small").read_bytes() == b"s" * 1000
    finally:
        world.close()
        subprocess.run(["rm", "-r", str(world.store)], check=True)


def test_hidden_files_come_back_and_are_never_shown(world: World) -> None:
    """undo-1, undo-10: a deleted directory with a secret, one whose name says nothing too."""
    (world.root / "d").mkdir()
    for name, text in ((".env", f"TOKEN={CANARY}\n"), (".npmrc", f"//registry.example.org/:_authToken={CANARY}\n")):
        (world.root / "d" / name).write_text(text)
        with pytest.raises(DeniedPath):
            world.files.read_file(f"d/{name}")
    before = world.state()
    world.files.delete_directory("d")
    shown = world.undo.list_changes().text() + world.undo.list_changes(change=1).text()
    shown += world.undo.undo(change=1).text() + world.undo.list_changes(change=2).text()
    assert CANARY not in shown
    assert "d/.env" in shown
    assert world.state() == before


def test_undo_makes_no_git_directory(world: World) -> None:
    """undo-10: neither completed by a part that comes back, nor changed; a whole repository comes back."""
    for name in ("objects", "refs"):
        world.files.create_directory(f"m/{name}")
    world.files.delete_directory("m/objects")
    world.files.write_file("m/HEAD", "ref: refs/heads/main\n")
    assert "git" in world.undo.undo(change=3).text()
    assert not (world.root / "m" / "objects").exists()
    subprocess.run(["git", "init", "-q", str(world.root / "r")], check=True)
    (world.root / "r" / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    before = world.state()
    world.files.delete_directory("r", with_repositories=True)
    last = world.recorder.last
    (world.root / "r").mkdir()
    assert world.undo.undo(change=last).kept != []
    assert not (world.root / "r" / ".git" / "hooks").exists()
    (world.root / "r").rmdir()
    world.undo.undo(change=last)
    assert world.state() == before


def test_a_link_on_the_way_leads_nowhere(world: World, tmp_path: Path) -> None:
    """undo-2: a directory that was exchanged with a link out of the root since."""
    (tmp_path / "outside").mkdir()
    (world.root / "d").mkdir()
    (world.root / "d" / "f").write_text("x")
    world.files.delete_file("d/f")
    (world.root / "d").rmdir()
    (world.root / "d").symlink_to(tmp_path / "outside")
    text = world.undo.undo(change=1).text()
    assert text.startswith("took back change 1 (delete_file d/f): nothing\nleft as they are")
    assert text.count("d/f:") == 1
    assert list((tmp_path / "outside").iterdir()) == []


def test_two_servers_share_the_journal(world: World, tmp_path: Path) -> None:
    """undo-7: both see every change, and ids are never given twice."""
    other = World(tmp_path)
    for number in range(20):
        (world if number % 2 else other).files.write_file(f"f{number}", "x")
    assert len({one.id for one in other.recorder.journal.changes("", [str(other.root)])}) == 20
    for one in world.recorder.journal.changes("", [str(world.root)]):
        assert other.undo.undo(change=one.id).kept == []
    assert world.state() == {}
    other.close()


@pytest.mark.parametrize("seed", range(int(os.environ.get("CORETOOLS_KILLS", "25"))))
def test_a_killed_server_loses_nothing(tmp_path: Path, seed: int) -> None:
    """undo-5, roots-31: after kill -9 at any point everything can be taken back, and nothing is left over."""
    world = World(tmp_path)
    (world.root / "f1").write_text("before\n")
    before = world.state()
    words = [sys.executable, "-m", "tests.undo.random_changes", str(tmp_path), str(seed)]
    worker = warm.Popen(words, stdout=subprocess.PIPE, cwd=TREE)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    database = world.store / "journal.sqlite"
    until = random.Random(seed).randrange(1, 60)
    while not database.exists() or count(database) < until:
        assert worker.poll() is None
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    World(tmp_path).close()  # the next server
    assert not list(world.root.rglob(".coretools-*"))
    assert not list((tmp_path / "writes").iterdir())
    for one in world.recorder.journal.changes("", [str(world.root)]):
        assert world.undo.undo(change=one.id).kept == []
    assert world.state() == before
    world.undo.forget_changes(older_than_days=0)
    world.recorder.journal.forget_unknown(older_than=0)
    assert not list((world.store / "contents").iterdir())
    world.close()


def count(database: Path) -> int:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        (number,) = connection.execute("SELECT count(*) FROM changes").fetchone()
        return int(number)
    except sqlite3.Error:
        return 0
    finally:
        connection.close()


def test_through_a_client(tmp_path: Path) -> None:
    """undo-1, undo-6, undo-7: a wrong deletion is taken back by one call; commands don't reach the journal."""
    root, home = tmp_path / "root", tmp_path / "home"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("a = 1\n")
    home.mkdir()
    with peer(root, environment={"HOME": str(home)}) as client:
        client.start_session()
        deleted = client.call("delete_directory", path="src")
        change = deleted["_meta"]["coretools/facts"]["change"]
        assert f"undo change={change} brings it back" in deleted["content"][0]["text"]
        store = home / ".local/state/coretools/changes"
        assert store.stat().st_mode & 0o077 == 0
        seen = client.call("run_command", command=["sh", "-c", f"cat {store}/contents/* {store}/journal.sqlite; id"])
        assert "a = 1" not in seen["content"][0]["text"]
        assert client.call("read_file", path=str(next((store / "contents").iterdir())))["isError"]
        assert not client.call("undo", change=change).get("isError")
        assert (root / "src" / "a.py").read_text() == "a = 1\n"
    with peer(root, "--no-undo", environment={"HOME": str(home)}) as client:
        client.start_session()
        names = {tool["name"] for tool in client.ask("tools/list")["result"]["tools"]}
        assert not names & {"undo", "list_changes", "checkpoint"}
        assert "undo" not in client.call("delete_file", path="src/a.py")["content"][0]["text"]


def test_editor_settings_stay(world: World) -> None:
    """undo-10: settings that were made, and are there now, are not removed or replaced by an undo."""
    world.files.write_file(".vscode/settings.json", "{}", create_parents=True)
    with pytest.raises(DeniedPath):
        world.files.write_file(".vscode/settings.json", "{ }", overwrite=True)
    result = world.undo.undo(change=1)
    assert result.kept != []
    assert (world.root / ".vscode" / "settings.json").read_text() == "{}"
    with pytest.raises(CoreError):
        world.files.delete_directory(".vscode")


def test_a_dry_run_says_what_the_undo_will_do(world: World) -> None:
    """undo-2: also beneath directories that it would make again or move back first."""
    (world.root / "d" / "e").mkdir(parents=True)
    for name in ("d/a", "d/e/b"):
        (world.root / name).write_text(name)
    before = world.state()
    world.files.move_path("d", "moved")
    world.files.delete_directory("moved")
    tried = world.undo.undo(since=1, dry_run=True)
    done = world.undo.undo(since=1)
    assert done.message.startswith(tried.message.replace("would take back", "took back"))
    assert (tried.kept, done.kept) == ([], [])
    assert world.state() == before
