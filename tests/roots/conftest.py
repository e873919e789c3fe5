"""Tests of roots that touch a path run with both resolvers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.roots import open_beneath as openat2
from tests.roots.world import CANARY, World, opened


@pytest.fixture(params=("openat2", "walk"))
def resolver(request: pytest.FixtureRequest) -> str:
    if request.param == "openat2" and not openat2.openat2_available():
        pytest.skip("openat2: this kernel lacks it, or a filter forbids it")
    return str(request.param)


@pytest.fixture
def world(tmp_path: Path, resolver: str) -> Iterator[World]:
    """`root` with a file, a directory and a nested file; `outside` with the canary."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "dir" / "sub").mkdir(parents=True)
    outside.mkdir()
    (root / "plain.txt").write_bytes(b"plain")
    (root / "dir" / "inner.txt").write_bytes(b"inner")
    (root / "dir" / "sub" / "deep.txt").write_bytes(b"deep")
    (outside / "secret.txt").write_bytes(CANARY)
    with opened(root, resolver=resolver) as roots:
        yield World(root, outside, roots)
