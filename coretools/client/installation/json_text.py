"""Edit JSON with comments as text: add or remove one member, and leave every other byte as it is. Pure.

Takes what editors write: comments, trailing commas, any indentation and line ends. A file that is not such JSON is
refused with line and column. Every edit is checked: without our member the document is the same as before.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from coretools.errors import WrongType

MAX_DEPTH = 200
"""Of objects and lists in one another. The scanner recurses, and no configuration is deeper."""

DEFAULT_UNIT = "  "
"""Indentation of what we write where the file has no indented member."""

_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR = re.compile(rf"{_STRING.pattern}|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")

_CLOSING = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it is: `start` is its first character, `end` the one behind it."""

    kind: Literal["object", "list", "scalar"]
    start: int
    end: int
    elements: tuple["Element", ...] = ()


@dataclass(frozen=True, slots=True)
class Element:
    """A member of an object, or an item of a list, whose key is empty."""

    key: str
    start: int
    value: Node
    comma: int | None = None
    """Where the comma behind it is."""


def entries(text: str, path: Sequence[str]) -> dict[str, Any]:
    """Return the members of the object at a path; none where it is missing.

    Raises:
        ValueError: the text is not JSON, or a key on the way occurs twice. WrongType: something else is there.
    """
    root = _parse(text)
    node = None if root is None else _reach(root, path)[0]
    if node is None:
        return {}
    _require_single(node, {one.key for one in node.elements}, path)
    return {one.key: _value(text, one.value) for one in node.elements}


def insert(text: str, path: Sequence[str], name: str, value: Any) -> str:
    """Return the text with a member more in the object at a path, which is created where it is missing.

    Raises:
        ValueError, WrongType: as for `entries`; or there is such a member.
    """
    root = _parse(text)
    if root is None:
        return _new_document(text, path, name, value)
    node, missing = _reach_deepest(root, path)
    key, wanted = (missing[0], _nested(missing[1:], name, value)) if missing else (name, value)
    if any(one.key == key for one in node.elements):
        raise ValueError(f"the key {key!r} is there already")
    changed = _added(text, root, node, key=key, value=wanted)
    _require_same(_plain(text, root), _plain(changed, _parsed(changed)), [*path[: len(path) - len(missing)], key])
    return changed


def remove(text: str, path: Sequence[str], name: str) -> str:
    """Return the text without a member of the object at a path; the object stays.

    Raises:
        ValueError, WrongType: as for `entries`; or there is no such member.
    """
    root = _parsed(text)
    node = _reach(root, path)[0]
    at = next((at for at, one in enumerate(node.elements) if one.key == name), None) if node else None
    if node is None or at is None:
        raise ValueError(f"there is no key {name!r}")
    _require_single(node, {name}, path)
    changed = _removed(text, node, at)
    _require_same(_plain(changed, _parsed(changed)), _plain(text, root), [*path, name])
    return changed


