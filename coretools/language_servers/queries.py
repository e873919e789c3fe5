"""The questions that tools ask a session: places of a symbol, a rename, the diagnostics of a file."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from lsprotocol import types

from coretools.language_servers.answers import MAX_SPANS, Problem, Relation, Severity, Span, Spans, TextChange
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.find import file_uri, path_of_uri
from coretools.language_servers.open_documents import MAX_BESIDE
from coretools.language_servers.positions import Lines
from coretools.language_servers.session import Session

_METHODS = {
    "references": ("textDocument/references", "referencesProvider"),
    "implementations": ("textDocument/implementation", "implementationProvider"),
    "type": ("textDocument/typeDefinition", "typeDefinitionProvider"),
    "definition": ("textDocument/definition", "definitionProvider"),
}

_TSSERVER_CHECKS = ("syntacticDiagnosticsSync", "semanticDiagnosticsSync", "suggestionDiagnosticsSync")
_TSSERVER_SEVERITIES: Mapping[str, Severity] = {"error": "error", "warning": "warning", "suggestion": "hint"}

_SEVERITIES: Mapping[types.DiagnosticSeverity, Severity] = {
    types.DiagnosticSeverity.Error: "error",
    types.DiagnosticSeverity.Warning: "warning",
    types.DiagnosticSeverity.Information: "information",
    types.DiagnosticSeverity.Hint: "hint",
}


@dataclass(frozen=True, slots=True)
class SymbolPosition:
    """A symbol in a text: what a question is about."""

    path: str
    """Absolute."""
    lines: Lines
    offset: int


FindMention = Callable[[Span], Awaitable[SymbolPosition | None]]
"""Finds the symbol at a place of a file; None if the file does not have it there."""

ReadLines = Callable[[str], Awaitable[Lines | None]]
"""Reads a file by its absolute path; None if it can't be read here."""

_TSSERVER = "typescript.tsserverRequest"
"""The command of typescript-language-server that passes a question on to the compiler's own server."""

OPENING_SECONDS = 15.0
"""Time for opening files of other projects; each project takes the compiler seconds."""

MAX_OVERRIDING = 200
"""Overriding methods that are renamed with one."""

MAX_SUPERTYPES = 50
"""Classes above one that are looked at."""


async def places(session: Session, symbol: SymbolPosition, relation: Relation) -> Spans:
    """Return the places that have this relation to a symbol.

    Raises:
        NoAnswer: the server knows no such relation, or finds nothing here.
    """
    if relation == "callers":
        return Spans(tuple(await _callers(session, symbol)), session.encoding)
    method, provider = _METHODS[relation]
    if not session.can(provider):
        raise NoAnswer(f"it knows no {relation}")
    document, position = _position(session, symbol)
    if relation == "references":
        context = types.ReferenceContext(include_declaration=True)
        result = await session.ask(method, types.ReferenceParams(context, document, position))
    else:
        kind: Any = types.METHOD_TO_TYPES[method][2]
        result = await session.ask(method, kind(document, position))
    spans = tuple(_spans(result))
    if not spans:
        raise NoAnswer("it finds nothing at this place")
    return Spans(spans, session.encoding)


async def open_projects(
    session: Session, symbol: SymbolPosition, paths: Sequence[str], read: ReadLines
) -> tuple[str, ...]:
    """Open files that contain the name of a symbol and that the server would not search; return those that are left.

    TypeScript's server searches the projects of open files. The tests of a project are often in none, or in another.

    Raises:
        NoAnswer: the server is gone.
    """
    if not session.found.kind.searches_open_projects:
        return ()
    session.documents.show(symbol.path, symbol.lines.text)
    known = {symbol.path, *await _project_files(session, symbol.path)}
    until, opened = anyio.current_time() + OPENING_SECONDS, 0
    directories, left = set[str](), list[str]()
    for path in paths:
        if path in known:
            continue
        lines = await read(path) if opened < MAX_BESIDE and anyio.current_time() < until else None
        if lines is None:
            left.append(path)
            continue
        session.documents.show_beside(path, lines.text)
        opened += 1
        if (
            directory := os.path.dirname(path)
        ) not in directories:  # each question has the compiler read the project anew
            directories.add(directory)
            known.update(await _project_files(session, path))
    return tuple(left)


