"""What the operator lets git run in the repository of a root: hooks, filters and merge drivers, as they were at start.

A grant names a program of the repository; its content or definition is recorded when the server starts, so what is
planted later does not run. It applies to the repository whose work tree is the root itself, not to another one in it or
to a linked work tree.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from shlex import quote

from coretools.config.operator_policy import GitGrants
from coretools.confinement.user_git import UserGit
from coretools.errors import CoreError, GitRefused
from coretools.roots import directory_access
from coretools.roots.git_config import Setting, parse
from coretools.roots.read import open_directory
from coretools.roots.root_set import Roots

HOOK_BYTES = 4 * 1024 * 1024
"""Largest hook that is run."""

CONFIG_BYTES = 1024 * 1024

REFUSED = "coretools: the hook "
"""Beginning of the line by which a hook that failed is recognised in the output."""

_STAND_IN = """#!/bin/sh
unset GIT_CONFIG_PARAMETERS GIT_CONFIG_COUNT GIT_DIR GIT_WORK_TREE GIT_LITERAL_PATHSPECS GIT_NO_REPLACE_OBJECTS
unset GIT_ALLOW_PROTOCOL GIT_PROTOCOL_FROM_USER GIT_NO_LAZY_FETCH GIT_OPTIONAL_LOCKS GIT_ATTR_NOSYSTEM
unset GIT_CONFIG_NOSYSTEM GIT_CONFIG_SYSTEM
{hook} "$@"
code=$?
[ "$code" = 0 ] || echo "{refused}{name} ended with exit code $code" >&2
exit "$code"
"""
"""What git starts in place of a hook: only granted ones exist for it, and they get git's usual environment."""

_FILTER_KEYS = ("clean", "smudge", "process", "required")
_DRIVER_KEYS = ("driver", "recursive", "name")
_LFS = {
    "clean": "git-lfs clean -- %f",
    "smudge": "git-lfs smudge -- %f",
    "process": "git-lfs filter-process",
    "required": "true",
}
"""What `git lfs install` configures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryGrants:
    """What git may run in one repository."""

    hooks: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each granted hook; empty if there was no such file at start."""
    hooks_path: str = ""
    """Where the hooks are, relative to the work tree."""
    directory: str = ""
    """Directory of the files for git."""
    stand_ins: str = ""
    """Directory of the programs that git starts in place of the hooks, on the machine."""
    definitions: tuple[tuple[str, str], ...] = ()
    """Settings that define the granted filters and merge drivers."""
    filters: frozenset[str] = frozenset()
    merge_drivers: frozenset[str] = frozenset()
    signing: bool = False

    def covers(self, key: str) -> bool:
        """Whether a setting of the repository is granted."""
        section, _, rest = key.partition(".")
        granted = {"filter": self.filters, "merge": self.merge_drivers}.get(section, frozenset())
        return rest.rpartition(".")[0] in granted or (key == "core.hookspath" and bool(self.hooks))


NO_GRANTS = RepositoryGrants()


def record_grants(policy: Mapping[str, GitGrants], roots: Roots, user_git: UserGit) -> dict[str, RepositoryGrants]:
    """Return the grants by the path of the root, with the content of hooks and the definitions as they are now."""
    recorded = {}
    for number, root in enumerate(roots):
        grants = policy.get(root.path)
        if grants is None or not user_git.directory:
            continue
        settings = _settings(roots, root.path)
        hooks_path = hooks_directory(settings)
        wanted = (hook.partition("@sha256:") for hook in grants.hooks)
        hooks = {name: pin or _hash_of(roots, root.path, f"{hooks_path}/{name}") for name, _, pin in wanted}
        programs = {name: _stand_in(name, f"{root.path}/{hooks_path}/{name}") for name in hooks}
        recorded[root.path] = RepositoryGrants(
            hooks=hooks,
            hooks_path=hooks_path,
            directory=user_git.directory,
            stand_ins=user_git.add_programs(f"hooks-{number}", programs),
            definitions=tuple(_definitions(grants, settings, user_git)),
            filters=frozenset(grants.filters),
            merge_drivers=frozenset(grants.merge_drivers),
            signing=grants.signing,
        )
    return recorded


