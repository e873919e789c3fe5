"""The Debian package, built, installed by dpkg and run (docs/specs/installation.md)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkout import TREE
from tests.packaging.conftest import EPOCH, SECONDS, SLOW_SECONDS

PROGRAM = "coretools-workstation"

pytestmark = [
    pytest.mark.timeout(SLOW_SECONDS),
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb"),
    pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="the system's Python"),
]

IN_ITS_PLACE = """
set -e
dpkg --root="$1" --log=/dev/null --force-not-root --install "$2" >/dev/null
mount --bind "$1/opt" /opt
cd "$3"
"$1/usr/bin/coretools-workstation" --version
"$1/usr/bin/coretools" call read_file path=a.txt
"$1/usr/bin/coretools-http" --version
dpkg --root="$1" --log=/dev/null --force-not-root --purge coretools-workstation >/dev/null
"""
"""In a user and mount namespace: a root of its own, and its /opt where the package expects it."""


def test_the_package_installs_runs_and_leaves_nothing(
    distributions: list[Path], wheels: Path, tools: Path, tmp_path: Path
) -> None:
    """installation-17: by dpkg into a root of its own, which has the packages of this system for the dependencies."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("user namespaces")
    if subprocess.run(["/usr/bin/python3", "-c", "import ensurepip"], capture_output=True, check=False).returncode != 0:
        pytest.skip("python3-venv")
    root, project = tmp_path / "root", tmp_path / "project"
    for folder in (root / "var" / "lib" / "dpkg" / "updates", root / "var" / "lib" / "dpkg" / "info", project):
        folder.mkdir(parents=True)
    shutil.copy("/var/lib/dpkg/status", root / "var" / "lib" / "dpkg" / "status")
    (project / "a.txt").write_text("hello\n")
    built = subprocess.run(
        [TREE / "packaging" / "deb" / "build", distributions[0], tmp_path, "--no-index", "--find-links", wheels],
        env={**os.environ, "UV": str(tools / "uv"), "SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert built.returncode == 0, built.stderr
    (package,) = tmp_path.glob("*.deb")
    assert package.name.startswith(f"{PROGRAM}_1.0_")
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", IN_ITS_PLACE, "sh", root, package, project],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    version, *content, http = done.stdout.splitlines()
    assert (version, http) == ("coretools 1.0", "coretools 1.0")
    assert "hello" in content[0]
    assert not (root / "opt" / PROGRAM).exists()
    assert list((root / "usr" / "bin").glob("coretools*")) == []
