"""git's configuration for commands: a copy without credentials in each view, and the way back of their changes.

A copy lies in a directory of the server's own and is reached by a link that is mounted over the repository's file, so
git locks and renames beside the copy. When a command has ended its changes are taken from the copy, key by key: what
starts no program goes to the file itself, all else stays with commands for as long as the server runs. The file is
written only while no command runs: a file that is replaced by renaming loses its cover in views that are there.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import NamedTuple

from coretools.confinement import git_keys, view
from coretools.confinement.hidden import Hidden
from coretools.confinement.masks import REPOSITORY, Masks, Repository
from coretools.errors import GitRefused
from coretools.process.cell import Cell, CellFailed
from coretools.sandbox.git_config import NotWritable, Values, changed, edited, values_of, written
from coretools.sandbox.git_grammar import parse
from coretools.sandbox.hidden_inodes import inode_of
from coretools.sandbox.names import printable
from coretools.sandbox.roots import Place, Roots, identity_of

MOST_BYTES = 256 * 1024
"""Of a configuration; a longer one is hidden. Ordinary ones have a few hundred bytes."""

UNCLEAN = "it is no configuration from which credentials can be taken"
MOST_NAMED = 10
"""Keys that a result names."""

UNKEPT = (
    "git's configuration: these keys hold for commands while this server runs and are not carried over to the"
    " repository's own file, since git may start a program for them"
)
SPOILED = "the command left no configuration of a repository here; nothing of it is carried over"

_FIXED = "fixed"
"""Directory of the copies that commands may not change."""
_FILES = frozenset(REPOSITORY) - {"hooks"}
_KEY_CHARACTERS = 120
_FORMAT = "core.repositoryformatversion"
"""Key that every repository has."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Stamp = tuple[int, ...]


class _Read(NamedTuple):
    """A file as it was when it was read, and what commands see of it."""

    data: bytes
    settings: tuple[tuple[str, str | None], ...]
    text: bytes


@dataclass(slots=True)
class _Changes:
    """What commands changed in one file."""

    directory: tuple[int, int]
    kept: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    """To be written to the file."""
    own: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    """For commands only."""
    generation: int = 0


@dataclass(slots=True)
class _Copy:
    repository: Repository
    name: str
    """Of its directory."""
    base: Values
    stamp: Stamp


class Copies:
    """The copies of one view."""

    def __init__(self, path: str, masks: Masks) -> None:
        """Lay them out in a new directory.

        Raises:
            OSError: no place for them.
        """
        self.path = path
        self.files: list[_Copy] = []
        self.links: list[tuple[str, str]] = []
        for directory in (path, f"{path}/{_FIXED}"):
            os.mkdir(directory, 0o700)
        self._identities = {one: identity_of(os.lstat(one)) for one in (path, f"{path}/{_FIXED}")}
        for one in masks.repositories:
            self._add(one)

    def over(self, plan: view.Plan) -> view.Plan:
        """The plan of a view with these copies."""
        fixed = f"{self.path}/{_FIXED}"
        binds = [
            view.Bind(view.CONFIGS, writable=True, source=self.path, identity=self._identities[self.path]),
            view.Bind(f"{view.CONFIGS}/{_FIXED}", writable=False, source=fixed, identity=self._identities[fixed]),
        ]
        return plan._replace(binds=[*plan.binds, *binds], linked=self.links)

    def _add(self, one: Repository) -> None:
        name = token_hex(8)  # a link that a command copied leads nowhere later
        inside = name if one.is_writable else f"{_FIXED}/{name}"
        os.mkdir(f"{self.path}/{inside}", 0o700)
        with open(f"{self.path}/{inside}/config", "xb") as file:
            file.write(one.text)
            stamp = _stamp(os.fstat(file.fileno()))
        self.links.append((one.path, f"{view.CONFIGS}/{inside}/config"))
        if one.is_writable:
            self.files.append(_Copy(one, name, values_of(parse(one.text, "config")), stamp))


