"""The state of a server that shuts down: announced to balancers, then accepting nothing new."""

from collections.abc import Callable


class Draining:
    """Whether the server is shutting down; notifies what would otherwise wait for clients. For the event loop only."""

    def __init__(self) -> None:
        self.is_announced = False
        """Whether balancers are told to send nothing more; everything is still served until `has_begun`."""
        self.has_begun = False
        self._listeners: set[Callable[[], None]] = set()

    def announce(self) -> None:
        """Be not ready from now on, and serve on."""
        self.is_announced = True

    def begin(self) -> None:
        """Begin draining: nothing new is accepted, and open-ended streams are closed."""
        self.announce()
        if not self.has_begun:
            self.has_begun = True
            for listener in tuple(self._listeners):
                listener()

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function when draining begins, or now if it has begun; the result removes the listener."""
        self._listeners.add(listener)
        if self.has_begun:
            listener()
        return lambda: self._listeners.discard(listener)
