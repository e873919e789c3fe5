"""The search tools: find text in files, and names. They respect ignore files; results are bounded and sorted."""

import time
from collections.abc import Callable
from typing import Annotated

import anyio.to_thread
from anyio import CapacityLimiter
from pydantic import Field

from coretools.config.limits import Limits
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.errors import CannotStart
from coretools.escapes import escape_controls
from coretools.operations.declare import Aliases, Effect, tool
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.ripgrep import Ripgrep
from coretools.process.runner import Runner
from coretools.roots.directory_listing import WalkEntry
from coretools.roots.read import file_status, open_directory
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes, fitting
from coretools.tools.search.engines import RipgrepEngine, SearchEngine, WalkEngine
from coretools.tools.search.findings import Findings, Query
from coretools.tools.search.fuzzy import fuzzy_rank
from coretools.tools.search.globs import glob_matcher, name_matcher
from coretools.tools.search.ignore import beneath
from coretools.tools.search.names import NameOrder, NameQuery, find_names
from coretools.tools.search.pattern import parse_pattern
from coretools.tools.search.results import FoundNames, FoundText, Output

_PLACES = Aliases("directory", "dir_path", "search_path", "target_directory", "cwd", ignored=("explanation",))
_LIMITS = Aliases("head_limit", "max_results", "total_max_matches")
DEFAULT_PATHS = 500
"""Paths in an answer of `search_files`."""

FUZZY_PATHS = 20
"""The same with a query: what is meant is among the best, and letters in their order match much."""

_Pattern = Annotated[
    str,
    Field(
        description="Regular expression that a line must contain, in ripgrep's syntax: no look-around, no "
        "back-references, no line breaks. With `literal`, plain text"
    ),
    Aliases("query", "regex", ignored=("-n",)),
]
_FileGlob = Annotated[
    str,
    Field(
        description="Search only files whose name matches, such as *.py, *.{js,ts} or !*.lock; with a / the "
        "path from `path` on must match, as src/**/*.py. By default all files"
    ),
    Aliases("include", "include_pattern", "file_pattern", hints=("type", "exclude_pattern")),
]
_AnyCase = Annotated[
    bool,
    Field(description="Do not distinguish upper and lower case; default false"),
    Aliases("-i", "case_insensitive", switches={"case_sensitive": {False: True}}),
]
_Context = Annotated[
    int,
    Field(ge=0, le=50, description="Lines to show before and after each match, 0 to 50; default 0"),
    Aliases("-C", "context_lines", hints=("-A", "-B", "before", "after")),
]
_Ignored = Annotated[
    bool,
    Field(description="Include what .gitignore and .ignore files exclude; default false"),
    Aliases("no_ignore", switches={"respect_git_ignore": {False: True}}),
]
_Skip = Annotated[
    int,
    Field(
        ge=0,
        le=1_000_000_000,
        description="Results to leave out at the start; default 0, at most 1000000000. A cut answer names the value"
        " that goes on",
    ),
    Aliases("offset"),
]
_Output = Annotated[
    Output,
    Field(
        description="`matches` (default): the matching lines; `files`: only the paths of files with a match; "
        "`counts`: each path with its number of matching lines"
    ),
    Aliases(
        "output_mode",
        switches={
            "-l": {True: "files"},
            "files_with_matches": {True: "files"},
            "-c": {True: "counts"},
            "count": {True: "counts"},
        },
    ),
]


