"""List the files of a tree that a text search reads: with ripgrep if there is one, otherwise with our own walk.

Both only list files. `Findings` reads and matches them through handles beneath a root. So a file that is replaced by a
link to the outside while ripgrep runs is never shown, and both engines give the same answer.
"""

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from coretools.config.limits import Limits
from coretools.confinement.landlock import READ, Rule
from coretools.errors import CannotStart, CoreError
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.ripgrep import Ripgrep
from coretools.process.run import Completed, RunOptions
from coretools.roots.read import open_directory
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.tools.search.findings import Findings, Query
from coretools.tools.search.globs import expand_braces
from coretools.tools.search.ignore import IgnoreRules, beneath, entries_beneath, ignore_rules

MAX_NAMES = 200_000
"""Most unread names from ripgrep. It is a hundred times faster than our reader, so this bounds the memory."""

MAX_UNSORTED = 2_000
"""Most matching files that ripgrep lists unsorted, with all its threads. If there are more, the pattern is common, the
answer is full after the first few files, and ripgrep lists them sorted, with one thread (`--sort`)."""

UNSORTED_SHARE = 0.75
"""Share of the remaining time for the unsorted search. The rest is for reading the listed files."""

STDERR_BYTES = 1_024
"""Bytes kept of ripgrep's messages, for debugging only."""

_OPTIONS = (
    # Only these options apply: no configuration file, no preprocessor.
    *("--no-config", "--no-messages", "--color=never"),
    # Everything beneath the directory except `.git` and what its own ignore files exclude, in a repository or not.
    *("--hidden", "--glob=!.git", "--no-require-git"),
    *("--no-ignore-global", "--no-ignore-parent", "--no-ignore-exclude"),
    # If a mapped file is truncated meanwhile, SIGBUS ends ripgrep.
    *("--no-mmap", "--regex-size-limit=100M", "--files-with-matches", "--null"),
)

_PLAIN_NAME = re.compile(r"[\w.*?-]+", re.ASCII)
"""A glob of one name that has the same meaning for both engines."""


class SearchEngine(Protocol):
    """Lists the files that a search reads."""

    @property
    def name(self) -> str:
        """For the caller: `ripgrep` or `walk`."""
        ...

    async def search(self, findings: Findings) -> bool:
        """Fill `findings` in the order of the paths. False if this engine can't be used here."""
        ...


class WalkEngine:
    """Walks the tree itself and searches every file that is not ignored."""

    name = "walk"

    def __init__(self, roots: Roots, limiter: CapacityLimiter) -> None:
        self._roots = roots
        self._limiter = limiter

    async def search(self, findings: Findings) -> bool:
        """Fill `findings` in the order of the paths. Always possible."""
        await anyio.to_thread.run_sync(self._search, findings, limiter=self._limiter)
        return True

    def _search(self, findings: Findings) -> None:
        query = findings.query
        for relative, kind in entries_beneath(self._roots, query.top, include_ignored=query.include_ignored):
            if kind == "file" and query.wanted(relative):
                findings.search_file(relative)
            findings.timed_out = findings.timed_out or time.monotonic() >= query.deadline
            if findings.is_complete:
                return


