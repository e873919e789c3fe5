"""Find a name in the comments and strings of a source file, by its syntax."""

from collections.abc import Iterator
from time import thread_time
from typing import TYPE_CHECKING

from coretools.language_servers.answers import Span, TextChange
from coretools.language_servers.positions import Encoding, Lines
from coretools.tools.code.symbol_target import word
from coretools.tools.grammars import grammar_for, load, parse
from coretools.tools.outline import MAX_SECONDS

if TYPE_CHECKING:
    from tree_sitter import Node


def text_changes(path: str, lines: Lines, name: str, new_name: str, encoding: Encoding) -> Iterator[TextChange]:
    """Yield the replacements of a name as a whole word; none for a file that can't be parsed. `path` is absolute."""
    grammar = grammar_for(path, lines.text)
    language = None if grammar is None else load(grammar)
    if language is None:
        return
    source = lines.text.encode("utf-8", "surrogatepass")
    try:
        root = parse(language, source, deadline=thread_time() + MAX_SECONDS)
    except TimeoutError:
        return
    for found in word(name).finditer(lines.text):
        start = len(lines.text[: found.start()].encode("utf-8", "surrogatepass"))
        node = root.descendant_for_byte_range(start, start + len(name.encode()))
        if _is_text(node):
            first, last = lines.position(found.start(), encoding), lines.position(found.end(), encoding)
            yield TextChange(Span(path, *first, *last), new_name)


def _is_text(node: "Node | None") -> bool:
    """Whether a node is in a comment or string, and not in code that a string contains."""
    while node is not None:
        if "interpolation" in node.type or "substitution" in node.type:
            return False
        if "comment" in node.type or "string" in node.type:
            return True
        node = node.parent
    return False
