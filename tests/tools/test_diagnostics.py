"""What get_diagnostics of a real server reports, and what it does not reveal."""

import os
import platform
import re
from contextlib import closing
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.config.operator_policy import ConfinementPolicy
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.distribution import VERSION
from coretools.process.environment import child_environment
from coretools.process.ripgrep import packaged_ripgrep
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.diagnostics import Diagnostics, DiagnosticsReport
from coretools.tools.failure_explanations import CommandOutcome
from coretools.tools.network_policy import NetworkPolicy
from coretools.tools.tier_restrictions import TierRestrictions
from tests.tools.search.world import needs_ripgrep
from tests.variables import variables


async def diagnosed(*specs: RootSpec, resolver: str | None = None, environment: dict[str, str]) -> DiagnosticsReport:
    with Roots(specs, deny=DenyRules(DEFAULT_DENY), resolver=resolver) as roots:
        return await diagnosed_roots(roots, environment)


async def diagnosed_roots(roots: Roots, environment: dict[str, str]) -> DiagnosticsReport:
    limits = Limits()
    runner = Runner(limits, environment)
    try:
        with closing(ConfinedThreadPool()) as confined_threads:
            return await Diagnostics(
                roots,
                runner,
                limits,
                confined_threads=confined_threads,
                network=NetworkPolicy("deny"),
                tier_restrictions=TierRestrictions(ConfinementPolicy()),
            ).get_diagnostics()
    finally:
        await runner.close()


def environment() -> dict[str, str]:
    return child_environment(os.environ, passed=())


async def test_versions_roots_and_limits_are_reported(tmp_path: Path) -> None:
    """ci-18: what a caller asks for first."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    report = await diagnosed(
        RootSpec(str(tmp_path / "a")), RootSpec(str(tmp_path / "b"), writable=False), environment=environment()
    )
    text = report.text()
    assert f"coretools {VERSION}" in text
    assert f"python {platform.python_version()}" in text
    assert report.versions["git"][0].isdigit()
    assert [root.rpartition("/")[2] for root in report.roots] == ["a (read and write)", "b (read only)"]
    assert "run_seconds=120" in text


async def test_protections_in_force_and_missing_ones_are_named(tmp_path: Path) -> None:
    """ci-18: a missing protection is never omitted."""
    report = await diagnosed(RootSpec(str(tmp_path)), resolver="walk", environment=environment())
    lines = report.text().split("\n")
    assert "paths resolved by: walk" in lines
    assert any(line.startswith("openat2: missing (") for line in lines)
    assert any(line.startswith("command-confinement: missing (") for line in lines)
    [protections] = [line for line in lines if line.startswith("protections in force: ")]
    assert "paths-beneath-roots" in protections
    assert "process-group" in protections
    assert "command-confinement" not in protections


async def test_a_program_that_is_not_installed_is_missing_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ci-18, search-28: diagnostics work where other tools fail."""
    monkeypatch.setattr("coretools.process.ripgrep.PACKAGE", "coretools-has-no-such-package")
    report = await diagnosed(RootSpec(str(tmp_path)), environment={"PATH": str(tmp_path)})
    assert report.versions["git"] == "missing"
    assert report.versions["rg"] == "missing"
    assert "text searched with: the built-in engine, which is slower: ripgrep is neither installed" in report.text()


@needs_ripgrep
async def test_the_ripgrep_of_searches_is_named(tmp_path: Path) -> None:
    """search-28: with its version, and where it comes from."""
    report = await diagnosed(RootSpec(str(tmp_path)), environment=environment())
    assert report.versions["rg"][0].isdigit()
    assert f"\ntext searched with: ripgrep {report.versions['rg']} (/" in report.text()
    packaged = packaged_ripgrep()
    assert packaged is None or f"({packaged}, installed with coretools)" in report.search


async def test_each_language_has_a_server_or_the_way_to_one(tmp_path: Path) -> None:
    """language-servers-9: one of the project comes before the others."""
    nothing = {**environment(), "PATH": str(tmp_path)}
    text = (await diagnosed(RootSpec(str(tmp_path)), environment=nothing)).text()
    assert re.search(r"^language servers: Python: \w+ from", text, re.MULTILINE), "of the extra"
    assert "Go (gopls: go install" in text
    program = tmp_path / ".venv" / "bin" / "pyrefly"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o755)
    found = await diagnosed(RootSpec(str(tmp_path)), environment=nothing)
    assert "Python: pyrefly from the project" in found.text()


async def test_a_root_that_is_gone_does_not_stop_diagnostics(tmp_path: Path) -> None:
    """ci-18: diagnostics are needed when something is wrong."""
    (tmp_path / "root").mkdir()
    with Roots([RootSpec(str(tmp_path / "root"))], deny=DenyRules(DEFAULT_DENY)) as roots:
        (tmp_path / "root").rmdir()
        report = await diagnosed_roots(roots, environment())
    assert report.versions["git"] == "unknown (root-gone)"
    assert report.roots


async def test_no_value_of_the_environment_is_reported(tmp_path: Path) -> None:
    """ci-18: neither of the server's nor of the children's."""
    changed = {**environment(), "GIT_TOKEN": "swordfish-of-the-children"}
    with variables(API_TOKEN="swordfish-of-the-server"):
        report = await diagnosed(RootSpec(str(tmp_path)), environment=changed)
    assert "swordfish" not in report.text() + report.model_dump_json()


def test_a_refusal_in_a_root_beneath_tmp_is_not_put_down_to_tmp() -> None:
    """confinement-31: the closed /tmp is named for places outside the roots alone."""
    restrictions = TierRestrictions(ConfinementPolicy(), roots=("/tmp/project",))
    for path, is_named in (("/tmp/project/.git/config", False), ("/tmp/other", True), ("/tmp/project-2/x", True)):
        ending = CommandOutcome(argv=("x",), tier="landlock", failed=True, output=f"x: {path}: Permission denied")
        found = [text for explain in restrictions.explanations() if (text := explain(ending))]
        assert any("the directory /tmp is closed" in text for text in found) == is_named, path


def test_what_a_command_misses_of_tmp_is_named() -> None:
    """confinement-31, confinement-16: also where a program names it from a root in /tmp."""
    own, closed = "commands have a /tmp and /var/tmp of their own", "the directory /tmp is closed"
    for tier, root, line, sentence in (
        ("full", "/srv/project", "cat: /tmp/a: No such file or directory", own),
        ("full", "/tmp/project", "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/a'", own),
        ("full", "/tmp/project", "cat: /tmp/project/a: No such file or directory", ""),
        ("full", "/srv/project", "cat: /srv/tmp/a: No such file or directory", ""),
        ("landlock", "/tmp/project", "ls: cannot open directory '..': Permission denied", closed),
        ("landlock", "/var/tmp/project", "sh: 1: ../a: Permission denied", closed),
        ("landlock", "/srv/project", "sh: 1: ../a: Permission denied", ""),
        ("landlock", "/tmp/project", "sh: 1: a..b: Permission denied", ""),
    ):
        restrictions = TierRestrictions(ConfinementPolicy(), roots=(root,))
        ending = CommandOutcome(argv=("x",), tier=tier, failed=True, output=line)
        found = [text for explain in restrictions.explanations() if (text := explain(ending))]
        assert [sentence in text for text in found] == [True] * bool(sentence), (line, found)
