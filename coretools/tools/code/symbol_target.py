"""Where a symbol is that a caller names: by file, name and line, since models count no columns."""

import re
from dataclasses import dataclass

from coretools.errors import InvalidArguments, NotFound
from coretools.language_servers.positions import Lines
from coretools.roots.read import FileContent, read_bytes
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.tools.answer_budget import cut_line
from coretools.tools.outline import Symbol, name_parts, outline_of
from coretools.truncation import and_more

MAX_BYTES = 4 * 1024 * 1024
"""Largest file that is sent to a language server."""

NAMED_LINES = 10
"""Lines that an error names."""


@dataclass(frozen=True, slots=True)
class SymbolTarget:
    """A mention of a symbol in a file."""

    content: FileContent
    lines: Lines
    offset: int
    name: str
    """The last component of what the caller named."""

    @property
    def place(self) -> RootedPath:
        """Where the file is."""
        return self.content.place

    @property
    def owner_offset(self) -> int | None:
        """The name of the class or type that the file defines it in; None for a mention, or if it is in none."""
        outline = outline_of(self.content.display_path, self.lines.text)
        symbol = None if outline is None else outline.enclosing(self.line)
        if outline is None or symbol is None or symbol.name != self.name or not symbol.scope:
            return None
        owners = [one for one in outline.named(symbol.scope) if one.line <= self.line <= one.end_line]
        return _name_in(self.lines, owners[0]) if owners else None

    @property
    def line(self) -> int:
        """The line, from 1."""
        return self.lines.position(self.offset, "utf-32")[0] + 1


def find_target(roots: Roots, path: str, symbol: str, line: int | None) -> SymbolTarget:
    """Find a symbol in a file: on the line, or else where the file defines it.

    Raises:
        NotFound: the line does not have it, or the file does not define it; or defines it more than once.
        InvalidArguments, NotText, TooLarge, and errors of resolving.
    """
    parts = name_parts(symbol)
    if not parts:
        raise InvalidArguments("symbol: name the symbol, such as parse or Class.method")
    content = read_bytes(roots, path, limit_bytes=MAX_BYTES)
    lines = Lines.of(decode(content.data, content.display_path).text)
    if line is None:
        offset = _definition(lines, content.display_path, parts)
    else:
        offset = _on_line(lines, content.display_path, line - 1, parts[-1])
    return SymbolTarget(content, lines, offset, parts[-1])


def word(name: str) -> "re.Pattern[str]":
    """Return the pattern of a name as a whole word."""
    return re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])")


def _on_line(lines: Lines, path: str, line: int, name: str) -> int:
    found = word(name).search(lines.line(line))
    if found is not None:
        return lines.starts[line] + found.start()
    shown = cut_line(lines.line(line).strip(), longest=200)
    raise NotFound(f"{path}:{line + 1}: no {name} on this line: {shown!r}; {_mentions(lines, name)}", path=path)


def _definition(lines: Lines, path: str, parts: tuple[str, ...]) -> int:
    outline = outline_of(path, lines.text)
    found = [] if outline is None else outline.named(parts)
    names = dict.fromkeys(one.path for one in found)
    if not found:
        raise NotFound(f"{path}: defines no {'.'.join(parts)}; {_mentions(lines, parts[-1])}", path=path)
    if len(names) > 1:
        shown = and_more([f"{one.path} (line {one.line})" for one in found[:NAMED_LINES]], len(found))
        raise NotFound(f"{path}: defines several: {shown}; name one, or its line", path=path)
    return _name_in(lines, found[0])


def _name_in(lines: Lines, symbol: Symbol) -> int:
    """The offset of the name in a definition, which may begin with decorators."""
    pattern = word(symbol.name)
    for number in range(symbol.line - 1, symbol.end_line):
        text = lines.line(number)
        if text.strip().startswith(symbol.signature[:40]) and (found := pattern.search(text)):
            return lines.starts[number] + found.start()
    found = pattern.search(lines.text, lines.starts[symbol.line - 1])
    return lines.starts[symbol.line - 1] if found is None else found.start()


def _mentions(lines: Lines, name: str) -> str:
    """Where the text of a name is, for an error."""
    numbers = [lines.position(one.start(), "utf-32")[0] + 1 for one in word(name).finditer(lines.text)]
    numbers = list(dict.fromkeys(numbers))
    if not numbers:
        return "the file does not contain it"
    return f"the text is on line {and_more(map(str, numbers[:NAMED_LINES]), len(numbers))}; give one as `line`"
