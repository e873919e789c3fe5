"""What a tool of another server declares: all of it is shown, covered by the approval, and no more than that passed on.

docs/specs/client.md and docs/specs/upstream.md.
"""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coretools.client.approval.decisions import tool_digest
from coretools.client.common.visible_text import escape_invisible
from coretools.client.upstream.chain import META
from tests.app.test_upstreams import configured, server, tools_of, typed
from tests.client.peers import misbehaving

Captured = pytest.CaptureFixture[str]
Place = tuple[str | int, ...]

INVISIBLE = (
    "\u200b\u200d\ufe0f\u202e\u2066\u00ad\u034f\u3164\u061c\ufeff\u2028\u0085\x07\U000e0041\U000e0101\ue000\ufff9"
)
"""Zero-width, bidirectional, tag, private and control characters, separators, selectors, a letter without a glyph."""

DECLARED: dict[str, Any] = {
    "name": "n",
    "title": "t",
    "description": "d",
    "annotations": {"title": "t", "readOnlyHint": True},
    "inputSchema": {
        "type": "object",
        "title": "t",
        "description": "d",
        "$comment": "c",
        "properties": {
            "choice": {"enum": ["e", ["e"], {"description": "d"}], "default": "v", "title": "t", "examples": ["x"]},
            "nested": {"type": "object", "properties": {"deep": {"description": "d", "const": "v", "pattern": "p"}}},
            "list": {"type": "array", "items": {"anyOf": [{"description": "d"}, {"$ref": "#/$defs/shape"}]}},
        },
        "required": ["choice"],
        "$defs": {"shape": {"description": "d", "x-own": {"title": ["v"]}}},
    },
    "outputSchema": {"type": "object", "properties": {"field": {"description": "d", "default": {"v": "v"}}}},
}
"""A tool with text wherever a schema may have some."""


PLAIN = {
    "name": "plain",
    "description": "\u26a0\ufe0f \U0001f469\u200d\U0001f4bb \u05d0",
    "inputSchema": {"type": "object"},
    "_meta": {"own": "METADATA", META: ["METADATA"]},
}
"""A tool whose text is unusual and all seen, with metadata that nobody is shown."""


def places(node: Any, at: Place = ()) -> Iterator[Place]:
    """Every string of a value; a key ends in its own name and `key`."""
    if isinstance(node, str):
        yield at
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from places(inner, (*at, number))
    elif isinstance(node, dict):
        for key, inner in node.items():
            if at and at != ("annotations",):  # the keys of the protocol itself are those of every tool
                yield (*at, key, "key")
            yield from places(inner, (*at, key))


PLACES = [one for one in places(DECLARED) if one[-1] not in ("type", "$ref") and one[-2:] != ("type", "key")]
"""All but those where any other text is no schema."""


def planted(place: Place, text: str) -> dict[str, Any]:
    """The tool with a text behind the string at a place, and a name of its own."""
    declared = copy.deepcopy(DECLARED)
    declared["name"] = f"n{PLACES.index(place)}"
    node: Any = declared
    is_key = place[-1] == "key"
    *way, last = place[:-1] if is_key else place
    for step in way:
        node = node[step]
    if is_key:
        node[f"{last}{text}"] = node.pop(last)
    else:
        node[last] += text
    return declared


def offered(home: Path, tools: list[dict[str, Any]], capsys: Captured) -> tuple[str, dict[str, dict[str, Any]]]:
    """What `coretools mcp approve` shows of tools, and what a client then gets of them."""
    (home / "tools.json").write_text(json.dumps(tools))
    configured(home, {"up": misbehaving(f"declares:{home}/tools.json")})
    assert typed(home, "approve", "up", "--yes") == 0
    with server(home, "serve", "--upstream", "up") as peer:
        found = tools_of(peer)
        assert peer.end() == 0
    return capsys.readouterr().err, found


def strings(node: Any) -> list[str]:
    """Every string of a value, keys too, as JSON writes it."""
    return re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(node, ensure_ascii=False))


def test_an_approval_shows_and_covers_every_string_of_a_declaration(tmp_path: Path, capsys: Captured) -> None:
    """client-15, client-28: texts and names, of arguments and results, at any depth."""
    tools = [planted(place, f"MARK{number}.") for number, place in enumerate(PLACES)]
    shown, found = offered(tmp_path, tools, capsys)
    assert [PLACES[number] for number in range(len(PLACES)) if f"MARK{number}." not in shown] == []
    assert len({tool_digest("up", {**one, "name": "n"}) for one in tools}) == len(PLACES) > 40
    for one in found.values():
        passed_on = {key: value for key, value in one.items() if key not in ("name", "annotations", "_meta")}
        assert [text for text in strings(passed_on) if text not in shown] == []


def test_what_nobody_sees_reaches_no_model(tmp_path: Path, capsys: Captured) -> None:
    """client-28, upstream-13: a text is shown and passed on escaped; a tool with such a name or value is left out."""
    tools = [planted(place, f"MARK{number}.{INVISIBLE}END") for number, place in enumerate(PLACES)]
    shown, found = offered(tmp_path, [PLAIN, *tools], capsys)
    assert "METADATA" not in json.dumps(found["plain"])
    assert found.pop("plain")["description"] == PLAIN["description"]
    assert [name for name, one in found.items() if set(json.dumps(one, ensure_ascii=False)) & set(INVISIBLE)] == []
    assert [text for one in found.values() for text in strings(one["inputSchema"]) if text not in shown] == []
    escaped = INVISIBLE.encode("unicode_escape").decode()
    for number, place in enumerate(PLACES):
        pattern = rf"MARK{number}\.{re.escape(escaped)}END".replace(r"\\", r"\\+")
        is_text = place[-1] in ("title", "description", "$comment")
        assert (place, re.search(pattern, shown) is not None) == (place, is_text)
    assert re.search(r"left out the tool 'n\d+': [^\n]* has characters that are not seen: ", shown)


def test_what_makes_an_emoji_carries_nothing_else() -> None:
    """client-28: one selector behind a symbol and one joiner between two are kept, any other is escaped."""
    texts = ("\u200d", "a\ufe0f", "\u26a0\ufe0f\ufe0f", "\u26a0\u200d", "\u26a0\ufe0f\u200da", "a\u200d\u26a0")
    assert [text for text in texts if "\\u" not in escape_invisible(text)] == []
