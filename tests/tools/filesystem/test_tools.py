"""The file tools on real files: read, write, list, delete, move (docs/specs/filesystem.md)."""

import hashlib
import inspect
import os
import re
import resource
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore

import pytest

from coretools.config.limits import Limits
from coretools.errors import (
    AlreadyExists,
    Conflict,
    CoreError,
    DeniedPath,
    GitRefused,
    InvalidArguments,
    InvalidPath,
    NotFound,
    NotText,
    OutsideRoot,
    ReadOnly,
    TooLarge,
    WrongType,
)
from coretools.operations.call import WouldBlock, run_nonblocking
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.media_type import media_type
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.file_text import FileText
from coretools.tools.filesystem.reading_tools import LARGE_BYTES
from coretools.tools.filesystem.tool_set import LARGE_READS
from coretools.tools.filesystem.tools import FilesystemTools


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture(params=["openat2", "walk"])
def roots(top: Path, request: pytest.FixtureRequest) -> Iterator[Roots]:
    try:
        opened = Roots([RootSpec(str(top))], deny=DenyRules(DEFAULT_DENY), resolver=request.param)
    except CoreError:
        pytest.skip("openat2")
    with opened:
        yield opened


@pytest.fixture
def files(roots: Roots) -> FilesystemTools:
    return FilesystemTools(
        roots, Limits(answer_bytes=2_000, read_bytes=1_000, write_bytes=2_000, file_bytes=100_000, list_entries=5)
    )


@pytest.mark.parametrize(
    "content",
    ["", "text\n", "no newline", "é\U0001f600\n", "\u2028\x0c\x85\n"],
    ids=["empty", "text", "bare", "é", "odd"],
)
def test_a_file_is_read_exactly_as_it_is(files: FilesystemTools, top: Path, content: str) -> None:
    """filesystem-2."""
    (top / "a").write_bytes(content.encode())
    answer = files.read_file("a")
    assert answer.text() == content
    assert answer.facts()["bytes"] == len(content.encode())


@pytest.mark.parametrize(
    ("data", "answer", "encoding"),
    [
        (b"a\r\nb\r\n", "a\r\nb\r\n[CRLF]\n", "utf-8"),
        (b"a\r\nb\n", "a\r\nb\n[mixed line endings]\n", "utf-8"),
        (b"\xef\xbb\xbfa\n", "a\n[utf-8-sig]\n", "utf-8-sig"),
        (b"\xff\xfea\x00\n\x00", "a\n[utf-16-le-bom]\n", "utf-16-le-bom"),
        (b"caf\xe9 au lait", "café au lait\n[iso-8859-1]\n", "iso-8859-1"),
    ],
)
def test_encodings_and_line_ends_other_than_utf8_and_lf_are_reported(
    files: FilesystemTools, top: Path, data: bytes, answer: str, encoding: str
) -> None:
    """filesystem-7."""
    (top / "a").write_bytes(data)
    found = files.read_file("a")
    assert found.text() == answer
    assert found.facts()["encoding"] == encoding


