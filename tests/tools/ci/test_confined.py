"""Builds, tests and restores are commands: they are confined by the kernel and checked by the operator's rules
(docs/specs/ci.md)."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import peer

TOOLS = ("ci_build", "ci_test", "ci_restore")
CANARY = "canary-9241"


def place(folder: Path) -> Path:
    """A root, and a file outside."""
    root = folder / "root"
    root.mkdir()
    (folder / "canary").write_text(CANARY)
    return root


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("tier", ["full", "landlock"])
def test_builds_tests_and_restores_are_confined(tmp_path: Path, tier: str) -> None:
    """ci-15, confinement-2: files outside are neither read nor changed; each result reports the tier."""
    root = place(tmp_path)
    outside = shlex.quote(str(tmp_path))
    script = f"cat {outside}/canary; echo x > {outside}/canary; touch {outside}/made; echo inside"
    line = shlex.join(["sh", "-c", script])
    with peer(root, before=under_profile() if tier == "landlock" else ()) as client:
        client.start_session()
        if f"commands are confined in tier: {tier}" not in text_of(client.call("get_diagnostics")):
            pytest.skip(f"tier {tier} is not available here")
        results = [client.call(name, command=line) for name in TOOLS]
    for result in results:
        assert "inside" in text_of(result)
        assert CANARY not in text_of(result)
        assert result["_meta"]["coretools/facts"]["tier"] == tier
    assert (tmp_path / "canary").read_text() == CANARY
    assert not (tmp_path / "made").exists()


def test_builds_tests_and_restores_are_checked_by_the_rules(tmp_path: Path) -> None:
    """policy-1: the other tools do not start a program that the operator denies either."""
    root = place(tmp_path)
    policy = tmp_path / "policy.toml"
    policy.write_text('[[commands.rule]]\nprogram = "touch"\nverdict = "deny"\nreason = "not here"\n')
    with peer(root, "--policy", policy) as client:
        client.start_session()
        results = [client.call(name, command=line) for name in TOOLS for line in ("touch made", "env touch made")]
    assert not (root / "made").exists()
    for result in results:
        assert result["isError"]
        assert "not here" in text_of(result)
