"""Start a program of the user, and whatever it starts, where the kernel refuses it all that agents can change.

For programs whose text says nothing for certain about the files they use: shells, profiles, credential helpers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from coretools.confinement.allowed_paths import entry_grants
from coretools.confinement.confined_thread import ConfinedThread
from coretools.confinement.inotify import LOCAL
from coretools.confinement.landlock import EntryGrants, Rule
from coretools.mounts import mounts_by_path
from coretools.own_state import scratch_directories
from coretools.process.fork_server.socket_paths import KERNEL_FILESYSTEMS
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.reach import is_beneath


@contextmanager
def confined_out_of_reach(
    options: RunOptions,
    runner: Runner,
    rights: int,
    *,
    more: Sequence[Rule] = (),
    home: str = "",
    network: bool = False,
) -> Iterator[RunOptions]:
    """Add a confined thread that has `rights` on everything that agents can't change, and what the rules `more` say.

    `home` is granted wherever it is mounted from. Only with `network` can the program open sockets.

    Raises:
        InputOutput, Busy: no thread can be confined now.
    """
    thread = ConfinedThread([*_rules(runner, rights, home), *more], forks=True, network=network)
    try:
        yield replace(options, confined_thread=thread)
    finally:
        thread.close()


def _rules(runner: Runner, rights: int, home: str) -> list[Rule | EntryGrants]:
    """Return the rules for everything but the places, other mounts of them, and temporary files of commands."""
    reach = runner.reach
    if not reach.places:
        return [("/", rights)]
    # To look at a file system of a network, or of a program (FUSE), may block for ever.
    answering = LOCAL | KERNEL_FILESYSTEMS
    skipped = {path for path, kind in mounts_by_path().items() if kind not in answering and not is_beneath(home, path)}
    excluded = [*reach.paths, *scratch_directories(), *filter(None, [runner.scratch])]
    return [*entry_grants("/", rights, excluded, skipped=skipped), *((path, rights) for path in reach.trusted)]
