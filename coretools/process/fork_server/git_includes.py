"""Files that git reads besides the configurations of repositories: their includes and the configuration of the user.

git acts on them as on a configuration, so they are control files where commands can change them. Each scan reads the
configurations, about 20 us for each; a file is parsed again only if its content differs.
"""

import os
import posixpath
import stat
from collections.abc import Iterable, Sequence

from coretools.confinement.control_files import record_state
from coretools.confinement.git_config_changes import included_paths
from coretools.confinement.git_copies import MAX_CONFIG_BYTES
from coretools.confinement.protected_paths import GIT_CONFIG_NAMES, ControlFiles
from coretools.errors import GitRefused
from coretools.regular_file import read_regular
from coretools.roots.git_config import parse
from coretools.roots.root_set import Roots

MAX_INCLUDED = 100
"""Most included files that are read."""

_OUTSIDE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class GitIncludes:
    """The includes that matter for the commands of one server. Used by one thread at a time."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._own = _configurations_of_user()
        self._known: dict[str, tuple[bytes, tuple[str, ...]]] = {}

    def states(self, control_files: Iterable[str]) -> ControlFiles:
        """States of the files in writable roots that these configurations, and that of the user, include."""
        configurations = [path for path in control_files if path.rpartition("/")[2] in GIT_CONFIG_NAMES]
        states: dict[str, tuple[int, ...]] = {}
        for path in (*self._all_included([*configurations, *self._own]), *map(os.path.realpath, self._own)):
            place = self._roots.split(path)
            if place is not None and place.root.writable:
                record_state(path, states)
        return states

    def _all_included(self, waiting: list[str]) -> list[str]:
        """All files that these configurations include, transitively."""
        known: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        included: dict[str, None] = {}
        while waiting:
            path = waiting.pop()
            for one in absolute_paths(path, self._included(path, known)):
                # Includes of a file in the roots are followed in the roots only: a command may have written it.
                may_read = self._roots.split(path) is None or self._roots.split(one) is not None
                if may_read and one not in included and len(included) < MAX_INCLUDED:
                    included[one] = None
                    waiting.append(one)
        self._known = known
        return list(included)

    def _included(self, path: str, known: dict[str, tuple[bytes, tuple[str, ...]]]) -> tuple[str, ...]:
        """The include paths of a configuration, as written in it."""
        place = self._roots.split(path)
        try:
            if place is None:
                data = _read_outside(path)
            else:
                with self._roots.open_parent(place) as (directory, name):
                    data, _ = read_regular(name, MAX_CONFIG_BYTES, directory=directory)
            before = self._known.get(path)
            if before is None or before[0] != data:
                before = (data, included_paths(parse(data, path)))
        except (OSError, GitRefused):  # git would not read it either
            return ()
        known[path] = before
        return before[1]


def absolute_paths(path: str, included: Sequence[str]) -> list[str]:
    """The absolute paths of the includes of a configuration (git-config(1), Includes)."""
    above = posixpath.dirname(path)
    return [posixpath.normpath(posixpath.join(above, os.path.expanduser(one))) for one in included]


def _configurations_of_user() -> list[str]:
    """Paths of the configurations of the user and of the system (git-config(1), FILES)."""
    home = os.path.expanduser("~")
    usual = [f"{os.environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config", f"{home}/.gitconfig"]
    own = os.environ.get("GIT_CONFIG_GLOBAL")
    paths = [*([own] if own else usual), os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"]
    return [path for path in paths if os.path.isabs(path)]


def _read_outside(path: str) -> bytes:
    """Content of a regular file, through links. Nothing else is opened, since opening a device may have an effect."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return b""
    handle = os.open(path, _OUTSIDE)
    try:
        return os.read(handle, MAX_CONFIG_BYTES)
    finally:
        os.close(handle)
