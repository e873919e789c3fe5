"""Reads what cargo test, cargo nextest and ctest print."""

import re
from collections.abc import Iterator, Sequence

from coretools.tools.ci.report import Failure, Report, block, kept, message, place

_CARGO_RESULT = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored;")
_CARGO_FAILED = re.compile(r"test (\S.*) \.\.\. FAILED$")
_CARGO_SECTION = re.compile(r"---- (\S.*) (?:stdout|stderr) ----$")
_CARGO_END = re.compile(r"---- |failures:$|test result: ")
_CARGO_DIED = re.compile(r"\s+process didn't exit successfully: `([^`]*)` \((signal: .*)\)$")
_DOC_TEST = re.compile(r"\(line (\d+)\)$")
_PANIC = re.compile(r"\s*thread '([^']*)' (?:\(\d+\) )?panicked at (.*)$")
_PANIC_OLD = re.compile(r"'(.*)', (\S+:\d+:\d+)$")
_NOT_PANICKED = re.compile(r"note: test did not panic as expected(?: at (\S+:\d+:\d+))?")


def read_cargo(lines: Sequence[str]) -> Report | None:
    """Read cargo test: every binary and the documentation tests, summed. A binary that died counts as one error."""
    results = [found for line in lines if (found := _CARGO_RESULT.match(line))]
    died = [found for line in lines if (found := _CARGO_DIED.match(line))]
    if not results and not died:
        return None
    return Report(
        passed=sum(int(found[1]) for found in results),
        failed=sum(int(found[2]) for found in results),
        skipped=sum(int(found[3]) for found in results),
        errors=len(died),
        failures=kept([*_cargo_failures(lines), *(Failure(found[1], message=found[2]) for found in died)]),
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
    said: list[str] = []
    doc = _DOC_TEST.search(name)
    where = (name.partition(" - ")[0], int(doc[1][:9])) if doc else ("", 0)
    for position, line in enumerate(lines):
        if _CARGO_END.match(line):
            break
        if _PANIC.match(line):
            panic_place, panic_said = _panic(lines, position)
            return Failure(name, *(where if doc else panic_place), panic_said)
        if found := _NOT_PANICKED.match(line):
            return Failure(name, *place(found[1] or ""), line.removeprefix("note: "))
        said.append(line)
    return Failure(name, *where, message(said))


def _panic(lines: Sequence[str], position: int) -> tuple[tuple[str, int], str]:
    """Place and message of a panic: on the lines after it since Rust 1.73, in quotes on its own line before."""
    found = _PANIC.match(lines[position])
    rest = found[2] if found else ""
    if old := _PANIC_OLD.match(rest):
        return place(old[2]), message([old[1]])
    said: list[str] = []
    for line in lines[position + 1 : position + 20]:
        text = line.strip()
        if not text or text.startswith(("stack backtrace:", "note: ")):
            break
        said.append(text)
    return place(rest.removesuffix(":")), message(said)


_NEXTEST_COUNTS = re.compile(r"\s+Summary \[[^\]]*\] +\d+(?:/\d+)? tests? run: (.*)$")
_NEXTEST_COUNT = re.compile(r"(\d+) (passed|failed|timed out|exec failed|skipped)")
_NEXTEST_FAILED = re.compile(
    r"\s+(?:TRY \d+ )?(FAIL|TIMEOUT|ABORT|XFAIL|LEAK-FAIL|SIG[A-Z]+) \[[^\]]*\] +(?:\( *\d+/\d+\) +)?(\S+ \S.*)$"
)


def read_nextest(lines: Sequence[str]) -> Report | None:
    """Read cargo nextest. The lines of libtest that it passes on are not counted again."""
    found = [match[1] for line in lines if (match := _NEXTEST_COUNTS.match(line))]
    if not found:
        return None
    said = dict.fromkeys(("passed", "failed", "timed out", "exec failed", "skipped"), 0)
    for text in found:
        for number, word in _NEXTEST_COUNT.findall(text):
            said[word] += int(number)
    panics = {match[1]: position for position, line in enumerate(lines) if (match := _PANIC.match(line))}
    return Report(
        passed=said["passed"],
        failed=said["failed"] + said["timed out"],
        skipped=said["skipped"],
        errors=said["exec failed"],
        failures=kept(_nextest_failures(lines, panics)),
    )


def _nextest_failures(lines: Sequence[str], panics: dict[str, int]) -> Iterator[Failure]:
    for line in lines:
        if found := _NEXTEST_FAILED.match(line):
            test = found[2].partition(" ")[2]
            if test in panics:
                where, said = _panic(lines, panics[test])
                yield Failure(found[2], *where, said)
            else:
                yield Failure(found[2], message=found[1].lower())


_CTEST_SUMMARY = re.compile(r"\d+% tests passed, (\d+) tests? failed out of (\d+)")
_CTEST_LINE = re.compile(r"\s*\d+/\d+ (?:Mem)?(?:Test|Check)\s+#\d+: (\S.*) sec$")
_CTEST_NEXT = re.compile(r"\s*(?:\d+/\d+ |Start +\d+: )|\d+% tests passed")
_CTEST_SKIPPED = ("Skipped", "Not Run (Disabled)", "Disabled")
_SOURCE_LINE = re.compile(r"(?:^|\s)([^\s:()]+\.(?:cc?|cpp|cxx|hh?|hpp|m|mm|f90|py|rs)):(\d+):")


def read_ctest(lines: Sequence[str]) -> Report | None:
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
    failures = kept(
        _ctest_failure(name, status, lines=block(lines, position + 1))
        for position, name, status in results
        if status != "Passed" and status not in _CTEST_SKIPPED
    )
    return Report(passed=max(0, passed), failed=failed, skipped=skipped, failures=failures)


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
