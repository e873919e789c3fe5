"""Attacks on the roots, judged by effect: nothing outside is read, named or changed, with either resolver."""

import os
import random
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from coretools.errors import CoreError, DeniedPath, NotFound, OutsideRoot, TooLarge, WrongType
from coretools.roots.directory_listing import list_directory
from coretools.roots.open_beneath import HANDLE, Openat2Resolver, Resolver, WalkResolver
from coretools.roots.read import file_status, kind_at, open_file, read_bytes
from coretools.roots.write import delete_file, move, write_bytes
from tests.roots.world import (
    CANARY,
    CHANGES,
    OPERATIONS,
    READS,
    SECRET,
    Operation,
    World,
    descriptors,
    mounted,
    opened,
    state,
    walk,
)


def attacks(world: World) -> dict[str, str]:
    """Paths to the canary's directory or file, by the way they take; links are created as needed."""
    outside = world.outside
    sibling = world.root.parent / "root-evil"
    sibling.mkdir()
    (sibling / "secret.txt").write_bytes(CANARY)
    world.link("out", outside)
    world.link("relative-out", "../outside")
    world.link("chain-1", "chain-2")
    world.link("chain-2", "dir/../out")
    world.link("through-proc-root", f"/proc/self/root{outside}")
    world.link("through-proc-cwd", "/proc/self/cwd")
    world.link("through-proc-fd", "/proc/self/fd")
    world.link("dir/up", "../..")
    world.link("sibling", "../root-evil")
    return {
        "dots": "../outside/secret.txt",
        "many dots": "../" * 40 + str(outside).lstrip("/") + "/secret.txt",
        "dots behind a directory": "dir/../../outside/secret.txt",
        "dots behind a link": "dir/up/outside/secret.txt",
        "absolute": f"{outside}/secret.txt",
        "absolute with dots": f"{world.root}/../outside/secret.txt",
        "file of the system": "/etc/passwd",
        "absolute link": "out/secret.txt",
        "relative link": "relative-out/secret.txt",
        "chain of links": "chain-1/secret.txt",
        "magic link to the root of the file system": "through-proc-root/secret.txt",
        "magic link to the working directory": "through-proc-cwd/pyproject.toml",
        "magic links of descriptors": "through-proc-fd/0",
        "sibling with the same beginning": f"{world.root}-evil/secret.txt",
        "sibling by dots": "../root-evil/secret.txt",
        "sibling by link": "sibling/secret.txt",
        "directory by link": "out/.",
        "directory by dots": "..",
        "another case": f"{world.root.parent}/ROOT/secret.txt",
        "link and back": f"out/../{world.root.name}-evil/secret.txt",
    }


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_no_operation_reaches_beyond_the_root(world: World, operation: Operation) -> None:
    """roots-1: every operation refuses every path that leads out, and nothing changes outside."""
    tried = attacks(world)
    before, inside, open_before = state(world.outside), state(world.root), descriptors()
    for what, path in tried.items():
        with pytest.raises(OutsideRoot):
            print(what, operation(world.roots, path))
        assert descriptors() == open_before, what
    assert state(world.outside) == before
    assert state(world.root) == inside


@pytest.mark.parametrize("operation", [*READS.values(), CHANGES["write"]], ids=[*READS, "write"])
def test_a_link_to_a_file_outside_is_not_followed(world: World, operation: Operation) -> None:
    """roots-1: also when the last component is the link."""
    world.link("out", world.outside / "secret.txt")
    before = state(world.outside)
    with pytest.raises(OutsideRoot):
        operation(world.roots, "out")
    assert state(world.outside) == before
    assert (world.root / "out").is_symlink()


def test_deleting_and_moving_a_link_act_on_the_link_itself(world: World) -> None:
    """roots-4: the target of a link is neither deleted nor moved."""
    before = state(world.outside)
    world.link("one", world.outside / "secret.txt")
    world.link("two", world.outside)
    delete_file(world.roots, "one")
    move(world.roots, "two", "three")
    assert not (world.root / "one").is_symlink()
    assert (world.root / "three").readlink() == world.outside
    assert state(world.outside) == before


