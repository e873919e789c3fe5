"""Which directories can be roots, which root a path belongs to, and what happens when a root is removed."""

import contextlib
import os
from pathlib import Path

import pytest

from coretools.errors import BadSetting, DeniedPath, InvalidPath, OutsideRoot, ReadOnly, RootGone, WrongType
from coretools.roots import open_beneath as openat2
from coretools.roots.directory_listing import list_directory
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import kind_at, open_directory, read_bytes
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.write import create_directory, delete_file, move, write_bytes
from tests.roots.world import CHANGES, OPERATIONS, PLENTY, READS, Operation, World, descriptors, opened, state, walk


@pytest.mark.parametrize(
    "path",
    ["/", "//", "/proc/self/root", "/proc", "/proc/self", "/sys", "/dev", "missing", "file", "", "~", "self-link"],
)
def test_a_root_must_be_a_directory_of_files(tmp_path: Path, resolver: str, path: str) -> None:
    """roots-13: an invalid root fails at start and leaks no descriptor."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "self-link").symlink_to("/")
    (tmp_path / "good").mkdir()
    before = descriptors()
    with pytest.raises((BadSetting, InvalidPath)):
        opened(tmp_path / "good", RootSpec(str(tmp_path / path) if path else path), resolver=resolver)
    assert descriptors() == before


def test_roots_need_at_least_one_directory_and_each_only_once(tmp_path: Path) -> None:
    """roots-13"""
    (tmp_path / "link").symlink_to(tmp_path)
    for specs in ([], [RootSpec(str(tmp_path)), RootSpec(str(tmp_path / "link"), writable=False)]):
        with pytest.raises(BadSetting):
            Roots(specs, deny=DenyRules([]))


def test_the_resolver_is_detected_in_an_unreadable_working_directory(tmp_path: Path) -> None:
    """roots-2: a server started as another user may have a working directory that this user cannot read."""
    is_available = openat2.openat2_available()
    is_root = os.geteuid() == 0
    with contextlib.chdir(tmp_path):
        tmp_path.chmod(0o311)
        if is_root:
            os.seteuid(65_534)
        try:
            assert openat2.openat2_available() == is_available
        finally:
            if is_root:
                os.seteuid(0)
            tmp_path.chmod(0o700)


def test_an_unknown_resolver_fails_at_start(tmp_path: Path) -> None:
    """roots-2"""
    with pytest.raises(BadSetting, match="choose openat2 or walk"):
        opened(tmp_path, resolver="fastest")


def test_the_strongest_resolver_is_taken_and_named(tmp_path: Path, resolver: str) -> None:
    """roots-2: the resolver in use can be queried."""
    with opened(tmp_path, resolver=resolver) as roots:
        assert roots.resolver_name == resolver
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules([])) as roots:
        assert roots.resolver_name in ("openat2", "walk")


def test_closing_gives_every_handle_back(tmp_path: Path, resolver: str) -> None:
    """roots-13"""
    (tmp_path / "a").mkdir()
    before = descriptors()
    with opened(tmp_path, tmp_path / "a", resolver=resolver):
        assert len(descriptors()) == len(before) + 2
    assert descriptors() == before


def test_absolute_paths_are_resolved_in_the_root_that_contains_them(world: World, resolver: str) -> None:
    """roots-14: several roots; relative paths are resolved beneath the first."""
    second = world.root.parent / "second"
    second.mkdir()
    (second / "plain.txt").write_bytes(b"of the second")
    with opened(world.root, RootSpec(str(second), writable=False), resolver=resolver) as roots:
        read = read_bytes(roots, "plain.txt", limit_bytes=PLENTY)
        other = read_bytes(roots, f"{second}/plain.txt", limit_bytes=PLENTY)
        mine = read_bytes(roots, f"{world.root}/./dir//inner.txt", limit_bytes=PLENTY)
        assert (read.data, read.display_path) == (b"plain", "plain.txt")
        assert (other.data, other.display_path) == (b"of the second", f"{second}/plain.txt")
        assert (mine.data, mine.display_path) == (b"inner", "dir/inner.txt")
        assert [root.name for root in roots] == ["root", "second"]


def test_a_root_is_known_by_the_path_that_the_operator_gave(world: World, resolver: str) -> None:
    """roots-14: also when it contains links."""
    alias = world.root.parent / "alias"
    alias.symlink_to(world.root)
    world.link("by-alias", alias / "plain.txt")
    with opened(alias, resolver=resolver) as roots:
        for path in (f"{alias}/plain.txt", f"{world.root}/plain.txt", "by-alias", "../alias/plain.txt"):
            assert read_bytes(roots, path, limit_bytes=PLENTY).data == b"plain"


def test_links_and_dots_lead_from_one_root_to_another(world: World, resolver: str) -> None:
    """roots-3: the other root's descriptor and permissions are used."""
    world.link("over", world.outside)
    world.link("relative", "../outside/secret.txt")
    with opened(world.root, RootSpec(str(world.outside), writable=False), resolver=resolver) as roots:
        for path in ("over/secret.txt", "relative", "../outside/secret.txt", f"{world.root}/../outside/secret.txt"):
            assert read_bytes(roots, path, limit_bytes=PLENTY).data.startswith(b"the canary")
            with pytest.raises(ReadOnly):
                write_bytes(roots, path, b"changed")
        with open_directory(roots, "over") as directory:
            assert directory.place.root.path == str(world.outside)
            assert directory.path == str(world.outside)


