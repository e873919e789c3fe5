"""The official conformance suite against our client: which scenarios pass, and why the others can't apply.

A change of either is a failure: a scenario that begins to fail, and one that begins to pass or is new.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.conformance.client_lines import outcome_by_lines
from tests.conformance.client_under_test import Outcome, client_under_test, outcome_by_library
from tests.conformance.suite import NEXT, STABLE, Check, Run, faults, program
from tests.conftest import Figure
from tests.variables import variables
from tests.web.certificates import write_certificate

DRIVER = Path(__file__).parent / "client_driver.py"

OLD = Run(*STABLE, "", 26)
NEW = Run(*NEXT, "2026-07-28", 39)
RUNS: Mapping[Run, tuple[str, ...]] = {OLD: ("--suite", "all"), NEW: ("--requirements", "2026-07-28")}
"""All that the stable version has, and what the newest revision requires, with its extensions."""

NO_EXCHANGE = "a login by an enterprise's identity provider (SEP-990): the SDK has no token exchange"
DPOP = "an extension that neither the SDK nor this client has (SEP-1932)"
OTHER_ISSUER = (
    "its metadata names another issuer than the address that was asked, which RFC 8414 (3.3) forbids;"
    " the newest version has corrected it"
)

CAN_NOT_PASS: Mapping[Run, Mapping[str, str]] = {
    OLD: {
        "auth/2025-03-26-oauth-metadata-backcompat": OTHER_ISSUER,
        "auth/cross-app-access-complete-flow": NO_EXCHANGE,
    },
    NEW: {
        "auth/enterprise-managed-authorization": NO_EXCHANGE,
        "auth/dpop": DPOP,
        "auth/dpop-nonce": DPOP,
        "auth/wif-jwt-bearer": "an extension: the token of a workload instead of a client's secret or key",
    },
}

NOT_RUN = {
    **dict.fromkeys(
        (
            *("initialize", "elicitation-sep1034-client-defaults", "sse-retry"),
            *("auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"),
        ),
        "belongs to earlier revisions: the stable version has it",
    ),
    **dict.fromkeys(
        (
            *("sep-2640-client-no-prefetch", "sep-2640-client-verify-digest"),
            *("sep-2640-client-verify-size", "sep-2640-client-verify-frontmatter"),
        ),
        "skills: an extension that this client does not have",
    ),
}
"""Scenarios of the newest version that the newest revision does not require."""

EXCUSED = {("http-standard-headers", "SKIPPED"): "the stateless revision has no `initialize` and no `initialized`"}

_LISTED = re.compile(r"^  - (\S+)", re.MULTILINE)
_FOLDER = re.compile(r"(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


async def results(
    node: Path, run: Run, scenarios: int, folder: Path, *which: str, outcome: Outcome = outcome_by_library
) -> dict[str, list[Check]]:
    """Run so many scenarios; return the checks of each."""
    # One certificate authority instead of 140: they are loaded for each client of HTTP, and nothing here is encrypted.
    authority = write_certificate(folder).path
    with variables(SSL_CERT_FILE=str(authority)):
        async with client_under_test(scenarios, outcome) as address:
            client = f"{sys.executable} -IS {DRIVER} {address}"
            words = ("client", "--command", client, "--timeout", "90000", "--output-dir", str(folder), *which)
            await to_thread.run_sync(program, node, run, *words)
    return written(folder)


def written(folder: Path) -> dict[str, list[Check]]:
    """The checks that count, by scenario."""
    found: dict[str, list[Check]] = {}
    for path in folder.rglob("checks.json"):
        match = _FOLDER.fullmatch(path.parent.relative_to(folder).as_posix())
        assert match is not None, path
        checks: list[Check] = json.loads(path.read_text())
        found[match[1]] = [one for one in checks if (match[1], one["status"]) not in EXCUSED and not is_late(one)]
    return found


def is_late(check: Check) -> bool:
    """Whether a check says that the machine was slow: the client may reconnect after the time, and must not before."""
    return check["id"] == "client-sse-retry-timing" and check["details"].get("tooEarly") is False


def failing(run: Run, scenarios: Mapping[str, Sequence[Check]]) -> dict[str, list[str]]:
    """The scenarios that did not pass, each with what is wrong."""
    found = {name: list(faults(run, {name: checks})) for name, checks in scenarios.items()}
    return {name: wrong for name, wrong in found.items() if wrong}


@pytest.mark.parametrize("run", RUNS, ids=str)
async def test_every_scenario_that_applies_to_our_client_passes(
    run: Run, node: Path, tmp_path: Path, figure: Figure
) -> None:
    """client-authorization-13: no check of it fails, warns or is skipped."""
    scenarios = await results(node, run, run.scenarios, tmp_path, *RUNS[run])
    assert len(scenarios) == run.scenarios
    wrong = failing(run, scenarios)
    assert set(wrong) == set(CAN_NOT_PASS[run]), wrong
    passed = [one for name, checks in scenarios.items() if name not in wrong for one in checks]
    succeeded = sum(one["status"] == "SUCCESS" for one in passed)
    figure(f"conformance of the client, {run}: {run.scenarios - len(wrong)} scenarios, {succeeded} checks passed")


BY_LINES = {
    (OLD, "tools_call"): 0,
    (OLD, "auth/scope-step-up"): 0,
    (NEW, "auth/scope-step-up"): 0,
    (NEW, "auth/scope-retry-limit"): 67,
    (NEW, "auth/authorization-server-migration"): 0,
    (NEW, "sep-2322-client-request-state"): 0,
}
"""Scenarios in which steps depend on what an earlier process has kept, each with the exit code at the end."""


async def test_lines_pass_what_the_library_passes(node: Path, tmp_path: Path) -> None:
    """client-authorization-13: `coretools mcp tools`, `call` and `login`, each in a process of its own."""
    outcomes: dict[tuple[Run, str], tuple[int, dict[str, list[str]]]] = {}
    places = anyio.CapacityLimiter(2)

    async def run_one(run: Run, name: str, folder: Path) -> None:
        codes: list[tuple[int, str]] = []

        async def outcome(scenario: Mapping[str, object]) -> tuple[int, str]:
            codes.append(await to_thread.run_sync(outcome_by_lines, scenario))
            return codes[-1]

        which = ("--scenario", name, *(("--spec-version", run.revision) if run.revision else ()))
        async with places:
            checks = await results(node, run, 1, folder, *which, outcome=outcome)
        outcomes[run, name] = (codes[0][0], failing(run, checks))

    async with anyio.create_task_group() as tasks:
        for number, (run, name) in enumerate(BY_LINES):
            (tmp_path / str(number)).mkdir()
            tasks.start_soon(run_one, run, name, tmp_path / str(number))
    assert outcomes == {scenario: (code, {}) for scenario, code in BY_LINES.items()}


async def test_no_scenario_of_the_newest_version_is_left_out_unnoticed(node: Path, tmp_path: Path) -> None:
    """client-authorization-13: each is run, or has a reason; the one of the stable version is corrected."""
    listed = set(_LISTED.findall(program(node, NEW, "list", "--client").stdout))
    assert len(listed) == NEW.scenarios + len(NOT_RUN)
    assert set(NOT_RUN) <= listed
    corrected = "auth/2025-03-26-oauth-metadata-backcompat"
    scenarios = await results(node, NEW, 1, tmp_path, "--scenario", corrected)
    assert set(scenarios) == {corrected}
    assert failing(NEW, scenarios) == {}
