"""Environment variables that a test changes in its own process; they are restored afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

NO_LOGIN_SHELL = {"CORETOOLS_LOGIN_PATH": "0"}
"""For every server of the tests, which otherwise would wait for the profile of whoever runs them, and give commands the
PATH that it makes."""


@contextmanager
def variables(**values: str | None) -> Iterator[None]:
    """Set each variable; None removes it."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
