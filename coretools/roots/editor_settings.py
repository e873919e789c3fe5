"""Settings that editors and agents act on when they open a directory: no tool changes those that exist.

Such a file can start programs outside the sandbox: tasks on opening a folder, servers of `.mcp.json`, hooks. People
open the top of a root, and the top of any repository or work tree in it, which is a directory with a `.git`. What
exists there is changed only where the operator allows it. New settings can be created, and the result names them. The
same holds for commands, where the mount namespace enforces it.
"""

import os
import posixpath
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress

from coretools.errors import CoreError, DeniedPath
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.file_version import version_of
from coretools.roots.git_layout import entry_exists, folded
from coretools.roots.resolve import resolve
from coretools.roots.root import Directory, ResolvedPath, Root, RootedPath, identity_of, join_path
from coretools.roots.root_set import Roots

NAMES = frozenset(
    (
        # Editors: tasks, hooks and containers that start on opening, and paths of interpreters and language servers.
        *(".vscode", ".idea", ".zed", ".helix", ".devcontainer", ".devcontainer.json"),
        # Vim runs these of a directory where the user has set 'exrc'.
        *(".exrc", ".vimrc"),
        # Agents: commands of MCP servers, hooks, plugins, linters and notifications.
        *(".mcp.json", ".claude", ".codex", ".gemini", ".qwen", ".cursor", ".windsurf", ".kiro", ".amazonq", ".trae"),
        *(".roo", ".kilocode", ".clinerules", ".continue", ".junie", ".factory", ".aider.conf.yml"),
        *(".opencode", "opencode.json", "opencode.jsonc", ".crush.json", "crush.json"),
        *(".github/hooks", ".github/copilot"),
    )
)
"""Paths relative to the top, in lower case.

Not here: instructions, which start nothing (`AGENTS.md`, `CLAUDE.md`, `.cursorrules`); what its program runs only after
the user has approved this very content (`.envrc`, `.nvim.lua`, `.dir-locals.el`); and what an agent is asked to edit,
which runs when somebody works in the project (`Makefile`, `package.json`, `mise.toml`).
"""

NESTING = frozenset(name.partition("/")[0] for name in NAMES if "/" in name)
"""Directories in which some of them lie."""

_WORKSPACE = ".code-workspace"
"""Ending of a file that VS Code opens as a folder, with settings and tasks."""

MAX_FILES = 1_000
"""Most files of one setting whose states are compared: they have some dozens."""

WAY_OUT = (
    "ask the user to do it; the operator allows it to tools and commands with --allow-editor-settings "
    '(CORETOOLS_ALLOW_EDITOR_SETTINGS=1; editor_settings = "allow" in [files] of the policy file)'
)
"""What works instead of a change that is refused."""


def setting_of(path: str) -> str:
    """The setting that a path, relative to a top, is or lies in; "" for nearly all. By its text, in any case."""
    first, _, rest = path.partition("/")
    name = folded(first)
    if name in NAMES or name.endswith(_WORKSPACE):
        return first
    second = rest.partition("/")[0]
    return f"{first}/{second}" if second and f"{name}/{folded(second)}" in NAMES else ""


def link_target(roots: Roots, root: Root, top: str, path: str) -> str:
    """Where a path in a root leads, links followed, if that is beneath a top of the same root; else ""."""
    with suppress(CoreError), resolve(roots, join_path(root.path, path)) as resolved:
        target = resolved.place
        if target.root is root and target.relative != top and _lies_in(target.relative, top):
            return target.relative
    return ""


def existing_settings(roots: Roots, root: Root, top: str) -> list[str]:
    """The settings that exist at a top, and what links among them lead to beneath the top, as paths in the root."""
    paths: dict[str, None] = {}
    for name in NAMES:
        path = join_path(top, name)
        try:
            status = os.stat(path, dir_fd=root.fd, follow_symlinks=False)
        except OSError:
            continue
        paths[path] = None
        if (stat.S_ISLNK(status.st_mode) or "/" in name) and (target := link_target(roots, root, top, path)):
            paths[target] = None
    return list(paths)