@pytest.mark.parametrize("operation", CHANGES.values(), ids=CHANGES)
def test_a_read_only_root_refuses_every_change(world: World, resolver: str, operation: Operation) -> None:
    """roots-15"""
    before, open_before = state(world.root), descriptors()
    with opened(RootSpec(str(world.root), writable=False), resolver=resolver) as roots:
        for path in ("plain.txt", "new.txt", "dir"):
            with pytest.raises((ReadOnly, WrongType)) as caught:
                operation(roots, path)
            assert isinstance(caught.value, ReadOnly) or path == "plain.txt"
    assert state(world.root) == before
    assert descriptors() == open_before


NESTED = {
    "relative": "dir/{}",
    "absolute": "{root}/dir/{}",
    "by dots": "dir/sub/../{}",
    "by a link": "to-dir/{}",
    "by a link to above": "to-here/dir/{}",
    "by its other path": "{alias}/dir/{}",
    "up and down again": "dir/../dir/{}",
}


@pytest.mark.parametrize("path", NESTED.values(), ids=NESTED)
def test_of_nested_roots_the_inner_one_decides(world: World, resolver: str, path: str) -> None:
    """roots-14: its permissions and anchored globs apply, however it is reached."""
    alias = world.root.parent / "alias"
    alias.symlink_to(world.root)
    world.link("to-dir", "dir")
    world.link("to-here", ".")
    inner = RootSpec(str(world.root / "dir"), writable=False)

    def named(name: str) -> str:
        return path.format(name, root=world.root, alias=alias)

    with opened(alias, inner, resolver=resolver, deny=("/sub/deep.txt",)) as roots:
        assert read_bytes(roots, named("inner.txt"), limit_bytes=PLENTY).data == b"inner"
        for operation in (CHANGES["write"], CHANGES["delete"], CHANGES["move_to"]):
            with pytest.raises(ReadOnly):
                operation(roots, named("inner.txt"))
        with pytest.raises(ReadOnly):
            write_bytes(roots, named("new.txt"), b"")
        with pytest.raises(DeniedPath):
            read_bytes(roots, named("sub/deep.txt"), limit_bytes=PLENTY)
        write_bytes(roots, "beside.txt", b"the outer one is writable")
        met = [relative for relative, _ in walk(roots, ".", choose=lambda _, found: found, most=99)]
        assert "dir/inner.txt" in met
        assert "dir/sub/deep.txt" not in met
    assert (world.root / "dir" / "inner.txt").read_bytes() == b"inner"


