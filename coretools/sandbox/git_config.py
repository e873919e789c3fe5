"""Write git's configuration files: a whole one, or changes to single keys of one that keep everything else as it is.

Pure. What is written is read again before it is used, so a file that can't be written so that git reads it as meant is
an error and never another configuration. The grammar itself is in `git_grammar`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from coretools.errors import GitRefused
from coretools.sandbox.git_grammar import MARK, Setting, parse

Value = str | None
"""None for a key without `=`."""
Values = Mapping[str, tuple[Value, ...]]
"""All values of each key, in order."""

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"})
_QUOTED = re.compile(r"^\s|\s$|[;#\r]|[ ]{2}|[\x0b\x0c]")
_HEADER = re.compile(rb"[ \t]*\[[^\n]*\][ \t]*\r?\n")


class NotWritable(ValueError):
    """A setting that can't be written so that it is read as the same."""


def values_of(settings: Iterable[Setting]) -> dict[str, tuple[Value, ...]]:
    """The values of each key."""
    found: dict[str, tuple[Value, ...]] = {}
    for one in settings:
        found[one.key] = (*found.get(one.key, ()), one.value)
    return found


def written(settings: Sequence[Setting]) -> bytes:
    """A whole file with these settings.

    Raises:
        NotWritable: git would read another one.
    """
    parts: list[bytes] = []
    section = None
    for one in settings:
        if _section(one.key) != section:
            section = _section(one.key)
            parts.append(_header(section))
        parts.append(_line(one.key, one.value))
    return _checked(b"".join(parts), list(settings))


def changed(settings: Sequence[Setting], changes: Values) -> list[Setting]:
    """The settings with other values for some keys; none for a key removes it."""
    left = {key: list(values) for key, values in changes.items()}
    found: list[Setting] = []
    for one in settings:
        if one.key not in left:
            found.append(one)
        elif left[one.key]:
            found.append(Setting(one.key, left[one.key].pop(0)))
    return found + [Setting(key, value) for key, values in left.items() for value in values]


def edited(data: bytes, changes: Values) -> bytes:
    """The bytes of a file with other values for some keys: comments, order, line ends and spelling of the rest stay.

    Raises:
        GitRefused: the file is not in git's grammar. NotWritable: as for `written`.
    """
    end = b"\r\n" if data.count(b"\r\n") * 2 > data.count(b"\n") else b"\n"  # as most lines have it
    mark, text = _whole_lines(data, end)
    before = values_of(parse(data, "config"))
    settings = parse(text, "config")
    expected = {key: values for key, values in {**before, **changes}.items() if values}
    pieces = _pieces(text, settings, changes)
    text = _spliced(text, [(start, stop, new.replace(b"\n", end)) for start, stop, new in pieces])
    if values_of(parse(text, "config")) != expected:
        raise NotWritable("git would read other values")
    bare = _without_empty_sections(text, {_section(key) for key in before} - {_section(key) for key in expected})
    return mark + (bare if values_of(parse(bare, "config")) == expected else text)


def _whole_lines(data: bytes, end: bytes) -> tuple[bytes, bytes]:
    """The byte order mark of a file, if it has one, and the rest with an ended last line."""
    mark = MARK if data.startswith(MARK) else b""
    text = data.removeprefix(mark)
    return mark, text + end if text and not text.endswith(b"\n") else text


def _pieces(text: bytes, settings: Sequence[Setting], changes: Values) -> list[tuple[int, int, bytes]]:
    """What to put where: start, end, and the new bytes."""
    pieces: list[tuple[int, int, bytes]] = []
    more: dict[str, bytes] = {}
    for key, values in changes.items():
        found = [one for one in settings if one.key == key]
        pieces += _replacements(text, found, values)
        lines = b"".join(_line(key, value) for value in values[len(found) :])
        more[_section(key)] = more.get(_section(key), b"") + lines
    return pieces + _additions(len(text), settings, more)


def _replacements(text: bytes, found: Sequence[Setting], values: Sequence[Value]) -> list[tuple[int, int, bytes]]:
    """What to put in the place of the settings of one key: start, end, and the new bytes."""
    pieces: list[tuple[int, int, bytes]] = []
    for one, value in zip(found, values, strict=False):
        if one.value != value:
            pieces.append((*one.span, _line(one.key, value).lstrip(b"\t")))
    for one in found[len(values) :]:
        start, end = one.span
        line = text.rfind(b"\n", 0, start) + 1
        pieces.append((line if not text[line:start].strip() else start, end, b""))
    return pieces


def _additions(end: int, settings: Sequence[Setting], more: Mapping[str, bytes]) -> list[tuple[int, int, bytes]]:
    """Where lines are added: behind the last one of their section, or in a new section at the end."""
    pieces: list[tuple[int, int, bytes]] = []
    new = b""
    for section, lines in more.items():
        behind = [one.span[1] for one in settings if _section(one.key) == section]
        if behind and lines:
            pieces.append((max(behind), max(behind), lines))
        elif lines:
            new += _header(section) + lines
    return [(end, end, new), *pieces]  # put in first, it comes to stand last


def _spliced(text: bytes, pieces: Sequence[tuple[int, int, bytes]]) -> bytes:
    for start, end, new in sorted(pieces, key=lambda piece: piece[:2], reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _without_empty_sections(text: bytes, emptied: set[str]) -> bytes:
    """Without the headers of sections that have lost their last key."""
    lines = text.splitlines(keepends=True)
    kept: list[bytes] = []
    for number, line in enumerate(lines):
        after = next((one.lstrip() for one in lines[number + 1 :] if one.strip()), b"[")
        is_empty = _HEADER.fullmatch(line) is not None and after.startswith(b"[")
        if not (is_empty and emptied & _named(line)):
            kept.append(line)
    return b"".join(kept)


def _named(header: bytes) -> set[str]:
    """The section that a line is the header of."""
    try:
        return {_section(one.key) for one in parse(header.rstrip() + b"\nx\n", "config")}
    except GitRefused:  # the end of a value that goes over several lines
        return set()


def _section(key: str) -> str:
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
    text = value.translate(_ESCAPES)
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
