"""The edits of one file, computed and not written yet: what `edit_file` and `edit_files` have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coretools.errors import EditRefused
from coretools.operations.call import Call
from coretools.roots.read import FileContent, read_bytes
from coretools.roots.root import RootedPath
from coretools.roots.text import DecodedText, decode
from coretools.roots.write_together import FileChange, write_together
from coretools.tools.filesystem.edit_diff import SHOWN_CHARACTERS, SHOWN_LINES, unified_diff
from coretools.tools.filesystem.edits import Edit, EditedText, apply_edits
from coretools.tools.filesystem.new_errors import ChangedText, NewErrors
from coretools.tools.filesystem.results import EditResult
from coretools.tools.filesystem.syntax_errors import SyntaxCheck
from coretools.tools.filesystem.tool_set import FileToolSet, require_hash, with_foreign_change


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedFile:
    """A file as it is, and its text after the edits."""

    path: str
    """As the caller wrote it."""
    content: FileContent
    before: DecodedText
    edited: EditedText
    foreign_change: str
    syntax: SyntaxCheck

    @property
    def is_changed(self) -> bool:
        """Whether the edits change anything."""
        return self.edited.text != self.before.text

    def data(self) -> bytes:
        """The new content of the file.

        Raises:
            NotText: its encoding lacks a character.
        """
        return self.before.encode(self.edited.text)

    def result(
        self, *, dry_run: bool, errors: Mapping[RootedPath, NewErrors], most_lines: int = SHOWN_LINES
    ) -> EditResult:
        """The answer, with at most this many lines of the diff, and the new errors of this file among `errors`."""
        path = self.content.display_path
        new = errors.get(self.content.place, NewErrors())
        return EditResult(
            path=path,
            replaced=self.edited.replaced,
            dry_run=dry_run,
            diff=self._diff(most_lines) if self.is_changed else "",
            foreign_change=self.foreign_change,
            reindented=self.edited.reindented,
            note=self.syntax.note(path, would=dry_run) or new.note(path),
            details={**self.syntax.facts(), **new.facts()},
        )

    def _diff(self, most_lines: int) -> str:
        before, after, path = self.before.text, self.edited.text, self.content.display_path
        return unified_diff(before, after, self.edited.hunks, display_path=path, most=(most_lines, SHOWN_CHARACTERS))


class EditingToolSet(FileToolSet):
    """Tools that apply edits to files."""

    def _edit(self, path: str, edits: Sequence[Edit], expected_hash: str | None, call: Call) -> EditedFile:
        """Apply edits to the text of a file, in memory.

        Raises:
            EditRefused: an edit matches nothing or more than once, or introduces a syntax error that the operator
                does not want. Conflict: the file has another hash. NotText, TooLarge, and what `open_file` raises.
        """
        limit = self._limits.file_bytes
        content = read_bytes(self._roots, path, limit_bytes=limit)
        require_hash(content.data, expected_hash, content.display_path)
        foreign = self._known_files.change_since(call, content)
        before = decode(content.data, content.display_path)
        try:
            edited = apply_edits(before.text, edits, display_path=content.display_path, most_characters=limit)
        except EditRefused as error:
            raise EditRefused(with_foreign_change(str(error), foreign), **error.facts) from error
        syntax = self._checks.syntax(content.display_path, before.text, edited.text)
        return EditedFile(
            path=path, content=content, before=before, edited=edited, foreign_change=foreign, syntax=syntax
        )

    def _errors_of(self, edited: Sequence[EditedFile], *, dry_run: bool) -> Mapping[RootedPath, NewErrors]:
        """Return the errors that written edits introduced; none if syntax errors are reported instead."""
        if dry_run or any(file.syntax.faults for file in edited):
            return {}
        return self._checks.new_errors(
            [ChangedText(file.content.place, file.before.text, file.edited.text) for file in edited if file.is_changed]
        )

    def _write_changes(self, tool: str, changes: Sequence[FileChange], call: Call) -> None:
        """Write all changes or none, and record what the client knows of the files now."""
        with self._roots.changes.operation(tool, ", ".join(change.path for change in changes)):
            written = write_together(self._roots, changes)
        for change, one in zip(changes, written, strict=True):
            if change.data is None:
                self._known_files.forget(call, one.place)
            else:
                self._known_files.record(call, one.place, change.data)
