"""Patches of git, parsed: names, hunks, numbers and ids."""

import random
import subprocess
from pathlib import Path

import pytest

from coretools.errors import GitRefused
from coretools.tools.git.repository.patches import PATCH, Hunk, read_patch, unquoted
from tests.tools.git.world import World

NAMES = (b"plain", b"sp ace", b'quo"te', b"line\nend", b"tab\t", b"back\\slash", b"\xff\xfe", b"b/ b/", "é ü".encode())


def _patch(world: World, *words: str) -> bytes:
    command = ["git", "-c", "core.quotePath=false", "-c", "diff.suppressBlankEmpty=true", "diff", *PATCH, *words]
    return subprocess.run(command, cwd=world.repository, capture_output=True, check=True).stdout


def _write(world: World, name: bytes, data: bytes) -> None:
    with open(bytes(world.repository) + b"/" + name, "wb") as file:
        file.write(data)


def test_every_name_and_kind_of_change_is_read(tmp_path: Path) -> None:
    """git-39: names that git quotes, changes with and without lines, and content that looks like a header."""
    world = World(tmp_path).created()
    (world.repository / "b").mkdir()
    (world.repository / "b/ b").mkdir()
    (world.repository / "link").symlink_to("x")
    for name in NAMES:
        _write(world, name.rstrip(b"/") + b"_" if name.endswith(b"/") else name, b"one\n\nthree\n")
    _write(world, b"binary", b"\0")
    _write(world, b"empty", b"")
    _write(world, b"gone", b"x\n")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    for name in NAMES:
        content = b"one\n\ndiff --git a/x b/x\n@@ -1 +1 @@\n-- a/x\n++ b/x\nno newline"
        _write(world, name.rstrip(b"/") + b"_" if name.endswith(b"/") else name, content)
    _write(world, b"binary", b"\0\1")
    (world.repository / "empty").chmod(0o755)
    (world.repository / "gone").unlink()
    (world.repository / "link").unlink()
    _write(world, b"link", b"now a file\n")
    for words, prefix in (((), b""), (("--src-prefix=a/w k/", "--dst-prefix=b/w k/"), b"w k/")):
        files = read_patch(_patch(world, *words), prefix=prefix)
        raw = subprocess.run(["git", "diff", "--name-only", "-z"], cwd=world.repository, capture_output=True).stdout
        assert {file.name for file in files} == set(raw.split(b"\0")) - {b""}
        found = {file.name: file for file in files}
        assert all(len(file.hunks) == 1 for file in files if file.name not in (b"binary", b"empty"))
        assert (found[b"binary"].is_binary, found[b"empty"].hunks) == (True, [])
        assert (found[b"gone"].old, found[b"gone"].new) == (b"gone", None)
        assert [(file.old, file.new) for file in files if file.name == b"link"] == [(b"link", None), (None, b"link")]
        assert found[b"plain"].hunks[0].lines[:2] == [b" one", b" "]
        assert found[b"plain"].hunks[0].lines[-1].startswith(b"\\ No newline")


def _hunks(world: World) -> tuple[Hunk, ...]:
    [file] = read_patch(_patch(world))
    return tuple(file.hunks)


def test_ids_stay_when_other_hunks_are_staged_and_change_with_their_lines(tmp_path: Path) -> None:
    """git-39: numbers are places, ids are content."""
    world = World(tmp_path).created()
    lines = [f"line {number}\n" for number in range(60)]
    world.write("a.txt", "".join(lines))
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    lines[50] = "fifty\n"
    one_change = "".join(lines)
    lines[5:6] = ["five\n", "more\n"]
    world.write("a.txt", one_change)
    [alone] = _hunks(world)
    world.write("a.txt", "".join(lines))
    first, second = _hunks(world)
    assert (first.number, second.number, second.id) == (1, 2, alone.id)
    assert first.id != second.id
    assert (alone.position, second.position) == ("@@ -48,7 +48,7 @@ ".strip(), "@@ -48,7 +49,7 @@")
    assert (first.added, first.removed) == (2, 1)
    world.write("a.txt", "".join(lines).replace("fifty", "50"))
    assert _hunks(world)[0].id == first.id
    assert _hunks(world)[1].id != second.id


@pytest.mark.parametrize("data", [b"x", b"diff --git a/x b/x\n@@ nothing\n", b"diff --git a/x b/y\n", b"diff --git \n"])
def test_what_is_no_patch_is_refused(data: bytes) -> None:
    """git-39: nothing is guessed."""
    with pytest.raises(GitRefused):
        read_patch(data)


def test_a_damaged_patch_is_read_or_refused(tmp_path: Path) -> None:
    """git-39: whatever the bytes are, no other error."""
    world = World(tmp_path).filled()
    whole = _patch(world, "HEAD~1")
    rng = random.Random(39)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(b'\n\t "\\@+-d\0\xff0')
        try:
            read_patch(bytes(data[: rng.randrange(len(data) + 1)]))
        except GitRefused:
            continue


def test_names_are_unquoted_as_git_quotes_them() -> None:
    """git-39."""
    assert unquoted(rb'"a\"\\\n\t\303\251\377"') == b'a"\\\n\t\xc3\xa9\xff'
    assert unquoted(b'"') == b'"'
