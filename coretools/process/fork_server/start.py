"""Start a command in a process that the fork server preforked."""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from anyio import CancelScope

from coretools.confinement.trial_view import TrialView
from coretools.errors import CannotStart, InputOutput, Unsupported
from coretools.process.children.spawn import start_error
from coretools.process.fork_server.client import PreforkedProcess
from coretools.process.fork_server.messages import ForkServerFailed
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.fork_server.supervised_process import (
    StandardStreams,
    SupervisedProcess,
    spawn_supervised,
    start_failure,
)
from coretools.roots.root import Directory

_TRIES = 3
"""Attempts: somebody may have killed a fork server or a preforked process, and then the next one is used."""

_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)
"""Errors of a socket whose peer is gone."""


async def start_sandboxed(
    sandbox_pool: SandboxPool,
    argv: Sequence[str],
    *,
    cwd: Directory,
    environment: Callable[[], Mapping[str, str]],
    standard: StandardStreams,
    trial: TrialView | None = None,
) -> SupervisedProcess:
    """Start a program in a preforked process of the pool; return when it runs. `trial`: its changes go to overlays.

    The caller must call `SandboxPool.command_ended` afterwards. `environment` depends on the tier and is called when
    that is known.

    Raises:
        CannotStart: not found, not executable, no interpreter, too long, hidden, or the directory is gone.
        Unconfined: commands must not run in the tier that is available here.
        Busy, InputOutput: no processes or descriptors left.
    """
    if os.fstat(cwd.fd).st_nlink == 0:
        raise CannotStart(f"{cwd.display_path}: the working directory is gone")
    sandbox_pool.command_started()
    async with AsyncExitStack() as undo:
        undo.push_async_callback(_report_uncertain_end, sandbox_pool)
        for _ in range(_TRIES):
            process = await _take_process(sandbox_pool, trial)
            if process is None:
                continue
            variables = environment()
            try:
                child = spawn_supervised(process, argv, cwd=cwd, environment=variables, standard=standard)
            except OSError as error:
                if error.errno in _GONE:
                    continue
                raise start_error(error, argv, cwd, place="", environment=variables) from error
            failure = await child.failure()
            if failure is None:
                undo.pop_all()
                return child
            if failure.number == errno.ETIMEDOUT:
                break
            if failure.what != "supervisor":
                raise start_failure(failure, argv, cwd, environment=variables, sees=sandbox_pool.sees) from failure
        raise CannotStart(f"{argv[0]}: the fork server does not answer; try again")


async def _report_uncertain_end(sandbox_pool: SandboxPool) -> None:
    """Report that a command that failed to start, or was cancelled meanwhile, may be running."""
    with CancelScope(shield=True):
        await sandbox_pool.command_ended(is_certain=False)


async def _take_process(sandbox_pool: SandboxPool, trial: TrialView | None) -> PreforkedProcess | None:
    """A preforked process; None if the fork server has just ended."""
    try:
        return await sandbox_pool.take_process(trial)
    except ForkServerFailed as error:
        raise Unsupported(f"no command can be started here: {error}") from error
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise InputOutput(f"no descriptors left for a command ({error.strerror}); try again when fewer run") from error
