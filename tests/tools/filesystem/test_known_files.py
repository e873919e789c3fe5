"""Changes of others that a client has not read are not overwritten (docs/specs/filesystem.md)."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import Conflict, EditRefused
from coretools.operations.call import SilentCall
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.known_files import MAX_COPY_BYTES, KnownFiles
from coretools.tools.filesystem.reading_tools import WHOLE_BYTES
from coretools.tools.filesystem.tools import FilesystemTools

ME, OTHER = SilentCall("me"), SilentCall("other")
OLD = "".join(f"line {number}\n" for number in range(1, 10))
NEW = OLD.replace("line 5\n", "line five, by somebody else\n")
MINE = "all mine\n"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FilesystemTools]:
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(DEFAULT_DENY)) as roots:
        yield FilesystemTools(roots, Limits())


def moved(files: FilesystemTools) -> object:
    files.read_file("f", call=ME)
    files.move_path("f", "elsewhere", call=ME)
    return files.move_path("elsewhere", "f", call=ME)


def edited(files: FilesystemTools) -> object:
    files.edit_file("f", [Edit(old="line 1\n", new="x\n")], call=ME)
    return files.edit_file("f", [Edit(old="x\n", new="line 1\n")], call=ME)


WAYS: dict[str, Callable[[FilesystemTools], object]] = {
    "read": lambda files: files.read_file("f", call=ME),
    "read in part": lambda files: files.read_file("link", head=1, call=ME),
    "resource": lambda files: files.file("f", call=ME),
    "written": lambda files: files.write_file("f", OLD, call=ME),
    "edited": edited,
    "moved": moved,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_change_of_somebody_else_is_not_overwritten(files: FilesystemTools, tmp_path: Path, way: str) -> None:
    """filesystem-41: however the client came to know the file, and whatever path it uses; the change is shown."""
    path = tmp_path / "f"
    (tmp_path / "link").symlink_to("f")
    path.write_text(OLD)
    WAYS[way](files)
    before = path.stat()
    path.write_text(NEW)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(Conflict, match="overwrite=true") as refused:
        files.write_file("link", MINE, call=ME)
    assert "\n-line 5\n+line five, by somebody else\n" in str(refused.value)
    assert path.read_text() == NEW
    files.write_file("f", NEW, call=OTHER)
    files.write_file("f", MINE, overwrite=True, call=ME)
    files.write_file("f", OLD, call=ME)
    with pytest.raises(Conflict):
        files.write_file("f", MINE, call=OTHER)
    files.read_file("f", call=OTHER)
    assert "replaced" in files.write_file("f", MINE, call=OTHER).message


UNTOUCHED: dict[str, Callable[[FilesystemTools, Path], object]] = {
    "never read": lambda files, path: (files.read_file("f", call=OTHER), path.write_text(NEW)),
    "the same content in another file": lambda _, path: (path.unlink(), path.write_text(OLD)),
    "what is to be written": lambda _, path: path.write_text(MINE),
    "deleted by somebody else": lambda _, path: path.unlink(),
    "deleted by the client": lambda files, path: (files.delete_file("f", call=ME), path.write_text(NEW)),
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_nothing_is_refused_where_nothing_would_be_lost_unread(
    files: FilesystemTools, tmp_path: Path, case: str
) -> None:
    """filesystem-41: contents are compared, not times; a file that this client never read is replaced as before."""
    (tmp_path / "f").write_text(OLD)
    if case != "never read":
        files.read_file("f", call=ME)
    UNTOUCHED[case](files, tmp_path / "f")
    files.write_file("f", MINE, call=ME)
    assert (tmp_path / "f").read_text() == MINE


def test_an_edit_keeps_what_somebody_else_changed_and_shows_it(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-43: exact text that is still there is replaced; a miss shows why the text is gone."""
    (tmp_path / "f").write_text(OLD)
    files.read_file("f", call=ME)
    (tmp_path / "f").write_text(NEW)
    with pytest.raises(EditRefused, match="Changed since you last read or wrote it") as refused:
        files.edit_file("f", [Edit(old="line 5\n", new="mine\n")], call=ME)
    assert "\n-line 5\n+line five, by somebody else\n" in str(refused.value)
    for is_first in (True, False):
        old, new = ("line 9", "nine") if is_first else ("nine", "9")
        answer = files.edit_file("f", [Edit(old=old, new=new)], call=ME).text()
        assert ("[before this edit, f was changed" in answer) == is_first
        assert ("\n+line five, by somebody else\n" in answer) == is_first
    assert (tmp_path / "f").read_text() == NEW.replace("line 9", "9")


@pytest.mark.parametrize("lines", [1, None])
def test_a_change_of_a_large_file_is_noticed_without_a_diff(
    files: FilesystemTools, tmp_path: Path, lines: int | None
) -> None:
    """filesystem-41: of a file that was read in part by its version, which no other file has."""
    large = tmp_path / "large"
    large.write_text(OLD * (WHOLE_BYTES // len(OLD) + 1))
    files.read_file("large", head=lines, call=ME)
    large.write_text("short\n")
    with pytest.raises(Conflict, match="no diff: the file is too large"):
        files.write_file("large", MINE, call=ME)
    assert files.write_file("large", MINE, overwrite=True, call=ME)


def test_the_diff_of_a_change_is_short(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-41: lines and their length are bounded, whatever somebody else wrote."""
    (tmp_path / "f").write_text(OLD)
    files.read_file("f", call=ME)
    (tmp_path / "f").write_text(f"{'x' * 3_000}\n" * 2_000)
    with pytest.raises(Conflict, match=r"\[\.\.\. \d+ lines of the diff left out \.\.\.\]") as refused:
        files.write_file("f", MINE, call=ME)
    assert len(str(refused.value)) < 12_000
    (tmp_path / "f").write_bytes(b"\0\1\2" * 100)
    with pytest.raises(Conflict, match="no diff: the file is or was binary"):
        files.write_file("f", MINE, call=ME)


def test_what_is_remembered_is_bounded(files: FilesystemTools) -> None:
    """filesystem-44: files and copies, of all clients together; the least recent ones go first."""
    a, b, c, d, large = (files._roots.place(name) for name in ("a", "b", "c", "d", "large"))
    known = KnownFiles(most_files=3, most_bytes=10)
    for place in (a, b, c, d):
        known.record(ME, place, b"1234")
    assert (len(known), known.copied_bytes) == (3, 8)
    assert (known.find(ME, a), known.find(OTHER, d)) == (None, None)
    assert [file and file.content for file in (known.find(ME, b), known.find(ME, d))] == [None, b"1234"]
    known.record(ME, large, b"x" * (MAX_COPY_BYTES + 1))
    known.record(ME, d, b"")
    known.forget(ME, c)
    assert (len(known), known.copied_bytes) == (2, 0)
