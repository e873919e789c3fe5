"""What needs an extra names it where it is missing (docs/specs/installation.md)."""

import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

from coretools.distribution import DISTRIBUTION, EXTRAS
from tests.checkout import TREE
from tests.packaging.conftest import SLOW_SECONDS, Run

pytestmark = pytest.mark.timeout(SLOW_SECONDS)

Install = Callable[[str], Path]


@pytest.fixture
def install(home: Path, run: Run, tools: Path) -> Install:
    def install(what: str) -> Path:
        run(tools / "uv", "venv", "--quiet", home / "venv")
        run(tools / "uv", "pip", "install", "--quiet", "--python", home / "venv", what)
        return home / "venv" / "bin"

    return install


def test_the_table_of_extras_is_that_of_the_package() -> None:
    """installation-9"""
    extras = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) - {"all", "test"} == set(EXTRAS)
    assert Requirement(extras["all"][0]).extras == set(EXTRAS)
    packages = packages_distributions()
    for name, (_, modules) in EXTRAS.items():
        declared = {canonicalize_name(Requirement(text).name) for text in extras[name]}
        provided = {canonicalize_name(one) for module in modules for one in packages[module.partition(".")[0]]}
        assert declared <= provided, name


def test_the_base_names_the_extra_that_is_missing(home: Path, run: Run, install: Install) -> None:
    """installation-9: by effect, in an environment without any."""
    programs = install(DISTRIBUTION)
    refused = run(programs / "coretools-http", "--root", ".", exit_code=69).stderr
    assert refused == f"coretools-http: the HTTP server needs the extra 'http': pip install '{DISTRIBUTION}[http]'\n"
    Image.new("RGB", (1, 1)).save(home / "project" / "a.png")
    shown = run(programs / "coretools", "call", "read_file", "path=a.png").stdout
    assert f"pip install '{DISTRIBUTION}[files]'" in shown
    report = run(programs / "coretools", "doctor").stdout
    for name, (what, _) in EXTRAS.items():
        assert f"absent  extra {name}: {what}: needs the extra {name!r}: pip install '{DISTRIBUTION}[{name}]'" in report


def test_the_http_server_names_the_extras_of_its_configuration(home: Path, run: Run, install: Install) -> None:
    """installation-9"""
    programs = install(f"{DISTRIBUTION}[http]")
    tables = (
        '[auth]\nanonymous = "user"',
        '[redis]\nurl = "redis://127.0.0.1:1"\nreplica = "a"',
        '[services]\nurl = "redis://127.0.0.1:1"',
        "[telemetry]\ntraces = true",
    )
    (home / "http.toml").write_text("\n".join(tables))
    line = (programs / "coretools-http", "--root", ".", "--config", home / "http.toml", "--check")
    faults = run(*line, exit_code=78).stderr
    assert f"redis.url: needs the extra 'redis': pip install '{DISTRIBUTION}[redis]'" in faults
    assert f"services.url: needs the extra 'redis': pip install '{DISTRIBUTION}[redis]'" in faults
    assert f"telemetry.traces: needs the extra 'otel': pip install '{DISTRIBUTION}[otel]'" in faults
