"""Edit YAML as text: add or remove one key of a mapping, and leave every other byte as it is. Pure.

ruamel.yaml says where the nodes are; the lines are ours. No constructor runs: nodes are compared by tag and text, so
tags and anchors of a file have no effect here. Each edit is checked: without our key the document is the same.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from coretools.client.installation.json_text import line_end
from coretools.errors import WrongType

INDENT = "  "

_NULL = "tag:yaml.org,2002:null"


def entries(text: str, path: Sequence[str]) -> dict[str, Any]:
    """Return the keys of the mapping at a path; none where it is missing. Scalars are texts, as they are written.

    Raises:
        ValueError: the text is not YAML of one document, or a key occurs twice. WrongType: something else is there.
    """
    node = _reach(_compose(text), path)
    return {} if node is None else {key.value: _value(value) for key, value in node.value}


def insert(text: str, path: Sequence[str], name: str, value: Mapping[str, Any]) -> str:
    """Return the text with a key more in the mapping at a path of one key.

    Raises:
        ValueError, WrongType: as for `entries`; or the mapping is written in braces.
    """
    root = _compose(text)
    (key,) = path
    if root is not None and root.flow_style:
        raise ValueError("the file is written in braces; write its mapping as lines")
    if name in entries(text, path):
        raise ValueError(f"the key {name!r} is there already")
    pair = next((pair for pair in root.value if pair[0].value == key), None) if root is not None else None
    if pair is None:
        changed = _appended(text, [f"{key}:", *(INDENT + line for line in _lines(name, value))])
    else:
        changed = _inserted(text, pair, _reach(root, path), _lines(name, value))
    _require_same(root, _compose(changed), key, name)
    return changed


def remove(text: str, path: Sequence[str], name: str) -> str:
    """Return the text without a key of the mapping at a path of one key.

    Raises:
        ValueError, WrongType: as for `entries`; or it is not written in lines of its own.
    """
    root = _compose(text)
    node = _reach(root, path)
    pair = next((pair for pair in node.value if pair[0].value == name), None) if node is not None else None
    if node is None or pair is None:
        raise ValueError(f"there is no key {name!r}")
    start = text.rfind("\n", 0, pair[0].start_mark.index) + 1
    if node.flow_style or text[start : pair[0].start_mark.index].strip():
        raise ValueError(f"{name!r} is not written in lines of its own; remove it by hand")
    changed = text[:start] + text[_line_after(text, *pair) :]
    if len(node.value) == 1:  # a key without a value is null; goose wants a mapping
        colon = text.index(":", _key_of(root, path[0]).end_mark.index) + 1
        changed = f"{text[:colon]} {{}}{text[colon:start]}{text[_line_after(text, *pair) :]}"
    _require_same(_compose(changed), root, path[0], name)
    return changed


def _appended(text: str, lines: Sequence[str]) -> str:
    end = line_end(text)
    start = text if not text or text.endswith("\n") else text + end
    return start + "".join(line + end for line in lines)


def _inserted(text: str, pair: tuple[Node, Node], node: MappingNode | None, lines: Sequence[str]) -> str:
    """Write lines behind the last line of a mapping, or in place of an empty one."""
    key, value = pair
    end = line_end(text)
    if node is None or not node.value:
        column = " " * key.start_mark.column + INDENT
        colon = text.index(":", key.end_mark.index) + 1
        after = colon if node is None else value.end_mark.index
        written = "".join(end + column + line for line in lines)
        return text[:colon] + written + text[after:]
    if node.flow_style:
        raise ValueError(f"{key.value} is written in braces; write its keys on lines of their own")
    column = " " * node.value[0][0].start_mark.column
    at = _line_after(text, key, value)
    gap = "" if text[:at].endswith("\n") else end
    return text[:at] + gap + "".join(column + line + end for line in lines) + text[at:]


def _line_after(text: str, key: Node, value: Node) -> int:
    """Return where the line behind the last line of a key and its value begins."""
    last = value
    while isinstance(last, MappingNode | SequenceNode) and last.value and not last.flow_style:
        key, last = last.value[-1] if isinstance(last, MappingNode) else (key, last.value[-1])
    # The node of an alias is where its anchor is.
    at: int = last.end_mark.index if last.start_mark.index >= key.end_mark.index else key.end_mark.index
    if text[at - 1 : at] == "\n":  # a text of several lines (`|`) ends there
        return at
    line = text.find("\n", at)
    return len(text) if line < 0 else line + 1


def _lines(name: str, value: Mapping[str, Any]) -> list[str]:
    """Return the lines of a key; texts are written as in JSON, which are YAML too."""
    lines = [f"{_scalar(name)}:"]
    for key, inner in value.items():
        if isinstance(inner, list) and inner:
            lines += [f"{INDENT}{key}:", *(f"{INDENT}- {_scalar(one)}" for one in inner)]
        elif isinstance(inner, dict) and inner:
            lines += [f"{INDENT}{key}:", *(f"{INDENT * 2}{one}: {_scalar(text)}" for one, text in inner.items())]
        else:
            lines.append(f"{INDENT}{key}: {_scalar(inner)}")
    return lines


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and value.isascii() and value.replace("-", "").replace("_", "").isalpha()
    is_word = plain and value.lower() not in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
    # JSON escapes; \u2028 and the like must be escaped in YAML, so that all that is not ASCII is.
    return value if is_word and value[0].isalpha() else json.dumps(value)


def _compose(text: str) -> MappingNode | None:
    try:
        root = YAML(typ="rt", pure=True).compose(text)
    except (YAMLError, RecursionError) as error:
        problem = getattr(error, "problem", None) or "nested too deeply"
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"invalid YAML{where}: {problem}") from error
    if root is None or (isinstance(root, ScalarNode) and root.tag == _NULL):
        return None
    if not isinstance(root, MappingNode):
        raise WrongType("the file must be a mapping")
    _require_single(root)
    return root


def _reach(root: MappingNode | None, path: Sequence[str]) -> MappingNode | None:
    """Return the mapping at a path; None where there is nothing, or null."""
    node: Node | None = root
    for at, key in enumerate(path, 1):
        node = next((value for one, value in node.value if one.value == key), None) if node is not None else None
        if node is None or (isinstance(node, ScalarNode) and node.tag == _NULL):
            return None
        if not isinstance(node, MappingNode):
            raise WrongType(f"{'.'.join(path[:at])}: must be a mapping")
        _require_single(node)
    return node if isinstance(node, MappingNode) else None


def _require_single(node: MappingNode) -> None:
    named = [key.value for key, _ in node.value if isinstance(key, ScalarNode)]
    twice = next((key for key in named if named.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"the key {twice!r} occurs twice; remove one")


def _key_of(root: MappingNode | None, key: str) -> Node:
    found: Node = next(one for one, _ in (root.value if root is not None else ()) if one.value == key)
    return found


def _value(node: Node) -> Any:
    if isinstance(node, MappingNode):
        return {str(key.value): _value(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [_value(one) for one in node.value]
    return node.value


def _plain(node: Node | None) -> Any:
    if node is None or isinstance(node, ScalarNode):
        return (node.tag, node.value) if node is not None else None
    if isinstance(node, MappingNode):
        return node.tag, [(_plain(key), _plain(value)) for key, value in node.value]
    return node.tag, [_plain(one) for one in node.value]


def _require_same(smaller: MappingNode | None, larger: MappingNode | None, key: str, name: str) -> None:
    """Check that two documents differ by a key of the mapping at `key`, and by nothing else."""

    def without(root: MappingNode | None) -> Any:
        pairs = root.value if root is not None else ()
        beside = [(_plain(one), _plain(value)) for one, value in pairs if one.value != key]
        node = _reach(root, [key])
        return beside, [(_plain(one), _plain(value)) for one, value in node.value if one.value != name] if node else []

    if without(smaller) != without(larger):
        raise ValueError("the file can't be edited without changing something else")
