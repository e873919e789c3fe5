"""Read the output of Jest, Vitest, Mocha, node's own runner (spec reporter) and bun.

Each reader looks for the line of counts that only its runner prints, and returns None without it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from coretools.tools.ci.parsed_report import Failure, ParsedReport, block, first_unique, matches, message, place

_COUNT = re.compile(r"(\d+) ([a-z]+)")
_NOT_OURS = ("node_modules", "node:")
"""Parts of a path by which stack lines of the runner are recognised."""

_JEST_COUNTS = re.compile(r"Tests: +(\d.* total)$")
_JEST_FILE = re.compile(r" ?FAIL +(\S+)")
_JEST_TITLE = re.compile(r"  ● (\S.*)$")
_JEST_END = re.compile(r"  ● | ?(?:FAIL|PASS) |Test Suites: ")
_FRAME = re.compile(r"(?:> *)?(?:\d+ *)?\|(?: |$)")
_NEVER_RAN = "Test suite failed to run"


def read_jest(lines: Sequence[str]) -> ParsedReport | None:
    """Read jest, all runs summed."""
    report = _counted(lines, _JEST_COUNTS)
    if report is None:
        return None
    failures = first_unique(_jest_failures(lines))
    broken = sum(failure.name.startswith(_NEVER_RAN) for failure in failures)
    return report + ParsedReport(errors=broken, failures=failures)


def _jest_failures(lines: Sequence[str]) -> Iterator[Failure]:
    file = ""
    for position, line in enumerate(lines):
        if match := _JEST_FILE.match(line):
            file = match[1].removeprefix("./")
        elif (match := _JEST_TITLE.match(line)) and match[1] != "Console":
            message_lines = _until(block(lines, position + 1), _JEST_END)
            # A stack may lie in packages only; then the file of the test is all that is known.
            where, number = _own_place(message_lines) or (file, 0)
            yield Failure(match[1], where, number, message(_before_stack(message_lines)))


_VITEST_COUNTS = re.compile(r" +Tests  +(\d.*|no tests)$")
_VITEST_TITLE = re.compile(r" FAIL  (?:\|[^|]*\| )?(\S.*)$")
_VITEST_END = re.compile(r" FAIL  |⎯")
_VITEST_PLACE = re.compile(r" \u276f (?:\S+ )?(\S+:\d+:\d+)$")


def read_vitest(lines: Sequence[str]) -> ParsedReport | None:
    """Read vitest, all runs summed."""
    report = _counted(lines, _VITEST_COUNTS)
    if report is None:
        return None
    failures = first_unique(_vitest_failures(lines))
    broken = sum(failure.name == failure.file for failure in failures)
    return report + ParsedReport(errors=broken, failures=failures)


def _vitest_failures(lines: Sequence[str]) -> Iterator[Failure]:
    for position, line in enumerate(lines):
        match = _VITEST_TITLE.match(line)
        if not match:
            continue
        message_lines = _until(block(lines, position + 1), _VITEST_END)
        places = [place(frame[1]) for frame in matches(_VITEST_PLACE, message_lines)]
        file, _, name = match[1].partition(" > ")
        file = file.partition(" [ ")[0]
        number = next((number for where, number in places if where == file), 0)
        words = [text for text in _before_stack(message_lines) if not text.startswith(" \u276f")]
        yield Failure(name or file, file, number, message(words))


_MOCHA_PASSING = re.compile(r"  (\d+) passing \([^)]*\)$")
_MOCHA_OTHER = re.compile(r"  (\d+) (pending|failing)$")
_MOCHA_TITLE = re.compile(r"  \d+\) (\S.*)$")


def read_mocha(lines: Sequence[str]) -> ParsedReport | None:
    """Read mocha and what prints like it (cypress), all runs summed."""
    counts = {"passing": 0, "pending": 0, "failing": 0}
    seen = listing = False
    failures: list[Failure] = []
    for position, line in enumerate(lines):
        if match := _MOCHA_PASSING.match(line):
            counts["passing"] += int(match[1])
            seen, listing = True, False
        elif seen and (match := _MOCHA_OTHER.match(line)):
            counts[match[2]] += int(match[1])
            listing = match[2] == "failing"
        elif listing and (match := _MOCHA_TITLE.match(line)):
            failures.append(_mocha_failure(match[1], _until(block(lines, position + 1), _MOCHA_TITLE)))
    if not seen:
        return None
    return ParsedReport(
        passed=counts["passing"], failed=counts["failing"], skipped=counts["pending"], failures=first_unique(failures)
    )


def _mocha_failure(first: str, lines: Sequence[str]) -> Failure:
    """The title runs over several lines, one for each suite, up to one that ends with a colon."""
    title = [first]
    while not title[-1].endswith(":") and len(title) <= min(len(lines), 10):
        title.append(lines[len(title) - 1].strip())
    rest = lines[len(title) - 1 :]
    return Failure(" ".join(title).rstrip(":"), *(_own_place(rest) or ("", 0)), message(_before_stack(rest)))


_SPEC_COUNT = re.compile(r"\u2139 (tests|pass|fail|skipped|todo|cancelled) (\d+)$")
_SPEC_PLACE = re.compile(r"test at (\S.*:\d+:\d+)$")
_SPEC_TITLE = re.compile(r"✖ (.*?)(?: \([\d.]+ms\))?$")
_SUITE_ONLY = re.compile(r"'?\d+ subtests? failed'?$")


def read_node_spec(lines: Sequence[str]) -> ParsedReport | None:
    """Read node's runner when it prints for people."""
    counts: Counter[str] = Counter()
    for match in matches(_SPEC_COUNT, lines):
        counts[match[1]] += int(match[2])
    if "tests" not in counts:
        return None
    return ParsedReport(
        passed=counts["pass"],
        failed=counts["fail"] + counts["cancelled"],
        skipped=counts["skipped"] + counts["todo"],
        failures=first_unique(_spec_failures(lines)),
    )


