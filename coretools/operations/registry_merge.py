"""Registries of several people as one that stays so: what is added to one of them or removed shows in it."""

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from coretools.errors import BadSetting
from coretools.operations.completion import require_sources
from coretools.operations.registry import Key, Registry, key_of

logger = logging.getLogger(__name__)


def merge_registries(target: Registry, sources: Sequence[Registry], until: ExitStack | None = None) -> Registry:
    """The target, with the commands of every source, as long as the process lives, or until the stack is closed.

    What a source adds later and can't be had (a name that is taken) is said in the log; the rest goes on.

    Raises:
        BadSetting: two commands have one name, or what came from a source can't be served; says the sources.
    """
    own = tuple(target)
    # A registry may be changed in any thread, and whoever is told of a change may make another.
    lock = threading.RLock()
    for source in sources:
        _merge_source(target, source, lock, until or ExitStack())
    target.validate(but=own)
    require_sources(command for command in target if command not in own)
    return target


def _merge_source(target: Registry, source: Registry, lock: threading.RLock, until: ExitStack) -> None:
    known: set[Key] = set()
    """What came from this source; nothing else is taken away when it goes from there."""

    def take() -> None:
        there = _keys(source)
        for route, overrides in known - there:
            target.remove(*route, overrides=overrides)
        known.intersection_update(there)
        before = _keys(target)
        target.merge(source)
        known.update(_keys(target) - before)

    def take_again() -> None:
        try:
            with lock:
                take()
        except BadSetting as error:
            logger.warning("a change of the commands can't be had: %s", error)

    # Watched first: a change in between is not missed.
    until.callback(source.on_change(take_again))
    until.callback(source.on_announce(target.announce))
    with lock:
        take()


def _keys(registry: Registry) -> set[Key]:
    return {key_of(command) for command in registry}
