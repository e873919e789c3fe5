"""Looks for what commands must not read or change, in pieces: all that waits in the server goes on in between."""

import errno
import time

import anyio
import anyio.lowlevel
from anyio import CapacityLimiter, to_thread

from coretools.confinement.masks import MaskFinder, Masks, PathsKeepMoving
from coretools.confinement.mount_points import KEEPS_MOVING
from coretools.process.fork_server.client import ForkServerFailed
from coretools.process.fork_server.git_configs import GitConfigs

SLICE_SECONDS = 0.005
"""A long look for hidden files is cut into pieces of this length, and all that waits goes on in between. A thread must
get the interpreter's lock back after each of its thousands of system calls; beside a busy loop that takes seconds."""

LONG_SECONDS = 0.1
"""After a piece that took as long it ends in a thread: one suspect, or a large index of git, can take half a second."""


async def scan_in_slices(masks: MaskFinder, configs: GitConfigs, limiter: CapacityLimiter) -> Masks:
    """A whole look.

    Raises:
        CellFailed: what has to be covered is moved all the time.
    """
    is_slow = masks.may_block
    masks.begin()
    try:
        while not is_slow:
            began = time.monotonic()
            if (found := masks.advance(SLICE_SECONDS)) is not None:
                return configs.apply_to(found)
            is_slow = time.monotonic() - began > LONG_SECONDS
            await anyio.lowlevel.checkpoint()
        return await to_thread.run_sync(lambda: configs.apply_to(masks.finish()), limiter=limiter)
    except PathsKeepMoving as error:
        raise ForkServerFailed(KEEPS_MOVING, errno.EBUSY) from error


async def list_changed(masks: MaskFinder, limiter: CapacityLimiter) -> None:
    """List the directories that changed until now."""
    masks.begin()
    if masks.may_block:
        await to_thread.run_sync(masks.advance_listing, limiter=limiter)
    while not masks.advance_listing(SLICE_SECONDS):
        await anyio.lowlevel.checkpoint()
