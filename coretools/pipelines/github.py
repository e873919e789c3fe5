"""GitHub Actions: workflow commands, the summary of a step, and its outputs.

The runner takes every line of the log that begins with `::`, or contains `##[`, for a command. Texts of servers are
printed between `::stop-commands::` and its end, with a token that nobody can guess, or escaped.
"""

import html
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence

from coretools.errors import BadSetting, InputOutput
from coretools.pipelines.findings import findings_of
from coretools.pipelines.outcome import Outcome, text_of
from coretools.truncation import cut_text

MAX_SUMMARY = 1024 * 1024
"""Bytes of a step's summary that GitHub accepts."""

MAX_CELL = 500
"""Characters of a message in the summary."""

MAX_ANNOTATIONS = 50
"""GitHub shows this many of a job."""

MAX_SHOWN = 64 * 1024
"""Characters of a result in the log."""


_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def escape_data(text: str) -> str:
    """Escape the message of a workflow command, and the mark of its old form, which counts anywhere in a line."""
    plain = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return plain.replace("##[", "#%23[")


def escape_property(text: str) -> str:
    """Escape the value of a property."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def github_report(outcomes: Sequence[Outcome]) -> str:
    """Return the lines for the log: what each step returned, in a group, and annotations."""
    lines = [line for outcome in outcomes for line in _shown(outcome)]
    annotations = [line for outcome in outcomes for line in _annotations(outcome)]
    return "\n".join([*lines, *annotations[:MAX_ANNOTATIONS]])


def _shown(outcome: Outcome) -> Iterator[str]:
    text = "" if outcome.result is None else text_of(outcome.result)
    yield f"::group::{escape_data(f'{outcome.step.title}: {outcome.status}')}"
    if text:
        token = secrets.token_hex(16)
        yield f"::stop-commands::{token}"
        yield cut_text(text, MAX_SHOWN, gap="\n")
        yield f"::{token}::"
    yield "::endgroup::"


def _annotations(outcome: Outcome) -> Iterator[str]:
    if outcome.status == "failed" and outcome.error is not None:
        command = "warning" if outcome.step.is_optional else "error"
        place = {"title": outcome.step.title, "file": outcome.step.file, "line": str(outcome.step.line or "")}
        yield _command(command, place, str(outcome.error))
    for finding in findings_of(outcome):
        place = {
            "title": finding.rule,
            "file": finding.file,
            "line": str(finding.line or ""),
            "col": str(finding.column or ""),
        }
        yield _command(_COMMANDS[finding.level], place, finding.message)


def _command(name: str, properties: Mapping[str, str], message: str) -> str:
    given = ",".join(f"{key}={escape_property(value)}" for key, value in properties.items() if value)
    return f"::{name}{' ' + given if given else ''}::{escape_data(message)}"


def summary_of(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return a table in Markdown; no text of a server is more than text in it."""
    rows = []
    for outcome in outcomes:
        reason = outcome.reason if outcome.error is None else str(outcome.error)
        title, seconds = _cell(outcome.step.title), f"{outcome.seconds:.1f} s"
        rows.append(f"| {outcome.status} | {title} | {seconds} | {_cell(reason)} |")
    head = [f"### {_cell(name)}", "", "| result | step | time | reason |", "| --- | --- | --- | --- |"]
    text = "\n".join([*head, *rows, "", ""])
    return text.encode("utf-8", "replace")[:MAX_SUMMARY].decode("utf-8", "ignore")


def _cell(text: str) -> str:
    """Return text as HTML in one line, where Markdown finds nothing to interpret."""
    shown = " ".join(text[:MAX_CELL].split())
    return re.sub(
        r"[^\w .,;=/<>&-]", lambda match: f"&#{ord(match[0])};", html.escape(shown, quote=False), flags=re.ASCII
    )


def append_summary(environment: Mapping[str, str], text: str) -> None:
    """Add to the summary of the step, if GitHub wants one.

    Raises:
        InputOutput: it can't be written.
    """
    if path := environment.get("GITHUB_STEP_SUMMARY"):
        _append(path, text)


def output_file(environment: Mapping[str, str]) -> str:
    """Return the file that takes the outputs of the step.

    Raises:
        BadSetting: this is no step of GitHub Actions.
    """
    path = environment.get("GITHUB_OUTPUT")
    if not path:
        raise BadSetting("--set-output: GITHUB_OUTPUT is not set; it works in a step of GitHub Actions")
    return path


def append_outputs(environment: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Set outputs of the step.

    Raises:
        BadSetting: this is no step of GitHub Actions. InputOutput: the file can't be written.
    """
    path = output_file(environment)
    lines = []
    for name, value in values.items():
        # Random, so that no value can end itself and begin another output.
        end = secrets.token_hex(16)
        lines.append(f"{name}<<{end}\n{value}\n{end}\n")
    _append(path, "".join(lines))


def _append(path: str, text: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with open(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise InputOutput(f"{path}: cannot be written: {error.strerror}") from error
