"""File tools cannot make the user's git run a program: attacks by calls, verified with git itself (filesystem-37)."""

import base64
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import CoreError, DeniedPath, GitRefused, TooLarge
from coretools.roots import git_directories
from coretools.roots.git_directories import require_no_repository
from coretools.roots.git_layout import is_git_name
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.nonblocking_read import MAX_BYTES, read_nonblocking
from coretools.roots.resolve import resolve
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.tools import FilesystemTools
from tests.protocol.peer import peer

Call = Callable[[FilesystemTools], object]

LINKS = (
    *(("link", ".git"), ("pointer", "evil"), ("stored", "nested/.git/objects")),
    *(("to-new", "src/.git"), ("to-part", "part/objects"), ("to-parent", "src/a/.git/x")),
)
HEAD = "ref: refs/heads/main\n"


def git(*words: str, cwd: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *names, *words], cwd=cwd, env=environment, capture_output=True, check=False)


def evil(marker: Path) -> str:
    """A configuration with which `git status` runs a program."""
    return (
        f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch {marker}; true\n"
    )


class World:
    """A repository with nested ones, and files prepared for an attack, none of which git uses yet."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.marker = folder / "marker"
        self.config = evil(self.marker)
        self.root.mkdir()
        git("init", "-q", ".", cwd=self.root)
        for path in ("evil/config", "part/config", "part/refs/x", "part/HEAD", "stage/inner/refs/x", "src/a/f"):
            self.leave(path, HEAD if path.endswith("HEAD") else self.config)
        git("add", "src", cwd=self.root)
        git("commit", "-qm", "first", cwd=self.root)
        git("clone", "-q", ".", "nested", cwd=self.root)
        git("clone", "-q", "--bare", ".", "bare.git", cwd=self.root)
        git("worktree", "add", "-q", "tree", cwd=self.root)
        git("worktree", "add", "-q", "../inner", cwd=self.root / "bare.git")
        shutil.move(self.root / "inner", self.root / "bare.git" / "inner")
        for name, target in LINKS:
            (self.root / name).symlink_to(target)

    def leave(self, path: str, text: str) -> None:
        """Create a file before any call."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def state(self) -> dict[str, bytes | None]:
        """All git directories with their content."""
        found: dict[str, bytes | None] = {}
        for top in (".git", "nested/.git", "bare.git", "tree/.git"):
            for path in (self.root / top, *(self.root / top).rglob("*")):
                found[str(path)] = path.read_bytes() if path.is_file() else None
        return found

    def is_planted(self) -> bool:
        """Whether git, run by its user anywhere beneath the root, runs the program."""
        self.marker.unlink(missing_ok=True)
        for folder, names, _ in os.walk(self.root):
            names[:] = [name for name in names if name not in (".git", "objects")]
            git("status", cwd=Path(folder))
        return self.marker.exists()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("model"))


@pytest.fixture
def world(model: World, tmp_path: Path) -> World:
    copy = object.__new__(World)
    copy.root, copy.marker, copy.config = tmp_path / "root", model.marker, model.config
    shutil.copytree(model.root, copy.root, symlinks=True)
    return copy


@pytest.fixture(params=["openat2", "walk"])
def files(world: World, request: pytest.FixtureRequest) -> Iterator[FilesystemTools]:
    try:
        opened = Roots([RootSpec(str(world.root))], deny=DenyRules(DEFAULT_DENY), resolver=request.param)
    except CoreError:
        pytest.skip("openat2")
    with opened:
        yield FilesystemTools(opened, Limits())


def write(path: str, text: str = "../evil\n") -> Call:
    return lambda files: files.write_file(path, text, create_parents=True)


def move(source: str, target: str, *, overwrite: bool = False) -> Call:
    return lambda files: files.move_path(source, target, overwrite=overwrite)


def make(path: str) -> Call:
    return lambda files: files.create_directory(path)


def delete(path: str) -> Call:
    return lambda files: files.delete_file(path)


