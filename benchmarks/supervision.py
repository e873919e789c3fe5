"""The cost of a supervised command in the strongest tier: one `true` and many, in one process.

The event loop runs in a thread of its own, as in a server; only the await in it is timed.
"""

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from time import perf_counter

import anyio
from anyio.from_thread import start_blocking_portal

from benchmarks.failure import NotMeasured
from benchmarks.interleaved import Contender
from benchmarks.workspace import Workspace
from coretools.config.limits import Limits
from coretools.config.operator_policy import ConfinementPolicy
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import Directory, RootSpec
from coretools.roots.root_set import Roots

MANY = 200
"""Commands at once in the row `many`."""

GRACE_SECONDS = 0.5
"""Between TERM and KILL here. The bar of the row is a second more than that."""
_STANDS_SECONDS = 0.5
"""Deadline of what is to be ended: it has started everything by then."""
_DEAF = "trap '' TERM; for i in $(seq 10); do setsid sh -c 'sleep 1000 & sleep 1000' & done; sleep 1000"

HELD, FREE = RunOptions(is_command=True), RunOptions()


class _Runs:
    """One runner on the loop, and the time of its runs there."""

    def __init__(self, runner: Runner, directory: Directory) -> None:
        self._runner = runner
        self._directory = directory

    async def one(self, options: RunOptions) -> float:
        """A `true` to its end; milliseconds."""
        started = perf_counter()
        completed = await self._runner.run(("true",), cwd=self._directory, options=options)
        taken = 1000 * (perf_counter() - started)
        if not completed.ok or (options.is_command and completed.tier == "none"):
            raise NotMeasured("true did not run as it should")
        return taken

    async def ended(self, *argv: str) -> float:
        """A command to its deadline; milliseconds from there until no process is left."""
        started = perf_counter()
        options = RunOptions(is_command=True, timeout_seconds=_STANDS_SECONDS)
        completed = await self._runner.run(argv, cwd=self._directory, options=options)
        taken = 1000 * (perf_counter() - started - _STANDS_SECONDS)
        if not completed.timed_out or completed.stopped_for:
            raise NotMeasured(f"{argv[0]} did not run until its deadline")
        return taken

    async def many(self, options: RunOptions) -> float:
        """Many at once; milliseconds until the last has ended."""
        started = perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(MANY):
                tasks.start_soon(self.one, options)
        return 1000 * (perf_counter() - started)


@asynccontextmanager
async def _runs(directory: Directory, roots: Roots) -> AsyncIterator[_Runs]:
    environment = {"PATH": os.environ["PATH"]}
    runner = Runner(
        Limits(grace_seconds=GRACE_SECONDS),
        environment,
        sandbox_pool=SandboxPool(roots, ConfinementPolicy(), environment),
    )
    try:
        await runner.prepare()
        yield _Runs(runner, directory)
    finally:
        await runner.close()


def supervised(place: Workspace, stack: ExitStack) -> list[Contender]:
    """`true`, alone and many at once, supervised and not; and a command that has to be ended."""
    roots = stack.enter_context(Roots([RootSpec(place.root)], deny=DenyRules(DEFAULT_DENY)))
    directory = stack.enter_context(open_directory(roots, "."))
    portal = stack.enter_context(start_blocking_portal())
    runs = stack.enter_context(portal.wrap_async_context_manager(_runs(directory, roots)))
    return [
        Contender(figures=("true, supervised",), once=lambda: (portal.call(runs.one, HELD),)),
        Contender(figures=("true, run",), once=lambda: (portal.call(runs.one, FREE),)),
        Contender(figures=(f"{MANY} true, supervised",), once=lambda: (portal.call(runs.many, HELD),)),
        Contender(figures=(f"{MANY} true, run",), once=lambda: (portal.call(runs.many, FREE),)),
        Contender(figures=("deaf tree, ended",), once=lambda: (portal.call(runs.ended, "sh", "-c", _DEAF),)),
        Contender(figures=("sleep, ended",), once=lambda: (portal.call(runs.ended, "sleep", "1000"),)),
    ]
