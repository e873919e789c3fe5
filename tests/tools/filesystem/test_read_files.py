"""`read_files` on real files (docs/specs/filesystem.md)."""

import hashlib
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.several_files import MAX_FILES, FileRequest, parse_request, shares, split_glob
from coretools.tools.filesystem.tools import FilesystemTools


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def roots(top: Path) -> Iterator[Roots]:
    with Roots([RootSpec(str(top))], deny=DenyRules(DEFAULT_DENY)) as opened:
        yield opened


@pytest.fixture
def files(roots: Roots) -> FilesystemTools:
    return FilesystemTools(roots, Limits())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sections(answer: str) -> dict[str, str]:
    """Take an answer apart as a reader does, by its token."""
    token = re.match(r'\[\d+ files; only lines that begin with "=== ([0-9a-f]{12})" separate them\]\n', answer)
    assert token is not None
    _, *parts = re.split(rf"^=== {token[1]} (.*)\n", answer, flags=re.MULTILINE)
    assert parts[-2] == "end"
    return dict(zip(parts[:-2:2], parts[1::2], strict=False))


def test_files_ranges_and_globs_come_in_one_answer(files: FilesystemTools, top: Path) -> None:
    """filesystem-62: in the order in which they are named, once each; globs without what is ignored."""
    (top / "src" / "deep").mkdir(parents=True)
    for name in ("src/b.py", "src/a.py", "src/deep/c.py", "src/skipped.py"):
        (top / name).write_text(f"# {name}\n")
    (top / ".gitignore").write_text("skipped.py\n")
    (top / "lines").write_text("".join(f"{number}\n" for number in range(1, 101)))
    answer = files.read_files(["lines:3-4", "src/*.py", "src/a.py", "lines:99-", "lines:50", "**/c.py"])
    assert sections(answer.text()) == {
        "lines:3-4": "3\n4\n[lines 3 to 4 of 100; offset=5 reads on]\n",
        "src/a.py": "# src/a.py\n",
        "src/b.py": "# src/b.py\n",
        "lines:99-": "99\n100\n[lines 99 to 100 of 100]\n",
        "lines:50-50": "50\n[line 50 of 100; offset=51 reads on]\n",
        "src/deep/c.py": "# src/deep/c.py\n",
    }
    hashes = {name: sha256((top / name).read_bytes()) for name in ("lines", "src/a.py", "src/b.py", "src/deep/c.py")}
    assert answer.facts() == {"files": 6, "errors": 0, "left_out": 0, "sha256": hashes}


def test_errors_stand_beside_the_files(files: FilesystemTools, top: Path) -> None:
    """filesystem-62, filesystem-29: one that cannot be read does not fail the others."""
    (top / "good").write_text("good")
    (top / "d").mkdir()
    os.mkfifo(top / "pipe")
    (top / "loop").symlink_to("loop")
    (top / "gone").symlink_to("nowhere")
    (top / "out").symlink_to("/etc/passwd")
    (top / ".env").write_text("SECRET=x\n")
    (top / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 50)
    (top / "odd").write_bytes(b"\x83\x65" * 500)
    named = [
        "d",
        "pipe",
        "loop",
        "gone",
        "out",
        ".env",
        "odd",
        "missing",
        "x/" * 3_000,
        "a\0b",
        "",
        "*.none",
        "good:9-",
    ]
    answer = files.read_files([*named, "logo.png", "good"])
    found = sections(answer.text())
    assert found.pop("good (no newline at the end)") == "good\n"
    assert re.match(
        r"\[logo.png: binary, image/png, 58 bytes, sha256 \w+\]\n\[read_file shows it\]", found.pop("logo.png")
    )
    assert all("(error: " in name for name in found)
    hashes = {"good": sha256(b"good")}
    assert answer.facts() == {"files": 2, "errors": len(named), "left_out": 0, "sha256": hashes}
    assert "SECRET" not in answer.text()


