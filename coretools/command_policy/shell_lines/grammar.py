"""Parse a bash line with tree-sitter's bash grammar, within limits of size and time.

The grammar recovers from errors and differs from bash in places; `statements` and `words` check what it returns.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING

from coretools.errors import CommandSyntax

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MAX_BYTES = 64 * 1024
"""Longest line. Error recovery takes over 10 s for hostile lines of 1 MB."""

MAX_NODES = 20_000
"""Nodes of the syntax tree. Recorded lines of agents have under 2,000."""

MAX_PIPES = 1_500
"""Pipe characters in a line. When a pipeline never ends, error recovery takes time that grows with their square and
does not look at the clock: 0.06 s for 1,500, 0.4 s for 4,000, 3 s for 12,000."""

MAX_SECONDS = 0.25
"""Time to parse. Recorded lines take under 0.01 s. Error recovery checks the time late, so a line can take 0.5 s."""

_READ_BYTES = 4096
_CONTROL = re.compile("[\x00\x01\x7f]")
"""NUL ends a string; bash marks quoted characters with the other two, and gets confused when they are in its input."""


def encode(line: str) -> bytes:
    """Return the line in UTF-8.

    Raises:
        CommandSyntax: too long, or with characters that no line can have.
    """
    if len(line) > MAX_BYTES:
        raise _too_long(len(line))
    if line.count("|") > MAX_PIPES:
        raise CommandSyntax(f"the line has more than {MAX_PIPES} pipes; put the code or data in a file", 0)
    if match := _CONTROL.search(line):
        raise CommandSyntax(
            f"control character {match[0]!a} at position {match.start()}; a line can't hold it, so put the data"
            " in a file or on stdin",
            match.start(),
        )
    try:
        source = line.encode()
    except UnicodeEncodeError as error:
        raise CommandSyntax(
            f"the character at position {error.start} is no valid Unicode; put binary data in a file or on stdin",
            error.start,
        ) from error
    if len(source) > MAX_BYTES:
        raise _too_long(len(source))
    return source


def parse_tree(source: bytes) -> "Node":
    """Return the root of the syntax tree; it may have errors.

    Raises:
        CommandSyntax: the line takes too long to parse, or has too many parts.
    """
    # Imported here: most calls have no shell line, and tree_sitter.Parser is needed once for each line that is one.
    from tree_sitter import Parser

    deadline = monotonic() + MAX_SECONDS
    is_late: Callable[[int, bool], bool] = lambda _offset, _error: monotonic() > deadline  # noqa: E731
    try:
        # A new parser for each line: one that was stopped would go on with the old text. Only a parse that reads
        # through a callback looks at the progress callback (tree-sitter 0.26.1).
        tree = Parser(_language()).parse(
            lambda at, _point: source[at : at + _READ_BYTES], encoding="utf8", progress_callback=is_late
        )
    except ValueError as error:
        raise CommandSyntax(
            f"the line took more than {MAX_SECONDS} s to parse; put the code in a file, or shorten it", 0
        ) from error
    root = tree.root_node
    if root.descendant_count > MAX_NODES:
        raise CommandSyntax(f"the line has more than {MAX_NODES} parts; put the code in a file, or shorten it", 0)
    return root


@lru_cache(maxsize=1)
def _language() -> "Language":
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _too_long(length: int) -> CommandSyntax:
    return CommandSyntax(
        f"the shell line has {length} bytes; {MAX_BYTES} is the most. Pass the data in a file or on stdin", MAX_BYTES
    )
