"""The tools that write, create, move and delete files and directories."""

from typing import Annotated

from pydantic import Field

from coretools.errors import Conflict, CoreError, InvalidArguments
from coretools.operations.call import Call
from coretools.operations.declare import Aliases, Effect, same_policy_as, tool
from coretools.roots.delete import delete_directory
from coretools.roots.file_version import Version
from coretools.roots.path_text import printable
from coretools.roots.read import FileContent, open_file
from coretools.roots.write import create_directory, delete_file, lock_paths, move, write_bytes
from coretools.tools.filesystem.known_files import NO_DIFF
from coretools.tools.filesystem.new_content import appended, encoded, expected_version, old_text
from coretools.tools.filesystem.new_errors import ChangedText, NewErrors
from coretools.tools.filesystem.results import ChangeResult
from coretools.tools.filesystem.syntax_errors import SyntaxCheck, introduced_faults
from coretools.tools.filesystem.tool_set import (
    FILE_NAMES,
    NOBODY,
    AnyPath,
    DirectoryPath,
    ExpectedHash,
    FilePath,
    FileToolSet,
    with_foreign_change,
)
from coretools.truncation import and_more

Permanent = Annotated[
    bool,
    Field(
        description="Delete for good: undo can't bring it back. For what is too large for the undo journal; "
        "default false"
    ),
]

NewContent = Annotated[
    str,
    Field(
        description="The whole new text of the file; with `append` only the text to add. It is written as it is: end "
        "the last line with a newline"
    ),
    Aliases("contents", "text", "file_text", "file_content"),
]
CreateParents = Annotated[
    bool, Field(description="Create missing parent directories; default false, and then a missing parent is an error")
]
Overwrite = Annotated[
    bool,
    Field(
        description="Replace the file even if it changed after you last read it, so that this change is lost; default "
        "false. Excludes `create_only`"
    ),
]
CreateOnly = Annotated[
    bool,
    Field(
        description="Refuse if anything exists at the path, so that nothing is ever replaced; default false. Excludes "
        "`append` and `overwrite`"
    ),
]
Append = Annotated[
    bool,
    Field(
        description="Add `content` to the end of the file, in its encoding, instead of replacing it; a missing file is "
        "created. Default false. Excludes `create_only`"
    ),
]

_SHOWN_HIDDEN = 20
"""Most hidden files listed in the result of a deletion."""


