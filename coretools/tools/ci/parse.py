"""From what a test run printed to one report, whatever runners took part.

Pure. The output is taken as it comes: a report file would need flags that only some runners have and that no command
of the caller's own carries (ADR 0008).
"""

from collections.abc import Callable, Sequence

from coretools.tools.ci.output import without_escapes
from coretools.tools.ci.read_ava import read_ava
from coretools.tools.ci.read_go import read_go
from coretools.tools.ci.read_javascript import read_bun, read_jest, read_mocha, read_node_spec, read_vitest
from coretools.tools.ci.read_managed import read_dotnet, read_gradle, read_maven
from coretools.tools.ci.read_native import read_cargo, read_ctest, read_nextest
from coretools.tools.ci.read_python import read_pytest, read_unittest
from coretools.tools.ci.read_tap import read_tap
from coretools.tools.ci.report import Report, lines_of

Reader = Callable[[Sequence[str]], Report | None]

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
"""Of each group the first that finds its counts speaks; the groups add up (`make test` may run several)."""


def parse(output: str) -> Report | None:
    """What the runners in this output counted, or None when none of them is known."""
    pytest_report, lines = read_pytest(lines_of(without_escapes(output).replace("\r\n", "\n")))
    reports = [] if pytest_report is None else [pytest_report]
    for group in _READERS:
        found = next((report for reader in group if (report := reader(lines)) is not None), None)
        if found is not None:
            reports.append(found)
    return sum(reports[1:], start=reports[0]) if reports else None
