"""git configurations for commands: a copy without credentials in each view, and how their changes are carried over.

A copy is in a directory of the server and is reached by a link that is mounted over the file of the repository, so that
git creates its lock beside the copy. After a command its changes are read from the copy, key by key: keys that start no
program are written to the file itself, all others apply to commands for as long as the server runs. The file is
written only while no command runs: one that is replaced loses its cover for a moment in views that are there.
"""

import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from coretools.confinement.control_files import file_state
from coretools.confinement.git_config_changes import (
    allowed_changes,
    included_paths,
    restore_credentials,
    sends_credentials_to_any_server,
)
from coretools.confinement.git_copies import MAX_CONFIG_BYTES, ConfigCopies, read_changes
from coretools.confinement.protected_paths import GIT_CONFIG_NAMES, ControlFiles, HiddenPath, MaskedGitConfig, Masks
from coretools.errors import GitRefused
from coretools.process.fork_server import git_lock
from coretools.process.fork_server.client import ForkServerClient
from coretools.process.fork_server.config_guard import ConfigGuard
from coretools.process.fork_server.git_includes import MAX_INCLUDED, GitIncludes, absolute_paths
from coretools.process.fork_server.messages import ForkServerFailed
from coretools.regular_file import read_regular, replacing, write_all
from coretools.roots.git_config import NotWritable, Setting, Values, edit, parse, serialize, values_of, with_changes
from coretools.roots.git_credentials import (
    GIT_CREDENTIAL,
    HOLDS_CREDENTIAL,
    credential_files,
    credentials_in,
    without_credentials,
)
from coretools.roots.hidden_inodes import inode_of
from coretools.roots.path_text import printable
from coretools.roots.root import RootedPath, identity_of
from coretools.roots.root_set import Roots
from coretools.roots.secret_names import GIT_FORMAT
from coretools.truncation import and_more

NOT_READABLE = f"it can't be read to see whether it holds {GIT_CREDENTIAL}"
NOT_PARSABLE = "it is no configuration from which credentials can be removed"
TOO_LONG = f"it is longer than {MAX_CONFIG_BYTES // 1024} KiB, too long to be searched for {GIT_CREDENTIAL}"
MAX_NAMED = 10
"""Keys that a result names."""

NOT_CARRIED_OVER = (
    "git's configuration: these keys hold for commands while this server runs and are not carried over to the"
    " repository's own file, since git may start a program for them"
)
CHANGED_FOR_ALL = (
    "git's configuration, which all work trees of the repository share, was changed (git config changes it back)"
)
NO_CONFIGURATION = "the command left no configuration of a repository here; nothing of it is carried over"

LOCKED = "git's lock on it is there; if no git runs in this repository any more, remove that file"

_REFUSED = (HOLDS_CREDENTIAL, TOO_LONG, NOT_READABLE)
"""Why a file is hidden that tier `landlock` refuses commands for."""
_FILES = frozenset(GIT_CONFIG_NAMES)
_KEY_CHARACTERS = 120
_NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP})


class _ParsedConfig(NamedTuple):
    """A configuration as it was read, and what commands see of it."""

    data: bytes
    settings: Sequence[Setting]
    """The settings that commands see."""
    text: bytes | None
    """None if the file is no valid configuration."""
    credentials: tuple[Setting, ...] | None
    """The settings with a credential, without it; None if the file holds none."""
    named: tuple[str, ...]
    """Files that it includes, or where git keeps credentials for it, as written in it."""
    gives_away: bool = False


@dataclass(slots=True)
class _ConfigChanges:
    """Changes of commands to one configuration."""

    directory: tuple[int, int]
    kept: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    """Pending changes for the file."""
    own: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    """Changes that apply to commands only."""
    generation: int = 0