def delete_all(path: str) -> Call:
    return lambda files: files.delete_directory(path)


def error_of(call: Call, files: FilesystemTools) -> CoreError | None:
    try:
        call(files)
    except CoreError as error:
        return error
    return None


ATTACKS: dict[str, list[Call]] = {
    # References and parts in the repository itself.
    "commondir": [write(".git/commondir")],
    "commondir through a link": [write("link/commondir")],
    "index": [write(".git/index", "")],
    "head": [write(".git/HEAD", HEAD), delete(".git/HEAD")],
    "new directory in it": [make(".git/modules/x"), write(".git/worktrees/x/config.worktree")],
    "object": [delete_all(".git/objects"), move("src", ".git/objects/src")],
    "edit": [lambda files: files.edit_file(".git/HEAD", [Edit(old="ref:", new="xef:")])],
    "lock": [write(".git/config.lock", "[core]\n"), move("evil/config", ".git/config.lock")],
    # A `.git` in other directories.
    "git file": [write("new/.git", "gitdir: ../evil\n")],
    "git file of a worktree": [write("tree/.git", "gitdir: ../evil\n"), delete("tree/.git")],
    "renamed to it": [move("evil", "src/.git"), move("evil", "src/a/.GIT"), move("evil", "src/git~1")],
    "link renamed to it": [move("pointer", "src/.git")],
    "nested": [write("nested/.git/commondir", "../../evil\n"), delete_all("nested/.git/hooks")],
    "moved away": [move("nested/.git", "src/plain"), move(".git", "old"), delete_all(".git")],
    "through links that lead nowhere yet": [
        write("to-new", "gitdir: ../evil\n"),
        make("to-new"),
        write("to-part"),
        write("to-part/x"),
        make("to-parent"),
    ],
    "by other spellings": [write("./src//../.git/commondir"), write("src/./.git/", "x"), make("link/../new/.git/x")],
    # Layouts without that name.
    "last part: objects": [make("part/objects")],
    "last part: objects, as a parent": [write("part/objects/x")],
    "last part: a link": [move("stored", "part/objects")],
    "last part: a directory moved": [move("src", "part/objects")],
    "last part: commondir": [write("part/commondir", "../nested/.git\n")],
    "in a bare one": [write("bare.git/commondir"), write("bare.git/config", "x"), delete_all("bare.git/objects")],
    "in a bare one: hook": [write("bare.git/hooks/post-checkout", "#!/bin/sh\n")],
    "a git directory moved": [move("bare.git", "src/bare")],
    "a work tree moved": [move("nested", "src/nested"), move("tree", "src/tree")],
    # These change the directories around.
    "last part: objects, after the others": [
        move("part/HEAD", "stage/HEAD"),
        move("stage/HEAD", "stage/inner/HEAD"),
        make("stage/inner/objects"),
    ],
    "all parts": [write(f"b/{name}", HEAD) for name in ("refs/x", "config", "HEAD", "objects/x")],
}


def test_nothing_is_planted(world: World, files: FilesystemTools) -> None:
    """filesystem-37: no git directory is changed or created, and git runs nothing; each last step is refused."""
    before = world.state()
    for name, calls in ATTACKS.items():
        errors = [error_of(call, files) for call in calls]
        assert isinstance(errors[-1], DeniedPath), (name, errors)
    assert world.state() == before
    assert not world.is_planted()


