"""Pinned packages (docs/specs/installation.md)."""

import ast
import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from coretools.distribution import DISTRIBUTION
from coretools.process import ripgrep
from tests.checkout import TREE

NODE_FOLDERS = sorted((TREE / "tests").glob("*/node"))
SERVERS = (TREE / "tests" / "reference_servers" / "python" / "requirements.txt").read_text()
INSTALLERS = (TREE / "tests" / "packaging" / "python" / "requirements.txt").read_text()
RELEASED = (TREE / "packaging" / "requirements.txt").read_text()
CONSTRAINTS = (TREE / "constraints.txt").read_text()
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pins(text: str = CONSTRAINTS) -> dict[str, tuple[Requirement, int]]:
    """By name: the pinned version, and the number of its hashes."""
    lines = [line for line in text.replace("\\\n", "").splitlines() if line[:1].isalnum()]
    found = {}
    for line in lines:
        requirement = Requirement(line.split("--hash")[0].strip())
        found[canonicalize_name(requirement.name)] = (requirement, len(HASH.findall(line)))
    return found


def named() -> list[Requirement]:
    """The packages that pyproject.toml requires, to build, to run and in any extra."""
    project = tomllib.loads((TREE / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()  # `all` and `test` refer to others
    texts = [*project["build-system"]["requires"], *project["project"]["dependencies"], *chain(*extras)]
    return [one for one in map(Requirement, texts) if one.name != DISTRIBUTION]


def test_what_is_imported_is_declared() -> None:
    """installation-6: the package of each import is in pyproject.toml, not only among what another one requires."""
    declared = {canonicalize_name(one.name) for one in named()}
    packages = packages_distributions()
    imported: dict[str, str] = {}
    for path in chain(*((TREE / folder).rglob("*.py") for folder in ("coretools", "servers"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0]: str(path) for name in names}
    theirs = {name: where for name, where in imported.items() if name not in {*sys.stdlib_module_names, "coretools"}}
    assert len(theirs) > 20
    missing = {
        name: where for name, where in theirs.items() if declared.isdisjoint(map(canonicalize_name, packages[name]))
    }
    assert missing == {}


def test_required_packages_are_pinned_to_a_version_that_fits() -> None:
    """installation-1."""
    for wanted in named():
        pinned, _ = pins()[canonicalize_name(wanted.name)]
        (specifier,) = pinned.specifier
        assert specifier.operator == "==", wanted
        assert specifier.version in wanted.specifier, wanted


def test_ripgrep_comes_with_it() -> None:
    """installation-7: required where it has a wheel, and there it starts."""
    (wanted,) = (one for one in named() if one.name == ripgrep.PACKAGE)
    assert wanted.marker is not None
    assert [
        machine
        for machine in ("x86_64", "aarch64", "arm64", "ppc64le")
        if wanted.marker.evaluate({"platform_machine": machine})
    ] == [*("x86_64", "aarch64", "arm64")]
    if wanted.marker.evaluate():
        file = ripgrep.packaged_ripgrep()
        assert file is not None
        printed = subprocess.run([file, "--version"], capture_output=True, text=True, check=True).stdout
        assert printed.split()[1] in wanted.specifier


@pytest.mark.parametrize(
    "text",
    [CONSTRAINTS, SERVERS, INSTALLERS, RELEASED],
    ids=["coretools", "reference servers", "installers", "released"],
)
def test_every_pin_carries_hashes_and_no_address(text: str) -> None:
    """installation-1, installation-2: without hashes a package is trusted by its name alone."""
    assert [name for name, (_, hashes) in pins(text).items() if hashes == 0] == []
    assert "://" not in text
    assert [line for line in text.splitlines() if line.startswith("-")] == ["--only-binary :all:"]


@pytest.mark.parametrize("folder", NODE_FOLDERS, ids=lambda folder: folder.parent.name)
def test_node_packages_are_pinned_by_hash_without_an_address(folder: Path) -> None:
    """installation-4."""
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    del packages[""]
    assert [name for name, package in packages.items() if "integrity" not in package] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert "ignore-scripts=true" in (folder / ".npmrc").read_text().splitlines()


def test_a_package_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    """installation-3: with pip itself, used as in the README: hashes in the file, nothing built, no index."""
    wheel = tmp_path / "plain-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("plain.py", "")
        archive.writestr("plain-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: plain\nVersion: 1\n")
        archive.writestr("plain-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("plain-1.dist-info/RECORD", "")
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert "--only-binary :all:" in CONSTRAINTS
    for number, digest in enumerate(("0" * 64, right)):
        pinned = tmp_path / f"constraints-{number}.txt"
        pinned.write_text(f"--only-binary :all:\nplain==1 --hash=sha256:{digest}\n")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(tmp_path)),
                *("--target", str(tmp_path / f"target-{number}"), "-r", str(pinned)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode == 0) == (digest == right), done.stderr
    assert not (tmp_path / "target-0" / "plain.py").exists()
    assert (tmp_path / "target-1" / "plain.py").exists()


def test_a_built_wheel_installs_one_package_with_all_entry_points(tmp_path: Path) -> None:
    """installation-5: built as the image builds it, from what it copies, and installed where coretools is not yet."""
    source, wheels, place = tmp_path / "source", tmp_path / "wheels", tmp_path / "venv"
    for name in ("coretools", "servers"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TREE / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    subprocess.run([*pip, "wheel", *offline, "--wheel-dir", str(wheels), str(source)], check=True, timeout=100)
    venv.create(place, symlinks=True)
    python = str(place / "bin" / "python")
    (wheel,) = wheels.iterdir()
    subprocess.run(
        [*pip, "--python", python, "install", "--no-index", "--no-deps", str(wheel)], check=True, timeout=100
    )
    (packages,) = place.glob("lib/python*/site-packages")
    names = {path.name.partition("-")[0] for path in packages.iterdir()}
    assert names == {"coretools", "coretools_workstation"}  # the second is its metadata
    # What coretools needs, in the place of an installed package: its own .pth files have no effect there.
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    for program in ("coretools", "coretools-workstation", "coretools-http"):
        done = subprocess.run([str(place / "bin" / program), "--version"], check=False, capture_output=True, timeout=60)
        assert done.stdout.startswith(b"coretools "), done
    code = "import coretools.servers.healthcheck as module; print(module.__file__)"
    found = subprocess.run([python, "-P", "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert found.stdout.startswith(str(packages))