def insert_item(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with an item more at the end of the list at a path, which is created where it is missing.

    Raises:
        ValueError, WrongType: as for `entries`.
    """
    root = _parsed(text)
    *above, last = path
    node, missing = _reach_deepest(root, above)
    member = None if missing else next((one for one in node.elements if one.key == last), None)
    if member is None:
        return insert(text, above, last, [value])
    if member.value.kind != "list":
        raise WrongType(f"{'.'.join(path)}: must be a list")
    return _added(text, root, member.value, key="", value=value)


def items(text: str, path: Sequence[str]) -> list[Any]:
    """Return the items of the list at a path; none where there is no list."""
    root = _parse(text)
    *above, last = path
    node = None if root is None else _reach(root, above)[0]
    member = next((one for one in node.elements if one.key == last), None) if node else None
    return _value(text, member.value) if member is not None and member.value.kind == "list" else []


def remove_item(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text without the items of the list at a path that have a value."""
    while value in (found := items(text, path)):
        node = _parsed(text)
        for key in path:
            node = next(one.value for one in node.elements if one.key == key)
        text = _removed(text, node, found.index(value))
    return text


def _parsed(text: str) -> Node:
    root = _parse(text)
    if root is None:
        raise ValueError("the file is empty")
    return root


def _parse(text: str) -> Node | None:
    """Return the object in a text; None if there is nothing but blanks and comments."""
    at = _blank(text, 0)
    if at == len(text):
        return None
    root = _scan(text, at, 0)
    behind = _blank(text, root.end)
    if behind < len(text):
        raise _error(text, behind, "expected the end of the file")
    if root.kind != "object":
        raise WrongType("the file must be an object")
    return root


def _blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _scan(text: str, at: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise _error(text, at, "nested too deeply")
    if text[at : at + 1] in ("{", "["):
        return _scan_container(text, at, depth)
    match = _SCALAR.match(text, at)
    if match is None:
        raise _error(text, at, "expected a value")
    return Node("scalar", at, match.end())


def _scan_container(text: str, start: int, depth: int) -> Node:
    closing = _CLOSING[text[start]]
    elements: list[Element] = []
    at = _blank(text, start + 1)
    while text[at : at + 1] != closing:
        if elements and elements[-1].comma is None:
            raise _error(text, at, f"expected a comma or {closing}")
        element = _scan_element(text, at, depth, is_member=closing == "}")
        at = _blank(text, element.value.end)
        if text[at : at + 1] == ",":
            element = replace(element, comma=at)
            at = _blank(text, at + 1)
        elements.append(element)
    return Node("object" if closing == "}" else "list", start, at + 1, tuple(elements))


def _scan_element(text: str, start: int, depth: int, *, is_member: bool) -> Element:
    if not is_member:
        return Element("", start, _scan(text, start, depth + 1))
    key = _STRING.match(text, start)
    if key is None:
        raise _error(text, start, "expected a key in double quotes")
    colon = _blank(text, key.end())
    if text[colon : colon + 1] != ":":
        raise _error(text, colon, "expected a colon")
    return Element(json.loads(key[0]), start, _scan(text, _blank(text, colon + 1), depth + 1))


def _error(text: str, at: int, wanted: str) -> ValueError:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return ValueError(f"invalid JSON in line {line}, column {column}: {wanted}")


def _reach(root: Node, path: Sequence[str]) -> tuple[Node | None, Sequence[str]]:
    node, missing = _reach_deepest(root, path)
    return (None if missing else node), missing


def _reach_deepest(root: Node, path: Sequence[str]) -> tuple[Node, Sequence[str]]:
    """Return the object furthest along a path, and the rest of the path."""
    node = root
    for at, key in enumerate(path):
        _require_single(node, {key}, path[:at])
        member = next((one for one in node.elements if one.key == key), None)
        if member is None:
            return node, path[at:]
        if member.value.kind != "object":
            raise WrongType(f"{'.'.join(path[: at + 1])}: must be an object")
        node = member.value
    return node, ()


def _require_single(node: Node, keys: set[str], path: Sequence[str]) -> None:
    """Refuse keys that occur twice: clients differ in which one counts."""
    named = [one.key for one in node.elements]
    twice = next((key for key in named if key in keys and named.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"the key {'.'.join([*path, twice])!r} occurs twice; remove one")


def _value(text: str, node: Node) -> Any:
    if node.kind == "object":
        return {one.key: _value(text, one.value) for one in node.elements}
    if node.kind == "list":
        return [_value(text, one.value) for one in node.elements]
    return json.loads(text[node.start : node.end])


def _plain(text: str, node: Node) -> Any:
    """Return a document for comparison: keys in order, also repeated ones, and scalars as they are written."""
    if node.kind == "scalar":
        return text[node.start : node.end]
    return node.kind, [(one.key, _plain(text, one.value)) for one in node.elements]


def _require_same(smaller: Any, larger: Any, path: Sequence[str]) -> None:
    """Check that two documents differ by the member at a path, and by nothing else."""
    kind, members = larger
    if len(path) > 1:
        at = [key for key, _ in members].index(path[0])
        same_beside = members[:at] + members[at + 1 :] == smaller[1][:at] + smaller[1][at + 1 :]
        if kind != smaller[0] or not same_beside:
            raise ValueError("the file can't be edited without changing something else")
        _require_same(smaller[1][at][1], members[at][1], path[1:])
    elif (kind, [member for member in members if member[0] != path[0]]) != smaller:
        raise ValueError("the file can't be edited without changing something else")


def _nested(path: Sequence[str], name: str, value: Any) -> Any:
    for key in reversed([*path, name]):
        value = {key: value}
    return value


def _new_document(text: str, path: Sequence[str], name: str, value: Any) -> str:
    """Return an object behind the comments of a text that has nothing else."""
    end = line_end(text)
    comments = text if text.strip() else ""
    gap = end if comments and not comments.endswith("\n") else ""
    written = json.dumps(_nested(path, name, value), indent=DEFAULT_UNIT, ensure_ascii=False)
    return comments + gap + written.replace("\n", end) + end


def line_end(text: str) -> str:
    """Return how the lines of a text end."""
    return "\r\n" if "\r\n" in text else "\n"


def _added(text: str, root: Node, node: Node, *, key: str, value: Any) -> str:
    """Insert an element at the end of an object or a list, in the style of those before it."""
    end = line_end(text)
    inner = text[node.start + 1 : node.end - 1]
    last = node.elements[-1] if node.elements else None
    is_inline = last is not None and "\n" not in inner
    unit = _unit(text, root)
    indent = _indent_of(text, node.elements[0].start) if last is not None else _indent_of(text, node.start) + unit
    # Behind the last word or comment; a comment stays with the element before it.
    at = node.start + 1 + len(inner.rstrip(" \t\r\n"))
    written = json.dumps(value, indent=None if is_inline else unit, ensure_ascii=False)
    name = f"{json.dumps(key, ensure_ascii=False)}: " if node.kind == "object" else ""
    if is_inline:
        member, before, after = f"{name}{written}", " ", ""
    else:
        member, before = f"{name}{written}".replace("\n", end + indent), end + indent
        after = "" if "\n" in text[at : node.end - 1] else end + _indent_of(text, node.start)
    if last is not None and last.comma is not None:
        return f"{text[:at]}{before}{member},{after}{text[at:]}"
    if last is None:
        return f"{text[:at]}{before}{member}{after}{text[at:]}"
    return f"{text[: last.value.end]},{text[last.value.end : at]}{before}{member}{after}{text[at:]}"


def _removed(text: str, node: Node, at: int) -> str:
    element = node.elements[at]
    before = len(text[: element.start].rstrip(" \t\r\n"))
    if element.comma is not None:
        gap = text[element.value.end : element.comma]
        return text[:before] + gap.strip(" \t\r\n") + text[element.comma + 1 :]
    previous = node.elements[at - 1] if at else None
    rest = text[element.value.end :]
    if previous is not None and previous.comma is not None:
        return text[: previous.comma] + text[previous.comma + 1 : before] + rest
    if text[before - 1 : before] == text[node.start] and not text[element.value.end : node.end - 1].strip():
        return text[:before] + text[node.end - 1 :]
    return text[:before] + rest


def _indent_of(text: str, at: int) -> str:
    """Return the blanks at the start of the line of a position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, root: Node) -> str:
    """Return the indentation of one level: that of the first member of the document on a line of its own."""
    for one in root.elements:
        blanks = _indent_of(text, one.start)
        if blanks and not text[text.rfind("\n", 0, one.start) + 1 : one.start].strip():
            return blanks
    return DEFAULT_UNIT
