"""Read several files for one answer: find what the paths stand for, and read each with its share of the answer."""

import time
from collections.abc import Callable, Sequence

from coretools.cancellation import check_cancelled
from coretools.config.limits import Limits
from coretools.errors import CoreError, NotFound, NotText
from coretools.roots.read import OpenFile, file_status, kind_at, open_directory, open_file
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes
from coretools.tools.filesystem.binary_file import binary_type, described
from coretools.tools.filesystem.documents import PDF, PDF_START, PICTURES
from coretools.tools.filesystem.file_text import FileText, TextBudget
from coretools.tools.filesystem.line_window import LineRange
from coretools.tools.filesystem.several_files import (
    MAX_FILES,
    REMARK_BYTES,
    SMALLEST_SHARE,
    FileRequest,
    FileTexts,
    Section,
    frame_bytes,
    is_glob,
    parse_request,
    shares,
    split_glob,
)
from coretools.tools.search.globs import glob_matcher
from coretools.tools.search.ignore import beneath, entries_beneath

HASHED_BYTES = 16 * 1024 * 1024
"""Largest binary file that is hashed: there may be many in one call."""

ReadText = Callable[[OpenFile, LineRange, TextBudget], FileText]


class FilesReader:
    """Reads the files of one call."""

    def __init__(self, roots: Roots, limits: Limits, read_text: ReadText) -> None:
        """`read_text` reads the text of an open file."""
        self._roots = roots
        self._limits = limits
        self._read_text = read_text

    def read(self, paths: Sequence[str]) -> FileTexts:
        """Read paths, ranges of lines and globs."""
        requests, sections = self._requests(paths)
        notes = [f"more files match; {MAX_FILES} are read at most"] if len(requests) > MAX_FILES else []
        del requests[MAX_FILES:]
        wanted = [self._wanted(request) for request in requests]
        room = content_bytes(self._limits) - sum(frame_bytes(one.name) + len(one.text) for one in sections)
        fitting = self._fitting(requests, wanted, room)
        room -= sum(frame_bytes(request.text) for request in requests[:fitting])
        for request, share in zip(requests[:fitting], shares(wanted[:fitting], room), strict=True):
            check_cancelled()
            sections.append(self._section(request, share))
        return FileTexts.of(sections, [request.text for request in requests[fitting:]], notes)

    def _requests(self, paths: Sequence[str]) -> tuple[list[FileRequest], list[Section]]:
        """The files that the paths stand for, without repetitions; and sections for paths without any."""
        requests, failed = dict[FileRequest, None](), list[Section]()
        for text in paths:
            try:
                if not is_glob(text) or self._is_there(text):
                    requests[parse_request(text, self._is_there)] = None
                elif matching := self._matching(text):
                    requests.update(dict.fromkeys(matching))
                else:
                    failed.append(Section(text, "no file matches", NotFound.kind))
            except CoreError as error:
                failed.append(Section.of_error(text, error))
        return list(requests), failed

    def _is_there(self, path: str) -> bool:
        try:
            return kind_at(self._roots, path) is not None
        except CoreError:
            return False

    def _matching(self, glob: str) -> list[FileRequest]:
        """The first files that a glob matches, in the order of a search; one more than are read."""
        above, rest = split_glob(glob)
        matches = glob_matcher(rest)
        with open_directory(self._roots, above) as directory:
            top = directory.place
        found = list[FileRequest]()
        ends = time.monotonic() + self._limits.search_seconds
        for relative, kind in entries_beneath(self._roots, top, include_ignored=False):
            if kind == "file" and matches(relative):
                place = RootedPath(top.root, beneath(top, relative))
                found.append(FileRequest(self._roots.display_path(place)))
            if len(found) > MAX_FILES or time.monotonic() >= ends:
                break
        return found

    def _wanted(self, request: FileRequest) -> int:
        """The bytes that a section wants: those of the file, or some where its error is shown."""
        try:
            status = file_status(self._roots, request.path)
        except CoreError:
            return SMALLEST_SHARE
        is_file = status.kind == "file"
        return min(max(status.version.size, REMARK_BYTES), self._limits.answer_bytes) if is_file else SMALLEST_SHARE

    def _fitting(self, requests: Sequence[FileRequest], wanted: Sequence[int], room: int) -> int:
        """The number of files for which there is room, with the smallest share of each."""
        for number, (request, size) in enumerate(zip(requests, wanted, strict=True)):
            room -= frame_bytes(request.text) + min(size, SMALLEST_SHARE)
            if room < 0:
                return number
        return len(requests)

    def _section(self, request: FileRequest, share: int) -> Section:
        try:
            with open_file(self._roots, request.path) as file:
                if file.read_at(0, len(PDF_START)) == PDF_START:
                    return _described(request, file, PDF)
                try:
                    found = self._read_text(file, request.lines, TextBudget(share, share + REMARK_BYTES))
                except NotText as error:
                    if not (kind := binary_type(error)):
                        raise
                    return _described(request, file, kind)
        except CoreError as error:
            return Section.of_error(request.text, error)
        remarks = tuple(found.unusual)
        return Section(request.text, found.content, remarks=remarks, path=request.path, sha256=found.sha256)


def _described(request: FileRequest, file: OpenFile, media_type: str) -> Section:
    is_shown = media_type == PDF or media_type in PICTURES
    note = "read_file shows it" if is_shown else ""
    return Section(request.text, described(file, media_type, note=note, most_hashed=HASHED_BYTES).text())
