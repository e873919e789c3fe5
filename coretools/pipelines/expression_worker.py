"""Evaluate JSONPath expressions in a process of its own: the limits of the system hold whatever an expression does.

Started as a program by `expressions`; imports nothing of coretools. Each line of standard input is a request, each line
of standard output its answer, both JSON.
"""

import json
import re
import resource
import sys
from collections.abc import Iterator
from typing import Any

from jsonpath import JSONPathEnvironment, JSONPathError
from jsonpath.filter import BaseExpression, FilterExpression, FilterQuery, InfixExpression, PrefixExpression
from jsonpath.selectors import Filter, FilterContext

MEMORY_BYTES = 3 * 1024 * 1024 * 1024
"""Address space: a document of 16 MiB takes up to half of it."""

MAX_SHOWN = 5
"""Queries of an expression whose values are shown."""

MAX_VALUES = 10
"""Values of one query that are shown."""

MAX_CHARACTERS = 500
"""Of the values of one query as they are shown."""

IGNORED = "[ignored]"
"""Replaces what a comparison ignores."""

FAULTS = (JSONPathError, RecursionError, MemoryError, ValueError, TypeError, KeyError, AttributeError, re.error)
"""What an expression can cause in the library."""


class _Environment(JSONPathEnvironment):
    """JSONPath in which `=~` takes a pattern as text too, instead of never matching."""

    def compare(self, left: object, operator: str, right: object) -> bool:
        """Compare two values.

        Raises:
            ValueError: the right side of `=~` is not a pattern. re.error: the pattern is not valid.
        """
        if operator == "=~" and not isinstance(right, re.Pattern):
            if not isinstance(right, str):
                raise ValueError('=~ takes a regular expression, as text or between slashes: =~ "a+" or =~ /a+/')
            right = re.compile(right)
        return super().compare(left, operator, right)


ENVIRONMENT = _Environment()


def _predicate(text: str) -> FilterExpression:
    """Parse an expression as the predicate of a filter.

    Raises:
        ValueError: it is more than one.
    """
    selectors = [one for segment in ENVIRONMENT.compile(f"$[?({text})]").segments for one in segment.selectors]  # type: ignore[union-attr]
    if len(selectors) != 1 or not isinstance(selectors[0], Filter):
        raise ValueError("is no single expression")
    return selectors[0].expression


def _holds(node: BaseExpression, context: FilterContext) -> bool:
    """Whether an expression holds. A query alone holds if it selects a value other than false and null."""
    match node:
        case FilterExpression():
            return _holds(node.expression, context)
        case InfixExpression(operator="&&"):
            return _holds(node.left, context) and _holds(node.right, context)
        case InfixExpression(operator="||"):
            return _holds(node.left, context) or _holds(node.right, context)
        case PrefixExpression():
            return not _holds(node.right, context)
        case FilterQuery():
            return not all(value is None or value is False for value in _values(node, context))
    return bool(node.evaluate(context))


def _values(query: FilterQuery, context: FilterContext) -> Iterator[Any]:
    return (match.obj for match in query.path.finditer(context.root))


def _queries(node: BaseExpression) -> Iterator[FilterQuery]:
    if isinstance(node, FilterQuery):
        yield node
        return
    for child in [node.expression] if isinstance(node, FilterExpression) else node.children():
        yield from _queries(child)


def _check(text: str, document: Any) -> dict[str, Any]:
    expression = _predicate(text)
    context = FilterContext(env=ENVIRONMENT, current=document, root=document)
    if _holds(expression, context):
        return {"holds": True, "actual": []}
    queries = list(_queries(expression))[:MAX_SHOWN]
    return {"holds": False, "actual": [[str(query), _shown(query, context)] for query in queries]}


def _shown(query: FilterQuery, context: FilterContext) -> str:
    """Return the values that a query selects, as a message shows them."""
    values = [value for value, _ in zip(_values(query, context), range(MAX_VALUES + 1), strict=False)]
    if not values:
        return "nothing"
    texts = [json.dumps(value, ensure_ascii=False)[: MAX_CHARACTERS + 1] for value in values[:MAX_VALUES]]
    text = ", ".join(texts)
    return text[:MAX_CHARACTERS] + (" ..." if len(text) > MAX_CHARACTERS or len(values) > MAX_VALUES else "")


def _select(text: str, document: Any) -> list[Any]:
    """Return the first two values: callers want exactly one."""
    matches = ENVIRONMENT.finditer(text, document)
    return [match.obj for match, _ in zip(matches, range(2), strict=False)]


def _masked(paths: list[str], document: Any) -> Any:
    """Replace everything that the paths select."""
    for path in paths:
        for parts in [match.parts for match in ENVIRONMENT.finditer(path, document)]:
            document = _replaced(document, parts)
    return document


def _replaced(document: Any, parts: tuple[int | str, ...]) -> Any:
    if not parts:
        return IGNORED
    holder = document
    for part in parts[:-1]:
        holder = holder[part]
        if holder == IGNORED:  # a path selected something above it
            return document
    holder[parts[-1]] = IGNORED
    return document


class _Store:
    """The document that requests are about, built part by part."""

    def __init__(self) -> None:
        self._root: Any = {}

    def put(self, path: list[str], document: Any) -> None:
        """Set a part; those above it are made."""
        if not path:
            self._root = document
            return
        holder = self._root
        for key in path[:-1]:
            holder = holder.setdefault(key, {})
        holder[path[-1]] = document

    def part(self, path: list[str]) -> Any:
        """Return a part."""
        value = self._root
        for key in path:
            value = value[key]
        return value


def _answer(request: dict[str, Any], store: _Store) -> Any:
    action = request["do"]
    if action == "put":
        store.put(request["path"], request["document"])
        return None
    if action == "compile":
        return bool(_predicate(request["text"]) if request["is_predicate"] else ENVIRONMENT.compile(request["text"]))
    if action == "mask":
        return _masked(request["paths"], request["document"])
    document = store.part(request["path"])
    return _check(request["text"], document) if action == "check" else _select(request["text"], document)


def main(cpu_seconds: int) -> None:
    """Answer requests until the input ends; each may take so much processor time, and up to a second more."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    store = _Store()
    for line in sys.stdin.buffer:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + 1 + cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        try:
            answer = {"value": _answer(json.loads(line), store)}
        except FAULTS as error:
            answer = {"error": (str(error).splitlines() or [type(error).__name__])[0][:MAX_CHARACTERS]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