def test_the_canary_is_in_no_error(world: World) -> None:
    """roots-1: an error reveals neither what exists outside nor the target of a link."""
    world.link("out", world.outside / "nothing-here")
    world.link("there", world.outside / "secret.txt")
    messages = []
    for path in ("out", "there"):
        with pytest.raises(OutsideRoot) as caught:
            read_bytes(world.roots, path, limit_bytes=100)
        messages.append(str(caught.value).removeprefix(path))
    assert messages[0] == messages[1]
    assert str(world.outside) not in messages[0]


@pytest.mark.parametrize("name", ["self", "first"])
def test_a_loop_of_links_ends_in_an_error(world: World, name: str) -> None:
    """roots-3: at most 40 links are followed."""
    world.link("self", "self")
    world.link("first", "dir/second")
    world.link("dir/second", "../first")
    for path in (name, f"{name}/file"):
        with pytest.raises(NotFound):
            read_bytes(world.roots, path, limit_bytes=100)
    assert file_status(world.roots, name).kind == "link"


def test_forty_links_are_followed_and_forty_one_are_not(world: World) -> None:
    """roots-3"""
    world.link("link-1", "plain.txt")
    for number in range(2, 42):
        world.link(f"link-{number}", f"link-{number - 1}")
    assert world.read("link-40") == b"plain"
    with pytest.raises(NotFound):
        world.read("link-41")


@pytest.mark.parametrize(
    ("name", "target", "path", "content"),
    [
        ("link", "plain.txt", "link", b"plain"),
        ("link", "dir", "link/inner.txt", b"inner"),
        ("link", "./dir//sub/", "link/deep.txt", b"deep"),
        ("link", "dir/sub", "link/../inner.txt", b"inner"),
        ("dir/link", "../plain.txt", "dir/link", b"plain"),
        ("link", "{root}/dir", "link/inner.txt", b"inner"),
        ("link", "{root}/dir/../plain.txt", "link", b"plain"),
        ("link", "../root/plain.txt", "link", b"plain"),
        ("link", "{root}", "link/plain.txt", b"plain"),
    ],
)
def test_links_that_stay_inside_are_followed(world: World, name: str, target: str, path: str, content: bytes) -> None:
    """roots-3: relative or absolute, to a file or to a directory on the way."""
    world.link(name, target.format(root=world.root))
    assert world.read(path) == content


@pytest.mark.parametrize(
    "path", ["dir/../plain.txt", "./plain.txt", "dir/sub/../../plain.txt", "//plain.txt", "dir/up/x"]
)
def test_dots_mean_what_the_kernel_means_by_them(world: World, path: str) -> None:
    """roots-3: `..` is the parent of the directory reached, not a text operation."""
    world.link("dir/up", "sub/..")
    (world.root / "dir" / "x").write_bytes(b"plain")
    if path.startswith("//"):
        path = f"{world.root}{path}"
    assert world.read(path) == b"plain"


def test_dots_don_t_make_a_missing_directory_disappear(world: World) -> None:
    """roots-3"""
    with pytest.raises(NotFound):
        world.read("missing/../plain.txt")
    assert kind_at(world.roots, "missing/../plain.txt") is None


