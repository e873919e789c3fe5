"""A home of cargo's own for commands, over the user's, which they may only read.

cargo makes directories and locks in its home whenever it fetches something. So commands have one in their own home: its
directories are new, and what the user downloaded stands in them as links.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

NAME = ".cargo-of-commands"
"""In the home of commands."""

LINKS = 20_000
"""Entries of the user's home that are linked; what is beyond them is fetched again, or missing without a network."""


def link_home(real: str, own: str) -> None:
    """Make the home `own` over `real`, if that holds what was downloaded."""
    if not any(os.path.isdir(f"{real}/{name}") for name in ("registry", "git")):
        return
    os.mkdir(own, mode=0o700)
    left = LINKS
    for directory in _directories(real):
        os.makedirs(f"{own}/{directory}", exist_ok=True)
        with suppress(OSError):
            for name in os.listdir(f"{real}/{directory}")[:left]:
                os.symlink(f"{real}/{directory}/{name}", f"{own}/{directory}/{name}")
                left -= 1


def _directories(real: str) -> Iterator[str]:
    """Those in which cargo makes entries, of each registry too."""
    yield from (name for name in ("bin", "git/db") if os.path.isdir(f"{real}/{name}"))
    for above in ("registry/index", "registry/cache", "registry/src"):
        with suppress(OSError):
            names = os.listdir(f"{real}/{above}")
            yield from (f"{above}/{name}" for name in names if os.path.isdir(f"{real}/{above}/{name}"))
