"""Reads what cargo test, cargo nextest and ctest print."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from coretools.tools.ci.parsed_report import Failure, ParsedReport, block, first_unique, message, place

_CARGO_RESULT = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored;")
_CARGO_FAILED = re.compile(r"test (\S.*) \.\.\. FAILED$")
_CARGO_SECTION = re.compile(r"---- (\S.*) (?:stdout|stderr) ----$")
_CARGO_END = re.compile(r"---- |failures:$|test result: ")
_CARGO_DIED = re.compile(r"\s+process didn't exit successfully: `([^`]*)` \((signal: .*)\)$")
_DOC_TEST = re.compile(r"\(line (\d+)\)$")
_PANIC = re.compile(r"\s*thread '([^']*)' (?:\(\d+\) )?panicked at (.*)$")
_PANIC_OLD = re.compile(r"'(.*)', (\S+:\d+:\d+)$")
_NOT_PANICKED = re.compile(r"note: test did not panic as expected(?: at (\S+:\d+:\d+))?")


def read_cargo(lines: Sequence[str]) -> ParsedReport | None:
    """Read cargo test: every binary and the documentation tests, summed. A binary that died counts as one error."""
    results = [found for line in lines if (found := _CARGO_RESULT.match(line))]
    died = [found for line in lines if (found := _CARGO_DIED.match(line))]
    if not results and not died:
        return None
    return ParsedReport(
        passed=sum(int(found[1]) for found in results),
        failed=sum(int(found[2]) for found in results),
        skipped=sum(int(found[3]) for found in results),
        errors=len(died),
        failures=first_unique([*_cargo_failures(lines), *(Failure(found[1], message=found[2]) for found in died)]),
    )


def _cargo_failures(lines: Sequence[str]) -> Iterator[Failure]:
    """In the order of their details, then those that have none (output was not captured)."""
    detailed: set[str] = set()
    for position, line in enumerate(lines):
        if found := _CARGO_SECTION.match(line):
            detailed.add(found[1])
            yield _cargo_failure(found[1], block(lines, position + 1))
    for line in lines:
        if found := _CARGO_FAILED.match(line):
            name = found[1].removesuffix(" - should panic")
            if name not in detailed:
                yield Failure(name)


def _cargo_failure(name: str, lines: Sequence[str]) -> Failure:
    message_lines: list[str] = []
    doc = _DOC_TEST.search(name)
    where = (name.partition(" - ")[0], int(doc[1][:9])) if doc else ("", 0)
    for position, line in enumerate(lines):
        if _CARGO_END.match(line):
            break
        if _PANIC.match(line):
            panic_place, panic_lines = _panic(lines, position)
            return Failure(name, *(where if doc else panic_place), panic_lines)
        if found := _NOT_PANICKED.match(line):
            return Failure(name, *place(found[1] or ""), line.removeprefix("note: "))
        message_lines.append(line)
    return Failure(name, *where, message(message_lines))


def _panic(lines: Sequence[str], position: int) -> tuple[tuple[str, int], str]:
    """Place and message of a panic: on the lines after it since Rust 1.73, in quotes on its own line before."""
    found = _PANIC.match(lines[position])
    rest = found[2] if found else ""
    if old := _PANIC_OLD.match(rest):
        return place(old[2]), message([old[1]])
    message_lines: list[str] = []
    for line in lines[position + 1 : position + 20]:
        text = line.strip()
        if not text or text.startswith(("stack backtrace:", "note: ")):
            break
        message_lines.append(text)
    return place(rest.removesuffix(":")), message(message_lines)


_NEXTEST_COUNTS = re.compile(r"\s+Summary \[[^\]]*\] +\d+(?:/\d+)? tests? run: (.*)$")
_NEXTEST_COUNT = re.compile(r"(\d+) (passed|failed|timed out|exec failed|skipped)")
_NEXTEST_FAILED = re.compile(
    r"\s+(?:TRY \d+ )?(FAIL|TIMEOUT|ABORT|XFAIL|LEAK-FAIL|SIG[A-Z]+) \[[^\]]*\] +(?:\( *\d+/\d+\) +)?(\S+ \S.*)$"
)


def read_nextest(lines: Sequence[str]) -> ParsedReport | None:
    """Read cargo nextest. The lines of libtest that it passes on are not counted again."""
    found = [match[1] for line in lines if (match := _NEXTEST_COUNTS.match(line))]
    if not found:
        return None
    counts = dict.fromkeys(("passed", "failed", "timed out", "exec failed", "skipped"), 0)
    for text in found:
        for number, word in _NEXTEST_COUNT.findall(text):
            counts[word] += int(number)
    panics = {match[1]: position for position, line in enumerate(lines) if (match := _PANIC.match(line))}
    return ParsedReport(
        passed=counts["passed"],
        failed=counts["failed"] + counts["timed out"],
        skipped=counts["skipped"],
        errors=counts["exec failed"],
        failures=first_unique(_nextest_failures(lines, panics)),
    )


def _nextest_failures(lines: Sequence[str], panics: dict[str, int]) -> Iterator[Failure]:
    for line in lines:
        if found := _NEXTEST_FAILED.match(line):
            test = found[2].partition(" ")[2]
            if test in panics:
                where, reason = _panic(lines, panics[test])
                yield Failure(found[2], *where, reason)
            else:
                yield Failure(found[2], message=found[1].lower())


_CTEST_SUMMARY = re.compile(r"\d+% tests passed, (\d+) tests? failed out of (\d+)")
_CTEST_LINE = re.compile(r"\s*\d+/\d+ (?:Mem)?(?:Test|Check)\s+#\d+: (\S.*) sec$")
_CTEST_NEXT = re.compile(r"\s*(?:\d+/\d+ |Start +\d+: )|\d+% tests passed")
_CTEST_SKIPPED = ("Skipped", "Not Run (Disabled)", "Disabled")
_SOURCE_LINE = re.compile(r"(?:^|\s)([^\s:()]+\.(?:cc?|cpp|cxx|hh?|hpp|m|mm|f90|py|rs)):(\d+):")


def read_ctest(lines: Sequence[str]) -> ParsedReport | None:
    """Read ctest, all runs summed. The place comes from what the test printed, where the run showed it."""
    summaries = [found for line in lines if (found := _CTEST_SUMMARY.match(line))]
    if not summaries:
        return None
    results = [(position, *_ctest_result(found[1])) for position, line in enumerate(lines) if (found := _ctest(line))]
    skipped = sum(status in _CTEST_SKIPPED for _, _, status in results)
    disabled = sum("Disabled" in status for _, _, status in results)
    failed = sum(int(found[1]) for found in summaries)
    # 'out of' counts the skipped but not the disabled.
    passed = sum(int(found[2]) for found in summaries) - failed - (skipped - disabled)
    failures = first_unique(
        _ctest_failure(name, status, lines=block(lines, position + 1))
        for position, name, status in results
        if status != "Passed" and status not in _CTEST_SKIPPED
    )
    return ParsedReport(passed=max(0, passed), failed=failed, skipped=skipped, failures=failures)


def _ctest(line: str) -> re.Match[str] | None:
    return _CTEST_LINE.match(line)


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
        if found := _SOURCE_LINE.search(line):
            return Failure(name, found[1], int(found[2][:9]), message([line]))
    return Failure(name, message=message([status]))


# Reads go test: plain, verbose, and the events of `go test -json`, which become verbose text first.


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
    """The events of `go test -json` as what they carry, package by package; any other text as it is."""
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
    """Package and output of one event; a line that is no event is output of its own."""
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
        """Tests of this result that are no parents: a parent only repeats what its sub-tests say."""
        parents = {name.rpartition("/")[0] for name in self.results if "/" in name}
        return [name for name, outcome in self.results.items() if outcome == result and name not in parents]


def read_go(lines: Sequence[str]) -> ParsedReport | None:
    """Read go test. Without -v a passed package lists no tests and counts as one."""
    report: ParsedReport | None = None
    tests, current = _Tests(), ""
    broken: dict[str, Failure] = {}
    building = ""
    for line in lines:
        if found := _PACKAGE.match(line):
            building = ""
            package = _package(tests, found, broken=broken)
            report = package if report is None else report + package
            tests, current = _Tests(), ""
        elif found := _RUN.match(line):
            current = found[1]
        elif found := _RESULT.match(line):
            current = found[2]
            tests.results[current] = found[1]
        elif found := _BUILD.match(line):
            building = found[1]
        elif building and (found := _COMPILE.match(line)):
            broken.setdefault(building, Failure(building, found[1].removeprefix("./"), int(found[2][:9]), found[3]))
        else:
            _note(tests, line, current=current)
    return report


def _note(tests: _Tests, line: str, *, current: str) -> None:
    """Read the log lines of a test: the first is its location, all of them are its message."""
    if found := _LOG.match(line):
        tests.places.setdefault(current, (found[1], int(found[2][:9])))
        tests.printed_lines.setdefault(current, []).append(found[3])
    elif found := _GO_PANIC.match(line):
        tests.printed_lines.setdefault(current, []).append(line)
        tests.results.setdefault(current, "FAIL")
    elif (found := _STACK.match(line)) and current in tests.printed_lines:
        tests.places.setdefault(current, (found[1], int(found[2][:9])))
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
