"""Standard output and standard error of the command line: results on the one, everything else on the other."""

import os
import sys

from coretools.client.terminal import escaped
from coretools.errors import InputOutput


def complain(text: str) -> None:
    """Say something on standard error. It may quote a file name: what would drive a terminal is escaped."""
    sys.stderr.write(f"coretools: {escaped(text)}\n")
    sys.stderr.flush()


def put(text: str) -> int:
    """Print; 0, or an exit code when standard output does not take it. Who stopped reading (`head`) has seen enough."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail again at the interpreter's end.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        if isinstance(error, BrokenPipeError):
            return 0
        complain(f"standard output: {error.strerror}")
        return InputOutput.exit_code
    return 0
