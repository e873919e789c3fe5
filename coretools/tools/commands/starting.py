"""Where a program may be started, and for how long: the same for commands, builds and tests."""

from coretools.errors import InvalidArguments
from coretools.sandbox.reading import Directory, open_directory
from coretools.sandbox.roots import Roots
from coretools.settings import Limits


def open_to_start(roots: Roots, path: str) -> Directory:
    """The directory to start a program in. Blocking: for a worker thread."""
    return open_directory(roots, path)


def timeout(given: float | None, default: float, limits: Limits, *, name: str = "timeout_seconds") -> float:
    """The seconds that a call asked for under this name, or the default where it did not.

    Raises:
        InvalidArguments: more than a call may ask for.
    """
    most = limits.run_seconds_most
    if given is not None and given > most:
        raise InvalidArguments(f"{name}: at most {most:g} here, got {given:g}")
    return min(default, most) if given is None else float(given)
