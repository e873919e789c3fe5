"""Runs of the official conformance suite, and what counts as a failure. A tick alone is not a pass."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NODE_FOLDER = Path(__file__).parent / "node"
SECONDS = 100

_FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_LISTED = re.compile(r"^  - (\S+)", re.MULTILINE)

NEUTRAL = frozenset({"SUCCESS", "INFO"})
WIRE = "wire-schema-valid"
"""A check of every message, which proves nothing about a scenario's subject."""

Check = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One version of the suite at one revision of the protocol."""

    package: str
    version: str
    revision: str
    scenarios: int
    """The number that the version lists, so that none is skipped unnoticed."""

    def __str__(self) -> str:
        return f"{self.version} at {self.revision}"


STABLE = ("conformance-stable", "0.1.16")
NEXT = ("conformance-next", "0.2.0-alpha.12")

RUNS = (
    Run(*STABLE, "2025-06-18", 26),
    Run(*STABLE, "2025-11-25", 32),
    Run(*NEXT, "2025-06-18", 27),
    Run(*NEXT, "2025-11-25", 33),
    Run(*NEXT, "2026-07-28", 40),
)
"""Every version of the suite at every revision that it supports."""

OLD_CLIENT = "this version of the suite speaks revision 2025-03-26 here, and priming events begin with 2025-11-25"

EXCUSED: Mapping[tuple[str, str, str], str] = {
    ("0.1.16", "server-sse-polling", "server-sse-priming-event"): OLD_CLIENT,
    ("0.1.16", "server-sse-polling", "server-sse-retry-field"): OLD_CLIENT,
}
"""Checks that may fail, with the reason, which `test_suite.py` proves: version, scenario, check."""


def program(node: Path, run: Run, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the suite's command line."""
    line = [str(node), str(NODE_FOLDER / "node_modules" / run.package / "dist" / "index.js"), *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)


def listed(node: Path, run: Run, *, everything: bool = False) -> set[str]:
    """The server scenarios of the revision, as listed by the suite; with `everything`, extensions too."""
    which = () if everything else ("--spec-version", run.revision)
    return set(_LISTED.findall(program(node, run, "list", "--server", *which).stdout))


def results(node: Path, run: Run, url: str, folder: Path, *which: str) -> dict[str, list[Check]]:
    """Run the scenarios, or those that `which` selects; returns the checks of each."""
    words = ("--spec-version", run.revision, *(which or ("--suite", "all")))
    program(node, run, "server", "--url", url, "--output-dir", str(folder), *words)
    return _written(folder)


def extension(node: Path, run: Run, url: str, scenario: str, folder: Path) -> dict[str, list[Check]]:
    """The checks of one scenario of an extension, which belongs to no revision and runs at the newest."""
    program(node, run, "server", "--url", url, "--output-dir", str(folder), "--scenario", scenario)
    return _written(folder)


def faults(run: Run, scenarios: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    """The failures of a run: every check that is not a success, and scenarios without any success."""
    excused = {(scenario, check) for version, scenario, check in EXCUSED if version == run.version}
    for scenario, checks in scenarios.items():
        for check in checks:
            if check["status"] not in NEUTRAL and (scenario, check["id"]) not in excused:
                yield f"{scenario}: {check['status']} {check['id']}: {check.get('errorMessage', '')}"
        succeeded = [check for check in checks if check["status"] == "SUCCESS" and check["id"] != WIRE]
        if not succeeded and scenario not in {name for name, _ in excused}:
            yield f"{scenario}: nothing was exercised"


def _written(folder: Path) -> dict[str, list[Check]]:
    found = {}
    for one in sorted(folder.iterdir()):
        match = _FOLDER.fullmatch(one.name)
        assert match is not None, one.name
        found[match[1]] = json.loads((one / "checks.json").read_text())
    return found
