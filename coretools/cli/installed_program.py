"""How another program starts our server: by the installed script, or by uvx where this runs from uv's cache."""

import os
import re
import shutil
import sys
from collections.abc import Mapping

from coretools.distribution import DISTRIBUTION
from coretools.errors import NotFound

PROGRAM = "coretools-workstation"

_CACHED = re.compile(r"(?:archive|environments)-v\d+")
"""Directories of uv's cache in which it makes the environments of `uvx` (uv: docs/concepts/cache.md)."""

_CACHE_MARK = "CACHEDIR.TAG"
"""uv marks its cache by it (bford.info/cachedir)."""


def server_command(environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the absolute path of a program, and its first arguments.

    Raises:
        NotFound: the script is not installed beside this Python, or uvx is not on PATH.
    """
    path = environment.get("PATH", os.defpath)
    if is_in_uv_cache(sys.prefix):
        uvx = shutil.which("uvx", path=path)
        if uvx is None:
            remedy = f"run `uv tool install {DISTRIBUTION}`"
            raise NotFound(f"this runs from the cache of uv, and uvx is not on PATH; {remedy}")
        return os.path.abspath(uvx), (PROGRAM,)
    script = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    if not os.access(script, os.X_OK):
        raise NotFound(f"{script}: is missing; install coretools in this environment")
    # pipx and uv make a link that stays when they replace the environment.
    linked = shutil.which(PROGRAM, path=path)
    is_link = linked is not None and os.path.isabs(linked) and os.path.realpath(linked) == os.path.realpath(script)
    return (linked if is_link and linked is not None else script), ()


def other_programs(environment: Mapping[str, str]) -> list[str]:
    """Return the programs of this name on PATH that belong to other installations, in the order of PATH."""
    own = os.path.realpath(os.path.join(os.path.dirname(sys.executable), PROGRAM))
    directories = environment.get("PATH", os.defpath).split(os.pathsep)
    programs = dict.fromkeys(os.path.join(directory, PROGRAM) for directory in directories if directory)
    return [program for program in programs if os.access(program, os.X_OK) and os.path.realpath(program) != own]


def is_in_uv_cache(prefix: str) -> bool:
    """Whether an environment is one that uvx made, which uv deletes at any time."""
    at = os.path.realpath(prefix)
    while at != os.path.dirname(at):
        above, name = os.path.split(at)
        if _CACHED.fullmatch(name) and os.path.exists(os.path.join(above, _CACHE_MARK)):
            return True
        at = above
    return False
