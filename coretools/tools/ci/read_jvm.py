"""Read the output of Maven Surefire and Gradle."""

import re
from collections.abc import Iterator, Mapping, Sequence

from coretools.tools.ci.parsed_report import Failure, ParsedReport, block, first_unique, matches, message

_MAVEN_COUNTS = re.compile(
    r"(?:\[[A-Z]+\] +)?Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)(?:, Flakes: \d+)?$"
)
_MAVEN_HEADING = re.compile(r"(?:\[ERROR\] +)?(?:Failures:|Errors:|Failed tests:|Tests in error:) *(.*)$")
_MAVEN_FAILED = re.compile(r"(?:\[ERROR\] +)?([\w$.]+)(?:>[\w$.]+)?\.([\w$\[\]{}]+):(\d+)(\S*) ?(.*)$")
_MAVEN_OLD = re.compile(r"([\w$\[\]]+)\(([\w$.]+)\): ?(.*)$")
_JAVA_STACK = re.compile(r"\s+at (?:\S+/)?([\w$.]+)\.([\w$<>]+)\(([\w$]+\.(?:java|kt|groovy|scala)):(\d+)\)")


def read_maven(lines: Sequence[str]) -> ParsedReport | None:
    """Read Maven Surefire and Failsafe, all modules summed."""
    counts = matches(_MAVEN_COUNTS, lines)
    if not counts:
        return None
    ran, failed, errors, skipped = (sum(int(match[column]) for match in counts) for column in range(1, 5))
    passed = ran - failed - errors - skipped
    failures = first_unique(_maven_failures(lines, _stacks(lines)))
    return ParsedReport(passed=passed, failed=failed, errors=errors, skipped=skipped, failures=failures)


def _stacks(lines: Sequence[str]) -> Mapping[tuple[str, str], tuple[str, int]]:
    """By class (without its package) and method: the file with the folders of its package, and the line."""
    places: dict[tuple[str, str], tuple[str, int]] = {}
    for match in matches(_JAVA_STACK, lines):
        package, _, name = match[1].rpartition(".")
        file = f"{package.replace('.', '/')}/{match[3]}".lstrip("/")
        places.setdefault((name, match[2]), (file, int(match[4][:9])))
    return places


def _maven_failures(lines: Sequence[str], stacks: Mapping[tuple[str, str], tuple[str, int]]) -> Iterator[Failure]:
    listing = False
    for line in lines:
        text = line
        if heading := _MAVEN_HEADING.match(line):
            listing, text = True, heading[1]
        elif _MAVEN_COUNTS.match(line):
            listing = False
        text = text.removeprefix("[ERROR]").strip()
        if not listing or not text:
            continue
        if match := _MAVEN_OLD.match(text):
            name = match[2].rpartition(".")[2]
            yield Failure(f"{name}.{match[1]}", *stacks.get((name, match[1]), ("", 0)), message([match[3]]))
        elif match := _MAVEN_FAILED.match(text):
            name = match[1].rpartition(".")[2]
            file = stacks.get((name, match[2]), (f"{name.partition('$')[0]}.java", 0))[0]
            yield Failure(f"{match[1]}.{match[2]}", file, int(match[3][:9]), message([match[5]]))


_GRADLE_COUNTS = re.compile(r"(\d+) tests? completed(?:, (\d+) failed)?(?:, (\d+) skipped)?$")
_GRADLE_SHORT = re.compile(r"\s+(\S.*) at ([\w$]+\.(?:java|kt|groovy|scala)):(\d+)$")


def read_gradle(lines: Sequence[str]) -> ParsedReport | None:
    """Read Gradle, all projects summed. It prints counts only if something failed."""
    counts = matches(_GRADLE_COUNTS, lines)
    if not counts:
        return None
    ran, failed, skipped = (sum(int(match[column] or 0) for match in counts) for column in range(1, 4))
    return ParsedReport(
        passed=ran - failed - skipped,
        failed=failed,
        skipped=skipped,
        failures=first_unique(_gradle_failures(lines)),
    )


def _gradle_failures(lines: Sequence[str]) -> Iterator[Failure]:
    for position, line in enumerate(lines):
        name = line.removesuffix(" FAILED")
        if name != line and " > " in name and not name.startswith(("> ", " ")):
            yield _gradle_failure(name, block(lines, position + 1, most=40))


def _gradle_failure(name: str, lines: Sequence[str]) -> Failure:
    message_lines: list[str] = []
    for line in lines:
        if not line.strip() and message_lines:
            break
        if match := _GRADLE_SHORT.match(line):
            return Failure(name, match[2], int(match[3][:9]), message([*message_lines, match[1]]))
        if match := _JAVA_STACK.match(line):
            file = f"{match[1].rpartition('.')[0].replace('.', '/')}/{match[3]}".lstrip("/")
            if match[1].rpartition(".")[2].partition("$")[0] in name:
                return Failure(name, file, int(match[4][:9]), message(message_lines))
        elif not line.strip().startswith("at "):
            message_lines.append(line)
    return Failure(name, message=message(message_lines))
