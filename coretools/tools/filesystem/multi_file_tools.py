"""The tools that change several files in one call: all, or none."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from coretools.errors import CoreError, TooLarge
from coretools.operations.call import Call
from coretools.operations.declare import Aliases, Effect, same_policy_as, tool
from coretools.roots.copy import copy_path
from coretools.roots.write import lock_paths
from coretools.roots.write_together import FileChange
from coretools.tools.filesystem.edit_diff import SHOWN_LINES
from coretools.tools.filesystem.edited_file import EditedFile, EditingToolSet
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.patch_changes import PatchPlanner
from coretools.tools.filesystem.patches import parse_patch
from coretools.tools.filesystem.results import ChangeResult, EditsResult
from coretools.tools.filesystem.tool_set import FILE_NAMES, NOBODY, AnyPath, ExpectedHash
from coretools.truncation import and_more

MAX_FILES = 100
"""Files of one call."""

_LEAST_LINES = 10
"""Lines of a diff that each file of many has at least in the answer."""

_SHOWN_PATHS = 20
"""Most paths of one kind listed in the answer of a copy."""


class FileEdits(BaseModel):
    """The edits of one file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)

    path: Annotated[
        str, Field(description="Path of the file: relative to the first root, or absolute beneath any root"), FILE_NAMES
    ]
    edits: Annotated[
        list[Edit],
        Field(min_length=1, description="Replacements in this file, applied in order, as those of edit_file"),
    ]
    expected_hash: ExpectedHash = None


