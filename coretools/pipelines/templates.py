"""`${{ QUERY }}` in the texts of a script: values of earlier results, variables and the environment."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from coretools.errors import TooLarge
from coretools.pipelines.expressions import BadExpression, Expressions

_TEMPLATE = re.compile(r"\$\{\{([^{}]{1,4096})\}\}")

MAX_FILLED = 16 * 1024 * 1024
"""Characters of a text with its templates replaced."""


def queries_in(text: str) -> Sequence[str]:
    """Return the queries of a text."""
    return [query.strip() for query in _TEMPLATE.findall(text)]


async def filled(value: Any, expressions: Expressions) -> Any:
    """Return a value with all templates in its texts replaced.

    A text that is nothing but one template becomes the value itself, of any type. Within a text, text is put in as it
    is, anything else as JSON. What is put in is not searched again.

    Raises:
        BadExpression: a query is wrong, or selects not exactly one value. TooLarge: a text becomes too long.
    """
    if isinstance(value, dict):
        return {key: await filled(inner, expressions) for key, inner in value.items()}
    if isinstance(value, list):
        return [await filled(inner, expressions) for inner in value]
    if not isinstance(value, str) or "${{" not in value:
        return value
    whole = _TEMPLATE.fullmatch(value.strip())
    if whole is not None:
        return await expressions.select(whole[1].strip())
    return await _replaced(value, expressions, as_text)


def as_text(value: Any) -> str:
    """Return text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


async def filled_expression(text: str, expressions: Expressions) -> str:
    """Return an expression with each template as a literal: no value can change the expression around it.

    Raises:
        BadExpression: as `filled`, or the value is a list or an object.
    """
    return await _replaced(text, expressions, _literal) if "${{" in text else text


async def _replaced(text: str, expressions: Expressions, shown: Callable[[Any], str]) -> str:
    parts: list[str] = []
    end = 0
    for template in _TEMPLATE.finditer(text):
        parts += [text[end : template.start()], shown(await expressions.select(template[1].strip()))]
        end = template.end()
        if sum(map(len, parts)) > MAX_FILLED:
            raise TooLarge(f"{text[:80]!r} becomes longer than {MAX_FILLED} characters")
    return "".join([*parts, text[end:]])


def _literal(value: Any) -> str:
    if isinstance(value, list | dict):
        raise BadExpression("a template in an expression must be text, a number, true, false or null")
    return json.dumps(value)
