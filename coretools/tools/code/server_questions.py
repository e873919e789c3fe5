"""Ask a language server about a symbol that a caller named.

What speaks the protocol is imported with the first question: it takes half a second.
"""

from typing import TYPE_CHECKING

from coretools.language_servers.answers import Problem, Relation, Spans, TextChange
from coretools.language_servers.pool import LanguageServers, ServerAnswer
from coretools.language_servers.positions import Encoding
from coretools.roots.root import RootedPath
from coretools.tools.code.symbol_target import SymbolTarget

if TYPE_CHECKING:
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


async def asked_rename(
    servers: LanguageServers, target: SymbolTarget, new_name: str
) -> tuple[dict[str, list[TextChange]], ServerAnswer, Encoding]:
    """Return the replacements by absolute path, the server, and the encoding of their positions.

    Raises:
        NoAnswer: there is no server, or it does not answer.
    """

    async def ask(session: "Session") -> tuple[dict[str, list[TextChange]], Encoding]:
        from coretools.language_servers.queries import SymbolPosition, rename

        position = SymbolPosition(target.place.path, target.lines, target.offset)
        return await rename(session, position, new_name), session.encoding

    (changes, encoding), answer = await servers.answer(target.place, ask)
    return changes, answer, encoding


async def asked_problems(servers: LanguageServers, place: RootedPath, text: str) -> tuple[list[Problem], ServerAnswer]:
    """Return the diagnostics of a file.

    Raises:
        NoAnswer: there is no server, or it does not answer.
    """

    async def ask(session: "Session") -> list[Problem]:
        from coretools.language_servers.queries import problems

        return await problems(session, place.path, text)

    return await servers.answer(place, ask)
