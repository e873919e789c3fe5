"""The tool that renames a symbol in a whole project: in all files, or in none."""

import re
import time
from dataclasses import replace
from functools import partial
from typing import Annotated

from anyio import to_thread
from pydantic import Field

from coretools.cancellation import check_cancelled
from coretools.config.limits import Limits
from coretools.errors import Conflict, EditRefused, InvalidArguments, OutsideRoot, Unsupported
from coretools.language_servers.answers import TextChange
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.pool import LanguageServers
from coretools.language_servers.positions import Encoding, Lines
from coretools.operations.call import Call
from coretools.operations.declare import Aliases, Effect, same_policy_as, tool
from coretools.roots.read import read_bytes
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.roots.write import lock_paths
from coretools.roots.write_together import MAX_CHANGES, FileChange
from coretools.tools.code.comments_and_strings import text_changes
from coretools.tools.code.overrides import overridden
from coretools.tools.code.references import SourcePath, SymbolLine, SymbolName, unsearched
from coretools.tools.code.server_questions import Rename, asked_rename
from coretools.tools.code.symbol_search import SymbolSearch
from coretools.tools.code.symbol_target import NAMED_LINES, SymbolTarget
from coretools.tools.code.text_mentions import Mentions, TextMentions, read_lines
from coretools.tools.filesystem.change_checks import ChangeChecks
from coretools.tools.filesystem.edit_diff import SHOWN_LINES
from coretools.tools.filesystem.edited_file import EditedFile, EditingToolSet
from coretools.tools.filesystem.edits import EditedText, Hunk
from coretools.tools.filesystem.known_files import KnownFiles
from coretools.tools.filesystem.results import EditsResult
from coretools.tools.filesystem.tool_set import NOBODY
from coretools.truncation import and_more

_NEW_NAME = re.compile(r"[^\W\d][\w$]*[!?]?|\$[\w$]*")
_LEAST_LINES = 6
"""Lines of a diff that each file of many has at least in the answer."""


class RenamedFiles(EditsResult):
    """Result of `code_rename`."""

    notes: list[str]
    replaced: int

    def text(self) -> str:
        """The number of replacements, and the diffs."""
        count = f"{self.replaced} replacements in {len(self.files)} files"
        notes = "".join(f"[{note}]\n" for note in self.notes)
        return f"{count}\n{EditsResult.text(self)}{notes}"


