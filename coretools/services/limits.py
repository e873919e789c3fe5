"""Limits of services, the same for every engine."""

from dataclasses import dataclass

from coretools.errors import Busy, TooLarge


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """Limits of services. Sizes are in bytes."""

    name_bytes: int = 1024
    """Longest key, topic or queue name."""
    value_bytes: int = 1024 * 1024
    """Largest value, message or work item."""
    keys: int = 10_000
    kept_bytes: int = 64 * 1024 * 1024
    """Total of all keys and values, and separately of all items that wait or are leased."""
    subscribers: int = 1024
    buffered: int = 1024
    """Messages buffered for one subscriber."""
    buffered_bytes: int = 1024 * 1024
    """Size of the messages buffered for one subscriber; the newest one always fits."""
    work_items: int = 10_000
    """Items that wait or are leased, in all queues, with dead letters."""
    attempts: int = 10
    """Deliveries of an item before it becomes a dead letter."""

    def check(self, name: str, value: bytes) -> int:
        """The total size of a name and its value.

        Raises:
            TooLarge: one of them is too long. TypeError: they are no text and bytes.
        """
        if not isinstance(name, str) or not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"a name is text and a value bytes, got {type(name).__name__} and {type(value).__name__}")
        name_bytes = len(name.encode("utf-8", "surrogatepass"))
        if name_bytes > self.name_bytes:
            raise TooLarge(f"a name of {name_bytes} bytes is too long; at most {self.name_bytes}")
        if len(value) > self.value_bytes:
            raise TooLarge(f"{name}: a value of {len(value)} bytes is too large; at most {self.value_bytes}")
        return name_bytes + len(value)

    def no_room_for_value(self, key: str) -> Busy:
        """The error of a value that does not fit."""
        limit = f"{self.keys} keys and {self.kept_bytes} bytes"
        return Busy(f"{key}: no room for another value; at most {limit}. Delete some, or set ttl_seconds")

    def no_room_for_item(self, queue: str) -> Busy:
        """The error of a work item that does not fit."""
        limit = f"{self.work_items} work items and {self.kept_bytes} bytes"
        return Busy(f"{queue}: no room for another item; at most {limit}")

    def too_many_subscriptions(self, topic: str) -> Busy:
        """The error of a subscription beyond the limit."""
        return Busy(f"{topic}: too many subscriptions; at most {self.subscribers}")
