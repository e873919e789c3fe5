"""GitPython, loaded so that it can start no child: it reads references in-process and does nothing else here.

Importing it runs `git version`, and many of its attributes run git, with the server's own environment and around the
runner. It announces every child on its logger `git.cmd` before it starts it. A filter there turns the announcement
into a PermissionError, which the import takes for "no git on this machine". So it is in GitPython 3.2.1; a test with an
audit hook shows when it is so no more.
"""

import logging
import os
import threading
from types import ModuleType

_LOGGER = "git.cmd"
_REFRESH = "GIT_PYTHON_REFRESH"

_lock = threading.Lock()


class _NoChild(logging.Filter):
    """Refuses every child that GitPython announces; lets its warnings pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith("Popen("):
            raise PermissionError("GitPython may not start a child; git runs through the runner")
        return record.levelno >= logging.WARNING


def load() -> ModuleType:
    """The module `git`. The first call takes 70 to 110 ms: for a worker thread, and not at start."""
    with _lock:
        logger = logging.getLogger(_LOGGER)
        if not any(isinstance(present, _NoChild) for present in logger.filters):
            logger.addFilter(_NoChild())
            logger.setLevel(logging.DEBUG)
        before = os.environ.get(_REFRESH)
        os.environ[_REFRESH] = "quiet"
        try:
            import git
        finally:
            if before is None:
                del os.environ[_REFRESH]
            else:
                os.environ[_REFRESH] = before
        return git