class RenameTools(EditingToolSet):
    """The tool that renames a symbol."""

    def __init__(
        self,
        roots: Roots,
        limits: Limits,
        servers: LanguageServers,
        mentions: TextMentions,
        *,
        known_files: KnownFiles,
        checks: ChangeChecks,
    ) -> None:
        super().__init__(roots, limits, known_files=known_files, checks=checks)
        self._servers = servers
        self._mentions = mentions
        self._symbols = SymbolSearch(roots, limits, mentions)

    @same_policy_as("edit_file")
    @tool(Effect.CHANGE, title="Rename symbol")
    async def code_rename(
        self,
        symbol: SymbolName,
        new_name: Annotated[str, Field(description="The new name, without its class or module"), Aliases("to")],
        path: SourcePath = ".",
        *,
        line: SymbolLine = None,
        include_text: Annotated[
            bool,
            Field(
                description="Also replace the name where it is a whole word in a comment or string of a source file,"
                " whatever it means there; default false"
            ),
        ] = False,
        dry_run: Annotated[
            bool, Field(description="Return the diffs and change nothing; default false"), Aliases("preview")
        ] = False,
        call: Call = NOBODY,
    ) -> RenamedFiles:
        """Rename a symbol in every file of its project, or in none, by a language server.

        Returns the number of replacements and a diff of each file. Only what means this symbol is renamed: others of
        the same name stay, and strings and comments unless `include_text` is set. Every place is compared with the file
        before anything is written; if one does not have the old name, nothing is changed. No replacement at all is an
        error. Up to 200 files. undo reverts it. A line in brackets names the places that still have the old name as
        text. Without a language server it is refused: take search_text and edit_files. Example: {"symbol":
        "Config.load", "new_name": "read", "path": "src/config.py"}.
        """
        if not _NEW_NAME.fullmatch(new_name):
            raise InvalidArguments(f"new_name: {new_name!r} is no name; give one such as load_all")
        target = await self._symbols.find(path, symbol, line)
        deadline = time.monotonic() + self._limits.search_seconds
        mentions = await self._mentions.of(target, deadline=deadline)
        try:
            rename, answer = await asked_rename(self._servers, target, new_name, mentions)
        except NoAnswer as reason:
            raise Unsupported(
                f"{target.name} was not renamed: {reason}. search_text finds its text, and edit_files changes it"
            ) from reason
        if include_text:
            rename = await to_thread.run_sync(partial(self._with_text, rename, mentions, new_name))
        changes = rename.changes
        if not any(changes.values()):
            raise EditRefused(f"{answer.server.kind.name} names no place to rename {target.name} at; nothing changed")
        if len(changes) > MAX_CHANGES:
            raise EditRefused(f"{target.name} is in {len(changes)} files; at most {MAX_CHANGES} are changed at once")
        renamed = {(path, one.span.line + 1) for path, edits in changes.items() for one in edits}
        if base := await to_thread.run_sync(overridden, self._roots, rename.bases, target.name, renamed):
            raise EditRefused(
                f"{target.name} overrides {base}, which would keep its name; rename it there, and this one follows"
            )
        write = partial(self._write, target, rename, dry_run=dry_run, call=call)
        edited = await to_thread.run_sync(write)
        errors = await to_thread.run_sync(partial(self._errors_of, edited, dry_run=dry_run))
        most_lines = max(_LEAST_LINES, SHOWN_LINES // len(edited))
        return RenamedFiles(
            files=[one.result(dry_run=dry_run, errors=errors, most_lines=most_lines) for one in edited],
            notes=[
                *answer.remarks,
                *unsearched(self._roots, target.name, rename.unsearched),
                *([] if dry_run else await self._left(target, answer.server.kind.name)),
            ],
            replaced=sum(one.edited.replaced for one in edited),
        )

    def _with_text(self, rename: Rename, mentions: Mentions, new_name: str) -> Rename:
        """Add the comments and strings of source files that have the name."""
        changes = {path: set(edits) for path, edits in rename.changes.items()}
        for path in mentions.source_files():
            check_cancelled()
            lines = read_lines(self._roots, path)
            found = lines and set(text_changes(path, lines, mentions.target.name, new_name, rename.encoding))
            if found:
                changes.setdefault(path, set()).update(found)
        return replace(rename, changes=changes)

    async def _left(self, target: SymbolTarget, server: str) -> list[str]:
        """The remark on lines that still have the old name: strings, comments, and what the server can't resolve."""
        deadline = time.monotonic() + self._limits.search_seconds
        top = RootedPath(target.place.root, ".")
        found = await self._mentions.find(target.name, top, output="matches", deadline=deadline)
        lines = [f"{file.path}:{line.number}" for file in found.files for group in file.groups for line in group]
        if not lines:
            return []
        shown = and_more(lines[:NAMED_LINES], len(lines))
        what = f"other symbols, strings, comments, or code that {server} does not resolve"
        return [f"the text {target.name} is still at {shown}: {what}"]

    def _write(self, target: SymbolTarget, rename: Rename, *, dry_run: bool, call: Call) -> list[EditedFile]:
        """Make the replacements, all or none."""
        changes, encoding = rename.changes, rename.encoding
        paths = [self._display_path(path) for path in changes]
        with lock_paths(self._roots, *paths):
            edited = [
                self._renamed(path, target.name, list(one), encoding, call)
                for path, one in zip(paths, changes.values(), strict=True)
            ]
            if not dry_run:
                written = [
                    FileChange(path=one.path, data=one.data(), expected=one.content.version)
                    for one in edited
                    if one.is_changed
                ]
                self._write_changes("code_rename", written, call)
        return edited

    def _display_path(self, path: str) -> str:
        place = self._roots.split(path)
        if place is None:
            raise OutsideRoot(path)
        return self._roots.display_path(place)

    def _renamed(self, path: str, name: str, changes: list[TextChange], encoding: Encoding, call: Call) -> EditedFile:
        """Apply replacements to the text of a file, in memory.

        Raises:
            Conflict: a place does not have the name.
        """
        content = read_bytes(self._roots, path, limit_bytes=self._limits.file_bytes)
        before = decode(content.data, content.display_path)
        lines = Lines.of(before.text)
        parts: list[str] = []
        hunks: list[Hunk] = []
        end = length = 0
        for start, stop, text in sorted(_offsets(change, lines, encoding, name, path) for change in changes):
            if start < end:
                raise Conflict(f"{path}: two places to rename overlap; nothing was changed", path=path)
            parts += [before.text[end:start], text]
            length += start - end
            hunks.append(Hunk(start, stop, length, length + len(text)))
            length += len(text)
            end = stop
        after = "".join([*parts, before.text[end:]])
        return EditedFile(
            path=path,
            content=content,
            before=before,
            edited=EditedText(after, len(hunks), tuple(hunks)),
            foreign_change=self._known_files.change_since(call, content),
            syntax=self._checks.syntax(content.display_path, before.text, after),
        )


def _offsets(change: TextChange, lines: Lines, encoding: Encoding, name: str, path: str) -> tuple[int, int, str]:
    offsets = change.span.offsets(lines, encoding)
    found = "" if offsets is None else lines.text[slice(*offsets)]
    if offsets is None or found != name:
        raise Conflict(
            f"{path}:{change.span.line + 1}: {found[:80]!r} is to be renamed, and not {name}; nothing was changed. If"
            " the file changed just now, try again",
            path=path,
        )
    return (*offsets, change.text)
