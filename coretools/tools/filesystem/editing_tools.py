"""The tools that edit text in files."""

from contextlib import nullcontext
from typing import Annotated

from pydantic import Field

from coretools.operations.call import Call
from coretools.operations.declare import Aliases, Effect, tool
from coretools.roots.write import lock_paths, write_bytes
from coretools.tools.filesystem.edited_file import EditingToolSet
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.results import EditResult
from coretools.tools.filesystem.tool_set import NOBODY, ExpectedHash, FilePath


class EditingTools(EditingToolSet):
    """Tools that replace pieces of text."""

    @tool(Effect.CHANGE, title="Edit file")
    def edit_file(
        self,
        path: FilePath,
        edits: Annotated[
            list[Edit],
            Field(
                min_length=1,
                description="Replacements, at least one, applied in order: each sees the text that the ones before "
                "it left",
            ),
            Aliases(item_fields=True, ignored=("instruction",), hints=("content", "diff", "code_edit")),
        ],
        *,
        dry_run: Annotated[
            bool,
            Field(description="Return the diff and change nothing; default false"),
            Aliases("preview"),
        ] = False,
        expected_hash: ExpectedHash = None,
        call: Call = NOBODY,
    ) -> EditResult:
        """Replace exact pieces of text in one file, at one place or, with `all`, at every one.

        Returns the number of replacements, a diff, and the errors that were not there before: of syntax, and, if a
        language server runs already (code_check starts one), up to five that it finds in the file. Each `old` must
        occur exactly once in the file, unless `all` is set or `line` chooses one match; otherwise the answer is an
        error with the closest text, or with the lines of all matches. All edits are applied, or none. Where lines of
        `old` differ from the file in their indentation alone, they match, `new` is indented like the file, and the
        answer reports it. Other people's changes elsewhere in the file are kept and shown. undo reverts the edit. For
        several files that must change together use edit_files; to create a file or rewrite all of it, write_file.
        Example: {"path": "a.py", "edits": [{"old": "def load(", "new": "def load_all("}]}.
        """
        with (
            self._roots.changes.operation("edit_file", path),
            nullcontext() if dry_run else lock_paths(self._roots, path),
        ):
            file = self._edit(path, edits, expected_hash, call)
            if file.is_changed and not dry_run:
                data = file.data()
                write_bytes(self._roots, path, data, expected=file.content.version)
                self._known_files.record(call, file.content.place, data)
        return file.result(dry_run=dry_run, errors=self._errors_of([file], dry_run=dry_run))
