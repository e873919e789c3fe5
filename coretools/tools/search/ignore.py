"""Apply ignore files: which files a search skips, and the entries of a tree that it covers.

`.gitignore`, `.ignore` and `.rgignore` beneath a root follow the rules and the precedence of ripgrep, so a search
covers the same files with and without ripgrep. Nothing above the root is read.

Here: lines, negation, precedence. The wildcards of a line, `*`, `?` and the character class `[!a-z]`, are translated
in `coretools.roots.path_globs` (`component_pattern`, `as_git=True`); braces in `coretools.tools.search.globs`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coretools.errors import CoreError, InvalidArguments
from coretools.roots import directory_access
from coretools.roots.directory_listing import WalkBatch, WalkEntry, walk_batches
from coretools.roots.file_version import Kind
from coretools.roots.path_globs import ComponentTest, component_pattern, component_tests, components_match
from coretools.roots.read import open_directory
from coretools.roots.root import RootedPath, join_path
from coretools.roots.root_set import Roots
from coretools.tools.search.globs import CHARACTERS, expand_braces

KINDS = (".rgignore", ".ignore", ".gitignore")
"""Names of ignore files. An earlier kind takes precedence, wherever the file is."""

REPOSITORY = ".git"
"""Never searched."""

_ESCAPED = re.compile(r"\\.")

ReadIgnoreFiles = Callable[[str], tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of an ignore file."""

    ignored: bool
    directories_only: bool
    alternatives: tuple[list[ComponentTest], ...]
    names: tuple[str, ...] | None
    """Regular expressions, one of which matches the last name of every path that this rule can match; None for any."""

    def fits(self, names: list[str], *, is_directory: bool) -> bool:
        """Whether the rule matches this entry itself, by its path relative to the ignore file."""
        if self.directories_only and not is_directory:
            return False
        return any(components_match(names, tests) for tests in self.alternatives)


def parse_rules(text: str) -> tuple[IgnoreRule, ...]:
    """Parse an ignore file (gitignore(5), with braces as in ripgrep). The last rule comes first, as it wins."""
    rules = (_rule(line) for line in text.removeprefix("\ufeff").split("\n"))
    return tuple(rule for rule in rules if rule is not None)[::-1]


class IgnoreRules:
    """Decides what lies beneath `start`; all paths are relative to one root, `.` for the root itself.

    `read_ignore_files` returns the texts of a directory's ignore files, as in KINDS; it is called once for each
    directory. The entry at `start` is what the caller named, so it and its parent directories are never ignored; but
    rules from above it apply to what lies beneath it.
    """

    def __init__(self, start: str, read_ignore_files: ReadIgnoreFiles) -> None:
        self._depth = 0 if start == "." else start.count("/") + 1
        self._read_ignore_files = read_ignore_files
        self._chains: dict[tuple[str, ...], tuple[tuple[int, tuple[IgnoreRule, ...]], ...]] = {}
        self._loaded: dict[tuple[str, ...], tuple[tuple[IgnoreRule, ...], ...]] = {}
        self._directories: dict[tuple[str, ...], bool] = {}
        self._tests: dict[tuple[str, ...], Callable[[str], object]] = {}

    def chosen(self, directory: str, entries: list[tuple[str, Kind]]) -> list[tuple[str, Kind]]:
        """Return the entries of a directory that are not ignored."""
        above = () if directory == "." else tuple(directory.split("/"))
        names = dict(entries).keys()
        if names.isdisjoint(KINDS):
            self._loaded[above] = ((),) * len(KINDS)
        if REPOSITORY in names:
            entries = [entry for entry in entries if entry[0] != REPOSITORY]
        may_match = self._may_match(above)
        if may_match is None:
            return entries
        return [
            (name, kind)
            for name, kind in entries
            if not (may_match(name) and self._decided((*above, name), is_directory=kind == "directory"))
        ]

    def covers(self, path: str, *, is_directory: bool) -> bool:
        """Whether this entry itself is ignored; its parent directories are not checked."""
        names = tuple(path.split("/"))
        return names[-1] == REPOSITORY or self._decided(names, is_directory=is_directory)

    def _decided(self, names: tuple[str, ...], *, is_directory: bool) -> bool:
        for depth, rules in self._chain(names[:-1]):
            beneath = list(names[depth:])
            for rule in rules:
                if rule.fits(beneath, is_directory=is_directory):
                    return rule.ignored
        return False

    def covers_any(self, path: str) -> bool:
        """Whether this file or a directory between it and `start` is ignored."""
        names = tuple(path.split("/"))
        for length in range(self._depth + 1, len(names)):
            above = names[:length]
            if above not in self._directories:
                self._directories[above] = self.covers("/".join(above), is_directory=True)
            if self._directories[above]:
                return True
        return self.covers(path, is_directory=False)

    def _may_match(self, directory: tuple[str, ...]) -> Callable[[str], object] | None:
        """Return a predicate whether any rule can match a name in a directory: it checks most names in one step."""
        rules = [rule for _, some in self._chain(directory) for rule in some]
        if any(rule.names is None for rule in rules):
            return lambda _: True
        key = tuple(dict.fromkeys(name for rule in rules for name in rule.names or ()))
        if key and key not in self._tests:
            self._tests[key] = re.compile("|".join(key)).match
        return self._tests.get(key)

    def _chain(self, directory: tuple[str, ...]) -> tuple[tuple[int, tuple[IgnoreRule, ...]], ...]:
        """Return the rules for the entries of a directory in order of precedence, with the depth of their files."""
        if directory not in self._chains:
            depths = range(len(directory), -1, -1)
            # Files at or beneath `start` take precedence, whatever their kind: ripgrep sees only those.
            first = len(directory) - self._depth + 1
            loaded = {depth: self._load(directory[:depth]) for depth in depths}
            self._chains[directory] = tuple(
                (depth, rules)
                for some in (depths[:first], depths[first:])
                for kind in range(len(KINDS))
                for depth in some
                if (rules := loaded[depth][kind])
            )
        return self._chains[directory]

    def _load(self, directory: tuple[str, ...]) -> tuple[tuple[IgnoreRule, ...], ...]:
        if directory not in self._loaded:
            texts = self._read_ignore_files("/".join(directory) or ".")
            self._loaded[directory] = tuple(parse_rules(text) if text else () for text in texts)
        return self._loaded[directory]


