"""Several files in one answer: what a caller names, how the answer is shared among the files, and how it is framed.

Pure. The frame has a random token for each answer, which no content can contain. So a file cannot end its own
section or forge another one.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from coretools.errors import CoreError
from coretools.escapes import escape_controls
from coretools.operations.content import Result
from coretools.tools.answer_budget import cut_line
from coretools.tools.filesystem.line_window import LineRange

MAX_FILES = 200
"""Most files of one call, those that globs match included."""

SMALLEST_SHARE = 256
"""Bytes of a file for which a section is worth its frame; without that much room a file is left out and named."""

REMARK_BYTES = 200
"""Kept in each section for the remark of a file that does not fit."""

_NAME_CHARACTERS = 300
_LEFT_OUT_BYTES = 700
_TOKEN_BYTES = 6

_RANGE = re.compile(r"(?P<path>.+):(?P<first>[1-9][0-9]{0,9})(?:-(?P<last>[1-9][0-9]{0,9})?)?")
_WILDCARD = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A file to read, and the lines of it: both counted from 1, `last` included; None is not given."""

    path: str
    first: int | None = None
    last: int | None = None

    @property
    def lines(self) -> LineRange:
        """The lines, as `read_file` takes them."""
        limit = None if self.last is None or self.first is None else max(1, self.last - self.first + 1)
        return LineRange(offset=self.first, limit=limit)

    @property
    def text(self) -> str:
        """As a caller names it."""
        if self.first is None:
            return self.path
        return f"{self.path}:{self.first}-{self.last or ''}"


def is_glob(text: str) -> bool:
    """Whether a path has a wildcard. A file may have such a name too, so ask for it first."""
    return _WILDCARD.search(text) is not None


def split_glob(glob: str) -> tuple[str, str]:
    """The directory to search, and the glob from there; one of a single name matches in every directory."""
    parts = glob.split("/")
    at = next(number for number, part in enumerate(parts) if is_glob(part))
    if at == 0:
        return ".", glob
    return "/".join(parts[:at]) or "/", f"./{'/'.join(parts[at:])}"


def parse_request(text: str, is_there: Callable[[str], bool]) -> FileRequest:
    """Split `path:from-to`. A file whose name looks like that is that file: `is_there` tells."""
    found = _RANGE.fullmatch(text)
    if found is None or is_there(text):
        return FileRequest(text)
    first = int(found["first"])
    is_open = "-" in text[len(found["path"]) :] and found["last"] is None
    return FileRequest(found["path"], first, None if is_open else int(found["last"] or first))


def shares(wanted: Sequence[int], total: int) -> list[int]:
    """Divide `total` so that the smallest wishes are fulfilled and the others get equal parts."""
    given = [0] * len(wanted)
    waiting = sorted(range(len(wanted)), key=wanted.__getitem__)
    for place, number in enumerate(waiting):
        given[number] = max(0, min(wanted[number], total // (len(wanted) - place)))
        total -= given[number]
    return given


@dataclass(frozen=True, slots=True)
class Section:
    """What is returned of one file: its text, or the error."""

    name: str
    text: str
    error: str = ""
    """Kind of the error; empty for a file that was read."""
    remarks: tuple[str, ...] = ()
    """Unusual encoding and line endings."""
    path: str = ""
    sha256: str = ""
    """Of the whole file of this path; "" if it is not known."""

    @classmethod
    def of_error(cls, name: str, error: CoreError) -> "Section":
        """The section of a file that was not read."""
        return cls(name, escape_controls(str(error)), error.kind)

    @property
    def headline(self) -> str:
        """The headline without the frame, of one line."""
        name = cut_line(escape_controls(self.name), longest=_NAME_CHARACTERS)
        unfinished = () if self.text.endswith("\n") or not self.text else ("no newline at the end",)
        remarks = (f"error: {self.error}",) if self.error else (*self.remarks, *unfinished)
        return f"{name} ({', '.join(remarks)})" if remarks else name


class FileTexts(Result):
    """The text of several files, in the order in which they were named."""

    body: str
    files: int
    errors: int
    left_out: int
    sha256: dict[str, str]
    """Hashes of whole files, by path."""

    def text(self) -> str:
        """The sections in their frame."""
        return self.body

    def facts(self) -> dict[str, object]:
        """Numbers of files that were read, refused and left out, and hashes."""
        return {"files": self.files, "errors": self.errors, "left_out": self.left_out, "sha256": self.sha256}

    @classmethod
    def of(cls, sections: Sequence[Section], left_out: Sequence[str], notes: Iterable[str]) -> "FileTexts":
        """Frame the sections."""
        token = _token_for(sections)
        parts = [f'[{len(sections)} files; only lines that begin with "=== {token}" separate them]\n']
        for section in sections:
            ending = "" if section.text.endswith("\n") or not section.text else "\n"
            parts.append(f"=== {token} {section.headline}\n{section.text}{ending}")
        parts.append(f"=== {token} end\n")
        parts += [f"[{note}]\n" for note in (*_left_out_note(left_out), *notes)]
        errors = sum(bool(section.error) for section in sections)
        hashes = {section.path: section.sha256 for section in sections if section.sha256}
        return cls(
            body="".join(parts), files=len(sections) - errors, errors=errors, left_out=len(left_out), sha256=hashes
        )


def frame_bytes(name: str) -> int:
    """Bytes of an answer that the frame of a section may take, with the remark of a file that does not fit."""
    shown = cut_line(escape_controls(name), longest=_NAME_CHARACTERS)
    return len(shown.encode("utf-8", "replace")) + 2 * _TOKEN_BYTES + REMARK_BYTES + 40


def _token_for(sections: Sequence[Section]) -> str:
    while True:
        token = secrets.token_hex(_TOKEN_BYTES)
        if not any(token in section.text for section in sections):
            return token


def _left_out_note(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    shown, size = [], 0
    for name in names:
        size += len(name.encode("utf-8", "replace")) + 2
        if size > _LEFT_OUT_BYTES:
            break
        shown.append(escape_controls(name))
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return [f"{len(names)} left out for lack of room: {', '.join(shown)}{more}; read them with a further call"]
