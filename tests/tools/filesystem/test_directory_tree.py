"""`directory_tree` on real trees (docs/specs/filesystem.md)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import NotFound, OutsideRoot, WrongType
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.tools import FilesystemTools


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def roots(top: Path) -> Iterator[Roots]:
    with Roots([RootSpec(str(top))], deny=DenyRules([*DEFAULT_DENY, "**/private"])) as opened:
        yield opened


@pytest.fixture
def files(roots: Roots) -> FilesystemTools:
    return FilesystemTools(roots, Limits())


def planted(top: Path, tree: dict[str, str]) -> None:
    for name, content in tree.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(content)


def test_a_tree_is_shown_with_sizes_and_what_is_left_out(files: FilesystemTools, top: Path) -> None:
    """filesystem-61: indented, sorted; links not followed, ignored entries named, `.git` left out."""
    planted(
        top,
        {
            ".gitignore": "build/\n*.pyc\n",
            ".git/config": "x",
            "src/app/main.py": "12345",
            "src/app/main.pyc": "1",
            "src/deep/er/still/a.txt": "123",
            "src/deep/er/still/b.txt": "4567",
            "build/out": "x",
            "README": "hello",
        },
    )
    (top / "link").symlink_to("src")
    assert files.directory_tree().text().splitlines() == [
        ".gitignore\t13",
        "README\t5",
        "link@",
        "src/",
        "  app/",
        "    main.py\t5",
        "    [ignored: main.pyc]",
        "  deep/",
        "    er/",
        "      [not shown: 1 directory, 2 files, 7 bytes]",
        "[ignored: build/]",
        "[for more raise depth or limit, or name a directory in path; search_files finds files by name]",
    ]
    assert files.directory_tree("src/app").text() == "main.py\t5\n[ignored: main.pyc]"
    assert files.directory_tree("build").text() == "out\t1"
    shallow = files.directory_tree(depth=1)
    assert shallow.facts() == {"shown": 4, "omitted_files": 3, "omitted_directories": 4, "omitted_bytes": 12}
    assert "build/\n  out\t1" in files.directory_tree(include_ignored=True).text()


def test_the_upper_levels_come_first_when_the_limit_is_reached(files: FilesystemTools, top: Path) -> None:
    """filesystem-61: what a large directory holds does not hide its neighbours."""
    planted(top, {f"a/{number:04}.txt": "1234" for number in range(1_000)})
    planted(top, {"z/only.txt": "1"})
    answer = files.directory_tree(limit=10)
    assert answer.text().splitlines()[:3] == ["a/", "  0000.txt\t4", "  0001.txt\t4"]
    assert "  [not shown: 992 files, 3968 bytes]\nz/\n  [not shown: 1 file, 1 bytes]" in answer.text()
    assert answer.facts()["shown"] == 10


def test_a_tree_fits_an_answer_and_counts_all_the_rest(roots: Roots, top: Path) -> None:
    """filesystem-61, answers-1."""
    planted(top, {f"{'d' * 100}{number}/{'f' * 200}{inner}": "" for number in range(60) for inner in range(5)})
    answer = FilesystemTools(roots, Limits(answer_bytes=3_000)).directory_tree(limit=2_000)
    assert len(answer.text().encode()) <= 3_000
    facts = answer.facts()
    assert facts["shown"] + facts["omitted_files"] + facts["omitted_directories"] == 360


def test_names_of_all_kinds_and_what_is_no_file(files: FilesystemTools, top: Path) -> None:
    """filesystem-61: names that are not UTF-8 or contain line breaks, FIFOs, dangling and looping links."""
    os.mkfifo(top / "pipe")
    (top / "loop").symlink_to("loop")
    (top / "gone").symlink_to("nowhere")
    planted(top, {"new\nline": "1"})
    inside = os.fsencode(top) + b"/b\xe9"
    os.mkdir(inside)
    with open(inside + b"/caf\xe9", "wb") as file:
        file.write(b"123")
    lines = files.directory_tree().text().splitlines()
    assert lines == ["b\\xe9/", "  caf\\xe9\t3", "gone@", "loop@", "new\\nline\t1", "pipe (fifo)"]


def test_denied_paths_do_not_appear(files: FilesystemTools, top: Path) -> None:
    """filesystem-29: as in a search; not counted either."""
    planted(top, {"private/key": "secret", "a": "1"})
    assert files.directory_tree().text().splitlines() == ["a\t1"]


def test_a_deep_tree_is_counted_to_its_end(files: FilesystemTools, top: Path) -> None:
    """filesystem-61: beyond what a path may have."""
    handle = os.open(top, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("directory", dir_fd=handle)
        following = os.open("directory", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = following
    os.close(handle)
    answer = files.directory_tree()
    assert answer.facts()["shown"] == 3
    assert answer.facts()["omitted_directories"] > 200
    assert "not shown: at least " in answer.text()


def test_what_is_no_directory_is_refused(files: FilesystemTools, top: Path) -> None:
    """filesystem-61."""
    planted(top, {"file": ""})
    (top / "outside").symlink_to("/usr")
    with pytest.raises(WrongType):
        files.directory_tree("file")
    with pytest.raises(NotFound):
        files.directory_tree("missing")
    with pytest.raises(OutsideRoot):
        files.directory_tree("outside")


@pytest.mark.skipif(os.geteuid() == 0, reason="user 0 may read every directory")
def test_a_directory_without_permission_is_named_and_not_entered(files: FilesystemTools, top: Path) -> None:
    """filesystem-61."""
    (top / "closed").mkdir(mode=0)
    assert files.directory_tree().text().splitlines()[:2] == [
        "closed/",
        "  [not shown, not counted; perhaps not readable]",
    ]
