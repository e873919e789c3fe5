"""Whether a suspect is hidden, by its content and by git's index, and that the tools apply it, with either resolver."""

import os
import subprocess
from pathlib import Path

import pytest

from coretools.errors import DeniedPath
from coretools.roots.directory_listing import list_directory
from coretools.roots.hidden_inodes import inode_of
from coretools.roots.read import file_status, open_file
from coretools.roots.root_set import Roots
from coretools.roots.secret_check import MAX_LEVELS, NO_FILE, UNDECIDED, UNREADABLE
from coretools.roots.secret_formats import MAX_BYTES
from coretools.roots.write import delete_file, move, write_bytes
from tests.roots.world import SECRET, World, descriptors, opened

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ0ZQ\n-----END CERTIFICATE-----\n"
KEY = CERTIFICATE.replace(b"CERTIFICATE", b"PRIVATE KEY")


def git(directory: Path, *words: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    argv = ("git", "-c", "user.name=x", "-c", "user.email=x@x", *words)
    subprocess.run(argv, cwd=directory, env=environment, check=True, capture_output=True)


def why(roots: Roots, path: str) -> str:
    """The reason why a tool refuses to read a file; "" if it reads it."""
    try:
        with open_file(roots, path) as file:
            file.read(1 << 24)
    except DeniedPath as error:
        return str(error.facts["reason"])
    return ""


@pytest.mark.parametrize(
    ("name", "content"),
    [(".env", b""), ("cacert.pem", CERTIFICATE * 2000), (".npmrc", b"package-lock=false\n"), (".env.example", SECRET)],
)
def test_a_suspect_without_a_secret_is_a_file_like_any_other(world: World, name: str, content: bytes) -> None:
    """secret-files-1: it can be read, replaced, moved and deleted."""
    (world.root / name).write_bytes(content)
    assert world.read(name) == content
    write_bytes(world.roots, name, b"# changed\n")
    assert move(world.roots, name, "moved") == (name, "moved")
    assert delete_file(world.roots, "moved") == "moved"


def test_a_secret_is_closed_for_every_change(world: World) -> None:
    """secret-files-3: it cannot be replaced, moved, overwritten by a move, deleted or queried; its name is listed."""
    (world.root / ".env").write_bytes(SECRET)
    before = descriptors()
    for act in (
        lambda: file_status(world.roots, ".env"),
        lambda: write_bytes(world.roots, ".env", b""),
        lambda: move(world.roots, ".env", "x"),
        lambda: move(world.roots, "plain.txt", ".env", overwrite=True),
        lambda: delete_file(world.roots, ".env"),
    ):
        with pytest.raises(DeniedPath, match=r"\.env: hidden, since it holds values of environment variables; "):
            act()
    assert descriptors() == before
    assert (world.root / ".env").read_bytes() == SECRET
    assert ".env" in [entry.name for entry in list_directory(world.roots, ".", limit=99).entries]


def test_a_secret_can_be_written_where_none_is(world: World) -> None:
    """secret-files-3: its writer knows the content; from then on it is hidden."""
    write_bytes(world.roots, "new/.env", SECRET, parents=True)
    assert why(world.roots, "new/.env") == "it holds values of environment variables"
    with pytest.raises(DeniedPath):
        write_bytes(world.roots, "new/.env", b"")


def test_a_link_is_classified_by_its_target(world: World) -> None:
    """secret-files-1"""
    (world.root / ".env").write_bytes(SECRET)
    world.link("open", ".env")
    world.link("prod.env", "plain.txt")
    assert why(world.roots, "open")
    assert why(world.roots, "prod.env") == ""
    assert delete_file(world.roots, "open") == "open"


def test_what_can_not_be_decided_is_hidden(world: World) -> None:
    """secret-files-2: FIFOs, unreadable files, and text that is too long."""
    os.mkfifo(world.root / "fifo.env")
    (world.root / "long.pem").write_bytes(b"#\n" * MAX_BYTES)
    (world.root / "long.key").write_bytes(bytes(MAX_BYTES * 2))
    (world.root / "late.pem").write_bytes(CERTIFICATE * 2000 + KEY)
    (world.root / "deep.env").mkdir()
    assert why(world.roots, "long.pem") == UNDECIDED
    assert why(world.roots, "long.key") == ""
    assert why(world.roots, "late.pem") == "it holds a private key"
    place = world.roots.place("fifo.env")
    assert world.roots.hidden(place) == NO_FILE
    assert world.roots.hidden(world.roots.place("deep.env")) == ""
    if os.geteuid() != 0:
        (world.root / "closed.env").write_bytes(b"")
        (world.root / "closed.env").chmod(0)
        assert world.roots.hidden(world.roots.place("closed.env")) == UNREADABLE


def test_a_repository_is_looked_for_in_the_nearest_directories_upwards(world: World) -> None:
    """secret-files-2: the number of lookups for a decision is bounded, however deep the tree."""
    (world.root / ".env").write_bytes(SECRET)
    deep = "/".join(["d"] * 500)
    os.makedirs(world.root / deep)
    (world.root / deep / ".env").write_bytes(SECRET)
    top = (world.roots.first.path, world.roots.first.fd)
    decision = world.roots.secret_check.decide(top, f"{deep}/.env", "environment")
    assert decision.reason
    assert len(decision.index_paths) == MAX_LEVELS


def test_the_opened_file_is_the_classified_file(world: World) -> None:
    """secret-files-4: an empty file that is replaced by a secret between check and open is refused."""
    (world.root / ".env").write_bytes(b"")
    (world.root / "other").write_bytes(SECRET)
    for _ in range(200):
        (world.root / ".env").write_bytes(b"")
        with subprocess.Popen(["mv", "other", ".env"], cwd=world.root) as swap:
            try:
                with open_file(world.roots, ".env") as file:
                    assert file.read(99) == b""
            except DeniedPath:
                pass
            swap.wait()
        (world.root / "other").write_bytes(SECRET)


@pytest.mark.parametrize("glob", ["!.env", "!/app/.env"])
def test_the_operator_opens_by_name(world: World, glob: str) -> None:
    """roots-7, secret-files-7"""
    (world.root / "app").mkdir()
    (world.root / "app" / ".env").write_bytes(SECRET)
    with opened(world.root, resolver=world.roots.resolver_name, deny=(glob,)) as roots:
        assert why(roots, "app/.env") == ""
    assert why(world.roots, "app/.env")


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_what_git_holds_with_the_same_content_is_readable(world: World, algorithm: str) -> None:
    """secret-files-5: staged is enough; changed, it is hidden again, and so is the same content elsewhere."""
    git(world.root, "init", "-q", f"--object-format={algorithm}")
    (world.root / "a").mkdir()
    (world.root / "a" / ".env").write_bytes(SECRET)
    assert why(world.roots, "a/.env")
    git(world.root, "add", "--all")
    assert why(world.roots, "a/.env") == ""
    (world.root / ".env").write_bytes(SECRET)
    assert why(world.roots, ".env")
    (world.root / "a" / ".env").write_bytes(SECRET + SECRET)
    assert why(world.roots, "a/.env")
    git(world.root, "update-index", "--force-remove", "a/.env")
    (world.root / "a" / ".env").write_bytes(SECRET)
    assert why(world.roots, "a/.env")


def test_line_ends_that_git_changed_make_no_difference(world: World) -> None:
    """secret-files-5: with core.autocrlf the index has the id of the content with LF."""
    git(world.root, "init", "-q")
    git(world.root, "config", "core.autocrlf", "true")
    (world.root / ".env").write_bytes(b"A=1\r\nB=2\r\n")
    git(world.root, "add", "--all")
    assert why(world.roots, ".env") == ""


def test_a_name_in_the_index_opens_nothing(world: World) -> None:
    """secret-files-5: a command may write any name into an index, but not the id of content that it has not read."""
    git(world.root, "init", "-q")
    (world.root / ".env").write_bytes(SECRET)
    blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    git(world.root, "update-index", "--add", "--cacheinfo", f"100644,{blob},.env")
    assert why(world.roots, ".env")


def test_worktrees_and_submodules_have_an_index_of_their_own(world: World) -> None:
    """secret-files-5: beneath a root; a `.git` that leads outside is ignored."""
    main = world.root / "main"
    main.mkdir()
    git(main, "init", "-q")
    (main / "test.pem").write_bytes(KEY)
    git(main, "add", "--all")
    git(main, "commit", "-qm", "x")
    git(main, "worktree", "add", "-q", str(world.root / "second"))
    git(main, "worktree", "add", "-q", str(world.outside / "third"))
    assert why(world.roots, "main/test.pem") == ""
    assert why(world.roots, "second/test.pem") == ""
    (world.root / "fourth").mkdir()
    (world.root / "fourth" / "test.pem").write_bytes(KEY)
    git(world.outside, "init", "-q", "repository")
    (world.outside / "repository" / "test.pem").write_bytes(KEY)
    git(world.outside / "repository", "add", "--all")
    (world.root / "fourth" / ".git").write_text(f"gitdir: {world.outside}/repository/.git\n")
    assert why(world.roots, "fourth/test.pem")


@pytest.mark.parametrize("index", [b"", b"DIRC", b"x" * 5000], ids=["empty", "cut", "no index"])
def test_an_index_that_is_none_opens_nothing(world: World, index: bytes) -> None:
    """secret-files-5"""
    git(world.root, "init", "-q")
    (world.root / ".env").write_bytes(SECRET)
    (world.root / ".git" / "index").write_bytes(index)
    assert why(world.roots, ".env")
    (world.root / ".git" / "index").unlink()
    os.mkfifo(world.root / ".git" / "index")
    assert why(world.roots, ".env")
    (world.root / ".git" / "index").unlink()
    world.link(".git/index", world.outside / "secret.txt")
    assert why(world.roots, ".env")


def test_a_root_in_a_repository_that_is_a_root_finds_its_index(world: World) -> None:
    """secret-files-5: of nested roots the enclosing one may contain the repository."""
    git(world.root, "init", "-q")
    (world.root / "dir" / ".env").write_bytes(SECRET)
    git(world.root, "add", "--all")
    with opened(world.root, world.root / "dir", resolver=world.roots.resolver_name) as roots:
        assert why(roots, str(world.root / "dir" / ".env")) == ""


def test_what_was_hidden_stays_hidden_for_tools_under_another_name(world: World) -> None:
    """secret-files-6: files and directories by their inodes; a new file is open."""
    (world.root / ".env").write_bytes(SECRET)
    (world.root / ".ssh").mkdir()
    (world.root / ".ssh" / "notes").write_bytes(b"notes")
    root = world.roots.first
    for path, kind in ((".env", "environment"), (".ssh", "deny glob .ssh")):
        inode = inode_of(path, root.fd)
        assert inode is not None
        world.roots.hidden_inodes.remember(inode, kind)
    (world.root / ".env").rename(world.root / "notes.txt")
    (world.root / ".ssh").rename(world.root / "dir" / "s")
    assert why(world.roots, "notes.txt") == "it holds values of environment variables"
    assert why(world.roots, "dir/s/notes")
    with pytest.raises(DeniedPath):
        move(world.roots, "notes.txt", "again.txt")
    assert world.read("plain.txt") == b"plain"
    (world.root / "notes.txt").unlink()
    (world.root / "notes.txt").write_bytes(SECRET)
    assert world.read("notes.txt") == SECRET