def test_the_object_store_is_not_read(world: World, files: FilesystemTools) -> None:
    """filesystem-40: tools read no objects, in any git directory, by any path; resources read nothing of one."""
    git("repack", "-qad", cwd=world.root / "nested")
    (world.root / "gitdir").symlink_to("bare.git/objects")
    shutil.copytree(world.root / "bare.git" / "objects", world.root / ".git" / "lfs" / "objects")
    tops = [world.root / top for top in (".git", "nested/.git", "bare.git", "link", "stored", "gitdir")]
    paths = [str(Path(folder, name)) for top in tops for folder, _, names in os.walk(f"{top}/") for name in names]
    objects = [path for path in paths if "/objects/" in path or path.startswith((f"{tops[4]}/", f"{tops[5]}/"))]
    assert len([path for path in objects if path.endswith(".pack")]) >= 2
    for path in (path for path in paths if "/inner/" not in path):
        assert isinstance(error_of(lambda one, path=path: one.file(path), files), DeniedPath), path
    with Roots([RootSpec(str(world.root))], deny=DenyRules(DEFAULT_DENY)) as roots:
        for path in objects:
            assert isinstance(error_of(lambda one, path=path: one.read_file(path), files), DeniedPath), path
            assert read_nonblocking(roots, path, limit_bytes=MAX_BYTES) is None
    assert "ref:" in files.read_file(".git/HEAD").content
    world.leave("src/objects/HEAD", "x")
    world.leave("bare.git/inner/objects/x", "x")
    for path in ("src/objects/HEAD", "bare.git/inner/objects/x"):
        assert files.read_file(path).content == files.file(path) == "x"


def test_a_committed_secret_is_not_served(tmp_path: Path) -> None:
    """filesystem-40: over the protocol, whatever names the object."""
    git("init", "-q", cwd=tmp_path)
    (tmp_path / ".env").write_text("TOKEN=committed\n")
    git("add", ".env", cwd=tmp_path)
    git("commit", "-qm", "x", cwd=tmp_path)
    data = (tmp_path / ".env").read_bytes()
    name = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    blob = f".git/objects/{name[:2]}/{name[2:]}"
    encoded = base64.b64encode((tmp_path / blob).read_bytes()).decode()
    with peer(tmp_path) as client:
        client.start_session()
        for path in (blob, f"src/../{blob}", str(tmp_path / blob), blob.replace("/", "%2F"), f".git/./{blob[5:]}"):
            answer = str(client.ask("resources/read", {"uri": f"coretools://files/{path}"}))
            assert "error" in answer, path
            assert encoded[:16] not in answer, path
        assert "error" in client.ask("resources/read", {"uri": "coretools://files/.git/HEAD"})
        text = client.call("read_file", path=blob)["content"][0]["text"]
        assert "what git stores in .git/objects is not read as a file: use the git tools" in text
        assert "ref:" in client.call("read_file", path=".git/HEAD")["content"][0]["text"]


@pytest.mark.parametrize("name", ["commondir", "pointer", "bare"])
def test_the_plants_are_real(world: World, name: str) -> None:
    """filesystem-37: the refused calls would have made git run the program; otherwise the test above proves nothing."""
    evil_directory = world.root / "evil"
    (evil_directory / "objects").mkdir()
    (evil_directory / "refs").mkdir()
    if name == "commondir":
        (world.root / ".git" / "commondir").write_text("../evil\n")
    else:
        (evil_directory / "HEAD").write_text(HEAD)
    if name == "pointer":
        world.leave("src/a/.git", "gitdir: ../../evil\n")
    assert world.is_planted()


def test_what_is_no_git_directory_is_changed(world: World, files: FilesystemTools) -> None:
    """filesystem-37, filesystem-38, filesystem-42: similar names, single parts, a bare repository, deletion."""
    for path in (".gitignore", ".github/x", "src/.git-hooks", "src/HEAD", "src/refs", "evil/commondir", "a.git/x"):
        files.write_file(path, "x", create_parents=True)
    files.write_file("bare.git/inner/src/new", "x")
    files.write_file("nested/src/new", "x")
    files.move_path("src/a", "moved")
    assert "ref" in files.read_file(".git/HEAD").content
    (world.root / "above").mkdir()
    shutil.move(world.root / "nested", world.root / "above" / "nested")
    refusals = {
        "above": "contains the git repository above/nested",
        "tree": "is a git repository",
        "bare.git": "is a git directory",
    }
    for path, refusal in refusals.items():
        with pytest.raises(GitRefused, match=f"{path}: {refusal}, and with it uncommitted.*with_repositories=true"):
            files.delete_directory(path)
        assert (world.root / path).exists()
        assert "deleted" in files.delete_directory(path, with_repositories=True).text()
        assert not (world.root / path).exists()


