"""Counts of a passed Gradle run, which prints none, from the result files that it leaves in the build directory.

The files of a test task are those of its last run: Gradle removes them before it runs the task again, and an
up-to-date task would yield the same. Only the head of each file is read; no XML is parsed.
"""

import re

from coretools.tools.ci.build_system import Project, matching_names
from coretools.tools.ci.parsed_report import ParsedReport, summed

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
    return summed([_suite(project.read(path)[:_HEAD]) for path in _files(project)])


def _files(project: Project) -> list[str]:
    folders = ["", *(f"{name}/" for name in sorted(project.names)[:MOST_PROJECTS])]
    files: list[str] = []
    for folder in folders:
        results = f"{folder}build/test-results"
        for task in sorted(project.names_in(results)):
            files += [
                f"{results}/{task}/{name}"
                for name in matching_names(project.names_in(f"{results}/{task}"), "TEST-*.xml")
            ]
    return files[:MOST_FILES]


def _suite(head: str) -> ParsedReport:
    element = _SUITE.search(head)
    counts = {name: int(number) for name, number in _COUNT.findall(element[1])} if element else {}
    skipped, failed, errors = counts.get("skipped", 0), counts.get("failures", 0), counts.get("errors", 0)
    passed = counts.get("tests", 0) - skipped - failed - errors
    return ParsedReport(passed=passed, failed=failed, skipped=skipped, errors=errors)
