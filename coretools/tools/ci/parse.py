"""Parse the output of a test run, of whatever runners, into one report.

Pure. The ordinary output is parsed: report files need flags that only some runners have, and that a caller's own
command does not contain (ADR 0014).
"""

from collections.abc import Callable, Sequence

from coretools.tools.ci.parsed_report import ParsedReport, split_lines, summed
from coretools.tools.ci.read_ava import read_ava
from coretools.tools.ci.read_cargo import read_cargo, read_nextest
from coretools.tools.ci.read_ctest import read_ctest
from coretools.tools.ci.read_dotnet import read_dotnet
from coretools.tools.ci.read_go import read_go
from coretools.tools.ci.read_javascript import read_bun, read_jest, read_mocha, read_node_spec, read_vitest
from coretools.tools.ci.read_jvm import read_gradle, read_maven
from coretools.tools.ci.read_python import read_pytest, read_unittest
from coretools.tools.ci.read_tap import read_tap
from coretools.tools.output_text import without_escapes

Reader = Callable[[Sequence[str]], ParsedReport | None]

_READERS: tuple[tuple[Reader, ...], ...] = (
    (read_unittest,),
    (read_jest,),
    (read_vitest,),
    (read_mocha,),
    (read_bun,),
    (read_ava,),
    (read_node_spec, read_tap),
    (read_nextest, read_cargo),
    (read_go,),
    (read_ctest,),
    (read_dotnet,),
    (read_maven,),
    (read_gradle,),
)
"""In each group the first reader that finds counts is used. The groups add up: `make test` may run several runners."""


def parse(output: str) -> ParsedReport | None:
    """Return the counts and failures in this output, or None if no known runner printed it."""
    pytest_report, lines = read_pytest(split_lines(without_escapes(output).replace("\r\n", "\n")))
    reports = [] if pytest_report is None else [pytest_report]
    for group in _READERS:
        first = next((report for reader in group if (report := reader(lines)) is not None), None)
        if first is not None:
            reports.append(first)
    return summed(reports)
