"""A person at a terminal: a program on a real pseudo terminal, its output, and its input."""

import os
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.checkout import TREE
from tests.starting import warm

ANSWER_SECONDS = 60.0

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x1b\][^\x07]*\x07")


class Terminal:
    """The controlling end of the terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.master = master
        self.output = ""
        self._seen = 0

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, text: str) -> str:
        """Wait for a text in the output behind the previous match; returns the output up to it."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while text not in (plain := _ESCAPES.sub("", self.output))[self._seen :]:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} was not shown: {plain[self._seen :]!r}"
            assert self._read(), f"it ended before {text!r}: {plain[self._seen :]!r}"
        end = plain.index(text, self._seen) + len(text)
        before = plain[self._seen : end]
        self._seen = end
        return before

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        while self._read():
            pass
        return self.process.wait(ANSWER_SECONDS)

    def _read(self) -> bool:
        data = b""
        with suppress(OSError):  # EIO: the other end was closed
            data = os.read(self.master, 65536)
        self.output += data.decode("utf-8", "replace")
        # prompt_toolkit asks for the cursor position, and waits for the answer.
        if b"\x1b[6n" in data:
            os.write(self.master, b"\x1b[1;1R")
        return bool(data)


@contextmanager
def terminal(option: str, *words: str, cwd: Path, environment: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """Run `python -m WORDS...` on its own terminal."""
    assert option == "-m"
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 120))
    process = warm.Popen(
        [sys.executable, "-m", "tests.cli.controlled", *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(TREE), **(environment or {})},
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
