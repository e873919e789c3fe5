"""What tools and commands of a server can change or read, and the operator's files that must be out of their reach."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from typing import NamedTuple

import coretools
from coretools.config.operator_policy import CONTAINER_DIRECTORIES, ConfinementPolicy, OperatorPolicy
from coretools.config.settings import Settings
from coretools.errors import BadSetting
from coretools.own_state import OwnDirectory
from coretools.reach import Place, Reach, is_beneath

_MOVE = "move it out"
_INSTALL = "install coretools outside, for instance with pipx, or make the root read-only (PATH:ro)"


class OperatorFile(NamedTuple):
    """A file that the server trusts."""

    what: str
    """What it is, for sentences: `the policy file`."""
    path: str
    is_secret: bool = False
    """Whether tools and commands must not read it either."""
    remedy: str = _MOVE


def split_root(text: str) -> tuple[str, bool]:
    """Return the path of a root that is written as `PATH`, `PATH:ro` or `PATH:rw`, and whether it is writable."""
    path, colon, rights = text.rpartition(":")
    return (path, rights == "rw") if colon and rights in ("ro", "rw") else (text, True)


def reach_of_change(servers: Iterable[Settings], caches: Iterable[str] = (), repositories: Iterable[str] = ()) -> Reach:
    """Return what tools and commands of these servers (roles of one server) can change.

    `caches` are directories that commands share between runs, `repositories` those of roots that are linked work trees.
    """
    places, trusted = [], list[str]()
    for settings in servers:
        roots = [] if settings.read_only else [path for path, writable in map(split_root, settings.roots) if writable]
        places += [Place(path, "the writable root") for path in roots]
        places += _granted(settings.policy.confinement)
        trusted += settings.trusted
    places += [Place(path, "the cache of commands") for path in caches]
    places += [Place(path, "the repository of a root") for path in repositories]
    return Reach(dict.fromkeys(places), trusted=trusted)


def reach_of_reading(servers: Iterable[Settings]) -> Reach:
    """Return what tools and commands of these servers can read, besides the system's directories."""
    places = []
    for settings in servers:
        places += [Place(split_root(root)[0], "the root") for root in settings.roots]
        places += _granted(settings.policy.confinement)
        places += [Place(path, "[confinement] readable") for path in settings.policy.confinement.readable]
    return Reach(dict.fromkeys(places), use="read")


def require_out_of_reach(files: Iterable[OperatorFile], servers: Sequence[Settings]) -> None:
    """Refuse to start with files that tools or commands could change, or read where they are secret.

    Raises:
        BadSetting: names the file, and the root or other place.
    """
    changed, read = reach_of_change(servers), reach_of_reading(servers)
    for file in files:
        path = os.path.abspath(file.path)
        if reason := changed.reason(path) or (read.reason(path) if file.is_secret else ""):
            raise BadSetting(f"{file.what}: {reason}; {file.remedy}, or vouch for it with --trust PATH")


def files_of_installation() -> Iterator[OperatorFile]:
    """Yield the interpreter of this process and the directories from which it loads modules."""
    yield OperatorFile("the server's Python", sys.executable, remedy=_INSTALL)
    package = os.path.dirname(os.path.dirname(os.path.abspath(coretools.__file__)))
    for directory in dict.fromkeys((*sys.path, package)):
        if os.path.isabs(directory) or os.path.isdir(directory or "."):  # others are names for import hooks
            yield OperatorFile("the server's modules", os.path.abspath(directory), remedy=_INSTALL)


def files_of_plugins(named: Iterable[str]) -> Iterator[OperatorFile]:
    """Yield the files and packages of registries that are named as `MODULE:NAME` or `FILE.py:NAME`.

    A module is looked up where Python would find it; nothing is imported.
    """
    for text in named:
        place = text.rpartition(":")[0]
        paths = [place]
        if not place.endswith(".py"):
            spec = PathFinder.find_spec(place.partition(".")[0])
            paths = [] if spec is None else [*filter(None, [spec.origin]), *(spec.submodule_search_locations or ())]
        yield from (OperatorFile(f"--with {text}", os.path.abspath(path)) for path in paths)


def require_state_out_of_grants(directories: Iterable[OwnDirectory], confinement: ConfinementPolicy) -> None:
    """Refuse a grant for commands that contains our own state, or lies in it.

    Raises:
        BadSetting: names the directory and the grant.
    """
    readable = [Place(path, "[confinement] readable") for path in confinement.readable]
    reach = Reach(dict.fromkeys([*_granted(confinement), *readable]), use="read")
    for directory in directories:
        if directory.holds_caches or directory.pattern:
            continue
        inner = (place for place in reach.places if is_beneath(place.path, os.path.realpath(directory.path)))
        reason = reach.reason(directory.path) or next((f"{one.kind} {one.path} lies in it" for one in inner), "")
        if reason:
            raise BadSetting(f"our own state: {reason}; grant other paths, or set {directory.variable}")


def files_of_policy(policy: OperatorPolicy) -> Iterator[OperatorFile]:
    """Yield the policy file and the files that it names."""
    if policy.source:
        yield OperatorFile("the policy file", policy.source)
    for rule in policy.remote:
        known_hosts = rule.known_hosts if rule.pattern.url.scheme == "ssh" else ""
        for key, path in (("token_file", rule.token_file), ("ca_file", rule.ca_file), ("known_hosts", known_hosts)):
            if path:
                yield OperatorFile(f"remote.{key}", path, is_secret=key == "token_file")
        if rule.pattern.url.scheme == "https" and not rule.ca_file:
            yield from _usual_authorities()


def _usual_authorities() -> Iterator[OperatorFile]:
    """Yield the certificates that are trusted where no others are named; variables may name them (SSL_CERT_FILE)."""
    import ssl  # imported late: most servers reach no remote

    usual = ssl.get_default_verify_paths()
    for path in filter(None, (usual.cafile, usual.capath)):
        yield OperatorFile("the usual certificates of authorities", path)


def _granted(confinement: ConfinementPolicy) -> Iterator[Place]:
    yield from (Place(path, "[confinement] writable") for path in confinement.writable)
    if confinement.own_container:
        yield from (Place(path, "the container's shared directory") for path in CONTAINER_DIRECTORIES)