class SearchTools:
    """Tools that search for text and names beneath the roots."""

    def __init__(
        self,
        roots: Roots,
        runner: Runner,
        limits: Limits,
        *,
        confined_threads: ConfinedThreadPool,
        engines: tuple[SearchEngine, ...] = (),
    ) -> None:
        """`engines` are tried in order; by default ripgrep, then our own directory walk."""
        self._roots = roots
        self._limits = limits
        self._limiter = CapacityLimiter(limits.threads)
        confined = ConfinedRunner(runner, confined_threads)
        self.engines: tuple[SearchEngine, ...] = engines or (
            RipgrepEngine(roots, confined, ripgrep=Ripgrep(confined), limits=limits, limiter=self._limiter),
            WalkEngine(roots, self._limiter),
        )

    @tool(Effect.READ, title="Search text")
    async def search_text(
        self,
        pattern: _Pattern,
        *,
        path: Annotated[
            str, Field(description="Directory to search, or one file; default the first root"), _PLACES
        ] = ".",
        glob: _FileGlob = "",
        literal: Annotated[
            bool,
            Field(
                description="Take `pattern` as plain text, so that characters such as ( and . have no special "
                "meaning; default false"
            ),
            Aliases("fixed_strings", switches={"is_regexp": {False: True}}),
        ] = False,
        ignore_case: _AnyCase = False,
        context: _Context = 0,
        output: _Output = "matches",
        limit: Annotated[
            int,
            Field(
                ge=1,
                description="Most matching lines to return, or files with the other values of `output`; default 100, "
                "at most 500",
            ),
            _LIMITS,
        ] = 100,
        skip: _Skip = 0,
        with_symbols: Annotated[
            bool, Field(description="Add to each match the symbol that it defines or is in; default false")
        ] = False,
        include_ignored: _Ignored = False,
    ) -> FoundText:
        r"""Find lines in the files of a directory tree by a regular expression or a plain text.

        Returns the path of each file with a match, sorted, and beneath it `line:text` for each matching line; with
        `context` also `line-text` for the lines around it, and `--` between groups. If each file has a single line, the
        form is `path:line:text`. With `with_symbols` a match ends with `[defines Class.method]` or `[in function]`. A
        line over 500 bytes is cut. Up to 20,000 bytes and 30 seconds: a last line in brackets says if more exist, and
        the `skip` that goes on. No match is no error: [no line matches]; an invalid pattern is one. Hidden files are
        searched; `.git`, binary files and what .gitignore excludes are not. Cheaper than reading whole files with
        read_file. To find files by name, or the latest changed ones, use search_files; for text in old commits, git_log
        with `changed`. Example: {"pattern": "def load\\(", "glob": "*.py", "context": 2}.
        """
        matcher = parse_pattern(pattern, literal=literal, ignore_case=ignore_case)
        wanted = glob_matcher(glob or "*")
        top = await anyio.to_thread.run_sync(self._top, path, limiter=self._limiter)
        query = Query(
            top=top or self._roots.place(path),
            pattern=matcher,
            glob=glob or "*",
            wanted=wanted,
            context=context,
            output=output,
            limit=min(limit, self._limits.search_results),
            skip=skip,
            include_ignored=include_ignored,
            deadline=time.monotonic() + self._limits.search_seconds,
            with_symbols=with_symbols,
        )
        if top is None:
            findings = Findings(self._roots, self._limits, query)
            await anyio.to_thread.run_sync(findings.search_named_file, path, limiter=self._limiter)
            return self._found(findings, "")
        for engine in self.engines:
            findings = Findings(self._roots, self._limits, query)
            if await engine.search(findings):
                return self._found(findings, engine.name)
        raise CannotStart("no engine for text searches works here")

    @tool(Effect.READ, title="Find files")
    def search_files(
        self,
        glob: Annotated[
            str,
            Field(
                description="What must match: *.py matches names in any directory, src/**/*.{js,ts} paths from "
                "`path` on, test/ only directories, * everything"
            ),
            Aliases("pattern", "glob_pattern"),
        ],
        *,
        query: Annotated[
            str,
            Field(
                description="Letters of the name in their order, not necessarily adjacent; of several words each "
                "must match. A match in the name ranks before one in the path. Filters in addition to "
                "`glob`"
            ),
            Aliases("name", "fuzzy"),
        ] = "",
        path: Annotated[str, Field(description="Directory to search; default the first root"), _PLACES] = ".",
        sort: Annotated[
            NameOrder,
            Field(
                description="`path` (default): in the order of paths, or with `query` the best match first; "
                "`newest`: only files, the latest modified first"
            ),
        ] = "path",
        limit: Annotated[
            int | None,
            Field(ge=1, description="Most paths to return: by default 500, with `query` 20; at most 500"),
            _LIMITS,
        ] = None,
        skip: _Skip = 0,
        include_ignored: _Ignored = False,
    ) -> FoundNames:
        """Find files and directories in a tree: by a glob, by an inexact name, or the newest ones.

        Returns one path per line; directories end with `/`. Sorted by path; with `query` the best match first; with
        sort=newest the latest modified first. Up to 20,000 bytes: a last line in brackets says how many paths there are
        and the `skip` that goes on. No match is no error: [no path matches]. Hidden files are included; `.git` and what
        .gitignore excludes are not. To find files by what they contain use search_text; to see a directory with sizes,
        directory_tree. Examples: {"glob": "*.py"}; {"glob": "*", "query": "usrctl"} finds `user_controller.py`;
        {"glob": "*", "sort": "newest", "limit": 10}.
        """
        names = NameQuery(
            wanted=_wanted(glob),
            rank=fuzzy_rank(query) if query.strip() else None,
            newest=sort == "newest",
            directories=sort == "path" or glob.endswith("/"),
            skip=skip,
            limit=min(limit or (FUZZY_PATHS if query.strip() else DEFAULT_PATHS), self._limits.search_results),
            deadline=time.monotonic() + self._limits.search_seconds,
        )
        with open_directory(self._roots, path) as directory:
            top = directory.place
        page = find_names(self._roots, top, names, include_ignored=include_ignored)
        paths = [self._display(top, name) for name in page.names]
        shown = paths[: len(fitting(map(escape_controls, paths), content_bytes(self._limits)))]
        notes = [f"stopped after {self._limits.search_seconds:g} s; there may be more"] if page.timed_out else []
        if skip + len(shown) < page.total:
            why = ": the answer is full" if len(shown) < len(paths) else ""
            notes.append(
                f"{len(shown)} of {page.total} paths{why}; skip={skip + len(shown)} goes on, or narrow glob or path"
            )
        elif not shown:
            notes.append(f"no path matches after the first {page.total}" if page.total else "no path matches")
        return FoundNames(paths=shown, total=page.total, notes=notes)

    def _display(self, top: RootedPath, name: str) -> str:
        is_directory = name.endswith("/")
        display_path = self._roots.display_path(RootedPath(top.root, beneath(top, name.removesuffix("/"))))
        return f"{display_path}/" if is_directory else display_path

    def _top(self, path: str) -> RootedPath | None:
        """Resolve a directory, following links; None for a file."""
        if file_status(self._roots, path).kind == "file":
            return None
        with open_directory(self._roots, path) as directory:
            return directory.place

    def _found(self, findings: Findings, engine: str) -> FoundText:
        notes = []
        output = findings.query.output
        if findings.context < findings.query.context:
            notes.append(f"context is {findings.context}, not {findings.query.context}: the answer has no room for it")
        if findings.more:
            notes.append(self._rest(findings))
        elif findings.is_full:
            notes.append("the last lines of context are left out: the answer is full")
        if findings.timed_out:
            notes.append(f"stopped after {self._limits.search_seconds:g} s; there may be more")
        if findings.unmarked:
            notes.append(f"the matches of {findings.unmarked} files name no symbol: that took too long")
        if not findings.matches and not notes:
            notes.append(f"no match after the first {findings.skipped}" if findings.skipped else "no line matches")
        if output == "counts" and findings.files and not findings.more and not findings.skipped:
            notes.append(f"{findings.matches} matching lines in all")
        return FoundText(files=findings.files, matches=findings.matches, notes=notes, engine=engine, output=output)

    def _rest(self, findings: Findings) -> str:
        """Why there are no more matches in the answer, and how to see them."""
        query, most = findings.query, self._limits.search_results
        unit, count = ("matches", findings.matches) if query.output == "matches" else ("files", len(findings.files))
        ways = [f"skip={query.skip + count} goes on; or narrow pattern, path or glob"]
        if findings.is_full:
            ways += ["take less context"] if query.context else []
            return f"{count} of {query.limit} {unit} shown, more exist, but the answer is full; {', or '.join(ways)}"
        ways += [f"raise limit (at most {most})"] if query.limit < most else []
        shown = f"{count} {unit} shown" + (", the most in one answer" if query.limit == most else "")
        return f"{shown}, more exist; {', or '.join(ways)}"


def _wanted(glob: str) -> Callable[[str, list[WalkEntry]], list[WalkEntry]]:
    """Return a function that selects the names matching a glob.

    Raises:
        InvalidArguments: see `glob_matcher`.
    """
    matches = glob_matcher(glob)
    fits = name_matcher(glob)
    if fits is not None:
        return lambda _, run: [entry for entry in run if fits(entry[0])]
    return lambda above, run: [
        (name, kind) for name, kind in run if matches(f"{above}{name}/" if kind == "directory" else above + name)
    ]
