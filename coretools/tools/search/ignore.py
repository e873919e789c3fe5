"""Ignore files: which files a search leaves out because the repository says so.

`.gitignore`, `.ignore` and `.rgignore` beneath a root, with the rules and the precedence that ripgrep gives them, so
that a search with and without ripgrep sees the same files. Pure but for the function that it is given to look at
directories; nothing above the root is consulted.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from coretools.errors import InvalidArguments
from coretools.roots.file_version import Kind
from coretools.roots.path_globs import ComponentTest, component_pattern, component_tests, components_match
from coretools.tools.search.globs import CHARACTERS, expand_braces

KINDS = (".rgignore", ".ignore", ".gitignore")
"""Names of ignore files; what an earlier kind decides holds, wherever the file stands."""

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
    """Regular expressions of names, one of which fits the last name of whatever this speaks of; None for any name."""

    def fits(self, names: list[str], *, is_directory: bool) -> bool:
        """Whether it speaks of this entry itself, named from the directory of the ignore file on."""
        if self.directories_only and not is_directory:
            return False
        return any(components_match(names, tests) for tests in self.alternatives)


def parse_rules(text: str) -> tuple[IgnoreRule, ...]:
    """The rules of an ignore file (gitignore(5), and braces as ripgrep takes them), last first: the last one wins."""
    rules = (_rule(line) for line in text.removeprefix("\ufeff").split("\n"))
    return tuple(rule for rule in rules if rule is not None)[::-1]


class IgnoreRules:
    """Decides what lies beneath `start`; all paths are relative to one root, `.` for the root itself.

    `look` gives the texts of a directory's ignore files, as in KINDS; it is asked once for each. The entry at `start`
    is what the caller named, so it and what it stands in are never ignored; but rules from above it hold for what lies
    beneath it.
    """

    def __init__(self, start: str, look: ReadIgnoreFiles) -> None:
        self._depth = 0 if start == "." else start.count("/") + 1
        self._look = look
        self._chains: dict[tuple[str, ...], tuple[tuple[int, tuple[IgnoreRule, ...]], ...]] = {}
        self._loaded: dict[tuple[str, ...], tuple[tuple[IgnoreRule, ...], ...]] = {}
        self._directories: dict[tuple[str, ...], bool] = {}
        self._tests: dict[tuple[str, ...], Callable[[str], object]] = {}

    def chosen(self, directory: str, found: list[tuple[str, Kind]]) -> list[tuple[str, Kind]]:
        """What is not ignored of all that a directory holds."""
        above = () if directory == "." else tuple(directory.split("/"))
        names = dict(found).keys()
        if names.isdisjoint(KINDS):
            self._loaded[above] = ((),) * len(KINDS)
        if REPOSITORY in names:
            found = [one for one in found if one[0] != REPOSITORY]
        may_match = self._may_match(above)
        if may_match is None:
            return found
        return [
            (name, kind)
            for name, kind in found
            if not (may_match(name) and self._decided((*above, name), is_directory=kind == "directory"))
        ]

    def covers(self, path: str, *, is_directory: bool) -> bool:
        """Whether this entry is ignored itself; the directories that it stands in are not asked."""
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
        """Whether this file, or a directory between it and `start`, is ignored."""
        names = tuple(path.split("/"))
        for length in range(self._depth + 1, len(names)):
            above = names[:length]
            if above not in self._directories:
                self._directories[above] = self.covers("/".join(above), is_directory=True)
            if self._directories[above]:
                return True
        return self.covers(path, is_directory=False)

    def _may_match(self, directory: tuple[str, ...]) -> Callable[[str], object] | None:
        """A test whether any rule can speak of a name in a directory: most names pass a hundred rules at once."""
        rules = [rule for _, some in self._chain(directory) for rule in some]
        if any(rule.names is None for rule in rules):
            return lambda _: True
        key = tuple(dict.fromkeys(name for rule in rules for name in rule.names or ()))
        if key and key not in self._tests:
            self._tests[key] = re.compile("|".join(key)).match
        return self._tests.get(key)

    def _chain(self, directory: tuple[str, ...]) -> tuple[tuple[int, tuple[IgnoreRule, ...]], ...]:
        """The rules that may speak of the entries of a directory, first to decide first, with their files' depth."""
        if directory not in self._chains:
            depths = range(len(directory), -1, -1)
            # What stands at or beneath `start` decides first, of whatever kind: it is all that ripgrep sees.
            first = len(directory) - self._depth + 1
            self._chains[directory] = tuple(
                (depth, rules)
                for some in (depths[:first], depths[first:])
                for kind in range(len(KINDS))
                for depth in some
                if (rules := self._load(directory[:depth])[kind])
            )
        return self._chains[directory]

    def _load(self, directory: tuple[str, ...]) -> tuple[tuple[IgnoreRule, ...], ...]:
        if directory not in self._loaded:
            texts = self._look("/".join(directory) or ".")
            self._loaded[directory] = tuple(parse_rules(text) if text else () for text in texts)
        return self._loaded[directory]


def _rule(line: str) -> IgnoreRule | None:
    line = _trimmed(line)
    if line.startswith("#") or len(line) > CHARACTERS:
        return None
    ignored = not line.startswith("!")
    # The only escape that means something to what splits a path into components.
    glob = _ESCAPED.sub(lambda found: "/" if found[0] == "\\/" else found[0], line.removeprefix("!"))
    directories_only = glob.endswith("/")
    anchored = "/" in glob.removesuffix("/")
    try:
        globs = expand_braces(glob.removesuffix("/").removeprefix("/"), escape="\\")
        return _compiled(globs, ignored, directories_only=directories_only, anchored=anchored)
    except InvalidArguments:
        return None


def _trimmed(line: str) -> str:
    """The line without white space at its end; a space with a backslash before it stays."""
    trimmed = line.removesuffix("\r").rstrip()
    backslashes = len(trimmed) - len(trimmed.rstrip("\\"))
    return trimmed + " " if backslashes % 2 and line.startswith(" ", len(trimmed)) else trimmed


def _compiled(globs: list[str], ignored: bool, *, directories_only: bool, anchored: bool) -> IgnoreRule | None:
    parts = [some for one in globs if all(some := one.split("/"))]
    tests = tuple(component_tests(some if anchored else ("**", *some), as_git=True) for some in parts)
    is_any = any(some[-1] == "**" for some in parts)
    names = None if is_any else tuple(component_pattern(some[-1], as_git=True) for some in parts)
    return IgnoreRule(ignored, directories_only, tests, names) if tests else None
