"""Read the output of pytest and unittest, in every verbosity that prints a summary."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from coretools.tools.ci.parsed_report import MOST_FAILURES, Failure, ParsedReport, block, first_unique, message, summed

_HEADER = re.compile(r"=+ test session starts(?: \(.*\))? =+$")
_SUMMARY = re.compile(r"(?:=+ )?(no tests ran|\d+ [a-z]+[a-z0-9, ]*) in [\d.]+(?:s| seconds)(?: \([\d:]+\))?(?: =+)?$")
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)\b")
_BANNER = re.compile(r"=+ ([A-Za-z][^=]*) =+$")
_TITLE = re.compile(r"_+ (\S.*\S|\S) _+$")
_ABOUT = re.compile(r"ERROR (?:at \w+ of|collecting) ")
_CAPTURED = re.compile(r"-+ Captured .* -+$")
_FRAME = re.compile(r"([^\s:][^:]*\.\w+):(\d+):(?: |$)")
_SYNTAX = re.compile(r'E\s+File "([^"]+)", line (\d+)')
_LISTED = re.compile(r"(?:FAILED|ERROR) (\S.*)$")
_SUB_LISTED = re.compile(r"SUBFAILED(.*?) (\S+::.*)$")


@dataclass(slots=True)
class _FailureSection:
    """What pytest prints about one failure: its frames, oldest first, and the lines of the last exception."""

    title: str
    frames: list[tuple[str, int]] = field(default_factory=list)
    message: list[str] = field(default_factory=list)

    def place(self, file: str) -> tuple[str, int]:
        """The last frame in `file`, which is the test's own, else the last of all."""
        own = [frame for frame in self.frames if frame[0] == file]
        return (own or self.frames or [(file, 0)])[-1]


def read_pytest(lines: Sequence[str]) -> tuple[ParsedReport | None, Sequence[str]]:
    """Return the sum of all sessions, and the lines outside of them.

    A session within another (a test that runs pytest) is not counted: headers and summaries nest like brackets, and
    only the outermost count.
    """
    sessions: list[ParsedReport] = []
    rest: list[str] = []
    depth, start = 0, 0
    for position, line in enumerate(lines):
        if _HEADER.match(line):
            if depth == 0:
                rest += lines[start:position]
                start = position
            depth += 1
        elif _is_summary(line):
            # Also at depth 0: a summary whose header was cut off ends a session that began at `start`.
            if depth <= 1:
                sessions.append(_session(lines[start : position + 1]))
                start = position + 1
            depth = max(0, depth - 1)
    rest += lines[start:]
    return summed(sessions), rest


def _is_summary(line: str) -> bool:
    match = _SUMMARY.match(line)
    if not match:
        return False
    summary = match[1]
    return summary == "no tests ran" or bool(_COUNT.search(summary)) or "deselected" in summary or "warning" in summary


def _session(lines: Sequence[str]) -> ParsedReport:
    counts = dict.fromkeys(("passed", "failed", "skipped", "error", "xfailed", "xpassed"), 0)
    for number, what in _COUNT.findall(lines[-1]):
        counts["error" if what == "errors" else what] += int(number)
    sections = _sections(lines)
    about = _by_test(sections)
    failures = [_failure(name, reason, sections=about) for name, reason in _listed(lines)]
    if not failures:  # pytest before 6, or with -r N, lists none
        failures = [Failure(section.title, *section.place(""), message(section.message)) for section in sections]
    return ParsedReport(
        # xpassed makes pytest fail only if it is strict, and then pytest prints it as failed.
        passed=counts["passed"] + counts["xpassed"],
        failed=counts["failed"],
        skipped=counts["skipped"] + counts["xfailed"],
        errors=counts["error"],
        failures=first_unique(failures),
    )


def _sections(lines: Sequence[str]) -> list[_FailureSection]:
    """The parts under the banners ERRORS and FAILURES, without what the tests printed."""
    sections: list[_FailureSection] = []
    inside = captured = False
    previous = ""
    for line in lines:
        if banner := _BANNER.match(line):
            opens = banner[1] in ("ERRORS", "FAILURES")
            inside, captured = inside or opens, not opens
        elif inside and (title := _TITLE.match(line)) and set(line) > set("_ "):
            sections.append(_FailureSection(title[1]))
            captured = False
        elif _CAPTURED.match(line):
            captured = True
        elif sections and not captured:
            _add(sections[-1], line, continued=_is_message_line(previous))
        previous = line
    return sections


def _is_message_line(line: str) -> bool:
    """Whether a line belongs to an exception."""
    return line == "E" or line.startswith("E ")


def _add(section: _FailureSection, line: str, *, continued: bool) -> None:
    if _is_message_line(line):
        if not continued:
            section.message.clear()  # a later exception: the one before was its cause
        section.message.append(line[1:])
        if match := _SYNTAX.match(line):
            section.frames.append((match[1], int(match[2][:9])))
    elif match := _FRAME.match(line):
        section.frames.append((match[1], int(match[2][:9])))


