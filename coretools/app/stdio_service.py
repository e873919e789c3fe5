"""One server on one pair of standard streams, from its first line to its clean end."""

from collections.abc import Mapping, Sequence
from functools import partial

from coretools.app.assembly import announce, assembled, prepare, require
from coretools.config.settings import Settings
from coretools.operations.registry import Registry
from coretools.protocol.process_exit import Ending
from coretools.protocol.round_trip_questions import Interviews
from coretools.protocol.server import Beside, build_shared
from coretools.protocol.stdio.transport import run_on_wire, standard_streams_claimed


async def serve_stdio(settings: Settings, environment: Mapping[str, str], others: Sequence[Registry] = ()) -> int:
    """Serve on fd 0 and fd 1 until the client closes its end or a signal comes; every child is gone then.

    `others` are registries of other people, served beside our tools.

    Returns:
        The exit code of the process.

    Raises:
        BadSetting: a root or another setting can't be used.
        Unconfined: commands can't be held as the operator requires.
    """
    ending = Ending()
    with standard_streams_claimed() as wire:
        async with assembled(settings, environment, others) as assembly:
            interviews = Interviews(settings.asking)
            beside = Beside(runs=assembly.resources, extensions=assembly.extensions(interviews), interviews=interviews)
            server = build_shared(assembly.catalog, assembly.dispatcher, assembly.identity, beside)
            announce(assembly, settings)
            if settings.policy.confinement.require is not None:
                await require(assembly)
            work = (partial(prepare, assembly),)
            await run_on_wire(server, wire, line_bytes=settings.limits.line_bytes, ending=ending, beside=work)
    return ending.exit_code
