"""`coretools repl`: the commands of the graph line by line, on one assembly that lives as long as the REPL.

A line goes the very way of `coretools WORDS`. An error is shown and the loop goes on; Ctrl-C ends the command that runs
and all that it started. From a pipe there is no prompt, and the exit code is that of the last failure.
"""

import os
import signal
from collections.abc import Sequence

import anyio
from anyio.abc import TaskStatus

from coretools.client.manual import WIDTH, overview
from coretools.client.output import complain, put
from coretools.client.own_options import LINE_OPTIONS, divided, line_parser
from coretools.client.repl_input import Lines, PipedLines, PromptedLines
from coretools.client.repl_lines import words_of
from coretools.client.terminal import Screen
from coretools.client.typed import Bench, Desk, Line
from coretools.errors import CoreError
from coretools.registry import Registry
from coretools.serving.assembly import assembled
from coretools.serving.ending import Ending, until_signalled
from coretools.settings import Settings

INTERRUPTED = 128 + signal.SIGINT


async def repl(settings: Settings, others: Sequence[Registry]) -> int:
    """Run lines until the input ends; `others` are other people's commands beside ours.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    ending = Ending()
    exit_code = 0
    async with assembled(settings, dict(os.environ), others) as assembly, until_signalled(ending):
        screen = Screen.of(os.environ)
        desk = Desk(Bench.of(assembly, settings), screen, program="")
        if screen.can_ask:
            await _Loop(desk, PromptedLines(desk, os.environ)).run_interrupted()
        else:
            exit_code = await _Loop(desk, PipedLines()).run()
    return ending.exit_code or exit_code


class _Loop:
    """The lines of one input."""

    def __init__(self, desk: Desk, lines: Lines) -> None:
        self._desk = desk
        self._lines = lines
        self._running: anyio.CancelScope | None = None

    async def run_interrupted(self) -> None:
        """Run every line; SIGINT ends the one that runs."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watch)
            await self.run()
            tasks.cancel_scope.cancel()

    async def run(self) -> int:
        """Run every line; the exit code of the last that failed."""
        failed = 0
        while (text := await self._lines.next()) is not None:
            try:
                words = words_of(text)
            except CoreError as error:
                complain(str(error))
                failed = error.exit_code
                continue
            if words[:1] == ["exit"]:
                break
            if words and not words[0].startswith("#"):
                failed = await self._one(words) or failed
        return failed

    async def _one(self, words: Sequence[str]) -> int:
        with anyio.CancelScope() as self._running:
            try:
                return await self._run(words)
            except CoreError as error:
                complain(str(error))
                return error.exit_code
        complain("interrupted")
        return INTERRUPTED

    async def _run(self, words: Sequence[str]) -> int:
        if words[0] == "help":
            return put(self._desk.help(words[1:]) if words[1:] else self._help())
        return await self._desk.run(line_of(self._desk, words))

    def _help(self) -> str:
        commands = overview(self._desk.routes, (), WIDTH)
        return f"{commands}\n\n`help COMMAND` says how one is typed; `exit` or Ctrl-D ends; Ctrl-C ends what runs."

    async def _watch(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._running is not None:
                    self._running.cancel()


def line_of(desk: Desk, words: Sequence[str]) -> Line:
    """A line with the options that say how it is run.

    Raises:
        InvalidArguments: `--answer` without a value.
    """
    own, rest = divided(words, LINE_OPTIONS, behind=LINE_OPTIONS.keys() - desk.option_names(words))
    options = line_parser().parse_args(own)
    return Line(words=rest, as_json=options.json, wants_help=options.wants_help, answers=options.answer)
