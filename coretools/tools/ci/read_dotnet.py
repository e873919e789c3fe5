"""Read the output of dotnet test."""

import re
from collections.abc import Iterator, Sequence

from coretools.tools.ci.parsed_report import Failure, ParsedReport, block, first_unique, matches, message

_DOTNET_COUNTS = re.compile(
    r"(?:Passed|Failed|Skipped)! +- Failed: +(\d+), Passed: +(\d+), Skipped: +(\d+), Total: +\d+"
)
_DOTNET_SUMMARY = re.compile(r"\s*Test summary: total: \d+, failed: (\d+), succeeded: (\d+), skipped: (\d+)")
_DOTNET_RUN = re.compile(r"Test run summary: ")
_DOTNET_COUNT = re.compile(r"\s+(failed|succeeded|skipped): (\d+)$")
_DOTNET_FAILED = re.compile(r"\s*(?:Failed|failed) (\S.*) (?:\[[^\[\]]*\]|\([^()]*\))$")
_DOTNET_END = re.compile(r"\s*(?:Failed|failed|Passed|passed|Skipped|skipped)(?: \S.* [\[(]|! +- )|Test run summary: ")
_DOTNET_ERROR = re.compile(r"\s+(\S.*)\((\d+)\): error TESTERROR:")
_DOTNET_STACK = re.compile(r"\s+at .* in (\S.*):(?:line )?(\d+)$")


def read_dotnet(lines: Sequence[str]) -> ParsedReport | None:
    """Read dotnet test: the classic console, the terminal logger and the testing platform."""
    counts = matches(_DOTNET_COUNTS, lines) or matches(_DOTNET_SUMMARY, lines)
    numbers = [(int(match[1]), int(match[2]), int(match[3])) for match in counts] or list(_dotnet_runs(lines))
    if not numbers:
        return None
    failed, passed, skipped = (sum(column) for column in zip(*numbers, strict=True))
    return ParsedReport(passed=passed, failed=failed, skipped=skipped, failures=first_unique(_dotnet_failures(lines)))


def _dotnet_runs(lines: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    for position, line in enumerate(lines):
        if _DOTNET_RUN.match(line):
            counts = {match[1]: int(match[2]) for match in matches(_DOTNET_COUNT, lines[position + 1 : position + 12])}
            yield counts.get("failed", 0), counts.get("succeeded", 0), counts.get("skipped", 0)


def _dotnet_failures(lines: Sequence[str]) -> Iterator[Failure]:
    for position, line in enumerate(lines):
        if match := _DOTNET_FAILED.match(line):
            yield _dotnet_failure(match[1], block(lines, position + 1))
        elif match := _DOTNET_ERROR.match(line):
            name, _, details = (lines[position + 1] if position + 1 < len(lines) else "").strip().partition(" (")
            yield Failure(name, match[1], int(match[2][:9]), message([details.partition("): ")[2]]))


def _dotnet_failure(name: str, lines: Sequence[str]) -> Failure:
    message_lines: list[str] = []
    for line in lines:
        text = line.strip()
        if match := _DOTNET_STACK.match(line):
            return Failure(name, match[1], int(match[2][:9]), message(message_lines))
        if _DOTNET_END.match(line):
            break
        if text not in ("Error Message:", "Stack Trace:") and not text.startswith("at "):
            message_lines.append(text)
    return Failure(name, message=message(message_lines))