class RipgrepEngine:
    """Lets ripgrep list the matching files. It may list files without a match of ours, but never misses one."""

    name = "ripgrep"

    def __init__(
        self, roots: Roots, confined: ConfinedRunner, *, ripgrep: Ripgrep, limits: Limits, limiter: CapacityLimiter
    ) -> None:
        self._roots = roots
        self._confined = confined
        self._ripgrep = ripgrep
        self._limits = limits
        self._limiter = limiter

    async def search(self, findings: Findings) -> bool:
        """Fill `findings` in the order of the paths. False if ripgrep is missing or failed."""
        names = _FileNames(MAX_UNSORTED)
        await self._list_files(findings.query, names)
        if names.failure is not None:
            raise names.failure
        if names.too_many:
            return await self._search_in_order(findings)
        if names.completed is None:
            return False
        listed = sorted(await names.following(), key=_components)
        await self._read(findings, self._rules(findings.query), listed)
        findings.timed_out = findings.timed_out or names.completed.timed_out
        return findings.is_complete or _succeeded(names.completed, names)

    async def _search_in_order(self, findings: Findings) -> bool:
        names, rules = _FileNames(MAX_NAMES), self._rules(findings.query)
        async with anyio.create_task_group() as group:
            group.start_soon(self._list_files, findings.query, names, "--sort=path")
            try:
                while not findings.is_complete and (batch := await names.following()):
                    await self._read(findings, rules, batch)
            except CoreError as error:
                names.failure = error
            group.cancel_scope.cancel()
        if names.failure is not None:
            raise names.failure
        if findings.is_complete or names.completed is None:
            return findings.is_complete
        findings.timed_out = names.completed.timed_out
        return findings.timed_out or _succeeded(names.completed, names)

    async def _list_files(self, query: Query, names: "_FileNames", *order_words: str) -> None:
        """Run ripgrep; it adds file names to `names` as it finds them."""
        share = 1.0 if order_words else UNSORTED_SHARE
        ignored = ("--no-ignore",) if query.include_ignored else ()
        size = f"--max-filesize={self._limits.file_bytes}"
        pattern = f"--regexp={query.pattern.ripgrep}"
        words = (*_OPTIONS, *order_words, *ignored, size, *_type_options(query.glob), pattern, "--", "./")
        path = self._roots.display_path(query.top)
        try:
            with ExitStack() as stack:
                directory = await anyio.to_thread.run_sync(self._opened, path, stack, limiter=self._limiter)
                program = await self._ripgrep.choose(directory)
                if program is None:
                    return  # not installed: `completed` stays None
                options = RunOptions(
                    timeout_seconds=max(0.0, share * (query.deadline - time.monotonic())),
                    keep_bytes=STDERR_BYTES,
                    on_stdout=names.feed,
                    confined_thread=self._confined.confined_thread(program.file, readable_paths(directory)),
                )
                names.completed = await self._confined.run((program.file, *words), cwd=directory, options=options)
        except CannotStart:
            pass  # none that may be started; `completed` stays None
        except CoreError as error:
            names.failure = error
        finally:
            names.end()

    def _opened(self, path: str, stack: ExitStack) -> Directory:
        return stack.enter_context(open_directory(self._roots, path))

    def _rules(self, query: Query) -> IgnoreRules | None:
        return None if query.include_ignored else ignore_rules(self._roots, query.top)

    async def _read(self, findings: Findings, rules: IgnoreRules | None, names: Sequence[bytes]) -> None:
        await anyio.to_thread.run_sync(_search_files, findings, rules, names, limiter=self._limiter)


def readable_paths(directory: Directory) -> tuple[Rule, ...]:
    """Return the Landlock rules for ripgrep: reading the root of the directory."""
    return ((directory.place.root.fd, READ),)


def _search_files(findings: Findings, rules: IgnoreRules | None, names: Sequence[bytes]) -> None:
    """Search the files that ripgrep listed, in order."""
    query = findings.query
    for name in names:
        relative = name.removeprefix(b"./").decode("utf-8", "surrogateescape")
        # ripgrep does not know ignore files above the directory searched, and globs with more than a name.
        if query.wanted(relative) and not (rules and rules.covers_any(beneath(query.top, relative))):
            findings.search_file(relative)
        if findings.is_complete:
            return


def _components(name: bytes) -> list[str]:
    """Return the sort key of a path: component by component, as in our own walk."""
    return name.decode("utf-8", "surrogateescape").split("/")


def _succeeded(completed: Completed, names: "_FileNames") -> bool:
    if names.too_many:
        return False
    # 2 with names: some file could not be read. 2 without names: ripgrep refused the pattern, or every file was ignored
    # (13.0.0 treats that as an error); our own walk decides.
    return completed.exit_code in (0, 1) or (completed.exit_code == 2 and names.total > 0)


def _type_options(glob: str) -> list[str]:
    """Return options that restrict ripgrep to names that a glob can match; none for a complex glob.

    Its own `--glob` would include ignored files again.
    """
    globs = [name.rstrip("/").rpartition("/")[2] for name in expand_braces(glob)]
    if glob.startswith("!") or not all(_PLAIN_NAME.fullmatch(name) and "**" not in name for name in globs):
        return []
    return [f"--type-add=wanted:{name}" for name in globs] + ["--type=wanted"]


class _FileNames:
    """Queue of file names between the task that runs ripgrep and the one that reads the files."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.total = 0
        self.too_many = False
        self.completed: Completed | None = None
        self.failure: CoreError | None = None
        self._rest = b""
        self._waiting: list[bytes] = []
        self._ended = False
        self._changed = anyio.Event()

    def feed(self, piece: bytes) -> bool:
        """Add a piece of output; True if no more is wanted."""
        *whole, self._rest = (self._rest + piece).split(b"\0")
        self.total += len(whole)
        self._waiting += whole
        self.too_many = self.too_many or len(self._waiting) > self._most
        self._changed.set()
        return self.too_many

    def end(self) -> None:
        """Mark the end of the output."""
        self._ended = True
        self._changed.set()

    async def following(self) -> list[bytes]:
        """Return the next names; none at the end."""
        while not self._waiting and not self._ended:
            await self._changed.wait()
            self._changed = anyio.Event()
        batch, self._waiting = self._waiting, []
        return batch
