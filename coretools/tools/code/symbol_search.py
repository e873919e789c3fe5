"""Find the symbol that a caller named by a file, or by its name alone in a directory."""

import time
from functools import partial

from anyio import CapacityLimiter, to_thread

from coretools.config.limits import Limits
from coretools.errors import InvalidArguments, NotFound
from coretools.roots.read import file_status, open_directory
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.code.listing import SHOWN_TEXTS, SymbolListing
from coretools.tools.code.results import FoundSymbol
from coretools.tools.code.symbol_target import SymbolTarget, find_target
from coretools.tools.code.text_mentions import TextMentions
from coretools.tools.outline import name_parts


class SymbolSearch:
    """Finds the symbol that a call names."""

    def __init__(self, roots: Roots, limits: Limits, mentions: TextMentions) -> None:
        self._roots = roots
        self._limits = limits
        self._mentions = mentions
        self._limiter = CapacityLimiter(limits.threads)

    async def find(self, path: str, symbol: str, line: int | None) -> SymbolTarget:
        """Return the symbol that a file mentions on a line, or defines; or that one file of a directory defines.

        Raises:
            NotFound: it is not there, or there are several; names them.
            InvalidArguments: no name, or a line of a directory.
            CoreError: as of reading the file.
        """
        top = await to_thread.run_sync(self._directory, path, limiter=self._limiter)
        if top is not None:
            path = await self._defining_file(path, top, symbol, line)
        return await to_thread.run_sync(partial(find_target, self._roots, path, symbol, line), limiter=self._limiter)

    def _directory(self, path: str) -> RootedPath | None:
        """Resolve a directory, following links; None for anything else."""
        if file_status(self._roots, path).kind != "directory":
            return None
        with open_directory(self._roots, path) as directory:
            return directory.place

    async def _defining_file(self, path: str, top: RootedPath, symbol: str, line: int | None) -> str:
        parts = name_parts(symbol)
        if not parts:
            raise InvalidArguments("symbol: name the symbol, such as parse or Class.method")
        if line is not None:
            raise InvalidArguments(f"line: give the file in `path`; {path} is a directory")
        deadline = time.monotonic() + self._limits.search_seconds
        mentions = await self._mentions.find(parts[-1], top, output="files", deadline=deadline)
        listing = SymbolListing(self._roots, self._limits, parts, skip=0, limit=SHOWN_TEXTS, deadline=deadline)
        await to_thread.run_sync(listing.read_tree, [file.path for file in mentions.files], limiter=self._limiter)
        found = listing.result()
        # Overloads, and the branches of a condition, are one symbol.
        names = list({(one.path, one.name): one for one in found.symbols}.values())
        if not names:
            raise NotFound(f"{symbol}: {'; '.join(found.notes)}")
        if len(names) > 1:
            shown = ", ".join(map(_place, names)) + (", and more" if found.more else "")
            raise NotFound(f"{symbol}: defined in several places: {shown}; give one `path`")
        return names[0].path


def _place(symbol: FoundSymbol) -> str:
    return f"{symbol.path}:{symbol.line} {symbol.kind} {symbol.name}"
