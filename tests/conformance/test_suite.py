"""The official conformance suite against a running `coretools-http` (docs/specs/interoperability.md)."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.conftest import Served, serving_tasks
from tests.conformance.fixture import registry
from tests.conformance.suite import (
    EXCUSED,
    OLD_CLIENT,
    RUNS,
    STABLE,
    WIRE,
    Check,
    Run,
    extension,
    faults,
    listed,
    results,
)
from tests.conftest import Figure

ONLY_LISTED = {"json_schema_2020_12_tool", "watched_resource"}
"""Fixtures that the suite lists, or subscribes to, and does not call."""

HANDSHAKE_ONLY = {"test_tool_with_logging", "test_sampling", "test_elicitation"}
NEWEST_HANDSHAKE_ONLY = {"test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums", "test_reconnection"}
STATELESS_ONLY = {
    *("test_missing_capability", "test_streaming_elicitation", "test_logging_tool", "test_x_mcp_header"),
    *("test_trigger_tool_change", "test_trigger_prompt_change"),
}
ASKED_AGAIN = "test_input_required_result_"

ENDS = {
    "test_error_handling": {"unsupported"},
    "test_missing_capability": {"capability-missing"},
    "test_streaming_elicitation": {"input-needed"},
    f"{ASKED_AGAIN}capabilities": {"input-needed"},
    f"{ASKED_AGAIN}tampered_state": {"input-needed"},
}
"""Outcomes of the commands that the suite does not complete."""


def expected(revision: str) -> dict[str, set[str]]:
    """The fixtures that the suite must call at a revision, and the outcome of each."""
    names = {command.name for command in registry()} - ONLY_LISTED
    stateless = STATELESS_ONLY | {name for name in names if name.startswith(ASKED_AGAIN)}
    names -= (HANDSHAKE_ONLY | NEWEST_HANDSHAKE_ONLY) if revision == "2026-07-28" else stateless
    names -= NEWEST_HANDSHAKE_ONLY if revision == "2025-06-18" else set()
    in_rounds = {name: {"input-needed", "ok"} for name in names if name.startswith(ASKED_AGAIN)}
    return {**{name: {"ok"} for name in names}, **in_rounds, **{name: ENDS[name] for name in names & set(ENDS)}}


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_every_scenario_of_the_suite_passes(
    run: Run, node: Path, served: Served, tmp_path: Path, figure: Figure
) -> None:
    """interoperability-5, interoperability-6: no check fails, warns or is skipped, and each fixture was called."""
    mark = served.mark()
    scenarios = results(node, run, served.url, tmp_path)
    assert set(scenarios) == listed(node, run)
    assert len(scenarios) == run.scenarios
    assert list(faults(run, scenarios)) == []
    assert served.since(mark) == expected(run.revision)
    checks = [check for one in scenarios.values() for check in one if check["status"] == "SUCCESS"]
    figure(f"conformance {run}: {len(scenarios)} scenarios, {len(checks)} checks passed")


def test_excused_checks_fail_for_the_stated_reason(node: Path, served: Served, tmp_path: Path) -> None:
    """interoperability-6: the stable version sends the headers of a revision without priming events."""
    run = next(one for one in RUNS if (one.package, one.version) == STABLE and one.revision == "2025-11-25")
    only = ("--scenario", "server-sse-polling")
    polling = results(node, run, served.url, tmp_path, *only)["server-sse-polling"]
    assert {check["id"] for check in polling if check["status"] == "WARNING"} == {check for _, _, check in EXCUSED}
    assert set(EXCUSED.values()) == {OLD_CLIENT}
    sent = [check["details"]["headers"] for check in polling if check["id"] == "outgoing-request"]
    assert [headers["mcp-protocol-version"] for headers in sent] == ["2025-03-26"]


TASKS = (
    *("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"),
    *("tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-required-task-error"),
    "tasks-mrtr-composition",
)
NOT_TASKS = {
    "tasks-status-notifications": "skipped by the suite, whatever the server",
    "sep-2640-skills-directory": "an extension that we don't have",
    "sep-2640-skills-enumeration": "an extension that we don't have",
    "sep-2640-skills-manifest": "an extension that we don't have",
}


@pytest.mark.timeout(240)
def test_the_scenarios_of_the_tasks_extension_pass(node: Path, tmp_path: Path) -> None:
    """interoperability-10: each alone, two concurrently, because they wait most of the time."""
    run = RUNS[-1]
    extensions = set(listed(node, run, everything=True)).difference(*(listed(node, one) for one in RUNS))
    assert extensions == {*TASKS, *NOT_TASKS}
    with serving_tasks(tmp_path) as url, ThreadPoolExecutor(2) as workers:
        folders = [tmp_path / scenario for scenario in TASKS]
        found = workers.map(partial(extension, node, run, url), TASKS, folders)
        assert [list(faults(run, one)) for one in found] == [[]] * len(TASKS)


def check(status: str, name: str = "other") -> Check:
    return {"id": name, "status": status}


@pytest.mark.parametrize(
    ("checks", "counts"),
    [
        ([check("SUCCESS"), check("INFO")], False),
        ([check("SUCCESS"), check("FAILURE")], True),
        ([check("SUCCESS"), check("WARNING")], True),
        ([check("SUCCESS"), check("SKIPPED")], True),
        ([check("INFO")], True),
        ([check("SUCCESS", WIRE)], True),
        ([], True),
    ],
    ids=["passed", "failed", "warned", "skipped", "only informative", "only well formed", "empty"],
)
def test_a_tick_without_a_success_counts_against_a_run(checks: list[Check], counts: bool) -> None:
    """interoperability-6: the suite's own summary ticks all of these but the second."""
    assert bool(list(faults(RUNS[-1], {"scenario": checks}))) is counts
