"""Judge a command by the operator's policy as the runner starts it."""

from collections.abc import Mapping, Sequence
from functools import partial

from anyio import to_thread

from coretools.command_policy.line_verdict import judge_command
from coretools.command_policy.verdict import Decision, ProgramPolicy
from coretools.process.run import RunOptions


async def judge(
    programs: ProgramPolicy, argv: Sequence[str], options: RunOptions, *, environment: Mapping[str, str]
) -> Decision:
    """Return the verdict on a command. `environment` is what children of the runner inherit.

    Raises:
        CommandSyntax: the line exceeds a limit. InvalidArguments: there is no word.
    """
    if not options.line and not options.variables:
        return programs.decide(argv)
    inherited = {*environment, *options.environment}
    variables = {name: options.environment[name] for name in options.variables}
    decide = partial(judge_command, programs, argv, line=options.line, variables=variables, inherited=inherited)
    # In a thread: a hostile line takes up to half a second.
    return await to_thread.run_sync(decide)


async def require(
    programs: ProgramPolicy, argv: Sequence[str], options: RunOptions, *, environment: Mapping[str, str]
) -> None:
    """Refuse a command that the policy does not allow.

    Raises:
        DeniedCommand: the verdict is `deny`, or `ask` without confirmation. The errors of `judge`.
    """
    decision = await judge(programs, argv, options, environment=environment)
    programs.require(decision, is_confirmed=options.is_confirmed)