async def _project_files(session: Session, path: str) -> list[str]:
    """The files of the project of an open file; none where that is not known."""
    question = ["projectInfo", {"file": path, "needFileNameList": True}]
    try:
        answer = await session.ask("workspace/executeCommand", types.ExecuteCommandParams(_TSSERVER, question))
    except NoAnswer:  # of a version that has no such command
        return []
    body = answer.get("body") if isinstance(answer, dict) else None
    names = body.get("fileNames") if isinstance(body, dict) else None
    return [one for one in names if isinstance(one, str)] if isinstance(names, list) else []


async def rename(
    session: Session, symbol: SymbolPosition, new_name: str, mention: FindMention
) -> dict[str, set[TextChange]]:
    """Return the replacements that rename a symbol and what overrides it, by the absolute path of their file.

    Servers that do not rename overriding methods too get one request for each.

    Raises:
        NoAnswer: the server can't rename it, or wants more than to replace text.
    """
    if not session.can("renameProvider"):
        raise NoAnswer("it can't rename")
    changes = await _rename_at(session, symbol, new_name)
    for span in await overriding(session, symbol):
        covered = {(one.span.path, one.span.line) for edits in changes.values() for one in edits}
        found = None if (span.path, span.line) in covered else await mention(span)
        if found is not None:
            for path, edits in (await _rename_at(session, found, new_name)).items():
                changes.setdefault(path, set()).update(edits)
    return changes


async def supertypes(session: Session, owner: SymbolPosition) -> list[Span]:
    """Return the classes from which a class inherits, at their names.

    Raises:
        NoAnswer: the server does not know them.
    """
    if not session.can("typeHierarchyProvider"):
        return []
    document, position = _position(session, owner)
    waiting = await session.ask(
        "textDocument/prepareTypeHierarchy", types.TypeHierarchyPrepareParams(document, position)
    )
    found: dict[Span, None] = {}
    waiting = list(waiting or ())
    while waiting and len(found) < MAX_SUPERTYPES:
        above = await session.ask("typeHierarchy/supertypes", types.TypeHierarchySupertypesParams(waiting.pop()))
        for item in above or ():
            span = _span(_local(item.uri), item.selection_range)
            if span not in found:
                found[span] = None
                waiting.append(item)
    return list(found)


async def overriding(session: Session, symbol: SymbolPosition) -> list[Span]:
    """Return what implements or overrides a symbol; nothing where that is not known."""
    try:
        return list((await places(session, symbol, "implementations")).spans)[:MAX_OVERRIDING]
    except NoAnswer:
        return []


async def _rename_at(session: Session, symbol: SymbolPosition, new_name: str) -> dict[str, set[TextChange]]:
    document, position = _position(session, symbol)
    edit = await session.ask("textDocument/rename", types.RenameParams(document, position, new_name))
    changes: dict[str, set[TextChange]] = {}
    for uri, edits in _edits(edit):
        path = _local(uri)
        changes.setdefault(path, set()).update(TextChange(_span(path, one.range), one.new_text) for one in edits)
    return changes


async def problems(session: Session, path: str, text: str) -> list[Problem]:
    """Return the diagnostics of a file.

    Raises:
        NoAnswer: none came in time.
    """
    kind = session.found.kind
    are_asked = kind.asks_tsserver or session.can("diagnosticProvider")
    session.documents.show(path, text, anew=not are_asked)
    if kind.check_by_compiler and session.found.has_project:
        await session.compile()
    found = await shown_problems(session, path)
    compiled = session.compiler_diagnostics(file_uri(path))
    return list(dict.fromkeys([*found, *map(_problem, compiled[:MAX_SPANS])]))


