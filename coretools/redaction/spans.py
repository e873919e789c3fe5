"""Parts of a text that are credentials: finding them by an expression, merging and replacing them. Pure."""

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple


class Span(NamedTuple):
    """A range of a text to redact, and its kind."""

    start: int
    end: int
    kind: str


@cache
def compiled(expression: str) -> re.Pattern[str]:
    """Compile an expression on first use, to keep the start fast."""
    return re.compile(expression, re.ASCII)


def merge_overlapping(spans: list[Span]) -> list[Span]:
    """Sort the spans; overlapping ones become one span of the first one's kind."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def overwritten(text: str, spans: Iterable[Span], character: str) -> str:
    """The text with every character of the spans replaced; the spans are sorted and disjoint, and offsets stay."""
    return replaced(text, spans, lambda span: character * (span.end - span.start))


def replaced(text: str, spans: Iterable[Span], replacement: Callable[[Span], str]) -> str:
    """The text with each span replaced; the spans are sorted and disjoint."""
    pieces, at = [], 0
    for span in spans:
        pieces += [text[at : span.start], replacement(span)]
        at = span.end
    return "".join([*pieces, text[at:]])
