"""`coretools repl`: run commands line by line, with one assembly for the whole session.

A line is run as by `coretools WORDS`. After an error the loop continues; Ctrl-C ends the running command and everything
that it started. Input from a pipe has no prompt, and the exit code is that of the last failure.
"""

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskStatus

from coretools.app.assembly import Assembly, open_assembly
from coretools.cli.command_runner import CommandContext, CommandLine, CommandRunner
from coretools.cli.common.global_options import LINE_OPTIONS, line_parser, split_options
from coretools.cli.common.manual import WIDTH, overview
from coretools.cli.common.terminal import TerminalCapabilities, print_error, print_text
from coretools.cli.line_words import MCP, words_of
from coretools.cli.repl_lines import LineSource, PipedLines, PromptedLines
from coretools.client.configuration.server_entries import load_configuration
from coretools.config.options import working_directory
from coretools.config.settings import Settings
from coretools.errors import CoreError, NotFound
from coretools.operations.registry import Registry
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal

if TYPE_CHECKING:
    from coretools.cli.repl_servers import ReplServers

INTERRUPTED = 128 + signal.SIGINT


async def repl(settings: Settings, registries: Sequence[Registry]) -> int:
    """Run lines until the input ends; `registries` are served in addition to the built-in commands.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    process_exit = ProcessExit()
    exit_code = 0
    environment = dict(os.environ)
    async with (
        open_assembly(settings, environment, registries) as assembly,
        cancel_on_signal(process_exit),
        _servers(assembly, settings, environment) as servers,
    ):
        terminal = TerminalCapabilities.of(os.environ)
        runner = CommandRunner(CommandContext.of(assembly, settings), terminal, program="", channel="repl")
        if terminal.can_ask:
            lines = PromptedLines(runner, os.environ, servers)
            await _ReadLoop(runner, lines, servers).run_interrupted()
        else:
            exit_code = await _ReadLoop(runner, PipedLines(), servers).run()
    return process_exit.exit_code or exit_code


@asynccontextmanager
async def _servers(
    assembly: Assembly, settings: Settings, environment: Mapping[str, str]
) -> "AsyncIterator[ReplServers | None]":
    """Yield the servers that are configured; None if there are none: the SDK is not loaded then."""
    if not load_configuration(working_directory(), environment).entries:
        yield None
        return
    from coretools.cli.repl_servers import open_repl_servers

    async with open_repl_servers(assembly, settings, environment) as servers:
        yield servers


class _ReadLoop:
    """Reads and runs the lines of one source."""

    def __init__(self, runner: CommandRunner, lines: LineSource, servers: "ReplServers | None") -> None:
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
        if words[0] == MCP:
            if self._servers is None:
                raise NotFound("no servers are configured; `coretools mcp doctor` shows where was looked")
            return await self._servers.run(words[1:])
        if self._servers is not None and self._runner.routes.at(words) is None:
            # The tool of a server that is not connected yet.
            await self._servers.settle(lambda: self._runner.routes.at(words) is not None)
        return await self._runner.run(parse_line(self._runner, words))

    def _help(self) -> str:
        commands = overview(self._runner.routes, (), WIDTH)
        return (
            f"{commands}\n\n`help COMMAND` shows its usage; `exit` or Ctrl-D leaves; Ctrl-C ends a command;"
            f" `{MCP}` shows other servers."
        )

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
