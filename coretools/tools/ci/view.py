"""A project seen through the roots: what detection reads of it, and where a file that a report names really lies."""

from coretools.errors import CoreError
from coretools.sandbox.listing import list_directory
from coretools.sandbox.reading import exists, read_bytes
from coretools.sandbox.roots import Roots
from coretools.tools.ci.report import Failure

_FILE_BYTES = 1024 * 1024
"""Largest file that detection reads; a package.json or Makefile beyond it is not written by people."""

_MOST_NAMES = 100_000
"""Names of a directory that detection looks at."""

_SOURCES = ("src/test/java/", "src/test/kotlin/", "src/test/groovy/", "src/main/java/", "")
"""Where Maven and Gradle keep what a stack names by its package only."""

_MOST_PARTS = 12
"""Leading folders that are tried without: Go names a file by its module, which is no folder."""


class ProjectView:
    """A directory beneath a root, by its absolute path. What may not be read is as good as empty here."""

    def __init__(self, roots: Roots, path: str) -> None:
        self._roots = roots
        self._path = path
        self.names = self.inside(".")

    def read(self, path: str) -> str:
        """The text of a file, or empty text."""
        try:
            content = read_bytes(self._roots, f"{self._path}/{path}", limit_bytes=_FILE_BYTES)
        except CoreError:
            return ""
        return content.data.decode("utf-8-sig", "replace")

    def inside(self, path: str) -> frozenset[str]:
        """Names in a directory, none when it can't be listed."""
        try:
            listing = list_directory(self._roots, f"{self._path}/{path}", limit=_MOST_NAMES)
        except CoreError:
            return frozenset()
        return frozenset(entry.name for entry in listing.entries)

    def located(self, failure: Failure) -> Failure:
        """The failure with its file as the other tools take it, where the file is there; else as it was printed."""
        for candidate in self._candidates(failure.file) if failure.file else ():
            try:
                if exists(self._roots, candidate) == "file":
                    shown = self._roots.shown(self._roots.place(candidate))
                    return Failure(failure.name, shown, failure.line, failure.message)
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
