"""The tool that finds who uses a symbol: by a language server, or else by text, marked as such."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from anyio import CapacityLimiter, to_thread
from pydantic import Field

from coretools.config.limits import Limits
from coretools.language_servers.answers import Relation, Span, Spans
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.kinds import kinds_for
from coretools.language_servers.pool import LanguageServers, ServerAnswer
from coretools.operations.declare import Aliases, Effect, tool
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.code.overrides import override_remarks
from coretools.tools.code.reference_list import FoundReferences, ReferenceReader
from coretools.tools.code.server_questions import asked_places, asked_relatives
from coretools.tools.code.symbol_search import SymbolSearch
from coretools.tools.code.symbol_target import SymbolTarget
from coretools.tools.code.text_mentions import Mentions, TextMentions
from coretools.truncation import and_more

NAMED_FILES = 5
"""Files that a remark names."""

SourcePath = Annotated[
    str,
    Field(
        description="Source file that defines or mentions the symbol, or a directory in which one file defines it;"
        " default the first root"
    ),
    Aliases("relative_path", "file_path", "file", "directory"),
]
SymbolName = Annotated[
    str,
    Field(description="The symbol: `parse`, or `Class.method` for one in a class, module or type"),
    Aliases("name", "symbol_name", "name_path", "query"),
]
SymbolLine = Annotated[
    int | None,
    Field(ge=1, description="Line of `path` that mentions the symbol; default where the file defines it"),
    Aliases("line_number"),
]


def unsearched(roots: Roots, name: str, paths: Sequence[str]) -> list[str]:
    """The remark on files that contain a name and were not searched; none if there are none."""
    if not paths:
        return []
    shown = and_more(
        [roots.display_path(place) for path in paths[:NAMED_FILES] if (place := roots.split(path))], len(paths)
    )
    return [f"not searched, since they are of other projects: {shown}; they contain the text {name}"]


class ReferenceTools:
    """The tool that follows a symbol through a project."""

    def __init__(self, roots: Roots, limits: Limits, servers: LanguageServers, mentions: TextMentions) -> None:
        self._roots = roots
        self._limits = limits
        self._servers = servers
        self._mentions = mentions
        self._symbols = SymbolSearch(roots, limits, mentions)
        self._limiter = CapacityLimiter(limits.threads)

    @tool(Effect.READ, title="Code references")
    async def code_references(
        self,
        symbol: SymbolName,
        path: SourcePath = ".",
        *,
        line: SymbolLine = None,
        relation: Annotated[
            Literal["references", "callers", "implementations", "type"],
            Field(
                description="`references` (default): every mention; `callers`: only calls; `implementations`: what"
                " implements or overrides it; `type`: where its type is defined"
            ),
            Aliases("kind"),
        ] = "references",
        limit: Annotated[int, Field(ge=1, le=1_000, description="Most lines; default 200, at most 1,000")] = 200,
        skip: Annotated[
            int,
            Field(
                ge=0,
                le=1_000_000_000,
                description="Lines to leave out at the start; default 0, at most 1000000000. A cut answer names the"
                " value that goes on",
            ),
        ] = 0,
    ) -> FoundReferences:
        """Find where a symbol is used in the whole project: who calls it, what implements it, where its type is.

        Returns each path, and beneath it `12 in Class.method: text` for each line, with the function that it is in, or
        `12 definition of Class.method: text`. A language server answers, which knows what a name means: others of the
        same name are left out. If there is none, or it is still indexing or fails, the first line in brackets says so,
        and the lines are matches of the text. The last lines in brackets say what is left out, such as methods that
        override this one. To see the definition itself take code_symbols with `name`; to rename, code_rename. Example:
        {"symbol": "Config.load", "path": "src/config.py"}.
        """
        target = await self._symbols.find(path, symbol, line)
        deadline = time.monotonic() + self._limits.search_seconds
        mentions = None if relation == "type" else await self._mentions.of(target, deadline=deadline)
        try:
            spans, answer = await asked_places(self._servers, target, relation, mentions)
        except NoAnswer as reason:
            return await self._by_text(target, relation, reason, page=(skip, limit))
        reader = ReferenceReader(self._roots, self._limits, target.name)
        read = partial(reader.read, spans, skip=skip, limit=limit)
        files, total = await to_thread.run_sync(read, limiter=self._limiter)
        notes = [*reader.notes, *answer.remarks, *self._scope(answer)]
        if relation in ("references", "callers"):
            notes += await self._overrides(target, spans)
        if mentions is not None:
            notes += self._others(mentions, spans, is_every_use=relation == "references")
        return FoundReferences(files=files, total=total, source=answer.server.kind.name, notes=notes)

    def _scope(self, answer: ServerAnswer) -> list[str]:
        """The remark that not all of the root was searched."""
        project = answer.server.project
        if project.relative == ".":
            return []
        return [f"beneath {self._roots.display_path(project)}, the project of this file"]

    async def _overrides(self, target: SymbolTarget, spans: Spans) -> list[str]:
        """The remarks on methods that a call may run in place of this one, or the other way round."""
        try:
            relatives = await asked_relatives(self._servers, target)
        except NoAnswer:
            return []
        known = {(span.path, span.line + 1) for span in spans.spans}
        return await to_thread.run_sync(override_remarks, self._roots, target, relatives, known, limiter=self._limiter)

    def _others(self, mentions: Mentions, spans: Spans, *, is_every_use: bool) -> list[str]:
        """The remarks on files that contain the text and that the server does not name."""
        notes = unsearched(self._roots, mentions.target.name, spans.unsearched)
        known = {
            self._roots.display_path(place)
            for path in (*(span.path for span in spans.spans), *spans.unsearched)
            if (place := self._roots.split(path))
        }
        others = sorted((path for path in mentions.files if path not in known), key=lambda path: not kinds_for(path))
        if others and is_every_use:
            shown = and_more(others[:NAMED_FILES], len(others))
            notes.append(f"the text {mentions.target.name} is also in files where it does not mean this one: {shown}")
        return notes

    async def _by_text(
        self, target: SymbolTarget, relation: Relation, reason: NoAnswer, *, page: tuple[int, int]
    ) -> FoundReferences:
        """Answer with the lines that contain the name."""
        skip, limit = page
        deadline = time.monotonic() + self._limits.search_seconds  # from now: the server may have taken as long
        top = RootedPath(target.place.root, ".")
        found = await self._mentions.find(target.name, top, output="matches", deadline=deadline)
        source = [file for file in found.files if kinds_for(file.path)]
        spans = [
            Span(self._roots.place(file.path).path, shown.number - 1, 0, shown.number - 1, 0)
            for file in source or found.files
            for group in file.groups
            for shown in group
        ]
        reader = ReferenceReader(self._roots, self._limits, target.name)
        read = partial(reader.read, Spans(tuple(spans), "utf-32"), skip=skip, limit=limit)
        files, total = await to_thread.run_sync(read, limiter=self._limiter)
        notes = [*reader.notes, *(["there are more, which were not searched"] if found.more or found.timed_out else [])]
        if source and len(source) < len(found.files):
            notes.append(f"the text is also in {len(found.files) - len(source)} files that are no source files")
        warning = f"not known: {relation} of {target.name}: {reason}. These are the lines that contain its text"
        return FoundReferences(files=files, total=total, source="text", warning=warning, notes=notes)
