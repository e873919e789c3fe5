"""The content of a git index, read without git: equal to `git ls-files`, and bounded for all bytes."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from coretools.roots.git_index import BadIndex, index_objects

NAMES = ("a", "b.pem", "deep/down/in/the/tree/.env", "deep/down/in/the/tree/other", "é", "x" * 200, "z z")


def git(directory: Path, *words: str) -> bytes:
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    run = subprocess.run(
        ("git", "-c", "user.name=x", "-c", "user.email=x@x", *words),
        cwd=directory, env=environment, check=True, capture_output=True,
    )  # fmt: skip
    return run.stdout


def repository(directory: Path, *, version: int = 2, algorithm: str = "sha1") -> Path:
    git(directory, "init", "-q", f"--object-format={algorithm}")
    for name in NAMES:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    git(directory, "add", "--all")
    git(directory, "update-index", "--index-version", str(version))
    return directory / ".git" / "index"


def listed(directory: Path) -> dict[bytes, bytes]:
    """The output of `git ls-files`."""
    records = git(directory, "ls-files", "-s", "-z").split(b"\0")[:-1]
    parts = [record.split(b"\t", 1) for record in records]
    return {name: bytes.fromhex(words.split()[1].decode()) for words, name in parts}


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_index_says_what_git_says(tmp_path: Path, version: int, algorithm: str) -> None:
    """secret-files-5: each version, both hashes, extended entries."""
    index = repository(tmp_path, version=version, algorithm=algorithm)
    if version > 2:
        git(tmp_path, "update-index", "--skip-worktree", "b.pem")
    found = index_objects(index.read_bytes(), hash_bytes=20 if algorithm == "sha1" else 32)
    assert found == listed(tmp_path)
    assert len(found) == len(NAMES)


def test_a_file_in_conflict_has_no_content(tmp_path: Path) -> None:
    """secret-files-5: of several contents none counts."""
    index = repository(tmp_path)
    name = git(tmp_path, "hash-object", "-w", "a").decode().strip()
    lines = "".join(f"100644 {name} {stage}\tb.pem\n" for stage in (1, 2, 3))
    subprocess.run(["git", "update-index", "--index-info"], cwd=tmp_path, input=lines.encode(), check=True)
    assert set(index_objects(index.read_bytes(), hash_bytes=20)) == {os.fsencode(one) for one in NAMES} - {b"b.pem"}


def test_a_name_that_is_there_twice_has_no_content(tmp_path: Path) -> None:
    """secret-files-5: an index could otherwise contain many guesses for one file."""
    data = repository(tmp_path).read_bytes()
    first = data[12 : 12 + 64]  # `a`: 62 bytes, the name, one NUL
    assert first[62:] == b"a\0"
    count = int.from_bytes(data[8:12], "big") + 1
    twice = data[:8] + count.to_bytes(4, "big") + first[:60].replace(first[40:60], bytes(20)) + first[60:] + data[12:]
    assert b"a" not in index_objects(twice + bytes(8), hash_bytes=20)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("version", [2, 4])
def test_a_broken_index_is_refused_or_read(tmp_path: Path, version: int, seed: int) -> None:
    """secret-files-5: truncated or modified anywhere: the reader returns a result or raises BadIndex."""
    chance = random.Random(seed)
    data = bytearray(repository(tmp_path, version=version).read_bytes())
    for _ in range(200):
        broken = bytearray(data)
        for _ in range(chance.randint(0, 4)):
            broken[chance.randrange(len(broken))] = chance.choice((0, 0xFF, 0x80, chance.randrange(256)))
        cut = bytes(broken[: chance.randrange(len(broken))] if chance.random() < 0.5 else broken)
        try:
            index_objects(cut, hash_bytes=chance.choice((20, 32)))
        except BadIndex:
            continue


def test_names_that_grow_without_end_are_refused() -> None:
    """secret-files-5: names of version 4 share prefixes; a few bytes could expand to gigabytes."""
    entry = bytes(60) + b"\0\0" + b"\0" + b"x" * 100 + b"\0"
    many = b"DIRC" + (4).to_bytes(4, "big") + (10_000).to_bytes(4, "big") + entry * 10_000 + bytes(20)
    with pytest.raises(BadIndex):
        index_objects(many, hash_bytes=20)
