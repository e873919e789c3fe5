"""What the source distribution and the wheel hold, and that two builds are equal (docs/specs/installation.md)."""

import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

from tests.checkout import TREE
from tests.packaging.conftest import build


def test_two_builds_are_byte_equal_and_the_source_builds_the_same_wheel(
    distributions: list[Path], tmp_path: Path
) -> None:
    """installation-8"""
    source, wheel = distributions[1], distributions[0]
    assert (source.suffix, wheel.suffix) == (".gz", ".whl")
    assert [file.read_bytes() for file in build("1.0", tmp_path / "again")] == [wheel.read_bytes(), source.read_bytes()]
    subprocess.run(["tar", "-xzf", source, "-C", tmp_path], check=True)
    (unpacked,) = tmp_path.glob("coretools_workstation-*")
    (from_source,) = build("", tmp_path / "from-source", tree=unpacked, target="wheel")
    assert from_source.read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_all_that_git_tracks_of_the_package(distributions: list[Path]) -> None:
    """installation-5: pages, stored lists, the type marker and the licence too, and nothing else."""
    tracked = subprocess.run(
        ["git", "ls-files", "coretools", "servers"], cwd=TREE, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    expected = {name.replace("servers/", "coretools/servers/", name.startswith("servers/")) for name in tracked}
    expected.remove("coretools/servers")  # the link
    with zipfile.ZipFile(distributions[0]) as archive:
        names = set(archive.namelist())
        metadata = message_from_bytes(archive.read("coretools_workstation-1.0.dist-info/METADATA"))
    packaged = {name for name in names if not name.startswith("coretools_workstation-1.0.dist-info/")}
    assert packaged == expected
    assert {"coretools/py.typed", "coretools/web/observability/html/console.html"} <= packaged
    assert "coretools_workstation-1.0.dist-info/licenses/LICENSE" in names
    extras = {"http", "otel", "redis", "nats", "code", "files", "all", "test"}
    assert set(metadata.get_all("Provides-Extra") or ()) == extras
    assert metadata["Version"] == "1.0"


def test_the_source_distribution_holds_the_tests_and_what_builds_it(distributions: list[Path]) -> None:
    """installation-8"""
    with tarfile.open(distributions[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "constraints.txt", "LICENSE", "CHANGELOG.md", "tests/conftest.py"} <= names
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name or name.startswith(".git/")]
