"""Parse the output of a test run, of whatever runners, into one report.

Pure. The ordinary output is parsed: report files need flags that only some runners have, and that a caller's own
command does not contain (ADR 0014).
"""

import re
from collections.abc import Callable, Sequence

from coretools.tools.ci.build_system import Project, matching_names
from coretools.tools.ci.parsed_report import ParsedReport, split_lines
from coretools.tools.ci.read_cargo_ctest import read_cargo, read_ctest, read_go, read_nextest
from coretools.tools.ci.read_dotnet_jvm import read_dotnet, read_gradle, read_maven
from coretools.tools.ci.read_javascript import (
    read_ava,
    read_bun,
    read_jest,
    read_mocha,
    read_node_spec,
    read_tap,
    read_vitest,
)
from coretools.tools.ci.read_python import read_pytest, read_unittest
from coretools.tools.execution_result import without_escapes

Reader = Callable[[Sequence[str]], ParsedReport | None]

_READERS: tuple[tuple[Reader, ...], ...] = (
    (read_unittest,),
    (read_jest,),
    (read_vitest,),
    (read_mocha,),
    (read_bun,),
    (read_ava,),
    (read_node_spec, read_tap),
    (read_nextest, read_cargo),
    (read_go,),
    (read_ctest,),
    (read_dotnet,),
    (read_maven,),
    (read_gradle,),
)
"""In each group the first reader that finds counts is used. The groups add up: `make test` may run several runners."""


def parse(output: str) -> ParsedReport | None:
    """Return the counts and failures in this output, or None if no known runner printed it."""
    pytest_report, lines = read_pytest(split_lines(without_escapes(output).replace("\r\n", "\n")))
    reports = [] if pytest_report is None else [pytest_report]
    for group in _READERS:
        found = next((report for reader in group if (report := reader(lines)) is not None), None)
        if found is not None:
            reports.append(found)
    return sum(reports[1:], start=reports[0]) if reports else None


# Counts of a passed Gradle run. Gradle prints none then, but leaves result files in the build directory.
#
# The files of a test task are those of its last run: Gradle removes them before it runs the task again, and an
# up-to-date task would yield the same. Only the head of each file is read; no XML is parsed.


MOST_FILES = 2_000
"""Most result files read; there is one for each test class."""

MOST_PROJECTS = 200
"""Most directories checked as subprojects."""

_SUITE = re.compile(r"<testsuite\b([^>]*)>")
_COUNT = re.compile(r'\b(tests|skipped|failures|errors)="(\d{1,9})"')
_HEAD = 4_096
"""Characters that contain the first element."""


def gradle_results(project: Project) -> ParsedReport | None:
    """Add up the result files of a project and its subprojects; None if there are none."""
    reports = [_suite(project.read(path)[:_HEAD]) for path in _files(project)]
    return sum(reports[1:], start=reports[0]) if reports else None


def _files(project: Project) -> list[str]:
    folders = ["", *(f"{name}/" for name in sorted(project.names)[:MOST_PROJECTS])]
    found: list[str] = []
    for folder in folders:
        results = f"{folder}build/test-results"
        for task in sorted(project.names_in(results)):
            found += [
                f"{results}/{task}/{name}"
                for name in matching_names(project.names_in(f"{results}/{task}"), "TEST-*.xml")
            ]
    return found[:MOST_FILES]


def _suite(head: str) -> ParsedReport:
    element = _SUITE.search(head)
    counts = {name: int(number) for name, number in _COUNT.findall(element[1])} if element else {}
    skipped, failed, errors = counts.get("skipped", 0), counts.get("failures", 0), counts.get("errors", 0)
    passed = max(0, counts.get("tests", 0) - skipped - failed - errors)
    return ParsedReport(passed=passed, failed=failed, skipped=skipped, errors=errors)