class MultiFileTools(EditingToolSet):
    """Tools that change several files together."""

    @same_policy_as("edit_file")
    @tool(Effect.CHANGE, title="Edit files")
    def edit_files(
        self,
        files: Annotated[
            list[FileEdits],
            Field(
                min_length=1, max_length=MAX_FILES, description="The files, 1 to 100, each named once, with their edits"
            ),
        ],
        *,
        dry_run: Annotated[
            bool, Field(description="Return the diffs and change nothing; default false"), Aliases("preview")
        ] = False,
        call: Call = NOBODY,
    ) -> EditsResult:
        """Replace exact pieces of text in several files: in all of them, or in none.

        Returns a diff of each file, and the errors that were not there before, as edit_file does. Every edit works as
        in edit_file, and all are checked before anything is written: if one is refused, nothing is changed, and the
        error names every refusal. If a write fails later, as on a full disk, the files written before are put back. Up
        to 100 files; they must exist. For one file use edit_file, to create files write_file. Example: {"files":
        [{"path": "a.py", "edits": [{"old": "f(x)", "new": "g(x)"}]}, {"path": "b.py", "edits": [{"old": "import f",
        "new": "import g"}]}]}.
        """
        paths = [file.path for file in files]
        with nullcontext() if dry_run else lock_paths(self._roots, *paths):
            edited = self._edit_all(files, call)
            changes = [
                FileChange(path=file.path, data=file.data(), expected=file.content.version)
                for file in edited
                if file.is_changed
            ]
            if changes and not dry_run:
                self._write_changes("edit_files", changes, call)
        most_lines = max(_LEAST_LINES, SHOWN_LINES // len(edited))
        errors = self._errors_of(edited, dry_run=dry_run)
        return EditsResult(
            files=[file.result(dry_run=dry_run, errors=errors, most_lines=most_lines) for file in edited]
        )

    def _edit_all(self, files: Sequence[FileEdits], call: Call) -> list[EditedFile]:
        """Apply all edits in memory.

        Raises:
            CoreError: of the first file that was refused, with what is wrong with the others too.
        """
        edited: list[EditedFile] = []
        errors: list[CoreError] = []
        size = 0
        for file in files:
            try:
                edited.append(self._edit(file.path, file.edits, file.expected_hash, call))
            except CoreError as error:
                errors.append(error)
                continue
            size += len(edited[-1].content.data)
            if size > self._limits.file_bytes:
                raise TooLarge(f"more than {self._limits.file_bytes} bytes in all files; edit fewer in one call")
        if errors:
            messages = "\n".join(map(str, errors))
            count = f"{len(errors)} of {len(files)} files were refused" if len(errors) > 1 else "one file was refused"
            raise type(errors[0])(f"{count}, so none was changed:\n{messages}", **errors[0].facts) from errors[0]
        return edited

    @same_policy_as("edit_file", "write_file", "delete_file", "move_path")
    @tool(Effect.CHANGE, profiles=("all",), title="Apply patch")
    def apply_patch(
        self,
        patch: Annotated[
            str,
            Field(
                description='Text of the patch, with paths relative to the first root: a unified diff ("--- a/FILE", '
                '"+++ b/FILE", "@@ -1,3 +1,4 @@"), also from git, or "*** Begin Patch" with "*** Update '
                'File: FILE", "*** Add File: FILE" or "*** Delete File: FILE", and "*** End Patch"'
            ),
            Aliases("input", "diff", "patch_text", "content"),
        ],
        *,
        dry_run: Annotated[
            bool,
            Field(description="Return what would be done and change nothing; default false"),
            Aliases("preview", "check"),
        ] = False,
        call: Call = NOBODY,
    ) -> ChangeResult:
        """Apply a patch that changes, creates, deletes and moves files: all of it, or nothing.

        Returns one line for each file, with the line of every hunk that was not where the patch says, and the syntax
        errors that were not there before. The context and removed lines of a hunk must be in the file exactly; a hunk
        that is not at the line it names is applied where its lines occur once. Binary content and links are refused,
        changes of modes are named and left out. Up to 100 files. To replace pieces of text without writing a patch, use
        edit_file or edit_files.
        """
        patches = parse_patch(patch)
        if len(patches) > MAX_FILES:
            raise TooLarge(f"patch: {len(patches)} files; at most {MAX_FILES} in one call")
        paths = [path for one in patches for path in (one.path, one.new_path) if path]
        with nullcontext() if dry_run else lock_paths(self._roots, *paths):
            planner = PatchPlanner(self._roots, self._limits, self._checks.syntax)
            files = [planner.plan(one) for one in patches]
            if not dry_run:
                self._write_changes("apply_patch", [change for file in files for change in file.changes], call)
        lines = [file.text(would=dry_run) for file in files]
        notes = [] if dry_run else [self._settings_note(path) for file in files for path in file.created]
        lines += [note.removeprefix("; ") for note in notes if note]
        return ChangeResult(message="\n".join(lines), details={"files": len(files), "dry_run": dry_run})

    @tool(Effect.ADD, profiles=("all",), title="Copy file or directory")
    def copy_path(
        self,
        source: Annotated[
            AnyPath,
            Field(description="Path of what to copy: relative to the first root, or absolute beneath any root"),
            Aliases("source_path", "src", "from", "old_path"),
        ],
        destination: Annotated[
            AnyPath,
            Field(description="Path of the copy, with its name: not a directory to put it in. Nothing may exist there"),
            Aliases("destination_path", "dest", "dst", "to", "new_path"),
        ],
        *,
        create_parents: Annotated[bool, Field(description="Create missing parent directories; default false")] = False,
    ) -> ChangeResult:
        """Copy one file, or a directory with everything in it, to a path where nothing is.

        Returns the number of entries and bytes, and the names of what was left out: files that are hidden from you, and
        devices. Nothing is ever replaced, and nothing remains if the copy fails. Permissions are copied, times are not;
        links in a directory stay links. A directory that contains a git repository is refused: use git_clone, or `cp`
        in run_command. To move, use move_path.
        """
        with self._roots.changes.operation("copy_path", f"{source} to {destination}"):
            copied = copy_path(self._roots, source, destination, parents=create_parents)
        entries = f"{copied.entries} entries, " if copied.entries or copied.hidden or copied.special else ""
        message = f"copied {copied.source} to {copied.destination}, {entries}{copied.size} bytes"
        for paths, what in ((copied.hidden, "hidden, and not copied"), (copied.special, "no files, and not copied")):
            if paths:
                message += f"; {what}: {and_more(paths[:_SHOWN_PATHS], len(paths))}"
        left_out = len(copied.hidden) + len(copied.special)
        details = {"entries": copied.entries, "bytes": copied.size, "left_out": left_out}
        return ChangeResult(message=f"{message}{self._settings_note(destination)}", details=details)
