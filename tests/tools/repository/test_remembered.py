"""A look at a repository that is remembered: it holds exactly as long as nothing that it saw has changed."""

import ctypes
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coretools.confinement.domain import Domains
from coretools.errors import CoreError, GitRefused
from coretools.process.confined import Confined
from coretools.process.runner import Runner
from coretools.sandbox.deny import DEFAULT_DENY, DenyRules
from coretools.sandbox.inside import SETTLED_NS
from coretools.sandbox.roots import Roots, RootSpec
from coretools.settings import Limits
from coretools.tools.repository.checkout import Checkouts
from coretools.tools.repository.configuration import REMEMBERED
from coretools.tools.repository.remembered import ENTRIES, LISTED_BYTES
from coretools.tools.repository.tools import Repository
from tests.sandbox.world import descriptors, mounted
from tests.tools.repository.outer_traps import OUTER_PROGRAMS, OUTER_REDIRECTIONS
from tests.tools.repository.traps import PROGRAMS, REDIRECTIONS, Trap, snapshot
from tests.tools.repository.world import SECRET, World

TRIES = 50
PATIENT_TRIES = 20_000
"""Other programs of the machine may mount all the time."""

Change = Callable[[World], object]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).filled()


@pytest.fixture
def checkouts(world: World) -> Iterator[Checkouts]:
    yield from _checkouts(RootSpec(str(world.root)))


def _checkouts(*specs: RootSpec, resolver: str | None = None) -> Iterator[Checkouts]:
    domains = Domains()
    runner = Runner(Limits(), {"PATH": os.environ["PATH"]})
    with Roots(specs, deny=DenyRules(DEFAULT_DENY), resolver=resolver) as roots:
        yield Checkouts(roots, Confined(runner, domains))
    domains.close()


def holds(checkouts: Checkouts, repository: str = "work", tries: int = PATIENT_TRIES) -> bool:
    """Asked again and again: the kernel says EAGAIN also where a mount anywhere changes at the same moment."""
    for _ in range(tries):
        with checkouts.at_once(repository) as checkout:
            if checkout is not None:
                return True
    return False


def look(checkouts: Checkouts, world: World, repository: str = "work") -> None:
    """Look once the last change is long enough ago for a look to be remembered."""
    while is_settling(world.git_dir):
        with checkouts.opened(repository):
            pass
    with checkouts.opened(repository):
        pass


def is_settling(directory: Path) -> bool:
    """Whether something in it changed too short a while ago for a look to be remembered."""
    latest = max(path.lstat().st_ctime_ns for path in (directory, *directory.rglob("*")))
    return time.time_ns() - latest <= SETTLED_NS


@pytest.fixture(autouse=True)
def _is_possible(world: World, checkouts: Checkouts) -> None:
    """Skips by name where it never happens, so that nothing here passes for that reason."""
    look(checkouts, world)
    if not holds(checkouts, tries=TRIES):
        pytest.skip("RESOLVE_CACHED: this kernel or file system lacks it")


def test_a_look_that_holds_gives_the_same_checkout(world: World, checkouts: Checkouts) -> None:
    """repository-35: with handles of its own, which are closed."""
    look(checkouts, world)
    before = descriptors()
    assert holds(checkouts)
    with checkouts.opened("work") as fresh, checkouts.at_once("work") as held:
        assert held is not None
        for name in ("environment", "git_path", "common_path", "policy", "hooks", "under_way", "domain", "tier"):
            assert getattr(held, name) == getattr(fresh, name), name
        assert [rights for _, rights in held.rules] == [rights for _, rights in fresh.rules]
        assert (held.directory.place, held.directory.shown) == (fresh.directory.place, fresh.directory.shown)
        assert os.path.samestat(os.fstat(held.directory.fd), os.fstat(fresh.directory.fd))
    assert descriptors() == before


@pytest.mark.parametrize("spelling", ["work", "./work", "work/", "work/.", "{root}/work"])
def test_a_look_holds_for_every_spelling(world: World, checkouts: Checkouts, spelling: str) -> None:
    """repository-35"""
    look(checkouts, world, "work/folder")
    assert holds(checkouts, spelling.format(root=world.root))


