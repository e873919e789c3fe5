"""The docstring of a command: its text for people and models, and what it says of each parameter.

Google, numpy and reST forms are understood. Lists and code stay as they are written; the lines of a paragraph
are joined.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_PARAMETERS = re.compile(
    r"^[ \t]*(?:(?:Args|Arguments|Parameters|Params)[ \t]*:?[ \t]*$|:(?:param|parameter|arg|argument|key|keyword)\b)",
    re.MULTILINE,
)
"""How the description of parameters begins."""


_LAID_OUT = re.compile(r"^(?:\s|[-*+] |\d+[.)] |[>|]|[-=]{3})", re.MULTILINE)
"""A line that must stay one: of a list, a table, a quotation or code."""


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring in its parts."""

    text: str
    """Everything but the description of parameters."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The description of each parameter that has one, in one line."""

    @property
    def summary(self) -> str:
        """The first paragraph, in one line."""
        return " ".join(self.text.partition("\n\n")[0].split())

    @property
    def details(self) -> str:
        """The other paragraphs."""
        return self.text.partition("\n\n")[2].strip()


def docstring_of(function: Callable[..., Any]) -> Docstring:
    """The docstring of a function; empty if it has none, and only text where its form can't be told."""
    text = inspect.getdoc(function) or ""
    if _PARAMETERS.search(text) is None:
        return Docstring(_joined(text))
    # Imported late: 5 ms, and few programs need it.
    from docstring_parser import DocstringParam, ParseError, parse

    try:
        parsed = parse(text)
    except ParseError:
        return Docstring(_joined(text))
    described = {one.arg_name: " ".join((one.description or "").split()) for one in parsed.params}
    others = [one for one in parsed.meta if not isinstance(one, DocstringParam)]
    sections = [f"{_title(one.args)}: {one.description}" for one in others if one.description]
    parts = (parsed.short_description, parsed.long_description, *sections)
    return Docstring(
        _joined("\n\n".join(filter(None, parts))), {name: said for name, said in described.items() if said}
    )


def is_laid_out(paragraph: str) -> bool:
    """Whether the line breaks of a paragraph mean something."""
    return _LAID_OUT.search(paragraph) is not None


def _joined(text: str) -> str:
    """The text with each paragraph in one line: a client may show every line break."""
    if "```" in text:
        return text
    paragraphs = re.split(r"\n{2,}", text)
    return "\n\n".join(one if is_laid_out(one) else " ".join(one.split()) for one in paragraphs)


def _title(words: list[str]) -> str:
    """The heading of a section, such as `Returns`, or `Raises ValueError`."""
    return f"{words[0].capitalize()} {' '.join(words[1:])}".strip()
