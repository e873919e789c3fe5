"""git's configuration grammar, read strictly: which keys does a repository set?

Pure: bytes in, settings out. Follows `git_parse_source` in git's config.c. What git would refuse is refused here, and
so are a few things that git lets pass and nobody writes (a NUL, a key before any section): no file may mean less to us
than it means to git.
"""

import string
from dataclasses import dataclass, field

from coretools.errors import GitRefused

_KEY = frozenset(string.ascii_letters.encode() + string.digits.encode() + b"-")
_LETTERS = frozenset(string.ascii_letters.encode())
_SPACE = frozenset(b" \t\r\n")
_ESCAPES = {ord("t"): b"\t", ord("b"): b"\b", ord("n"): b"\n", ord("\\"): b"\\", ord('"'): b'"'}
_NEWLINE = ord("\n")
_RETURN = ord("\r")
MARK = b"\xef\xbb\xbf"
"""A byte order mark, which git passes over at the start of a file."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment. `key` is canonical: section and variable in lower case, a subsection as it stands."""

    key: str
    value: str | None
    """None for a key without `=`, which git reads as true."""
    span: tuple[int, int] = field(default=(0, 0), compare=False)
    """Where it stands in the file: from its name to behind the end of its line."""

    @property
    def section(self) -> str:
        """The first part of the key."""
        return self.key.partition(".")[0]

    @property
    def variable(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]


def parse(data: bytes, shown: str) -> list[Setting]:
    """Every assignment of a configuration file, in order.

    Raises:
        GitRefused: the file is not in git's grammar.
    """
    reader = _Reader(data, shown)
    settings: list[Setting] = []
    section = b""
    while (byte := reader.next()) is not None:
        if byte in _SPACE:
            continue
        if byte in b"#;":
            reader.skip_line()
        elif byte == ord("["):
            section = _section(reader)
        elif byte in _LETTERS and section:
            settings.append(_assignment(reader, section, byte))
        else:
            raise reader.refusal("neither a section, a key nor a comment")
    return settings


class _Reader:
    """The bytes of one file, one at a time. As in git a CRLF and the end of the last line read as a newline."""

    def __init__(self, data: bytes, shown: str) -> None:
        self._data = data
        self._shown = shown
        self._at = len(MARK) if data.startswith(MARK) else 0
        if b"\0" in data:
            raise self.refusal("a NUL byte")

    def next(self) -> int | None:
        if self._at >= len(self._data):
            return self._ended()
        byte = self._data[self._at]
        self._at += 1
        if byte == _RETURN and self._data[self._at : self._at + 1] == b"\n":
            self._at += 1
            return _NEWLINE
        return byte

    def _ended(self) -> int | None:
        """One newline for a last line that has none, then None."""
        if self._at > len(self._data) or self._data.endswith(b"\n"):
            return None
        self._at += 1
        return _NEWLINE

    @property
    def position(self) -> int:
        """Where the next byte stands."""
        return self._at

    def must(self, what: str) -> int:
        byte = self.next()
        if byte is None:
            raise self.refusal(f"the file ends in {what}")
        return byte

    def skip_line(self) -> None:
        end = self._data.find(b"\n", self._at)
        self._at = len(self._data) + 1 if end < 0 else end + 1

    def refusal(self, what: str) -> GitRefused:
        line = self._data.count(b"\n", 0, max(self._at - 1, 0)) + 1
        return GitRefused(f"{self._shown}: line {line} is not in git's configuration grammar ({what}); mend the file")


def _section(reader: _Reader) -> bytes:
    """What stands between `[` and `]`, as the start of a key with its dot."""
    name = bytearray()
    while (byte := reader.must("a section header")) != ord("]"):
        if byte in _SPACE:
            return _subsection(reader, bytes(name).lower(), byte)
        if byte not in _KEY and byte != ord("."):
            raise reader.refusal("a character that no section name has")
        name.append(byte)
    if not name:
        raise reader.refusal("a section without a name")
    return bytes(name).lower() + b"."


def _subsection(reader: _Reader, section: bytes, byte: int) -> bytes:
    while byte in b" \t\r":
        byte = reader.must("a section header")
    if byte != ord('"') or not section:
        raise reader.refusal("a subsection without quotes")
    name = bytearray()
    while (byte := reader.must("a section header")) != ord('"'):
        if byte == ord("\\"):
            byte = reader.must("a section header")
        if byte == _NEWLINE:
            raise reader.refusal("a subsection over two lines")
        name.append(byte)
    if reader.must("a section header") != ord("]"):
        raise reader.refusal("text after a subsection")
    return section + b"." + bytes(name) + b"."


def _assignment(reader: _Reader, section: bytes, first: int) -> Setting:
    name = bytearray([first])
    start = reader.position - 1
    while (byte := reader.must("a key")) in _KEY:
        name.append(byte)
    while byte in b" \t":
        byte = reader.must("a key")
    key = _text(section + bytes(name).lower())
    value = None
    if byte == ord("="):
        value = _text(_value(reader))
    elif byte != _NEWLINE:
        raise reader.refusal("a key without '='")
    return Setting(key, value, (start, reader.position))


def _value(reader: _Reader) -> bytes:
    """The rest of the line: quotes and escapes taken off, blanks around it dropped, comments left out."""
    value = bytearray()
    spaces = 0
    quoted = False
    while (byte := reader.must("a value")) != _NEWLINE:
        if not quoted and byte in _SPACE:
            spaces += 1 if value else 0
            continue
        if not quoted and byte in b"#;":
            reader.skip_line()
            return bytes(value)
        value += b" " * spaces
        spaces = 0
        if byte == ord('"'):
            quoted = not quoted
        elif byte == ord("\\"):
            value += _escaped(reader)
        else:
            value.append(byte)
    if quoted:
        raise reader.refusal("a quote that is not closed")
    return bytes(value)


def _escaped(reader: _Reader) -> bytes:
    byte = reader.must("a value")
    if byte == _NEWLINE:
        return b""
    if byte not in _ESCAPES:
        raise reader.refusal("an unknown escape in a value")
    return _ESCAPES[byte]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