class GitConfigs:
    """All of a server. Used by one thread at a time."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._read: dict[str, _Read] = {}
        self._changes: dict[str, _Changes] = {}
        self._copies: list[Copies] = []
        self._running = 0
        self._doubtful: list[Cell] = []

    def begun(self) -> None:
        """A command is about to be started."""
        self._running += 1

    def ended(self, doubtful: Sequence[Cell]) -> list[str]:
        """One has ended, or could not be started; something of it may be left in these cells.

        What is to be said of what it changed, in sentences.
        """
        self._running -= 1
        self._doubtful = [cell for cell in {*self._doubtful, *doubtful} if not cell.is_gone]
        return self._collect()

    @property
    def may_write(self) -> bool:
        """Whether there is something to be written, and no command that could see the file uncovered."""
        return not self._running and not self._doubtful and any(one.kept for one in self._changes.values())

    def close(self) -> None:
        """After the end of all commands: write what waits."""
        self._collect()
        self.write()

    def found(self, masks: Masks) -> Masks:
        """The same with what commands see of each configuration; one that can't be cleaned is hidden."""
        repositories: list[Repository] = []
        hidden: list[Hidden] = []
        read: dict[str, _Read] = {}
        for path in masks.fixed:
            if path.rpartition("/")[2] not in _FILES:
                continue
            place = self._roots.split(path)
            try:
                one = None if place is None else self._looked(place, path, read)
            except (GitRefused, NotWritable, OSError, UnicodeError):
                one = None
            if one is None:
                hidden.append(Hidden(path, UNCLEAN, inode_of(path) or (0, 0, 0)))
            else:
                repositories.append(one)
        self._read = read
        laid = {*(one.path for one in repositories), *(one.path for one in hidden)}
        fixed = tuple(path for path in masks.fixed if path not in laid)
        return masks._replace(
            fixed=fixed, hidden=tuple(sorted({*masks.hidden, *hidden})), repositories=tuple(repositories)
        )

    def _looked(self, place: Place, path: str, read: dict[str, _Read]) -> Repository:
        directory, data = self._opened(place)
        known = self._read.get(path)
        changes = self._changes.get(path)
        if changes is not None and changes.directory != directory:
            del self._changes[path]
            changes = None
        if known is None or known.data != data:
            settings = git_keys.without_credentials(parse(data, path))
            known = _Read(data, tuple((one.key, one.value) for one in settings), written(settings))
        read[path] = known
        text = known.text
        if changes is not None:
            text = written(changed(parse(text, path), {**changes.kept, **changes.own}))
        generation = 0 if changes is None else changes.generation
        return Repository(path, directory, place.root.writable, text, generation)

    def _opened(self, place: Place) -> tuple[tuple[int, int], bytes]:
        """Identity of the directory of a file, and the file's bytes."""
        above, _, name = place.relative.rpartition("/")
        handle = self._roots.engine.open(place.root.fd, above or ".", _DIRECTORY)
        try:
            return identity_of(os.fstat(handle)), _content(name, handle)[0]
        finally:
            os.close(handle)

    def lay_out(self, path: str, masks: Masks) -> Copies:
        """Copies for one view, in a new directory. `drop` is to follow when nothing of the view is left.

        Raises:
            CellFailed: no place for them.
        """
        try:
            copies = Copies(path, masks)
        except OSError as error:
            raise CellFailed(f"no place for copies of git's configuration: {error}", error.errno or 0) from error
        self._copies.append(copies)
        return copies

    def drop(self, copies: Copies) -> None:
        """Forget the copies of a view that is gone."""
        self._copies.remove(copies)
        shutil.rmtree(copies.path, ignore_errors=True)

    def _collect(self) -> list[str]:
        """Take what commands have changed since the last time; what is to be said of it, in sentences."""
        said: list[str] = []
        unkept: list[str] = []
        for copies in self._copies:
            for copy in tuple(copies.files):
                shown = self._shown(copy.repository.path)
                try:
                    changes = _changes_in(copies.path, copy)
                except (GitRefused, OSError):
                    said.append(f"{shown}: {SPOILED}")
                    self._changes_of(copy.repository).generation += 1
                    copies.files.remove(copy)
                    continue
                unkept += [f"{_short(key)} ({shown})" for key in self._note(copy.repository, changes)]
        if unkept:
            more = f" and {len(unkept) - MOST_NAMED} more" if len(unkept) > MOST_NAMED else ""
            said.append(f"{UNKEPT}: {', '.join(unkept[:MOST_NAMED])}{more}")
        return said

    def _changes_of(self, repository: Repository) -> _Changes:
        return self._changes.setdefault(repository.path, _Changes(repository.directory))

    def _note(self, repository: Repository, changes: Values) -> list[str]:
        """Note changes of a command; the keys of those that are not carried over."""
        if not changes:
            return []
        found = self._changes_of(repository)
        if found.directory != repository.directory:  # another repository has its place by now
            return sorted(changes)
        before = self._read.get(repository.path)
        values: dict[str, tuple[str | None, ...]] = {}
        for key, value in () if before is None else before.settings:
            values[key] = (*values.get(key, ()), value)
        wanted = {**found.kept, **found.own, **changes}
        found.kept = git_keys.allowed(wanted, values)
        found.own = {
            key: value for key, value in wanted.items() if key not in found.kept and value != values.get(key, ())
        }
        return sorted(key for key in changes if key in found.own)

    def write(self) -> list[str]:
        """Write what waits to the files, each with git's own lock; what could not be written, and why.

        Blocks. No command may run.
        """
        failed: list[str] = []
        for path, changes in list(self._changes.items()):
            place = self._roots.split(path)
            if not changes.kept or place is None:
                continue
            try:
                self._write(place, changes)
            except FileExistsError:
                shown = self._shown(path)
                failed.append(f"{shown} is not changed yet: git's lock on it is there ({shown}.lock)")
            except OSError as error:
                failed.append(f"{self._shown(path)} is not changed: {error.strerror}")
                changes.kept = {}
            except (GitRefused, NotWritable) as error:
                failed.append(f"{self._shown(path)} is not changed: {error}")
                changes.kept = {}
        return failed

    def _write(self, place: Place, changes: _Changes) -> None:
        above, _, name = place.relative.rpartition("/")
        directory = self._roots.engine.open(place.root.fd, above or ".", _DIRECTORY)
        try:
            if identity_of(os.fstat(directory)) != changes.directory:
                raise OSError(errno.ESTALE, "another repository has its place")
            _replace(directory, name, partial(_with_changes, changes=changes.kept))
            changes.kept = {}
        finally:
            os.close(directory)

    def _shown(self, path: str) -> str:
        place = self._roots.split(path)
        return path if place is None else self._roots.shown(place)


