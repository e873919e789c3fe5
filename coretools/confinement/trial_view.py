"""The overlays over the roots in which one command runs on trial (docs/adr/0059)."""

import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from coretools.confinement.git_copies import ConfigCopies
from coretools.confinement.namespaces import NamespacePlan
from coretools.roots.root import Root


@dataclass(frozen=True, slots=True)
class Layer:
    """What one root shows in a trial, and where its changes go."""

    root: Root
    directory: str

    @property
    def upper(self) -> str:
        """The directory with the changes."""
        return f"{self.directory}/upper"

    @property
    def work(self) -> str:
        """The directory in which the overlay prepares changes."""
        return f"{self.directory}/work"


async def _is_gone() -> bool:
    return True


@dataclass(slots=True)
class TrialView:
    """The overlays of one trial, and what came of its start."""

    directory: str
    layers: tuple[Layer, ...]
    copies: ConfigCopies | None = None
    """The copies of git configurations in its view, whose changes are not carried over."""
    wait_gone: Callable[[], Awaitable[bool]] = field(default=_is_gone)
    """Waits until nothing is left in its view; returns whether that is certain."""

    def make(self) -> None:
        """Create the directories, which look like the roots.

        Raises:
            OSError: they can't be created.
        """
        os.mkdir(self.directory, 0o700)
        for layer in self.layers:
            os.mkdir(layer.directory, 0o700)
            status = os.fstat(layer.root.fd)
            for path in (layer.upper, layer.work):
                os.mkdir(path, 0o700)
            os.chmod(layer.upper, status.st_mode & 0o1777)
            os.utime(layer.upper, ns=(status.st_atime_ns, status.st_mtime_ns))

    def added_to(self, plan: NamespacePlan) -> NamespacePlan:
        """Return the plan with overlays in place of the mounts of these roots."""
        layers = {layer.root.path: layer for layer in self.layers}
        binds = [
            bind._replace(upper=layers[bind.path].upper, work=layers[bind.path].work) if bind.path in layers else bind
            for bind in plan.binds
        ]
        return plan._replace(binds=binds)

    def changed_git_configurations(self) -> list[str]:
        """The paths of the git configurations that the command changed in its copies."""
        copies = () if self.copies is None else self.copies.files
        return [copy.repository.path for copy in copies if self.copies is not None and self.copies.is_changed(copy)]

    def remove(self) -> None:
        """Remove everything of the trial, whatever modes its command has set."""
        for path in (self.directory, *([self.copies.path] if self.copies is not None else [])):
            remove_tree(path)


def remove_tree(top: str) -> None:
    """Remove a directory of ours, with directories in it that nobody may read, nested as deep as a command likes.

    The overlay itself leaves `work/work` with mode 0.
    """
    numbers, waiting = count(), deque([top])
    with suppress(OSError):
        os.chmod(top, 0o700)
        while waiting:
            above = waiting.popleft()
            with os.scandir(above) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    os.chmod(entry.path, 0o700)
                    # Moved up, so that no path gets too long.
                    path = entry.path if above == top else f"{top}/.{next(numbers)}"
                    os.rename(entry.path, path)
                    waiting.append(path)
            if above != top:
                os.rmdir(above)
        os.rmdir(top)
