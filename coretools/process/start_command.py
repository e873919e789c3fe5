"""Start a command through the keeper, and say in words why one can't be started."""

import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack

from anyio import CancelScope

from coretools.errors import CannotStart, CoreError, InputOutput, Unsupported
from coretools.process.children.spawn import refusal
from coretools.process.children.streams import TerminalSize
from coretools.process.fork_server.client import CellFailed, Slot
from coretools.process.fork_server.pool import Keeper
from coretools.process.fork_server.supervised_process import NotStarted, Supervised, send
from coretools.roots.read import Directory

_TRIES = 3
"""A spawner, or a command that waits, may have been ended by somebody: the next one is asked."""

_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)
"""How a socket says that nobody is at its other end."""


async def start_command(
    keeper: Keeper,
    argv: Sequence[str],
    *,
    cwd: Directory,
    environment: Callable[[], Mapping[str, str]],
    fed: bool,
    size: TerminalSize | None,
) -> Supervised:
    """Have a program started by a supervisor, held by the tier in force; returns when it runs.

    The caller must call `Keeper.ended` afterwards. `environment` depends on the tier: it is called when that is known.

    Raises:
        CannotStart: not found, not executable, no interpreter, too long, out of sight, or the directory is gone.
        Unconfined: commands must not run in the tier in force. Busy, InputOutput: no processes or descriptors left.
    """
    if os.fstat(cwd.fd).st_nlink == 0:
        raise CannotStart(f"{cwd.shown}: the working directory is gone")
    keeper.begun()
    async with AsyncExitStack() as undo:
        undo.push_async_callback(_broken_off, keeper)
        child = await _started(keeper, argv, cwd=cwd, environment=environment, fed=fed, size=size)
        undo.pop_all()
    return child


async def _broken_off(keeper: Keeper) -> None:
    """Say that a command that failed to start, or was cancelled meanwhile, may have begun to run."""
    with CancelScope(shield=True):
        await keeper.ended(is_certain=False)


async def _started(
    keeper: Keeper,
    argv: Sequence[str],
    *,
    cwd: Directory,
    environment: Callable[[], Mapping[str, str]],
    fed: bool,
    size: TerminalSize | None,
) -> Supervised:
    for _ in range(_TRIES):
        slot = await _slot(keeper)
        if slot is None:
            continue
        variables = environment()
        try:
            child = send(slot, argv, cwd=cwd, environment=variables, fed=fed, size=size)
        except OSError as error:
            if error.errno in _GONE:
                continue
            raise refusal(error, argv, cwd, place="", environment=variables) from error
        failure = await _failure(child)
        if failure is None:
            return child
        if failure.number == errno.ETIMEDOUT:
            break
        if failure.what != "supervisor":
            raise _refused(failure, argv, cwd, environment=variables, keeper=keeper) from failure
    raise CannotStart(f"{argv[0]}: the process that starts commands does not answer; try again")


async def _slot(keeper: Keeper) -> Slot | None:
    """A command that waits; None when the spawner ended just now."""
    try:
        return await keeper.slot()
    except CellFailed as error:
        raise Unsupported(f"no command can be started here: {error}") from error
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise InputOutput(f"no descriptors left for a command ({error.strerror}); try again when fewer run") from error


async def _failure(child: Supervised) -> NotStarted | None:
    """Why the program does not start; None when it runs. Then only are its ends kept."""
    with ExitStack() as undo:
        undo.callback(child.close)
        try:
            await child.started()
        except NotStarted as failure:
            return failure
        undo.pop_all()
    return None


def _refused(
    failure: NotStarted, argv: Sequence[str], cwd: Directory, *, environment: Mapping[str, str], keeper: Keeper
) -> CoreError:
    if failure.what == "directory":
        return CannotStart(f"{cwd.shown}: can't be the working directory: {os.strerror(failure.number)}")
    error = OSError(failure.number, os.strerror(failure.number))
    found = argv[0] if os.path.isabs(argv[0]) else shutil.which(argv[0], path=environment.get("PATH"))
    is_hidden = failure.number in (errno.ENOENT, errno.EACCES) and found is not None and os.path.exists(found)
    if is_hidden and found is not None and not keeper.sees(found):
        return CannotStart(
            f"{argv[0]}: is {found}, which commands don't see; the operator can grant it (readable, in the policy file)"
        )
    return refusal(error, argv, cwd, place="", environment=environment)