def _spec_failures(lines: Sequence[str]) -> Iterator[Failure]:
    for position, line in enumerate(lines):
        match = _SPEC_PLACE.match(line)
        title = _SPEC_TITLE.match(lines[position + 1]) if match and position + 1 < len(lines) else None
        if match and title:
            reason = message(_before_stack(_until(block(lines, position + 2), _SPEC_PLACE)))
            if not _SUITE_ONLY.match(reason):
                yield Failure(title[1], *place(match[1]), reason)


_BUN_RAN = re.compile(r"Ran \d+ tests? across \d+ files?\.")
_BUN_COUNT = re.compile(r" (\d+) (pass|fail|skip|todo|error)s?$")
_BUN_FAIL = re.compile(r"(?:\(fail\)|✗) (.*?)(?: \[[\d.]+m?s\])?$")


def read_bun(lines: Sequence[str]) -> ParsedReport | None:
    """Read bun's own runner. A file that could not be loaded is in its counts both as failed and as error."""
    if not any(_BUN_RAN.match(line) for line in lines):
        return None
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    start = 0
    for position, line in enumerate(lines):
        if match := _BUN_COUNT.match(line):
            counts[match[2]] += int(match[1])
        elif match := _BUN_FAIL.match(line):
            before = lines[max(start, position - 60) : position]
            error = next((at for at, text in enumerate(before) if text.startswith("error: ")), 0)
            failures.append(Failure(match[1], *(_own_place(before) or ("", 0)), message(_before_stack(before[error:]))))
            start = position + 1
    errors = counts["error"]
    return ParsedReport(
        passed=counts["pass"],
        # A file that could not be loaded counts once, as an error.
        failed=counts["fail"] - errors,
        skipped=counts["skip"] + counts["todo"],
        errors=errors,
        failures=first_unique(failures),
    )


_WORDS = {"passed": "passed", "failed": "failed", "skipped": "skipped", "todo": "skipped", "pending": "skipped"}


def _counted(lines: Iterable[str], counts: re.Pattern[str]) -> ParsedReport | None:
    """Add up the lines of counts of one runner, with a number before each word."""
    summaries = [match[1] for match in matches(counts, lines)]
    if not summaries:
        return None
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for text in summaries:
        for number, word in _COUNT.findall(text):
            if word in _WORDS:
                totals[_WORDS[word]] += int(number)
    return ParsedReport(passed=totals["passed"], failed=totals["failed"], skipped=totals["skipped"])


def _until(lines: Sequence[str], end: re.Pattern[str]) -> Sequence[str]:
    """Return the lines before the first that matches `end`."""
    stop = next((position for position, line in enumerate(lines) if end.match(line)), len(lines))
    return lines[:stop]


def _own_place(lines: Iterable[str]) -> tuple[str, int] | None:
    """Return the first location of a stack in the project, not in the runner or its packages."""
    for line in lines:
        text = line.strip()
        if text.startswith("at ") and not any(part in text for part in _NOT_OURS):
            file, number = place(text)
            if file:
                return file, number
    return None


def _before_stack(lines: Iterable[str]) -> Iterator[str]:
    """Return the message before the stack, without the source excerpt."""
    for line in lines:
        text = line.strip()
        if text.startswith("at ") and (text.endswith(")") or place(text)[1]):
            return
        if not _FRAME.match(text):
            yield line
