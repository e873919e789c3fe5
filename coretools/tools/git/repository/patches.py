"""Parse patches: the files of `git diff --patch`, and in each file its hunks with a number and a stable id.

Pure: bytes in, records out. Hunks are numbered from 1 in each file, in the order of the patch. The id of a hunk is a
hash of its file and its lines without their positions, so it stays the same when other hunks of the file are staged,
and changes when its own lines do.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from coretools.errors import GitRefused
from coretools.tools.git.repository.porcelain import as_text

PATCH = (
    *("--patch", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--submodule=short", "--no-color"),
    *("--no-relative", "--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers"),
    *("--indent-heuristic", "--ws-error-highlight=none"),
)
"""Options of every patch, whatever the configuration says: hunks and their ids depend on them."""

ID_CHARACTERS = 8
"""Length of a hunk's id. It tells whether a hunk has changed; the number says which one is meant."""

_HUNK = re.compile(rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@(.*)", re.DOTALL)
# Content always has one of a few first characters, so no content can be mistaken for the header of a file or hunk. `~`
# ends a line in `--word-diff=porcelain`; an empty line is an empty context line (diff.suppressBlankEmpty).
_FILE = re.compile(rb"^(?:diff --git |diff --cc |\* Unmerged path )", re.MULTILINE)
_EMPTY_LINE = re.compile(rb"^(?=\n|\Z)", re.MULTILINE)
_HUNK_START = re.compile(rb"^@@ ", re.MULTILINE)
_NO_CONTENT = re.compile(rb"^[^ +\\~\n-]", re.MULTILINE)

_MOVES = ((b"rename from ", b"a/"), (b"copy from ", b"a/"), (b"rename to ", b"b/"), (b"copy to ", b"b/"))
"""How the lines begin that name a file before and after, and their sides."""

_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_LETTERS = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk of a file."""

    number: int
    """Its place in the file, from 1."""
    name: bytes
    """The name of the file."""
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: bytes
    """What git prints after the positions: usually the line that begins the function."""
    body: bytes
    """The lines after the first, as git printed them."""

    @property
    def lines(self) -> list[bytes]:
        """The lines without newlines, each with its first character: space, `+`, `-`, or a backslash (no newline)."""
        return [line or b" " for line in self.body.split(b"\n")] if self.body else []

    @property
    def id(self) -> str:
        """A hash of the file and the lines."""
        lines = _EMPTY_LINE.sub(b" ", self.body)
        return sha256(self.name + b"\0" + lines).hexdigest()[:ID_CHARACTERS]

    @property
    def position(self) -> str:
        """The positions as git prints them: `@@ -1,3 +1,4 @@`."""
        old = f"{self.old_start}" if self.old_count == 1 else f"{self.old_start},{self.old_count}"
        new = f"{self.new_start}" if self.new_count == 1 else f"{self.new_start},{self.new_count}"
        return f"@@ -{old} +{new} @@"

    @property
    def added(self) -> int:
        """Number of added lines."""
        return self.body.startswith(b"+") + self.body.count(b"\n+")

    @property
    def removed(self) -> int:
        """Number of removed lines."""
        return self.body.startswith(b"-") + self.body.count(b"\n-")


@dataclass(frozen=True, slots=True)
class FilePatch:
    """The part of a patch about one file. A file that becomes a link has two: a removal and an addition."""

    header: Sequence[bytes]
    """The lines before the first hunk, as git printed them; all lines of a conflict."""
    old: bytes | None
    """The name before, as git knows it; None if the file is new."""
    new: bytes | None
    """The name after; None if the file is deleted."""
    hunks: Sequence[Hunk]
    is_conflict: bool = False
    """The file is in conflict: git prints a combined patch, whose hunks can't be staged and have no numbers."""

    @property
    def name(self) -> bytes:
        """The name after the change, or that of a deleted file."""
        return self.new if self.new is not None else self.old or b""

    @property
    def names(self) -> frozenset[bytes]:
        """Both names."""
        return frozenset(name for name in (self.old, self.new) if name is not None)

    @property
    def is_binary(self) -> bool:
        """Whether git printed no lines because the content is binary."""
        return any(line.startswith((b"Binary files ", b"GIT binary patch")) for line in self.header)


Beginnings = Sequence[tuple[bytes, bytes]]
"""Beginnings of absolute paths, the longest first, and what takes their place in headers."""


def read_patch(data: bytes, *, prefix: bytes = b"", relative: Beginnings = ()) -> list[FilePatch]:
    """Parse a patch; `prefix` is what the options `--src-prefix=a/PREFIX` and `--dst-prefix=b/PREFIX` put before names.

    Headers have absolute paths without letters; with `relative` these become relative ones.

    The last hunk may lack lines if `data` was cut.

    Raises:
        GitRefused: it is not a patch of git.
    """
    return [_file(section, prefix, relative) for section in _sections(data)]


def _sections(data: bytes) -> Iterator[bytes]:
    starts = [match.start() for match in _FILE.finditer(data)]
    if data and starts[:1] != [0]:
        raise _unknown(data)
    for start, end in zip(starts, [*starts[1:], len(data)], strict=False):
        yield data[start:end].removesuffix(b"\n")


def _file(section: bytes, prefix: bytes, relative: Beginnings) -> FilePatch:
    for word in (b"* Unmerged path ", b"diff --cc "):
        if section.startswith(word):
            header = section.split(b"\n")
            name = unquoted(header[0].removeprefix(word))
            return FilePatch(header, name, name, (), is_conflict=True)
    starts = [match.start() for match in _HUNK_START.finditer(section)]
    header = section[: starts[0] - 1 if starts else len(section)].split(b"\n")
    old, new = _names(header, prefix)
    header = [_shown(line, prefix, relative) for line in header]
    ends = [*(start - 1 for start in starts[1:]), len(section)]
    name = new or old or b""
    parts = enumerate(zip(starts, ends, strict=False), 1)
    return FilePatch(header, old, new, [_hunk(number, name, section[start:end]) for number, (start, end) in parts])


def _shown(line: bytes, prefix: bytes, relative: Beginnings) -> bytes:
    """Return a line of a header with its paths as callers write them. git takes a name that begins with / for none."""
    if word := next((word for word, _ in _MOVES if line.startswith(word)), b""):  # git puts no prefix here
        at = len(word) + line.startswith(b'"', len(word))
        path = prefix + line[at:]
        start, above = next((pair for pair in relative if path.startswith(pair[0])), (b"", b""))
        return line[:at] + above + path.removeprefix(start)
    if not prefix.startswith(b"/") or not line.startswith((b"diff --git ", b"--- ", b"+++ ", b"Binary files ")):
        return line
    for side in (b"a/", b"b/"):
        for start, path in relative:
            line = line.replace(side + start, side + path)
        line = line.replace(side + prefix, prefix)
    return line


def _hunk(number: int, name: bytes, text: bytes) -> Hunk:
    first, _, body = text.partition(b"\n")
    match = _HUNK.fullmatch(first)
    wrong = _NO_CONTENT.search(body)
    if match is None or wrong is not None:
        raise _unknown(first if wrong is None else body[wrong.start() :])
    old_start, old_count, new_start, new_count = (1 if group is None else int(group) for group in match.groups()[:4])
    return Hunk(number, name, old_start, old_count, new_start, new_count, match[5].strip(), body)


def _unknown(text: bytes) -> GitRefused:
    return GitRefused(f"git diff printed something unknown: {as_text(text[:80])}")


def _names(header: Sequence[bytes], prefix: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the name before and after, from the most exact lines that the header has."""
    names: dict[bytes, bytes | None] = {}
    is_new = is_deleted = False
    for line in header[1:]:
        for word, side in ((b"--- ", b"a/"), (b"+++ ", b"b/")):
            if line.startswith(word):
                names[side] = _side(line.removeprefix(word).removesuffix(b"\t"), side + prefix)
        for word, side in _MOVES:
            if line.startswith(word):
                names[side] = unquoted(line.removeprefix(word))
        is_new |= line.startswith(b"new file mode ")
        is_deleted |= line.startswith(b"deleted file mode ")
    if len(names) == 2:
        return names[b"a/"], names[b"b/"]
    name = _equal_name(header[0].removeprefix(b"diff --git "), prefix)
    return None if is_new else name, None if is_deleted else name


def _side(text: bytes, before: bytes) -> bytes | None:
    name = unquoted(text)
    if name == b"/dev/null":
        return None
    if not name.startswith(before):
        raise GitRefused(f"git diff printed an unknown name: {as_text(text)[:80]}")
    return name.removeprefix(before)


def _equal_name(text: bytes, prefix: bytes) -> bytes:
    """Return the name in `a/NAME b/NAME`: without other lines that name the file both sides are equal."""
    middle = len(text) // 2
    old, new = unquoted(text[:middle]), unquoted(text[middle + 1 :])
    name = old.removeprefix(b"a/" + prefix)
    if old != b"a/" + prefix + name or new != b"b/" + prefix + name:
        raise GitRefused(f"git diff printed unknown names: {as_text(text)[:80]}")
    return name


def unquoted(text: bytes) -> bytes:
    """Return a name that git may have quoted: in double quotes, with the escapes of C."""
    if not (len(text) >= 2 and text.startswith(b'"') and text.endswith(b'"')):
        return text
    return _ESCAPE.sub(lambda match: _unescaped(match[1]), text[1:-1])


def _unescaped(escape: bytes) -> bytes:
    return bytes((int(escape, 8),)) if escape.isdigit() else _LETTERS.get(escape, escape)