def test_lines_are_chosen_by_offset_and_limit_head_or_tail(files: FilesystemTools, top: Path) -> None:
    """filesystem-3: test_line_window has the table of cases."""
    (top / "a").write_text("1\n2\n3\n4\n")
    assert files.read_file("a", offset=2, limit=2).text() == "2\n3\n[lines 2 to 3 of 4; offset=4 reads on]\n"
    assert files.read_file("a", head=1).text() == "1\n[line 1 of 4; offset=2 reads on]\n"
    assert files.read_file("a", tail=1).text() == "4\n[line 4 of 4]\n"
    assert files.read_file("a", tail=1).facts()["lines"] == 4


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("length", [3_000, 80_000])
def test_a_long_line_can_be_read_to_its_end(files: FilesystemTools, top: Path, mark: str, length: int) -> None:
    """filesystem-6, answers-3: from the offset that each part names; `tail` shows the end of it."""
    line = "".join(map(str, range(length // 5))) + "\u6f22" * 500
    (top / "a").write_text(f"{mark}first\n{line}", encoding="utf-8")
    offset: int | str = 2
    whole = ""
    while True:
        answer = files.read_file("a", offset=offset, limit=1).text()
        whole += answer.split("\n")[0]
        if (following := re.search(r"offset=(2@\d+) reads", answer)) is None:
            break
        offset = following[1]
    assert whole == line
    assert files.read_file("a", tail=1).text().split("\n")[0][-300:] == line[-300:]


def test_lines_are_numbered_as_in_the_file(files: FilesystemTools, top: Path) -> None:
    """filesystem-34: in any part, of small files and of files that are read in parts."""
    for count in (300, 80_000):
        (top / "a").write_text("".join(f"line {number}\n" for number in range(1, count + 1)))
        large = FilesystemTools(files._roots, Limits(answer_bytes=2_000))
        parts = [
            large.read_file("a", line_numbers=True),
            large.read_file("a", head=3, line_numbers=True),
            large.read_file("a", tail=2, line_numbers=True),
            large.read_file("a", offset=200, limit=2, line_numbers=True),
        ]
        for part in parts:
            numbered = [line.split("\t") for line in part.text().splitlines() if "\t" in line]
            assert numbered
            assert all(text == f"line {number}" for number, text in numbered)
        assert parts[2].text().splitlines()[0] == f"{count - 1}\tline {count - 1}"
        assert parts[3].text().splitlines()[:2] == ["200\tline 200", "201\tline 201"]
    (top / "a").write_bytes(b"one\r\ntwo\rthree\x0cfour")
    assert files.read_file("a", line_numbers=True).content == "1\tone\r\n2\ttwo\rthree\x0cfour"


def test_a_contradiction_is_refused_before_the_file_is_looked_at(files: FilesystemTools) -> None:
    """filesystem-4."""
    with pytest.raises(InvalidArguments, match="head and tail together"):
        files.read_file("missing", head=1, tail=1)


def test_a_long_file_comes_as_head_and_tail(files: FilesystemTools, top: Path) -> None:
    """filesystem-5."""
    (top / "a").write_text("".join(f"{number}\n" for number in range(1, 10_001)))
    answer = files.read_file("a").text()
    assert answer.startswith("1\n2\n")
    assert answer.endswith("9999\n10000\n")
    assert "left out" in answer
    assert len(answer) < 1_100


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n" + b"\0" * 50, b"\x7fELF" + bytes(range(256))], ids=["png", "elf"]
)
def test_a_binary_file_comes_as_its_type_size_and_hash(files: FilesystemTools, top: Path, data: bytes) -> None:
    """filesystem-8, filesystem-60."""
    (top / "a").write_bytes(data)
    answer = files.read_file("a")
    digest = hashlib.sha256(data).hexdigest()
    assert answer.facts() == {"type": media_type(data), "bytes": len(data), "sha256": digest}
    assert answer.text().startswith(f"[a: binary, {media_type(data)}, {len(data)} bytes, sha256 {digest}]\n[")


def test_a_binary_file_of_terabytes_is_described_without_reading_it(files: FilesystemTools, top: Path) -> None:
    """filesystem-60: over 1 GiB without the hash."""
    with (top / "disk.img").open("wb") as file:
        file.write(b"\0\1" * 1000)
        file.truncate(1 << 41)
    answer = files.read_file("disk.img")
    assert answer.facts() == {"type": "application/octet-stream", "bytes": 1 << 41}
    assert "too large to hash here" in answer.text()


def test_text_in_an_unknown_encoding_is_refused_with_what_to_do(files: FilesystemTools, top: Path) -> None:
    """filesystem-8: it may be text, so the answer is to convert it."""
    (top / "a").write_bytes(b"\x83\x65" * 500)
    with pytest.raises(NotText, match="convert it to UTF-8"):
        files.read_file("a")


@pytest.mark.timeout(60)
def test_a_fifo_is_refused_without_waiting_for_a_writer(files: FilesystemTools, top: Path) -> None:
    """filesystem-9."""
    os.mkfifo(top / "pipe")
    with pytest.raises(WrongType, match="fifo"):
        files.read_file("pipe")


def test_a_directory_is_no_file(files: FilesystemTools, top: Path) -> None:
    """filesystem-9."""
    (top / "d").mkdir()
    with pytest.raises(WrongType, match="directory"):
        files.read_file("d")


def test_a_sparse_file_of_200_megabytes_is_refused_by_its_size(files: FilesystemTools, top: Path) -> None:
    """filesystem-10: if its encoding requires reading all of it."""
    with (top / "sparse").open("wb") as file:
        file.write("wide\n".encode("utf-16"))
        file.truncate(200_000_000)
    with pytest.raises(TooLarge) as caught:
        files.read_file("sparse", tail=1)
    assert caught.value.facts["size"] == 200_000_000


def test_a_file_is_created_and_replaced_and_keeps_its_mode(files: FilesystemTools, top: Path) -> None:
    """filesystem-11."""
    assert files.write_file("a", "é\n").text() == "created a, 3 bytes"
    (top / "a").chmod(0o750)
    assert files.write_file("a", "two\n").text() == "replaced a, 4 bytes"
    assert (top / "a").read_text() == "two\n"
    assert stat.S_IMODE((top / "a").stat().st_mode) == 0o750
    assert sorted(path.name for path in top.iterdir()) == ["a"]


def test_content_is_written_byte_for_byte(files: FilesystemTools, top: Path) -> None:
    """filesystem-11."""
    files.write_file("a", "a\r\nb\rc\n\x00")
    assert (top / "a").read_bytes() == b"a\r\nb\rc\n\x00"


def test_parents_are_created_only_when_asked_for(files: FilesystemTools, top: Path) -> None:
    """filesystem-12."""
    with pytest.raises(NotFound):
        files.write_file("x/y/a", "1")
    assert not (top / "x").exists()
    files.write_file("x/y/a", "1", create_parents=True)
    assert (top / "x/y/a").read_text() == "1"


def test_content_over_the_limit_is_refused(files: FilesystemTools, top: Path) -> None:
    """filesystem-13."""
    with pytest.raises(TooLarge, match="2002 bytes; the most is 2000"):
        files.write_file("a", "é" * 1_001)
    assert not (top / "a").exists()


def test_content_that_no_file_can_store_is_refused(files: FilesystemTools) -> None:
    """filesystem-13."""
    with pytest.raises(InvalidArguments, match="surrogates"):
        files.write_file("a", "\ud800")


def test_a_listing_is_sorted_and_says_what_each_entry_is(files: FilesystemTools, top: Path) -> None:
    """filesystem-14."""
    (top / "b").write_text("12345")
    (top / "a").mkdir()
    (top / "c").symlink_to("nowhere")
    os.mkfifo(top / "d")
    assert files.list_directory().text() == "a/\nb\t5\nc@\nd\tfifo"


def test_a_long_listing_is_cut_and_the_rest_counted(files: FilesystemTools, top: Path) -> None:
    """filesystem-14."""
    for number in range(8):
        (top / f"f{number}").touch()
    answer = files.list_directory(".").text()
    assert answer.splitlines() == [
        "f0\t0",
        "f1\t0",
        "f2\t0",
        "f3\t0",
        "f4\t0",
        "[3 of 8 entries left out; search_files finds them by name]",
    ]


def test_an_empty_directory_is_reported_as_empty(files: FilesystemTools) -> None:
    """filesystem-14."""
    assert files.list_directory().text() == "[empty]"


def test_a_name_that_could_pass_for_two_is_escaped(files: FilesystemTools, top: Path) -> None:
    """filesystem-14."""
    (top / "a\nb\x1b[2J\u00a0é").touch()
    assert files.list_directory().text() == "a\\nb\\x1b[2J\u00a0é\t0"


def test_a_file_is_deleted_and_of_a_link_only_the_link(files: FilesystemTools, top: Path) -> None:
    """filesystem-15."""
    (top / "a").touch()
    (top / "link").symlink_to("a")
    assert files.delete_file("link").text() == "deleted link"
    assert (top / "a").exists()
    files.delete_file("a")
    assert list(top.iterdir()) == []


def test_a_directory_is_deleted_with_all_in_it(files: FilesystemTools, top: Path) -> None:
    """filesystem-35: hidden files, write-protected ones and repositories too; of links only the links."""
    tree = top / "tree"
    for path in ("deep/er", ".git/hooks", "deep/.ssh"):
        (tree / path).mkdir(parents=True)
    for name in ("a", ".env", ".git/config", ".git/hooks/x", "deep/.ssh/id_rsa", "deep/er/b"):
        (tree / name).write_text("TOKEN=" + 20 * "x")
    (tree / ".env").chmod(0o400)
    for name in ("kept", "kept-too"):
        (top / name).mkdir()
        (top / name / "file").write_text("stays")
    (tree / "link").symlink_to("../kept")
    (tree / "deep" / "link").symlink_to(top / "kept-too" / "file")
    with pytest.raises(GitRefused, match="tree: is a git repository, and with it uncommitted work"):
        files.delete_directory("tree")
    assert len(list(tree.iterdir())) == 5
    answer = files.delete_directory("tree", with_repositories=True).text()
    assert answer.startswith("deleted tree, 13 entries in it; of them hidden: ")
    assert {".env", ".git/config", "deep/.ssh/id_rsa"} <= set(answer.partition("hidden: ")[2].split(", "))
    assert not tree.exists()
    assert [(top / name / "file").read_text() for name in ("kept", "kept-too")] == ["stays", "stays"]


def test_a_hidden_file_is_empty_before_it_is_deleted(files: FilesystemTools, top: Path) -> None:
    """filesystem-36: so that a command whose cover is removed finds nothing."""
    (top / "tree").mkdir()
    (top / "tree" / ".env").write_text("TOKEN=secret")
    with open(top / "tree" / ".env") as opened:
        files.delete_directory("tree")
        assert opened.read() == ""


def test_a_hidden_file_with_another_name_is_not_emptied(files: FilesystemTools, top: Path) -> None:
    """filesystem-36: nor deleted."""
    (top / "tree").mkdir()
    (top / "tree" / ".env").write_text("TOKEN=secret")
    os.link(top / "tree" / ".env", top / "other")
    with pytest.raises(Conflict, match="other hard links"):
        files.delete_directory("tree")
    assert (top / "other").read_text() == (top / "tree" / ".env").read_text() == "TOKEN=secret"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        *((".", InvalidPath), ("d/..", InvalidPath), ("d/file", WrongType), ("link", WrongType), ("absent", NotFound)),
        *(("..", OutsideRoot), (".git", DeniedPath), (".git/objects", DeniedPath), (".ssh", DeniedPath)),
    ],
)
def test_directories_that_are_not_deleted(files: FilesystemTools, top: Path, path: str, error: type[CoreError]) -> None:
    """filesystem-35: a root, a file, a part of a repository, a closed directory."""
    for name in ("d", ".git/objects", ".ssh"):
        (top / name).mkdir(parents=True)
        (top / name / "file").write_text("x")
    (top / "link").symlink_to("d")
    with pytest.raises(error):
        files.delete_directory(path)
    assert all((top / name / "file").exists() for name in ("d", ".git/objects", ".ssh"))


