"""Read the configuration of a repository beneath the roots, and remember its policy until one of its files changes.

Includes are followed as git follows them, but only beneath the roots. Included files outside the roots are listed for
`external_includes`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from time import time_ns

from coretools.errors import CoreError, DeniedPath, NotFound
from coretools.roots import directory_access
from coretools.roots.file_version import Version
from coretools.roots.git_config import Setting, parse
from coretools.roots.git_credentials import HOLDS_CREDENTIAL
from coretools.roots.read import open_directory
from coretools.roots.resolve import resolve
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.git_directory import GitDirectory, unusable
from coretools.tools.git.repository.policy import GitPolicy, git_policy

FILE_BYTES = 1024 * 1024
"""Largest configuration file accepted; ordinary ones have a few hundred bytes."""

INCLUDE_DEPTH = 10
"""Deepest nesting of includes: git's own limit."""

REMEMBERED = 64
"""Repositories whose policy is remembered."""

CONFIG, CONFIG_WORKTREE = ("config", "config.worktree")
"""Names of the files of a git directory itself (git-config(1))."""


@dataclass(frozen=True, slots=True)
class _ConfigFile:
    """Location of a configuration file, and the version found there."""

    directory: str
    name: str
    version: Version | None
    """None: no file there."""


@dataclass(frozen=True, slots=True)
class _ConfigRead:
    """One reading of a repository's configuration."""

    handles: dict[str, int]
    """Directories that are open already, by path."""
    entries: frozenset[str]
    """Those of them whose last name is no link, so that `..` means the directory before it."""
    files: list[_ConfigFile] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    external_includes: dict[str, str] = field(default_factory=dict)
    """Included files outside the roots, each with a description of what includes it."""
    began_ns: int = field(default_factory=time_ns)

    @property
    def is_settled(self) -> bool:
        """Whether every change since the reading began will show in the versions."""
        return all(file.version is None or file.version.is_settled(self.began_ns) for file in self.files)


class GitConfigurations:
    """Policies of repositories, by the path of their git directory."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._lock = Lock()
        self._known: dict[str, tuple[tuple[_ConfigFile, ...], GitPolicy]] = {}

    def policy(self, own: GitDirectory, common: GitDirectory) -> GitPolicy:
        """Return the policy for `config` of the common directory and `config.worktree` of the work tree.

        Raises:
            GitRefused: git could not parse a file either, or an include leaves the roots by a link or by `..`.
        """
        directories = {common.path: common, own.path: own}
        reading = _ConfigRead(
            handles={path: directory.handle for path, directory in directories.items()},
            entries=frozenset(path for path, directory in directories.items() if directory.is_entry),
        )
        known = self._known.get(own.path)
        if known is not None and all(self._is_unchanged(file, reading) for file in known[0]):
            return known[1]
        self._read(reading, common.path, CONFIG, f"{common.display_path}/config", depth=INCLUDE_DEPTH)
        for path, directory in directories.items():
            self._read(reading, path, CONFIG_WORKTREE, f"{directory.display_path}/config.worktree", depth=INCLUDE_DEPTH)
        policy = git_policy(reading.settings, f"{common.display_path}/config")
        policy = replace(
            policy,
            included=tuple((file.directory, file.name) for file in reading.files if file.directory not in directories),
            external_includes=tuple(reading.external_includes),
            included_by=next(iter(reading.external_includes.values()), ""),
        )
        if reading.is_settled:
            self._remember(own.path, reading.files, policy)
        return policy

    def _remember(self, path: str, files: list[_ConfigFile], policy: GitPolicy) -> None:
        with self._lock:
            self._known.pop(path, None)
            self._known[path] = (tuple(files), policy)
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]

    def _is_unchanged(self, file: _ConfigFile, reading: _ConfigRead) -> bool:
        try:
            with self._directory(reading, file.directory) as handle:
                return directory_access.entry_version(handle, file.name) == file.version
        except NotFound:
            return file.version is None
        except CoreError:
            return False

    @contextmanager
    def _directory(self, reading: _ConfigRead, path: str) -> Iterator[int]:
        if path in reading.handles:
            yield reading.handles[path]
            return
        with open_directory(self._roots, path) as directory:
            yield directory.fd

    def _read(self, reading: _ConfigRead, directory: str, name: str, display_path: str, *, depth: int) -> None:
        version = None
        data = b""
        try:
            with self._directory(reading, directory) as handle:
                version = directory_access.entry_version(handle, name)
                if version is not None:
                    data = directory_access.read_file(handle, name, limit_bytes=FILE_BYTES)
        except NotFound:
            version = None
        except CoreError as error:
            raise unusable(display_path, f"can't be read ({error})") from error
        reading.files.append(_ConfigFile(directory, name, version))
        for setting in parse(data, display_path):
            reading.settings.append(setting)
            if setting.variable == "path" and setting.section in ("include", "includeif") and setting.value:
                self._include(reading, directory, setting, display_path, depth=depth - 1)

    def _include(
        self, reading: _ConfigRead, directory: str, setting: Setting, display_path: str, *, depth: int
    ) -> None:
        """Read an included file whatever its condition. At worst this overrides more settings than necessary."""
        target = setting.value or ""
        if depth < 0:
            raise unusable(display_path, f"nests includes more than {INCLUDE_DEPTH} deep")
        if target.startswith(("~", "%(prefix)")):
            raise unusable(display_path, f"sets {setting.key} to a path in a home directory, which is not read")
        # After a link, `..` is one directory textually and another to the kernel. Accepted only where no link can be.
        plain = target.removeprefix("../") if directory in reading.entries else target
        if ".." in plain.split("/") or not plain.rpartition("/")[2]:
            raise unusable(display_path, f"sets {setting.key} to a path that is not followed here")
        by = f"{display_path} ({setting.key})"
        if target.startswith("/") and self._roots.split(target) is None:
            reading.external_includes.setdefault(target, by)
            return
        path = target if target.startswith("/") else f"{directory}/{target}"
        self._require_open(path, by)
        parent, _, name = path.rpartition("/")
        self._read(reading, parent, name, by, depth=depth)

    def _require_open(self, path: str, display_path: str) -> None:
        """Refuse to include a file that is denied: git would act on its content, and a log would show it."""
        try:
            require_includable(self._roots, path)
        except DeniedPath as error:
            raise unusable(display_path, f"includes a file that is denied ({error})") from error
        except CoreError:
            return  # any other error is raised when the file is read


def require_includable(roots: Roots, path: str) -> None:
    """Refuse a file that tools may not read, unless the reason is a credential of git: that is where git looks for one.

    Raises:
        What `resolve` raises.
    """
    try:
        resolve(roots, path, follow=False).close()
    except DeniedPath as error:
        if error.facts.get("reason") != HOLDS_CREDENTIAL:
            raise
