"""One HTTP server in a process of its own, and its resource use while it serves."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.failure import NotMeasured
from benchmarks.stdio_client import ANSWER_MILLISECONDS, environment_with
from coretools.process.fork_server.descendants import descendants

START_SECONDS = 60.0
LISTENING = re.compile(rb"http://127\.0\.0\.1:(\d+)")


class HttpServer:
    """A server, started by the constructor, which does not wait for it: `port` does.

    Its log goes to a file, as an operator's would.
    """

    def __init__(self, words: Sequence[str], *, log: Path, bytecode: str) -> None:
        """`words` follow `python -m`."""
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment_with(bytecode),
            )
        self.pid = self._process.pid

    @cached_property
    def port(self) -> int:
        """The port it listens on.

        Raises:
            NotMeasured: it does not listen.
        """
        return self._listening()

    @property
    def address(self) -> tuple[str, int]:
        """The port with the host."""
        return "127.0.0.1", self.port

    def processor_seconds(self) -> float:
        """Processor time of the process, all its threads, user and system; not of its children.

        Unlike wall time, hardly affected by other work on the machine. Linux: the clock of another process
        (clock_gettime(2), "CPU clocks").
        """
        return time.clock_gettime((~self.pid << 3) | 2)

    def resident_kilobytes(self) -> int:
        """Its resident memory (proc_pid_status(5))."""
        found = re.search(r"^VmRSS:\s+(\d+) kB$", self._of("status"), re.MULTILINE)
        return int(found[1]) if found else 0

    def descriptors(self) -> int:
        """The number of open descriptors, once it listens."""
        assert self.port
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        """The number of threads."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def children(self) -> int:
        """The number of its descendants."""
        return len(descendants(self.pid))

    def close(self) -> None:
        """End it, and wait for that.

        Raises:
            NotMeasured: it did not end on request.
        """
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(ANSWER_MILLISECONDS / 1000)
        except subprocess.TimeoutExpired as error:
            raise NotMeasured(f"the server did not end: {self._process.args!r}") from error
        finally:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _of(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text(encoding="ascii", errors="replace")

    def _listening(self) -> int:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            found = LISTENING.search(self._log.read_bytes())
            if found:
                return int(found[1])
            time.sleep(0.02)
        raise NotMeasured(f"no server: {self._process.args!r}: {self._log.read_text(errors='replace')[-2000:]}")