def test_a_tree_of_any_depth_is_deleted(files: FilesystemTools, top: Path) -> None:
    """filesystem-35: deeper than a path can be long and than calls may nest, with a closed file at the bottom, and with
    two descriptors."""
    depth, name = 300, "x" * 20
    (top / "d").mkdir()
    handle = os.open(top / "d", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=handle)
        deeper = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    with open(os.open(".env", os.O_WRONLY | os.O_CREAT, dir_fd=handle), "w") as file:
        file.write("TOKEN=x")
    os.close(handle)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = len(os.listdir("/proc/self/fd")) + 20
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    calls = sys.getrecursionlimit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    sys.setrecursionlimit(len(inspect.stack(0)) + depth // 2)
    try:
        text = files.delete_directory("d").text()
    finally:
        sys.setrecursionlimit(calls)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert text.startswith(f"deleted d, {depth + 1} entries in it; of them hidden: {name}/")
    assert not (top / "d").exists()


@pytest.mark.parametrize("path", ["d", ".", "d/.."])
def test_no_directory_is_deleted_and_never_the_root(files: FilesystemTools, top: Path, path: str) -> None:
    """filesystem-15."""
    (top / "d").mkdir()
    with pytest.raises(CoreError):
        files.delete_file(path)
    assert (top / "d").is_dir()


def test_a_directory_is_created_with_its_parents_and_may_be_there(files: FilesystemTools, top: Path) -> None:
    """filesystem-16."""
    assert files.create_directory("x/y").text() == "created x/y"
    assert (top / "x/y").is_dir()
    assert files.create_directory("x/y").text() == "x/y was there already"


def test_a_file_in_the_way_of_a_directory_is_an_error(files: FilesystemTools, top: Path) -> None:
    """filesystem-16."""
    (top / "a").touch()
    with pytest.raises(AlreadyExists):
        files.create_directory("a")


@pytest.mark.parametrize(
    ("path", "file", "directory"),
    [("a", "true", "false"), ("d", "false", "true"), ("none", "false", "false"), ("to-a", "true", "false")],
)
def test_whether_something_exists_is_true_or_false(
    files: FilesystemTools, top: Path, path: str, file: str, directory: str
) -> None:
    """filesystem-17."""
    (top / "a").touch()
    (top / "d").mkdir()
    (top / "to-a").symlink_to("a")
    assert files.file_exists(path) == file
    assert files.directory_exists(path) == directory


def test_a_move_never_replaces_what_is_there_unless_asked_to(files: FilesystemTools, top: Path) -> None:
    """filesystem-18."""
    (top / "a").write_text("a")
    (top / "b").write_text("b")
    with pytest.raises(AlreadyExists):
        files.move_path("a", "b")
    assert (top / "b").read_text() == "b"
    assert files.move_path("a", "b", overwrite=True).text() == "moved a to b"
    assert (top / "b").read_text() == "a"
    assert not (top / "a").exists()


def test_a_directory_moves_with_what_is_in_it(files: FilesystemTools, top: Path) -> None:
    """filesystem-18."""
    (top / "d").mkdir()
    (top / "d/a").write_text("a")
    files.move_path("d", "e")
    assert (top / "e/a").read_text() == "a"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "out/secret", "out-file"])
