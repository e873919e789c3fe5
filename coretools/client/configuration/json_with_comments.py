"""JSON as editors write it: with comments and trailing commas (the `jsonc` of VS Code). Pure.

Comments and trailing commas become blanks, so that positions in error messages stay right.
"""

import json
import re
from typing import Any

_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')


def parse_json(text: str) -> tuple[Any, list[str]]:
    """Parse JSON with comments and trailing commas; return it, and the keys that an object has twice (the last counts).

    Raises:
        ValueError: it is not JSON, or is nested too deeply.
    """
    text = _STRING_OR_COMMENT.sub(_without_comment, text)  # first: a comment may stand behind a trailing comma
    twice: list[str] = []

    def collected(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for name, value in pairs:
            if name in members:
                twice.append(name)
            members[name] = value
        return members

    try:
        text = _STRING_OR_COMMA.sub(lambda match: " " if match[0] == "," else match[0], text)
        return json.loads(text, object_pairs_hook=collected), twice
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _without_comment(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])
