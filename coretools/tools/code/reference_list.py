"""The references of an answer: places that a server or a search named, read in their files and shown by file."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from pydantic import BaseModel

from coretools.cancellation import check_cancelled
from coretools.config.limits import Limits
from coretools.errors import CoreError
from coretools.escapes import escape_controls
from coretools.language_servers.answers import Span, Spans
from coretools.language_servers.positions import Lines
from coretools.operations.content import Result
from coretools.roots.read import read_bytes
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.tools.answer_budget import content_bytes, cut_line
from coretools.tools.code.symbol_target import MAX_BYTES, word
from coretools.tools.outline import Outline, outline_of

LINE_CHARACTERS = 300
"""Shown of a line."""


class Reference(BaseModel):
    """A line that mentions a symbol."""

    line: int
    text: str
    enclosing: str = ""
    """The symbol that it is in."""
    is_definition: bool = False
    is_named: bool = True
    """Whether the line has the name: an import may give it another."""

    @property
    def shown(self) -> str:
        """The line with its number and what it is in."""
        relation = "definition of" if self.is_definition else "in"
        where = f" {relation} {self.enclosing}" if self.enclosing else ""
        return f"{self.line}{where}: {self.text}" + ("" if self.is_named else " [by another name]")


class ReferencingFile(BaseModel):
    """The references in one file."""

    path: str
    references: list[Reference]


class FoundReferences(Result):
    """Result of `code_references`."""

    files: list[ReferencingFile]
    total: int
    """Those that are known, shown or not."""
    source: str
    """The language server, or `text`."""
    warning: str = ""
    """What a reader must know before: why these are no references."""
    notes: list[str]

    def text(self) -> str:
        """Each path once, and beneath it `line in FUNCTION: text`."""
        lines = [f"[{self.warning}]"] if self.warning else []
        for file in self.files:
            lines += [escape_controls(file.path), *(one.shown for one in file.references)]
        return "\n".join([*lines, *(f"[{note}]" for note in self.notes)])

    def facts(self) -> dict[str, object]:
        """Counts, and who said so."""
        return {"references": self.total, "files": len(self.files), "source": self.source}


class ReferenceReader:
    """Reads the lines of places within the limits of one answer."""

    def __init__(self, roots: Roots, limits: Limits, name: str) -> None:
        self.notes: list[str] = []
        self._roots = roots
        self._name = name
        self._word = word(name)
        self._bytes = content_bytes(limits)
        self._shown = 0

    def read(self, spans: Spans, *, skip: int, limit: int) -> tuple[list[ReferencingFile], int]:
        """Return the files, and how many places there are. Those that can't be read are counted in `notes`."""
        ordered = sorted(set(spans.spans), key=attrgetter("path", "line", "character"))
        by_path = {path: list(group) for path, group in groupby(ordered, key=attrgetter("path"))}
        inside, outside = dict[str, list[Span]](), 0
        for path, group in by_path.items():
            place = self._roots.split(path)
            if place is None:
                outside += len(group)
            else:
                inside[self._roots.display_path(place)] = _one_per_line(group)
        total = sum(map(len, inside.values()))
        files = self._files(inside, skip=skip, limit=limit)
        if outside:
            self.notes.append(f"{outside} more outside of the roots, such as in the standard library")
        if skip + self._shown < total:
            self.notes.append(f"{self._shown} of {total} shown; skip={skip + self._shown} goes on")
        return files, total

    def _files(self, inside: dict[str, list[Span]], *, skip: int, limit: int) -> list[ReferencingFile]:
        files: list[ReferencingFile] = []
        unread = 0
        for path, group in inside.items():
            check_cancelled()
            left, skip = group[skip:], max(0, skip - len(group))
            if not left or self._shown >= limit or self._bytes <= 0:
                continue
            try:
                content = read_bytes(self._roots, path, limit_bytes=MAX_BYTES)
                lines = Lines.of(decode(content.data, path).text)
            except CoreError:  # hidden, deleted meanwhile, not text
                unread += len(left)
                continue
            outline = outline_of(path, lines.text)
            references = [self._reference(lines, outline, span) for span in left[: limit - self._shown]]
            kept = list(self._fitting(references, path))
            self._shown += len(kept)
            files += [ReferencingFile(path=path, references=kept)] if kept else []
        if unread:
            self.notes.append(f"{unread} more in files that can't be read here")
        return files

    def _fitting(self, references: Sequence[Reference], path: str) -> Iterable[Reference]:
        self._bytes -= len(path.encode("utf-8", "replace")) + 1
        for one in references:
            self._bytes -= len(one.shown.encode("utf-8", "replace")) + 1
            if self._bytes <= 0 and self._shown:
                return
            yield one

    def _reference(self, lines: Lines, outline: Outline | None, span: Span) -> Reference:
        text = lines.line(span.line)
        number = span.line + 1
        enclosing = None if outline is None else outline.enclosing(number)
        is_definition = (
            enclosing is not None
            and enclosing.name == self._name
            and text.strip().startswith(enclosing.signature[:LINE_CHARACTERS])
        )
        return Reference(
            line=number,
            text=cut_line(text.strip(), longest=LINE_CHARACTERS),
            enclosing="" if enclosing is None else enclosing.path,
            is_definition=is_definition,
            is_named=self._word.search(text) is not None,
        )


def _one_per_line(spans: list[Span]) -> list[Span]:
    return list({span.line: span for span in reversed(spans)}.values())[::-1]