def test_a_nested_root_that_was_renamed_keeps_its_rights(world: World, resolver: str) -> None:
    """roots-14, roots-17: it is identified by its inode; no path through the enclosing root can change it."""
    with opened(world.root, RootSpec(str(world.root / "dir"), writable=False), resolver=resolver) as roots:
        (world.root / "dir").rename(world.root / "renamed")
        for operation in (READS["read_bytes"], CHANGES["write"], CHANGES["delete"]):
            with pytest.raises(RootGone):
                operation(roots, "renamed/inner.txt")
    assert (world.root / "renamed" / "inner.txt").read_bytes() == b"inner"


def test_an_enclosing_root_is_reached_from_the_nested_one(world: World, resolver: str) -> None:
    """roots-14"""
    with opened(world.root / "dir", world.root, resolver=resolver) as roots:
        assert read_bytes(roots, "../plain.txt", limit_bytes=PLENTY).data == b"plain"
        assert (
            read_bytes(roots, "sub/../../dir/inner.txt", limit_bytes=PLENTY).display_path == "sub/../../dir/inner.txt"
        )
        with pytest.raises(OutsideRoot):
            read_bytes(roots, "../../outside/secret.txt", limit_bytes=PLENTY)


@pytest.mark.parametrize("path", [".", "dir/..", "{root}", "../root", "to-here", "to-here/.", "dir/sub/../.."])
def test_a_root_is_never_deleted_moved_or_replaced(world: World, path: str) -> None:
    """roots-16: by whatever path."""
    world.link("dir/to-here", world.root)
    path = path.format(root=world.root).replace("to-here", "dir/to-here/dir/..")
    before = state(world.root)
    with pytest.raises(WrongType):
        delete_file(world.roots, path)
    with pytest.raises((WrongType, InvalidPath)):
        write_bytes(world.roots, path, b"")
    with pytest.raises(InvalidPath):
        move(world.roots, path, "elsewhere")
    with pytest.raises(InvalidPath):
        move(world.roots, "dir", path, overwrite=True)
    assert create_directory(world.roots, path) is False
    assert state(world.root) == before


def test_a_directory_that_contains_a_root_is_not_moved(world: World, resolver: str) -> None:
    """roots-16"""
    with opened(world.root, world.root / "dir" / "sub", resolver=resolver) as roots:
        for source in ("dir", "dir/sub"):
            with pytest.raises(InvalidPath, match="root"):
                move(roots, source, "elsewhere")
    assert (world.root / "dir" / "sub").is_dir()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("what", ["renamed", "deleted", "replaced"])
def test_a_root_that_goes_away_is_reported(tmp_path: Path, resolver: str, what: str, operation: Operation) -> None:
    """roots-17: the descriptor would still work, in a directory that is no longer at this path."""
    root = tmp_path / "root"
    root.mkdir()
    if what != "deleted":
        (root / "plain.txt").write_bytes(b"")
    with opened(root, resolver=resolver) as roots:
        if what == "deleted":
            root.rmdir()
        else:
            root.rename(tmp_path / "other")
        if what == "replaced":
            root.mkdir()
            (root / "plain.txt").write_bytes(b"another")
        before = state(tmp_path)
        with pytest.raises(RootGone, match="renamed, deleted or replaced"):
            operation(roots, "plain.txt")
        assert state(tmp_path) == before


def test_a_listing_of_the_root_and_a_missing_file_work(world: World) -> None:
    """roots-14: `.` is the first root."""
    assert list_directory(world.roots, ".", limit=10).display_path == "."
    assert kind_at(world.roots, ".") == "directory"
    assert kind_at(world.roots, "missing/deeper/still") is None
    assert kind_at(world.roots, "plain.txt/below") is None


def test_a_working_directory_is_given_by_handle(world: World) -> None:
    """roots-1: a process starts in the directory that was checked, wherever it is by then."""
    with open_directory(world.roots, "dir") as directory:
        (world.root / "dir").rename(world.root / "moved")
        (world.root / "dir").symlink_to(world.outside)
        assert os.stat("inner.txt", dir_fd=directory.fd).st_size == len(b"inner")
        assert directory.display_path == "dir"
