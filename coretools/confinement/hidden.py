"""Decide which files commands must not read, by name and content. A renamed file stays hidden.

`entry_reader` calls `suspicion` for each entry of a directory that the scan lists. `HiddenFiles.find` then stats every
suspect at each scan, and classifies one again only if its version changed, or that of a file on which its
classification depends. Hidden files are remembered by inode, so a scan finds them under any name in any directory.
"""

import os
import stat
import time
from collections.abc import Generator, Iterable
from typing import NamedTuple

from coretools.confinement.protected_paths import HiddenPath, Suspect
from coretools.roots.file_version import Version, version_of
from coretools.roots.hidden_inodes import Inode, inode_of
from coretools.roots.root import Root
from coretools.roots.root_set import GLOB_KIND, Roots


class Classification(NamedTuple):
    """Whether a suspect is hidden."""

    reason: str | None
    """Why it is hidden; None if commands may read it."""
    depends_on: tuple[str, ...] = ()
    """Absolute paths of other files that influenced it (git's index). When one changes, it is classified again."""
    inode: tuple[int, int] | None = None
    """Device and inode of the file that was read; None if only the path mattered."""


REPLACED_WHILE_READ = "it was moved or replaced while it was searched for secrets"


class _Classified(NamedTuple):
    version: Version
    is_settled: bool
    """Whether any later change will show in the version."""
    depends_on: tuple[Version | None, ...]
    suspect: Suspect
    classification: Classification
    inode: Inode | None


class HiddenFiles:
    """The classifications of the last scan, one instance per set of roots. Remembers hidden inodes, for tools too."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._inodes = roots.hidden_inodes
        self._classified: dict[tuple[str, str], _Classified] = {}

    @property
    def suspect_inodes(self) -> set[tuple[int, ...]]:
        """Device and inode of all suspects of the last scan."""
        return {one.version.identity for one in self._classified.values()}

    def suspicion(self, root: Root, path: str, entry: os.DirEntry[str]) -> str | None:
        """Return why an entry is suspect; None for nearly all. A suspect directory is hidden as a whole.

        A deny glob matches it, its name suggests a secret format, or it is a renamed hidden file.
        """
        if entry.is_symlink():
            return None
        glob = self._roots.deny.denying_glob(path)
        if glob is not None:
            return f"{GLOB_KIND}{glob}"
        kind = "" if entry.is_dir(follow_symlinks=False) else self._roots.deny.secret_format(path)
        return kind or self.remembered_kind(root, path, entry)

    def remembered_kind(self, root: Root, path: str, entry: os.DirEntry[str]) -> str | None:
        """Return the kind that an entry was hidden for under any name; None if it never was."""
        return self._inodes.kind_of(root.fd, path, entry.inode()) or None

    def find(self, suspects: Iterable[tuple[Root, Suspect]]) -> Generator[None, None, list[HiddenPath]]:
        """Return the suspects that commands must not read. Yields before each one, since reading takes time."""
        hidden: list[HiddenPath] = []
        judged: dict[tuple[str, str], _Classified] = {}
        for root, suspect in suspects:
            yield
            version = _version(suspect.path, root.fd)
            if version is None:  # it is gone
                continue
            key = (root.path, suspect.path)
            known = self._classified.get(key)
            if known is None or not _is_unchanged(known, suspect, version):
                known = self._classify(root, suspect, version)
            judged[key] = known
            if known.classification.reason is not None:
                covered = (*(known.inode or version.identity), version.size, version.modified_ns)
                hidden.append(HiddenPath(f"{root.path}/{suspect.path}", known.classification.reason, covered))
        self._classified = judged
        return hidden

    def _classify(self, root: Root, suspect: Suspect, version: Version) -> _Classified:
        began = time.time_ns()
        classification = self._judge(root, suspect)
        if classification.inode not in (None, version.identity):  # a parent directory was exchanged and put back
            return _Classified(
                version, False, (), suspect, Classification(classification.reason or REPLACED_WHILE_READ), None
            )
        depends_on = tuple(_version(path) for path in classification.depends_on)
        seen = (version, *(one for one in depends_on if one is not None))
        may_stay = all(one.is_settled(began) for one in seen)
        inode = inode_of(suspect.path, root.fd)
        if inode is None or inode[:2] != version.identity:
            may_stay, inode = False, None
        elif classification.reason is not None:
            self._inodes.remember(inode, suspect.kind)
        else:
            self._inodes.forget(inode)
        return _Classified(version, may_stay, depends_on, suspect, classification, inode)

    def _judge(self, root: Root, suspect: Suspect) -> Classification:
        """Decide by the deny glob that matches the name, whatever the content; else by content and git's index."""
        if suspect.kind.startswith(GLOB_KIND):
            return Classification(self._roots.glob_reason(suspect.kind.removeprefix(GLOB_KIND)))
        decision = self._roots.secret_check.decide((root.path, root.fd), suspect.path, suspect.kind)
        return Classification(decision.reason or None, decision.index_paths, decision.inode)


def _is_unchanged(known: _Classified, suspect: Suspect, version: Version) -> bool:
    if not known.is_settled or known.version != version or known.suspect != suspect:
        return False
    return all(
        _version(path) == seen for path, seen in zip(known.classification.depends_on, known.depends_on, strict=True)
    )


def _version(path: str, top: int | None = None) -> Version | None:
    try:
        status = os.stat(path, dir_fd=top, follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):  # hidden as a whole, so changes in it do not matter
        return Version(status.st_dev, status.st_ino, 0, 0, status.st_ctime_ns)
    return version_of(status)