class SettingsFinder:
    """Finds the settings that paths lead to. Remembers what it met, so each call needs one of its own."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._tops: dict[tuple[str, str], tuple[str, ...]] = {}
        self._existing: dict[tuple[str, str], list[str]] = {}

    def existing(self, place: RootedPath, *, is_removed: bool = True) -> list[str]:
        """The existing settings that a change of a place changes, as paths in the root.

        `is_removed`: what is at the place is removed or replaced, with everything beneath it.
        """
        path = place.relative
        known = [setting for top in self._tops_above(place) for setting in self._existing_at(place.root, top)]
        met = (one for one in known if path == one or _lies_in(path, one) or (is_removed and _lies_in(one, path)))
        own = (setting for setting in self._named(place) if entry_exists(place.root.fd, setting))
        return list(dict.fromkeys((*own, *met)))

    def tops_with_settings(self, place: RootedPath) -> list[str]:
        """The tops of which a place is or lies in a setting, existing or not."""
        return [top for top in self._tops_above(place) if setting_of(beneath(place.relative, top))]

    def _named(self, place: RootedPath) -> list[str]:
        """The settings that a place is or lies in by its text, as it spells them."""
        tops = self.tops_with_settings(place)
        return [join_path(top, setting_of(beneath(place.relative, top))) for top in tops]

    def _tops_above(self, place: RootedPath) -> tuple[str, ...]:
        """The directories above a place that people open: the root, and each one with a `.git`."""
        path, unknown = place.relative, list[str]()
        if path == ".":
            return ()
        while path != "." and (place.root.path, path := posixpath.dirname(path) or ".") not in self._tops:
            unknown.append(path)
        tops = self._tops.get((place.root.path, path), ())
        for directory in reversed(unknown):
            if directory == "." or entry_exists(place.root.fd, f"{directory}/.git"):
                tops = (*tops, directory)
            self._tops[place.root.path, directory] = tops
        return tops

    def _existing_at(self, root: Root, top: str) -> list[str]:
        key = root.path, top
        if key not in self._existing:
            self._existing[key] = existing_settings(self._roots, root, top)
        return self._existing[key]


def protected_settings(roots: Roots, places: Iterable[RootedPath], *, is_removed: bool = True) -> list[str]:
    """The existing settings that no tool may change and that changes of these places would change, as callers see them.

    Empty where the operator allows such changes. `is_removed`: see `SettingsFinder.existing`.
    """
    if roots.changes_settings:
        return []
    finder = SettingsFinder(roots)
    settings = {
        (place.root.path, setting): RootedPath(place.root, setting)
        for place in places
        for setting in finder.existing(place, is_removed=is_removed)
    }
    return [roots.display_path(settings[key]) for key in sorted(settings)]


def require_no_existing_settings(roots: Roots, resolved: ResolvedPath, *, is_removed: bool = False) -> None:
    """Refuse to change existing settings; `is_removed` as in `protected_settings`.

    Raises:
        DeniedPath.
    """
    settings = protected_settings(roots, [resolved.place], is_removed=is_removed)
    if settings:
        raise DeniedPath(
            f"{resolved.display_path}: editors and agents act on {', '.join(settings)} when they open the directory,"
            f" and tools change no such settings that exist; {WAY_OUT}",
            path=resolved.display_path,
        )


def settings_at(roots: Roots, path: str) -> list[str]:
    """The existing settings that a path is, lies in or contains, as callers see them; usually none.

    Raises:
        What `resolve` raises.
    """
    with resolve(roots, path, follow=False) as resolved:
        settings = SettingsFinder(roots).existing(resolved.place)
        return [roots.display_path(RootedPath(resolved.root, setting)) for setting in settings]


def new_settings_note(roots: Roots, settings: Iterable[str]) -> str:
    """The sentence about settings that a tool created or changed."""
    stays = "" if roots.changes_settings else "; tools do not change or delete what exists there"
    return f"editors and agents act on {', '.join(settings)} when they open the directory: tell the user{stays}"


class SettingsSnapshot:
    """The settings in a directory, and in the tops beneath it that matter, as they are at one moment."""

    def __init__(self, roots: Roots, directory: Directory) -> None:
        """Take the state in the directory itself and in the roots beneath it."""
        self.roots = roots
        self._directory = directory
        self._state = self._state_at(directory.fd, ".")
        self._beneath: dict[tuple[Root, str], dict[str, tuple[int, ...]]] = {}
        for root in roots:
            if root.path.startswith(f"{directory.path}/"):
                self._beneath[root, "."] = self._state_at(root.fd, ".")

    def add(self, places: Iterable[RootedPath]) -> None:
        """Add the state at tops further down, to which settings at these places belong."""
        finder = SettingsFinder(self.roots)
        own = self._directory.place
        for place in places:
            for top in finder.tops_with_settings(place):
                if (place.root, top) != (own.root, own.relative) and (place.root, top) not in self._beneath:
                    self._beneath[place.root, top] = self._state_at(place.root.fd, top)

    def changed(self) -> list[str]:
        """What is new or changed since, as callers see it; of a new directory only the directory."""
        # By its descriptor: the directory may have got another name.
        own = _changed(self._state, self._state_at(self._directory.fd, "."))
        changed = [join_path(self._directory.display_path, path) for path in own]
        for (root, top), before in self._beneath.items():
            shown = self.roots.display_path(RootedPath(root, top))
            changed += [join_path(shown, path) for path in _changed(before, self._state_at(root.fd, top))]
        return changed

    def _state_at(self, fd: int, top: str) -> dict[str, tuple[int, ...]]:
        with suppress(OSError):
            opened = self.roots.resolver.open(fd, top, DIRECTORY)
            try:
                return settings_state(self.roots, opened, {*NAMES, *filter(setting_of, os.listdir(opened))})
            finally:
                os.close(opened)
        return {}


def _changed(before: Mapping[str, tuple[int, ...]], now: Mapping[str, tuple[int, ...]]) -> list[str]:
    new = {path for path, state in now.items() if before.get(path) != state}
    return sorted(path for path in new if posixpath.dirname(path) not in new)


def settings_state(roots: Roots, top: int, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """State of settings at an open directory, and of all that is in them; it differs after any change.

    By path relative to the directory. Without the content of settings with more than `MAX_FILES` files, and of
    repositories and work trees in them.
    """
    states: dict[str, tuple[int, ...]] = {}
    for name in names:
        own: dict[str, tuple[int, ...]] = {}
        waiting = [name]
        while waiting and len(own) <= MAX_FILES:
            path = waiting.pop()
            with suppress(OSError):
                status = os.stat(path, dir_fd=top, follow_symlinks=False)
                is_directory = stat.S_ISDIR(status.st_mode)
                own[path] = identity_of(status) if is_directory else version_of(status)
                waiting += _names_in(roots, top, path) if is_directory else ()
        states |= own if len(own) <= MAX_FILES else {name: own[name]}
    return states


def _names_in(roots: Roots, top: int, path: str) -> list[str]:
    # By the resolver: a link in the path would show the names of another directory.
    fd = roots.resolver.open(top, path, DIRECTORY)
    try:
        names = os.listdir(fd)
    finally:
        os.close(fd)
    return [] if ".git" in names else [f"{path}/{name}" for name in names]


def beneath(path: str, top: str) -> str:
    """A path in a root, relative to a directory above it."""
    return path if top == "." else path[len(top) + 1 :]


def _lies_in(path: str, directory: str) -> bool:
    return directory == "." or path.startswith(f"{directory}/")
