"""The options of `coretools mcp` and `coretools run` for pipelines: output, assertions, repetition, recordings."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass

from coretools.errors import InvalidArguments

RUN_PAGE = """`coretools run`: run the steps of a script, each a call of a tool, and check the results.

    coretools run SCRIPT [--var NAME=VALUE ...]   run the steps; a step that fails ends the run
    coretools run SCRIPT --check                  check the script; start and call nothing
    coretools run SCRIPT --record FILE            also write calls and results to a file
    coretools run --replay FILE [--ignore PATH]   repeat the calls of a recording, and compare the results

The options are those of `coretools mcp`. The exit code is that of the first step that failed: 1 the tool reported an
error; 3 an assertion does not hold; 4 a replay differs; others as `coretools mcp --help` lists them.
"""

_ALL = ("text", "json", "ndjson", "junit", "sarif", "github")

FORMATS: Mapping[str, tuple[str, ...]] = {
    "call": _ALL,
    "run": _ALL,
    "list": ("text", "json", "ndjson"),
    "tools": ("text", "json", "ndjson"),
    "ping": ("text", "json", "ndjson", "junit", "github"),
    "doctor": _ALL,
}
"""Forms of output of each action; those of others are `OTHER_FORMATS`."""

OTHER_FORMATS = ("text", "json")

REPORTS = ("junit", "sarif", "github", "json")
"""Forms that `--report` writes to a file."""

MAX_RETRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """What is wanted of the calls of one line."""

    output: str = "text"
    arguments: str | None = None
    """All arguments of the call, as JSON, or `@FILE`."""
    signatures: bool = False
    assertions: tuple[str, ...] = ()
    expects_error: bool = False
    retries: int = 0
    retries_any: bool = False
    outputs: tuple[tuple[str, str], ...] = ()
    """Name and query of each output of a step of GitHub Actions."""
    reports: tuple[tuple[str, str], ...] = ()
    """Form and file."""
    record: str | None = None
    variables: tuple[str, ...] = ()
    checks_only: bool = False
    replay: str | None = None
    offline: bool = False
    ignored: tuple[str, ...] = ()


_OPTIONS_OF = {
    "arguments": ("--args", ("call",)),
    "signatures": ("--signatures", ("tools",)),
    "assertions": ("--assert", ("call",)),
    "expects_error": ("--expect-error", ("call",)),
    "retries": ("--retry", ("call", "run")),
    "retries_any": ("--retry-any", ("call", "run")),
    "outputs": ("--set-output", ("call", "run")),
    "reports": ("--report", ("call", "run", "ping", "doctor")),
    "record": ("--record", ("call", "run")),
    "variables": ("--var", ("run",)),
    "checks_only": ("--check", ("run",)),
    "replay": ("--replay", ("run",)),
    "offline": ("--offline", ("run",)),
    "ignored": ("--ignore", ("call", "run")),
}
"""Name of each option, and the actions on which it has an effect."""


_SWITCHES = {
    "--signatures": ("signatures", "tools: with the arguments and types of each"),
    "--expect-error": ("expects_error", "call: fail unless the tool reports an error"),
    "--retry-any": ("retries_any", "with --retry: try again also if the call may have had its effect"),
    "--check": ("checks_only", "run: check the script and call nothing"),
    "--offline": ("offline", "run: with --replay, take the results of the recording, without servers"),
}

_REPEATED = {
    "--assert": ("assertions", "EXPRESSION", "call: fail with 3 unless this holds for the result: '$.data.count > 3'"),
    "--set-output": ("outputs", "NAME=QUERY", "call, run: set an output of the step of GitHub Actions"),
    "--report": ("reports", "FORMAT=FILE", f"also write a report to a file: {', '.join(REPORTS)}"),
    "--var": ("variables", "NAME=VALUE", "run: set ${{ vars.NAME }}"),
    "--ignore": ("ignored", "PATH", "with --record or --replay: what may differ: '$..timestamp'"),
}


def add_pipeline_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to those of `coretools mcp`."""
    add = parser.add_argument
    add("--output", choices=_ALL, default="text", help="form of the result [text]")
    add("--args", dest="arguments", metavar="JSON", help="call: all arguments as one object, or @FILE with it")
    for option, (name, text) in _SWITCHES.items():
        add(option, action="store_true", dest=name, help=text)
    for option, (name, value, text) in _REPEATED.items():
        add(option, action="append", default=[], dest=name, metavar=value, help=f"{text} (repeatable)")
    retry = "call, run: try up to N times more while that can repeat no effect (server not reached, or read-only tool)"
    add("--retry", type=_retries, default=0, dest="retries", metavar="N", help=retry)
    add("--record", metavar="FILE", help="call, run: write calls and results to a file, for `coretools run --replay`")
    add("--replay", metavar="FILE", help="run: repeat the calls of a recording and compare the results")


def pipeline_options(parsed: argparse.Namespace, action: str) -> PipelineOptions:
    """Return the options of a line.

    Raises:
        InvalidArguments: one has no effect on the action, or is wrong.
    """
    formats = FORMATS.get(action, OTHER_FORMATS)
    if parsed.output not in formats:
        raise InvalidArguments(f"--output {parsed.output}: `{action}` has no such output; choose {', '.join(formats)}")
    for name, (option, actions) in _OPTIONS_OF.items():
        if getattr(parsed, name) and action not in actions:
            raise InvalidArguments(f"{option}: has no effect on `{action}`, only on {', '.join(actions)}")
    return PipelineOptions(
        output=parsed.output,
        arguments=parsed.arguments,
        signatures=parsed.signatures,
        assertions=tuple(parsed.assertions),
        expects_error=parsed.expects_error,
        retries=parsed.retries,
        retries_any=parsed.retries_any,
        outputs=tuple(map(_output, parsed.outputs)),
        reports=tuple(map(_report, parsed.reports)),
        record=parsed.record,
        variables=tuple(parsed.variables),
        checks_only=parsed.checks_only,
        replay=parsed.replay,
        offline=parsed.offline,
        ignored=tuple(parsed.ignored),
    )


def _output(word: str) -> tuple[str, str]:
    name, equals, query = word.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,99}", name):
        raise InvalidArguments(f"--set-output {word[:80]}: write NAME=QUERY, such as id=$.data.id")
    return name, query


def _report(word: str) -> tuple[str, str]:
    form, equals, file = word.partition("=")
    if not equals or not file or form not in REPORTS:
        raise InvalidArguments(f"--report {word[:80]}: write FORMAT=FILE with one of {', '.join(REPORTS)}")
    return form, file


def _retries(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MAX_RETRIES:
        raise argparse.ArgumentTypeError(f"between 0 and {MAX_RETRIES}")
    return number