def test_nothing_outside_is_read_listed_or_changed(
    files: FilesystemTools, top: Path, tmp_path: Path, path: str
) -> None:
    """filesystem-1: neither by `..`, nor by an absolute path, nor by a link."""
    (tmp_path / "secret").write_text("canary")
    (top / "out").symlink_to(tmp_path)
    (top / "out-file").symlink_to(tmp_path / "secret")
    (top / "a").touch()
    for attempt in (
        lambda: files.read_file(path),
        lambda: files.write_file(path, "x"),
        lambda: files.list_directory(path),
        lambda: files.file_exists(path),
    ):
        with pytest.raises(OutsideRoot):
            attempt()
    with pytest.raises(CoreError):
        files.move_path("a", "out/a" if path.startswith("out") else path)
    assert (tmp_path / "secret").read_text() == "canary"
    assert not (tmp_path / "a").exists()


def test_what_is_hidden_is_closed_for_every_tool(files: FilesystemTools, top: Path) -> None:
    """filesystem-29: but its name is listed."""
    (top / ".env").write_text("TOKEN=secret")
    (top / "a").touch()
    for attempt in (
        lambda: files.read_file(".env"),
        lambda: files.write_file(".env", "x"),
        lambda: files.delete_file(".env"),
        lambda: files.move_path(".env", "b"),
        lambda: files.move_path("a", ".env", overwrite=True),
        lambda: files.write_file(".git/hooks/pre-commit", "x", create_parents=True),
        lambda: files.file_exists(".env"),
    ):
        with pytest.raises(DeniedPath):
            attempt()
    assert (top / ".env").read_text() == "TOKEN=secret"
    assert files.list_directory().text().startswith(".env")


