"""Parse and write git configuration files, strictly. Pure.

Parsing follows `git_parse_source` in git's config.c. It refuses what git refuses, and a few things that git accepts and
nobody writes (a NUL, a key before any section): no file may mean less here than it means to git.

Writing produces a whole file, or changes single keys and keeps everything else. The result is parsed again before it is
used: a setting that git would read differently is an error, never another configuration.
"""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coretools.errors import GitRefused

_KEY = frozenset(string.ascii_letters.encode() + string.digits.encode() + b"-")
_LETTERS = frozenset(string.ascii_letters.encode())
_SPACE = frozenset(b" \t\r\n")
_ESCAPES = {ord("t"): b"\t", ord("b"): b"\b", ord("n"): b"\n", ord("\\"): b"\\", ord('"'): b'"'}
_NEWLINE = ord("\n")
_RETURN = ord("\r")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which git skips at the start of a file."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment. `key` is canonical: section and variable in lower case, the subsection as written."""

    key: str
    value: str | None
    """None for a key without `=`, which git reads as true."""
    span: tuple[int, int] = field(default=(0, 0), compare=False)
    """Its position in the file: from its name to the end of its line, inclusive."""

    @property
    def section(self) -> str:
        """The first part of the key."""
        return self.key.partition(".")[0]

    @property
    def variable(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]


def parse(data: bytes, display_path: str) -> list[Setting]:
    """Every assignment of a configuration file, in order.

    Raises:
        GitRefused: the file is not valid git configuration.
    """
    reader = _ByteReader(data, display_path)
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


class _ByteReader:
    """Reads a file byte by byte. As in git, CRLF and the end of the last line read as a newline."""

    def __init__(self, data: bytes, display_path: str) -> None:
        self._data = data
        self._display_path = display_path
        self._at = len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0
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
        """A newline if the last line has none, then None."""
        if self._at > len(self._data) or self._data.endswith(b"\n"):
            return None
        self._at += 1
        return _NEWLINE

    @property
    def position(self) -> int:
        """The position of the next byte."""
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
        return GitRefused(
            f"{self._display_path}: line {line} is not valid git configuration ({what}); correct the file"
        )


def _section(reader: _ByteReader) -> bytes:
    """The section between `[` and `]`, as the start of a key with its dot."""
    name = bytearray()
    while (byte := reader.must("a section header")) != ord("]"):
        if byte in _SPACE:
            return _subsection(reader, bytes(name).lower(), byte)
        if byte not in _KEY and byte != ord("."):
            raise reader.refusal("an invalid character in a section name")
        name.append(byte)
    if not name:
        raise reader.refusal("a section without a name")
    return bytes(name).lower() + b"."


def _subsection(reader: _ByteReader, section: bytes, byte: int) -> bytes:
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


def _assignment(reader: _ByteReader, section: bytes, first: int) -> Setting:
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


def _value(reader: _ByteReader) -> bytes:
    """The rest of the line, without quotes, escapes, surrounding blanks and comments."""
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
        raise reader.refusal("an unclosed quote")
    return bytes(value)


def _escaped(reader: _ByteReader) -> bytes:
    byte = reader.must("a value")
    if byte == _NEWLINE:
        return b""
    if byte not in _ESCAPES:
        raise reader.refusal("an unknown escape in a value")
    return _ESCAPES[byte]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


Value = str | None
"""None for a key without `=`."""
Values = Mapping[str, tuple[Value, ...]]
"""All values of each key, in order."""

_WRITTEN = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"})
_QUOTED = re.compile(r"^\s|\s$|[;#\r]|[ ]{2}|[\x0b\x0c]")
_HEADER = re.compile(rb"[ \t]*\[[^\n]*\][ \t]*\r?\n")


class NotWritable(ValueError):
    """A setting that git would not read back as the same."""


def values_of(settings: Iterable[Setting]) -> dict[str, tuple[Value, ...]]:
    """The values of each key."""
    values: dict[str, tuple[Value, ...]] = {}
    for one in settings:
        values[one.key] = (*values.get(one.key, ()), one.value)
    return values


def serialize(settings: Sequence[Setting]) -> bytes:
    """A whole file with these settings.

    Raises:
        NotWritable: git would read another one.
    """
    parts: list[bytes] = []
    section = None
    for one in settings:
        if _quoted_section(one.key) != section:
            section = _quoted_section(one.key)
            parts.append(_header(section))
        parts.append(_line(one.key, one.value))
    return _checked(b"".join(parts), list(settings))


def with_changes(settings: Sequence[Setting], changes: Values) -> list[Setting]:
    """The settings with new values for some keys; an empty tuple removes a key."""
    left = {key: list(values) for key, values in changes.items()}
    changed: list[Setting] = []
    for one in settings:
        if one.key not in left:
            changed.append(one)
        elif left[one.key]:
            changed.append(Setting(one.key, left[one.key].pop(0)))
    return changed + [Setting(key, value) for key, values in left.items() for value in values]


