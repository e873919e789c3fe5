"""Turns for changes: two calls that change the same name go one after the other, all others at the same time.

A change claims the names that it changes, all at once, and waits only for earlier calls that claim one of them. So a
slow file system in one root holds up nobody in another, nobody waits in a circle, and nothing is kept for names that
nobody changes. Other processes are not held up; they are noticed by a file's version.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coretools.cancellation import check_cancelled
from coretools.errors import Conflict

LockKey = tuple[str | int, ...]
"""A name in a directory that is to be changed, or another thing that one call at a time may do there."""

_LOOK_SECONDS = 0.1
"""Between two looks whether a call that waits for its turn was cancelled."""

_TRIES = 20
"""Times that the names are looked up again, because a link or a directory on the way changed while the call waited."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    claims: frozenset[LockKey]


class PathLocks:
    """Who changes what at the moment, and who waits for it, in the order in which they came."""

    def __init__(self) -> None:
        self._turns: list[_Waiter] = []
        self._changed = threading.Condition()
        self._own = threading.local()

    @contextmanager
    def hold(self, look: Callable[[], frozenset[LockKey]]) -> Iterator[None]:
        """Hold the claims that `look` finds. Within a block of the same thread it does nothing: that block has them.

        Raises:
            Conflict: they change all the time. What `look` raises.
        """
        if getattr(self._own, "is_held", False):
            yield
            return
        with self._settled(look):
            self._own.is_held = True
            try:
                yield
            finally:
                self._own.is_held = False

    def count(self) -> int:
        """Calls that hold or wait."""
        return len(self._turns)

    @contextmanager
    def _settled(self, look: Callable[[], frozenset[LockKey]]) -> Iterator[None]:
        claims = look()
        for _ in range(_TRIES):
            with self._turn(claims):
                found = look()
                if found <= claims:
                    yield
                    return
            claims = found
        raise Conflict("the path changes all the time; try again")

    @contextmanager
    def _turn(self, claims: frozenset[LockKey]) -> Iterator[None]:
        turn = _Waiter(claims)
        with self._changed:
            self._turns.append(turn)
        try:
            with self._changed:
                while self._is_blocked(turn):
                    self._changed.wait(_LOOK_SECONDS)
                    check_cancelled()
            yield
        finally:
            with self._changed:
                self._turns.remove(turn)
                self._changed.notify_all()

    def _is_blocked(self, turn: _Waiter) -> bool:
        earlier = self._turns[: self._turns.index(turn)]
        return any(turn.claims & other.claims for other in earlier)


LOCKS = PathLocks()
"""One for the process: several servers and roles in it may have the same directories as roots."""
