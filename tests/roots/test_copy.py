"""Copies of files and directories (docs/specs/filesystem.md)."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.errors import (
    AlreadyExists,
    CoreError,
    DeniedPath,
    InvalidPath,
    NotFound,
    OutsideRoot,
    TooLarge,
    WrongType,
)
from coretools.roots import copy as module
from coretools.roots.copy import copy_path
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Roots]:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").write_text("outside")
    with Roots([RootSpec(str(tmp_path / "root"))], deny=DenyRules(("*.secret",))) as opened:
        yield opened


@pytest.fixture
def top(tmp_path: Path, roots: Roots) -> Path:
    return tmp_path / "root"


def test_a_file_is_copied_with_its_permissions(roots: Roots, top: Path) -> None:
    """filesystem-55: not with the bits that give rights to who runs it."""
    (top / "a").write_bytes(b"a\0\r\n" * 1_000_000)
    (top / "a").chmod(0o4755)
    copied = copy_path(roots, "a", "b")
    assert (copied.source, copied.destination, copied.size) == ("a", "b", 4_000_000)
    assert (top / "b").read_bytes() == (top / "a").read_bytes()
    assert stat.S_IMODE((top / "b").stat().st_mode) == 0o755


def test_a_directory_is_copied_with_everything_in_it(roots: Roots, top: Path) -> None:
    """filesystem-55: links stay links; hidden files and devices are left out, and named."""
    (top / "a/b/c").mkdir(parents=True)
    (top / "a/b/c/f").write_text("f")
    (top / "a/b/empty").mkdir(mode=0o700)
    (top / "a/link").symlink_to("../../outside")
    (top / "a/b/key.secret").write_text("secret")
    os.mkfifo(top / "a/fifo")
    copied = copy_path(roots, "a", "new/copy", parents=True)
    assert (copied.entries, copied.size) == (5, 1)
    assert copied.hidden == ["b/key.secret"]
    assert copied.special == ["fifo (fifo)"]
    found = sorted(str(path.relative_to(top / "new/copy")) for path in (top / "new/copy").rglob("*"))
    assert found == ["b", "b/c", "b/c/f", "b/empty", "link"]
    assert os.readlink(top / "new/copy/link") == "../../outside"
    assert stat.S_IMODE((top / "new/copy/b/empty").stat().st_mode) == 0o700


def test_a_secret_by_its_content_is_left_out(tmp_path: Path) -> None:
    """filesystem-55: under another name it would be shown."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/id_rsa").write_text(
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk=\n-----END OPENSSH PRIVATE KEY-----\n"
    )

    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(DEFAULT_DENY)) as roots:
        assert copy_path(roots, "a", "b").hidden == ["id_rsa"]
        with pytest.raises(DeniedPath):
            copy_path(roots, "a/id_rsa", "c.txt")
    assert list((tmp_path / "b").iterdir()) == []


@pytest.mark.parametrize(
    ("source", "destination", "error"),
    [
        pytest.param("a", "file", AlreadyExists, id="a file is there"),
        pytest.param("file", "a", AlreadyExists, id="a directory is there"),
        pytest.param("file", "dangling", AlreadyExists, id="a dangling link is there"),
        pytest.param("file", "missing/b", NotFound, id="no directory"),
        pytest.param("missing", "b", NotFound, id="no source"),
        pytest.param("a", "a/b", InvalidPath, id="into itself"),
        pytest.param("a", "link/b", InvalidPath, id="into itself by a link"),
        pytest.param(".", "b", InvalidPath, id="the root"),
        pytest.param("../outside", "b", OutsideRoot, id="from outside"),
        pytest.param("file", "../b", OutsideRoot, id="to outside"),
        pytest.param("out", "b", OutsideRoot, id="from outside by a link"),
        pytest.param("key.secret", "b", DeniedPath, id="a hidden file"),
        pytest.param("file", "b.secret", DeniedPath, id="a hidden name"),
        pytest.param("repository", "b", DeniedPath, id="a repository"),
        pytest.param("above", "b", DeniedPath, id="a repository in it"),
        pytest.param("repository/.git", "b", DeniedPath, id="a git directory"),
        pytest.param("repository/.git/hooks", "b", DeniedPath, id="a part of one"),
        pytest.param("file", "repository/.git/hooks/pre-commit", DeniedPath, id="into a git directory"),
        pytest.param("a", ".git", DeniedPath, id="as a git directory"),
        pytest.param("fifo", "b", WrongType, id="a FIFO"),
        pytest.param("/dev/zero", "b", OutsideRoot, id="a device"),
    ],
)
def test_a_copy_that_is_refused_leaves_nothing(
    roots: Roots, top: Path, source: str, destination: str, error: type[CoreError]
) -> None:
    """filesystem-55."""
    (top / "a").mkdir()
    (top / "file").write_text("file")
    (top / "key.secret").write_text("secret")
    (top / "link").symlink_to("a")
    (top / "dangling").symlink_to("nothing")
    (top / "out").symlink_to("../outside")
    os.mkfifo(top / "fifo")
    for repository in ("repository", "above/repository"):
        (top / repository / ".git/hooks").mkdir(parents=True)
    before = sorted(map(str, top.rglob("*")))
    with pytest.raises(error):
        copy_path(roots, source, destination)
    assert sorted(map(str, top.rglob("*"))) == before


@pytest.mark.parametrize(("name", "most"), [("MAX_ENTRIES", 3), ("MAX_BYTES", 10)])
def test_a_copy_is_bounded(roots: Roots, top: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    """filesystem-55: nothing remains of one that is too large."""
    (top / "a").mkdir()
    for number in range(5):
        (top / "a" / str(number)).write_text("text")
    monkeypatch.setattr(module, name, most)
    with pytest.raises(TooLarge, match="nothing was copied"):
        copy_path(roots, "a", "b")
    assert sorted(path.name for path in top.iterdir()) == ["a"]


def test_a_deep_tree_is_copied(roots: Roots, top: Path) -> None:
    """filesystem-55: depth costs no descriptors."""
    path = "/".join(["d"] * 500)
    (top / "a" / path).mkdir(parents=True)
    assert copy_path(roots, "a", "b").entries == 500
    assert (top / "b" / path).is_dir()
