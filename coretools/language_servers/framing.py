"""Frame messages of the language server protocol: a header with the length, and JSON (base protocol, LSP 3.17).

What a server sends is the output of a program of a stranger: every length is bounded before memory is used for it.
"""

import json

from coretools.language_servers.failure import NoAnswer

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Longest message: 100,000 references have about 15 MB."""

MAX_HEADER_BYTES = 1024
"""Longest header: two short lines."""

_END = b"\r\n\r\n"


def framed(message: object) -> bytes:
    """Return a message with its header."""
    content = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


class MessageReader:
    """Collects bytes until messages are complete."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._length: int | None = None
        """Of the content that is being read; None while a header is."""

    def feed(self, data: bytes) -> list[dict[str, object]]:
        """Take bytes and return the messages that they complete.

        Raises:
            NoAnswer: they are not the protocol.
        """
        self._waiting += data
        messages: list[dict[str, object]] = []
        while True:
            if self._length is None and not self._take_header():
                return messages
            if self._length is None or len(self._waiting) < self._length:
                return messages
            content = bytes(self._waiting[: self._length])
            del self._waiting[: self._length]
            self._length = None
            messages.append(_message(content))

    def _take_header(self) -> bool:
        end = self._waiting.find(_END, 0, MAX_HEADER_BYTES)
        if end < 0:
            if len(self._waiting) >= MAX_HEADER_BYTES:
                raise NoAnswer("it wrote something that is not the protocol")
            return False
        self._length = _length_in(bytes(self._waiting[:end]))
        del self._waiting[: end + len(_END)]
        return True


def _length_in(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        text = value.strip()
        if name.strip().lower() == b"content-length" and text.isdigit() and len(text) < 12:
            if int(text) > MAX_MESSAGE_BYTES:
                raise NoAnswer(f"it sent a message of more than {MAX_MESSAGE_BYTES} bytes")
            return int(text)
    raise NoAnswer("it wrote something that is not the protocol")


def _message(content: bytes) -> dict[str, object]:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NoAnswer("it sent a message that is not JSON") from error
    if not isinstance(message, dict):
        raise NoAnswer("it sent a message that is no object")
    return message
