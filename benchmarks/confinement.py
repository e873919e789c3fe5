"""What kernel confinement of a child costs: the same start with and without a confined thread, in one process."""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from time import perf_counter

from benchmarks.contenders import LONGER
from benchmarks.failure import NotMeasured
from benchmarks.interleaved import Contender
from benchmarks.workspace import Workspace, plain_environment
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.confinement.landlock import READ
from coretools.process import confined_runner
from coretools.process.children.spawn import ChildProcess, spawn
from coretools.roots.hidden_files import DenyRules
from coretools.roots.read import open_directory
from coretools.roots.root import Directory, RootSpec
from coretools.roots.root_set import Roots

STATUS = ("git", "status", "--porcelain=v2", "--branch")


def can_hold() -> bool:
    """Whether this kernel can confine a child."""
    with closing(ConfinedThreadPool()) as confined_threads:
        return confined_threads.is_possible


def confined_starts(place: Workspace, stack: ExitStack) -> list[Contender]:
    """`true` and `git status`, each confined and not."""
    confined_threads = stack.enter_context(closing(ConfinedThreadPool()))
    roots = stack.enter_context(Roots([RootSpec(place.root)], deny=DenyRules(())))
    directory = stack.enter_context(open_directory(roots, "."))
    return [
        contender
        for name, argv in (("true", ("true",)), ("git status", STATUS))
        for contender in _pair(name, argv, directory, confined_threads)
    ]


def _pair(
    name: str, argv: Sequence[str], directory: Directory, confined_threads: ConfinedThreadPool
) -> list[Contender]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/dev/null"} | {"GIT_CONFIG_NOSYSTEM": "1"}
    start = partial(spawn, argv, cwd=directory, environment=environment, fed=False)
    file = shutil.which(argv[0], path=plain_environment()["PATH"])

    def start_confined() -> ChildProcess:
        # All that a call does for it: the rules, the look whether they are known, the thread.
        own = () if file is None else confined_runner.startup_rules(os.path.realpath(file)) or ()
        return confined_threads.get(((directory.fd, READ),), system=own).run(start)

    return [_timed(f"{name}, confined", start_confined), _timed(f"{name}, spawned", start)]


def _timed(figure: str, start: Callable[[], ChildProcess]) -> Contender:
    def once() -> tuple[float, ...]:
        started = perf_counter()
        child = start()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        seconds = perf_counter() - started
        child.reap()
        child.close()
        if child.exit_code != 0:
            raise NotMeasured(f"{figure}: ended with {child.exit_code}")
        return (1000 * seconds,)

    return Contender(figures=(figure,), once=once, repeat=LONGER)