def _rule(line: str) -> IgnoreRule | None:
    line = _trimmed(line)
    if line.startswith("#") or len(line) > CHARACTERS:
        return None
    ignored = not line.startswith("!")
    # The only escape that affects splitting a path into components.
    glob = _ESCAPED.sub(lambda match: "/" if match[0] == "\\/" else match[0], line.removeprefix("!"))
    directories_only = glob.endswith("/")
    anchored = "/" in glob.removesuffix("/")
    try:
        globs = expand_braces(glob.removesuffix("/").removeprefix("/"), escape="\\")
        return _compiled(globs, ignored, directories_only=directories_only, anchored=anchored)
    except InvalidArguments:
        return None


def _trimmed(line: str) -> str:
    """Strip trailing white space; a space after a backslash stays."""
    trimmed = line.removesuffix("\r").rstrip()
    backslashes = len(trimmed) - len(trimmed.rstrip("\\"))
    return trimmed + " " if backslashes % 2 and line.startswith(" ", len(trimmed)) else trimmed


def _compiled(globs: list[str], ignored: bool, *, directories_only: bool, anchored: bool) -> IgnoreRule | None:
    parts = [some for glob in globs if all(some := glob.split("/"))]
    tests = tuple(component_tests(some if anchored else ("**", *some), as_git=True) for some in parts)
    is_any = any(some[-1] == "**" for some in parts)
    names = None if is_any else tuple(component_pattern(some[-1], as_git=True) for some in parts)
    return IgnoreRule(ignored, directories_only, tests, names) if tests else None


RULES_BYTES = 1024 * 1024
"""Largest ignore file; a larger one is disregarded."""

ENTRIES_MOST = 2_000_000
"""Most entries of one walk. The deadline is reached earlier on any disk."""


def ignore_rules(roots: Roots, top: RootedPath) -> IgnoreRules:
    """Return the ignore rules for everything beneath `top`; the files are read beneath its root on demand."""

    def read_ignore_files(relative: str) -> tuple[str | None, ...]:
        try:
            with open_directory(roots, roots.display_path(RootedPath(top.root, relative))) as directory:
                return tuple(_ignore_file(directory.fd, kind) for kind in KINDS)
        except CoreError:
            return (None,) * len(KINDS)

    return IgnoreRules(top.relative, read_ignore_files)


def _ignore_file(directory: int, name: str) -> str | None:
    """Return the text of an ignore file. Links are disregarded, and a FIFO is never opened."""
    if directory_access.entry_kind(directory, name) != "file":
        return None
    try:
        return directory_access.read_file(directory, name, limit_bytes=RULES_BYTES).decode("utf-8", "replace")
    except CoreError:
        return None


def entries_beneath(roots: Roots, top: RootedPath, *, include_ignored: bool) -> Iterator[WalkEntry]:
    """Every entry beneath `top` with its path from there, sorted. `.git` never."""
    for above, run in runs_beneath(roots, top, include_ignored=include_ignored):
        for name, kind in run:
            yield above + name, kind


def runs_beneath(roots: Roots, top: RootedPath, *, include_ignored: bool) -> Iterator[WalkBatch]:
    """The same in runs of neighbours."""
    choose: Callable[[str, list[WalkEntry]], list[WalkEntry]] = _all_but_repositories
    if not include_ignored:
        choose = ignore_rules(roots, top).chosen
    length = 0 if top.relative == "." else len(top.relative) + 1
    for above, run in walk_batches(roots, roots.display_path(top), choose=choose, most=ENTRIES_MOST):
        yield above[length:], run


def _all_but_repositories(_: str, entries: list[WalkEntry]) -> list[WalkEntry]:
    return [entry for entry in entries if entry[0] != REPOSITORY]


def beneath(top: RootedPath, relative: str) -> str:
    """Convert a path relative to `top` to one relative to its root."""
    return join_path(top.relative, relative)
