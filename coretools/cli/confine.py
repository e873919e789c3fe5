"""`coretools confine -- PROGRAM ...`: run any program as the commands of agents run, on its caller's own streams.

The program gets pipes, sockets and the terminal of this process as they are, so that nothing is copied between a client
and its server; files are copied (`standard_files`). It and all that it started end with this process, also if that is
killed.
"""

import argparse
import json
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import anyio

from coretools.app.command_sandbox import open_commands
from coretools.cli.common.global_options import OptionParser
from coretools.cli.common.terminal import print_error
from coretools.cli.standard_files import handed_over_streams
from coretools.config.logs import configure_logging
from coretools.config.options import add_options, settings_from, working_directory
from coretools.config.settings import Settings
from coretools.errors import CoreError, InvalidArguments, Unconfined
from coretools.process.environment import HANDED_ON
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal
from coretools.roots.read import open_directory

GRACE_SECONDS = 1.0
"""From SIGTERM to SIGKILL: a client of a server gives this process two seconds to end it."""


def confine_line(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the program that a line names; return its exit code, or 128 plus the number of the signal that ended it.

    Raises:
        InvalidArguments: the line is wrong. BadSetting: a root or another setting can't be used.
        CannotStart: the program can't be started. Unconfined: it can't be confined here.
    """
    at = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:at])
    argv = words[at + 1 :]
    if not argv:
        raise InvalidArguments(
            "confine: a program is missing; write coretools confine [--root DIRECTORY] -- PROGRAM ..."
        )
    settings = settings_from(options, options.root, environment, working_directory())
    policy = settings.policy
    # Whatever the policy allows to commands: a line with `confine` means it.
    strict = replace(policy, confinement=replace(policy.confinement, allow_unconfined=False))
    configure_logging(settings.log_level, environment)
    limits = replace(settings.limits, grace_seconds=min(settings.limits.grace_seconds, GRACE_SECONDS))
    settings = replace(settings, policy=strict, limits=limits)
    given = json.loads(environment.get(HANDED_ON, "{}"))
    return anyio.run(_confine, settings, environment, argv, options.directory, given)


async def _confine(
    settings: Settings,
    environment: Mapping[str, str],
    argv: Sequence[str],
    directory: str | None,
    given: dict[str, str],
) -> int:
    process_exit = ProcessExit()
    completed: Completed | None = None
    failure: CoreError | None = None
    with ExitStack() as stack:
        roots, runner, sandbox_pool = open_commands(settings, environment, stack)
        start = directory or next(iter(roots)).path
        async with cancel_on_signal(process_exit):
            try:
                with open_directory(roots, start) as cwd:
                    await _require_confinement(runner)
                    # HOME, TMPDIR and the like are those of the sandbox; PATH may be that of the caller.
                    fixed = sandbox_pool.variables(cwd.place.root).keys() - {"PATH"}
                    variables = {name: value for name, value in given.items() if name not in fixed}
                    streams = stack.enter_context(handed_over_streams())
                    completed = await runner.run(argv, cwd=cwd, options=_options(variables, streams))
            except CoreError as error:  # raised below, where it does not become a group
                failure = error
            finally:
                await runner.close()
    process_exit.cancel_deadline()
    if failure is not None:
        raise failure
    return process_exit.exit_code if completed is None else _reported(completed)


async def _require_confinement(runner: Runner) -> None:
    status = await runner.prepare()
    if status.tier == "none":
        why = "; ".join(f"{tier}: {reason}" for tier, reason in status.missing.items())
        raise Unconfined(f"programs can't be confined on this machine ({why})")


def _options(variables: Mapping[str, str], streams: tuple[int, int, int]) -> RunOptions:
    # No verdict of the command policy: the program was chosen at the keyboard, or in the configuration of a server.
    forever = float("inf")
    return RunOptions(is_command=True, is_granted=True, timeout_seconds=forever, environment=variables, files=streams)


def _reported(completed: Completed) -> int:
    """Print what the sandbox has to say about a run, and return the exit code."""
    for remark in (*completed.remarks, *filter(None, [completed.stopped_for])):
        print_error(f"coretools confine: {remark}")
    if completed.exit_code is not None:
        return completed.exit_code
    numbers = signal.Signals.__members__
    return 128 + numbers.get(completed.signal or "", signal.SIGKILL)


def _parser() -> argparse.ArgumentParser:
    parser = OptionParser(
        prog="coretools confine",
        usage="coretools confine [options] -- PROGRAM [ARGUMENT ...]",
        description="Run a program as the commands of agents run: it can use its roots, the system and what the policy"
        " file grants, with a home of its own and without a network. Standard input and outputs are those of this"
        " command; when this command ends, so does everything that the program started.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--root", action="append", default=[], metavar="DIRECTORY[:ro]", help="what it may use [the current directory]"
    )
    parser.add_argument("--directory", metavar="DIRECTORY", help="where it starts [the first root]")
    add_options(parser, profile="all", log_level="error")
    return parser