def special_files(root: Path) -> tuple[str, ...]:
    """A FIFO, a bound socket, and as user 0 a character device; return their names."""
    os.mkfifo(root / "fifo")
    bound = socket.socket(socket.AF_UNIX)
    here = os.open(root, os.O_RDONLY)
    try:
        # The path of a socket has at most 107 bytes (unix(7)).
        bound.bind(f"/proc/self/fd/{here}/socket")
    finally:
        bound.close()
        os.close(here)
    try:
        os.mknod(root / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        return "fifo", "socket"
    return "fifo", "socket", "device"


def test_special_files_are_refused_without_blocking(world: World) -> None:
    """roots-5: only regular files have content; opening a FIFO would block until the test's timeout."""
    names = special_files(world.root)
    before = descriptors()
    for name in names:
        assert file_status(world.roots, name).kind == name
        for operation in (READS["open_file"], READS["open_directory"], CHANGES["write"]):
            with pytest.raises(WrongType, match=name):
                operation(world.roots, name)
    assert descriptors() == before
    kinds = {entry.name: entry.kind for entry in list_directory(world.roots, ".", limit=99).entries}
    assert {name: kinds[name] for name in names} == {name: name for name in names}


def test_a_writer_that_waits_at_a_fifo_goes_on_waiting(world: World) -> None:
    """roots-5: a FIFO is refused by its type, before it is opened."""
    os.mkfifo(world.root / "fifo")
    with subprocess.Popen(["sh", "-c", "echo waiting; echo content > fifo"], cwd=world.root, stdout=-1) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(1000):
            with pytest.raises(WrongType):
                open_file(world.roots, "fifo")
        assert writer.poll() is None
        writer.kill()


def test_a_huge_sparse_file_is_refused_by_its_size(world: World) -> None:
    """roots-6: none of it is read."""
    with (world.root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLarge) as caught:
        read_bytes(world.roots, "sparse", limit_bytes=1 << 30)
    assert caught.value.facts["size"] == 1 << 40


DENIED = {
    "itself": ".env",
    "in a directory": "dir/.env",
    "by dots": "dir/../.env",
    "by dots and links": "to-dir/../.env",
    "by a link": "innocent",
    "by a chain": "innocent-2",
    "by an absolute link": "innocent-3",
    "by a link to its directory": "to-git/config",
    "absolute": "{root}/.env",
    "beneath a covered directory": ".ssh/known_hosts",
    "covered directory by a link": "to-ssh/known_hosts",
    "a link with a covered name": "dir/.netrc",
    "another case": ".SSH/known_hosts",
}


def test_a_deny_glob_holds_for_every_spelling(world: World) -> None:
    """roots-7: reads and writes of a denied file are refused, whatever path leads to it."""
    for directory in (".git", ".ssh"):
        (world.root / directory).mkdir()
    for name in (".env", "dir/.env", ".git/config", ".ssh/known_hosts"):
        (world.root / name).write_bytes(SECRET)
    world.link("to-dir", "dir")
    world.link("innocent", ".env")
    world.link("innocent-2", "innocent")
    world.link("innocent-3", world.root / "dir" / "sub" / ".." / ".env")
    world.link("to-git", ".git")
    world.link("to-ssh", ".ssh")
    world.link("dir/.netrc", "inner.txt")
    before = state(world.root)
    with opened(world.root, resolver=world.roots.resolver_name, deny=(".netrc",)) as roots:
        open_before = descriptors()
        for path in DENIED.values():
            for name, operation in {**READS, "write": CHANGES["write"]}.items():
                with pytest.raises(DeniedPath):
                    operation(roots, path.format(root=world.root))
                assert state(world.root) == before, (path, name)
                assert descriptors() == open_before, (path, name)


@pytest.mark.parametrize(
    "path", ["new/.kube/x", "to-dir/new/.aws", ".git/hooks/pre-commit", "dir/.gnupg/x", ".SSH/new"]
)
def test_nothing_closed_is_created(world: World, path: str) -> None:
    """roots-7: neither as a parent directory."""
    world.link("to-dir", "dir")
    before = state(world.root)
    with pytest.raises(DeniedPath):
        write_bytes(world.roots, path, b"content", parents=True)
    assert state(world.root) == before


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (".env", "open.txt"),
        ("plain.txt", ".env"),
        ("plain.txt", ".git/hooks/post-checkout"),
        (".git", "g"),
        ("dir", ".ssh"),
        (".git/hooks", "hooks"),
        ("to-git/hooks", "hooks"),
        ("dir", "sub/.git"),
        (".docker", "d"),
        ("dir", ".cargo"),
    ],
)
def test_a_move_does_not_open_what_is_closed(world: World, source: str, destination: str) -> None:
    """roots-8: a directory whose name is part of a glob is not moved, and nothing is moved to its path."""
    (world.root / ".git" / "hooks").mkdir(parents=True)
    (world.root / "sub").mkdir()
    (world.root / ".docker").mkdir()
    (world.root / ".env").write_bytes(SECRET)
    world.link("to-git", ".git")
    before = state(world.root)
    with pytest.raises(DeniedPath):
        move(world.roots, source, destination)
    assert state(world.root) == before