def _listed(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Node id and message of each line of the last 'short test summary info'."""
    start = len(lines)
    for position, line in enumerate(lines):
        banner = _BANNER.match(line)
        if banner and banner[1] == "short test summary info":
            start = position
    listed = (node for line in lines[start:] if (node := _node(line)))
    return list(islice(listed, MOST_FAILURES))


def _node(line: str) -> tuple[str, str] | None:
    """A node id and the message after ' - '. Parameters in brackets may hold that dash themselves."""
    sub_test = ""
    if match := _SUB_LISTED.match(line):
        sub_test, text = f" {match[1].strip()}", match[2]
    elif match := _LISTED.match(line):
        text = match[1]
    else:
        return None
    # Before a bracket a dash ends the node id; within one it belongs to a parameter.
    bracket, dash = text.find("["), text.find(" - ")
    if 0 <= bracket < dash or dash < 0 <= bracket:
        dash = text.find("] - ", bracket) + 1 or -1
    if dash < 0:
        return text + sub_test, ""
    return text[:dash] + sub_test, text[dash + 3 :]


def _failure(node: str, reason: str, *, sections: Mapping[str, Sequence[_FailureSection]]) -> Failure:
    head, bracket, parameters = node.partition("[")
    file, *names = head.split("::")
    mine = sections.get((".".join(names) + bracket + parameters) or file, ())
    section = next(
        (candidate for candidate in mine if any(frame[0] == file for frame in candidate.frames)),
        mine[0] if mine else None,
    )
    if section is None:
        return Failure(node, file, 0, message([reason]))
    return Failure(node, *section.place(file), message(section.message or [reason]))


def _by_test(sections: Iterable[_FailureSection]) -> dict[str, list[_FailureSection]]:
    """Sections by the test they are about; a collection error is about its file."""
    about: dict[str, list[_FailureSection]] = {}
    for section in sections:
        match = _ABOUT.match(section.title)
        about.setdefault(section.title[match.end() :] if match else section.title, []).append(section)
    return about


_RAN = re.compile(r"Ran (\d+) tests? in [\d.]+s$")
_VERDICT = re.compile(r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
_DETAIL = re.compile(r"([a-z]+(?: [a-z]+)?)=(\d+)")
_UNIT_TITLE = re.compile(r"(ERROR|FAIL|UNEXPECTED SUCCESS): (\S.*)$")
_RULES = ("=" * 70, "-" * 70)
_FIXTURES = ("setUpClass ", "tearDownClass ", "setUpModule ", "tearDownModule ")
_UNIT_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)(?:, in (.*))?$')


def read_unittest(lines: Sequence[str]) -> ParsedReport | None:
    """Read unittest and what prints like it (Django's runner, nose2, zope)."""
    ran: int | None = None
    counts: Counter[str] = Counter()
    for position, line in enumerate(lines):
        match = _RAN.match(line)
        if not match:
            continue
        ran = (ran or 0) + int(match[1])
        verdict = next((v for text in lines[position + 1 : position + 4] if (v := _VERDICT.match(text))), None)
        for name, number in _DETAIL.findall(verdict[1] or "" if verdict else ""):
            counts[name] += int(number)
    if ran is None:
        return None
    failures = list(_unit_failures(lines))
    failed = counts["failures"] + counts["unexpected successes"]
    skipped = counts["skipped"] + counts["expected failures"]
    others = failed + skipped + counts["errors"] - _beside_tests(failures)
    return ParsedReport(
        # unittest prints no count of passed tests.
        passed=ran - others,
        failed=failed,
        skipped=skipped,
        errors=counts["errors"],
        failures=first_unique(failures),
    )


def _beside_tests(failures: Sequence[Failure]) -> int:
    """Failures that are not among the tests 'Ran' counts: further sub-tests of one test, and class fixtures."""
    tests = Counter(failure.name.partition(")")[0] for failure in failures)
    return sum(count if name.startswith(_FIXTURES) else count - 1 for name, count in tests.items())


def _unit_failures(lines: Sequence[str]) -> Iterable[Failure]:
    for position, line in enumerate(lines):
        match = _UNIT_TITLE.match(line)
        if match and position and set(lines[position - 1]) == {"="}:
            yield _unit_failure(match, block(lines, position + 1))


def _unit_failure(title: re.Match[str], lines: Sequence[str]) -> Failure:
    """One block: the place is the last frame whose function is the test itself, else the last of all."""
    name = title[2]
    frames: list[tuple[str, int, str]] = []
    message_lines: list[str] = []
    for line in _unit_block(lines):
        if match := _UNIT_FRAME.match(line):
            frames.append((match[1], int(match[2][:9]), match[3] or ""))
            message_lines = []
        elif frames and not line.startswith("    "):
            message_lines.append(line)
    own = [frame for frame in frames if frame[2] == name.partition(" ")[0]]
    file, number, _ = (own or frames or [("", 0, "")])[-1]
    return Failure(name, file, number, message(message_lines) or title[1].lower())


def _unit_block(lines: Sequence[str]) -> Sequence[str]:
    """A block has one rule below its title and ends at the next."""
    rules = (position for position, line in enumerate(lines) if line.startswith(_RULES))
    end = next(islice(rules, 1, None), len(lines))
    return lines[:end]
