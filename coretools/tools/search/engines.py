"""Which files of a tree a text search looks into: by ripgrep where it is installed, by our own walk where not.

Both only name files; what is shown is read and matched by `Findings`, through handles beneath a root. So a file that
was swapped for a link to the outside while ripgrep walked is never shown, and both give the same answer.
"""

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from coretools.config.settings import Limits
from coretools.confinement.confined_thread import ConfinedThread
from coretools.confinement.landlock import READ, Rule
from coretools.errors import CannotStart, CoreError
from coretools.process.confined import ConfinedRunner
from coretools.process.runner import Completed, RunOptions
from coretools.roots.read import Directory, open_directory
from coretools.roots.root_set import Roots
from coretools.tools.search.findings import Findings, Query
from coretools.tools.search.globs import expand_braces
from coretools.tools.search.ignore import IgnoreRules
from coretools.tools.search.tree import beneath, entries_beneath, ignore_rules

MAX_NAMES = 200_000
"""Names from ripgrep that wait to be read. It is a hundred times faster than we are; this bounds the memory."""

MAX_UNSORTED = 2_000
"""Files with a match that ripgrep may name in any order, all its threads at work. With more the pattern is common: the
answer is full after the first few files in order, and ripgrep names them in order, with one thread (its `--sort`)."""

UNSORTED_SHARE = 0.75
"""Part of the time that is left which it may take so. The rest is for reading what it named by then."""

STDERR_BYTES = 1_024
"""Kept of what ripgrep says; nobody reads it but a person with a debugger."""

_OPTIONS = (
    # Nothing but the options here decides: no file of options, no program in front of the files.
    *("--no-config", "--no-messages", "--color=never"),
    # Everything beneath the directory but what its own ignore files and `.git` leave out, in a repository or not.
    *("--hidden", "--glob=!.git", "--no-require-git"),
    *("--no-ignore-global", "--no-ignore-parent", "--no-ignore-exclude"),
    # A mapped file that is cut short meanwhile ends ripgrep by SIGBUS.
    *("--no-mmap", "--regex-size-limit=100M", "--files-with-matches", "--null"),
)

_PLAIN_NAME = re.compile(r"[\w.*?-]+", re.ASCII)
"""A glob of one name that means the same everywhere."""


class SearchEngine(Protocol):
    """A way to find the files that a search looks into."""

    @property
    def name(self) -> str:
        """For the caller: `ripgrep` or `walk`."""
        ...

    async def search(self, findings: Findings) -> bool:
        """Fill `findings` in the order of the paths. False when this way is not possible here."""
        ...


class WalkEngine:
    """Our own walk: every file that is not ignored, one by one."""

    def __init__(self, roots: Roots, limiter: CapacityLimiter) -> None:
        self._roots = roots
        self._limiter = limiter

    @property
    def name(self) -> str:
        """For the caller."""
        return "walk"

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
    """ripgrep names the files in which something matches: a few more than we mean, never one less."""

    def __init__(self, roots: Roots, confined: ConfinedRunner, *, limits: Limits, limiter: CapacityLimiter) -> None:
        self._roots = roots
        self._confined = confined
        self._limits = limits
        self._limiter = limiter

    @property
    def name(self) -> str:
        """For the caller."""
        return "ripgrep"

    async def search(self, findings: Findings) -> bool:
        """Fill `findings` in the order of the paths. False when ripgrep is missing or could not do it."""
        names = _FileNames(MAX_UNSORTED)
        await self._list_files(findings.query, names)
        if names.failure is not None:
            raise names.failure
        if names.too_many:
            return await self._search_in_order(findings)
        if names.completed is None:
            return False
        found = sorted(await names.following(), key=_components)
        await self._read(findings, self._rules(findings.query), found)
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
        """Run ripgrep; its names arrive in `names` as it finds them."""
        share = 1.0 if order_words else UNSORTED_SHARE
        options = RunOptions(
            timeout_seconds=max(0.0, share * (query.deadline - time.monotonic())),
            keep_bytes=STDERR_BYTES,
            on_stdout=names.feed,
        )
        ignored = ("--no-ignore",) if query.include_ignored else ()
        size = f"--max-filesize={self._limits.file_bytes}"
        pattern = f"--regexp={query.pattern.ripgrep}"
        argv = ("rg", *_OPTIONS, *order_words, *ignored, size, *_type_options(query.glob), pattern, "--", "./")
        path = self._roots.shown(query.top)
        try:
            with ExitStack() as stack:
                directory, confined_thread = await anyio.to_thread.run_sync(
                    self._opened, path, stack, limiter=self._limiter
                )
                names.completed = await self._confined.run(
                    argv, cwd=directory, options=replace(options, confined_thread=confined_thread)
                )
        except CannotStart:
            pass  # it is not installed here: `completed` stays None
        except CoreError as error:
            names.failure = error
        finally:
            names.end()

    def _opened(self, path: str, stack: ExitStack) -> tuple[Directory, ConfinedThread | None]:
        """The directory to search, and what the kernel lets ripgrep read: its root and no more."""
        directory = stack.enter_context(open_directory(self._roots, path))
        return directory, self._confined.confined_thread("rg", readable_paths(directory))

    def _rules(self, query: Query) -> IgnoreRules | None:
        return None if query.include_ignored else ignore_rules(self._roots, query.top)

    async def _read(self, findings: Findings, rules: IgnoreRules | None, names: Sequence[bytes]) -> None:
        await anyio.to_thread.run_sync(_search_files, findings, rules, names, limiter=self._limiter)


