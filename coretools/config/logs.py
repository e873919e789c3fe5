"""Logging of every entry point: to standard error, one line per record, without credentials.

Lines are for people (`text`) or log collectors (`json`). The content of a record cannot forge a line or control a
terminal, and a reader that stops reading blocks nothing.
"""

import json
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

from coretools.config.call_context import current_call
from coretools.escapes import escape_unprintable
from coretools.redaction.redactor import Redactor, secret_values

LogFormat = Literal["json", "text"]

FIELDS = "fields"
"""Attribute of a record: named fields besides its message."""

MAX_CACHED_TEXTS = 2_048
"""Redacted short texts in the cache: names of tools and principals occur in every call, and redaction takes 30
microseconds, as much as the rest of a line."""

MAX_CACHED_CHARACTERS = 200
"""Largest number of characters of a cached text."""


OWN_LOGGER = "coretools"
"""May log below `info`; there libraries log whole messages, with contents and tokens."""

VERBOSE_LOGGERS = ("mcp", "sse_starlette")
"""Loggers that write session ids at `info`, with which a session can be used."""


class TrustedText(str):
    """A text that the server generated, such as the id of a call: it is not searched for credentials."""

    __slots__ = ()


_UNREDACTED_TYPES = (int, float, TrustedText)
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    call = current_call()
    of_call = {} if call is None else {"call": TrustedText(call.id), "principal": call.principal}
    return {**of_call, **getattr(record, FIELDS, {})}


def log_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """The `extra` argument of a log call with named fields: texts and numbers."""
    return {FIELDS: fields}


def configure_logging(level: str, environment: Mapping[str, str], form: LogFormat = "text") -> None:
    """Send the log to stderr, one line per record, without control characters and credentials.

    `environment` is the server's own: values of variables with the name of a credential are redacted too.
    """
    redactor = Redactor(secret_values(environment))
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter(redactor) if form == "json" else TextFormatter(redactor))
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(least, logging.INFO), handlers=[handler], force=True)
    logging.getLogger(OWN_LOGGER).setLevel(least)
    for name in VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(max(least, logging.WARNING))
    # Unused; without them a record is created in half the time ("Optimization" in the logging HOWTO).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if sys.version_info >= (3, 12):
        logging.logAsyncioTasks = False


def redact_logging(environment: Mapping[str, str]) -> None:
    """Configure the log of a program that has not done so; if it has, redact what its handlers write.

    Only handlers of the root logger are redacted. A handler that is ours already stays as it is.
    """
    handlers = logging.getLogger().handlers
    if not handlers:
        configure_logging("info", environment)
    redactor = Redactor(secret_values(environment))
    for handler in handlers:
        if not isinstance(handler.formatter, TextFormatter | JsonFormatter | RedactedFormatter):
            handler.setFormatter(RedactedFormatter(handler.formatter or logging.Formatter(), redactor))


class _LostRecords:
    """How many records were lost since the start, for metrics."""

    count = 0


LOST_RECORDS = _LostRecords()


class StderrHandler(logging.Handler):
    """Writes to fd 2 without blocking; records that the reader does not accept are dropped and counted.

    A client may give a server a pipe for its log and never read it. A blocking write would stop every call: 575
    refused lines filled a pipe of 64 KiB.
    """

    def __init__(self) -> None:
        super().__init__()
        self.diverted: Callable[[str], object] | None = None
        """Takes the text instead of fd 2, while something else draws on the terminal."""
        self._lost = 0
        self._reason = ""
        """Why the last record was lost."""
        self._is_line_open = False
        """Whether the last line was written in part."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, preceded by the number of lost ones, if any."""
        if self.diverted is not None:
            self.diverted(f"{self.format(record)}\n")
            return
        text = self._formatted(record)
        if self._lost:
            text = f"{self._lost_notice()}\n{text}"
        if self._is_line_open:
            text = f"\n{text}"
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        written, self._reason = _write_nonblocking(data)
        self._is_line_open = 0 < written < len(data) or (self._is_line_open and not written)
        self._lost = 0 if written == len(data) else self._lost + 1
        LOST_RECORDS.count += written < len(data)

    def _formatted(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except (TypeError, ValueError):  # its arguments do not fit its message
            text = f"{record.msg} (arguments that do not fit: {record.args!r})"
            return self.format(logging.LogRecord(record.name, record.levelno, record.pathname, 0, text, None, None))

    def _lost_notice(self) -> str:
        text = f"{self._lost} log records were lost: {self._reason}"
        if not isinstance(self.formatter, JsonFormatter):
            return f"[{text}]"
        return self.format(logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None))


@contextmanager
def divert_log(write: Callable[[str], object]) -> Iterator[None]:
    """Pass the log to a function instead of writing it to standard error."""
    handlers = [one for one in logging.getLogger().handlers if isinstance(one, StderrHandler)]
    for handler in handlers:
        handler.diverted = write
    try:
        yield
    finally:
        for handler in handlers:
            handler.diverted = None


class TextFormatter(logging.Formatter):
    """Formats a record as text, with control characters escaped: a file name cannot forge a line or control a terminal.

    Credentials are redacted in the whole record, its traceback included (docs/specs/redaction.md).
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """The record as text; a traceback has separate lines."""
        text = self._redactor.text(super().format(record))
        return escape_unprintable(text, kept="\n\t")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is logging's
        """The line itself: the message, then the fields."""
        fields = _fields_of(record)
        parts = [record.message, *(f"{name}={value}" for name, value in fields.items())]
        record.message = " ".join(parts).replace("\n", "\\n")
        return super().formatMessage(record)


class RedactedFormatter(logging.Formatter):
    """Formats a record with another formatter, without credentials."""

    def __init__(self, inner: logging.Formatter, redactor: Redactor) -> None:
        super().__init__()
        self._inner = inner
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """What the other formatter writes, its traceback included."""
        return self._redactor.text(self._inner.format(record))


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message, fields, and a traceback as `exception`.

    Everything beyond ASCII is escaped, so that no character can affect a terminal or viewer.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redacted = redactor.text
        self._cached = lru_cache(MAX_CACHED_TEXTS)(redactor.text)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, without credentials (docs/specs/redaction.md)."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._clean(record.getMessage()),
        }
        fields = _fields_of(record)
        for name, value in fields.items():
            line.setdefault(name, value if isinstance(value, _UNREDACTED_TYPES) else self._clean(str(value)))
        if record.exc_info:
            line["exception"] = self._redacted(self.formatException(record.exc_info))
        return _ENCODER.encode(line)

    def _clean(self, text: str) -> str:
        return self._cached(text) if len(text) <= MAX_CACHED_CHARACTERS else self._redacted(text)


def _write_nonblocking(data: bytes) -> tuple[int, str]:
    """Write to fd 2 without blocking; return how many bytes were written, and why not all."""
    done = 0
    try:
        while done < len(data):
            # A pipe that select(2) reports writable accepts PIPE_BUF bytes without blocking (pipe(7)); O_NONBLOCK would
            # apply to all sharers of the open file, a shell on its terminal too.
            if not select.select([], [2], [], 0)[1]:
                return done, "the reader of the log did not keep up"
            # A disk that becomes full takes the first part.
            done += os.write(2, data[done : done + select.PIPE_BUF])
    except (OSError, ValueError) as error:
        return done, getattr(error, "strerror", None) or "the log is closed"
    return done, ""