def test_in_a_read_only_root_nothing_is_changed(top: Path) -> None:
    """filesystem-30."""
    (top / "a").write_text("a")
    with Roots([RootSpec(str(top), writable=False)], deny=DenyRules(())) as roots:
        files = FilesystemTools(roots, Limits())
        for attempt in (
            lambda: files.write_file("b", "x"),
            lambda: files.delete_file("a"),
            lambda: files.create_directory("d"),
            lambda: files.move_path("a", "b"),
        ):
            with pytest.raises(ReadOnly):
                attempt()
        assert files.read_file("a").text() == "a"
    assert [path.name for path in top.iterdir()] == ["a"]


def test_an_absolute_path_beneath_the_root_is_accepted(files: FilesystemTools, top: Path) -> None:
    """filesystem-1."""
    (top / "a").write_text("a\n")
    assert files.read_file(str(top / "a")).text() == "a\n"


def test_two_large_files_are_read_concurrently_and_small_ones_do_not_wait(roots: Roots, top: Path) -> None:
    """filesystem-10: otherwise a caller with a few dozen requests takes gigabytes, and the processor from all
    others."""
    (top / "large.txt").write_bytes(("line\n" * (LARGE_BYTES // 5 + 1)).encode("utf-16"))
    (top / "small.txt").write_bytes(b"small")
    turns = BoundedSemaphore(LARGE_READS)
    tools = FilesystemTools(roots, Limits(), large_reads=turns)
    with ThreadPoolExecutor(3) as threads:
        with turns, turns:
            waiting = [threads.submit(tools.read_file, "large.txt", head=1) for _ in range(2)]
            assert threads.submit(tools.read_file, "small.txt").result(30).content == "small"
            assert not any(one.done() for one in waiting)
        assert all(one.result(30).content.startswith("line\n[line 1 of ") for one in waiting)


CONTENTS = {
    "empty": b"", "lines": b"one\ntwo\nthree", "crlf": b"one\r\ntwo\r\n", "long": b"x" * 3_000, "many": b"line\n" * 900,
    "utf-8": "gr\u00fc\u00dfe\n".encode(), "mark": b"\xef\xbb\xbfone\n", "utf-16": "one\n".encode("utf-16"),
    "western": b"caf\xe9\n",
    "binary": b"\0\1\2", "picture": b"\x89PNG\r\n\x1a\n", "no encoding": b"\x83\x65" * 500,
}  # fmt: skip

RANGES: list[dict[str, int]] = [
    {}, {"offset": 2}, {"offset": 2, "limit": 1}, {"head": 2}, {"tail": 1}, {"offset": 9_999}, {"head": 1, "tail": 1},
]  # fmt: skip


def outcome(read: Callable[[], FileText]) -> tuple[str, object]:
    try:
        found = read()
    except CoreError as error:
        return str(error), (error.kind, error.facts)
    except WouldBlock:
        return "left", None
    return found.text(), found.facts()


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("lines", RANGES)
def test_nonblocking_and_blocking_reads_answer_the_same(
    top: Path, files: FilesystemTools, content: str, lines: dict[str, int]
) -> None:
    """filesystem-31: results and refusals."""
    (top / content).write_bytes(CONTENTS[content])
    expected = outcome(lambda: files.read_file(content, **lines))
    assert outcome(lambda: run_nonblocking(files.read_file, {"path": content, **lines})) in (expected, ("left", None))
