"""The settings of editors and agents that a scan met: which of them commands may not change, and their state."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from coretools.confinement.protected_paths import ControlFiles, DirectoryNode, SettingEntry
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.editor_settings import NESTING, beneath, link_target, setting_of, settings_state
from coretools.roots.git_layout import folded
from coretools.roots.hidden_inodes import Inode, inode_of
from coretools.roots.root import join_path
from coretools.roots.root_set import Roots


class FixedSettings(NamedTuple):
    """Existing settings that commands may not change: absolute paths with inodes, sorted."""

    read_only: list[tuple[str, Inode]]
    """Files and directories, also those to which links lead."""
    pinned: list[tuple[str, Inode]]
    """Links, and directories between the top and a setting: they can't be moved or replaced."""


def setting_entries(node: DirectoryNode, names: Iterable[str]) -> list[SettingEntry]:
    """Return the entries of a directory, of these names, that may be settings."""
    parent = os.path.basename(node.path)
    may_nest = folded(parent) in NESTING
    entries = []
    for name in names:
        is_nested = not setting_of(name)
        if is_nested and not (may_nest and setting_of(f"{parent}/{name}")):
            continue
        path = node.join(name)
        with suppress(OSError):
            mode = os.stat(path, dir_fd=node.root.fd, follow_symlinks=False).st_mode
            inode = inode_of(path, node.root.fd)
            if inode is not None and (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                entries.append(SettingEntry(path, inode, stat.S_ISLNK(mode), is_nested))
    return entries


def fixed_settings(roots: Roots, nodes: Iterable[DirectoryNode]) -> FixedSettings:
    """Return the settings that commands may not change: not those of linked work trees, which commands may remove."""
    read_only: dict[str, Inode] = {}
    pinned: dict[str, Inode] = {}
    for top, entry in _settings(nodes) if not roots.changes_settings else ():
        if top.listing is not None and not top.listing.is_linked:
            (pinned if entry.is_link else read_only)[join_path(top.root.path, entry.path)] = entry.identity
            if entry.is_link or entry.is_nested:
                _fix_way(roots, top, entry, read_only, pinned)
    return FixedSettings(sorted(read_only.items()), sorted(pinned.items() - read_only.items()))


def _fix_way(
    roots: Roots, top: DirectoryNode, entry: SettingEntry, read_only: dict[str, Inode], pinned: dict[str, Inode]
) -> None:
    """Add what a setting leads to, and the directories above both."""
    target = link_target(roots, top.root, top.path, entry.path)
    if target:
        _record(read_only, top, target)
    for path in (entry.path, target) if target else (entry.path,):
        for above in _above(path, top.path):
            _record(pinned, top, above)


def states_of_settings(roots: Roots, nodes: Iterable[DirectoryNode]) -> ControlFiles:
    """Return the state of each setting in writable roots, and of the files in it."""
    found: dict[str, tuple[int, ...]] = {}
    for top, entry in _settings(nodes):
        with suppress(OSError):
            handle = roots.resolver.open(top.root.fd, top.path, DIRECTORY)
            try:
                states = settings_state(roots, handle, [beneath(entry.path, top.path)])
            finally:
                os.close(handle)
            here = join_path(top.root.path, top.path)
            found |= {f"{here}/{path}": state for path, state in states.items()}
    return found


def _settings(nodes: Iterable[DirectoryNode]) -> Iterator[tuple[DirectoryNode, SettingEntry]]:
    """Yield the settings in writable roots, with the top that each belongs to."""
    for node in nodes:
        for entry in node.listing.settings if node.listing is not None and node.root.writable else ():
            top = node.parent if entry.is_nested else node
            if top is not None and top.listing is not None and top.listing.is_top:
                yield top, entry


def _record(inodes: dict[str, Inode], top: DirectoryNode, path: str) -> None:
    inode = inode_of(path, top.root.fd)
    if inode is not None:
        inodes[join_path(top.root.path, path)] = inode


def _above(path: str, top: str) -> Iterator[str]:
    """The directories between a top and a path beneath it."""
    while (path := os.path.dirname(path) or ".") != top:
        yield path