@pytest.mark.parametrize("other", ["work/folder", "work/nothing", "other", "../root/work", ".", "", "a\0b", "/"])
def test_nothing_is_remembered_of_another_directory(world: World, checkouts: Checkouts, other: str) -> None:
    """repository-35: and nothing is raised; the look says what is wrong."""
    look(checkouts, world)
    before = descriptors()
    assert not holds(checkouts, other, tries=TRIES)
    assert descriptors() == before


def _touched(name: str) -> Change:
    """Write the same content again, and set the time of modification back."""

    def change(world: World) -> None:
        path = world.git_dir / name
        before = path.stat()
        path.write_bytes(path.read_bytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return change


def _made(name: str) -> Change:
    def change(world: World) -> None:
        path = world.git_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")

    return change


def _exchanged(world: World) -> None:
    """Another git directory, of the same name."""
    world.git_dir.rename(world.root / "old")
    other = World(world.top / "other").filled()
    other.git_dir.rename(world.git_dir)


CHANGES: tuple[Change, ...] = (
    *(_touched("config"), _made("config.worktree"), _made("commondir"), _made("MERGE_HEAD"), _made("info/more")),
    *(_made("objects/info/alternates"), _made("objects/pack/more"), _made("objects/more")),
    lambda world: (world.git_dir / "HEAD").unlink(),
    lambda world: (world.git_dir / "config").rename(world.git_dir / "config.old"),
    _exchanged,
    lambda world: world.git_dir.rename(world.root / "gone"),
    lambda world: world.repository.rename(world.root / "gone"),
)


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_ends_a_look(world: World, checkouts: Checkouts, change: Change) -> None:
    """repository-35: also one that sets times back."""
    look(checkouts, world)
    assert holds(checkouts)
    change(world)
    assert not holds(checkouts, tries=TRIES)


ORDINARY: tuple[Change, ...] = (
    lambda world: world.write("another.txt", "x"),
    lambda world: world.git("status"),
    lambda world: world.git("add", "a.txt"),
    lambda world: world.git("branch", "another"),
)


@pytest.mark.parametrize("change", ORDINARY)
def test_what_a_look_does_not_see_ends_none(world: World, checkouts: Checkouts, change: Change) -> None:
    """repository-35: work on files, and what git itself does all the time."""
    for number in range(256):
        (world.git_dir / "objects" / f"{number:02x}").mkdir(exist_ok=True)
    look(checkouts, world)
    change(world)
    assert holds(checkouts)


def test_a_git_directory_full_of_files_is_not_remembered(world: World, checkouts: Checkouts) -> None:
    """repository-35: as it would be listed with each call."""
    while len(os.listdir(world.git_dir)) < ENTRIES:
        (world.git_dir / f"file{len(os.listdir(world.git_dir))}").touch()
    look(checkouts, world)
    assert holds(checkouts)
    (world.git_dir / "one-more").touch()
    assert not holds(checkouts, tries=TRIES)
    look(checkouts, world)
    assert not holds(checkouts, tries=TRIES)


def test_a_repository_that_changed_just_now_is_looked_at_again(world: World, checkouts: Checkouts) -> None:
    """repository-35: the next change need not show in its stamps."""
    _touched("config")(world)
    with checkouts.opened("work"):
        assert not is_settling(world.git_dir) or not holds(checkouts, tries=TRIES)


def _including(name: str) -> Change:
    def change(world: World) -> None:
        path = world.git_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("[user]\n\tname = x\n")
        world.git("config", "include.path", os.path.normpath(path) if "shared" in name else name)

    return change


def _borrowing(world: World) -> None:
    store = world.root / "store"
    store.mkdir()
    (world.git_dir / "objects" / "info" / "alternates").write_text(f"{store}\n")


def _pointing(world: World) -> None:
    world.git_dir.rename(world.root / "separate")
    world.git_dir.write_text("gitdir: ../separate\n")


def _common(world: World) -> None:
    (world.git_dir / "commondir").write_text(".\n")


INCLUDED = ("more", "../config", "../folder/config.worktree", "../../shared/config")


@pytest.mark.parametrize("made", [*map(_including, INCLUDED), _borrowing, _pointing, _common])
def test_what_is_not_all_in_one_place_is_looked_at_again(world: World, checkouts: Checkouts, made: Change) -> None:
    """repository-35: an included file, a store or a git directory elsewhere could change unseen."""
    made(world)
    while is_settling(world.root):
        with checkouts.opened("work"):
            pass
    with checkouts.opened("work"):
        pass
    assert not holds(checkouts, tries=TRIES)


def test_a_list_of_alternates_that_was_empty_is_read_again(world: World, checkouts: Checkouts) -> None:
    """repository-35, repository-13: written in place, so that no directory changes."""
    alternates = world.git_dir / "objects" / "info" / "alternates"
    alternates.write_text("# none yet\n")
    look(checkouts, world)
    assert holds(checkouts)
    alternates.write_text(f"{world.outside}\n")
    assert not holds(checkouts, tries=TRIES)
    with pytest.raises(GitRefused, match="alternates"), checkouts.opened("work"):
        pass


def test_a_git_directory_that_was_full_is_not_listed(world: World, checkouts: Checkouts) -> None:
    """repository-35: 11 names in a directory of megabytes take milliseconds to list."""
    for number in range(1000):
        (world.git_dir / f"{number:0250d}").touch()
    for number in range(1000):
        (world.git_dir / f"{number:0250d}").unlink()
    if world.git_dir.stat().st_size <= LISTED_BYTES:
        pytest.skip("directories shrink on this file system")
    look(checkouts, world)
    assert not holds(checkouts, tries=TRIES)


def test_a_root_that_was_moved_to_the_place_is_not_used(world: World) -> None:
    """repository-35, sandbox-17"""
    other = world.top / "other"
    other.mkdir()
    for checkouts in _checkouts(RootSpec(str(world.root)), RootSpec(str(other))):
        look(checkouts, world)
        assert holds(checkouts)
        world.git_dir.rename(other / ".git")
        world.repository.rename(world.top / "old")
        other.rename(world.repository)
        assert not holds(checkouts, tries=TRIES)


@pytest.mark.parametrize("name", [".", ".git", ".git/config", ".git/info", ".git/objects", ".git/objects/pack"])
def test_a_file_system_that_never_answers_holds_nobody_up(world: World, checkouts: Checkouts, name: str) -> None:
    """repository-35: FUSE without a server. One that is held up is let go after half a minute, and has failed."""
    look(checkouts, world)
    said: list[bool] = []
    asking = threading.Thread(target=lambda: said.append(holds(checkouts, tries=TRIES)), daemon=True)
    with silent(world.repository / name):
        asking.start()
        asking.join(30)
        found = list(said)
    assert found == [False]


@contextmanager
def silent(place: Path) -> Iterator[None]:
    """A file system of which nobody answers; skips where that is not allowed."""
    mode = stat.S_IFMT(place.stat().st_mode)
    try:
        connection = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("FUSE: not here")
    try:
        options = f"fd={connection},rootmode={mode:o},user_id=0,group_id=0"
        if ctypes.CDLL(None).mount(b"silent", os.fsencode(place), b"fuse", 0, options.encode()) != 0:
            pytest.skip("mount: not allowed here")
        yield
    finally:
        os.close(connection)  # whoever waits is told that nobody is there
        subprocess.run(["umount", "--lazy", str(place)], stderr=subprocess.DEVNULL, check=False)


def test_a_git_directory_that_is_mounted_over_is_looked_at(world: World, checkouts: Checkouts) -> None:
    """repository-35: no name in the work tree changes with a mount."""
    look(checkouts, world)
    with mounted("tmpfs", "size=1m", world.git_dir):
        assert not holds(checkouts, tries=TRIES)
    assert holds(checkouts)


@pytest.mark.parametrize("name", [".git", ".git/objects"])
def test_what_lies_on_another_mount_is_looked_at_each_time(world: World, checkouts: Checkouts, name: str) -> None:
    """repository-35: another machine may serve it, and what is known of it without asking may be old."""
    place = world.repository / name
    there = place.rename(world.root / "there")
    with mounted("tmpfs", "size=1m", place):
        shutil.copytree(there, place, dirs_exist_ok=True)
        look(checkouts, world)
        assert not holds(checkouts, tries=TRIES)


def test_the_other_resolver_and_nested_roots_look_each_time(world: World) -> None:
    """repository-35"""
    for checkouts in _checkouts(RootSpec(str(world.root)), resolver="walk"):
        look(checkouts, world)
        assert not holds(checkouts, tries=TRIES)
    for checkouts in _checkouts(RootSpec(str(world.root)), RootSpec(str(world.repository / "folder"))):
        look(checkouts, world)
        assert not holds(checkouts, tries=TRIES)


def test_only_so_many_are_remembered(world: World, checkouts: Checkouts) -> None:
    """repository-35: the one looked at longest ago goes."""
    for number in range(REMEMBERED):
        world.git("init", "--quiet", str(world.root / f"r{number}"), cwd=world.root)
    look(checkouts, world)
    while is_settling(world.root / f"r{REMEMBERED - 1}"):
        assert holds(checkouts)
    for number in range(REMEMBERED):
        with checkouts.opened(f"r{number}"):
            pass
    assert holds(checkouts, "r0")
    assert not holds(checkouts, tries=TRIES)


async def test_a_program_that_is_named_after_the_look_does_not_run(tmp_path: Path) -> None:
    """repository-35, repository-12, repository-15"""
    for trap, world in _for_each((*PROGRAMS, *OUTER_PROGRAMS), tmp_path):
        async with world.tools() as tools:
            await _status_until_remembered(world, tools)
            trap.lay(world)
            before = snapshot(world)
            said = "\n".join(await _read(tools))
        assert snapshot(world) == before, trap.name
        assert SECRET not in said, trap.name
        if not trap.name.endswith("hooks of the repository"):  # told by git_commit alone
            assert trap.tells in said, trap.name


async def test_what_leads_out_after_the_look_is_refused(tmp_path: Path) -> None:
    """repository-35, repository-13"""
    for trap, world in _for_each((*REDIRECTIONS, *OUTER_REDIRECTIONS), tmp_path):
        async with world.tools() as tools:
            await _status_until_remembered(world, tools)
            trap.lay(world)
            before = snapshot(world)
            said = await _read(tools)
        assert snapshot(world) == before, trap.name
        assert all(text.startswith("git-refused: ") and trap.tells in text for text in said), (trap.name, said)


def _for_each(traps: tuple[Trap, ...], top: Path) -> list[tuple[Trap, World]]:
    """A world for each, all made at once: while the first is used, the others have settled."""
    return [(trap, World(top / str(number)).filled()) for number, trap in enumerate(traps)]


async def _read(tools: Repository) -> list[str]:
    said = []
    for call in (tools.git_status, tools.git_log, tools.git_diff, tools.git_branches, tools.git_current_branch):
        try:
            said.append((await call("work")).text())
        except CoreError as error:
            said.append(f"{error.kind}: {error}")
    return said


async def _status_until_remembered(world: World, tools: Repository) -> None:
    while is_settling(world.git_dir):
        await tools.git_status("work")
    await tools.git_status("work")
    await tools.git_status("work")


async def test_calls_that_use_a_look_leave_nothing_open(world: World) -> None:
    """repository-35: answers, refusals and errors alike."""
    async with world.tools() as tools:
        await _status_until_remembered(world, tools)
        before = descriptors()
        for _ in range(20):
            await tools.git_status("work")
            await tools.git_diff("work")
            with pytest.raises(CoreError):
                await tools.git_log("work", "no-such-revision")
        assert descriptors() == before
