"""Ask a language server about a symbol that a caller named.

What speaks the protocol is imported with the first question: it takes half a second.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coretools.language_servers.answers import Problem, Relation, Span, Spans, TextChange
from coretools.language_servers.pool import LanguageServers, ServerAnswer
from coretools.language_servers.positions import Encoding
from coretools.roots.root import RootedPath
from coretools.tools.code.overrides import Relatives
from coretools.tools.code.symbol_target import SymbolTarget, word
from coretools.tools.code.text_mentions import Mentions

if TYPE_CHECKING:
    from coretools.language_servers.queries import SymbolPosition
    from coretools.language_servers.session import Session


async def asked_places(
    servers: LanguageServers, target: SymbolTarget, relation: Relation, mentions: Mentions | None = None
) -> tuple[Spans, ServerAnswer]:
    """Return the places that have this relation to a symbol. `mentions` are searched too, whatever their project.

    Raises:
        NoAnswer: there is no server, or it does not answer.
    """

    async def ask(session: "Session") -> Spans:
        from coretools.language_servers.queries import SymbolPosition, open_projects, places

        symbol = SymbolPosition(target.place.path, target.lines, target.offset)
        if mentions is None:
            return await places(session, symbol, relation)
        unsearched = await open_projects(session, symbol, mentions.source_files(), mentions.read)
        return replace(await places(session, symbol, relation), unsearched=unsearched)

    return await servers.answer(target.place, ask)


@dataclass(frozen=True, slots=True)
class Rename:
    """What a server would change."""

    changes: Mapping[str, Collection[TextChange]]
    """By the absolute path of the file."""
    encoding: Encoding
    bases: tuple[Span, ...]
    """The classes from which the class of the symbol inherits."""
    unsearched: tuple[str, ...]
    """Absolute paths of files that contain the name, and that the server did not search."""


async def asked_rename(
    servers: LanguageServers, target: SymbolTarget, new_name: str, mentions: Mentions
) -> tuple[Rename, ServerAnswer]:
    """Return what renames a symbol.

    Raises:
        NoAnswer: there is no server, or it does not answer.
    """

    async def ask(session: "Session") -> Rename:
        from coretools.language_servers.queries import (
            SymbolPosition,
            open_projects,
            places,
            rename,
            supertypes,
        )

        async def mention(span: Span) -> "SymbolPosition | None":
            lines = await mentions.read(span.path)
            at = None if lines is None else lines.offset(span.line, 0, "utf-32")
            found = None if lines is None or at is None else word(target.name).search(lines.text, at)
            if lines is None or found is None or lines.position(found.start(), "utf-32")[0] != span.line:
                return None
            return SymbolPosition(span.path, lines, found.start())

        path, lines = target.place.path, target.lines
        symbol = SymbolPosition(path, lines, target.offset)
        unsearched = await open_projects(session, symbol, mentions.source_files(), mentions.read)
        changes = await rename(session, symbol, new_name, mention)
        if any(changes.values()) and session.found.kind.leaves_out_reexports:
            spans = await places(session, symbol, "references")
            await _add_left_out(changes, spans, target.name, new_name, mentions)
        owner = target.owner_offset
        above = [] if owner is None else await supertypes(session, SymbolPosition(path, lines, owner))
        return Rename(changes, session.encoding, tuple(above), unsearched)

    return await servers.answer(target.place, ask)


async def _add_left_out(
    changes: dict[str, set[TextChange]], spans: Spans, name: str, new_name: str, mentions: Mentions
) -> None:
    """Add the references that have the name and that a rename left out."""
    renamed = {one.span for edits in changes.values() for one in edits}
    for span in set(spans.spans) - renamed:
        lines = await mentions.read(span.path)
        offsets = None if lines is None else span.offsets(lines, spans.encoding)
        if lines is not None and offsets is not None and lines.text[slice(*offsets)] == name:
            changes.setdefault(span.path, set()).add(TextChange(span, new_name))


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
