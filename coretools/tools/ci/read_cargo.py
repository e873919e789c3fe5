"""Read the output of cargo test and cargo nextest."""

import re
from collections.abc import Iterator, Sequence

from coretools.tools.ci.parsed_report import Failure, ParsedReport, block, first_unique, matches, message, place

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
    results = matches(_CARGO_RESULT, lines)
    died = matches(_CARGO_DIED, lines)
    if not results and not died:
        return None
    return ParsedReport(
        passed=sum(int(match[1]) for match in results),
        failed=sum(int(match[2]) for match in results),
        skipped=sum(int(match[3]) for match in results),
        errors=len(died),
        failures=first_unique([*_cargo_failures(lines), *(Failure(match[1], message=match[2]) for match in died)]),
    )


def _cargo_failures(lines: Sequence[str]) -> Iterator[Failure]:
    """In the order of their details, then those that have none (output was not captured)."""
    detailed: set[str] = set()
    for position, line in enumerate(lines):
        if match := _CARGO_SECTION.match(line):
            detailed.add(match[1])
            yield _cargo_failure(match[1], block(lines, position + 1))
    for match in matches(_CARGO_FAILED, lines):
        name = match[1].removesuffix(" - should panic")
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
        if match := _NOT_PANICKED.match(line):
            return Failure(name, *place(match[1] or ""), line.removeprefix("note: "))
        message_lines.append(line)
    return Failure(name, *where, message(message_lines))


def _panic(lines: Sequence[str], position: int) -> tuple[tuple[str, int], str]:
    """Place and message of a panic: on the lines after it since Rust 1.73, in quotes on its own line before."""
    match = _PANIC.match(lines[position])
    rest = match[2] if match else ""
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
    summaries = [match[1] for match in matches(_NEXTEST_COUNTS, lines)]
    if not summaries:
        return None
    counts = dict.fromkeys(("passed", "failed", "timed out", "exec failed", "skipped"), 0)
    for text in summaries:
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
    for match in matches(_NEXTEST_FAILED, lines):
        test = match[2].partition(" ")[2]
        if test in panics:
            where, reason = _panic(lines, panics[test])
            yield Failure(match[2], *where, reason)
        else:
            yield Failure(match[2], message=match[1].lower())
