"""A program `denied` that leaves a mark, and bash with a PATH of that and a few harmless programs."""

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
from pathlib import Path

PROGRAMS = (
    *(
        "cat",
        "env",
        "ls",
        "true",
        "sleep",
        "head",
        "xargs",
        "find",
        "touch",
        "tee",
        "nohup",
        "timeout",
        "mkdir",
        "bash",
    ),
    *("sh", "rm"),
)

MAX_SECONDS = 20
"""A random line may never end."""


class Marker:
    """Runs lines in an empty directory and tells whether `denied` was started."""

    def __init__(self, directory: Path) -> None:
        self._mark = directory / "started"
        self._work = directory / "work"
        self.programs = directory / "programs"
        self.programs.mkdir()
        denied = self.programs / "denied"
        denied.write_text(f"#!/bin/sh\n: > {self._mark}\n")
        denied.chmod(0o755)
        for name in PROGRAMS:
            if found := shutil.which(name):
                (self.programs / name).symlink_to(found)

    def is_started(self, line: str) -> bool:
        """Run a line with bash, without any start file, and tell whether it started `denied`."""
        bash = shutil.which("bash")
        assert bash is not None
        self._mark.unlink(missing_ok=True)
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir()
        # All processes of the line hold the pipe: its end is the end of those in the background too.
        reading, writing = os.pipe()
        child = subprocess.Popen(
            [bash, "--norc", "--noprofile", "-c", line],
            cwd=self._work,
            env={"PATH": str(self.programs), "HOME": str(self._work), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writing,),
            start_new_session=True,
        )
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (5, 5))
        os.close(writing)
        select.select([reading], [], [], MAX_SECONDS)
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return self._mark.exists()
