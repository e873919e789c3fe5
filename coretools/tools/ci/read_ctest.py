"""Read the output of CTest."""

import re
from collections.abc import Sequence

from coretools.tools.ci.parsed_report import Failure, ParsedReport, block, first_unique, matches, message

_CTEST_SUMMARY = re.compile(r"\d+% tests passed, (\d+) tests? failed out of (\d+)")

_CTEST_LINE = re.compile(r"\s*\d+/\d+ (?:Mem)?(?:Test|Check)\s+#\d+: (\S.*) sec$")

_CTEST_NEXT = re.compile(r"\s*(?:\d+/\d+ |Start +\d+: )|\d+% tests passed")

_CTEST_SKIPPED = ("Skipped", "Not Run (Disabled)", "Disabled")

_SOURCE_LINE = re.compile(r"(?:^|\s)([^\s:()]+\.(?:cc?|cpp|cxx|hh?|hpp|m|mm|f90|py|rs)):(\d+):")


def read_ctest(lines: Sequence[str]) -> ParsedReport | None:
    """Read ctest, all runs summed. The place comes from what the test printed, where the run showed it."""
    summaries = matches(_CTEST_SUMMARY, lines)
    if not summaries:
        return None
    results = [
        (position, *_ctest_result(match[1]))
        for position, line in enumerate(lines)
        if (match := _CTEST_LINE.match(line))
    ]
    skipped = sum(status in _CTEST_SKIPPED for _, _, status in results)
    disabled = sum("Disabled" in status for _, _, status in results)
    failed = sum(int(match[1]) for match in summaries)
    # 'out of' counts the skipped but not the disabled.
    passed = sum(int(match[2]) for match in summaries) - failed - (skipped - disabled)
    failures = first_unique(
        _ctest_failure(name, status, lines=block(lines, position + 1))
        for position, name, status in results
        if status != "Passed" and status not in _CTEST_SKIPPED
    )
    return ParsedReport(passed=passed, failed=failed, skipped=skipped, failures=failures)


def _ctest_result(text: str) -> tuple[str, str]:
    """Name and status of `bad one .......***Failed    0.02`."""
    text = text.rpartition(" ")[0].rstrip()
    name, stars, status = text.rpartition("***")
    if not stars:
        name, _, status = text.rpartition(" ")
    return name.rstrip(" ."), status.strip()


def _ctest_failure(name: str, status: str, *, lines: Sequence[str]) -> Failure:
    for line in lines:
        if _CTEST_NEXT.match(line):
            break
        if match := _SOURCE_LINE.search(line):
            return Failure(name, match[1], int(match[2][:9]), message([line]))
    return Failure(name, message=message([status]))
