"""Run the steps of a ci action: the first alternative that can be started, one program after another."""

from collections.abc import Sequence
from dataclasses import replace

import anyio

from coretools.errors import CannotStart
from coretools.process.environment import OFFLINE_ENVIRONMENT
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.root import Directory
from coretools.tools.ci.build_system import Argv, Steps
from coretools.tools.ci.restore import is_new_environment
from coretools.tools.failure_explanations import Explanations
from coretools.tools.network_policy import NetworkPolicy


class StepRunner:
    """Runs the steps of an action."""

    def __init__(self, runner: Runner, explanations: Explanations, network: NetworkPolicy) -> None:
        """`network` decides whether the tools are told to work offline."""
        self._runner = runner
        self._explanations = explanations
        self._network = network

    async def offline(self, options: RunOptions) -> RunOptions:
        """Return the options, with variables that make the tools work offline if the network is denied."""
        await self._runner.prepare()
        if not self._is_offline:
            return options
        return replace(options, environment={**options.environment, **OFFLINE_ENVIRONMENT})

    @property
    def _is_offline(self) -> bool:
        return self._network.is_denied(self._runner.tier)

    async def run_first(
        self, alternatives: Sequence[Steps], directory: Directory, *, options: RunOptions, probe: Argv = ()
    ) -> Sequence[Completed]:
        """Run the first alternative whose program can be started.

        Raises:
            CannotStart: none can be started; the reason is that of the last.
        """
        for steps in alternatives:
            try:
                is_probed = probe and self._is_offline and is_new_environment(steps[0])
                refused = await self._probe_failure(probe, directory, options) if is_probed else []
                return refused or await self._run_all(steps, directory, options=options)
            except CannotStart as error:
                failure = error
        raise failure

    async def _probe_failure(self, probe: Argv, directory: Directory, options: RunOptions) -> Sequence[Completed]:
        """Run a probe, and return its run if it failed because the network is denied; else nothing."""
        run = await self._runner.run(probe, cwd=directory, options=options)
        output = f"{run.stdout.text()}\n{run.stderr.text()}"
        notes = self._explanations.of(argv=run.argv, tier=run.tier, failed=not run.ok, output=output)
        return [run] if notes and not run.ok else []

    async def _run_all(self, steps: Steps, directory: Directory, *, options: RunOptions) -> Sequence[Completed]:
        """Run the steps until one fails. They share one deadline."""
        runs: list[Completed] = []
        deadline = anyio.current_time() + (options.timeout_seconds or 0)
        for argv in steps:
            # Never zero: a step without time left then ends as timed out, like one that reaches the deadline.
            remaining = max(0.01, deadline - anyio.current_time())
            mine = replace(options, timeout_seconds=remaining)
            runs.append(await self._runner.run(argv, cwd=directory, options=mine))
            if not runs[-1].ok:
                break
        return runs