def readable_paths(directory: Directory) -> tuple[Rule, ...]:
    """What the kernel lets ripgrep read: the root that the directory lies in."""
    return ((directory.place.root.fd, READ),)


def _search_files(findings: Findings, rules: IgnoreRules | None, names: Sequence[bytes]) -> None:
    """Look into files that ripgrep named, in their order."""
    query = findings.query
    for name in names:
        relative = name.removeprefix(b"./").decode("utf-8", "surrogateescape")
        # What it can't know: rules from above the directory searched, and globs that go beyond the name.
        if query.wanted(relative) and not (rules and rules.covers_any(beneath(query.top, relative))):
            findings.search_file(relative)
        if findings.is_complete:
            return


def _components(name: bytes) -> list[str]:
    """What a path is sorted by: as in our own walk, name by name."""
    return name.decode("utf-8", "surrogateescape").split("/")


def _succeeded(completed: Completed, names: "_FileNames") -> bool:
    if names.too_many:
        return False
    # 2 with names: some file could not be read. 2 without any: perhaps it refuses the pattern, perhaps every file was
    # ignored (measured with 13.0.0, which calls that an error); our own walk tells.
    return completed.exit_code in (0, 1) or (completed.exit_code == 2 and names.seen > 0)


def _type_options(glob: str) -> list[str]:
    """Options that keep ripgrep to the names that a glob can match; none when that is not plain.

    Its own `--glob` would bring back files that are ignored.
    """
    globs = [one.rstrip("/").rpartition("/")[2] for one in expand_braces(glob)]
    if glob.startswith("!") or not all(_PLAIN_NAME.fullmatch(one) and "**" not in one for one in globs):
        return []
    return [f"--type-add=wanted:{one}" for one in globs] + ["--type=wanted"]


class _FileNames:
    """The names that ripgrep writes, between the task that runs it and the one that reads the files."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.seen = 0
        self.too_many = False
        self.completed: Completed | None = None
        self.failure: CoreError | None = None
        self._rest = b""
        self._waiting: list[bytes] = []
        self._ended = False
        self._news = anyio.Event()

    def feed(self, piece: bytes) -> bool:
        """Take a piece of output; True when no more is wanted."""
        *whole, self._rest = (self._rest + piece).split(b"\0")
        self.seen += len(whole)
        self._waiting += whole
        self.too_many = self.too_many or len(self._waiting) > self._most
        self._news.set()
        return self.too_many

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._news.set()

    async def following(self) -> list[bytes]:
        """The next names; none at the end."""
        while not self._waiting and not self._ended:
            await self._news.wait()
            self._news = anyio.Event()
        batch, self._waiting = self._waiting, []
        return batch
