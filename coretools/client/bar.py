"""A bar on standard error that says how far a command is; drawn by rich, which is loaded with the first step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coretools.client.terminal import escaped

if TYPE_CHECKING:  # 0.1 s of imports that a command without progress does not pay
    from rich.progress import Progress


class Bar:
    """One command's progress. Draws nothing unless it `is_shown`."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._progress: Progress | None = None

    def step(self, done: float, total: float | None, message: str | None) -> None:
        """Show how far it is."""
        if not self._is_shown:
            return
        if self._progress is None:
            self._progress = _progress()
            self._progress.add_task("", total=total)
            self._progress.start()
        task = self._progress.task_ids[0]
        said = self._progress.tasks[0].description if message is None else escaped(message)
        self._progress.update(task, completed=done, total=total, description=said)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the terminal to something else for a while."""
        progress = self._progress
        if progress is not None:
            progress.stop()
        try:
            yield
        finally:
            if progress is not None:
                progress.start()

    def close(self) -> None:
        """Take it away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # A message is shown as it stands: a name in brackets is no style of rich's.
    text = TextColumn("{task.description}", markup=False)
    return Progress(text, BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True)