async def shown_problems(session: Session, path: str) -> list[Problem]:
    """Return the diagnostics of a file that was shown.

    Raises:
        NoAnswer: none came in time.
    """
    uri = file_uri(path)
    if session.found.kind.asks_tsserver:
        return [one for command in _TSSERVER_CHECKS for one in await _tsserver_problems(session, path, command)]
    if session.can("diagnosticProvider"):
        parameters = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(uri))
        report = await session.ask("textDocument/diagnostic", parameters)
        found = list(getattr(report, "items", []))
    else:
        found = await session.published_diagnostics(uri)
    return [_problem(one) for one in found[:MAX_SPANS]]


async def _tsserver_problems(session: Session, path: str, command: str) -> list[Problem]:
    asked = types.ExecuteCommandParams("typescript.tsserverRequest", [command, {"file": path}])
    answer = await session.ask("workspace/executeCommand", asked)
    try:
        return [
            Problem(
                int(one["start"]["line"]),
                _TSSERVER_SEVERITIES.get(one["category"], "information"),
                str(one["text"]),
                str(one.get("code", "")),
            )
            for one in answer["body"][:MAX_SPANS]
        ]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise NoAnswer("its answer does not fit the protocol") from error


async def _callers(session: Session, symbol: SymbolPosition) -> list[Span]:
    if not session.can("callHierarchyProvider"):
        raise NoAnswer("it knows no callers; ask for references, which name the function of each")
    parameters = types.CallHierarchyPrepareParams(*_position(session, symbol))
    items = await session.ask("textDocument/prepareCallHierarchy", parameters)
    spans: list[Span] = []
    for item in items or []:
        calls = await session.ask("callHierarchy/incomingCalls", types.CallHierarchyIncomingCallsParams(item))
        for call in calls or []:
            path = _local(call.from_.uri)
            spans += [_span(path, one) for one in call.from_ranges]
    if not spans:
        raise NoAnswer("it finds no callers; it may be called by a name that only the running program knows")
    return spans[:MAX_SPANS]


def _position(session: Session, symbol: SymbolPosition) -> tuple[types.TextDocumentIdentifier, types.Position]:
    uri = session.documents.show(symbol.path, symbol.lines.text)
    line, character = symbol.lines.position(symbol.offset, session.encoding)
    return types.TextDocumentIdentifier(uri), types.Position(line, character)


def _spans(result: object) -> Iterable[Span]:
    found = result if isinstance(result, Sequence) else [result]
    for one in found[:MAX_SPANS]:
        if isinstance(one, types.Location):
            yield _span(_local(one.uri), one.range)
        elif isinstance(one, types.LocationLink):
            yield _span(_local(one.target_uri), one.target_selection_range)


def _span(path: str, found: types.Range) -> Span:
    return Span(path, found.start.line, found.start.character, found.end.line, found.end.character)


def _local(uri: str) -> str:
    """The path of a URI; one that is no file's, such as of an archive's inside, is a path beneath no root."""
    return path_of_uri(uri) or f"/{uri}"


def _edits(
    edit: types.WorkspaceEdit | None,
) -> Iterable[tuple[str, Sequence[types.TextEdit | types.AnnotatedTextEdit]]]:
    if edit is None:
        return
    for change in edit.document_changes or ():
        if not isinstance(change, types.TextDocumentEdit):
            raise NoAnswer("it wants to create, move or delete files for this name; rename those yourself")
        edits = [one for one in change.edits if not isinstance(one, types.SnippetTextEdit)]
        yield change.text_document.uri, edits
    if not edit.document_changes:
        yield from (edit.changes or {}).items()


def _problem(found: types.Diagnostic) -> Problem:
    severity = _SEVERITIES[found.severity or types.DiagnosticSeverity.Error]
    code = "" if found.code is None else str(found.code)
    return Problem(found.range.start.line + 1, severity, found.message, code)
