"""Read the Test Anything Protocol, version 12 to 14, with the trailer that node's runner and tape add."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from coretools.tools.ci.parsed_report import Failure, ParsedReport, block, first_unique, matches, message, place

_POINT = re.compile(r"( *)(not )?ok\b(?: +(\d+))?(?: +-)?(?: +(.*))?$")

_PLAN = re.compile(r"1\.\.(\d+)(?:\s|$)")

_DIRECTIVE = re.compile(r"(?<!\\)#\s*(skip|todo)", re.IGNORECASE)

_TRAILER = re.compile(r"# (tests|pass|fail|skipped|todo|cancelled) +(\d+)$")

_LOCATION = re.compile(r"\s+(?:location|at): (.*)$")

_ERROR = re.compile(r"(\s+)(?:error|message): (.*)$")

_BLOCK_SCALAR = re.compile(r"[|>][+-]?$")


def read_tap(lines: Sequence[str]) -> ParsedReport | None:
    """Read all TAP streams, summed. Test points without a plan are ignored: other output can look like them."""
    plans = [int(match[1]) for match in matches(_PLAN, lines)]
    if not plans and not any(line.startswith("TAP version") for line in lines):
        return None
    points = [(position, match) for position, line in enumerate(lines) if (match := _POINT.match(line))]
    if not points and not any(plan == 0 for plan in plans):
        return None
    failures = first_unique(_failures(lines, points))
    return _by_trailer(lines, failures) or _by_points(points, sum(plans), failures=failures)


def _by_trailer(lines: Sequence[str], failures: tuple[Failure, ...]) -> ParsedReport | None:
    """Read the counts that node and tape print: tests without their suites."""
    counts: Counter[str] = Counter()
    for match in matches(_TRAILER, lines):
        counts[match[1]] += int(match[2])
    if "tests" not in counts or "pass" not in counts:
        return None
    if "todo" not in counts and any(line.startswith("not ok") and _DIRECTIVE.search(line) for line in lines):
        return None  # AVA counts what is still to be written as failed
    return ParsedReport(
        passed=counts["pass"],
        failed=counts["fail"] + counts["cancelled"],
        skipped=counts["skipped"] + counts["todo"],
        failures=failures,
    )


def _by_points(
    points: Sequence[tuple[int, re.Match[str]]], planned: int, *, failures: tuple[Failure, ...]
) -> ParsedReport:
    """Count the outermost test points; a planned test without a point is an error."""
    outer = [point for _, point in points if not point[1]]
    directives = [bool(_DIRECTIVE.search(point[4] or "")) for point in outer]
    skipped = sum(directives)
    failed = sum(bool(point[2]) and not excused for point, excused in zip(outer, directives, strict=True))
    return ParsedReport(
        passed=len(outer) - skipped - failed,
        failed=failed,
        skipped=skipped,
        errors=planned - len(outer),
        failures=failures,
    )


def _failures(lines: Sequence[str], points: Sequence[tuple[int, re.Match[str]]]) -> Iterator[Failure]:
    for position, point in points:
        name = point[4] or f"test {point[3] or ''}".rstrip()
        if point[2] and not _DIRECTIVE.search(name):
            failure = _failure(name, block(lines, position + 1))
            if failure is not None:
                yield failure


def _failure(name: str, lines: Sequence[str]) -> Failure | None:
    """One point with its YAML block, or None when it fails only because tests inside it did."""
    if not lines or lines[0].strip() != "---":
        return Failure(name)
    file, line_number = "", 0
    message_lines: list[str] = []
    for position, line in enumerate(lines[1:], 1):
        text = line.strip()
        if text == "...":
            break
        if text == "failureType: 'subtestsFailed'":
            return None
        if not file and (match := _LOCATION.match(line)):
            file, line_number = place(match[1])
        elif not message_lines and (match := _ERROR.match(line)):
            message_lines = _scalar(match, lines[position + 1 :])
    return Failure(name, file, line_number, message(message_lines))


def _scalar(match: re.Match[str], lines: Sequence[str]) -> list[str]:
    """A YAML scalar: on its line, quoted or not, or the deeper lines below it."""
    if not _BLOCK_SCALAR.match(match[2]):
        return [match[2].strip("'\"")]
    indent = len(match[1])
    scalar: list[str] = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        scalar.append(line)
    return scalar
