"""Runs that are looked for and started in one visit to a worker thread."""

import asyncio
import threading
from pathlib import Path

import anyio
import pytest
from anyio import CapacityLimiter

from coretools.errors import CannotStart, NotFound
from coretools.process.runner import Order, Runner
from coretools.sandbox.reading import Directory
from coretools.settings import Limits

PATIENCE_SECONDS = 10.0


class Look:
    """A look that lasts until it may end."""

    def __init__(self, here: Directory) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self._here = here

    def __call__(self) -> tuple[tuple[str, ...], Directory, Order]:
        self.begun.set()
        assert self.may_end.wait(PATIENCE_SECONDS)
        return ("touch", "started"), self._here, Order()


async def test_what_a_look_finds_is_run(runner: Runner, here: Directory) -> None:
    """process-1: the result is that of any run; a look may also find nothing, or fail."""

    def failing() -> None:
        raise NotFound("not here")

    threads = CapacityLimiter(1)
    argv = ("sh", "-c", "echo out; exit 3")
    completed = await runner.run_found("sh", lambda: (argv, here, Order()), threads=threads)
    assert completed is not None
    assert (completed.exit_code, completed.stdout.text()) == (3, "out\n")
    assert await runner.run_found("sh", lambda: None, threads=threads) is None
    with pytest.raises(NotFound, match="not here"):
        await runner.run_found("sh", failing, threads=threads)
    assert runner.running == 0


async def test_what_is_loud_or_long_is_followed_like_any_run(runner: Runner, here: Directory) -> None:
    """process-1: its start waits a moment for the end, and neither for a reader of a full pipe nor past a deadline."""
    threads = CapacityLimiter(1)
    loud = ("sh", "-c", "seq 1 100000; seq 1 100000 >&2")
    completed = await runner.run_found("sh", lambda: (loud, here, Order(keep_bytes=1 << 20)), threads=threads)
    assert completed is not None
    assert (completed.exit_code, completed.timed_out) == (0, False)
    assert completed.stdout.text() == completed.stderr.text() == "".join(f"{n}\n" for n in range(1, 100001))
    long = ("tail", "-f", "/dev/null")
    completed = await runner.run_found("tail", lambda: (long, here, Order(timeout_seconds=0.2)), threads=threads)
    assert completed is not None
    assert (completed.timed_out, completed.signal) == (True, "SIGTERM")


async def test_nothing_is_started_after_a_look_that_outlasts_the_runner(here: Directory, tmp_path: Path) -> None:
    """process-17: a file system may be slow, and the server ends meanwhile."""
    runner = Runner(Limits(grace_seconds=0.3), {"PATH": "/usr/bin:/bin"})
    look = Look(here)
    refused = []

    async def run() -> None:
        with pytest.raises(CannotStart, match="ending") as caught:
            await runner.run_found("touch", look, threads=CapacityLimiter(1))
        refused.append(caught.value)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.to_thread.run_sync(look.begun.wait)
            tasks.start_soon(runner.close)
            await anyio.wait_all_tasks_blocked()
            look.may_end.set()
    assert len(refused) == 1
    assert not (tmp_path / "started").exists()


async def test_nothing_is_started_for_a_task_that_asyncio_has_cancelled(
    runner: Runner, here: Directory, tmp_path: Path
) -> None:
    """process-17: its cancel does not wait for the thread."""
    look = Look(here)
    task = asyncio.ensure_future(runner.run_found("touch", look, threads=CapacityLimiter(1)))
    await anyio.to_thread.run_sync(look.begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    look.may_end.set()
    assert runner.running == 0
    await runner.close()
    assert not (tmp_path / "started").exists()
