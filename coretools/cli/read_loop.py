"""The loop of a REPL: reads lines from a terminal or a pipe, and runs them one after the other."""

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskStatus

from coretools.cli.command_runner import CommandLine, CommandRunner
from coretools.cli.common.global_options import LINE_OPTIONS, line_parser, split_options
from coretools.cli.common.manual import WIDTH, overview
from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.line_words import MCP, words_of
from coretools.cli.repl_lines import LineSource
from coretools.errors import CoreError, NotFound

if TYPE_CHECKING:
    from coretools.cli.repl_servers import ReplServers

INTERRUPTED = 128 + signal.SIGINT


class ReadLoop:
    """Reads and runs the lines of one source."""

    def __init__(
        self,
        runner: CommandRunner,
        lines: LineSource,
        *,
        servers: "ReplServers | None" = None,
        has_servers: bool = True,
    ) -> None:
        """`has_servers`: whether lines about other servers are understood; `servers` is None while there are none."""
        self._has_servers = has_servers
        self._runner = runner
        self._lines = lines
        self._servers = servers
        self._running: anyio.CancelScope | None = None

    async def run_interrupted(self) -> None:
        """Run every line; SIGINT ends the running one."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watch)
            if self._servers is not None:
                tasks.start_soon(self._servers.open)
            await self.run()
            tasks.cancel_scope.cancel()

    async def run(self) -> int:
        """Run every line; return the exit code of the last failure, or 0."""
        failed = 0
        while (text := await self._lines.next()) is not None:
            try:
                words = words_of(text)
            except CoreError as error:
                print_error(str(error))
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
                print_error(str(error))
                return error.exit_code
            finally:
                if self._servers is not None:
                    with anyio.CancelScope(shield=True):
                        await self._servers.screen.end_questions()
        print_error("interrupted")
        return INTERRUPTED

    async def _run(self, words: Sequence[str]) -> int:
        if words[0] == "help":
            return print_text(self._runner.help(words[1:]) if words[1:] else self._help())
        if words[0] == MCP and self._has_servers:
            if self._servers is None:
                raise NotFound("no servers are configured; `coretools mcp doctor` shows where was looked")
            return await self._servers.run(words[1:])
        if self._servers is not None and self._runner.routes.at(words) is None:
            # The tool of a server that is not connected yet.
            await self._servers.settle(lambda: self._runner.routes.at(words) is not None)
        line = parse_line(self._runner, words)
        if line.wants_help and not line.words:
            return print_text(self._help())
        return await self._runner.run(line)

    def _help(self) -> str:
        commands = overview(self._runner.routes, (), WIDTH)
        servers = f"; `{MCP}` shows other servers" if self._has_servers else ""
        return f"{commands}\n\n`help COMMAND` shows its usage; `exit` or Ctrl-D leaves; Ctrl-C ends a command{servers}."

    async def _watch(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._running is not None:
                    self._running.cancel()


def parse_line(runner: CommandRunner, words: Sequence[str]) -> CommandLine:
    """Parse a line with the options for one command.

    Raises:
        InvalidArguments: `--answer` without a value.
    """
    own, rest = split_options(words, LINE_OPTIONS, after_command=LINE_OPTIONS.keys() - runner.option_names(words))
    options = line_parser().parse_args(own)
    return CommandLine(words=rest, as_json=options.json, wants_help=options.wants_help, answers=options.answer)
