"""Parse git's machine-readable output: `status --porcelain=v2`, the fields of `log`, lists of names.

Pure. All output is requested with `-z`, so names are separated by NUL; spaces, quotes and newlines have no meaning.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from coretools.errors import GitRefused

STATES = {
    "M": "modified",
    "T": "type changed",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "?": "untracked",
    "!": "ignored",
    ".": "",
}
"""git's letters for one side of an entry."""

CONFLICTS = {
    "DD": "both deleted",
    "AU": "added by us",
    "UD": "deleted by them",
    "UA": "added by them",
    "DU": "deleted by us",
    "AA": "both added",
    "UU": "both modified",
}
"""git's pairs of letters for a path that a merge left in conflict."""


FROM_STDIN = ("--pathspec-from-file=-", "--pathspec-file-nul")
"""Options of a command that reads names, `terminated`, from standard input."""

_PLAIN = re.compile(r"[A-Za-z0-9_./+@=,-]+")
"""Characters of most names. None of them is ever quoted, so such names are not checked character by character."""


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """One path that differs from the last commit."""

    path: bytes
    letters: str
    """State of index and work tree, as `git status --short` prints it; `.` is unchanged."""
    origin: bytes | None = None
    """The former name of a renamed file, or the source of a copied one."""

    @property
    def in_conflict(self) -> bool:
        """Whether a merge left the path unresolved."""
        return self.letters in CONFLICTS

    @property
    def staged(self) -> str:
        """State of the index against the last commit, as a word; empty if unchanged or not in the index."""
        return "conflict" if self.in_conflict else "" if self.letters in ("??", "!!") else STATES[self.letters[0]]

    @property
    def unstaged(self) -> str:
        """State of the work tree against the index, as a word."""
        return CONFLICTS.get(self.letters) or STATES[self.letters[1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GitStatus:
    """The parsed output of `git status --porcelain=v2 --branch -z`."""

    branch: str
    """Empty when HEAD is detached."""
    head: str
    """The commit, in hex; empty before the first one."""
    upstream: str
    ahead: int
    behind: int
    entries: tuple[StatusEntry, ...]
    has_distance: bool = True
    """The upstream exists."""
    stashes: int = 0

    @property
    def where(self) -> str:
        """Branch and commit in words."""
        if not self.branch:
            return f"HEAD detached at {self.head[:10]}"
        return f"branch {self.branch}" if self.head else f"branch {self.branch} (no commits yet)"


def read_status(output: bytes) -> GitStatus:
    """Parse the whole output.

    Raises:
        GitRefused: the format is unknown.
    """
    headers: dict[str, str] = {}
    entries: list[StatusEntry] = []
    records = iter(output.split(b"\0"))
    for record in records:
        if record.startswith(b"# "):
            name, _, value = record[2:].partition(b" ")
            headers[name.decode("ascii", "replace")] = as_text(value)
        elif record:
            entries.append(_entry(record, records))
    branch, head = headers.get("branch.head", ""), headers.get("branch.oid", "")
    ahead, _, behind = headers.get("branch.ab", "+0 -0").partition(" ")
    return GitStatus(
        branch="" if branch == "(detached)" else branch,
        head="" if head == "(initial)" else head,
        upstream=headers.get("branch.upstream", ""),
        ahead=abs(int(ahead)),
        behind=abs(int(behind)),
        entries=tuple(sorted(entries, key=lambda entry: entry.path)),
        has_distance="branch.ab" in headers or "branch.upstream" not in headers,
        stashes=int(headers.get("stash", "0")),
    )


def _entry(record: bytes, following: Iterator[bytes]) -> StatusEntry:
    kind = record[:2]
    try:
        if kind in (b"? ", b"! "):
            return StatusEntry(record[2:], 2 * chr(kind[0]))
        fields = {b"1 ": 8, b"2 ": 9, b"u ": 10}[kind]
        parts = record.split(b" ", fields)
        letters = parts[1].decode("ascii")
        entry = StatusEntry(parts[fields], letters, next(following) if kind == b"2 " else None)
    except (KeyError, IndexError, StopIteration, UnicodeDecodeError) as error:
        raise GitRefused(f"git status printed something unknown: {as_text(record)[:80]}") from error
    if not entry.in_conflict and (len(letters) != 2 or not STATES.keys() >= set(letters)):
        raise GitRefused(f"git status printed unknown states: {as_text(record)[:80]}")
    return entry


def read_records(output: bytes, fields: int) -> list[Sequence[bytes]]:
    """Split NUL-terminated fields into groups of `fields`; an incomplete last group is omitted."""
    parts = output.split(b"\0")[:-1]
    return [parts[at : at + fields] for at in range(0, len(parts) - fields + 1, fields)]


_RAW = re.compile(rb":[0-7]{6} [0-7]{6} [0-9a-f]+ [0-9a-f]+ ([A-Z])[0-9]*")


@dataclass(frozen=True, slots=True)
class Change:
    """One file of `git diff --raw -z`."""

    letter: str
    name: bytes
    origin: bytes | None = None
    """The former name of a renamed file, or the source of a copied one."""

    @property
    def word(self) -> str:
        """What changed, as a word."""
        return "conflict" if self.letter == "U" else STATES.get(self.letter, "changed")


def read_changes(data: bytes, *, counts: bool = False) -> tuple[list[Change], bytes] | None:
    """Parse `git diff --raw -z` with a patch, or with `counts` the lines of `--numstat`, into the files and the rest.

    Returns None if the two are not separate: for a file in conflict git mixes them.
    """
    changes: list[Change] = []
    rest = data
    while rest:
        record, _, after = rest.partition(b"\0")
        if not record:
            return changes, after
        match = _RAW.fullmatch(record)
        if match is None:
            return (changes, rest) if counts else None
        if match[1] == b"U" and not counts:
            return None
        names = []
        for _ in range(2 if match[1] in b"CR" else 1):
            name, _, after = after.partition(b"\0")
            names.append(name)
        changes.append(Change(match[1].decode("ascii"), names[-1], names[0] if len(names) == 2 else None))
        rest = after
    return changes, b""


def read_names(output: bytes) -> list[bytes]:
    """Split NUL-terminated names."""
    return [name for name in output.split(b"\0") if name]


def terminated(names: Iterable[bytes]) -> bytes:
    """Return names as git reads them with `-z`."""
    return b"".join(name + b"\0" for name in names)


def decoded(data: bytes) -> str:
    """Decode git's bytes for functions that take paths; `encoded` returns the same bytes."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Encode text for git; the inverse of `decoded`."""
    return text.encode("utf-8", "surrogateescape")


def as_text(name: bytes) -> str:
    """Decode git's bytes; bytes that are not UTF-8 become backslash, x and two hexadecimal digits."""
    return name.decode("utf-8", "backslashreplace")


def quoted(name: bytes) -> str:
    """Return a name for a line of text: unchanged, or in double quotes with escapes if it would mislead."""
    text = name.decode("utf-8", "surrogateescape")
    if _PLAIN.fullmatch(text):
        return text
    escaped = "".join(_escaped(character) for character in text)
    is_plain = escaped == text and text == text.strip() and text and " -> " not in text
    return text if is_plain else f'"{escaped}"'


def single_line(text: str) -> str:
    """Return the text with unprintable characters escaped: they could end or overwrite the line."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8, as surrogateescape represents it
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
