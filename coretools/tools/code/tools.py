"""The code tools: what source files define, found by their syntax."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import anyio.to_thread
from anyio import CapacityLimiter
from pydantic import Field

from coretools.config.limits import Limits
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.pool import LanguageServers
from coretools.operations.declare import Aliases, Effect, tool
from coretools.roots.read import file_status, open_directory
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.code.listing import SymbolListing
from coretools.tools.code.results import FoundSymbols
from coretools.tools.code.server_questions import asked_places
from coretools.tools.code.symbol_target import find_target
from coretools.tools.code.text_mentions import TextMentions
from coretools.tools.outline import name_parts
from coretools.tools.search.ignore import beneath, entries_beneath


class CodeTools:
    """Tools that know what source files define."""

    def __init__(self, roots: Roots, limits: Limits, servers: LanguageServers, mentions: TextMentions) -> None:
        """`mentions` finds the files that contain a name."""
        self._roots = roots
        self._limits = limits
        self._servers = servers
        self._mentions = mentions
        self._limiter = CapacityLimiter(limits.threads)

    @tool(Effect.READ, title="Code symbols")
    async def code_symbols(
        self,
        path: Annotated[
            str,
            Field(description="Source file, or a directory; default the first root"),
            Aliases("relative_path", "file_path", "directory"),
        ] = ".",
        *,
        name: Annotated[
            str,
            Field(
                description="Return only the definitions of this name, with their text: `parse`, or `Class.method` for"
                " one in a class, module or type; default an outline"
            ),
            Aliases("symbol", "name_path", "query"),
        ] = "",
        line: Annotated[
            int | None,
            Field(
                ge=1,
                description="Line of the file `path` that mentions `name`: return the definition that it means there;"
                " default all of this name",
            ),
            Aliases("line_number"),
        ] = None,
        limit: Annotated[
            int,
            Field(
                ge=1, le=1_000, description="Most symbols to return; default 300, at most 1,000; at most 20 with `name`"
            ),
        ] = 300,
        skip: Annotated[
            int,
            Field(
                ge=0,
                le=1_000_000_000,
                description="Symbols to leave out at the start; default 0, at most 1000000000. A cut answer names the"
                " value that goes on",
            ),
        ] = 0,
        include_ignored: Annotated[
            bool, Field(description="Include what .gitignore and .ignore files exclude; default false")
        ] = False,
    ) -> FoundSymbols:
        """Show what source files define: classes, functions, methods, types, constants; or find a definition by name.

        Returns without `name` an outline: each path, and beneath it one line per symbol, `12-30 class Config(Base):`,
        with its first and last line, indented by what it is in; of a directory only the outermost symbols. Returns
        with `name` each definition as `path:12-30 kind Class.method` and up to 120 lines of its text. Up to 20,000
        bytes: a last line in brackets says if more exist, and the `skip` that goes on. It goes by syntax, in Python,
        JavaScript, TypeScript, Go, Rust, Java and shell, and where the extra `code` is installed in C, C++, C#,
        Kotlin, Lua, PHP, Ruby, Scala and Swift; files over 1 MiB are left out. To find where a symbol is used, take
        code_references; to read further lines, read_file. Example: {"name": "Config.load", "path": "src"}.
        """
        wanted = name_parts(name)
        if line is not None:
            return await self._defined(path, name, line)
        top = await anyio.to_thread.run_sync(self._top, path, limiter=self._limiter)
        deadline = time.monotonic() + self._limits.search_seconds
        listing = SymbolListing(self._roots, self._limits, wanted, skip=skip, limit=limit, deadline=deadline)
        if top is None:
            read = partial(listing.read_named_file, path)
        elif wanted:
            files = await self._files_with(wanted[-1], top, listing, include_ignored=include_ignored)
            read = partial(listing.read_tree, files)
        else:
            read = partial(self._read_all, top, listing, include_ignored=include_ignored)
        await anyio.to_thread.run_sync(read, limiter=self._limiter)
        return listing.result()

    async def _defined(self, path: str, name: str, line: int) -> FoundSymbols:
        """Return the definition of a name as it is meant on a line; by its name alone where no server knows."""
        target = await anyio.to_thread.run_sync(partial(find_target, self._roots, path, name, line))

        def new_listing() -> SymbolListing:
            deadline = time.monotonic() + self._limits.search_seconds
            return SymbolListing(self._roots, self._limits, (target.name,), skip=0, limit=20, deadline=deadline)

        try:
            spans, answer = await asked_places(self._servers, target, "definition")
        except NoAnswer as reason:
            listing = new_listing()  # its time begins when that of the server has passed
            listing.notes.append(
                f"the definition of {target.name} at line {line} is not known: {reason}. These have its name"
            )
            files = await self._files_with(
                target.name, RootedPath(target.place.root, "."), listing, include_ignored=False
            )
            await anyio.to_thread.run_sync(listing.read_tree, files, limiter=self._limiter)
            return listing.result()
        listing = new_listing()
        await anyio.to_thread.run_sync(listing.read_places, spans, limiter=self._limiter)
        listing.notes += answer.remarks
        return listing.result()

    def _top(self, path: str) -> RootedPath | None:
        """Resolve a directory, following links; None for a file."""
        if file_status(self._roots, path).kind == "file":
            return None
        with open_directory(self._roots, path) as directory:
            return directory.place

    def _read_all(self, top: RootedPath, listing: SymbolListing, *, include_ignored: bool) -> None:
        entries = entries_beneath(self._roots, top, include_ignored=include_ignored)
        listing.read_tree(
            self._roots.display_path(RootedPath(top.root, beneath(top, relative)))
            for relative, kind in entries
            if kind == "file"
        )

    async def _files_with(
        self, word: str, top: RootedPath, listing: SymbolListing, *, include_ignored: bool
    ) -> Sequence[str]:
        """The files beneath a directory that contain a word."""
        findings = await self._mentions.find(
            word, top, output="files", deadline=listing.deadline, include_ignored=include_ignored
        )
        if findings.more or findings.timed_out:
            listing.notes.append(f"{word} is in more than {len(findings.files)} files: narrow path")
        return [file.path for file in findings.files]