@pytest.mark.parametrize("resolver", ["openat2", "walk"])
def test_a_repository_is_found_at_any_depth(world: World, resolver: str) -> None:
    """filesystem-42: also where its path is longer than the kernel takes at once, beside directories that are left."""
    with ExitStack() as handles:
        above = os.open(world.root, os.O_RDONLY)
        handles.callback(os.close, above)
        for _ in range(20):
            for name in ("left" * 60, "deep" * 60):
                os.mkdir(name, dir_fd=above)
                os.mkdir(f"{name}/empty", dir_fd=above)
            above = os.open("deep" * 60, os.O_RDONLY, dir_fd=above)
            handles.callback(os.close, above)
        os.mkdir(".git", dir_fd=above)
    with Roots([RootSpec(str(world.root))], deny=DenyRules(()), resolver=resolver) as roots:
        files = FilesystemTools(roots, Limits())
        for refused in (delete_all("deep" * 60), move("deep" * 60, "moved")):
            assert isinstance(error_of(refused, files), GitRefused | DeniedPath)
        assert "deleted" in files.delete_directory("deep" * 60, with_repositories=True).text()


def test_two_calls_do_not_complete_one_together(world: World, files: FilesystemTools) -> None:
    """filesystem-37: each call creates a part; neither part alone makes a git directory."""
    for number in range(20):
        files.write_file(f"race{number}/refs/x", "x", create_parents=True)
        calls = (make(f"race{number}/objects"), write(f"race{number}/HEAD", HEAD))
        with ThreadPoolExecutor(2) as pool:
            errors = list(pool.map(error_of, calls, (files, files)))
        assert sorted(type(error) for error in errors if error is not None) == [DeniedPath]


def test_a_root_in_a_git_directory(world: World) -> None:
    """filesystem-37: nothing is changed in it either, unless it is a work tree of its own."""
    (world.root / ".git" / "tree").mkdir()
    git("worktree", "add", "-q", ".git/tree/own", cwd=world.root)
    tops = [world.root / ".git" / name for name in ("hooks", "info", "tree/own")] + [world.root / "bare.git"]
    with Roots([RootSpec(str(top)) for top in (world.root, *tops)], deny=DenyRules(DEFAULT_DENY)) as roots:
        files = FilesystemTools(roots, Limits())
        errors = [error_of(write(str(top / "new")), files) for top in tops]
    assert [type(error) for error in errors] == [DeniedPath, DeniedPath, type(None), DeniedPath]


def test_a_tree_that_is_too_large_to_scan_is_not_moved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """filesystem-37: a limit."""
    with Roots([RootSpec(str(world.root))], deny=DenyRules(())) as roots, resolve(roots, "src") as resolved:
        monkeypatch.setattr(git_directories, "MAX_DIRECTORIES", 2)
        require_no_repository(resolved)
        monkeypatch.setattr(git_directories, "MAX_DIRECTORIES", 1)
        with pytest.raises(TooLarge, match="more than 1 directories"):
            require_no_repository(resolved)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in (".git", ".GIT", ".Git ", ".git.", ".git. .", "git~1", "GIT~12", "gi7eb4~1")),
        *((name, True) for name in (".git::$INDEX_ALLOCATION", ".git:x", ".g\u200cit", "\ufeff.git", ".gi\u00adt")),
        *((name, False) for name in (".gitignore", "git", ".github", "a.git", "git~", ".gi", "..git", "git~x")),
    ],
)
def test_names_of_git_directories(name: str, is_one: bool) -> None:
    """filesystem-37: names that HFS+, NTFS, vfat or a case-insensitive directory may treat as `.git`."""
    assert is_git_name(name) == is_one
