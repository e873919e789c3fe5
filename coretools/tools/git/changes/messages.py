"""Messages of commits and tags."""

from coretools.errors import InvalidArguments

MESSAGE_BYTES = 1024 * 1024
"""Longest message accepted."""


def check_message(message: str) -> None:
    """Refuse an invalid message.

    Raises:
        InvalidArguments: it has a NUL, or is too long.
    """
    if "\0" in message or len(message.encode("utf-8", "replace")) > MESSAGE_BYTES:
        raise InvalidArguments(f"message: must have no NUL, and at most {MESSAGE_BYTES} bytes")
