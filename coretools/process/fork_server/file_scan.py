"""Scan for files that commands must not read or change, in slices between which the event loop runs."""

import errno
import time
from collections.abc import Callable

import anyio
import anyio.lowlevel
from anyio import CapacityLimiter, to_thread

from coretools.confinement.masks import MaskFinder, PathsKeepMoving
from coretools.confinement.mount_points import KEEPS_MOVING
from coretools.confinement.protected_paths import Masks
from coretools.process.fork_server.client import ForkServerFailed

SLICE_SECONDS = 0.005
"""Length of a slice. A worker thread would need the interpreter lock after each of thousands of system calls; beside a
busy event loop that takes seconds."""

LONG_SECONDS = 0.1
"""After a slice that took this long the scan ends in a thread: one suspect file, or a large git index, can take half a
second."""


async def scan_in_slices(masks: MaskFinder, complete: Callable[[Masks], Masks], limiter: CapacityLimiter) -> Masks:
    """Scan everything, and return what `complete` makes of the result; it may block where the scan may.

    Raises:
        ForkServerFailed: files that have to be covered keep moving.
    """
    is_slow = masks.may_block
    masks.begin()
    try:
        while not is_slow:
            began = time.monotonic()
            if (found := masks.advance(SLICE_SECONDS)) is not None:
                return complete(found)
            is_slow = time.monotonic() - began > LONG_SECONDS
            await anyio.lowlevel.checkpoint()
        return await to_thread.run_sync(lambda: complete(masks.finish()), limiter=limiter)
    except PathsKeepMoving as error:
        raise ForkServerFailed(KEEPS_MOVING, errno.EBUSY) from error


async def list_changed(masks: MaskFinder, limiter: CapacityLimiter) -> None:
    """Scan the directories that have changed."""
    masks.begin()
    if masks.may_block:
        await to_thread.run_sync(masks.advance_listing, limiter=limiter)
    while not masks.advance_listing(SLICE_SECONDS):
        await anyio.lowlevel.checkpoint()
