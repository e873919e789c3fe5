"""Programs that tools start themselves, git and ripgrep: each held by the kernel to what the call is about.

Where that is not possible they run all the same, as the tools' own checks allow, and `is_confined` says so.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from coretools.confinement import programs
from coretools.confinement.domain import Domain, Domains
from coretools.confinement.landlock import Rule
from coretools.errors import CannotStart
from coretools.process.runner import Completed, Order, Runner
from coretools.sandbox.reading import Directory
from coretools.sandbox.walk import HANDLE

PROOF_SECONDS = 5.0
"""Deadline of the `--version` that shows whether a program starts in a domain at all."""

logger = logging.getLogger(__name__)


class Confined:
    """Runs programs of a known shape, each in a domain made for the call."""

    def __init__(self, runner: Runner, domains: Domains) -> None:
        self._runner = runner
        self._domains = domains
        self._path = runner.environment.get("PATH", "")
        self._files: dict[str, str] = {}
        self._starts: dict[str, bool] = {}

    def domain(self, program: str, rules: Sequence[Rule]) -> Domain | None:
        """A domain in which the program can start and do what the rules allow; None where there can be none.

        Handles in the rules may be closed afterwards.

        Raises:
            InputOutput: no descriptor left. Busy: no room for a thread.
        """
        if not self._domains.is_possible or self._starts.get(program) is False:
            return None
        own = self._rules_to_start(program)
        return None if own is None else self._domains.of(rules, system=own)

    def is_confined(self, program: str) -> bool:
        """Whether runs of this program are held to a domain, as far as is known by now."""
        return (
            self._domains.is_possible
            and self._starts.get(program) is not False
            and self._rules_to_start(program) is not None
        )

    async def run(self, argv: Sequence[str], *, cwd: Directory, order: Order) -> Completed:
        """Run a program in the order's domain.

        One that can't even start there, say because its libraries lie in an unusual place, is run without from then on.

        Raises:
            What `Runner.run` raises.
        """
        program = argv[0]
        if order.domain is None or self._starts.get(program, False):
            return await self._runner.run(argv, cwd=cwd, order=order)
        try:
            completed = await self._runner.run(argv, cwd=cwd, order=order)
        except CannotStart:
            if await self._can_start(program, cwd):
                raise
        else:
            if completed.ok or await self._can_start(program, cwd):
                self._starts[program] = True
                return completed
        return await self._runner.run(argv, cwd=cwd, order=replace(order, domain=None))

    async def _can_start(self, program: str, cwd: Directory) -> bool:
        """Whether it starts in a domain at all. Asked where nothing of a repository has a part in the answer.

        What ends by its deadline or a signal says nothing, and counts as started.
        """
        domain = self.domain(program, ())
        if domain is None:
            return False
        order = Order(timeout_seconds=PROOF_SECONDS, keep_bytes=4096, domain=domain)
        with replace(cwd, fd=os.open("/", HANDLE), shown="/") as top, suppress(CannotStart):
            completed = await self._runner.run((program, "--version"), cwd=top, order=order)
            if completed.ok or completed.timed_out or completed.exit_code is None:
                return True
        self._starts[program] = False
        logger.warning("%s does not start where the kernel holds it to its own files; it runs unconfined", program)
        return False

    def _rules_to_start(self, program: str) -> tuple[Rule, ...] | None:
        known = self._files.get(program)
        rules = None if known is None else programs.rules_to_start(known)
        if rules is None:
            where = programs.found(program, self._path)
            if where is None:
                return None
            self._files[program] = where
            rules = programs.rules_to_start(where)
        return rules
