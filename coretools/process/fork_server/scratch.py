"""The directories of a server for its commands' temporary files and home: where they lie, made and removed."""

import os
import shutil
import tempfile
from dataclasses import replace

from coretools.config.operator_policy import CONTAINER_DIRECTORIES, ConfinementPolicy
from coretools.confinement.plan import ScratchDirectories
from coretools.roots.root_set import Roots

FALLBACKS = ("/run/coretools", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # a directory of random name is made there, or it fails
"""Where temporary files may lie when the usual place lies beneath a root."""


def directory_outside_roots(roots: Roots, policy: ConfinementPolicy) -> str:
    """A directory for temporary files that no command can reach into, since they become commands' /tmp and home."""
    places = [os.path.realpath(place) for place in (tempfile.gettempdir(), *FALLBACKS)]
    reachable = [root.path for root in roots] + [os.path.realpath(path).rstrip("/") for path in policy.writable]
    apart = [
        place
        for place in places
        if not any(f"{place}/".startswith(f"{path}/") for path in reachable) and os.access(place, os.W_OK | os.X_OK)
    ]
    # Where there is no other place, commands go without one of the container's instead.
    shared = CONTAINER_DIRECTORIES if policy.own_container else ()
    own = [place for place in apart if not any(f"{place}/".startswith(f"{path}/") for path in shared)]
    return next(iter([*own, *apart]), f"{places[0]}/none-apart-from-the-roots")


def create(scratch: ScratchDirectories) -> ScratchDirectories:
    """Make the directories, all or none, for nobody else to look into; a name that is taken already is an error."""
    os.mkdir(scratch.path, 0o700)
    try:
        for path in (scratch.temporary, scratch.home):
            os.mkdir(path, 0o700)
        found = {path: os.lstat(path) for path in (scratch.temporary, scratch.home)}
    except OSError:
        remove(scratch.path)
        raise
    return replace(scratch, identities={path: (one.st_dev, one.st_ino) for path, one in found.items()})


def remove(path: str) -> None:
    """With all in it."""
    shutil.rmtree(path, ignore_errors=True)
