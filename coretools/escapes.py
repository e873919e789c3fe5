"""Text in which no character controls a terminal or forges a line: such characters become Python's escapes."""

import re

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def escape_controls(text: str, *, kept: str = "") -> str:
    """Escape control characters and line breaks; a name without any stays one that a call accepts."""
    if text.isprintable():
        return text
    return _CONTROLS.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def escape_unprintable(text: str, *, kept: str = "") -> str:
    """Escape all that is not printable: also other blanks, and what is not seen or reorders text."""
    return "".join(char if char.isprintable() or char in kept else _escaped(char) for char in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
