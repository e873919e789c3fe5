"""Text of other servers as a person sees it: what is not seen, or reorders text, is written as an escape.

A model reads characters that no terminal shows. What a person approves is therefore text without them, and so is what
a model gets.
"""

import re
import unicodedata
from typing import Any

from coretools.roots.path_text import IGNORABLE

_SUSPECT = re.compile(r"[^\n\t -~]")

_SELECTOR, _JOINER = "\ufe0f", "\u200d"
"""Parts of an emoji: its coloured form, and the link to the next (UTS 51)."""

JOINERS = "\u200c\u200d\ufe0f"
"""Characters that shape the letters or emoji beside them, which a text in some languages needs."""

_TEXTS = frozenset({"title", "description", "$comment"})
"""Keys of a declaration whose values are only read. All others are names and values that a call repeats."""


def escape_invisible(text: str, *, kept: str = "") -> str:
    """Escape every character that is not seen, except line breaks, tabs, what makes an emoji, and those in `kept`."""

    def shown(match: re.Match[str]) -> str:
        is_shown = match[0] in kept or _is_seen(text, match.start())
        return match[0] if is_shown else match[0].encode("unicode_escape").decode()

    return _SUSPECT.sub(shown, text)


def readable(declared: Any, where: str) -> Any:
    """Return a declaration in which every character is seen: titles and descriptions are escaped.

    Raises:
        ValueError: a name or a value has such a character. Escaped it would be another one in a call.
    """
    if isinstance(declared, str):
        shown = escape_invisible(declared)
        if shown != declared:
            raise ValueError(f"{where} has characters that are not seen: {shown[:80]}")
    if isinstance(declared, list):
        return [readable(one, f"{where}[{number}]") for number, one in enumerate(declared)]
    if not isinstance(declared, dict):
        return declared
    return {
        readable(key, f"a name in {where}"): (
            escape_invisible(value)
            if key in _TEXTS and isinstance(value, str)
            else readable(value, f"{where}.{key}" if where else key)
        )
        for key, value in declared.items()
    }


def _is_seen(text: str, at: int) -> bool:
    character = text[at]
    if character in (_SELECTOR, _JOINER):
        return _is_in_emoji(text, at)
    is_drawn = character.isprintable() or unicodedata.category(character) == "Zs"
    return is_drawn and not IGNORABLE.match(character)


def _is_in_emoji(text: str, at: int) -> bool:
    """Whether one selector follows a symbol, or one joiner stands between two. More of them could carry a message."""
    before = unicodedata.category(text[at - 1]) if at else ""
    if text[at] == _SELECTOR:
        return before in ("So", "Sm")
    after = unicodedata.category(text[at + 1]) if at + 1 < len(text) else ""
    is_symbol = before in ("So", "Sk") or (text[at - 1 : at] == _SELECTOR and _is_seen(text, at - 1))
    return is_symbol and after == "So"
