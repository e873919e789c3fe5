"""The file tools: read, write, edit, list, move and delete files beneath the roots.

Each tool is a few lines between its arguments and `roots`, the only way to a file. The pure parts are in modules of
their own: selecting lines, applying edits, formatting a diff.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Annotated

from pydantic import Field

from coretools.cancellation import check_cancelled
from coretools.config.limits import Limits
from coretools.errors import Conflict, CoreError, EditRefused, InvalidArguments, NotText, TooLarge, WrongType
from coretools.operations.call import Call, SilentCall, WouldBlock, may_block
from coretools.operations.completion import MAX_VALUES, Completes
from coretools.operations.content import Embedded
from coretools.operations.declare import Aliases, Effect, Rare, nonblocking, resource, same_policy_as, tool
from coretools.roots.delete import delete_directory
from coretools.roots.directory_listing import complete_path, list_directory
from coretools.roots.editor_settings import new_settings_note, settings_at
from coretools.roots.file_version import Version
from coretools.roots.nonblocking_read import read_nonblocking
from coretools.roots.path_text import printable
from coretools.roots.read import FileContent, file_status, kind_at, open_file, read_bytes
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.roots.write import create_directory, delete_file, lock_paths, move, write_bytes
from coretools.tools.answer_budget import content_bytes
from coretools.tools.filesystem.edit_diff import unified_diff
from coretools.tools.filesystem.edits import Edit, apply_edits
from coretools.tools.filesystem.file_text import part_of_file, text_of_file
from coretools.tools.filesystem.known_files import NO_DIFF, KnownFiles
from coretools.tools.filesystem.line_window import LineRange
from coretools.tools.filesystem.results import ChangeResult, EditResult, FileText, ListingResult
from coretools.truncation import and_more

WHOLE_BYTES = 256 * 1024
"""Largest file that is read whole with its lines counted. Of a larger UTF-8 file only the shown part is read."""

LARGE_BYTES = 1024 * 1024
LARGE_READS = 2
"""Larger files read at the same time. Each read holds several times the size of the file, and the interpreter's lock
while it counts lines: one in every worker thread would take gigabytes and block other calls for most of a minute."""

_SHOWN_HIDDEN = 20
"""Most hidden files listed in the result of a deletion."""

_POLL_SECONDS = 0.1
"""Interval of checks whether a call that waits for a slot was cancelled."""

_NUMBER = re.compile(r"[1-9][0-9]{0,15}")

_FILE_NAMES = Aliases(
    "file_path", "filename", "file", "target_file", "absolute_path", ignored=("explanation", "should_read_entire_file")
)
_DIRECTORY_NAMES = Aliases(
    *("directory", "dir", "dir_path", "directory_path", "folder", "target_directory", "relative_workspace_path"),
    ignored=("explanation",),
)

AnyPath = Annotated[str, Completes("paths")]
FilePath = Annotated[AnyPath, Field(description="Path of the file, relative to the root or absolute"), _FILE_NAMES]
DirectoryPath = Annotated[
    AnyPath, Field(description="Path of the directory, relative to the root or absolute"), _DIRECTORY_NAMES
]


_NOBODY: Call = SilentCall()
"""The call of a method that is called directly, without a dispatcher."""


def large_read_slots() -> threading.Semaphore:
    """Slots for reading large files. A server has one such semaphore for all its roles, since it bounds the memory."""
    return threading.BoundedSemaphore(LARGE_READS)


class FilesystemTools:
    """Tools that read and change files beneath the roots."""

    def __init__(
        self,
        roots: Roots,
        limits: Limits,
        *,
        large_reads: threading.Semaphore | None = None,
        known_files: KnownFiles | None = None,
    ) -> None:
        """`large_reads` and `known_files` are those of the server; by default these tools have their own."""
        self._roots = roots
        self._limits = limits
        self._large_reads = large_reads or large_read_slots()
        self._known_files = known_files or KnownFiles()

    @same_policy_as("read_file")
    @resource("coretools://files/{+path}", version="file_version")
    def file(self, path: AnyPath, *, call: Call = _NOBODY) -> str | Embedded:
        """The content of a file."""
        with open_file(self._roots, path, is_served=True) as opened:
            data = opened.read(self._limits.read_bytes)
            display_path = opened.display_path
            self._known_files.record(call, opened.place, data)
        try:
            return decode(data, display_path).text
        except NotText:
            return Embedded(uri="", content=data, mime_type="application/octet-stream")

    def file_version(self, path: str) -> Version:
        """Return a version that differs whenever the file was changed or replaced."""
        status = file_status(self._roots, path)
        if status.kind != "file":
            raise WrongType(f"{path}: a {status.kind}, not a file", path=path)
        return status.version

    def paths(self, typed: str, _: Mapping[str, str]) -> list[str]:
        """Return paths that begin with the typed text."""
        return complete_path(self._roots, typed, most=MAX_VALUES)

    @nonblocking
    @tool(Effect.READ, title="Read file")
    def read_file(
        self,
        path: FilePath,
        *,
        offset: Annotated[
            Annotated[int, Field(ge=1)] | str | None,
            Field(
                description="Number of the first line to return, from 1. To read on in a large file or a long line,"
                ' pass what the previous answer named, such as "812@65536"'
            ),
            Aliases("start_line", "start_line_one_indexed"),
        ] = None,
        limit: Annotated[
            int | None,
            Field(ge=1, description="How many lines to return from `offset`, or from the start"),
            Aliases("max_lines", "num_lines", hints=("end_line", "end_line_one_indexed_inclusive", "view_range")),
        ] = None,
        head: Annotated[int | None, Field(ge=1, description="Return only this many lines from the start")] = None,
        tail: Annotated[int | None, Field(ge=1, description="Return only this many lines from the end")] = None,
        line_numbers: Annotated[bool, Field(description="Put its number and a tab before each line")] = False,
        call: Call = _NOBODY,
    ) -> FileText:
        """Read a text file, whole or in part.

        Returns the text exactly as it is in the file; remarks in brackets are not part of it. If a file does not fit
        into one answer, its start and end come back, and a remark names the `offset` at which to read on. Give `offset`
        with `limit`, or `head`, or `tail`. Binary files are refused. To find where something is, use search_text; to
        see what a directory contains, use list_directory.
        """
        lines = _lines(offset, limit=limit, head=head, tail=tail, line_numbers=line_numbers)
        if not may_block():
            return self._in_memory(path, lines, call)
        with open_file(self._roots, path) as file:
            is_sought = lines.cursor is not None or (file.size > WHOLE_BYTES and not lines.need_counting)
            part = part_of_file(file, lines, self._limits) if is_sought else None
            if part is not None:
                self._known_files.record_part(call, file.place, file.version)
                return part
            with _turn(self._large_reads) if file.size > LARGE_BYTES else nullcontext():
                data = file.read(self._limits.file_bytes)
                self._known_files.record(call, file.place, data)
            return text_of_file(data, file.display_path, lines, self._limits)

    def _in_memory(self, path: str, lines: LineRange, call: Call) -> FileText:
        """Read a small file that is in the page cache.

        Raises:
            WouldBlock: it is not, or reading it is not straightforward.
        """
        content = None if lines.cursor else read_nonblocking(self._roots, path, limit_bytes=self._limits.file_bytes)
        if content is None:
            raise WouldBlock
        self._known_files.record(call, content.place, content.data)
        return text_of_file(content.data, content.display_path, lines, self._limits)

    @tool(Effect.CHANGE, idempotent=True, title="Write file")
    def write_file(
        self,
        path: FilePath,
        content: Annotated[
            str,
            Field(description="The whole new text of the file"),
            Aliases("contents", "text", "file_text", "file_content"),
        ],
        *,
        create_parents: Annotated[bool, Field(description="Create missing parent directories too")] = False,
        overwrite: Annotated[
            bool,
            Field(description="Replace the file even if it changed after you last read it; that change is then lost"),
        ] = False,
        call: Call = _NOBODY,
    ) -> ChangeResult:
        """Create a file, or replace the whole content of one.

        Returns whether it was created or replaced, and its size. An existing file needs no flag, but if somebody else
        or a command changed it after you last read or wrote it, the call is refused and shows the change. To change a
        part of a file, use edit_file.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise InvalidArguments("content: must be valid Unicode text (no lone surrogates)") from None
        if len(data) > self._limits.write_bytes:
            raise TooLarge(f"{path}: content has {len(data)} bytes; the most is {self._limits.write_bytes}")
        with lock_paths(self._roots, path):
            expected = None if overwrite else self._require_known(path, data, call)
            written = write_bytes(self._roots, path, data, parents=create_parents, expected=expected)
            self._known_files.record(call, written.place, data)
        did = "created" if written.created else "replaced"
        message = f"{did} {written.display_path}, {written.size} bytes{_settings_note(self._roots, path)}"
        return ChangeResult(message=message, details={"created": written.created})

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
        call: Call = _NOBODY,
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
                raise EditRefused(_with_foreign_change(str(error), foreign), **error.facts) from error
            changed = edited.text != text.text
            if changed and not dry_run:
                data = text.encode(edited.text)
                write_bytes(self._roots, path, data, expected=content.version)
                self._known_files.record(call, content.place, data)
        diff = unified_diff(text.text, edited.text, edited.hunks, display_path=content.display_path) if changed else ""
        return EditResult(
            path=content.display_path, replaced=edited.replaced, dry_run=dry_run, diff=diff, foreign_change=foreign
        )

    @tool(Effect.READ, title="List directory")
    def list_directory(self, path: DirectoryPath = ".") -> ListingResult:
        """List the entries of one directory.

        Returns one name per line, sorted, hidden ones too: directories end with `/`, links with `@`, files are followed
        by their size in bytes. Entries beyond one answer are counted. It does not descend: to find files in a whole
        tree, use search_files.
        """
        listing = list_directory(self._roots, path, limit=self._limits.list_entries)
        return ListingResult.of(listing, content_bytes(self._limits))

    @tool(Effect.CHANGE, title="Delete file")
    def delete_file(
        self,
        path: Annotated[AnyPath, Field(description="Path of the file or link"), _FILE_NAMES],
        *,
        call: Call = _NOBODY,
    ) -> ChangeResult:
        """Delete one file, or a link itself and not what it leads to.

        Returns the path. There is no trash: git_restore brings back only what git knows. For a directory, use
        delete_directory.
        """
        deleted = delete_file(self._roots, path)
        self._known_files.forget(call, self._roots.place(path))
        return ChangeResult(message=f"deleted {deleted}")

    @same_policy_as("delete_file")
    @tool(Effect.CHANGE, title="Delete directory")
    def delete_directory(
        self,
        path: DirectoryPath,
        *,
        with_repositories: Annotated[
            bool,
            Field(
                description="Delete git repositories too, with all commits that were never pushed. Without it, a"
                " directory that is or contains a repository is refused"
            ),
        ] = False,
        call: Call = _NOBODY,
    ) -> ChangeResult:
        """Delete a directory with everything in it, also files that are hidden from commands.

        Returns the number of entries deleted, and the names of the hidden ones. There is no trash. Links in it are
        deleted, not what they lead to. For one file, use delete_file.
        """
        deleted = delete_directory(self._roots, path, with_repositories=with_repositories)
        self._known_files.forget(call, self._roots.place(path))
        hidden = [printable(name) for name in deleted.hidden]
        message = f"deleted {deleted.display_path}, {deleted.entries} entries in it"
        if hidden:
            message += f"; of them hidden: {and_more(hidden[:_SHOWN_HIDDEN], len(hidden))}"
        return ChangeResult(message=message, details={"entries": deleted.entries, "hidden": len(hidden)})

    @tool(Effect.ADD, idempotent=True, title="Create directory")
    def create_directory(self, path: DirectoryPath) -> ChangeResult:
        """Create a directory, and its parents where they are missing.

        Returns whether it was created or existed already, which is no error. Not needed before write_file,
        which creates missing directories too when asked.
        """
        created = create_directory(self._roots, path)
        message = f"created {path}{_settings_note(self._roots, path)}" if created else f"{path} was there already"
        return ChangeResult(message=message, details={"created": created})

    @tool(Effect.READ, structured=False, title="File exists")
    def file_exists(self, path: Annotated[AnyPath, Field(description="Path to check"), _FILE_NAMES]) -> str:
        """Check whether a path is a file; links are followed.

        Returns `true` or `false`; `false` for a directory too. A path outside the roots is an error. read_file reports
        a missing file by itself: there is no need to check first.
        """
        return "true" if kind_at(self._roots, path) == "file" else "false"

    @tool(Effect.READ, structured=False, title="Directory exists")
    def directory_exists(self, path: Annotated[AnyPath, Field(description="Path to check"), _DIRECTORY_NAMES]) -> str:
        """Check whether a path is a directory; links are followed.

        Returns `true` or `false`; `false` for a file too. A path outside the roots is an error.
        """
        return "true" if kind_at(self._roots, path) == "directory" else "false"

    @tool(Effect.CHANGE, title="Move")
    def move_path(
        self,
        source: Annotated[
            AnyPath, Field(description="What to move"), Aliases("source_path", "src", "from", "old_path")
        ],
        destination: Annotated[
            AnyPath,
            Field(description="Its new path, with the name: not a directory to put it in"),
            Aliases("destination_path", "dest", "dst", "to", "new_path"),
        ],
        *,
        overwrite: Annotated[bool, Field(description="Replace a file at the destination; never a directory")] = False,
        call: Call = _NOBODY,
    ) -> ChangeResult:
        """Move or rename one file or directory.

        Returns both paths. The directory of the destination must exist, and nothing is replaced unless `overwrite` is
        set. A directory that contains a git repository is refused: use `mv` in run_command.
        """
        old, new = move(self._roots, source, destination, overwrite=overwrite)
        self._known_files.rename(call, self._roots.place(source), self._roots.place(destination))
        return ChangeResult(message=f"moved {old} to {new}{_settings_note(self._roots, destination)}")

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
            raise Conflict(_with_foreign_change(message, foreign), path=file.display_path)
        return file.version


def _lines(
    offset: int | str | None, *, limit: int | None, head: int | None, tail: int | None, line_numbers: bool
) -> LineRange:
    """Build the requested range of lines; refuse contradictory arguments."""
    if isinstance(offset, str) and _NUMBER.fullmatch(offset):  # written as text, as on a command line
        offset = int(offset)
    line, cursor = (None, offset) if isinstance(offset, str) else (offset, None)
    return LineRange(offset=line, limit=limit, head=head, tail=tail, cursor=cursor, line_numbers=line_numbers)


@contextmanager
def _turn(turns: threading.Semaphore) -> Iterator[None]:
    """Hold a slot; a cancelled call stops waiting for it."""
    while not turns.acquire(timeout=_POLL_SECONDS):
        check_cancelled()
    try:
        yield
    finally:
        turns.release()


def _with_foreign_change(message: str, foreign: str) -> str:
    return f"{message}\nChanged since you last read or wrote it:\n{foreign}" if foreign else message


def _settings_note(roots: Roots, path: str) -> str:
    """The note to add to the answer of a change that created settings of editors or agents; usually empty."""
    settings = settings_at(roots, path)
    return f"; {new_settings_note(roots, settings)}" if settings else ""
