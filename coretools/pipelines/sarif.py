"""SARIF 2.1.0: what results say about files, and the steps that failed."""

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from coretools.distribution import VERSION
from coretools.pipelines.findings import Finding, findings_of
from coretools.pipelines.outcome import Outcome

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

MAX_RESULTS = 5_000
"""GitHub shows this many of a run."""


def sarif_report(outcomes: Sequence[Outcome]) -> str:
    """Return the report; failed steps have their place in the script."""
    results: list[dict[str, Any]] = []
    for outcome in outcomes:
        results += [_result(outcome, finding) for finding in findings_of(outcome)]
        if outcome.error is not None and outcome.status == "failed":
            results.append(_failure(outcome))
    rules = sorted({result["ruleId"] for result in results[:MAX_RESULTS]})
    report = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "coretools",
                        "version": VERSION,
                        "informationUri": "https://modelcontextprotocol.io",
                        "rules": [{"id": rule} for rule in rules],
                    }
                },
                "results": results[:MAX_RESULTS],
            }
        ],
    }
    return json.dumps(report, ensure_ascii=True, indent=2)


def _result(outcome: Outcome, finding: Finding) -> dict[str, Any]:
    rule = finding.rule or f"{outcome.step.server}/{outcome.step.tool}"
    location = _location(finding.file, finding.line, finding.column)
    return {"ruleId": rule, "level": finding.level, "message": {"text": finding.message}, "locations": [location]}


def _failure(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error
    assert error is not None
    result: dict[str, Any] = {
        "ruleId": f"coretools/{error.kind}",
        "level": "warning" if outcome.step.is_optional else "error",
        "message": {"text": f"{outcome.step.title}: {error}"},
    }
    file = outcome.step.file
    return result | ({"locations": [_location(file, outcome.step.line, None)]} if file else {})


def _location(file: str, line: int | None, column: int | None) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if line is not None:
        place["region"] = {"startLine": line} | ({} if column is None else {"startColumn": column})
    return {"physicalLocation": place}


def _uri(file: str) -> str:
    """Return a path as a URI reference: relative ones stay relative to the root of the repository."""
    path = re.sub(r"^(?:\./)+", "", file.replace("\\", "/")) or "."
    prefix = "file://" if path.startswith("/") else ""
    return prefix + quote(path.encode("utf-8", "replace"), safe="/")
