"""What commands keep for the session of their caller: values by name, as JSON, in the memory of the server."""

import threading
from typing import TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from coretools.errors import TooLarge

T = TypeVar("T")

MOST_VALUES = 1_000
"""Values of one session; more are a sign that something is never deleted."""

MOST_BYTES = 256 * 1024
"""Names and values of one session, as JSON: 16 MiB in the 64 sessions that a server has by default."""


class SessionState:
    """Values that commands keep for the session of their caller, by name. Callable from any thread.

    A value is kept as JSON, so what `get` returns is a copy. All are dropped when the session ends.
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, name: str, kind: type[T]) -> T | None:
        """Return the value of a name as an object of this type; None if there is none.

        Raises:
            pydantic.ValidationError: the value is of another type.
        """
        value = self._values.get(name)
        return None if value is None else TypeAdapter(kind).validate_json(value)

    def set(self, name: str, value: object) -> None:
        """Keep a value that JSON can represent: also a model, a dataclass or a date.

        Raises:
            TooLarge: the values of the session would be too many or too large.
            pydantic_core.PydanticSerializationError: JSON can't represent it.
        """
        added = to_json(value)
        with self._lock:
            values = {**self._values, name: added}
            size = sum(len(key.encode("utf-8", "surrogatepass")) + len(kept) for key, kept in values.items())
            if len(values) > MOST_VALUES or size > MOST_BYTES:
                raise TooLarge(
                    f"{name:.80}: the state of a session has at most {MOST_VALUES:,} values and {MOST_BYTES:,} bytes; "
                    f"with this one {len(values):,} and {size:,}"
                )
            self._values = values

    def delete(self, name: str) -> bool:
        """Drop the value of a name. Return whether there was one."""
        with self._lock:
            return self._values.pop(name, None) is not None