class GitConfigs:
    """All git configurations of a server. Used by one thread at a time."""

    def __init__(self, roots: Roots, end_commands: Callable[[], object]) -> None:
        """`end_commands` ends all commands at once."""
        self._roots = roots
        self._guard = ConfigGuard(roots, end_commands)
        self._read: dict[str, _ParsedConfig] = {}
        self.credentials: dict[str, tuple[Setting, ...]] = {}
        """Files with a credential in the last masks, and its settings without it; also those that can't be searched."""
        self._changes: dict[str, _ConfigChanges] = {}
        self._copies: list[ConfigCopies] = []
        self._includes = GitIncludes(roots)
        self._own: dict[str, tuple[int, ...]] = {}
        """States of the files after the server wrote them."""
        self._running = 0
        self._uncertain: list[ForkServerClient] = []

    def command_started(self) -> None:
        """Record that a command is about to start."""
        if not self.are_running:
            self._guard.commands_start()
        self._running += 1

    def command_ended(self, uncertain: Sequence[ForkServerClient]) -> list[str]:
        """Record that a command has ended or did not start; processes of it may be left in `uncertain`.

        Returns sentences about its changes for the result.
        """
        self._running -= 1
        # A process that is left may still write to its copy, so the file waits for its end.
        self._uncertain = [client for client in {*self._uncertain, *uncertain} if not client.is_gone]
        if self.are_running:
            self._guard.check()
        else:
            self._guard.commands_ended()
        return [*self._collect(), *self._guard.notes()]

    @property
    def are_running(self) -> bool:
        """Whether commands run, or processes of one may be left."""
        return bool(self._running or self._uncertain)

    def repair_new(self, paths: Sequence[str], *, is_last: bool = False) -> list[str]:
        """Take back what starts programs in configurations that commands created; return sentences for the result."""
        self._guard.repair_new(paths, is_last=is_last)
        return self._guard.notes()

    @property
    def can_write(self) -> bool:
        """Whether changes are pending, and no command runs that could see the file without its copy."""
        return not self.are_running and any(one.kept for one in self._changes.values())

    def close(self) -> None:
        """Write pending changes after the end of all commands."""
        self._collect()
        self._guard.close()
        self.write()

    def apply_to(self, masks: Masks) -> Masks:
        """Add a copy of each configuration to the masks; one whose credentials can't be removed is hidden."""
        read: dict[str, _ParsedConfig] = {}
        masked = self._find(masks, read)
        by_content = [one.path for one in masks.hidden if one.reason == HOLDS_CREDENTIAL and one.path not in masked]
        for path in by_content[:MAX_INCLUDED]:  # hidden as a whole; read for the names of its settings only
            self._inspect(path, read, is_own=False)
        self._read = read
        hidden = _hidden_files(masks, masked)
        self.credentials = {path: () for path, one in hidden.items() if one.reason in _REFUSED}
        self.credentials |= {path: one.credentials for path, one in read.items() if one.credentials is not None}
        copied = (one for one in masked.values() if isinstance(one, MaskedGitConfig))
        return masks._replace(
            read_only=tuple(path for path in masks.read_only if masked.get(path) is None),
            hidden=tuple(sorted(hidden.values())),
            git_configs=tuple(one for one in copied if one.path not in hidden),
        )

    def _find(self, masks: Masks, read: dict[str, _ParsedConfig]) -> "_Masked":
        """How to mask each configuration, each file that may hold credentials, and what they include."""
        own = [path for path in masks.read_only if path.rpartition("/")[2] in _FILES]
        masked = {path: self._inspect(path, read, is_own=True) for path in own}
        waiting = [*masks.credential_files, *self._included(read)]
        while waiting:
            path = waiting.pop()
            if path not in masked and len(masked) < len(own) + len(masks.credential_files) + MAX_INCLUDED:
                masked[path] = self._inspect(path, read, is_own=False)
                # Included files may include others; each is read once, and no more than the bound above.
                waiting += self._included({path: read[path]} if path in read else {})
        return masked

    def _inspect(
        self, path: str, read: dict[str, _ParsedConfig], *, is_own: bool
    ) -> MaskedGitConfig | HiddenPath | None:
        """How to mask a file; None for not at all. `is_own`: by its name it is the repository's own configuration."""
        place = self._roots.split(path)
        if place is None:
            return None
        try:
            directory, known, inode = self._parsed(path, place)
        except OSError as error:
            return None if error.errno in _NO_FILE and not is_own else _not_searched(path, error)
        read[path] = known
        if known.credentials is not None:
            self._remember(place, inode[0])
        elif not is_own:
            return None
        if known.text is None:
            return _hidden(path, NOT_PARSABLE if known.credentials is None else HOLDS_CREDENTIAL)
        text, generation = self._text_for_commands(path, directory, known)
        return MaskedGitConfig(path, directory, place.root.writable, text, inode, generation)

    def _remember(self, place: RootedPath, number: int) -> None:
        """Remember a file with a credential, so that it stays hidden when git would no longer read it there."""
        inode = inode_of(place.relative, place.root.fd)
        if inode is not None and inode.number == number:
            self._roots.hidden_inodes.remember(inode, GIT_FORMAT)

    def _text_for_commands(self, path: str, directory: tuple[int, int], known: _ParsedConfig) -> tuple[bytes, int]:
        """The text that commands see, with their changes, and how often they left an invalid file."""
        changes = self._changes.get(path)
        if changes is not None and changes.directory == directory:
            return serialize(with_changes(known.settings, {**changes.kept, **changes.own})), changes.generation
        self._changes.pop(path, None)  # of another repository that was here before
        return known.text or b"", 0

    def _parsed(self, path: str, place: RootedPath) -> tuple[tuple[int, int], _ParsedConfig, tuple[int, ...]]:
        """Identity of the directory, content, and identity of a file."""
        known = self._read.get(path)
        with self._roots.open_parent(place) as (handle, name):
            if known is None and place.root.writable:  # this server has not read it before
                git_lock.remove_stale(handle, name)
            data, found = read_regular(name, MAX_CONFIG_BYTES, directory=handle)
            directory = identity_of(os.fstat(handle))
        if known is None or known.data != data:
            known = _parse(data)
        return directory, known, (found.st_ino, found.st_ctime_ns)

    def _included(self, read: Mapping[str, _ParsedConfig]) -> list[str]:
        """Files in the roots that these configurations include (git-config(1), Includes), or keep credentials in."""
        paths = [one for path, known in read.items() for one in absolute_paths(path, known.named)]
        return [path for path in paths if self._roots.split(path) is not None]

    def replace_links(self, links: Sequence[tuple[str, str]]) -> None:
        """Replace links to copies that a command put elsewhere (`cp -a`) by files: they dangle outside the view."""
        texts = {target: one.text for copies in self._copies for target, one in copies.originals.items()}
        for path, target in links:
            place = self._roots.split(path)
            if place is not None and target in texts:
                with suppress(OSError), self._roots.open_parent(place) as (directory, name):
                    # Read again: the link may be another one since the scan.
                    if os.readlink(name, dir_fd=directory) == target:
                        with replacing(name, directory=directory, mode=0o644) as file:
                            write_all(file, texts[target])

    def without_own(self, found: ControlFiles) -> ControlFiles:
        """Control files and included files, except those in the state in which the server wrote them.

        No command changed those.
        """
        whole = {**found, **self._includes.states(found)}
        return {path: state for path, state in whole.items() if self._own.get(path) != state} if self._own else whole

    def make_copies(self, path: str, masks: Masks, *, is_trial: bool = False) -> ConfigCopies:
        """Create the copies for one view, in a new directory. Call `drop` when the view is gone.

        Changes in those of a trial are carried over only after `adopt`.

        Raises:
            ForkServerFailed: they can't be created.
        """
        try:
            copies = ConfigCopies(path, masks)
        except OSError as error:
            raise ForkServerFailed(f"git's configuration can't be copied: {error}", error.errno or 0) from error
        if not is_trial:
            self._copies.append(copies)
        self._guard.see(one.path for one in masks.git_configs if one.path.rpartition("/")[2] in _FILES)
        return copies

    def adopt(self, copies: ConfigCopies) -> None:
        """Carry over the changes in the copies of a trial with those of the next command that ends."""
        self._copies.append(copies)

    def drop(self, copies: ConfigCopies | None) -> None:
        """Remove the copies of a view that is gone, if it had any."""
        if copies is not None:
            if copies in self._copies:
                self._copies.remove(copies)
            shutil.rmtree(copies.path, ignore_errors=True)

    def _collect(self) -> list[str]:
        """Read the changes of commands since the last call; return sentences for the result."""
        reports: list[str] = []
        not_carried_over: list[str] = []
        for_all: list[str] = []
        for copies in self._copies:
            for copy in tuple(copies.files):
                display_path = self._display_path(copy.repository.path)
                try:
                    changes = read_changes(copies.path, copy)
                except (GitRefused, OSError):
                    reports.append(f"{display_path}: {NO_CONFIGURATION}")
                    # The text for commands is the same, the mask is not: so the next command gets a new view with a
                    # fresh copy.
                    self._changes_of(copy.repository).generation += 1
                    copies.files.remove(copy)
                    continue
                not_carried_over += [f"{_short(key)} ({display_path})" for key in self._note(copy.repository, changes)]
                for_all += [f"{what} ({display_path})" for what in self._changed_for_all(copy.repository.path, changes)]
        for sentence, names in ((NOT_CARRIED_OVER, not_carried_over), (CHANGED_FOR_ALL, for_all)):
            reports += [f"{sentence}: {and_more(names[:MAX_NAMED], len(names))}"] if names else []
        return reports

    def _changed_for_all(self, path: str, changes: Values) -> list[str]:
        """Return the keys that are carried over to a file that work trees beyond the roots use too, as they were."""
        place = self._roots.split(path)
        if place is None or not place.root.only_git or place.relative not in _FILES:
            return []
        kept, before = self._changes[path].kept if path in self._changes else {}, self._read.get(path)
        were = values_of(() if before is None else before.settings)
        changed = sorted(key for key in changes if key in kept and kept[key] != were.get(key, ()))
        return [f"{_short(key)}, {_described(were.get(key, ()))}" for key in changed]

    def _changes_of(self, repository: MaskedGitConfig) -> _ConfigChanges:
        return self._changes.setdefault(repository.path, _ConfigChanges(repository.directory))

    def _note(self, repository: MaskedGitConfig, changes: Values) -> list[str]:
        """Record changes of a command; return the keys that are not carried over."""
        if not changes:
            return []
        recorded = self._changes_of(repository)
        if recorded.directory != repository.directory:  # another repository is there by now
            return sorted(changes)
        before = self._read.get(repository.path)
        values = values_of(() if before is None else before.settings)
        wanted = {**recorded.kept, **recorded.own, **changes}
        recorded.kept = allowed_changes(wanted, values, is_bound=before is not None and before.gives_away)
        recorded.own = {
            key: value for key, value in wanted.items() if key not in recorded.kept and value != values.get(key, ())
        }
        return sorted(key for key in changes if key in recorded.own)

    def write(self) -> list[str]:
        """Write pending changes to the files, each under git's own lock; return what could not be written, and why.

        Blocks. No command may run meanwhile.
        """
        failed: list[str] = []
        for path, changes in list(self._changes.items()):
            place = self._roots.split(path)
            if not changes.kept or place is None:
                continue
            try:
                self._own[path] = self._write(place, changes)
            except FileExistsError:
                display_path = self._display_path(path)
                failed.append(f"{display_path} is not changed yet: {LOCKED}: {display_path}.lock")
            except OSError as error:
                failed.append(f"{self._display_path(path)} is not changed: {error.strerror}")
                changes.kept = {}
            except (GitRefused, NotWritable) as error:
                failed.append(f"{self._display_path(path)} is not changed: {error}")
                changes.kept = {}
        return failed

    def _write(self, place: RootedPath, changes: _ConfigChanges) -> tuple[int, ...]:
        with self._roots.open_parent(place) as (directory, name):
            # A command may have exchanged the directory since: its changes belong to the repository that it saw.
            if identity_of(os.fstat(directory)) != changes.directory:
                raise OSError(errno.ESTALE, "another repository is there")
            git_lock.replace(directory, name, partial(_with_changes, changes=changes.kept))
            changes.kept = {}
            # Remembered, so that the server's own write is not reported as a change of the next command.
            return file_state(os.stat(name, dir_fd=directory, follow_symlinks=False))

    def _display_path(self, path: str) -> str:
        place = self._roots.split(path)
        return path if place is None else self._roots.display_path(place)


