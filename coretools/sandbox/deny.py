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

from coretools.errors import BadSetting
from coretools.sandbox import secret_files

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
"""Names whose suspicion is remembered; a walk meets the same ones again and again."""


@dataclass(frozen=True, slots=True)
class _Rule:
    glob: str
    denies: bool
    whole: re.Pattern[str]
    """Matches the paths that the glob names."""
    above: re.Pattern[str] | None
    """Matches the directories whose names are part of the glob; None for a glob of one name."""
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

    def covers(self, relative_path: str) -> str | None:
        """The glob that closes this path, None when it is open."""
        parts = relative_path.split("/")
        if not any(map(self._is_suspect, parts)):
            return None
        for end in range(1, len(parts) + 1):
            glob = self._verdict("/".join(parts[:end]))
            if glob is not None:
                return glob
        return None

    @property
    def may_cover(self) -> Callable[[str], bool]:
        """Whether a path can be covered because this name is in it; without such a name none is."""
        return self._is_suspect

    def suspicion(self, relative_path: str) -> str:
        """The format for which the content of this file decides; "" when its name tells nothing, or a glob opens it."""
        kind = secret_files.suspicion_of(relative_path) if self._is_by_content else ""
        if kind:
            decides = next((rule for rule in reversed(self._rules) if rule.whole.fullmatch(relative_path)), None)
            return kind if decides is None or decides.denies else ""
        return ""

    def hangs_on(self, relative_path: str) -> str | None:
        """The glob that closes something beneath this directory because of the directory's name, None without one.

        Such a directory can't be moved, and nothing can be moved to its place: `.git/config` would be open under
        another name, or come to stand where it is closed.
        """
        for rule in self._rules:
            if rule.denies and rule.above is not None and rule.above.fullmatch(relative_path):
                return rule.glob
        name = relative_path.rpartition("/")[2]
        return f"{name}/*" if self._is_by_content and secret_files.hangs_on(name) else None

    def _verdict(self, path: str) -> str | None:
        for rule in reversed(self._rules):
            if rule.whole.fullmatch(path):
                return rule.glob if rule.denies else None
        return None


def _rule(glob: str) -> _Rule:
    denies = not glob.startswith("!")
    text = glob if denies else glob[1:]
    start = "" if text.startswith("/") else "(?:.*/)?"
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise BadSetting(f"deny glob {glob!r}: names nothing beneath a root")
    stems = [start + _pattern(parts[:end]) for end in range(1, len(parts))]
    keys = [part for part in parts if part.strip("*")]
    return _Rule(
        glob=glob,
        denies=denies,
        whole=_compiled(start + _pattern(parts), glob),
        above=_compiled("|".join(stems), glob) if stems else None,
        # The first name that is not all wildcard is as good as any other.
        key=_name_pattern(keys[0]) if keys else ".*",
    )


def _compiled(pattern: str, glob: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE | re.DOTALL)
    except re.error as error:
        raise BadSetting(f"deny glob {glob}: {error}") from error


def _pattern(parts: list[str]) -> str:
    """Regular expression of a path; `**` at the end is one name or more, elsewhere any number of them."""
    pieces = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            pieces.append(".+" if last else "(?:.*/)?")
        else:
            pieces.append(_name_pattern(part) + ("" if last else "/"))
    return "".join(pieces)


def _name_pattern(part: str) -> str:
    pieces = []
    position = 0
    while position < len(part):
        character = part[position]
        end = part.find("]", position + 2) if character == "[" else -1
        if end > 0:
            pieces.append(_set_pattern(part[position + 1 : end]))
            position = end
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]"}.get(character) or re.escape(character))
        position += 1
    return "".join(pieces)


def _set_pattern(inside: str) -> str:
    """`[abc]`, `[a-z]` and `[!a]` of a glob as a regular expression."""
    negated = inside.startswith(("!", "^"))
    body = inside[1:] if negated else inside
    body = body.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    body = re.sub(r"([&~|])(?=\1)", r"\\\1", body)
    return f"(?!/)[{'^' if negated else ''}{body}]"
