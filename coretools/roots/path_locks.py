"""Locks on names in directories: calls that change the same name run one after the other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coretools.cancellation import check_cancelled
from coretools.errors import Conflict

LockKey = tuple[str | int, ...]
"""A name in a directory, or another action that one call at a time may perform there."""

_CANCEL_CHECK_SECONDS = 0.1
"""Interval at which a waiting call checks for cancellation."""

_TRIES = 20
"""Attempts to compute the keys, when a link or a directory on the way changed while the call waited."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    keys: frozenset[LockKey]


class PathLocks:
    """Locks on names: two calls that change the same name run one after the other, all others concurrently.

    A change locks all its names at once and waits only for earlier calls that lock one of them. So a slow file system
    in one root does not delay another root, deadlock is impossible, and nothing is stored for names that nobody
    changes. Other processes are not locked out; a file's version reveals their changes.
    """

    def __init__(self) -> None:
        self._waiters: list[_Waiter] = []
        self._changed = threading.Condition()
        self._own = threading.local()

    @contextmanager
    def hold(self, find_keys: Callable[[], frozenset[LockKey]]) -> Iterator[None]:
        """Lock the keys that `find_keys` returns. Reentrant: within a block of the same thread it does nothing.

        Raises:
            Conflict: they change each time. What `find_keys` raises.
        """
        if getattr(self._own, "is_held", False):
            yield
            return
        with self._lock_stable(find_keys):
            self._own.is_held = True
            try:
                yield
            finally:
                self._own.is_held = False

    def count(self) -> int:
        """Number of calls that hold or wait for locks."""
        return len(self._waiters)

    @contextmanager
    def _lock_stable(self, find_keys: Callable[[], frozenset[LockKey]]) -> Iterator[None]:
        keys = find_keys()
        for _ in range(_TRIES):
            with self._lock(keys):
                # Resolved again under the lock: a link on the way may have changed while this waited.
                now = find_keys()
                if now <= keys:
                    yield
                    return
            keys = now
        raise Conflict("the path keeps changing; try again")

    @contextmanager
    def _lock(self, keys: frozenset[LockKey]) -> Iterator[None]:
        waiter = _Waiter(keys)
        with self._changed:
            self._waiters.append(waiter)
        try:
            with self._changed:
                while self._is_blocked(waiter):
                    # With a timeout only because a cancelled call has to be noticed; a release notifies.
                    self._changed.wait(_CANCEL_CHECK_SECONDS)
                    check_cancelled()
            yield
        finally:
            with self._changed:
                self._waiters.remove(waiter)
                self._changed.notify_all()

    def _is_blocked(self, waiter: _Waiter) -> bool:
        earlier = self._waiters[: self._waiters.index(waiter)]
        return any(waiter.keys & other.keys for other in earlier)


LOCKS = PathLocks()
"""One for the process: several servers and roles in it may share roots."""
