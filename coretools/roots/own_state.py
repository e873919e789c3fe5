"""Our own state beneath the roots: closed to tools by name and to commands by masks; directories above it stay.

Where that is not possible the server does not start (`require_out_of_reach`), or runs no commands (`exposed`).
"""

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from coretools.errors import BadSetting
from coretools.own_state import OwnDirectory
from coretools.reach import is_beneath, looked_up, other_paths
from coretools.roots.root import Root, identity_of

REASON = "coretools keeps its own state there"


class OwnPlace(NamedTuple):
    """A directory of our own state beneath a root."""

    directory: OwnDirectory
    root: Root
    relative: str
    """Its path beneath the root."""

    @property
    def deny_glob(self) -> str:
        """The glob that closes it."""
        path = "" if self.relative == "." else f"/{glob.escape(self.relative)}"
        return f"{path}/{self.directory.pattern}" if self.directory.pattern else path

    @property
    def parents(self) -> Iterator[str]:
        """The directories between it and the root, relative to the root; whoever moved one could make another.

        Without the temporary directory itself what is in it would be open under another name.
        """
        above = self.relative if self.directory.pattern else os.path.dirname(self.relative)
        above = "" if above == "." else above
        while above:
            yield above
            above = os.path.dirname(above)

    @property
    def is_used(self) -> bool:
        """Whether there is something to read or write, now or later."""
        directory = self.directory
        return not directory.pattern or bool(glob.glob(f"{glob.escape(directory.path)}/{directory.pattern}"))


def own_places(roots: Sequence[Root], directories: Iterable[OwnDirectory]) -> list[OwnPlace]:
    """Return where our own state lies beneath the roots: usually nowhere.

    Raises:
        BadSetting: a root lies in it.
    """
    places = []
    for directory in directories:
        for path in dict.fromkeys(_paths(directory.path)):
            for root in roots:
                if is_beneath(root.path, path) and not directory.pattern:
                    raise BadSetting(
                        f"root {root.path}: lies in {directory.path}, and {REASON}; name the directory of a project"
                    )
                relative = _relative(root, path)
                if relative:
                    places.append(OwnPlace(directory, root, relative))
    return places


def require_out_of_reach(
    places: Sequence[OwnPlace], roots: Sequence[Root], directories: Iterable[OwnDirectory]
) -> None:
    """Create our directories in writable roots, so that nobody else does; refuse what can't be protected.

    A link in a root may lead to one of the directories wherever that lies.

    Raises:
        BadSetting: a link on the way lies in a writable root, git keeps files there, or it can't be created.
    """
    beneath = {place.directory for place in places}
    for directory in directories:
        if directory.holds_caches or not (directory in beneath or os.path.exists(directory.path)):
            continue  # what does not exist, or can't be reached by this user, lies behind no link
        if link := _replaceable_link(directory.path, roots):
            raise BadSetting(
                f"{directory.path}, our own state, can't be closed to tools and commands: they could replace the link"
                f" {link}; set {directory.variable} to a directory outside the roots, or name narrower roots"
            )
    for directory, root, relative in places:
        if not root.writable or directory.pattern:
            continue
        remedy = f"set {directory.variable} to a directory outside the roots, or name narrower roots"
        cannot = f"{directory.path}, our own state, can't be closed to tools and commands in the root {root.path}"
        if ".git" in relative.lower().split("/"):
            raise BadSetting(f"{cannot}: it lies in a git directory; {remedy}")
        try:
            with suppress(PermissionError):  # commands are refused the same
                os.makedirs(directory.path, 0o700, exist_ok=True)
        except OSError as error:
            raise BadSetting(f"{cannot}: it can't be created ({error.strerror}); {remedy}") from error


def exposed(places: Iterable[OwnPlace]) -> str:
    """Return why no command may run that sees the roots as they are; "" if our own state is not there."""
    used = {place.directory: place.root for place in places if place.is_used}
    if not used:
        return ""
    paths = ", ".join(f"{one.path} (in the root {root.path})" for one, root in used.items())
    variables = ", ".join(dict.fromkeys(one.variable for one in used))
    return (
        f"they could read or change coretools' own state, which only tier full can hide from them: {paths};"
        f" name narrower roots, or put it outside with {variables}, for `coretools mcp` too"
    )


def _paths(path: str) -> Iterator[str]:
    real = os.path.realpath(path)
    yield real
    yield from other_paths(real, with_mounts=False)  # to look at a foreign file system may block for ever


def _relative(root: Root, path: str) -> str:
    """Return the path beneath a root; "" if it lies elsewhere."""
    if is_beneath(path, root.path):
        return path[len(root.path) + 1 :] or "."
    above = path
    while above != "/":  # by identity too: a file system may not tell letters' cases apart
        with suppress(OSError):
            if identity_of(os.stat(above)) == root.identity:
                return path[len(above) + 1 :] or "."
        above = os.path.dirname(above)
    return ""


def _replaceable_link(path: str, roots: Sequence[Root]) -> str:
    """Return the first link on a path that lies in a writable root; "" if there is none.

    Raises:
        BadSetting: the path can't be followed.
    """
    try:
        names = looked_up(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{path}: cannot be followed: {reason}") from error
    links = [name.path for name in names if name.status is not None and stat.S_ISLNK(name.status.st_mode)]
    writable = [root for root in roots if root.writable]
    for link in links:
        if any(_relative(root, above) for root in writable for above in _paths(os.path.dirname(link))):
            return link
    return ""
