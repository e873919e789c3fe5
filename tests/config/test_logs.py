"""The log on standard error: text or JSON, one line for each record, without credentials, never blocking."""

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coretools.config.call_context import CallContext, calling
from coretools.config.logs import JsonFormatter, TextFormatter, TrustedText, log_fields
from coretools.redaction.redactor import Redactor

KNOWN = "correct-horse-battery"
TOKEN = "ghp_" + "A1b2" * 9
HOSTILE = "a\nb\x1b[2Jc\u202ed"


def record(message: str, *arguments: object, facts: dict[str, object] | None = None) -> logging.LogRecord:
    made = logging.LogRecord("some.logger", logging.WARNING, "f", 1, message, arguments, None)
    made.__dict__.update(log_fields(facts or {}))
    return made


def as_json(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter(Redactor([KNOWN])).format(made)
    assert "\n" not in line
    assert line.isascii()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_record_is_one_json_object() -> None:
    """observability-9: time in UTC, level, logger, message, and the fields with their types."""
    line = as_json(record("call of %s", "read", facts={"tool": "read", "ms": 1.5, "status": 200}))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "some.logger",
        "message": "call of read",
        "tool": "read",
        "ms": 1.5,
        "status": 200,
    }


@pytest.mark.parametrize("length", [0, 300], ids=["short", "long"])
def test_no_credential_is_in_a_line(length: int) -> None:
    """observability-9: neither in the message nor in a field, however long."""
    text = f"{'x ' * length}{KNOWN} and {TOKEN}"
    for _ in range(2):
        line = json.dumps(as_json(record("got %s", text, facts={"path": text})))
        assert KNOWN not in line
        assert TOKEN not in line
        assert line.count("[redacted:environment]") == 2


def test_a_traceback_is_part_of_the_line() -> None:
    """observability-9: as `exception`, redacted."""
    try:
        int(f"bad {KNOWN}")
    except ValueError as error:
        made = record("it failed")
        made.exc_info = (type(error), error, error.__traceback__)
    line = as_json(made)
    assert line["exception"].startswith("Traceback")
    assert "bad [redacted:environment]" in line["exception"]


def test_untrusted_text_forges_no_line_and_no_control_sequence() -> None:
    """observability-9: in both formats, in messages and in fields."""
    made = record("saw %s", HOSTILE, facts={"path": HOSTILE})
    assert as_json(made)["path"] == HOSTILE
    text = TextFormatter(Redactor()).format(record("saw %s", HOSTILE, facts={"path": HOSTILE}))
    assert text.isprintable()
    assert text.endswith("some.logger: saw a\\nb\\x1b[2Jc\\u202ed path=a\\nb\\x1b[2Jc\\u202ed")


def test_a_field_cannot_replace_one_of_the_record() -> None:
    """observability-9: a field named `level` or `message` is dropped."""
    assert as_json(record("logged", facts={"message": "forged", "level": "debug"}))["message"] == "logged"


def test_trusted_text_is_not_redacted() -> None:
    """observability-9: an id is not changed."""
    assert as_json(record("logged", facts={"call": TrustedText(KNOWN)}))["call"] == KNOWN


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_log_that_nobody_reads_blocks_nobody(form: str) -> None:
    """observability-10: a pipe that nobody reads fills up; further records are counted, and reported later."""
    program = f"""
import logging, sys
from coretools.config.logs import configure_logging
configure_logging("info", {{}}, {form!r})
for number in range(3000):
    logging.info("line %d %s", number, "x" * 60)
print("through", flush=True)
sys.stdin.read()
logging.info("at last")
"""
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writing, text=True
    ) as child:
        os.close(writing)
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "through\n"
        with open(reading, encoding="utf-8") as log:
            first = log.readline()
            child.stdin.close()
            rest = log.read()
    assert "line 0" in first
    assert "log records were lost: the reader of the log did not keep up" in rest
    assert "at last" in rest.splitlines()[-1]
    if form == "json":
        notice = json.loads(rest.splitlines()[-2])
        assert notice["level"] == "warning"


def test_a_full_disk_is_named_and_leaves_every_other_line_whole(tmp_path: Path) -> None:
    """observability-10: also when the disk takes a part of a line, and for a record whose arguments do not fit."""
    program = """
import logging, resource, signal
from coretools.config.logs import configure_logging
configure_logging("info", {}, "json")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
logging.info("%d sessions", None)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
for number in range(30):
    logging.info("line %d %s", number, "x" * 60)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
logging.info("at last")
"""
    log = tmp_path / "log"
    with log.open("wb") as written:
        subprocess.run([sys.executable, "-c", program], stderr=written, check=True)
    lines = log.read_text().splitlines()
    broken = [line for line in lines if not line.endswith("}")]
    whole = [json.loads(line)["message"] for line in lines if line.endswith("}")]
    assert len(broken) == 1  # what the disk took of it
    assert whole[0] == "%d sessions (arguments that do not fit: (None,))"
    count = len([text for text in whole if text.startswith("line ")])
    assert whole[-2:] == [f"{30 - count} log records were lost: {os.strerror(errno.EFBIG)}", "at last"]


def test_records_within_a_call_have_its_id_and_its_principal() -> None:
    """observability-31: also of threads that it starts."""
    with calling(CallContext("c-1", "ann")):
        line = as_json(record("run: git status"))
    assert (line["call"], line["principal"]) == ("c-1", "ann")
    assert "call" not in as_json(record("run: git status"))
