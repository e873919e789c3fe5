"""Leave out of granted toolchains the files that hold credentials.

Package managers read configuration beside their programs too (`etc/npmrc`, `pip.conf` of a virtual environment).
Landlock can't take back beneath what it grants, so what lies around such a file is granted part by part.
"""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from coretools.confinement.command_path import SYSTEM
from coretools.confinement.toolchains import MAX_LISTED, is_in
from coretools.regular_file import read_regular
from coretools.roots.secret_formats import MAX_BYTES, secret_in
from coretools.roots.secret_names import secret_format_of

CONFIGURATION = frozenset(
    {
        *("npmrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".bunfig.toml", "bunfig.toml"),
        *("pip.conf", "pip.ini", ".pypirc", "uv.toml", "uv-receipt.toml", "pipx_metadata.json", "poetry.toml"),
        *(".condarc", "condarc", "condarc.d", ".mambarc", ".curlrc", ".wgetrc", ".netrc", "_netrc", ".git-credentials"),
        *("credentials", "credentials.toml", "credentials.json", "auth.toml", "auth.json", ".env"),
        *("settings-security.xml", "gradle.properties", "nuget.config", ".gemrc", "gemrc"),
        *(".git", ".hg"),  # of plug-ins and taps: the address of a repository may hold a token
    }
)
"""Names, in lower case, that are never granted: the addresses and options in them may hold tokens in any form."""

_CONTENTS = frozenset(
    {
        *("bin", "sbin", "lib", "lib64", "libexec", "include", "share", "shims", "node_modules"),
        *("registry", "git", "repository", "pkg", "pkgs", "library-packs", "cellar"),
        # Of Go and .NET.
        *("src", "test", "sdk", "packs", "shared"),
    }
)
"""Directories of programs, libraries and downloads, in lower case, in which no configuration is looked for."""

_CONDA_RECORDS = "conda-meta"
"""Directory of conda's records: of commands as they were typed, and of the addresses of packages."""

_ADDRESS_WITH_SECRET = re.compile(rb"://[^\s\"'/@]{1,200}@|://[^\s\"']{1,300}/t/[A-Za-z0-9_-]{6,200}/")
"""A user with a password, or a token as conda's servers have it in a path."""

MAX_DEPTH = 6
"""Levels of a toolchain that are looked at."""

MAX_LOOKED = 20_000
"""Most entries of all toolchains that are looked at."""


def grantable_parts(paths: Iterable[str]) -> list[str]:
    """Return the paths to grant for these: each itself, or its parts if something in it must not be granted."""
    search = _Search()
    return [part for path in paths for part in search.top(path)]


class _Search:
    def __init__(self) -> None:
        self._left = MAX_LOOKED

    def top(self, path: str) -> list[str]:
        """Return the parts of a path that is to be granted."""
        if not os.path.isdir(path):
            return [] if _may_hold_credentials(path) else [path]
        is_system = is_in(path, SYSTEM) or os.path.basename(path).lower() in _CONTENTS
        return [path] if is_system else self._parts(path, MAX_DEPTH)

    def _parts(self, path: str, levels: int) -> list[str]:
        """Return the path alone if all in it may be granted. Links in a path that is split are left out."""
        kept: list[str] = []
        is_whole = True
        for entry in self._entries(path):
            if entry.is_dir(follow_symlinks=False):
                parts = self._parts_of_entry(entry, levels)
            else:
                parts = [] if entry.is_symlink() or _may_hold_credentials(entry.path) else [entry.path]
            is_whole = is_whole and (parts == [entry.path] or entry.is_symlink())
            kept += parts
        return [path] if is_whole else kept

    def _parts_of_entry(self, entry: "os.DirEntry[str]", levels: int) -> list[str]:
        name = entry.name.lower()
        if name in CONFIGURATION:
            return []
        return [entry.path] if levels == 0 or name in _CONTENTS else self._parts(entry.path, levels - 1)

    def _entries(self, path: str) -> "list[os.DirEntry[str]]":
        listed: list[os.DirEntry[str]] = []
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if self._left == 0 or len(listed) == MAX_LISTED:
                    break
                self._left -= 1
                listed.append(entry)
        return listed


def _may_hold_credentials(path: str) -> bool:
    """Whether a file has the name of a configuration that may hold credentials, or holds some."""
    if os.path.basename(path).lower() in CONFIGURATION:
        return True
    if os.path.basename(os.path.dirname(path)) == _CONDA_RECORDS:
        return _holds_secret(path, lambda data: _ADDRESS_WITH_SECRET.search(data) is not None)
    kind = secret_format_of(path.lstrip("/"))
    return bool(kind) and _holds_secret(path, lambda data: bool(secret_in(kind, data)))


def _holds_secret(path: str, matches: Callable[[bytes], bool]) -> bool:
    try:
        return matches(read_regular(path, MAX_BYTES)[0])
    except OSError:
        return True
