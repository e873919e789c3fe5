"""A progress bar on standard error, drawn by rich, which is loaded with the first step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coretools.cli.common.terminal import for_terminal

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressBar:
    """A progress bar, which does nothing unless it is shown."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._progress: Progress | None = None

    def step(self, done: float, total: float | None, message: str | None) -> None:
        """Show the progress."""
        if not self._is_shown:
            return
        if self._progress is None:
            self._progress = _progress()
            self._progress.add_task("", total=total)
            self._progress.start()
        task = self._progress.task_ids[0]
        description = self._progress.tasks[0].description if message is None else for_terminal(message)
        self._progress.update(task, completed=done, total=total, description=description)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar while something else uses the terminal."""
        progress = self._progress
        if progress is not None:
            progress.stop()
        try:
            yield
        finally:
            if progress is not None:
                progress.start()

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # Without markup: a name in brackets is not a rich style.
    text = TextColumn("{task.description}", markup=False)
    return Progress(text, BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True)
