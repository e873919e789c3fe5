"""A project read through the roots, for detection and for resolving file names in reports."""

from coretools.errors import CoreError
from coretools.roots.directory_listing import list_directory
from coretools.roots.read import kind_at, read_bytes
from coretools.roots.root_set import Roots
from coretools.tools.ci.parsed_report import Failure

_FILE_BYTES = 1024 * 1024
"""Largest file that detection reads; a larger package.json or Makefile is generated."""

_MOST_NAMES = 100_000
"""Names of a directory that detection reads."""

_SOURCES = ("src/test/java/", "src/test/kotlin/", "src/test/groovy/", "src/main/java/", "")
"""Source folders of Maven and Gradle. A stack trace names a file by its package only."""

_MOST_PARTS = 12
"""Leading components of a path that are removed in turn: Go puts the module before a path, which is no folder."""


class ProjectView:
    """A directory beneath a root, by its absolute path. What can't be read counts as empty."""

    def __init__(self, roots: Roots, path: str) -> None:
        self._roots = roots
        self._path = path
        self.names = self.names_in(".")

    def read(self, path: str) -> str:
        """Return the text of a file, or empty text."""
        try:
            content = read_bytes(self._roots, f"{self._path}/{path}", limit_bytes=_FILE_BYTES)
        except CoreError:
            return ""
        return content.data.decode("utf-8-sig", "replace")

    def names_in(self, path: str) -> frozenset[str]:
        """Return the names in a directory, none if it can't be listed."""
        try:
            listing = list_directory(self._roots, f"{self._path}/{path}", limit=_MOST_NAMES)
        except CoreError:
            return frozenset()
        return frozenset(entry.name for entry in listing.entries)

    def resolved(self, failure: Failure) -> Failure:
        """Return the failure with its file as the other tools accept it, or unchanged if there is no such file."""
        for candidate in self._candidates(failure.file) if failure.file else ():
            try:
                if kind_at(self._roots, candidate) == "file":
                    display_path = self._roots.display_path(self._roots.place(candidate))
                    return Failure(failure.name, display_path, failure.line, failure.message)
            except CoreError:
                continue
        return failure

    def _candidates(self, file: str) -> list[str]:
        if file.startswith("/"):
            return [file]
        parts = file.removeprefix("./").split("/")
        folders = _SOURCES if file.endswith((".java", ".kt", ".groovy", ".scala")) else ("",)
        direct = [f"{self._path}/{folder}{'/'.join(parts)}" for folder in folders]
        return direct + [f"{self._path}/{'/'.join(parts[cut:])}" for cut in range(1, min(len(parts), _MOST_PARTS))]