def edit(data: bytes, changes: Values) -> bytes:
    """The bytes of a file with new values for some keys; comments, order, line endings and spelling of the rest stay.

    Raises:
        GitRefused: the file is not valid git configuration. NotWritable: as for `serialize`.
    """
    end = b"\r\n" if data.count(b"\r\n") * 2 > data.count(b"\n") else b"\n"  # as in most lines
    mark, text = _whole_lines(data, end)
    before = values_of(parse(data, "config"))
    settings = parse(text, "config")
    expected = {key: values for key, values in {**before, **changes}.items() if values}
    pieces = _pieces(text, settings, changes)
    text = _spliced(text, [(start, stop, new.replace(b"\n", end)) for start, stop, new in pieces])
    if values_of(parse(text, "config")) != expected:
        raise NotWritable("git would read other values")
    bare = _without_empty_sections(
        text, {_quoted_section(key) for key in before} - {_quoted_section(key) for key in expected}
    )
    return mark + (bare if values_of(parse(bare, "config")) == expected else text)


def _whole_lines(data: bytes, end: bytes) -> tuple[bytes, bytes]:
    """The byte order mark of a file, if any, and the rest with a terminated last line."""
    mark = BYTE_ORDER_MARK if data.startswith(BYTE_ORDER_MARK) else b""
    text = data.removeprefix(mark)
    return mark, text + end if text and not text.endswith(b"\n") else text


def _pieces(text: bytes, settings: Sequence[Setting], changes: Values) -> list[tuple[int, int, bytes]]:
    """The edits: start, end, and the new bytes."""
    pieces: list[tuple[int, int, bytes]] = []
    more: dict[str, bytes] = {}
    for key, values in changes.items():
        own = [one for one in settings if one.key == key]
        pieces += _replacements(text, own, values)
        lines = b"".join(_line(key, value) for value in values[len(own) :])
        more[_quoted_section(key)] = more.get(_quoted_section(key), b"") + lines
    return pieces + _additions(len(text), settings, more)


def _replacements(text: bytes, own: Sequence[Setting], values: Sequence[Value]) -> list[tuple[int, int, bytes]]:
    """The edits that replace the settings of one key: start, end, and the new bytes."""
    pieces: list[tuple[int, int, bytes]] = []
    for one, value in zip(own, values, strict=False):
        if one.value != value:
            pieces.append((*one.span, _line(one.key, value).lstrip(b"\t")))
    for one in own[len(values) :]:
        start, end = one.span
        line = text.rfind(b"\n", 0, start) + 1
        pieces.append((line if not text[line:start].strip() else start, end, b""))
    return pieces


def _additions(end: int, settings: Sequence[Setting], more: Mapping[str, bytes]) -> list[tuple[int, int, bytes]]:
    """The edits that add lines: after the last one of their section, or in a new section at the end."""
    pieces: list[tuple[int, int, bytes]] = []
    new = b""
    for section, lines in more.items():
        behind = [one.span[1] for one in settings if _quoted_section(one.key) == section]
        if behind and lines:
            pieces.append((max(behind), max(behind), lines))
        elif lines:
            new += _header(section) + lines
    return [(end, end, new), *pieces]  # inserted first, it ends up last


def _spliced(text: bytes, pieces: Sequence[tuple[int, int, bytes]]) -> bytes:
    for start, end, new in sorted(pieces, key=lambda piece: piece[:2], reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _without_empty_sections(text: bytes, emptied: set[str]) -> bytes:
    """The text without headers of sections that lost their last key."""
    lines = text.splitlines(keepends=True)
    kept: list[bytes] = []
    for number, line in enumerate(lines):
        after = next((one.lstrip() for one in lines[number + 1 :] if one.strip()), b"[")
        is_empty = _HEADER.fullmatch(line) is not None and after.startswith(b"[")
        if not (is_empty and emptied & _named(line)):
            kept.append(line)
    return b"".join(kept)


def _named(header: bytes) -> set[str]:
    """The section of a header line."""
    try:
        return {_quoted_section(one.key) for one in parse(header.rstrip() + b"\nx\n", "config")}
    except GitRefused:  # the end of a value with several lines
        return set()


def _quoted_section(key: str) -> str:
    return key.rpartition(".")[0]


def _header(of: str) -> bytes:
    section, dot, subsection = of.partition(".")
    if not dot:
        return _bytes(f"[{section}]\n")
    escaped = subsection.replace("\\", "\\\\").replace('"', '\\"')
    return _bytes(f'[{section} "{escaped}"]\n')


def _line(key: str, value: Value) -> bytes:
    name = key.rpartition(".")[2]
    if value is None:
        return _bytes(f"\t{name}\n")
    text = value.translate(_WRITTEN)
    return _bytes(f'\t{name} = "{text}"\n' if _QUOTED.search(value) else f"\t{name} = {text}\n")


def _checked(data: bytes, settings: list[Setting]) -> bytes:
    try:
        is_same = parse(data, "config") == settings
    except GitRefused as error:
        raise NotWritable(str(error)) from error
    if not is_same:
        raise NotWritable("git would read other values")
    return data


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
