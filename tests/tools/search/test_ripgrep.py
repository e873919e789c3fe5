"""Which ripgrep a search starts (docs/specs/search.md)."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.confinement import landlock
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.errors import CannotStart
from coretools.process import confined_runner
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.environment import child_environment
from coretools.process.ripgrep import Ripgrep, RipgrepProgram, packaged_ripgrep
from coretools.process.runner import Runner
from coretools.reach import NO_REACH, Place, Reach
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from tests.tools.search.world import planted, searching

needs_packaged = pytest.mark.skipif(packaged_ripgrep() is None, reason="no wheel of ripgrep for this machine")


def script(path: Path, version: str, *, marker: Path | None = None) -> Path:
    """Write a program that says it is this ripgrep; it leaves the marker when it is started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{f'touch {marker}' if marker else ''}\necho 'ripgrep {version} (rev 1)'\n")
    path.chmod(0o755)
    return path


@asynccontextmanager
async def choosing(root: Path, path: str, packaged: Path | None, reach: Reach = NO_REACH) -> AsyncIterator[Ripgrep]:
    runner = Runner(Limits(), {"PATH": path}, reach=reach)
    with closing(ConfinedThreadPool()) as threads:
        yield Ripgrep(ConfinedRunner(runner, threads), packaged=lambda: str(packaged) if packaged else None)
    await runner.close()


async def chosen(ripgrep: Ripgrep, root: Path) -> RipgrepProgram | None:
    with Roots([RootSpec(str(root))], deny=DenyRules(())) as roots, open_directory(roots, ".") as directory:
        return await ripgrep.choose(directory)


@pytest.mark.parametrize(
    ("on_path", "packaged", "origin"),
    [
        pytest.param("13.0.0", "15.2.0", "packaged", id="the system's is older"),
        pytest.param("16.0.1", "15.2.0", "path", id="the system's is newer"),
        pytest.param("15.10.0", "15.2.0", "path", id="numbers are compared, not text"),
        pytest.param("15.2.0", "15.2.0", "packaged", id="as new: the one that is pinned"),
        pytest.param("", "15.2.0", "packaged", id="none on PATH"),
        pytest.param("13.0.0", "", "path", id="no wheel for this machine"),
        pytest.param("unknown", "15.2.0", "packaged", id="a program that does not tell"),
        pytest.param("unknown", "", "path", id="the only one does not tell"),
        pytest.param("14.1.0", "14.1.1", "packaged", id="one that misses matches"),
        pytest.param("", "", "", id="none"),
    ],
)
async def test_the_newer_of_path_and_package_is_used(tmp_path: Path, on_path: str, packaged: str, origin: str) -> None:
    """search-26."""
    files = {"": None, "path": tmp_path / "system/rg", "packaged": tmp_path / "venv/bin/rg"}
    (tmp_path / "root").mkdir()
    for place, version in (("path", on_path), ("packaged", packaged)):
        if version:
            script(files[place] or tmp_path, version)
    async with choosing(tmp_path / "root", str(tmp_path / "system"), files["packaged"]) as ripgrep:
        program = await chosen(ripgrep, tmp_path / "root")
    assert (program and program.file) == (str(files[origin]) if origin else None)


@pytest.mark.parametrize("version", ["14.0.0", "14.0.2", "14.1.0"])
async def test_a_ripgrep_that_misses_matches_is_not_used(tmp_path: Path, version: str) -> None:
    """search-26: its issue 2884; our own engine finds them."""
    (tmp_path / "root").mkdir()
    script(tmp_path / "system/rg", version)
    async with choosing(tmp_path / "root", str(tmp_path / "system"), None) as ripgrep:
        with pytest.raises(CannotStart, match="misses matches"):
            await chosen(ripgrep, tmp_path / "root")
    planted(tmp_path / "root", {"a": "x"})
    async with searching(tmp_path / "root", environment={"PATH": f"{tmp_path}/system:{os.environ['PATH']}"}) as search:
        found = await search.search_text("x")
    assert (found.text(), found.facts()["engine"]) == ("a:1:x", "walk")


async def test_no_ripgrep_beneath_a_writable_root_is_started(tmp_path: Path) -> None:
    """search-27: neither of PATH nor of the package, also by a link; the next one is used, or none."""
    root, marker = tmp_path / "root", tmp_path / "marker"
    inner = script(root / ".venv/bin/rg", "99.0.0", marker=marker)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/rg").symlink_to(inner)
    outer = script(tmp_path / "system/rg", "13.0.0")
    reach = Reach([Place(str(root), "the writable root")])
    for folders in (inner.parent, tmp_path / "linked"):
        async with choosing(root, f"{folders}:{outer.parent}", inner, reach) as ripgrep:
            program = await chosen(ripgrep, root)
            assert program is not None
            assert program.file == str(outer)
    async with choosing(root, str(tmp_path / "linked"), tmp_path / "linked/rg", reach) as ripgrep:
        with pytest.raises(CannotStart, match="the writable root"):
            await chosen(ripgrep, root)
    assert not marker.exists()


@needs_packaged
@pytest.mark.skipif(landlock.abi() < landlock.ABI_REQUIRED, reason="Landlock (Linux 6.2)")
async def test_the_packaged_ripgrep_starts_confined_and_reads_no_packages(tmp_path: Path) -> None:
    """search-22, search-26: where pip put it, which no system directory contains."""
    planted(tmp_path, {"a": "x"})
    file = packaged_ripgrep()
    assert file is not None
    rules = confined_runner.startup_rules(file)
    assert rules is not None
    beside = os.path.dirname(os.path.dirname(file))
    assert [name for name, _ in rules if str(name).startswith(beside)] == [file]
    async with choosing(tmp_path, "/nonexistent", Path(file)) as ripgrep:
        program = await chosen(ripgrep, tmp_path)
        assert program is not None
        assert program.version >= (15, 1)
        assert program.is_packaged
        assert ripgrep.is_confined(program)
    async with searching(tmp_path, environment={"PATH": "/nonexistent"}, packaged=file) as search:
        assert (await search.search_text("x")).facts()["engine"] == "ripgrep"


def test_a_package_that_is_not_installed_has_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """search-26."""
    for name in ("coretools-has-no-such-package", "pytest"):
        monkeypatch.setattr("coretools.process.ripgrep.PACKAGE", name)
        assert packaged_ripgrep() is None


async def test_a_search_without_any_ripgrep_uses_our_own_walk(tmp_path: Path) -> None:
    """search-1, search-26."""
    planted(tmp_path, {"a": "x"})
    environment = {**child_environment(os.environ, passed=()), "PATH": "/nonexistent"}
    async with searching(tmp_path, environment=environment) as search:
        assert (await search.search_text("x")).facts()["engine"] == "walk"
