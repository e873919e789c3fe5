"""The log of an application's command line: lines for people, like its other messages; tracebacks on request.

A program that has configured logging keeps its own handlers, which get every record.
"""

import logging
from collections.abc import Mapping

from coretools.cli.common.terminal import program_name
from coretools.config.logs import StderrHandler, redact_logging
from coretools.escapes import escape_unprintable
from coretools.redaction.redactor import Redactor, secret_values

_ABOUT_CODE = ("coretools.operations", "coretools.cli")
"""Loggers that report faults in an author's code: exceptions, and async commands that block. Users see one line."""


class LineLog(StderrHandler):
    """Writes records as `PROGRAM: LEVEL: MESSAGE`, without credentials."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__()
        self.has_tracebacks = False
        """Whether records about an author's code are shown, and tracebacks."""
        self._redactor = Redactor(secret_values(environment))

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is for the user."""
        return self.has_tracebacks or not record.name.startswith(_ABOUT_CODE)

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line. With `--traceback`, add the traceback; for a fault in code, print only that."""
        lines = []
        if not record.name.startswith(_ABOUT_CODE) or not record.exc_info:
            message = record.getMessage().replace("\n", "\\n")
            lines.append(f"{program_name()}: {record.levelname.lower()}: {message}")
        if record.exc_info and self.has_tracebacks:
            lines.append(logging.Formatter().formatException(record.exc_info))
        return escape_unprintable(self._redactor.text("\n".join(lines)), kept="\n\t")

    def hint(self, words: str) -> str:
        """The end of the message of an internal error: the words that show its traceback, unless it is shown."""
        return "" if self.has_tracebacks else f"; {words} shows where it comes from"


def configure_log(log: LineLog, environment: Mapping[str, str]) -> None:
    """Use the log for one command line. If the program has handlers of its own, they are kept, and redacted."""
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, LineLog)]:  # of a line before
        root.removeHandler(handler)
    if root.handlers:
        redact_logging(environment)
    else:
        root.addHandler(log)
