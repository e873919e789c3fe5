"""What overrides a method, and what it overrides. A call through one may run the other; servers list them apart."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from coretools.errors import CoreError
from coretools.escapes import escape_controls
from coretools.language_servers.answers import Span
from coretools.roots.read import read_bytes
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.tools.code.symbol_target import MAX_BYTES, SymbolTarget
from coretools.tools.outline import Outline, outline_of
from coretools.truncation import and_more

NAMED_METHODS = 3
"""Overriding methods that a remark names."""

Place = tuple[str, int]
"""An absolute path, and a line from 1."""


@dataclass(frozen=True, slots=True)
class Relatives:
    """What a server knows above and beneath a method."""

    overriding: tuple[Span, ...]
    """Methods that override it, at their names; perhaps with itself."""
    bases: tuple[Span, ...]
    """Classes from which its class inherits, at their names."""


def overridden(roots: Roots, bases: Sequence[Span], name: str, known: Collection[Place]) -> str:
    """Return the method that the nearest class defines by this name, with its place; empty if there is none.

    One at a known place does not count.
    """
    for span in bases:
        outline = _outline(roots, span.path)
        owner = None if outline is None else outline.enclosing(span.line + 1)
        found = [] if outline is None or owner is None else outline.named((owner.name, name))
        if found and (span.path, found[0].line) not in known:
            return f"{found[0].path} at {_display_path(roots, span.path)}:{found[0].line}"
    return ""


def override_remarks(roots: Roots, target: SymbolTarget, relatives: Relatives, known: Collection[Place]) -> list[str]:
    """Return which other methods a reader of the references of one must ask about. It reads their files."""
    path = target.place.path
    outline = outline_of(path, target.lines.text)
    own = None if outline is None else outline.enclosing(target.line)
    overloads = [] if outline is None or own is None else outline.named((*own.scope, own.name))
    places = {(one.path, one.line + 1) for one in relatives.overriding} - set(known)
    places -= {(path, line) for one in overloads for line in range(one.line, one.end_line + 1)}
    nearest = sorted(places, key=lambda place: (place[0] != path, place))
    shown = and_more((_method_at(roots, place, target.name) for place in nearest[:NAMED_METHODS]), len(places))
    base = overridden(roots, relatives.bases, target.name, known)
    return [
        *([f"overridden by {shown}: ask for what uses these too"] if places else []),
        *([f"overrides {base}: ask for what uses that too"] if base else []),
    ]


def _method_at(roots: Roots, place: Place, name: str) -> str:
    """The method at a place, with its class where that is known."""
    path, line = place
    outline = _outline(roots, path)
    symbol = None if outline is None else outline.enclosing(line)
    return f"{name if symbol is None else symbol.path} at {_display_path(roots, path)}:{line}"


def _outline(roots: Roots, path: str) -> Outline | None:
    """The outline of a file by its absolute path; None if it can't be read here."""
    place = roots.split(path)
    if place is None:
        return None
    try:
        content = read_bytes(roots, roots.display_path(place), limit_bytes=MAX_BYTES)
        return outline_of(path, decode(content.data, path).text)
    except CoreError:
        return None


def _display_path(roots: Roots, path: str) -> str:
    place = roots.split(path)
    return escape_controls(path if place is None else roots.display_path(place))
