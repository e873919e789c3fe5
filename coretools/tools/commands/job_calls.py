"""Run a job within a call: to its end, or for a while, after which it goes on as a run."""

import anyio

from coretools.operations.call import Call
from coretools.process.jobs.job import Job
from coretools.process.jobs.job_table import JobTable
from coretools.tools.commands.prepare import StartedCommand
from coretools.tools.commands.progress import ProgressReporter
from coretools.tools.commands.wait import WaitConditions, WaitOutcome, wait


async def run_to_end(runs: JobTable, started: StartedCommand, call: Call) -> Job:
    """Run a job to its end within the call, and report its progress."""
    options = started.options
    job = runs.foreground_job(started.argv, options=options, principal=call.principal)
    async with anyio.create_task_group() as group:
        group.start_soon(ProgressReporter(job, call, total=options.timeout_seconds).report_forever)
        await runs.run_job(job, cwd=started.directory, options=options, work=started.work)
        group.cancel_scope.cancel()
    return job


async def start_and_wait(
    runs: JobTable, started: StartedCommand, seconds: float, call: Call
) -> tuple[Job, WaitOutcome]:
    """Start a run and wait for its end for a while. A cancelled call ends the run.

    Raises:
        CoreError: it could not be started.
    """
    job = await runs.start(
        started.argv,
        cwd=started.directory,
        options=started.options,
        principal=call.principal,
        session=call.session,
        work=started.work,
    )
    try:
        outcome = await wait(job, WaitConditions(seconds=seconds), ProgressReporter(job, call, total=seconds))
    except anyio.get_cancelled_exc_class():
        job.stop("its call was cancelled")  # nobody knows its id
        raise
    runs.mark_used(job)
    return job, outcome