def hooks_directory(settings: Iterable[Setting]) -> str:
    """Return the directory of hooks relative to the work tree; outside it hooks can't be granted."""
    named = [one.value or "" for one in settings if one.key == "core.hookspath"]
    path = posixpath.normpath(named[-1]) if named and named[-1] else ".git/hooks"
    return ".git/hooks" if path.startswith(("/", "..", "~")) else path


def require_unchanged(roots: Roots, top: str, grants: RepositoryGrants, overridden: Iterable[str]) -> None:
    """Refuse to run git with hooks, filters or drivers that are not the granted ones any more.

    `overridden` are the keys of the repository that are overridden now. A value that changed has no effect; a key that
    was added to a filter would keep git from converting files.

    Raises:
        GitRefused: names the hook or key.
    """
    defined = {key for key, _ in grants.definitions}
    for key in overridden:
        if grants.covers(key) and key not in defined and not key.endswith(".required"):
            raise GitRefused(
                f"{key} was set after it was granted; nothing was done; remove that key, or restart the"
                " server to grant it as it is now",
                found=key,
            )
    for name, expected in grants.hooks.items():
        now = _hash_of(roots, top, f"{grants.hooks_path}/{name}")
        if now and now != expected:
            raise GitRefused(
                f"the hook {name} is not the one that was granted (now sha256:{now}); nothing was done; the operator"
                f' grants it again by restarting the server, or with hooks = ["{name}@sha256:{now}"]',
                found=f"{grants.hooks_path}/{name}",
            )


def hook_hash(data: bytes) -> str:
    """Return the hash by which a hook is granted."""
    return sha256(data).hexdigest()


def _hash_of(roots: Roots, top: str, path: str) -> str:
    """Return the hash of a regular file; empty if there is none."""
    above, _, name = path.rpartition("/")
    try:
        with open_directory(roots, f"{top}/{above}") as directory:
            return hook_hash(directory_access.read_file(directory.fd, name, limit_bytes=HOOK_BYTES))
    except CoreError:
        return ""


def _settings(roots: Roots, top: str) -> Sequence[Setting]:
    try:
        with open_directory(roots, f"{top}/.git") as directory:
            return parse(directory_access.read_file(directory.fd, "config", limit_bytes=CONFIG_BYTES), ".git/config")
    except CoreError:
        return ()


def _stand_in(name: str, path: str) -> str:
    # git starts what is there; a hook that is absent in the repository must succeed.
    return _STAND_IN.format(hook=f"[ ! -x {quote(path)} ] || {quote(path)}", refused=REFUSED, name=name)


def _definitions(grants: GitGrants, settings: Sequence[Setting], user_git: UserGit) -> list[tuple[str, str]]:
    """Return the settings of granted filters and drivers: the user's, else the repository's as it is now."""
    own = {one.key: one.value or "" for one in settings}
    keys = [f"merge.{name}.{key}" for name in grants.merge_drivers for key in _DRIVER_KEYS]
    definitions = [(key, own.get(key, "")) for key in keys]
    for name in grants.filters:
        definitions += _filter_definition(name, own, user_git)
    # An empty `process` would keep git from starting `clean`.
    return [(key, value) for key, value in definitions if value]


def _filter_definition(name: str, own: Mapping[str, str], user_git: UserGit) -> list[tuple[str, str]]:
    repository = {key: own.get(f"filter.{name}.{key}", "") for key in _FILTER_KEYS}
    usual = _LFS if name == "lfs" and not any(repository.values()) else repository
    chosen = user_git.filters.get(name, usual)
    return [(f"filter.{name}.{key}", chosen.get(key, "")) for key in _FILTER_KEYS]
