"""Reads the Test Anything Protocol, version 12 to 14, with the trailer that node's runner and tape add."""

import re
from collections.abc import Iterator, Sequence

from coretools.tools.ci.report import Failure, Report, block, kept, message, place

_POINT = re.compile(r"( *)(not )?ok\b(?: +(\d+))?(?: +-)?(?: +(.*))?$")
_PLAN = re.compile(r"1\.\.(\d+)(?:\s|$)")
_DIRECTIVE = re.compile(r"(?<!\\)#\s*(skip|todo)", re.IGNORECASE)
_TRAILER = re.compile(r"# (tests|pass|fail|skipped|todo|cancelled) +(\d+)$")
_LOCATION = re.compile(r"\s+(?:location|at): (.*)$")
_ERROR = re.compile(r"(\s+)(?:error|message): (.*)$")
_BLOCK_SCALAR = re.compile(r"[|>][+-]?$")


def read_tap(lines: Sequence[str]) -> Report | None:
    """Every TAP stream in the output, summed. A line that looks like a test point without a plan proves nothing."""
    plans = [int(found[1]) for line in lines if (found := _PLAN.match(line))]
    if not plans and not any(line.startswith("TAP version") for line in lines):
        return None
    points = [(position, found) for position, line in enumerate(lines) if (found := _POINT.match(line))]
    if not points and not any(plan == 0 for plan in plans):
        return None
    failures = kept(_failures(lines, points))
    return _by_trailer(lines, failures) or _by_points(points, sum(plans), failures=failures)


def _by_trailer(lines: Sequence[str], failures: tuple[Failure, ...]) -> Report | None:
    """Counts as node and tape say them: tests without the suites around them."""
    said: dict[str, int] = {}
    for line in lines:
        if found := _TRAILER.match(line):
            said[found[1]] = said.get(found[1], 0) + int(found[2])
    if "tests" not in said or "pass" not in said:
        return None
    if "todo" not in said and any(line.startswith("not ok") and _DIRECTIVE.search(line) for line in lines):
        return None  # AVA counts what is still to be written as failed
    return Report(
        passed=said["pass"],
        failed=said.get("fail", 0) + said.get("cancelled", 0),
        skipped=said.get("skipped", 0) + said.get("todo", 0),
        failures=failures,
    )


def _by_points(points: Sequence[tuple[int, re.Match[str]]], planned: int, *, failures: tuple[Failure, ...]) -> Report:
    """Counts of the outermost test points; what was planned and never came is an error."""
    outer = [found for _, found in points if not found[1]]
    directives = [bool(_DIRECTIVE.search(found[4] or "")) for found in outer]
    skipped = sum(directives)
    failed = sum(bool(found[2]) and not excused for found, excused in zip(outer, directives, strict=True))
    return Report(
        passed=len(outer) - skipped - failed,
        failed=failed,
        skipped=skipped,
        errors=max(0, planned - len(outer)),
        failures=failures,
    )


def _failures(lines: Sequence[str], points: Sequence[tuple[int, re.Match[str]]]) -> Iterator[Failure]:
    for position, found in points:
        said = found[4] or f"test {found[3] or ''}".rstrip()
        if found[2] and not _DIRECTIVE.search(said):
            failure = _failure(said, block(lines, position + 1))
            if failure is not None:
                yield failure


def _failure(name: str, lines: Sequence[str]) -> Failure | None:
    """One point with its YAML block, or None when it fails only because tests inside it did."""
    if not lines or lines[0].strip() != "---":
        return Failure(name)
    file, line_number = "", 0
    said: list[str] = []
    for position, line in enumerate(lines[1:], 1):
        text = line.strip()
        if text == "...":
            break
        if text == "failureType: 'subtestsFailed'":
            return None
        if not file and (found := _LOCATION.match(line)):
            file, line_number = place(found[1])
        elif not said and (found := _ERROR.match(line)):
            said = _scalar(found, lines[position + 1 :])
    return Failure(name, file, line_number, message(said))


def _scalar(found: re.Match[str], lines: Sequence[str]) -> list[str]:
    """A YAML scalar: on its line, quoted or not, or the deeper lines below it."""
    if not _BLOCK_SCALAR.match(found[2]):
        return [found[2].strip("'\"")]
    indent = len(found[1])
    said: list[str] = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        said.append(line)
    return said
