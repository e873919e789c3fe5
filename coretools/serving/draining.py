"""The end of a server that others still use: told to everything that would wait for them for ever."""

from collections.abc import Callable


class Draining:
    """Whether the server ends. Used on the event loop."""

    def __init__(self) -> None:
        self.has_begun = False
        self._listeners: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """From now on nothing new is begun, and what has no end of its own is ended."""
        if not self.has_begun:
            self.has_begun = True
            for listener in tuple(self._listeners):
                listener()

    def hear(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when it begins, at once if it has; the result ends that."""
        self._listeners.add(listener)
        if self.has_begun:
            listener()
        return lambda: self._listeners.discard(listener)
