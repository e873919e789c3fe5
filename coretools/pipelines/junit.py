"""JUnit XML as GitLab and Jenkins read it: one suite, one test case for each step."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from coretools.client.common.errors import ToolFailed
from coretools.pipelines.expressions import AssertionFailed
from coretools.pipelines.outcome import Outcome, difference_of, text_of
from coretools.pipelines.replay import ReplayDiffers
from coretools.truncation import cut_text

MAX_OUTPUT = 64 * 1024
"""Characters of a result in the report."""

_INVALID = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
"""Characters that XML 1.0 has no form for (part 2.2), and those that control or reorder what a log shows."""


def junit_report(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return the report. An assertion that fails and an error of the tool are failures; the rest are errors."""
    failed = [outcome for outcome in outcomes if outcome.is_failure]
    failures = len(list(filter(_is_failure, failed)))
    counts = {
        "tests": str(len(outcomes)),
        "failures": str(failures),
        "errors": str(len(failed) - failures),
        "skipped": str(len(outcomes) - len(failed) - sum(outcome.status == "passed" for outcome in outcomes)),
        "time": f"{sum(outcome.seconds for outcome in outcomes):.3f}",
    }
    totals = {key: value for key, value in counts.items() if key != "skipped"}  # Jenkins' schema has none there
    root = ET.Element("testsuites", {"name": xml_text(name), **totals})
    file = next((xml_text(outcome.step.file) for outcome in outcomes if outcome.step.file), "")
    suite = ET.SubElement(root, "testsuite", {"name": xml_text(name), **counts, **({"file": file} if file else {})})
    for outcome in outcomes:
        _add_case(suite, name, outcome)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def xml_text(text: str) -> str:
    """Replace characters that XML can't contain, as escapes."""
    return _INVALID.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _add_case(suite: ET.Element, name: str, outcome: Outcome) -> None:
    step = outcome.step
    attributes = {"name": xml_text(step.title), "classname": xml_text(name), "time": f"{outcome.seconds:.3f}"}
    case = ET.SubElement(suite, "testcase", attributes)
    if outcome.status == "skipped":
        ET.SubElement(case, "skipped", {"message": xml_text(outcome.reason)})
    elif outcome.status == "failed" and not outcome.is_failure:
        ET.SubElement(case, "skipped", {"message": xml_text(f"failed, and the run may go on: {outcome.error}")})
    elif outcome.error is not None:
        tag = "failure" if _is_failure(outcome) else "error"
        message = str(outcome.error)
        element = ET.SubElement(case, tag, {"message": xml_text(message), "type": outcome.error.kind})
        element.text = xml_text("\n".join(filter(None, (step.place + message, difference_of(outcome)))))
    if outcome.result is not None and (text := text_of(outcome.result)):
        ET.SubElement(case, "system-out").text = xml_text(cut_text(text, MAX_OUTPUT, gap="\n"))


def _is_failure(outcome: Outcome) -> bool:
    return isinstance(outcome.error, AssertionFailed | ReplayDiffers | ToolFailed)
