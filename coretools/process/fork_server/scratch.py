"""Create and remove the scratch directory of a server: temporary files and home of its commands."""

import os
import shutil
import tempfile
from dataclasses import replace
from secrets import token_hex

from coretools.config.operator_policy import CONTAINER_DIRECTORIES, ConfinementPolicy
from coretools.confinement.command_confinement import ScratchDirectories
from coretools.own_state import NAME, SCRATCH_BYTES, SCRATCH_FALLBACKS
from coretools.reach import is_beneath
from coretools.roots.root_set import Roots


def directory_outside_roots(roots: Roots, policy: ConfinementPolicy) -> str:
    """A directory for scratch files outside every path that commands can write to."""
    places = [os.path.realpath(place) for place in (tempfile.gettempdir(), *SCRATCH_FALLBACKS)]
    reachable = [root.path for root in roots] + [os.path.realpath(path) for path in policy.writable]
    apart = [
        place
        for place in places
        if not any(is_beneath(place, path) for path in reachable) and os.access(place, os.W_OK | os.X_OK)
    ]
    # If there is no other directory, one of the container's own is taken from commands.
    shared = CONTAINER_DIRECTORIES if policy.own_container else ()
    own = [place for place in apart if not any(is_beneath(place, path) for path in shared)]
    return next(iter([*own, *apart]), f"{places[0]}/none-apart-from-the-roots")


def scratch_path(roots: Roots, policy: ConfinementPolicy) -> str:
    """A new path for the scratch directory of a server."""
    return f"{directory_outside_roots(roots, policy)}/{NAME}-{token_hex(SCRATCH_BYTES)}"


def create(scratch: ScratchDirectories) -> ScratchDirectories:
    """Create the directories, all or none, with mode 0700. An existing name is an error."""
    os.mkdir(scratch.path, 0o700)
    try:
        for path in (scratch.temporary, scratch.home):
            os.mkdir(path, 0o700)
        statuses = {path: os.lstat(path) for path in (scratch.temporary, scratch.home)}
    except OSError:
        remove(scratch.path)
        raise
    return replace(scratch, identities={path: (one.st_dev, one.st_ino) for path, one in statuses.items()})


def remove(path: str) -> None:
    """Remove the directory with its content."""
    shutil.rmtree(path, ignore_errors=True)