class ChangingTools(FileToolSet):
    """Tools that change whole files and directories."""

    @tool(Effect.CHANGE, title="Write file")
    def write_file(
        self,
        path: FilePath,
        content: NewContent,
        *,
        create_parents: CreateParents = False,
        overwrite: Overwrite = False,
        create_only: CreateOnly = False,
        append: Append = False,
        expected_hash: ExpectedHash = None,
        call: Call = NOBODY,
    ) -> ChangeResult:
        """Create a text file, replace the whole content of one, or append to one.

        Returns "created", "replaced" or "appended to" with the path and the size in bytes, and the errors that were not
        there before, as edit_file does. An existing file is replaced without a flag; but if a person or a command
        changed it after you last read or wrote it, the call is refused and shows that change (`append` keeps it
        instead). The former content can be brought back by undo. Up to 16 MiB; a missing directory is an error unless
        `create_parents` is set. To change a part of a file use edit_file, which sends less and can't lose the rest.
        """
        data = encoded(content, path, self._limits)
        if create_only and (append or overwrite):
            raise InvalidArguments("create_only: excludes append and overwrite")
        with self._roots.changes.operation("write_file", path), lock_paths(self._roots, path):
            if append:
                new = appended(self._roots, self._limits, path, content, expected_hash=expected_hash)
                data, expected = new.data, new.version
                before, text = new.before, new.text
                syntax = self._checks.syntax(path, before, text)
            else:
                before, text = self._text_to_compare(path), content
                expected = self._replaceable_version(path, data, expected_hash, call, overwrite=overwrite)
                syntax = self._check_written(path, content)
            # Where something was to be appended to nothing, nothing may be there now.
            replaces = not create_only and (not append or expected is not None)
            written = write_bytes(
                self._roots, path, data, parents=create_parents, overwrite=replaces, expected=expected
            )
            self._known_files.record(call, written.place, data)
        did = "created" if written.created else "appended to" if append else "replaced"
        message = f"{did} {written.display_path}, {written.size} bytes{self._settings_note(path)}"
        change = self._change()
        errors = {} if syntax.faults else self._checks.new_errors([ChangedText(written.place, before, text)])
        found = errors.get(written.place, NewErrors())
        note = syntax.note(written.display_path) or found.note(written.display_path)
        details = {"created": written.created, **syntax.facts(), **found.facts(), **change}
        return ChangeResult(message=f"{message}\n{note}" if note else message, details=details)

    @tool(Effect.CHANGE, title="Delete file")
    def delete_file(
        self,
        path: Annotated[
            AnyPath,
            Field(description="Path of the file or link: relative to the first root, or absolute beneath any root"),
            FILE_NAMES,
        ],
        *,
        permanent: Permanent = False,
        call: Call = NOBODY,
    ) -> ChangeResult:
        """Delete one file, or a link itself and not what it leads to.

        Returns the path, and the id with which undo brings the file back. With `permanent` it cannot be undone. A
        missing file is an error. For a directory use delete_directory; to empty a file, write_file.
        """
        with self._roots.changes.operation("delete_file", path):
            deleted = delete_file(self._roots, path, is_permanent=permanent)
        self._known_files.forget(call, self._roots.place(path))
        return ChangeResult(message=f"deleted {deleted}{self._way_back()}", details=self._change())

    @same_policy_as("delete_file")
    @tool(Effect.CHANGE, title="Delete directory")
    def delete_directory(
        self,
        path: DirectoryPath,
        *,
        with_repositories: Annotated[
            bool,
            Field(
                description="Delete git repositories too, with all commits that were never pushed; default false: a "
                "directory with one is refused"
            ),
        ] = False,
        permanent: Permanent = False,
        call: Call = NOBODY,
    ) -> ChangeResult:
        """Delete a directory with everything in it, also files that are hidden from commands.

        Returns the number of entries deleted, the names of hidden ones, and the id with which undo brings all of it
        back. Links in it are deleted, not what they lead to. A directory that is or contains a git repository is
        refused unless `with_repositories` is set; a root is never deleted, and a missing path is an error. With
        `permanent` it cannot be undone. For one file use delete_file.
        """
        with self._roots.changes.operation("delete_directory", path):
            deleted = delete_directory(self._roots, path, with_repositories=with_repositories, is_permanent=permanent)
        self._known_files.forget(call, self._roots.place(path))
        hidden = [printable(name) for name in deleted.hidden]
        message = f"deleted {deleted.display_path}, {deleted.entries} entries in it"
        if hidden:
            message += f"; of them hidden: {and_more(hidden[:_SHOWN_HIDDEN], len(hidden))}"
        details = {"entries": deleted.entries, "hidden": len(hidden), **self._change()}
        return ChangeResult(message=f"{message}{self._way_back()}", details=details)

    @tool(Effect.ADD, idempotent=True, profiles=("all",), title="Create directory")
    def create_directory(self, path: DirectoryPath) -> ChangeResult:
        """Create a directory, with its missing parents.

        Returns whether it was created or was there already, which is no error. Not needed before write_file, which
        creates missing directories with `create_parents`.
        """
        with self._roots.changes.operation("create_directory", path):
            created = create_directory(self._roots, path)
        message = f"created {path}{self._settings_note(path)}" if created else f"{path} was there already"
        return ChangeResult(message=message, details={"created": created})

    @tool(Effect.CHANGE, title="Move file or directory")
    def move_path(
        self,
        source: Annotated[
            AnyPath,
            Field(description="Path of what to move: relative to the first root, or absolute beneath any root"),
            Aliases("source_path", "src", "from", "old_path"),
        ],
        destination: Annotated[
            AnyPath,
            Field(description="Its new path, with the new name: not a directory to put it in"),
            Aliases("destination_path", "dest", "dst", "to", "new_path"),
        ],
        *,
        overwrite: Annotated[
            bool, Field(description="Replace a file at the destination, never a directory; default false")
        ] = False,
        call: Call = NOBODY,
    ) -> ChangeResult:
        """Move or rename one file or directory.

        Returns both paths. A missing source or directory of the destination is an error, and so is a destination that
        exists, unless `overwrite` is set. A directory that contains a git repository is refused: use `mv` in
        run_command for it. undo moves it back. To copy, use `cp` in run_command.
        """
        with self._roots.changes.operation("move_path", f"{source} to {destination}"):
            old, new = move(self._roots, source, destination, overwrite=overwrite)
        self._known_files.rename(call, self._roots.place(source), self._roots.place(destination))
        return ChangeResult(message=f"moved {old} to {new}{self._settings_note(destination)}")

    def _replaceable_version(
        self, path: str, data: bytes, expected_hash: str | None, call: Call, *, overwrite: bool
    ) -> Version | None:
        """The version of the file that may be replaced; None for any.

        Raises:
            Conflict: the file has another hash than expected, or somebody else changed it.
        """
        if expected_hash is not None:
            return expected_version(self._roots, self._limits, path, expected_hash)
        return None if overwrite else self._require_known(path, data, call)

    def _check_written(self, path: str, content: str) -> SyntaxCheck:
        """Check new content; the old one is read only if the new one has errors.

        Raises:
            EditRefused: it introduces some, and the operator wants no such change.
        """
        check = introduced_faults(path, None, content)
        if not check.faults:
            return check
        return self._checks.syntax(path, old_text(self._roots, self._limits, path), content)

    def _text_to_compare(self, path: str) -> str | None:
        """Read a file before it is replaced if a language server will check it; otherwise return None."""
        is_compared = self._checks.asks_about(self._roots.place(path))
        return old_text(self._roots, self._limits, path) if is_compared else None

    def _require_known(self, path: str, data: bytes, call: Call) -> Version | None:
        """Refuse to replace what somebody else changed; return the version that may be replaced, None for any.

        Raises:
            Conflict: the file is known to the client and has another content now, which is not `data` either.
        """
        try:
            opened = open_file(self._roots, path)
        except CoreError:
            return None  # nothing is there, or writing it reports what is wrong
        with opened as file:
            known = self._known_files.find(call, file.place)
            if known is None or known.version == file.version:
                return None if known is None else file.version
            foreign = NO_DIFF
            if file.size <= self._limits.file_bytes:
                content = FileContent(file.read(self._limits.file_bytes), file.display_path, file.place, file.version)
                foreign = "" if content.data == data else self._known_files.change_since(call, content)
        if foreign:
            message = (
                f"{file.display_path}: changed since you last read or wrote it, by somebody else, a command or a git"
                " tool; nothing was written. Read it again and write what keeps that change, use edit_file for a part,"
                " or call again with overwrite=true to replace it anyway"
            )
            raise Conflict(with_foreign_change(message, foreign), path=file.display_path)
        return file.version
