"""Collect what one repository would run or reach under plain git. git is not started for this.

Everything is read through handles beneath the roots, in bounded amounts; what is not read becomes a finding itself.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from coretools.errors import CoreError, NotFound
from coretools.roots import directory_access
from coretools.roots.git_config import Setting, parse
from coretools.roots.git_programs import kind_of
from coretools.roots.linked_repository import GIT
from coretools.roots.read import open_directory
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.configuration import require_includable
from coretools.tools.git.repository.git_directory import read_pointer
from coretools.tools.git.repository.grants import HOOK_BYTES, hook_hash, hooks_directory
from coretools.tools.git.repository.porcelain import encoded
from coretools.tools.git.trust.findings import (
    Finding,
    attribute_findings,
    cut,
    finding_of,
    without_secret,
)

FILE_BYTES = 1024 * 1024
"""Largest file that is read."""
MAX_FILES = 64
"""Most configuration files that are read, includes counted."""
MAX_DIRECTORIES = 2_000
"""Most directories of the work tree, and of submodules, that are looked into."""
MAX_OF_A_KIND = 20
"""Most findings of a kind; the rest is counted, so that a thousand aliases hide no hook."""
MAX_OF_ONE_KIND = 200
"""Most findings in a report about one kind."""
FIRST_OF_A_KIND = 5
"""Findings of each kind that precede further ones of any kind."""

USUAL_HOOKS = ".git/hooks"

_HOOKS = {
    "pre-commit": "commit",
    "prepare-commit-msg": "commit, merge",
    "commit-msg": "commit, merge",
    "post-commit": "commit",
    "post-checkout": "checkout, switch, clone, rebase",
    "post-merge": "merge, pull",
    "pre-merge-commit": "merge",
    "pre-rebase": "rebase",
    "post-rewrite": "commit --amend, rebase",
    "pre-push": "push",
    "pre-auto-gc": "gc",
    "reference-transaction": "every change of a reference",
    "post-index-change": "every change of the index",
    "fsmonitor-watchman": "what core.fsmonitor names",
}

_EVERY = "every command"
_EXEC = re.compile(rb"[ \t]*(?:exec|x)[ \t]+(?P<command>.+)")
"""A line of a todo list that a shell runs (git-rebase(1))."""
_OLD_URL = re.compile(rb"(?:URL:[ \t]*)?(?P<url>[^ \t].*)")
"""The first line of a file in `branches`, or one of a file in `remotes` (gitrepository-layout(5))."""


@dataclass(slots=True)
class TrustReader:
    """Reads one repository. Without `kind`, the first findings of every kind; else those of one, after `skipped`."""

    roots: Roots
    directory: Directory
    stack: ExitStack
    kind: str = ""
    skipped: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """How many there are of each kind."""
    _findings: list[Finding] = field(default_factory=list)
    _files: int = 0
    _hooks_paths: list[str] = field(default_factory=list)
    """Where the configuration puts hooks, relative to the work tree, in included files too."""
    _granted_hooks: str = USUAL_HOOKS
    """Where `.git/config` itself puts them; a grant is about that place."""
    _is_grantable: bool = True

    def read(self) -> bool:
        """Collect the findings; return whether the git directory is `.git` itself."""
        own = self._git_directory(f"{self.directory.path}/{GIT}", self.directory.fd, GIT, "gitdir: ")
        self._attributes()
        for name in (".gitmodules", ".lfsconfig"):
            self._config(self.directory.fd, name, name, self.directory.path)
        if own is None:
            return False
        common = self._git_directory(*own, "commondir", "") or own
        self._hooks_paths = []
        for place, handle in dict.fromkeys((common, own)):
            self._repository(place, handle)
        self._own_hooks(common[0])
        self._shared(common[0])
        # What can be granted belongs to this repository alone.
        self._is_grantable = False
        self._linked_work_trees(common[0], own[0])
        self._submodules(common[0])
        return common == own and own[0] == f"{self.directory.path}/{GIT}"

    def ordered(self) -> list[Finding]:
        """Return the findings, the first ones of each kind first."""
        seen = Counter[str]()
        ranked = []
        for one in self._findings:
            seen[one.kind] += 1
            ranked.append((seen[one.kind] > FIRST_OF_A_KIND, one))
        return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]

    def _is_listed(self, kind: str) -> bool:
        """Count a finding; return whether it is more than a count."""
        self.counts[kind] += 1
        if self.kind:
            return kind == self.kind and 0 < self.counts[kind] - self.skipped <= MAX_OF_ONE_KIND
        return self.counts[kind] <= MAX_OF_A_KIND

    def _list(self, one: Finding) -> None:
        self._findings.append(one if self._is_grantable else replace(one, key=""))

    def _add(self, kind: str, name: str, value: str, where: str, triggered_by: str, key: str = "") -> None:
        if self._is_listed(kind):
            self._list(Finding(kind=kind, name=name, value=value, where=where, triggered_by=triggered_by, key=key))

    def _shown(self, path: str) -> str:
        return cut(path.removeprefix(f"{self.directory.path}/"))

    def _git_directory(self, path: str, handle: int, name: str, prefix: str) -> tuple[str, int] | None:
        """Return path and handle of the directory that an entry is or names; None if there is none that may be read."""
        kind = directory_access.entry_kind(handle, name)
        if kind == "directory" and name == GIT:
            return path, self.stack.enter_context(directory_access.open_subdirectory(handle, GIT))
        shown = self._shown(path) if name == GIT else f"{self._shown(path)}/{name}"
        if kind is None:
            return None
        target = ""
        try:
            target = read_pointer(handle, name, shown).removeprefix(prefix)
            start = path.rpartition("/")[0] if name == GIT else path
            opened = self.stack.enter_context(
                open_directory(self.roots, target if target.startswith("/") else f"{start}/{target}")
            )
        except CoreError as error:
            self._add("location", name, cut(target or str(error)), f"{shown}:1", _EVERY)
            return None
        self._add("location", name, cut(target), f"{shown}:1", _EVERY)
        return opened.path, self.stack.enter_context(directory_access.open_subdirectory(opened.fd, "."))

    @contextmanager
    def _listed(self, path: str) -> Iterator[int]:
        """Open a directory so that it can be listed: the handle of `open_directory` may not permit that."""
        with (
            open_directory(self.roots, path) as directory,
            directory_access.open_subdirectory(directory.fd, ".") as handle,
        ):
            yield handle

    def _entries(self, path: str) -> dict[str, str]:
        """Return the entries of a directory; none if there is no such directory, or it may not be read."""
        entries: dict[str, str] = {}
        with suppress(CoreError), self._listed(path) as handle:
            entries = directory_access.entry_kinds(handle)
        if len(entries) > MAX_DIRECTORIES:
            self._unread(self._shown(path), f"more than {MAX_DIRECTORIES} entries")
        return dict(sorted(entries.items())[:MAX_DIRECTORIES])

    def _lines(self, place: str, name: str) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a file with their numbers; a file that can't be read is a finding."""
        try:
            with open_directory(self.roots, place) as directory:
                data = directory_access.read_file(directory.fd, name, limit_bytes=FILE_BYTES)
        except NotFound:
            return
        except CoreError as error:
            self._unread(f"{self._shown(place)}/{cut(name)}", str(error))
            return
        yield from enumerate(data.split(b"\n"), 1)

    def _unread(self, shown: str, why: str) -> None:
        self._add("not examined", shown, cut(why), shown, "not known")

    # One git directory

    def _repository(self, place: str, handle: int) -> None:
        """Read what belongs to one git directory, or to that of one work tree."""
        shown = self._shown(place)
        for name, kind in directory_access.entry_kinds(handle).items():
            if kind in ("link", "other"):
                self._add(kind if kind == "link" else "special file", cut(name), "", f"{shown}/{cut(name)}", _EVERY)
        self._config(handle, "config", f"{shown}/config", place)
        self._config(handle, "config.worktree", f"{shown}/config.worktree", place)
        self._todo_list(f"{place}/rebase-merge")

    def _shared(self, place: str) -> None:
        """Read what all work trees of a repository share."""
        shown = self._shown(place)
        for name in ("alternates", "http-alternates"):
            for number, line in self._lines(f"{place}/objects/info", name):
                if line and not line.startswith(b"#"):
                    where = f"{shown}/objects/info/{name}:{number}"
                    self._add("alternate", "objects", cut(_text(line)), where, "all that read an object")
        self._old_remotes(place)
        with suppress(NotFound), open_directory(self.roots, f"{place}/info") as info:
            self._attributes_of(info.fd, "attributes", f"{shown}/info/attributes")

    def _config(self, handle: int, name: str, shown: str, place: str, depth: int = 10) -> None:
        if directory_access.entry_kind(handle, name) is None:
            return
        self._files += 1
        if self._files > MAX_FILES:
            self._unread(shown, f"more than {MAX_FILES} configuration files")
            return
        try:
            data = directory_access.read_file(handle, name, limit_bytes=FILE_BYTES)
            settings = parse(data, shown)
        except CoreError as error:
            self._add("configuration", shown, cut(str(error)), shown, _EVERY)
            return
        for one in settings:
            self._setting(one, data, shown)
            if depth and one.section in ("include", "includeif") and one.variable == "path":
                self._include(one.value or "", place, depth - 1)

    def _setting(self, one: Setting, data: bytes, shown: str) -> None:
        if one.key == "core.hookspath":
            self._hooks_paths.append(hooks_directory([one]))
            if shown == f"{GIT}/config":
                self._granted_hooks = self._hooks_paths[-1]
        if (kind := kind_of(one)) and self._is_listed(kind[0]):
            self._list(finding_of(one, kind, data, shown))

    def _include(self, target: str, place: str, depth: int) -> None:
        """Read an included file beneath the roots; of one outside only the path is known."""
        path = target if target.startswith("/") else f"{place}/{target}"
        if self.roots.split(path) is None:
            path = posixpath.normpath(path)
        above, _, name = path.rpartition("/")
        if target.startswith(("~", "%")) or name in ("", ".", ".."):
            return
        with suppress(CoreError):
            require_includable(self.roots, path)
            with open_directory(self.roots, above) as directory:
                self._config(directory.fd, name, self._shown(f"{directory.path}/{name}"), directory.path, depth)

    def _own_hooks(self, common: str) -> None:
        """Report the hooks in the usual place and wherever an included file puts them, perhaps under a condition."""
        for path in dict.fromkeys((USUAL_HOOKS, *self._hooks_paths)):
            is_used = path == self._granted_hooks
            if path == USUAL_HOOKS:
                self._hooks(f"{common}/hooks", is_used=is_used)
            else:
                self._hooks(f"{self.directory.path}/{path}", is_used=is_used, names=_HOOKS)

    def _hooks(self, place: str, *, is_used: bool = False, names: Container[str] | None = None) -> None:
        """Report the hooks in a directory; only those that `.git/config` names can be granted."""
        for name, kind in self._entries(place).items():
            is_named = names is None or name in names
            if name.endswith(".sample") or kind not in ("file", "link") or not is_named:
                continue
            value = ""
            with suppress(CoreError), open_directory(self.roots, place) as hooks:
                data = directory_access.read_file(hooks.fd, name, limit_bytes=HOOK_BYTES)
                value = f"sha256:{hook_hash(data)}"
            where = f"{self._shown(place)}/{cut(name)}"
            key = f"hookfile.{name}" if is_used else ""
            self._add("hook", cut(name), value, where, _HOOKS.get(name, "not known"), key)

    def _todo_list(self, place: str) -> None:
        """Report what an interrupted rebase runs when it goes on."""
        for name in ("git-rebase-todo", "strategy"):
            for number, line in self._lines(place, name):
                match = _EXEC.fullmatch(line) if name == "git-rebase-todo" else None
                command = match["command"] if match else line if name == "strategy" else b""
                if command:
                    kind = "exec" if match else "strategy"
                    where = f"{self._shown(place)}/{name}:{number}"
                    self._add("todo list", kind, without_secret(_text(command)), where, "rebase --continue")

    def _old_remotes(self, place: str) -> None:
        """Report remotes in the places that git used before its configuration."""
        for folder in ("remotes", "branches"):
            for name, kind in self._entries(f"{place}/{folder}").items():
                for number, line in self._lines(f"{place}/{folder}", name) if kind == "file" else ():
                    match = _OLD_URL.fullmatch(line)
                    if match and (line.startswith(b"URL:") or (folder, number) == ("branches", 1)):
                        where = f"{self._shown(place)}/{folder}/{cut(name)}:{number}"
                        url = without_secret(_text(match["url"]))
                        self._add("remote", cut(f"{folder}/{name}"), url, where, "fetch, pull, push")

    # Other git directories

    def _linked_work_trees(self, common: str, own: str) -> None:
        for name, kind in self._entries(f"{common}/worktrees").items():
            place = f"{common}/worktrees/{name}"
            if kind != "directory" or place == own:
                continue
            with suppress(CoreError), self._listed(place) as handle:
                self._repository(place, handle)
                for number, line in self._lines(place, "commondir"):
                    if line not in (b"", b"../..", encoded(common)):
                        where = f"{self._shown(place)}/commondir:{number}"
                        self._add("location", "commondir", cut(_text(line)), where, "every command in that work tree")

    def _submodules(self, common: str) -> None:
        """Read the git directories of submodules, and of those in them; a name may have slashes."""
        waiting, count = [f"{common}/modules"], 0
        while waiting:
            place = waiting.pop(0)
            count += 1
            if count > MAX_DIRECTORIES:
                self._unread(self._shown(place), f"more than {MAX_DIRECTORIES} directories of submodules")
                return
            entries = self._entries(place)
            if "HEAD" in entries and "config" in entries:
                with suppress(CoreError), self._listed(place) as handle:
                    self._repository(place, handle)
                self._hooks(f"{place}/hooks")
                self._shared(place)
                self._linked_work_trees(place, "")
                waiting.append(f"{place}/modules")
            else:
                waiting += [f"{place}/{name}" for name, kind in entries.items() if kind == "directory"]

    # The work tree

    def _attributes(self) -> None:
        """Look for attributes in the whole work tree, but not in other repositories or hidden directories."""
        waiting, count = [""], 0
        while waiting:
            relative = waiting.pop(0)
            count += 1
            if count > MAX_DIRECTORIES:
                self._unread(f"{cut(relative)}/.gitattributes", f"more than {MAX_DIRECTORIES} directories")
                return
            with suppress(CoreError):
                waiting += self._attributes_in(relative)

    def _attributes_in(self, relative: str) -> Iterator[str]:
        with self._listed(f"{self.directory.path}/{relative}".rstrip("/")) as directory:
            kinds = directory_access.entry_kinds(directory)
            above = f"{relative}/" if relative else ""
            if relative and GIT in kinds:
                hint = f"status, diff if it is a submodule; repository={self._shown(relative)!r} lists what it has"
                self._add("repository", cut(relative), "", f"{cut(above)}{GIT}", hint)
                return
            if kinds.get(".gitattributes") == "file":
                self._attributes_of(directory, ".gitattributes", f"{cut(above)}.gitattributes")
            yield from (f"{above}{name}" for name, kind in sorted(kinds.items()) if kind == "directory" and name != GIT)

    def _attributes_of(self, handle: int, name: str, shown: str) -> None:
        try:
            data = directory_access.read_file(handle, name, limit_bytes=FILE_BYTES)
        except NotFound:
            return
        except CoreError as error:
            self._unread(shown, str(error))
            return
        for one in attribute_findings(data, shown):
            if self._is_listed(one.kind):
                self._list(one)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")
