"""What stays closed inside a root, for reads and for changes alike: deny globs, and names that are suspect. Pure.

A glob closes by name. A name that is suspect closes nothing by itself: what the file holds decides (`secret_check`).

A glob holds at any depth, one that begins with `/` at the top of each root only. `*`, `?` and `[...]` stay inside a
name; `**` is any number of directories. Whatever lies beneath a covered directory is covered. A glob that begins with
`!` opens again what an earlier one closed, unless a directory above it is closed. The last glob that matches decides.

Letters match in both cases: beneath a root there may be a mount that ignores case (vfat, CIFS, a Windows drive), where
`.ENV` is another spelling of `.env`. Nothing else is folded.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from coretools.errors import BadSetting, InvalidArguments
from coretools.roots import secret_files
from coretools.roots.path_globs import ANY_NUMBER, ComponentTest, component_pattern, component_tests, components_match

DEFAULT_DENY: tuple[str, ...] = (
    # Directories that hold nothing but secrets.
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".config/gh",
    # What git runs or takes its credentials from, in submodules and worktrees too.
    ".git/config",
    ".git/config.worktree",
    ".git/hooks/**",
    ".git/modules/**/config",
    ".git/modules/**/hooks/**",
    ".git/worktrees/**/config.worktree",
)

_CACHED_NAMES = 8192
"""Names whose verdict is remembered; a walk meets the same ones again and again."""


@dataclass(frozen=True, slots=True)
class _DenyRule:
    glob: str
    denies: bool
    whole: Sequence[ComponentTest]
    """Fit the paths that the glob names."""
    above: Sequence[Sequence[ComponentTest]]
    """Fit the directories whose names are part of the glob; none for a glob of one name."""
    key: str
    """Regular expression of one name without which no path can match."""


class DenyRules:
    """Decides by the text of a path beneath a root whether it is closed. The path must hold no `..`."""

    def __init__(self, globs: Sequence[str], *, by_content: bool = True) -> None:
        """`by_content`: files whose names are suspect are closed when they hold a secret."""
        self._is_by_content = by_content
        self._rules = [_rule(glob) for glob in globs]
        keys = "|".join(rule.key for rule in self._rules if rule.denies) or r"(?!)"
        matches = re.compile(keys, re.IGNORECASE).fullmatch
        # A path none of whose names is suspect is free: one look-up for each name instead of every rule.
        self._is_suspect = lru_cache(_CACHED_NAMES)(lambda name: matches(name) is not None)

    def denying_glob(self, relative_path: str) -> str | None:
        """The glob that closes this path, None when it is open."""
        parts = relative_path.split("/")
        if not any(map(self._is_suspect, parts)):
            return None
        for end in range(1, len(parts) + 1):
            glob = self._verdict(parts[:end])
            if glob is not None:
                return glob
        return None

    @property
    def may_deny(self) -> Callable[[str], bool]:
        """Whether a path can be covered because this name is in it; without such a name none is."""
        return self._is_suspect

    def secret_format(self, relative_path: str) -> str:
        """The format for which the content of this file decides; "" when its name tells nothing, or a glob opens it."""
        kind = secret_files.secret_format_of(relative_path) if self._is_by_content else ""
        if kind:
            names = relative_path.split("/")
            decides = next((rule for rule in reversed(self._rules) if components_match(names, rule.whole)), None)
            return kind if decides is None or decides.denies else ""
        return ""

    def name_dependent_glob(self, relative_path: str) -> str | None:
        """The glob that closes something beneath this directory because of the directory's name, None without one.

        Such a directory can't be moved, and nothing can be moved to its place: `.git/config` would be open under
        another name, or come to stand where it is closed.
        """
        names = relative_path.split("/")
        for rule in self._rules:
            if rule.denies and any(components_match(names, tests) for tests in rule.above):
                return rule.glob
        return f"{names[-1]}/*" if self._is_by_content and secret_files.is_significant_directory(names[-1]) else None

    def _verdict(self, names: list[str]) -> str | None:
        for rule in reversed(self._rules):
            if components_match(names, rule.whole):
                return rule.glob if rule.denies else None
        return None


def _rule(glob: str) -> _DenyRule:
    denies = not glob.startswith("!")
    text = glob if denies else glob[1:]
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise BadSetting(f"deny glob {glob!r}: names nothing beneath a root")
    keys = [part for part in parts if part.strip("*")]
    try:
        tests = component_tests(parts, flags=re.IGNORECASE)
        # The first name that is not all wildcard is as good as any other.
        key = component_pattern(keys[0]) if keys else "(?s:.*)"
    except InvalidArguments as error:
        raise BadSetting(f"deny {error}") from error
    start = [] if text.startswith("/") else [ANY_NUMBER]
    return _DenyRule(
        glob=glob,
        denies=denies,
        whole=[*start, *tests],
        above=[[*start, *tests[:end]] for end in range(1, len(parts))],
        key=key,
    )
