"""Read the ordinary output of AVA; its TAP output (`ava --tap`) is read by `read_tap`.

If a test failed, AVA does not print how many passed: they are counted by their lines.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from coretools.tools.ci.parsed_report import Failure, ParsedReport, block, first_unique, matches, message, place

_END = "  \u2500"
"""Stands above the details of failures, and above the counts."""

_AVA_COUNT = re.compile(
    r"  (\d+) (tests? passed|tests? failed|hooks? failed|known failures?|tests? skipped|tests? todo"
    r"|uncaught exceptions?|unhandled rejections?|tests? remained pending after a timeout)\b"
)

_PASSED = re.compile(r"  \u2714 (?!\[expected fail\])\S")

_FAILED = re.compile(r"  \u2718 \[fail\]: (\S.*)$")

_BROKEN = re.compile(r"  \u2718 (No tests found in \S+|\S+ exited due to .*)$")

_UNCAUGHT = re.compile(r"  ((?:Uncaught exception|Unhandled rejection) in (\S+))$")

_WHERE = re.compile(r"  (\S+):(\d+)$")

_SOURCE = re.compile(r" +\d+:(?: |$)")

_STACK = re.compile(r"(?:\u203a|at) \S")


def read_ava(lines: Sequence[str]) -> ParsedReport | None:
    """Read AVA, all runs summed."""
    if _END not in lines:
        return None
    counts: Counter[str] = Counter()
    for line in lines[lines.index(_END) :]:
        if match := _AVA_COUNT.match(line):
            kind = " ".join(word.rstrip("s") for word in match[2].split()[:2])
            counts[kind] += int(match[1])
    broken = [Failure(match[1]) for match in matches(_BROKEN, lines)]
    if not counts and not broken:
        return None
    failed = counts["test failed"] + counts["hook failed"] + counts["test remained"]
    return ParsedReport(
        passed=sum(bool(_PASSED.match(line)) for line in lines),
        failed=failed,
        skipped=counts["known failure"] + counts["test skipped"] + counts["test todo"],
        errors=counts["uncaught exception"] + counts["unhandled rejection"] + len(broken),
        failures=first_unique([*_ava_failures(lines), *broken]),
    )


def _ava_failures(lines: Sequence[str]) -> Iterator[Failure]:
    """Yield failed tests by their details, which begin with the title alone, and uncaught errors."""
    titles = [match[1] for match in matches(_FAILED, lines)]
    for position in range(1, len(lines)):
        line = lines[position]
        if lines[position - 1] or not line.startswith("  ") or line.startswith("   "):
            continue
        name = line.strip()
        if match := _UNCAUGHT.match(line):
            yield _ava_failure(name, block(lines, position + 1), file=match[2])
        elif titles and (titles[0] == name or titles[0].startswith(f"{name} ")):
            titles.pop(0)  # the details come in the order of the titles, which may have a message behind them
            yield _ava_failure(name, block(lines, position + 1))


def _ava_failure(name: str, lines: Sequence[str], *, file: str = "") -> Failure:
    message_lines = [line for line in _details(lines) if line.strip() and not _SOURCE.match(line)]
    number = 0
    if message_lines and (match := _WHERE.match(message_lines[0])):
        file, number = match[1], int(match[2][:9])
        del message_lines[0]
    stack = next((at for at, line in enumerate(message_lines) if at and _STACK.match(line.strip())), None)
    if stack is not None and not number:
        file, number = _own(message_lines[stack].strip())
    return Failure(name, file, number, message(message_lines[:stack]))


def _details(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines before the counts."""
    stop = next((at for at, line in enumerate(lines) if line == _END or _AVA_COUNT.match(line)), len(lines))
    return lines[:stop]


def _own(text: str) -> tuple[str, int]:
    """Return the location in a stack line, unless it is in AVA itself."""
    return ("", 0) if "node_modules" in text or "node:" in text else place(text)