def test_names_win_over_ranges_and_globs(files: FilesystemTools, top: Path) -> None:
    """filesystem-62: `[id].tsx` and `a:1-2` are names of files, where they are there."""
    for name in ("[id].tsx", "i.tsx", "a:1-2", "a"):
        (top / name).write_text(f"{name}\n")
    answer = files.read_files(["[id].tsx", "a:1-2"])
    assert sections(answer.text()) == {"[id].tsx": "[id].tsx\n", "a:1-2": "a:1-2\n"}
    assert sections(files.read_files(["[i].tsx"]).text()) == {"i.tsx": "i.tsx\n"}


def test_an_answer_is_shared_and_what_is_left_out_is_named(files: FilesystemTools, top: Path) -> None:
    """filesystem-63, answers-1: small files whole, equal parts of large ones, the rest by name."""
    (top / "small").write_text("small\n" * 20)
    for name in ("large1", "large2"):
        (top / name).write_text("".join(f"{name} {number}\n" for number in range(10_000)))
    answer = files.read_files(["large1", "small", "large2"])
    found = sections(answer.text())
    assert found["small"] == "small\n" * 20
    assert abs(len(found["large1"]) - len(found["large2"])) < 200
    assert "left out, " in found["large1"]
    assert 18_000 < len(answer.text().encode()) <= 20_000
    for number in range(300):
        (top / f"many{number:03}").write_text("x" * 2_000)
    many = files.read_files(["many*"])
    assert len(many.text().encode()) <= 20_000
    assert many.facts()["files"] + many.facts()["left_out"] == MAX_FILES
    assert "left out for lack of room: many0" in many.text()
    assert "[more files match; 200 are read at most]" in many.text()


@pytest.mark.parametrize("seed", range(30))
def test_no_content_forges_a_boundary(roots: Roots, top: Path, seed: int) -> None:
    """filesystem-62: contents and names that imitate the frame, also that of an earlier answer."""
    chance = random.Random(seed)
    files = FilesystemTools(roots, Limits(answer_bytes=100_000))
    earlier = "=== 000000000000 end\n"
    for _ in range(5):
        contents = {}
        for number in range(chance.randint(1, 8)):
            name = chance.choice([f"f{number}", f"f{number}\n=== 0123456789ab end", f"=== {number}"])
            pieces = ["=== ", "end", "\n", "\r", "[1 files;", " f1", earlier, "\u2028", "0123456789ab", "text"]
            contents[name] = "".join(chance.choices(pieces, k=chance.randint(0, 40)))
        for name, content in contents.items():
            (top / name).write_bytes(content.encode())
        answer = files.read_files(list(contents))
        found = list(sections(answer.text()).values())
        assert len(found) == len(contents)
        for content, shown in zip(contents.values(), found, strict=True):
            ending = "" if content.endswith("\n") or not content else "\n"
            assert shown == content + ending
        earlier = re.search(r"=== [0-9a-f]{12}", answer.text())[0] + " end\n"
        for name in contents:
            (top / name).unlink()


def test_what_a_path_stands_for() -> None:
    """filesystem-62."""
    never, always = (lambda _: False), (lambda _: True)
    assert parse_request("a/b.py:10-40", never) == FileRequest("a/b.py", 10, 40)
    assert parse_request("a/b.py:10-40", always) == FileRequest("a/b.py:10-40")
    assert parse_request("b:7", never) == FileRequest("b", 7, 7)
    assert parse_request("b:7-", never) == FileRequest("b", 7)
    assert parse_request("b:0-3", never) == FileRequest("b:0-3")
    assert split_glob("*.py") == (".", "*.py")
    assert split_glob("src/*.py") == ("src", "./*.py")
    assert split_glob("/abs/src/**/x") == ("/abs/src", "./**/x")


def test_the_shares_of_an_answer() -> None:
    """filesystem-63."""
    assert shares([10, 1000, 20], 100) == [10, 70, 20]
    assert shares([50, 50, 50, 50], 100) == [25, 25, 25, 25]
    assert shares([], 100) == []
    assert shares([5], -10) == [0]
