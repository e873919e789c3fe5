"""The log of every entry point: on standard error, one line a record, without credentials.

A line is for people (`text`) or for a machine that collects them (`json`). Whatever a record holds, it forges no line
and drives no terminal, and a reader that takes nothing holds up nobody.
"""

import json
import logging
import os
import select
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

from coretools.redaction.redactor import Redactor, secret_values

LogFormat = Literal["json", "text"]

FIELDS = "facts"
"""Attribute of a record: what it says beside its message, by name."""

MOST_REMEMBERED = 2_048
"""Short texts that were looked through already: names of tools and principals come with every call, and a look costs
30 microseconds, as much as all the rest of a line."""

LONGEST_REMEMBERED = 200
"""Characters; a longer text is not kept in memory for being looked through."""


OWN_LOGGERS = ("coretools", "servers")
"""Loggers that write what is below `info`; libraries write whole messages there, with contents and tokens."""

VERBOSE_LOGGERS = ("mcp", "sse_starlette")
"""These write ids of sessions at `info`, with which a session can be used."""


class TrustedText(str):
    """A text that the server made itself, such as the id of a call: it is not looked through for credentials."""

    __slots__ = ()


_AS_THEY_ARE = (int, float, TrustedText)
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def log_fields(facts: Mapping[str, object]) -> dict[str, object]:
    """The `extra` of a record that says more than its message: texts and numbers by name."""
    return {FIELDS: facts}


def configure_logging(level: str, environment: Mapping[str, str], form: LogFormat = "text") -> None:
    """Send the log to stderr, one line a record, whatever the text of a record holds, and without credentials.

    `environment` is the server's own: what is secret in it by its name is known by its value too.
    """
    redactor = Redactor(secret_values(environment))
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter(redactor) if form == "json" else TextFormatter(redactor))
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(least, logging.INFO), handlers=[handler], force=True)
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(least)
    for name in VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(max(least, logging.WARNING))
    # Nothing of it is written; a record without it is made in half the time ("Optimization" in logging's How-to).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if sys.version_info >= (3, 12):
        logging.logAsyncioTasks = False


class StderrHandler(logging.Handler):
    """Writes to fd 2 what its reader takes at once; what it does not take is dropped and counted.

    A client may give a server a pipe for its log and never read it. A write that waits would stop every call: 575
    refused lines filled a pipe of 64 KiB.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, and before it how many were lost."""
        try:
            lost = f"\n{self._told_of_lost()}\n" if self._lost else ""
            is_whole = _write_nonblocking(f"{lost}{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        except (OSError, TypeError, ValueError):  # nobody reads any more, or a record that can't be formatted
            is_whole = False
        self._lost = 0 if is_whole else self._lost + 1

    def _told_of_lost(self) -> str:
        text = f"{self._lost} records of the log were lost: nobody read it"
        if not isinstance(self.formatter, JsonFormatter):
            return f"[{text}]"
        return self.format(logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None))


class TextFormatter(logging.Formatter):
    """Shows control characters escaped: a file name must not forge a log line or drive a terminal.

    Credentials are taken out of the whole record, its traceback included (docs/specs/redaction.md).
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """The record as text; a traceback has lines of its own."""
        text = self._redactor.text(super().format(record))
        return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is logging's
        """The line itself, with its facts behind the message."""
        facts: Mapping[str, object] = getattr(record, FIELDS, {})
        said = [record.message, *(f"{name}={value}" for name, value in facts.items())]
        record.message = " ".join(said).replace("\n", "\\n")
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the record's facts, and a traceback as `exception`.

    Everything beyond ASCII is escaped, so that no character of a text acts on who looks at the line.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redacted = redactor.text
        self._remembered = lru_cache(MOST_REMEMBERED)(redactor.text)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, without credentials (docs/specs/redaction.md)."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._clean(record.getMessage()),
        }
        facts: Mapping[str, object] = getattr(record, FIELDS, {})
        for name, value in facts.items():
            line.setdefault(name, value if isinstance(value, _AS_THEY_ARE) else self._clean(str(value)))
        if record.exc_info:
            line["exception"] = self._redacted(self.formatException(record.exc_info))
        return _ENCODER.encode(line)

    def _clean(self, text: str) -> str:
        return self._remembered(text) if len(text) <= LONGEST_REMEMBERED else self._redacted(text)


def _write_nonblocking(data: bytes) -> bool:
    """Write to fd 2 without waiting; False when not all of it was taken."""
    for start in range(0, len(data), select.PIPE_BUF):
        # A pipe that select(2) calls writable takes so many bytes without a wait (pipe(7)). The descriptor is not made
        # non-blocking instead: the flag would hold for whoever shares it, a shell on its terminal too.
        if not select.select([], [2], [], 0)[1]:
            return False
        os.write(2, data[start : start + select.PIPE_BUF])
    return True
