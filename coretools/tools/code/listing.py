"""Collect the symbols of files within the limits of one answer."""

import time
from collections.abc import Iterable

from coretools.cancellation import check_cancelled
from coretools.config.limits import Limits
from coretools.errors import CoreError, NotText, TooLarge
from coretools.escapes import escape_controls
from coretools.language_servers.answers import Span, Spans
from coretools.language_servers.positions import Encoding, Lines
from coretools.roots.read import open_file
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes, cut_line
from coretools.tools.code.results import FoundSymbol, FoundSymbols
from coretools.tools.code.symbol_target import word
from coretools.tools.outline import MAX_BYTES, Outline, Symbol, outline_of
from coretools.tools.search.file_matches import decode_text
from coretools.truncation import and_more

SHOWN_LINES = 120
"""Lines of a definition that are shown; read_file has the rest."""

SHOWN_TEXTS = 20
"""Definitions that come with their text."""

_LINE_CHARACTERS = 300

NAMED_FILES = 5
"""Files named in a remark."""


class SymbolListing:
    """The symbols of an answer, added file by file."""

    def __init__(
        self, roots: Roots, limits: Limits, wanted: tuple[str, ...], *, skip: int, limit: int, deadline: float
    ) -> None:
        """`wanted` are the components of the name that is looked for, none for an outline.

        `skip` symbols are left out, and at most `limit` are taken. `deadline` is one of the monotonic clock.
        """
        self.deadline = deadline
        self.notes: list[str] = []
        self._roots = roots
        self._limits = limits
        self._wanted = wanted
        self._skip = skip
        self._limit = limit
        self._symbols: list[FoundSymbol] = []
        self._bytes = 0
        self._skipped = 0
        self._more = False
        self._has_hidden = False
        """Whether a definition is known and can't be shown."""
        self._mentions: list[str] = []
        """Files that contain the name."""
        self._problems: dict[str, list[str]] = {}
        """Files whose symbols are not all known, by the reason."""

    def read_named_file(self, path: str) -> None:
        """Add the symbols of the file that the caller named.

        Raises:
            NotText: binary, or of a language that is not known.
            TooLarge: too large to be parsed.
            CoreError: it can't be read.
        """
        text = self._text(path)
        outline = None if text is None else outline_of(path, text)
        if text is None or outline is None:
            raise NotText(f"{path}: its symbols are not known, as those of its kind of file; search_text searches it")
        self._add(path, text, outline, is_whole=True)

    def read_tree(self, paths: Iterable[str]) -> None:
        """Add the symbols of files in a tree. Unreadable files, and those of other kinds, are skipped."""
        for path in paths:
            check_cancelled()
            if self._more:
                return
            if time.monotonic() >= self.deadline:
                self.notes.append(f"stopped after {self._limits.search_seconds:g} s; there may be more")
                return
            try:
                text = self._text(path)
            except TooLarge:
                self._problems.setdefault(f"larger than {MAX_BYTES} bytes", []).append(path)
                self._mentions.append(path)
                continue
            except CoreError:  # deleted meanwhile, denied, no permission: not part of the tree
                continue
            outline = None if text is None else outline_of(path, text)
            if text is not None and outline is not None:
                self._add(path, text, outline, is_whole=False)
            if text is not None:
                self._mentions.append(path)

    def read_places(self, spans: Spans) -> None:
        """Add the symbols that are defined at places which a language server named, with all their overloads."""
        added = set[tuple[str, str]]()
        for span in spans.spans:
            place = self._roots.split(span.path)
            path = span.path if place is None else self._roots.display_path(place)
            try:
                text = None if place is None else self._text(path)
            except CoreError:
                text = None
            if text is None:
                self.notes.append(f"defined at {escape_controls(path)}:{span.line + 1}, which is not shown")
                self._has_hidden = True
                continue
            symbols = self._defined(path, text, span, spans.encoding)
            if (path, symbols[0].path) not in added:
                added.add((path, symbols[0].path))
                self._show(path, text, symbols)

    def _defined(self, path: str, text: str, span: Span, encoding: Encoding) -> list[Symbol]:
        """The symbol that a place names with its overloads; or its line, if it is no symbol, such as a parameter."""
        lines, outline = Lines.of(text), outline_of(path, text)
        around = None if outline is None else outline.enclosing(span.line + 1)
        offsets = span.offsets(lines, encoding)
        if outline and around and offsets and word(around.name).search(lines.text[slice(*offsets)]):
            return [one for one in outline.symbols if one.path == around.path]
        scope = () if around is None else (*around.scope, around.name)
        number, line = span.line + 1, lines.line(span.line).strip()
        return [Symbol("name", self._wanted[-1], scope, number, number, cut_line(line))]

    def result(self) -> FoundSymbols:
        """Return the symbols, with remarks on what they lack."""
        notes = list(self.notes)
        if self._more:
            more = self._skip + len(self._symbols)
            notes.append(f"{len(self._symbols)} symbols shown, more exist; skip={more} goes on, or narrow path")
        notes += [f"not all symbols are known of {_named(paths)}: {why}" for why, paths in self._problems.items()]
        if not self._symbols and not self._more and not self._has_hidden:
            notes.insert(0, self._nothing())
        return FoundSymbols(symbols=self._symbols, more=self._more, notes=notes)

    def _nothing(self) -> str:
        """Why there is no symbol; never an empty answer."""
        if self._skipped:
            return f"no symbol after the first {self._skipped}"
        if not self._wanted:
            return "no symbols: no file here is of a language whose symbols are known, or it defines none"
        name = ".".join(self._wanted)
        if self._mentions:
            return f"nothing defines {name}, by syntax; the text is in {_named(self._mentions)}: take search_text"
        return f"nothing defines {name}, and no text file here contains {self._wanted[-1]}"

    def _text(self, path: str) -> str | None:
        """The text of a file; None for a binary one."""
        with open_file(self._roots, path) as file:
            if file.size > MAX_BYTES:
                raise TooLarge(f"{path}: has {file.size} bytes; symbols are known of files up to {MAX_BYTES} bytes")
            decoded = decode_text(file.read(MAX_BYTES))
        return None if decoded is None else decoded.text

    def _add(self, path: str, text: str, outline: Outline, *, is_whole: bool) -> None:
        if outline.problem:
            self._problems.setdefault(outline.problem, []).append(path)
        chosen = [one for one in outline.symbols if self._is_wanted(one, is_whole=is_whole)]
        self._show(path, text, chosen)

    def _show(self, path: str, text: str, symbols: Iterable[Symbol]) -> None:
        is_with_text = bool(self._wanted)
        for symbol in symbols:
            if self._skipped < self._skip:
                self._skipped += 1
                continue
            shown = FoundSymbol(
                path=path,
                kind=symbol.kind,
                name=symbol.path,
                line=symbol.line,
                end_line=symbol.end_line,
                signature=symbol.signature,
                text=_definition(text, symbol) if is_with_text else "",
            )
            most = min(self._limit, SHOWN_TEXTS) if is_with_text else self._limit
            if len(self._symbols) == most or not self._take(f"{shown.shown}\n{path}\n"):
                self._more = True
                return
            self._symbols.append(shown)

    def _is_wanted(self, symbol: Symbol, *, is_whole: bool) -> bool:
        """Whether a symbol is looked for by its name, or has a line in the outline: in a tree if it is an outermost."""
        if self._wanted:
            return (*symbol.scope, symbol.name)[-len(self._wanted) :] == self._wanted
        return is_whole or not symbol.scope

    def _take(self, text: str) -> bool:
        """Whether the answer has room for a text; if so, the room is taken. The first is always taken."""
        size = len(text.encode("utf-8", "replace"))
        fits = not self._symbols or self._bytes + size <= content_bytes(self._limits)
        self._bytes += size if fits else 0
        return fits


def _definition(text: str, symbol: Symbol) -> str:
    """The lines of a definition, at most `SHOWN_LINES`."""
    lines = text.split("\n")[symbol.line - 1 : symbol.end_line]
    left_out = len(lines) - SHOWN_LINES
    shown = [cut_line(line) for line in lines[:SHOWN_LINES]]
    if left_out > 0:
        shown.append(f"[{left_out} more lines; read_file with offset={symbol.line + SHOWN_LINES} reads on]")
    return "\n".join(shown)


def _named(paths: list[str]) -> str:
    return and_more(map(escape_controls, paths[:NAMED_FILES]), len(paths))
