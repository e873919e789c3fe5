"""Fixtures and settings of all tests: asyncio only, because the server's own transport is written for it.

Values that a test passes to `figure` are printed at the end of the report, whichever worker ran it.
"""

import gc
import logging
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from functools import cache

import httpcore2
import pytest

from coretools.config.logs import OWN_LOGGER, VERBOSE_LOGGERS
from tests.variables import NO_LOGIN_SHELL

os.environ.update(NO_LOGIN_SHELL)
"""Servers inherit it. A test of the login shell sets it to 1 for its own."""

if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
"""Nothing would be kept of what is compiled: by each of the workers, which rewrite every assertion of the tests, and by
hundreds of servers and programs. Takes effect before a worker starts."""

_load_tls_context = httpcore2.default_ssl_context


@cache
def _tls_context(trust_env: bool, *variables: str | None) -> ssl.SSLContext:
    return _load_tls_context(_trust_env=trust_env)


def _shared_tls_context(*, _trust_env: bool = True) -> ssl.SSLContext:
    return _tls_context(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


httpcore2.default_ssl_context = _shared_tls_context
"""HTTP clients of this process share it. Each would load the certificates of the machine anew: 50 ms, more than most
tests over HTTP take for anything else."""

Figure = Callable[[str], None]
PRINTED = "figure"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    return lambda text: record_property(PRINTED, text)


def pytest_collection_finish() -> None:
    """Freeze the collected tests, so that garbage collection need not visit a million objects again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == PRINTED:
                terminalreporter.write_line(f"[{text}]")


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """Restore the logging of this process, which an entry point that runs in it configures."""
    loggers = [logging.getLogger(name) for name in ("", OWN_LOGGER, *VERBOSE_LOGGERS)]
    levels = [one.level for one in loggers]
    handlers = logging.root.handlers[:]
    yield
    for one, level in zip(loggers, levels, strict=True):
        one.setLevel(level)
    logging.root.handlers[:] = handlers
