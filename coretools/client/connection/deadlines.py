"""Deadlines of requests, which stand still while a person answers a question of the server."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


class Deadlines:
    """The deadlines of the open requests of one connection."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped: dict[anyio.CancelScope, float] = {}
        self._questions = 0
        self._since = 0.0

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Limit the time of a request.

        Raises:
            TimeoutError: it is up.
        """
        with anyio.fail_after(seconds) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
                self._stopped.pop(scope, None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the time of the requests that are open now."""
        self._questions += 1
        if self._questions == 1:
            self._since = anyio.current_time()
            self._stopped = {scope: scope.deadline for scope in self._scopes}
            for scope in self._scopes:
                scope.deadline = float("inf")
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                for scope, deadline in self._stopped.items():
                    scope.deadline = deadline + anyio.current_time() - self._since
                self._stopped = {}
