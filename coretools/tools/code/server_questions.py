"""Ask a language server about a symbol that a caller named.

What speaks the protocol is imported with the first question: it takes half a second.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coretools.language_servers.answers import Problem, Relation, Span, Spans, TextChange
from coretools.language_servers.pool import LanguageServers, ServerAnswer
from coretools.language_servers.positions import Encoding, Lines
from coretools.roots.root import RootedPath
from coretools.tools.code.overrides import Relatives
from coretools.tools.code.symbol_target import SymbolTarget, word

if TYPE_CHECKING:
    from coretools.language_servers.queries import SymbolPosition
    from coretools.language_servers.session import Session


async def asked_places(
    servers: LanguageServers, target: SymbolTarget, relation: Relation
) -> tuple[Spans, ServerAnswer]:
    """Return the places that have this relation to a symbol.

    Raises:
        NoAnswer: there is no server, or it does not answer.
    """

    async def ask(session: "Session") -> Spans:
        from coretools.language_servers.queries import SymbolPosition, places

        return await places(session, SymbolPosition(target.place.path, target.lines, target.offset), relation)

    return await servers.answer(target.place, ask)


@dataclass(frozen=True, slots=True)
class Rename:
    """What a server would change."""

    changes: Mapping[str, Collection[TextChange]]
    """By the absolute path of the file."""
    encoding: Encoding
    bases: tuple[Span, ...]
    """The classes from which the class of the symbol inherits."""


ReadLines = Callable[[str], Awaitable[Lines | None]]
"""Reads a file by its absolute path; None if it can't be read here."""


async def asked_rename(
    servers: LanguageServers, target: SymbolTarget, new_name: str, read: ReadLines
) -> tuple[Rename, ServerAnswer]:
    """Return what renames a symbol.

    Raises:
        NoAnswer: there is no server, or it does not answer.
    """

    async def ask(session: "Session") -> Rename:
        from coretools.language_servers.queries import SymbolPosition, rename, supertypes

        async def mention(span: Span) -> "SymbolPosition | None":
            lines = await read(span.path)
            at = None if lines is None else lines.offset(span.line, 0, "utf-32")
            found = None if lines is None or at is None else word(target.name).search(lines.text, at)
            if lines is None or found is None or lines.position(found.start(), "utf-32")[0] != span.line:
                return None
            return SymbolPosition(span.path, lines, found.start())

        path, lines = target.place.path, target.lines
        changes = await rename(session, SymbolPosition(path, lines, target.offset), new_name, mention)
        owner = target.owner_offset
        above = [] if owner is None else await supertypes(session, SymbolPosition(path, lines, owner))
        return Rename(changes, session.encoding, tuple(above))

    return await servers.answer(target.place, ask)


async def asked_problems(servers: LanguageServers, place: RootedPath, text: str) -> tuple[list[Problem], ServerAnswer]:
    """Return the diagnostics of a file.

    Raises:
        NoAnswer: there is no server, or it does not answer.
    """

    async def ask(session: "Session") -> list[Problem]:
        from coretools.language_servers.queries import problems

        return await problems(session, place.path, text)

    return await servers.answer(place, ask)


async def asked_relatives(servers: LanguageServers, target: SymbolTarget) -> Relatives:
    """Return what overrides a method, and the classes above its own; nothing for what is no method of a class.

    Raises:
        NoAnswer: there is no server, or it does not answer.
    """
    owner = target.owner_offset
    if owner is None:
        return Relatives((), ())

    async def ask(session: "Session") -> Relatives:
        from coretools.language_servers.queries import SymbolPosition, overriding, supertypes

        path, lines = target.place.path, target.lines
        beneath = await overriding(session, SymbolPosition(path, lines, target.offset))
        return Relatives(tuple(beneath), tuple(await supertypes(session, SymbolPosition(path, lines, owner))))

    return (await servers.answer(target.place, ask))[0]