def _short(key: str) -> str:
    return printable(key if len(key) <= _KEY_CHARACTERS else f"{key[:_KEY_CHARACTERS]}...")


def _described(values: Sequence[str | None]) -> str:
    return f"before: {_short(', '.join(value or 'true' for value in values))}" if values else "before: not set"


_Masked = Mapping[str, MaskedGitConfig | HiddenPath | None]
"""How to mask each file; None for not at all."""


def _hidden_files(masks: Masks, masked: _Masked) -> dict[str, HiddenPath]:
    """Each hidden file once. One that is hidden for another reason stays so: `.env`, included by a configuration."""
    hidden = {one.path: one for one in masked.values() if isinstance(one, HiddenPath)}
    others = (one for one in masks.hidden if not masked.get(one.path) or one.reason != HOLDS_CREDENTIAL)
    return hidden | {one.path: one for one in others}


def _not_searched(path: str, error: OSError) -> HiddenPath:
    reasons = {errno.EFBIG: TOO_LONG, errno.EACCES: NOT_READABLE, errno.EPERM: NOT_READABLE}
    return _hidden(path, reasons.get(error.errno or 0, NOT_PARSABLE))


def _hidden(path: str, reason: str) -> HiddenPath:
    return HiddenPath(path, reason, inode_of(path) or (0, 0, 0))


def _parse(data: bytes) -> _ParsedConfig:
    try:
        settings = parse(data, "config")
        seen = without_credentials(settings)
        return _ParsedConfig(
            data,
            seen,
            serialize(seen),
            credentials_in(data),
            (*included_paths(settings), *credential_files(settings)),
            sends_credentials_to_any_server(settings),
        )
    except (GitRefused, NotWritable):
        return _ParsedConfig(data, (), None, credentials_in(data), ())


def _with_changes(data: bytes, *, changes: Values) -> bytes:
    return edit(data, restore_credentials(parse(data, "config"), changes))