def test_a_closed_file_is_named_in_a_listing_and_left_out_of_a_walk(world: World) -> None:
    """roots-7: listings contain denied names; walks contain names that only the content could deny."""
    (world.root / ".env").write_bytes(SECRET)
    (world.root / ".ssh").mkdir()
    (world.root / ".ssh" / "config").write_bytes(CANARY)
    names = [entry.name for entry in list_directory(world.roots, ".", limit=99).entries]
    assert {".env", ".ssh"} <= set(names)
    walked = [relative for relative, _ in walk(world.roots, ".", choose=lambda _, found: found, most=99)]
    assert walked == [".env", "dir", "dir/inner.txt", "dir/sub", "dir/sub/deep.txt", "plain.txt"]


def test_a_hard_link_to_a_file_outside_is_read_and_never_written_through(world: World) -> None:
    """roots-9: it is an ordinary file of the root; a write gives the name a new inode."""
    os.link(world.outside / "secret.txt", world.root / "hard")
    assert world.read("hard") == CANARY
    write_bytes(world.roots, "hard", b"changed")
    assert world.read("hard") == b"changed"
    assert (world.outside / "secret.txt").read_bytes() == CANARY


def test_a_proc_file_system_in_the_root_leads_nowhere_outside(world: World) -> None:
    """roots-1: magic links of /proc are read as text, never followed by the kernel."""
    with mounted("proc", "ro", world.root / "proc"):
        before = descriptors()
        for way in ("self/root", "self/cwd", "thread-self/root"):
            with pytest.raises(OutsideRoot):
                read_bytes(world.roots, f"proc/{way}{world.outside}/secret.txt", limit_bytes=100)
        with (world.outside / "secret.txt").open("rb") as secret, pytest.raises(OutsideRoot):
            read_bytes(world.roots, f"proc/self/fd/{secret.fileno()}", limit_bytes=100)
        assert descriptors() == before


def outcome(world: World, path: str) -> bytes | str:
    try:
        return world.read(path)
    except CoreError as error:
        return error.kind


@pytest.mark.parametrize("seed", range(30))
def test_what_is_read_is_what_the_kernel_would_read_and_lies_inside(world: World, seed: int) -> None:
    """roots-1, roots-3: random trees of directories and links, random paths; realpath(3) is the reference."""
    chance = random.Random(seed)
    names = ["a", "b", "c", "dir", "sub"]
    directories = [world.root, world.root / "dir", world.root / "dir" / "sub"]
    for number in range(12):
        place = chance.choice(directories) / chance.choice(names)
        kind = chance.choice(["directory", "file", "link", "link"])
        if os.path.lexists(place):
            continue
        if kind == "directory":
            place.mkdir()
            directories.append(place)
        elif kind == "file":
            place.write_bytes(b"content %d" % number)
        else:
            steps = [chance.choice([*names, "..", "."]) for _ in range(chance.randint(1, 4))]
            start = chance.choice(["", "", f"{world.root}/", f"{world.outside}/", "../outside/"])
            place.symlink_to(start + "/".join(steps))
    real_root = os.path.realpath(world.root)
    for _ in range(60):
        path = "/".join(chance.choice([*names, "..", "secret.txt"]) for _ in range(chance.randint(1, 6)))
        real = Path(os.path.realpath(world.root / path))
        read = outcome(world, path)
        if isinstance(read, bytes):
            assert str(real).startswith(f"{real_root}/"), path
            assert read == real.read_bytes(), path
        else:
            assert read in {"outside-root", "not-found", "wrong-type"}, path


@pytest.mark.parametrize("engine", [Openat2Resolver(), WalkResolver()], ids=["openat2", "walk"])
def test_a_resolver_opens_no_path_with_a_link_in_it(world: World, engine: Resolver, resolver: str) -> None:
    """roots-2: the path that was opened names the file that was reached."""
    if engine.name != resolver:
        return
    world.link("link", "dir")
    world.link("dir/link", "sub")
    root = world.roots.first
    before = descriptors()
    for path in ("link", "link/sub", "dir/link", "plain.txt/x"):
        with pytest.raises(OSError, match=r"ymbolic|irectory"):
            engine.open(root.fd, path, HANDLE)
    assert descriptors() == before
    fd = engine.open(root.fd, "dir/sub", HANDLE)
    assert os.path.samestat(os.fstat(fd), (world.root / "dir" / "sub").stat())
    os.close(fd)