def _short(key: str) -> str:
    return printable(key if len(key) <= _KEY_CHARACTERS else f"{key[:_KEY_CHARACTERS]}...")


def _changes_in(path: str, copy: _Copy) -> dict[str, tuple[str | None, ...]]:
    """What is different in a copy since the last time.

    Raises:
        GitRefused, OSError: it is no configuration of a repository any more.
    """
    top = os.open(path, _DIRECTORY)
    try:
        handle = os.open(copy.name, _DIRECTORY, dir_fd=top)
    finally:
        os.close(top)
    try:
        stamp = _stamp(os.stat("config", dir_fd=handle, follow_symlinks=False))
        if stamp == copy.stamp:
            return {}
        now = values_of(parse(_content("config", handle)[0], "config"))
    finally:
        os.close(handle)
    if _FORMAT in copy.base and _FORMAT not in now:  # emptied, or replaced by something else
        raise GitRefused(f"{_FORMAT} is not set any more")
    changes = {key: now.get(key, ()) for key in {**copy.base, **now} if now.get(key) != copy.base.get(key)}
    copy.stamp, copy.base = stamp, now
    return changes


def _with_changes(data: bytes, *, changes: Values) -> bytes:
    return edited(data, git_keys.restored(parse(data, "config"), changes))


def _replace(directory: int, name: str, change: Callable[[bytes], bytes]) -> None:
    """Replace a file the way git does: the lock is the new file, which is renamed when it is whole."""
    lock = f"{name}.lock"
    handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        data, found = _content(name, directory)
        with suppress(OSError):  # to whom it belonged; not everybody may give files away
            os.fchown(handle, found.st_uid, found.st_gid)
        os.fchmod(handle, stat.S_IMODE(found.st_mode) & 0o777)
        with open(handle, "wb", closefd=False) as file:
            file.write(change(data))
        os.fsync(handle)
        os.rename(lock, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(lock, dir_fd=directory)
        raise
    finally:
        os.close(handle)


def _content(name: str, directory: int) -> tuple[bytes, os.stat_result]:
    """A regular file whole.

    Raises:
        OSError: it is something else, or too long.
    """
    handle = os.open(name, _READ, dir_fd=directory)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is no file", name)
        data = b""
        while piece := os.read(handle, MOST_BYTES + 1 - len(data)):
            data += piece
        if len(data) > MOST_BYTES:
            raise OSError(errno.EFBIG, "is too long", name)
        return data, found
    finally:
        os.close(handle)


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
