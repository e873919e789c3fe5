"""Caches of package managers for commands: our own, one set for each root, kept when the server ends.

They are directories outside the roots that commands may write. The server creates them and, at start, removes the
oldest entries of those that have grown beyond their limit. It never runs or trusts anything in them, and does not use
the caches of the user.
"""

import errno
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType

from coretools.confinement.cache_limit import limit_cache, remove_entry
from coretools.errors import BadSetting
from coretools.reach import is_beneath
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.hidden_inodes import inode_of
from coretools.roots.root import Root

logger = logging.getLogger(__name__)

DEFAULT_CACHE_BYTES = 4 * 1024**3
"""Most bytes of one cache of one root when the server starts."""

MAX_ROOTS = 64
"""Most roots whose caches are kept; those of the root that was served longest ago are removed."""

FILES: None = None
"""As a unit: single files may be removed, since the package manager fetches what is missing."""

LOCK = ".lock"
"""Held by every server that uses the caches of a root."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A package manager's cache."""

    variables: Mapping[str, str]
    """Variables that lead the package manager there; `{}` is the directory."""
    unit: int | None = FILES
    """What is removed as a whole: entries at this depth, 0 for everything. Parts of what is unpacked are useless."""
    kept: tuple[str, ...] = ()
    """Entries that are kept when a server starts; none stands for all."""


CACHES: Mapping[str, Cache] = MappingProxyType(
    {
        "pip": Cache({"PIP_CACHE_DIR": "{}"}),
        # uv can't link between file systems and would warn each time.
        "uv": Cache({"UV_CACHE_DIR": "{}", "UV_LINK_MODE": "copy"}, unit=0),
        "poetry": Cache({"POETRY_CACHE_DIR": "{}"}, unit=1),
        "pre-commit": Cache({"PRE_COMMIT_HOME": "{}"}, unit=0),
        "npm": Cache({"npm_config_cache": "{}"}),
        "yarn": Cache({"YARN_CACHE_FOLDER": "{}"}, unit=0),
        "pnpm": Cache({"npm_config_store_dir": "{}"}, unit=0),
        "bun": Cache({"BUN_INSTALL_CACHE_DIR": "{}"}, unit=1),
        "deno": Cache({"DENO_DIR": "{}"}, unit=0),
        # Of cargo's home the downloads are kept, and no configuration, credentials or programs.
        "cargo": Cache({"CARGO_HOME": "{}"}, unit=2, kept=("registry", "git", ".package-cache", ".global-cache")),
        "go": Cache({"GOMODCACHE": "{}/mod", "GOCACHE": "{}/build"}, unit=1),
        # Before Maven 3.9 only MAVEN_OPTS is read.
        "maven": Cache({"MAVEN_ARGS": "-Dmaven.repo.local={}", "MAVEN_OPTS": "-Dmaven.repo.local={}"}),
        # The same of Gradle's: a script in `init.d` would run in every build.
        "gradle": Cache({"GRADLE_USER_HOME": "{}"}, unit=1, kept=("caches", "wrapper", "jdks", "native")),
        "nuget": Cache({"NUGET_PACKAGES": "{}"}, unit=2),
        "composer": Cache({"COMPOSER_CACHE_DIR": "{}"}),
        "ccache": Cache({"CCACHE_DIR": "{}"}),
    }
)
"""The caches that the policy may name."""


SERVER_CACHES: Mapping[str, Cache] = MappingProxyType({"language-servers": Cache({"XDG_CACHE_HOME": "{}"}, unit=1)})
"""What language servers keep for a root."""


