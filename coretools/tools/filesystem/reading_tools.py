"""The tools that read files and directories."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated

from pydantic import Field

from coretools.cancellation import check_cancelled
from coretools.errors import InvalidArguments, NotText, WrongType
from coretools.operations.call import Call, WouldBlock, may_block
from coretools.operations.completion import MAX_VALUES
from coretools.operations.content import Embedded
from coretools.operations.declare import Aliases, Effect, nonblocking, resource, same_policy_as, tool
from coretools.roots.directory_listing import complete_path, list_directory
from coretools.roots.file_version import Version
from coretools.roots.nonblocking_read import read_nonblocking
from coretools.roots.read import OpenFile, file_status, kind_at, open_file
from coretools.roots.text import decode
from coretools.tools.answer_budget import content_bytes
from coretools.tools.filesystem.binary_file import BinaryFile, binary_type, described
from coretools.tools.filesystem.directory_tree import DirectoryTree, TreeReader
from coretools.tools.filesystem.documents import (
    NOTEBOOK_NAME,
    PDF_START,
    PICTURES,
    Documents,
    NotebookFile,
    PdfFile,
    PictureFile,
)
from coretools.tools.filesystem.file_text import FileText, TextBudget, part_of_file, text_of_file
from coretools.tools.filesystem.files_reader import FilesReader
from coretools.tools.filesystem.line_window import LineRange
from coretools.tools.filesystem.results import ListingResult
from coretools.tools.filesystem.several_files import MAX_FILES, FileTexts
from coretools.tools.filesystem.tool_set import (
    DIRECTORY_NAMES,
    FILE_NAMES,
    NOBODY,
    AnyPath,
    DirectoryPath,
    FilePath,
    FileToolSet,
)
from coretools.tools.outline import MAX_BYTES as OUTLINED_BYTES
from coretools.tools.outline import require_lines_of

WHOLE_BYTES = 256 * 1024
"""Largest file that is read whole with its lines counted. Of a larger UTF-8 file only the shown part is read."""

LARGE_BYTES = 1024 * 1024

_POLL_SECONDS = 0.1
"""Interval of checks whether a call that waits for a slot was cancelled."""

_NUMBER = re.compile(r"[1-9][0-9]{0,15}")

FirstLine = Annotated[
    str | Annotated[int, Field(ge=1)] | None,
    Field(
        description="First line to return: its number, from 1 (default 1). To read on in a very long line, "
        'the position that an answer named, such as "812@65536". Excludes `head`, `tail` and `symbol`'
    ),
    Aliases("start_line", "start_line_one_indexed"),
]
LineCount = Annotated[
    int | None,
    Field(
        ge=1,
        description="Most lines to return, from `offset` on; by default as many as fit. Excludes `head`, `tail` and"
        " `symbol`",
    ),
    Aliases("max_lines", "num_lines", hints=("end_line", "end_line_one_indexed_inclusive", "view_range")),
]
HeadLines = Annotated[
    int | None,
    Field(ge=1, description="Return only the first lines, this many. Excludes `offset`, `limit`, `tail` and `symbol`"),
]
TailLines = Annotated[
    int | None,
    Field(ge=1, description="Return only the last lines, this many. Excludes `offset`, `limit`, `head` and `symbol`"),
]
LineNumbers = Annotated[
    bool,
    Field(
        description="Put the number of each line and a tab before it; default false. Leave them out of `old` "
        "when you edit"
    ),
]
Pages = Annotated[
    str | None,
    Field(
        description='PDF only: the pages to return, such as "3", "2-5" or "7-"; by default from the first '
        "on, as many as fit"
    ),
]
AsPictures = Annotated[
    bool,
    Field(
        description="PDF only: return up to 6 pages as pictures instead of their text, for drawings and "
        "scans; default false"
    ),
]
SymbolInFile = Annotated[
    str,
    Field(
        description="Return only the definition of this symbol: `parse`, or `Class.method`. Excludes `offset`, `limit`,"
        " `head` and `tail`"
    ),
    Aliases("name_path", "symbol_name"),
]
Raw = Annotated[
    bool,
    Field(
        description="Do not interpret the file: of a notebook return its JSON, describe a picture by type, "
        "size and hash; default false"
    ),
]


class ReadingTools(FileToolSet):
    """Tools that change nothing."""

    @same_policy_as("read_file")
    @resource("coretools://files/{+path}", version="file_version")
    def file(self, path: AnyPath, *, call: Call = NOBODY) -> str | Embedded:
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
        offset: FirstLine = None,
        limit: LineCount = None,
        head: HeadLines = None,
        tail: TailLines = None,
        symbol: SymbolInFile = "",
        line_numbers: LineNumbers = False,
        pages: Pages = None,
        as_pictures: AsPictures = False,
        raw: Raw = False,
        call: Call = NOBODY,
    ) -> FileText | PictureFile | PdfFile | NotebookFile | BinaryFile:
        """Read one file: a text whole or in part, a picture, a notebook or a PDF.

        Returns the text exactly as it is in the file. Remarks of the server stand in brackets on lines of their own,
        such as [lines 2 to 3 of 6; offset=4 reads on]; they are not part of the file. A text over 20,000 bytes comes
        back as its start and its end, and a remark names the `offset` at which to read on. For a part, give `offset`
        with `limit`, or `head`, or `tail`, or `symbol`; these exclude each other. A picture (PNG, JPEG, WebP, GIF, BMP,
        TIFF, AVIF) comes back as an image of at most 1,568 pixels a side, a PDF as the text of its pages, a notebook
        (.ipynb) as its cells with shortened outputs, any other binary file as type, size and SHA-256. A missing path is
        an error that names a similar one, and a directory an error that says so. For several files use read_files; to
        find where something is, search_text; to see what a directory contains, directory_tree. Example: {"path":
        "src/app.py", "offset": 200, "limit": 60}.
        """
        lines = _lines(offset, limit=limit, head=head, tail=tail, line_numbers=line_numbers)
        if not may_block():
            if symbol or pages is not None or as_pictures or (path.endswith(NOTEBOOK_NAME) and not raw):
                raise WouldBlock
            return self._in_memory(path, lines, call, raw=raw)
        lines = self._lines_of(path, symbol, lines)
        with open_file(self._roots, path) as file:
            interpreted = None if raw else self._interpreted(file, lines, pages, as_pictures=as_pictures)
            if interpreted is not None:
                self._known_files.record_part(call, file.place, file.version)
                return interpreted
            if pages is not None or as_pictures:
                raise InvalidArguments(f"{file.display_path}: read as no PDF; pages and as_pictures are for PDF alone")
            try:
                return self._text(file, lines, TextBudget.of(self._limits), call)
            except NotText as error:
                if not (kind := binary_type(error)):
                    raise
            if kind in PICTURES and not raw:
                with _turn(self._large_reads):
                    return self._documents.picture(file, kind)
            return described(file, kind)

    def _lines_of(self, path: str, symbol: str, lines: LineRange) -> LineRange:
        """The lines in which a file defines a symbol; without one those that were requested.

        Raises:
            InvalidArguments: other lines are requested too. NotFound: it defines no such symbol, or several.
        """
        if not symbol:
            return lines
        if lines != LineRange(line_numbers=lines.line_numbers):
            raise InvalidArguments("symbol excludes offset, limit, head and tail")
        with open_file(self._roots, path) as file:
            text = decode(file.read(OUTLINED_BYTES), file.display_path).text
        first, last = require_lines_of(symbol, path, text)
        return LineRange(offset=first, limit=last - first + 1, line_numbers=lines.line_numbers)

    def _interpreted(
        self, file: OpenFile, lines: LineRange, pages: str | None, *, as_pictures: bool
    ) -> PdfFile | NotebookFile | BinaryFile | None:
        """What is in a PDF or a notebook, both of which may be text too; None for any other file."""
        if file.read_at(0, len(PDF_START)) == PDF_START:
            with _turn(self._large_reads):
                return self._documents.pdf(file, pages, as_pictures=as_pictures)
        if not file.display_path.endswith(NOTEBOOK_NAME) or pages is not None or as_pictures:
            return None
        with _turn(self._large_reads) if file.size > LARGE_BYTES else nullcontext():
            return self._documents.notebook(file, lines)

    @property
    def _documents(self) -> Documents:
        return Documents(self._decoder, self._limits)

    def _text(self, file: OpenFile, lines: LineRange, budget: TextBudget, call: Call) -> FileText:
        """The requested lines of a text file.

        Raises:
            NotText: it is binary, or in an unknown encoding.
        """
        is_sought = lines.cursor is not None or (file.size > WHOLE_BYTES and not lines.need_counting)
        part = part_of_file(file, lines, budget) if is_sought else None
        if part is not None:
            self._known_files.record_part(call, file.place, file.version)
            return part
        with _turn(self._large_reads) if file.size > LARGE_BYTES else nullcontext():
            data = file.read(self._limits.file_bytes)
            self._known_files.record(call, file.place, data)
        return text_of_file(data, file.display_path, lines, budget)

    def _in_memory(self, path: str, lines: LineRange, call: Call, *, raw: bool) -> FileText:
        """Read a small file that is in the page cache.

        Raises:
            WouldBlock: it is not, it is no text, or reading it is not straightforward.
        """
        content = None if lines.cursor else read_nonblocking(self._roots, path, limit_bytes=self._limits.file_bytes)
        if content is None or (content.data.startswith(PDF_START) and not raw):
            raise WouldBlock
        self._known_files.record(call, content.place, content.data)
        try:
            return text_of_file(content.data, content.display_path, lines, TextBudget.of(self._limits))
        except NotText as error:
            raise WouldBlock from error

    @tool(Effect.READ, title="Read files")
    def read_files(
        self,
        paths: Annotated[
            list[str],
            Field(
                min_length=1,
                max_length=MAX_FILES,
                description='Files to read, 1 to 200: each a path, a path with lines such as "src/main.py:10-40" '
                '(":10-" reads to the end), or a glob such as "src/**/*.py"',
            ),
            Aliases("files", "file_paths", "targets"),
        ],
        *,
        call: Call = NOBODY,
    ) -> FileTexts:
        """Read several text files, or parts of them, in one call.

        Returns one section for each file, in the order named. A section begins with a line `=== TOKEN path`; TOKEN is
        random and new in every answer, so that no content can be taken for it. A glob adds its files sorted, without
        those that .gitignore excludes. A file that can't be read has its error in its section, and the others are read
        all the same. All sections share one answer of about 20,000 bytes: small files come whole, larger ones as start
        and end, and what is left out is named. Pictures, PDF and notebooks are read by read_file alone; to find lines
        in many files, use search_text. Example: {"paths": ["setup.py", "src/main.py:10-40", "src/util/*.py"]}.
        """
        reader = FilesReader(self._roots, self._limits, partial(self._text, call=call))
        return reader.read(paths)

    @tool(Effect.READ, profiles=("all",), title="List directory")
    def list_directory(self, path: DirectoryPath = ".") -> ListingResult:
        """List the entries of one directory, complete with hidden and ignored ones.

        Returns one name per line, sorted: directories end with `/`, links with `@`, files are followed by a tab and
        their size in bytes. Up to 2,000 entries that fit into one answer; the others are counted. It does not descend:
        directory_tree shows several levels, and search_files finds names in a whole tree.
        """
        listing = list_directory(self._roots, path, limit=self._limits.list_entries)
        return ListingResult.of(listing, content_bytes(self._limits))

    @tool(Effect.READ, title="Show directory tree")
    def directory_tree(
        self,
        path: DirectoryPath = ".",
        *,
        depth: Annotated[
            int,
            Field(ge=1, le=50, description="Levels to show, 1 to 50; default 3. 1 shows only the entries of `path`"),
            Aliases("max_depth"),
        ] = 3,
        limit: Annotated[
            int,
            Field(
                ge=1, le=2_000, description="Most entries to show, 1 to 2,000; default 300. The upper levels come first"
            ),
            Aliases("max_entries", "max_results"),
        ] = 300,
        include_ignored: Annotated[
            bool,
            Field(description="Show what .gitignore and .ignore files exclude too; default false"),
            Aliases("no_ignore", switches={"respect_git_ignore": {False: True}}),
        ] = False,
    ) -> DirectoryTree:
        """List everything in a directory with sizes, as a tree of several levels or, with depth 1, not deeper.

        Returns one entry per line, sorted, indented by two spaces for each level: directories end with `/`, links with
        `@`, files are followed by a tab and their size in bytes. Lines in brackets say what is not shown: how many
        entries with what size, and names that .gitignore excludes. Links are not followed, and `.git` is left out. For
        an overview of a project; with depth 1 in place of `ls`. Does a path exist, and is it a file? Its directory with
        depth 1 shows it. A path that is a file, or missing, is an error; for a missing one it names a similar path. To
        find files by name or the newest ones, use search_files; to find text, search_text.
        """
        reader = TreeReader(self._roots, path, include_ignored=include_ignored)
        return reader.read(depth=depth, limit=limit, budget=content_bytes(self._limits))

    @tool(Effect.READ, structured=False, profiles=("all",), title="Check for a file")
    def file_exists(
        self,
        path: Annotated[
            AnyPath,
            Field(description="Path to check: relative to the first root, or absolute beneath any root"),
            FILE_NAMES,
        ],
    ) -> str:
        """Check whether a path is a file; links are followed.

        Returns `true`, or `false`, also for a directory. A path outside the roots is an error. There is no need to
        check before read_file, which reports a missing file and names a similar one.
        """
        return "true" if kind_at(self._roots, path) == "file" else "false"

    @tool(Effect.READ, structured=False, profiles=("all",), title="Check for a directory")
    def directory_exists(
        self,
        path: Annotated[
            AnyPath,
            Field(description="Path to check: relative to the first root, or absolute beneath any root"),
            DIRECTORY_NAMES,
        ],
    ) -> str:
        """Check whether a path is a directory; links are followed.

        Returns `true`, or `false`, also for a file. A path outside the roots is an error. There is no need to check
        before directory_tree, which reports a missing directory.
        """
        return "true" if kind_at(self._roots, path) == "directory" else "false"


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
