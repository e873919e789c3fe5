"""edit_files, apply_patch, copy_path and the ways to write a file (docs/specs/filesystem.md)."""

import codecs
import hashlib
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import (
    AlreadyExists,
    Conflict,
    CoreError,
    DeniedPath,
    EditRefused,
    InvalidArguments,
    NotFound,
    NotText,
    OutsideRoot,
    ReadOnly,
    TooLarge,
    WrongType,
)
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.change_checks import ChangeChecks
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.multi_file_tools import FileEdits
from coretools.tools.filesystem.tools import FilesystemTools


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Roots]:
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(("*.secret",))) as opened:
        yield opened


@pytest.fixture
def files(roots: Roots) -> FilesystemTools:
    return FilesystemTools(roots, Limits())


def edits(path: str, old: str, new: str, **more: str) -> FileEdits:
    return FileEdits(path=path, edits=[Edit(old=old, new=new)], **more)


def contents(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_several_files_are_edited_in_one_call(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-52: the answer has the diff of each."""
    (tmp_path / "a.py").write_text("one = 1\n")
    (tmp_path / "b.py").write_text("two = 1\n")
    answer = files.edit_files([edits("a.py", "1", "2"), edits("b.py", "1", "(")])
    assert contents(tmp_path) == {"a.py": b"one = 2\n", "b.py": b"two = (\n"}
    assert "edited a.py: 1 replacement\n--- a.py" in answer.text()
    assert "[b.py: this introduced a syntax error (python):]\nline 1: not valid here: two = (" in answer.text()
    assert answer.facts() == {
        "files": {
            "a.py": {"replaced": 1, "dry_run": False, "syntax": "python", "syntax_errors": 0},
            "b.py": {"replaced": 1, "dry_run": False, "syntax": "python", "syntax_errors": 1},
        }
    }


def test_if_one_edit_is_refused_nothing_is_written_and_every_refusal_is_named(
    files: FilesystemTools, tmp_path: Path
) -> None:
    """filesystem-52."""
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("two\n")
    with pytest.raises(EditRefused, match="2 of 3 files were refused, so none was changed") as caught:
        files.edit_files([edits("a", "one", "1"), edits("b", "three", "3"), edits("c", "four", "4")])
    assert "b: old matches nothing" in str(caught.value)
    assert "c: there is nothing at this path" in str(caught.value)
    assert contents(tmp_path) == {"a": b"one\n", "b": b"two\n"}


def test_a_dry_run_of_several_files_writes_nothing(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-52."""
    (tmp_path / "a").write_text("one\n")
    assert "would edit a" in files.edit_files([edits("a", "one", "1")], dry_run=True).text()
    assert contents(tmp_path) == {"a": b"one\n"}


def test_a_file_that_is_named_twice_is_refused(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-52: also by another name."""
    (tmp_path / "a").write_text("one two\n")
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(InvalidArguments, match="the same file as a"):
        files.edit_files([edits("a", "one", "1"), edits("link", "two", "2")])
    assert contents(tmp_path)["a"] == b"one two\n"


def test_files_that_are_too_large_together_are_refused(roots: Roots, tmp_path: Path) -> None:
    """filesystem-52."""
    for name in "ab":
        (tmp_path / name).write_text("x" * 60)
    with pytest.raises(TooLarge):
        FilesystemTools(roots, Limits(file_bytes=100)).edit_files(
            [edits("a", "x" * 60, "y"), edits("b", "x" * 60, "y")]
        )


def test_concurrent_edits_of_the_same_files_are_all_applied(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-52: in whatever order the files are named; no deadlock, no lost edit."""
    names = ["a", "b", "c"]
    for name in names:
        (tmp_path / name).write_text("".join(f"[{number}]\n" for number in range(20)))

    def edit(number: int) -> None:
        order = random.Random(number).sample(names, 3)
        files.edit_files([edits(name, f"[{number}]", f"({number})") for name in order])

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = "".join(f"({number})\n" for number in range(20)).encode()
    assert contents(tmp_path) == dict.fromkeys(names, wanted)


def test_the_operator_can_refuse_edits_with_new_syntax_errors(roots: Roots, tmp_path: Path) -> None:
    """filesystem-51: every tool that writes text; a file with an old error can still be edited."""
    files = FilesystemTools(roots, Limits(), checks=ChangeChecks(refuses_syntax_errors=True))
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "old.py").write_text("y = (\nz = 1\n")
    before = contents(tmp_path)
    patch = "*** Begin Patch\n*** Update File: a.py\n-x = 1\n+x = (\n*** End Patch"
    for call in (
        lambda: files.edit_file("a.py", [Edit(old="1", new="(")]),
        lambda: files.edit_files([edits("a.py", "1", "("), edits("old.py", "1", "2")]),
        lambda: files.write_file("a.py", "x = (\n"),
        lambda: files.write_file("new.py", "x = (\n"),
        lambda: files.write_file("a.py", "y = (\n", append=True),
        lambda: files.apply_patch(patch),
    ):
        with pytest.raises(EditRefused, match="operator"):
            call()
    assert contents(tmp_path) == before
    files.edit_file("old.py", [Edit(old="1", new="2")])
    files.write_file("old.py", "y = (\nz = 3\n")
    assert contents(tmp_path)["old.py"] == b"y = (\nz = 3\n"


@pytest.mark.parametrize(
    ("line", "result"),
    [
        pytest.param(1, "X\nb\na\nc\na\n", id="the first"),
        pytest.param(4, None, id="equally near to two"),
        pytest.param(3, "a\nb\nX\nc\na\n", id="on the line"),
        pytest.param(90, "a\nb\na\nc\nX\n", id="beyond the end"),
    ],
)
def test_a_line_chooses_the_nearest_of_several_matches(
    files: FilesystemTools, tmp_path: Path, line: int, result: str | None
) -> None:
    """filesystem-48."""
    (tmp_path / "f").write_text("a\nb\na\nc\na\n")
    if result is None:
        with pytest.raises(EditRefused, match="3, 5"):
            files.edit_file("f", [Edit(old="a", new="X", line=line)])
        return
    files.edit_file("f", [Edit(old="a", new="X", line=line)])
    assert (tmp_path / "f").read_text() == result


def test_a_line_is_one_of_the_file_before_the_call(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-48: whatever earlier edits of the call inserted."""
    (tmp_path / "f").write_text("top\na\nb\na\n")
    files.edit_file("f", [Edit(old="top\n", new="1\n2\n3\n4\n5\n6\n"), Edit(old="a", new="X", line=4)])
    assert (tmp_path / "f").read_text() == "1\n2\n3\n4\n5\n6\na\nb\nX\n"


ENCODED = [
    pytest.param(b"", "utf-8", id="utf-8"),
    pytest.param(codecs.BOM_UTF8, "utf-8", id="utf-8 with mark"),
    pytest.param(codecs.BOM_UTF16_LE, "utf-16-le", id="utf-16 little end"),
    pytest.param(codecs.BOM_UTF16_BE, "utf-16-be", id="utf-16 big end"),
    pytest.param(codecs.BOM_UTF32_BE, "utf-32-be", id="utf-32"),
    pytest.param(b"", "iso-8859-1", id="latin"),
]


@pytest.mark.parametrize(("mark", "codec"), ENCODED)
@pytest.mark.parametrize("seed", range(25))
def test_every_byte_outside_of_random_edits_stays(
    files: FilesystemTools, tmp_path: Path, mark: bytes, codec: str, seed: int
) -> None:
    """filesystem-22, filesystem-52: random files and edits, by edit_file, edit_files and apply_patch."""
    dice = random.Random(seed)
    endings = dice.choice([["\n"], ["\r\n"], ["\n", "\r\n"]])
    pieces = [f"{number}:" + dice.choice("aéß \t") * dice.randrange(9) + dice.choice(endings) for number in range(90)]
    if dice.random() < 0.5:
        pieces[-1] = pieces[-1].rstrip("\r\n")
    chosen = sorted(dice.sample(range(1, 89), dice.randrange(1, 9)))
    tool = dice.choice(["edit_file", "edit_files", "apply_patch"])
    changed = list(pieces)
    for number in chosen:
        changed[number] = pieces[number].replace(f"{number}:", f"{number}X:", 1)
    (tmp_path / "a").write_bytes(mark + "".join(pieces).encode(codec))
    if tool == "apply_patch":
        bare = [(old.rstrip("\r\n"), new.rstrip("\r\n")) for old, new in zip(pieces, changed, strict=True)]
        hunks = [f"@@\n-{bare[number][0]}\n+{bare[number][1]}\n" for number in chosen]
        files.apply_patch("*** Begin Patch\n*** Update File: a\n" + "".join(hunks) + "*** End Patch\n")
    else:
        made = [Edit(old=f"{pieces[n - 1][-1]}{n}:", new=f"{pieces[n - 1][-1]}{n}X:") for n in chosen]
        if tool == "edit_file":
            files.edit_file("a", made)
        else:
            files.edit_files([FileEdits(path="a", edits=made)])
    assert (tmp_path / "a").read_bytes() == mark + "".join(changed).encode(codec)


@pytest.mark.parametrize("data", [b"a\0b one\n", b"\x89PNG\r\n\x1a\n one", bytes(range(256))])
def test_binary_files_are_not_edited_by_any_tool(files: FilesystemTools, tmp_path: Path, data: bytes) -> None:
    """filesystem-8: NUL and other binary content."""
    (tmp_path / "a").write_bytes(data)
    for call in (
        lambda: files.edit_files([edits("a", "one", "1")]),
        lambda: files.apply_patch("--- a\n+++ a\n@@ -1 +1 @@\n-one\n+1\n"),
        lambda: files.write_file("a", "x", append=True),
    ):
        with pytest.raises(NotText):
            call()
    assert (tmp_path / "a").read_bytes() == data


# apply_patch


def test_a_patch_changes_creates_deletes_and_moves(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-54: the answer has a line for each file."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"{name}\nx\n")
    (tmp_path / "c").chmod(0o755)
    answer = files.apply_patch(
        "*** Begin Patch\n*** Update File: a\n-a\n+A\n*** Delete File: b\n*** Add File: d/new\n+new\n"
        "*** Update File: c\n*** Move to: d/c\n-x\n+y\n*** End Patch\n"
    )
    assert answer.text() == "updated a; 1 hunk\ndeleted b\nadded d/new\nmoved c to d/c; 1 hunk"
    assert contents(tmp_path) == {"a": b"A\nx\n", "d/new": b"new\n", "d/c": b"c\ny\n"}
    assert os.access(tmp_path / "d/c", os.X_OK)


def test_a_patch_is_applied_as_a_whole_or_not_at_all(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-54."""
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b\n")
    with pytest.raises(EditRefused, match="b: hunk 1"):
        files.apply_patch("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-c\n+C\n")
    assert contents(tmp_path) == {"a": b"a\n", "b": b"b\n"}


def test_a_patch_that_deletes_a_file_must_know_all_of_it(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-54: if it shows lines."""
    (tmp_path / "a").write_text("a\nb\n")
    with pytest.raises(EditRefused, match="more lines than the patch shows"):
        files.apply_patch("--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n")
    files.apply_patch("--- a/a\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n")
    assert contents(tmp_path) == {}


def test_a_dry_run_of_a_patch_writes_nothing(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-54."""
    (tmp_path / "a").write_text("0\na\n")
    answer = files.apply_patch("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n", dry_run=True)
    assert answer.text() == "would update a; 1 hunk; hunk 1 was at line 2, not 1"
    assert contents(tmp_path) == {"a": b"0\na\n"}


HOSTILE = [
    pytest.param("../outside", OutsideRoot, id="parent"),
    pytest.param("x/../../outside", OutsideRoot, id="parent inside"),
    pytest.param("/etc/passwd", OutsideRoot, id="absolute"),
    pytest.param("out", OutsideRoot, id="a link to outside"),
    pytest.param("outdir/passwd", OutsideRoot, id="through a link to outside"),
    pytest.param(".git/config", DeniedPath, id="git's configuration"),
    pytest.param(".git/hooks/pre-commit", DeniedPath, id="a hook"),
    pytest.param("sub/.GIT/config", DeniedPath, id="a git directory in another spelling"),
    pytest.param("key.secret", DeniedPath, id="a hidden file"),
    pytest.param(".vscode/tasks.json", DeniedPath, id="settings of an editor"),
    pytest.param("fifo", WrongType, id="a FIFO"),
    pytest.param("/dev/sda", OutsideRoot, id="a device"),
    pytest.param("directory", WrongType, id="a directory"),
    pytest.param("loop", NotFound, id="a loop of links"),
    pytest.param("x" * 300, CoreError, id="a long name"),
    pytest.param("a\0b", CoreError, id="NUL"),
]


@pytest.mark.parametrize(("path", "error"), HOSTILE)
@pytest.mark.parametrize("kind", ["update", "delete", "add", "move from", "move to"])
def test_a_patch_reaches_nothing_that_other_tools_do_not(
    files: FilesystemTools, tmp_path: Path, path: str, error: type[CoreError], kind: str
) -> None:
    """filesystem-54: in any section, and no other file of the patch is changed."""
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "passwd").write_text("a\n")
    (tmp_path / "out").symlink_to(outside / "passwd")
    (tmp_path / "outdir").symlink_to(outside)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("good", ".git/config", ".git/hooks/pre-commit", "key.secret", ".vscode/tasks.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n")
    before = contents(tmp_path)
    section = {
        "update": f"*** Update File: {path}\n-a\n+b\n",
        "delete": f"*** Delete File: {path}\n",
        "add": f"*** Add File: {path}\n+b\n",
        "move from": f"*** Update File: {path}\n*** Move to: moved\n-a\n+b\n",
        "move to": f"*** Update File: good2\n*** Move to: {path}\n-a\n+b\n",
    }[kind]
    (tmp_path / "good2").write_text("a\n")
    with pytest.raises((error, AlreadyExists, DeniedPath, WrongType, NotFound)):
        files.apply_patch(f"*** Begin Patch\n*** Update File: good\n-a\n+b\n{section}*** End Patch\n")
    assert contents(tmp_path) == before | {"good2": b"a\n"}
    assert contents(outside) == {"passwd": b"a\n"}


def test_a_patch_changes_nothing_in_a_read_only_root(tmp_path: Path) -> None:
    """filesystem-30."""
    (tmp_path / "a").write_text("a\n")
    with Roots([RootSpec(str(tmp_path), writable=False)], deny=DenyRules(())) as roots:
        files = FilesystemTools(roots, Limits())
        for call in (
            lambda: files.apply_patch("--- a\n+++ a\n@@ -1 +1 @@\n-a\n+b\n"),
            lambda: files.edit_files([edits("a", "a", "b")]),
            lambda: files.copy_path("a", "b"),
        ):
            with pytest.raises(ReadOnly):
                call()
    assert contents(tmp_path) == {"a": b"a\n"}


def test_a_copy_says_what_it_left_out(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-55."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").write_text("text")
    (tmp_path / "a/key.secret").write_text("secret")
    answer = files.copy_path("a", "b")
    assert answer.text() == "copied a to b, 1 entries, 4 bytes; hidden, and not copied: key.secret"
    assert answer.facts() == {"entries": 1, "bytes": 4, "left_out": 1}


# write_file


def test_create_only_replaces_nothing(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-45."""
    files.write_file("a", "one", create_only=True)
    with pytest.raises(AlreadyExists):
        files.write_file("a", "two", create_only=True)
    with pytest.raises(InvalidArguments, match="excludes"):
        files.write_file("a", "two", create_only=True, overwrite=True)
    assert (tmp_path / "a").read_text() == "one"


def test_append_adds_to_the_end_in_the_encoding_of_the_file(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-46: all bytes before stay, and CRLF is kept."""
    assert files.write_file("new", "a\n", append=True).text() == "created new, 2 bytes"
    assert files.write_file("new", "b\n", append=True).text() == "appended to new, 4 bytes"
    wide = codecs.BOM_UTF16_LE + "é\r\n".encode("utf-16-le")
    (tmp_path / "wide").write_bytes(wide)
    files.write_file("wide", "ü\n", append=True)
    assert (tmp_path / "wide").read_bytes() == wide + "ü\r\n".encode("utf-16-le")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    with pytest.raises(NotText, match="iso-8859-1"):
        files.write_file("latin", "\u2603", append=True)
    assert (tmp_path / "latin").read_bytes() == b"caf\xe9\n"


def test_appending_from_several_threads_loses_nothing(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-46."""
    lines = [f"{number}\n" for number in range(20)]
    threads = [threading.Thread(target=files.write_file, args=("a", line), kwargs={"append": True}) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, (tmp_path / "a").read_text().split())) == list(range(20))


def test_only_the_expected_content_is_replaced(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-47: of write_file, edit_file and edit_files."""
    (tmp_path / "a").write_text("one\n")
    right, wrong = sha256("one\n"), sha256("two\n")
    for call in (
        lambda: files.write_file("a", "2", expected_hash=wrong),
        lambda: files.write_file("a", "2", append=True, expected_hash=wrong),
        lambda: files.edit_file("a", [Edit(old="one", new="1")], expected_hash=wrong),
        lambda: files.edit_files([edits("a", "one", "1", expected_hash=wrong)]),
    ):
        with pytest.raises(Conflict, match=right):
            call()
    with pytest.raises(NotFound):
        files.write_file("b", "2", expected_hash=wrong)
    assert contents(tmp_path) == {"a": b"one\n"}
    assert files.read_file("a", tail=1).facts()["sha256"] == right
    files.edit_file("a", [Edit(old="one", new="two")], expected_hash=right)
    files.write_file("a", "three\n", expected_hash=wrong)
    assert contents(tmp_path) == {"a": b"three\n"}


def test_a_written_file_is_checked_against_the_one_it_replaces(files: FilesystemTools, tmp_path: Path) -> None:
    """filesystem-50: only new errors, in a new file all."""
    assert "line 1: not valid here: x = (" in files.write_file("a.py", "x = (\n").text()
    assert "syntax" not in files.write_file("a.py", "x = (\ny = 1\n").text()
    answer = files.write_file("a.py", "x = 1\n")
    assert answer.facts() == {"created": False, "syntax": "python", "syntax_errors": 0}
