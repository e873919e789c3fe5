"""Find the files and lines that contain a name as text: what is known without a language server."""

import re
from dataclasses import dataclass

from anyio import to_thread

from coretools.config.limits import Limits
from coretools.errors import CannotStart, CoreError
from coretools.language_servers.kinds import kinds_for
from coretools.language_servers.positions import Lines
from coretools.roots.read import read_bytes
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.tools.code.symbol_target import MAX_BYTES, SymbolTarget
from coretools.tools.search.engines import SearchEngine
from coretools.tools.search.findings import Findings, Query
from coretools.tools.search.globs import glob_matcher
from coretools.tools.search.pattern import parse_pattern
from coretools.tools.search.results import Output


@dataclass(frozen=True, slots=True)
class Mentions:
    """The files that contain the name of a symbol."""

    roots: Roots
    files: tuple[str, ...]
    """As callers name them."""
    target: SymbolTarget

    def source_files(self) -> list[str]:
        """Absolute paths of those that a language server for this symbol knows."""
        kinds = kinds_for(self.target.place.relative)
        return [self.roots.place(path).path for path in self.files if kinds_for(path) == kinds]

    async def read(self, path: str) -> Lines | None:
        """Read a file by its absolute path; None if it can't be read here."""
        return await to_thread.run_sync(read_lines, self.roots, path)


def read_lines(roots: Roots, path: str) -> Lines | None:
    """Read a file by its absolute path; None if it can't be read here."""
    place = roots.split(path)
    if place is None:
        return None
    try:
        return Lines.of(decode(read_bytes(roots, roots.display_path(place), limit_bytes=MAX_BYTES).data, path).text)
    except CoreError:
        return None


class TextMentions:
    """Searches for a name in the files of a tree."""

    def __init__(self, roots: Roots, limits: Limits, engines: tuple[SearchEngine, ...]) -> None:
        """`engines` are tried in order."""
        self._roots = roots
        self._limits = limits
        self._engines = engines

    async def of(self, target: SymbolTarget, *, deadline: float) -> Mentions:
        """Return the files of its root that contain the name of a symbol.

        Raises:
            CannotStart: no engine works here.
        """
        top = RootedPath(target.place.root, ".")
        found = await self.find(target.name, top, output="files", deadline=deadline)
        return Mentions(self._roots, tuple(file.path for file in found.files), target)

    async def find(
        self, name: str, top: RootedPath, *, output: Output, deadline: float, include_ignored: bool = False
    ) -> Findings:
        """Return what contains the name as a whole word. `deadline` is one of the monotonic clock.

        Raises:
            CannotStart: no engine works here.
        """
        query = Query(
            top=top,
            pattern=parse_pattern(
                rf"\b{re.escape(name)}" + (r"\b" if name[-1:].isalnum() else ""), literal=False, ignore_case=False
            ),
            glob="*",
            wanted=glob_matcher("*"),
            context=0,
            output=output,
            limit=self._limits.search_results,
            include_ignored=include_ignored,
            deadline=deadline,
        )
        for engine in self._engines:
            findings = Findings(self._roots, self._limits, query)
            if await engine.search(findings):
                return findings
        raise CannotStart("no engine for text searches works here")
