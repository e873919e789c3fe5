"""Decide which files are hidden from tools and commands: by deny globs, by names that suggest a secret, by inode.

A deny glob closes a path by its name. A name that suggests a secret closes nothing by itself: the content of the file
decides (`secret_check`). A hidden file is remembered by its inode and stays hidden under any name.

A glob matches at any depth; one that begins with `/` matches at the top of each root only. `*`, `?` and `[...]` stay
within a component; `**` is any number of directories. Everything beneath a matching directory matches. A glob that
begins with `!` allows again what an earlier one denied, unless a parent directory is denied. The last matching glob
decides.

Matching ignores case: a mount beneath a root may do so too (vfat, CIFS, a Windows drive), and `.ENV` then names `.env`.
Nothing else is folded.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from coretools.errors import BadSetting, InvalidArguments
from coretools.roots.path_globs import ANY_NUMBER, ComponentTest, component_pattern, component_tests, components_match
from coretools.roots.secret_names import CACHED_NAMES, is_significant_directory, secret_format_of

DEFAULT_DENY: tuple[str, ...] = (
    # Directories that contain only secrets.
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    # What git runs or takes credentials from, in submodules and worktrees too.
    ".git/config",
    ".git/config.worktree",
    ".git/hooks/**",
    ".git/modules/**/config",
    ".git/modules/**/hooks/**",
    ".git/worktrees/**/config.worktree",
)


@dataclass(frozen=True, slots=True)
class _DenyRule:
    glob: str
    denies: bool
    whole: Sequence[ComponentTest]
    """Match the paths that the glob names."""
    above: Sequence[Sequence[ComponentTest]]
    """Match the directories whose names are part of the glob; none for a glob of one component."""
    key: str
    """Regular expression of a component that every matching path contains."""


class DenyRules:
    """Decides by the text of a path beneath a root whether it is denied. The path must not contain `..`."""

    def __init__(self, globs: Sequence[str], *, by_content: bool = True, own: Sequence[str] = ()) -> None:
        """`by_content`: files whose names suggest a secret are denied when they contain one.

        `own` close our own state: they come last, so that no glob opens it again.
        """
        self._is_by_content = by_content
        self._globs = tuple(globs)
        self._own = [_rule(glob) for glob in own]
        self._rules = [*map(_rule, globs), *self._own]
        keys = "|".join(rule.key for rule in self._rules if rule.denies) or r"(?!)"
        matches = re.compile(keys, re.IGNORECASE).fullmatch
        # A path without such a component is allowed: one cached lookup per component instead of all rules.
        self._is_suspect = lru_cache(CACHED_NAMES)(lambda name: matches(name) is not None)

    def with_own(self, globs: Sequence[str]) -> "DenyRules":
        """Return these rules with globs that close our own state."""
        return DenyRules(self._globs, by_content=self._is_by_content, own=globs) if globs else self

    def covers_own_state(self, glob: str) -> bool:
        """Whether a glob closes our own state."""
        return any(rule.glob == glob for rule in self._own)

    def denying_glob(self, relative_path: str) -> str | None:
        """The glob that denies this path, or None if it is allowed."""
        parts = relative_path.split("/")
        if not any(map(self._is_suspect, parts)):
            return None
        # From the top: what lies in a denied directory is denied, whatever later rules say of it.
        for end in range(1, len(parts) + 1):
            rule = self._deciding_rule(parts[:end])
            if rule is not None and rule.denies:
                return rule.glob
        return None

    @property
    def may_deny(self) -> Callable[[str], bool]:
        """Whether a path with this component can be denied; without such a component none is."""
        return self._is_suspect

    def secret_format(self, relative_path: str, otherwise: str = "") -> str:
        """The secret format that the file's name suggests; "" if a glob allows the file, `otherwise` for most names."""
        kind = (secret_format_of(relative_path) or otherwise) if self._is_by_content else ""
        rule = self._deciding_rule(relative_path.split("/")) if kind else None
        return kind if rule is None or rule.denies else ""

    def name_dependent_glob(self, relative_path: str) -> str | None:
        """The glob that denies something beneath this directory because of the directory's name, or None.

        Such a directory cannot be moved, and nothing can be moved to its place: `.git/config` would be readable under
        another name, or be created where it is denied.
        """
        names = relative_path.split("/")
        for rule in self._rules[: len(self._globs)]:
            if rule.denies and any(components_match(names, tests) for tests in rule.above):
                return rule.glob
        return f"{names[-1]}/*" if self._is_by_content and is_significant_directory(names[-1]) else None

    def _deciding_rule(self, names: list[str]) -> _DenyRule | None:
        """Return the last rule that matches, as in gitignore(5)."""
        return next((rule for rule in reversed(self._rules) if components_match(names, rule.whole)), None)


def _rule(glob: str) -> _DenyRule:
    denies = not glob.startswith("!")
    text = glob if denies else glob[1:]
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise BadSetting(f"deny glob {glob!r}: names nothing beneath a root")
    keys = [part for part in parts if part.strip("*")]
    try:
        tests = component_tests(parts, flags=re.IGNORECASE)
        # Any component that is not all wildcard will do; take the first.
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
