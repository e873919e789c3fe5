"""What every test stands on: one event loop kind, because the server's own transport is written for it.

Figures that a test gives to `figure` stand at the end of the report, whichever worker ran it.
"""

from collections.abc import Callable

import pytest

Figure = Callable[[str], None]
PRINTED = "figure"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    return lambda text: record_property(PRINTED, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == PRINTED:
                terminalreporter.write_line(f"[{text}]")
