"""What tools and commands of a server can change or read, and the operator's files that must be out of their reach."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from coretools.config.operator_policy import CONTAINER_DIRECTORIES, ConfinementPolicy, OperatorPolicy
from coretools.config.settings import Settings
from coretools.errors import BadSetting
from coretools.reach import Place, Reach

REMEDY = "move it out, or vouch for it with --trust PATH"


class OperatorFile(NamedTuple):
    """A file that the server trusts."""

    what: str
    """What it is, for sentences: `the policy file`."""
    path: str
    is_secret: bool = False
    """Whether tools and commands must not read it either."""


def split_root(text: str) -> tuple[str, bool]:
    """Return the path of a root that is written as `PATH`, `PATH:ro` or `PATH:rw`, and whether it is writable."""
    path, colon, rights = text.rpartition(":")
    return (path, rights == "rw") if colon and rights in ("ro", "rw") else (text, True)


def reach_of_change(servers: Iterable[Settings], caches: Iterable[str] = ()) -> Reach:
    """Return what tools and commands of these servers (roles of one server) can change.

    `caches` are directories that commands share between runs.
    """
    places, trusted = [], list[str]()
    for settings in servers:
        roots = [] if settings.read_only else [path for path, writable in map(split_root, settings.roots) if writable]
        places += [Place(path, "the writable root") for path in roots]
        places += _granted(settings.policy.confinement)
        trusted += settings.trusted
    places += [Place(path, "the cache of commands") for path in caches]
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
            raise BadSetting(f"{file.what}: {reason}; {REMEDY}")


def files_of_policy(policy: OperatorPolicy) -> Iterator[OperatorFile]:
    """Yield the policy file and the files that it names."""
    if policy.source:
        yield OperatorFile("the policy file", policy.source)
    for rule in policy.remote:
        known_hosts = rule.known_hosts if rule.pattern.url.scheme == "ssh" else ""
        for key, path in (("token_file", rule.token_file), ("ca_file", rule.ca_file), ("known_hosts", known_hosts)):
            if path:
                yield OperatorFile(f"remote.{key}", path, is_secret=key == "token_file")


def _granted(confinement: ConfinementPolicy) -> Iterator[Place]:
    yield from (Place(path, "[confinement] writable") for path in confinement.writable)
    if confinement.own_container:
        yield from (Place(path, "the container's shared directory") for path in CONTAINER_DIRECTORIES)
