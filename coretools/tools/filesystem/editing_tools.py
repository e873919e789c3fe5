"""The tools that edit text in files."""

from contextlib import nullcontext
from typing import Annotated

from pydantic import Field

from coretools.errors import EditRefused
from coretools.operations.call import Call
from coretools.operations.declare import Aliases, Effect, Rare, tool
from coretools.roots.read import read_bytes
from coretools.roots.text import decode
from coretools.roots.write import lock_paths, write_bytes
from coretools.tools.filesystem.edit_diff import unified_diff
from coretools.tools.filesystem.edits import Edit, apply_edits
from coretools.tools.filesystem.results import EditResult
from coretools.tools.filesystem.tool_set import NOBODY, FilePath, FileToolSet, with_foreign_change


class EditingTools(FileToolSet):
    """Tools that replace pieces of text."""

    @tool(Effect.CHANGE, title="Edit file")
    def edit_file(
        self,
        path: FilePath,
        edits: Annotated[
            list[Edit],
            Field(
                min_length=1,
                description="Replacements, applied in order; each one sees the text that the ones before it left",
            ),
            Aliases(item_fields=True, ignored=("instruction",), hints=("content", "diff", "code_edit")),
        ],
        *,
        dry_run: Annotated[
            bool, Field(description="Return the diff and change nothing"), Aliases("preview"), Rare()
        ] = False,
        call: Call = NOBODY,
    ) -> EditResult:
        """Replace exact pieces of text in one file.

        Returns a diff of what changed. Each `old` must occur exactly once, unless `all` is set; otherwise the call is
        refused with the closest text or the lines of all matches, and nothing is written: all edits are applied, or
        none. Changes that others made elsewhere in the file are kept, and shown. To create a file or rewrite all of it,
        use write_file.
        """
        with nullcontext() if dry_run else lock_paths(self._roots, path):
            content = read_bytes(self._roots, path, limit_bytes=self._limits.file_bytes)
            foreign = self._known_files.change_since(call, content)
            text = decode(content.data, content.display_path)
            most = self._limits.file_bytes
            try:
                edited = apply_edits(text.text, edits, display_path=content.display_path, most_characters=most)
            except EditRefused as error:
                raise EditRefused(with_foreign_change(str(error), foreign), **error.facts) from error
            changed = edited.text != text.text
            if changed and not dry_run:
                data = text.encode(edited.text)
                write_bytes(self._roots, path, data, expected=content.version)
                self._known_files.record(call, content.place, data)
        diff = unified_diff(text.text, edited.text, edited.hunks, display_path=content.display_path) if changed else ""
        return EditResult(
            path=content.display_path, replaced=edited.replaced, dry_run=dry_run, diff=diff, foreign_change=foreign
        )
