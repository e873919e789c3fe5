"""Read the output of go test: plain, verbose, and the events of `go test -json`, which become verbose text first."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from coretools.tools.ci.parsed_report import Failure, ParsedReport, first_unique, message, summed

_RUN = re.compile(r"=== (?:RUN|CONT|NAME|PAUSE) +(\S+)")

_RESULT = re.compile(r"\s*--- (PASS|FAIL|SKIP): (\S+) \(")

_PACKAGE = re.compile(r"(ok  |FAIL|\?   )\t(\S+)(?:[\t ](.*))?$")

_LOG = re.compile(r"\s+(\S+\.go):(\d+): (.*)$")

_MORE = re.compile(r"\s{8}")

_GO_PANIC = re.compile(r"(?:panic|fatal error): (.*)$")

_STACK = re.compile(r"\t(\S+_test\.go):(\d+)(?: |$)")

_BUILD = re.compile(r"# (\S+)")

_COMPILE = re.compile(r"(\S+\.go):(\d+):(?:\d+:)? (.*)$")


def go_text(text: str) -> str:
    """Return the output in the events of `go test -json`, package by package; any other text unchanged."""
    if not text.lstrip().startswith('{"'):
        return text
    packages: dict[str, list[str]] = {}
    for line in text.split("\n"):
        package, output = _event(line)
        printed = packages.setdefault(package, [])
        # A test that printed no line end: its result would stand on the same line.
        if output.lstrip(" ").startswith("--- ") and printed and not printed[-1].endswith("\n"):
            printed.append("\n")
        printed.append(output)
    return "".join("".join(printed) for printed in packages.values())


def _event(line: str) -> tuple[str, str]:
    """Package and output of one event; a line that is not an event is output itself."""
    if not line.startswith('{"'):
        return "", f"{line}\n" if line else ""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return "", f"{line}\n"
    if not isinstance(event, dict) or "Action" not in event:
        return "", f"{line}\n"
    return str(event.get("Package") or event.get("ImportPath") or ""), str(event.get("Output", ""))


def displayed(text: str) -> str:
    """Return verbose output without the lines of started, continued and passed tests."""
    noise = ("=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "--- PASS")
    return "\n".join(line for line in text.split("\n") if not line.lstrip(" ").startswith(noise))


@dataclass(slots=True)
class _Tests:
    """Results of one package until its summary line."""

    results: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    printed_lines: dict[str, list[str]] = field(default_factory=dict)

    def leaves(self, result: str) -> list[str]:
        """Tests with this result and no sub-tests: a parent only repeats the results of its sub-tests."""
        parents = {name.rpartition("/")[0] for name in self.results if "/" in name}
        return [name for name, outcome in self.results.items() if outcome == result and name not in parents]


def read_go(lines: Sequence[str]) -> ParsedReport | None:
    """Read go test. Without -v a passed package lists no tests and counts as one."""
    packages: list[ParsedReport] = []
    tests, current = _Tests(), ""
    broken: dict[str, Failure] = {}
    building = ""
    for line in lines:
        if match := _PACKAGE.match(line):
            building = ""
            packages.append(_package(tests, match, broken=broken))
            tests, current = _Tests(), ""
        elif match := _RUN.match(line):
            current = match[1]
        elif match := _RESULT.match(line):
            current = match[2]
            tests.results[current] = match[1]
        elif match := _BUILD.match(line):
            building = match[1]
        elif building and (match := _COMPILE.match(line)):
            broken.setdefault(building, Failure(building, match[1].removeprefix("./"), int(match[2][:9]), match[3]))
        else:
            _note(tests, line, current=current)
    return summed(packages)


def _note(tests: _Tests, line: str, *, current: str) -> None:
    """Read the log lines of a test: the first is its location, all of them are its message."""
    if match := _LOG.match(line):
        tests.places.setdefault(current, (match[1], int(match[2][:9])))
        tests.printed_lines.setdefault(current, []).append(match[3])
    elif match := _GO_PANIC.match(line):
        tests.printed_lines.setdefault(current, []).append(line)
        tests.results.setdefault(current, "FAIL")
    elif (match := _STACK.match(line)) and current in tests.printed_lines:
        tests.places.setdefault(current, (match[1], int(match[2][:9])))
    elif _MORE.match(line) and len(tests.printed_lines.get(current, ())) in range(1, 20):
        tests.printed_lines[current].append(line)


def _package(tests: _Tests, line: re.Match[str], *, broken: dict[str, Failure]) -> ParsedReport:
    verdict, package, rest = line[1].strip(), line[2], line[3] or ""
    passed, failed, skipped = (tests.leaves(result) for result in ("PASS", "FAIL", "SKIP"))
    failures = tuple(_failures(tests, failed, package=package))
    errors = 0
    if verdict == "FAIL" and not failed:
        errors = 1
        failures = (broken.get(package, Failure(package, message=rest.strip("[]"))),)
    alone = verdict == "ok" and not tests.results and "[no tests to run]" not in rest
    return ParsedReport(
        passed=len(passed) + alone,
        failed=len(failed),
        skipped=len(skipped),
        errors=errors,
        failures=first_unique(failures),
    )


def _failures(tests: _Tests, failed: Sequence[str], *, package: str) -> Iterator[Failure]:
    for name in failed:
        file, number = tests.places.get(name, ("", 0))
        if file and "/" not in file:
            file = f"{package}/{file}"
        yield Failure(name or package, file, number, message(tests.printed_lines.get(name, [])))