class CommandCaches:
    """The caches of the writable roots of one server. Close it to let another server remove entries."""

    def __init__(
        self,
        names: Sequence[str] = (),
        *,
        table: Mapping[str, Cache] | None = None,
        roots: Iterable[Root] = (),
        base: str = "",
        writable: Sequence[str] = (),
        limit_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """`base` contains the caches of all roots (`own_state.cache_directory`). Nothing is created before `prepare`.

        With a `table` the names are those of it, and roots that are only read have caches too.

        `writable` are the other paths that commands may write.

        Raises:
            BadSetting: the caches would lie in a root or a writable path, or one of these in them.
        """
        known = list(roots) if names else []
        self._names = names
        self._table: Mapping[str, Cache] = CACHES if table is None else table
        self._base = os.path.realpath(base) if base else ""
        self._limit_bytes = limit_bytes
        self._tops = {root: f"{self._base}/{root_id(root)}" for root in known if root.writable or table is not None}
        self._locks: list[int] = []
        self._is_ready = False
        places = [*(root.path for root in known), *map(os.path.realpath, writable)] if names else []
        for place in places:
            if is_beneath(self._base, place) or is_beneath(place, self._base):
                raise BadSetting(
                    f"caches: {self._base} and {place}, a root or writable, lie in each other, so commands could"
                    " replace the caches of other roots; set XDG_CACHE_HOME to a directory that commands cannot write"
                )

    @property
    def paths(self) -> tuple[str, ...]:
        """The directories of all caches."""
        return tuple(f"{top}/{name}" for top in self._tops.values() for name in self._names)

    def variables(self, root: Root | None) -> dict[str, str]:
        """Return the variables for a command that starts in this root; none for a root without caches."""
        top = self._tops.get(root) if root is not None and self._is_ready else None
        if top is None:
            return {}
        return {
            variable: text.format(f"{top}/{name}")
            for name in self._names
            for variable, text in self._table[name].variables.items()
        }

    def prepare(self) -> None:
        """Create the directories, and remove the oldest entries of those beyond the limit unless they are in use.

        Without a place for them commands run without caches, which the log says.
        """
        if not self._tops or self._is_ready:
            return
        try:
            os.makedirs(self._base, 0o700, exist_ok=True)
            with _opened(self._base) as base:
                for top in self._tops.values():
                    self._prepare_root(base, os.path.basename(top))
                _remove_unused(base, set(map(os.path.basename, self._tops.values())))
        except OSError as error:
            logger.warning("commands have no caches: %s: %s", error.filename or self._base, error.strerror)
            return
        self._is_ready = True

    def _prepare_root(self, base: int, name: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=base)
        with _opened(name, base) as top:
            lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=top)
            self._locks.append(lock)
            os.utime(lock)
            is_alone = _try_lock(lock, fcntl.LOCK_EX)
            for cache in self._names:
                with suppress(FileExistsError):
                    os.mkdir(cache, 0o700, dir_fd=top)
                if is_alone:
                    self._limit(top, cache)
            _try_lock(lock, fcntl.LOCK_SH)

    def _limit(self, top: int, cache: str) -> None:
        one = self._table[cache]
        freed = limit_cache(top, cache, unit=one.unit, limit_bytes=self._limit_bytes, kept=one.kept)
        if freed:
            logger.info("cache %s: removed %d bytes, the oldest", cache, freed)

    def close(self) -> None:
        """Release the locks."""
        for lock in self._locks:
            os.close(lock)
        self._locks = []


NO_CACHES = CommandCaches()


def root_id(root: Root) -> str:
    """Return the name of a root's directory of caches.

    Another directory at the same path is another root: the birth time tells them apart where there is one.
    """
    found = inode_of(root.path)
    birth = f"{found.number} {found.birth_ns}" if found is not None and found.birth_ns else ""
    digest = hashlib.sha256(os.fsencode(f"{root.path}\0{birth}")).hexdigest()[:24]
    name = re.sub(r"[^A-Za-z0-9_-]", "_", os.path.basename(root.path))[:32]
    return f"{name}-{digest}"


@contextmanager
def _opened(path: str, above: int | None = None) -> Iterator[int]:
    """A directory of our own, opened without following a link at its end; nobody else may enter it afterwards."""
    handle = os.open(path, DIRECTORY, dir_fd=above)
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "belongs to another user", path)
        if status.st_mode & 0o077:
            os.fchmod(handle, 0o700)
        yield handle
    finally:
        os.close(handle)


def _try_lock(handle: int, kind: int) -> bool:
    """Take a lock of the file if nobody else keeps it from that; a file system may have no locks."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_unused(base: int, used: set[str]) -> None:
    """Remove the caches of roots that were served longest ago, if there are too many."""
    ages: list[tuple[float, str]] = []
    for name in set(os.listdir(base)) - used:
        with suppress(OSError):
            ages.append((os.stat(f"{name}/{LOCK}", dir_fd=base, follow_symlinks=False).st_mtime, name))
    for _, name in sorted(ages)[: max(0, len(ages) + len(used) - MAX_ROOTS)]:
        with suppress(OSError), _opened(name, base) as top:
            lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
            try:
                if _try_lock(lock, fcntl.LOCK_EX):
                    remove_entry(base, name)
            finally:
                os.close(lock)


# The home of cargo for commands where the policy names no cache for it.

CARGO_HOME_NAME = ".cargo-of-commands"
"""Directory in the home of commands."""

MAX_CARGO_LINKS = 20_000
"""Most entries of the user's cargo home that are linked. cargo fetches others again, which needs a network."""


def create_cargo_home(real: str, own: str) -> None:
    """Create a cargo home `own` with links to what the user has downloaded to `real`, if anything.

    cargo creates directories and locks in its home whenever it fetches something, and commands may only read the
    user's.
    """
    if not any(os.path.isdir(f"{real}/{name}") for name in ("registry", "git")):
        return
    os.mkdir(own, mode=0o700)
    left = MAX_CARGO_LINKS
    for directory in _cargo_directories(real):
        os.makedirs(f"{own}/{directory}", exist_ok=True)
        with suppress(OSError):
            for name in os.listdir(f"{real}/{directory}")[:left]:
                os.symlink(f"{real}/{directory}/{name}", f"{own}/{directory}/{name}")
                left -= 1


def _cargo_directories(real: str) -> Iterator[str]:
    """Yield the directories in which cargo creates entries, for each registry too."""
    yield from (name for name in ("bin", "git/db") if os.path.isdir(f"{real}/{name}"))
    for above in ("registry/index", "registry/cache", "registry/src"):
        with suppress(OSError):
            names = os.listdir(f"{real}/{above}")
            yield from (f"{above}/{name}" for name in names if os.path.isdir(f"{real}/{above}/{name}"))
